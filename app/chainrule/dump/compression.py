"""Dumps compressed by gzip: a tenth of their size, in files such as `step1000.json.gz`."""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from typing import BinaryIO

from chainrule.errors import DumpError

MAX_BYTES = 2**30
"""Larger dumps are not opened, decompressed; `static/core/dump/dump.js` has the same limit."""

MAGIC = b"\x1f\x8b"
"""The begin of a gzip file."""


def is_packed(begin: bytes) -> bool:
    """Whether a file that begins like this is compressed."""
    return begin.startswith(MAGIC)


def unpacked(content: bytes) -> bytes:
    """A dump, decompressed and without a byte order mark.

    Raises:
        DumpError: it is too large, or the compressed data are damaged.
    """
    if is_packed(content):
        try:
            with gzip.GzipFile(fileobj=BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DumpError(f"the compressed data are damaged: {error}") from None
    check_size(len(content))
    return content.removeprefix(b"\xef\xbb\xbf")


def begin_of(file: BinaryIO, size: int) -> bytes:
    """The first bytes of an open dump, decompressed; of damaged data, none."""
    begin = file.read(size)
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begin, size) if is_packed(begin) else begin
    except zlib.error:
        return b""


def check_size(size: int) -> None:
    """Check the number of bytes of a dump. Raises DumpError: it is too large."""
    if size > MAX_BYTES:
        raise DumpError(
            f"the dump has more than {MAX_BYTES / 2**20:.0f} MiB; larger dumps cannot be opened", limit=MAX_BYTES
        )
