"""Graph dumps that a user opened, to be shown in the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Self

from chainrule.dump.wire import parse_dump
from chainrule.errors import DumpError

MAX_BYTES = 128 * 2**20
"""Larger dumps are not opened; `static/core/dump/dump.js` has the same limit."""

BEGINS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"chainrule\.trace/1"\s*,')
"""The beginning of a dump written by Chainrule; other programs may order the keys differently."""

GLANCE = 256
"""Number of bytes that are read to see how a file begins."""

NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class OpenDump:
    """A checked dump: its name, its bytes, and their digest."""

    name: str
    content: bytes
    digest: str

    @classmethod
    def check(cls, name: str, content: bytes) -> Self:
        """Check the bytes of a dump.

        Raises:
            DumpError: it is too large, or not a dump; says what is wrong and where.
        """
        _check_size(len(content))
        parse_dump(content)
        return cls(name, content, _digest(content))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Check a file; its size is checked before it is read.

        Raises:
            DumpError: see `check`.
            OSError: the file cannot be read.
        """
        _check_size(path.stat().st_size)
        return cls.check(path.name, path.read_bytes())

    def load(self) -> tuple[bytes, str]:
        """The bytes and their digest."""
        return self.content, self.digest


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One of several dumps that were opened together: read whenever it is requested, and never kept."""

    name: str
    path: Path

    @classmethod
    def glance(cls, path: Path, name: str | None = None) -> Self:
        """Open a file by its beginning alone, so that two hundred files open at once.

        A file that does not begin like a dump of Chainrule's is read and checked. The page refuses a file that only
        begins like one.

        Raises:
            DumpError: it is too large, or not a dump; says what is wrong and where.
            OSError: the file cannot be read.
        """
        _check_size(path.stat().st_size)
        with path.open("rb") as file:
            begins = BEGINS.match(file.read(GLANCE)) is not None
        if not begins:
            parse_dump(path.read_bytes())
        return cls(name or path.name, path)

    def load(self) -> tuple[bytes, str]:
        """The file's bytes as they are now, and their digest.

        Raises:
            DumpError: it has become too large, or cannot be read any more.
        """
        try:
            _check_size(self.path.stat().st_size)
            content = self.path.read_bytes()
        except OSError as error:
            raise DumpError(f"{self.name}: {error.strerror}") from None
        return content, _digest(content)


def in_order(paths: Sequence[Path]) -> list[Path]:
    """Sort files by the numbers in their names, step 900 before step 1000, if they differ in nothing else.

    A shell passes them in alphabetical order. Files with other names keep their order.
    """
    if len({NUMBER.sub("#", str(path)) for path in paths}) > 1:
        return list(paths)
    return sorted(paths, key=lambda path: [int(number) for number in NUMBER.findall(str(path))])


def names_of(paths: Sequence[Path]) -> list[str]:
    """The files' names in the page: with as many parent folders as needed to tell them apart."""
    names = [path.name for path in paths]
    for depth in range(2, 1 + max((len(path.parts) for path in paths), default=0)):
        if len(set(names)) == len(set(paths)):
            break
        names = [Path(*path.parts[-depth:]).as_posix() for path in paths]
    return names


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise DumpError(
            f"the file has {size / 2**20:.0f} MiB; at most {MAX_BYTES / 2**20:.0f} MiB can be opened", limit=MAX_BYTES
        )


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
