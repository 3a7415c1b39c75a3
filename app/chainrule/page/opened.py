"""A graph dump that somebody brought along, to be shown in the page."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

from chainrule.errors import DumpError
from chainrule.wire import parse_dump

MOST_BYTES = 128 * 2**20
"""A dump larger than this is not opened; `static/core/dump/dump.js` says so too."""


@dataclass(frozen=True, slots=True)
class OpenDump:
    """A dump that has been checked: what it is called, its bytes, and a digest of them."""

    name: str
    content: bytes
    digest: str

    @classmethod
    def check(cls, name: str, content: bytes) -> Self:
        """A dump from its bytes.

        Raises:
            DumpError: it is too large, or not a dump; says what is wrong and where.
        """
        _check_size(len(content))
        parse_dump(content)
        return cls(name, content, blake2b(content, digest_size=16).hexdigest())

    @classmethod
    def read(cls, path: Path) -> Self:
        """A dump from a file, whose size is looked at before it is read.

        Raises:
            DumpError: see `check`.
            OSError: the file cannot be read.
        """
        _check_size(path.stat().st_size)
        return cls.check(path.name, path.read_bytes())


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise DumpError(
            f"the file has {size / 2**20:.0f} MiB; at most {MOST_BYTES / 2**20:.0f} MiB are opened", limit=MOST_BYTES
        )
