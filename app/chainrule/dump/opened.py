"""Graph dumps that somebody brought along, to be shown in the page."""

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
"""A dump larger than this is not opened; `static/core/dump/dump.js` says so too."""

BEGINS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"chainrule\.trace/1"\s*,')
"""How a dump begins that we wrote. One that somebody has written anew may have its keys in another order."""

GLANCE = 256
"""So many bytes of a file show how it begins."""

NUMBER = re.compile(r"\d+")


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
        return cls(name, content, _digest(content))

    @classmethod
    def read(cls, path: Path) -> Self:
        """A dump from a file, whose size is looked at before it is read.

        Raises:
            DumpError: see `check`.
            OSError: the file cannot be read.
        """
        _check_size(path.stat().st_size)
        return cls.check(path.name, path.read_bytes())

    def load(self) -> tuple[bytes, str]:
        """Its bytes and their digest."""
        return self.content, self.digest


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One of several dumps that were opened together: read each time that it is asked for, and never kept."""

    name: str
    path: Path

    @classmethod
    def glance(cls, path: Path, name: str | None = None) -> Self:
        """A file of which a glance shows that it is a dump; one that does not begin as ours do is read and checked.

        Two hundred files are open in no time. One that only begins like a dump is refused by the page, which checks
        all that it shows.

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
    """Files in the order of the numbers in their names, where they differ in nothing else: step 900 before step 1000.

    A shell hands them over in the order of letters. Files of other names stay as they were given.
    """
    if len({NUMBER.sub("#", str(path)) for path in paths}) > 1:
        return list(paths)
    return sorted(paths, key=lambda path: [int(number) for number in NUMBER.findall(str(path))])


def names_of(paths: Sequence[Path]) -> list[str]:
    """What files are called in the page: their names, with as many folders before them as tell them apart."""
    names = [path.name for path in paths]
    for depth in range(2, 1 + max((len(path.parts) for path in paths), default=0)):
        if len(set(names)) == len(set(paths)):
            break
        names = [Path(*path.parts[-depth:]).as_posix() for path in paths]
    return names


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise DumpError(
            f"the file has {size / 2**20:.0f} MiB; at most {MAX_BYTES / 2**20:.0f} MiB are opened", limit=MAX_BYTES
        )


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
