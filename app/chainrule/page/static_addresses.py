"""Addresses of the page's own files that a browser may keep for good: `/static/~DIGEST/core/dom.js`.

The digest is of all files at once, for a module names the next by a relative address: what a page begins to load under
one digest it loads to the end under that digest. Another state of the files is another digest, so none is asked about
again; a module graph of some hundred files then costs no round trip after the first visit.
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
"""What a versioned path begins with, beneath `/static/`."""

KEPT_FOR = 1.0
"""How long the digest that requests are held to is taken as it was last seen, in seconds."""

_seen: tuple[float, str] | None = None


def current_digest() -> str:
    """The digest of the files as they are now.

    An installed package does not change: its digest is of the contents, the same on every machine. In a checkout it is
    of names, sizes and times of change, below a millisecond to read; going back to an earlier content is a new digest,
    under which no browser can have kept anything.
    """
    global _seen
    own = assets.static()
    digest = _contents_digest(own, bundles.FOLDER) if assets.are_installed() else _times_digest(own, bundles.FOLDER)
    _seen = (time.monotonic(), digest)
    return digest


def is_current(digest: str) -> bool:
    """Whether a digest is that of the files as they are, or were within the last second."""
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
    """Every file beneath a folder, by its name from there."""
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
