"""Addresses of the page's files that a browser may cache for good: `/static/~DIGEST/core/dom.js`.

The digest is of all files together: modules import each other by relative addresses, so a page loads all of its files
under one digest. A change of any file changes the digest.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

from chainrule.page import assets, bundles

VERSIONED = re.compile(r"~([0-9a-f]+)(?:/|$)")
"""The beginning of a versioned path below `/static/`."""

KEPT_FOR = 1.0
"""Seconds for which `is_current` trusts the last digest."""

_seen: tuple[float, str] | None = None


def current_digest() -> str:
    """The digest of the current files: of their contents in an installed package, the same on every machine.

    A checkout's digest is of names, sizes and modification times, which are read quickly.
    """
    global _seen
    folders = assets.static(), bundles.FOLDER
    digest = _contents_digest(*folders) if assets.are_installed() else assets.digest(*folders)
    _seen = (time.monotonic(), digest)
    return digest


def is_current(digest: str) -> bool:
    """Whether a digest is of the files as they are, or were within KEPT_FOR."""
    if _seen is not None and time.monotonic() - _seen[0] < KEPT_FOR:
        return digest == _seen[1]
    return digest == current_digest()


@cache
def _contents_digest(*folders: Path) -> str:
    return assets.digest(*folders, contents=True)
