"""Memory: one error for all symptoms of its end, the return of unused memory, and a pause of the garbage collector."""

from __future__ import annotations

import ctypes
import errno
import gc
import sys
from contextlib import ContextDecorator
from threading import Lock
from typing import ClassVar

import torch

from chainrule.errors import MemoryLimitError

STACK_BYTES = 64 << 20
"""The stack of a computing thread. A chain of autograd nodes recurses: 8 MiB are enough for 30,000 nodes."""

_CPU_ALLOCATOR = ("can't allocate memory", "not enough memory", "std::bad_alloc")
"""Messages of torch's CPU allocator on POSIX, on Windows and from C++, which have no type of their own."""

_THREADS = "can't start new thread"
"""Python's message when a thread gets no stack, and at a limit on threads."""

_LOADER = ("failed to map segment", "cannot allocate memory")
"""Messages of the loader of shared libraries, in an OSError without a number."""

_CUDA_LIBRARIES = ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
"""Messages of CUDA's runtime and libraries, for their own allocations."""

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
"""A function of glibc alone. Looked up at import, because a request opens no library."""


def out_of_memory(error: BaseException) -> str | None:
    """The place that ran out of memory, "host" or "device"; None for another error."""
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
    """Raise MemoryLimitError in place of any error which means that memory ran out inside the block.

    The traceback of that error, which would keep the tensors alive, is dropped.

    Raises:
        MemoryLimitError: the host or the device ran out of memory.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        place = None if error is None else out_of_memory(error)
        if error is not None and place is not None:
            del traceback  # it would be kept by this frame
            error.__traceback__ = None
            raise MemoryLimitError(f"the {place} ran out of memory: {_first_line(error)}") from error


class without_collection(ContextDecorator):  # noqa: N801 (used as a statement)
    """No garbage collection: it would look at many new objects again and again, and find nothing to free.

    If several threads are inside, the last one to leave turns it on again, if it was on before.
    """

    _lock: ClassVar = Lock()
    _inside: ClassVar = 0
    _was_on: ClassVar = True

    def __enter__(self) -> None:
        shared = without_collection
        with shared._lock:
            if not shared._inside:
                shared._was_on = gc.isenabled()
                gc.disable()
            shared._inside += 1

    def __exit__(self, *_: object) -> None:
        shared = without_collection
        with shared._lock:
            shared._inside -= 1
            if not shared._inside and shared._was_on:
                gc.enable()


def release_memory() -> None:
    """Free unused memory: reference cycles, free pages, and the blocks that torch caches of a CUDA device."""
    gc.collect()
    return_free_pages()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def return_free_pages() -> None:
    """Return free pages inside of glibc's heaps to the system.

    glibc returns only the free end of a heap, and the tensors of a pass lie beneath the few blocks that outlive it: 177
    of the 434 MiB after a large pass are free. Their return takes 12 ms, and the next pass 30 ms more.
    """
    if _malloc_trim is not None:
        _malloc_trim(ctypes.c_size_t(0))


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError):  # without its file's path
        return error.strerror or str(error).rpartition("/")[2]
    return str(error).partition("\n")[0] or type(error).__name__
