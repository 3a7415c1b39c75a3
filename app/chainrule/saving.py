"""Files that are written whole or not at all: a process that is killed, or a full disk, leaves the earlier file."""

from __future__ import annotations

import errno
import gzip
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

FORMULA = re.compile(r"[=@\t\r\n]|[-+](?![\d.]+(e[-+]?\d+)?$|Infinity$)")
"""How a text begins that a spreadsheet would run, unless it is a number."""

GZIP_LEVEL = 1
"""The fastest: the slowest makes a dump a fifth smaller."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write, which takes the place of `path` at the end of the block; after an error it is deleted.

    A link stays a link. Pipes, devices and files below /dev, such as /dev/stdout, are written as they are.

    Raises:
        OSError: the file cannot be written.
    """
    if path.absolute().parts[1:2] in (("dev",), ("proc",)) or (path.exists() and not path.is_file()):
        yield path
        return
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    made = target.with_name(f".chainrule-{secrets.token_hex(8)}")
    made.touch(exist_ok=False)
    try:
        yield made
        with made.open("rb+") as file:
            os.fsync(file.fileno())
        if mode is not None:
            made.chmod(mode)
        made.replace(target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write `pieces` to `path`, whole or not at all; compressed by gzip if it ends with .gz. Raises OSError."""
    with replacing(path) as made, made.open("wb") as raw:
        # Without a time or a name, so that equal pieces give equal files.
        packed = gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) if path.suffix == ".gz" else nullcontext(raw)
        with packed as file:
            for piece in pieces:
                file.write(piece)


def plain_cell(value: object) -> object:
    """A cell of a CSV file; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value
