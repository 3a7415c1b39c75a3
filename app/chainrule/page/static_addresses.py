"""Addresses of the page's files that a browser may cache for good: `/static/~DIGEST/core/dom.js`.

The digest is of all files together: modules import each other by relative addresses, so a page loads all of its files
under one digest. A change of any file changes the digest.
"""

from __future__ import annotations

import os
import re
import time
from functools import cache
from hashlib import blake2b
from pathlib import Path

from chainrule.page import assets, bundles

VERSIONED = re.compile(r"~([0-9a-f]+)(?:/|$)")
"""The beginning of a versioned path below `/static/`."""

KEPT_FOR = 1.0
"""Seconds for which `is_current` trusts the last digest."""

_seen: tuple[float, str] | None = None


def current_digest() -> str:
    """The digest of the current files: of their contents in an installed package, the same on every machine.

    A checkout's digest is of names, sizes and modification times, which take less than a millisecond to read.
    """
    global _seen
    own = assets.static()
    digest = _contents_digest(own, bundles.FOLDER) if assets.are_installed() else _times_digest(own, bundles.FOLDER)
    _seen = (time.monotonic(), digest)
    return digest


def is_current(digest: str) -> bool:
    """Whether a digest is of the files as they are, or were within KEPT_FOR."""
    if _seen is not None and time.monotonic() - _seen[0] < KEPT_FOR:
        return digest == _seen[1]
    return digest == current_digest()


@cache
def _contents_digest(*folders: Path) -> str:
    digest = blake2b(digest_size=8)
    for folder in filter(Path.is_dir, folders):
        for name, path in _files(folder):
            content = Path(path).read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _times_digest(*folders: Path) -> str:
    digest = blake2b(digest_size=8)
    for folder in filter(Path.is_dir, folders):
        for name, path in _files(folder):
            state = path.stat()
            digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _files(folder: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """Every file below a folder, by its relative name."""
    found: list[tuple[str, os.DirEntry[str]]] = []
    pending = [("", os.fspath(folder))]
    while pending:
        prefix, path = pending.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir():
                    pending.append((f"{name}/", entry.path))
                else:
                    found.append((name, entry))
    return sorted(found, key=lambda each: each[0])
