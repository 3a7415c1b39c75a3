"""Running out of memory: one error for all the ways in which it shows, and what gives back what is no longer used."""

from __future__ import annotations

import ctypes
import errno
import gc
import sys

import torch

from chainrule.errors import MemoryLimitError

STACK_BYTES = 64 << 20
"""Of a thread that computes. A chain of autograd nodes goes each within the one before: 8 MiB are enough for 30,000."""

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory", "std::bad_alloc")
"""How torch's errors from the CPU's allocator read, on POSIX, on Windows, and from its C++: it has no type for them."""

_THREADS = "can't start new thread"
"""How Python says that there is no memory for the stack of one; a limit on threads reads the same."""

_LOADER = ("failed to map segment", "cannot allocate memory")
"""How the loader of shared libraries says it, as an OSError without a number."""

_CUDA_LIBRARIES = ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
"""The same of what CUDA's runtime and libraries allocate for themselves."""

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
"""What glibc has and other C libraries lack. A request opens no library: it is taken here."""


def out_of_memory(error: BaseException) -> str | None:
    """What ran out of memory, "host" or "device"; None if `error` says something else."""
    if isinstance(error, MemoryError):
        return "host"
    if isinstance(error, torch.OutOfMemoryError):
        return "device"
    if isinstance(error, OSError):
        is_loader = error.errno is None and any(words in str(error).lower() for words in _LOADER)
        return "host" if is_loader or error.errno == errno.ENOMEM else None
    if isinstance(error, RuntimeError):
        message = str(error)
        if any(words in message for words in (*_CPU_ALLOCATOR, _THREADS)):
            return "host"
        if any(words in message for words in _CUDA_LIBRARIES):
            return "device"
    return None


class memory_errors:  # noqa: N801 (used as a statement)
    """Raise MemoryLimitError in place of whatever says that memory ran out inside the block.

    The tensors that were at work hang on the traceback of what was raised, so it is dropped: the error can be kept and
    sent without them.

    Raises:
        MemoryLimitError: the host or the device ran out of memory.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        place = None if error is None else out_of_memory(error)
        if error is not None and place is not None:
            del traceback  # this very frame is in the next one
            error.__traceback__ = None
            raise MemoryLimitError(f"the {place} ran out of memory: {_first_line(error)}") from error


def release_memory() -> None:
    """Give back what no name refers to any more: reference cycles, and blocks that torch keeps of a CUDA device."""
    gc.collect()
    return_free_pages()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def return_free_pages() -> None:
    """Give the system back the memory that is free between what is in use, where glibc keeps it; it may be asked again.

    glibc gives back by itself what is free at the end of a heap. The tensors of a pass lie beneath the few blocks that
    outlive it, so all that a large pass took stays with the process: of 434 MiB after one, 177 are free. To give them
    back takes 12 ms, and the next pass, which has to ask for some of them again, 30 ms more.
    """
    if _malloc_trim is not None:
        _malloc_trim(ctypes.c_size_t(0))


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError):  # which file it was about, and where that lies, is nobody's business
        return error.strerror or str(error).rpartition("/")[2]
    return str(error).partition("\n")[0] or type(error).__name__
