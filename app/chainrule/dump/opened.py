"""Graph dumps that a user opened, to be shown in the page."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Self

from chainrule.dump.compression import MAGIC, begin_of, check_size, is_packed
from chainrule.dump.wire import parse_dump
from chainrule.errors import DumpError

BEGINS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"chainrule\.trace/1"\s*,')
"""The beginning of a dump written by Chainrule; other programs may order the keys differently."""

SMALL_BYTES = 8 * 2**20
"""A larger file opens by its beginning alone; the page checks what it draws."""

GLANCE = 256
"""Number of bytes that are read to see how a file begins."""

NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Stored:
    """A dump as it is sent: an open file, its number of bytes, a tag that another content does not have."""

    file: BinaryIO
    size: int
    tag: str
    is_packed: bool


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
        parse_dump(content)
        return cls(name, content, _digest(content))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Check a file; its size is checked before it is read.

        Raises:
            DumpError: see `check`.
            OSError: the file cannot be read.
        """
        check_size(path.stat().st_size)
        return cls.check(path.name, path.read_bytes())

    def open(self) -> Stored:
        """The bytes, to be sent."""
        return Stored(BytesIO(self.content), len(self.content), self.digest, is_packed(self.content))

    def load(self) -> bytes:
        """The bytes."""
        return self.content


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
        check_size(path.stat().st_size)
        with path.open("rb") as file:
            begins = BEGINS.match(begin_of(file, GLANCE)) is not None
        if not begins:
            parse_dump(path.read_bytes())
        return cls(name or path.name, path)

    def open(self) -> Stored:
        """The file as it is now, to be sent.

        Raises:
            DumpError: it has become too large, or cannot be read any more.
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise DumpError(f"{self.name}: {error.strerror}") from None
        try:
            about = os.fstat(file.fileno())
            check_size(about.st_size)
            tag = f"{about.st_ino} {about.st_mtime_ns} {about.st_size}"
            return Stored(file, about.st_size, tag, is_packed(file.peek(len(MAGIC))))
        except BaseException:
            file.close()
            raise

    def load(self) -> bytes:
        """The file's bytes as they are now. Raises DumpError, see `open`."""
        with self.open().file as file:
            return file.read()


def is_small(path: Path) -> bool:
    """Whether a dump is so small that checking all of it takes no second. Raises OSError."""
    return path.stat().st_size <= SMALL_BYTES


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


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
