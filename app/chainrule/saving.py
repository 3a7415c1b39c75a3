"""Files that are written whole or not at all: a process that is killed, or a full disk, leaves the earlier file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write, which takes the place of `path` at the end of the block; after an error it is deleted.

    A link stays a link, and a pipe or a device is written as it is.

    Raises:
        OSError: the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        yield Path(name)
        os.fsync(handle)
        if target.exists():
            os.chmod(name, target.stat().st_mode & 0o777)
        else:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def write_file(path: Path, written: bytes) -> None:
    """Write `written` to `path`, whole or not at all. Raises OSError."""
    with replacing(path) as made:
        made.write_bytes(written)
