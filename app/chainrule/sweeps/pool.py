"""Worker processes, which several sweeps may share; the tasks of a sweep that ends stop at their next step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.sharedctypes import RawArray
from typing import Any, TypeVar

import torch

from chainrule.errors import SweepError
from chainrule.stopping import Stop, stoppable

T = TypeVar("T")

LEASES = 64
"""Maximum number of sweeps that share the workers."""


class WorkerPool:
    """Worker processes; each has one thread of PyTorch. They start with the first task.

    Each lease has a number, and its tasks a round: a task runs as long as its round is the lease's present one.
    """

    def __init__(self, workers: int, niceness: int = 0) -> None:
        """`niceness`: by how much their priority is lower than that of this process."""
        self.workers = workers
        self._niceness = niceness
        self._free = list(range(LEASES))
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    @cached_property
    def rounds(self) -> Any:
        """The present round of each lease, in memory that the workers share; made with the first lease."""
        return RawArray("Q", LEASES)

    def lease(self) -> Lease:
        """The workers as the executor of one sweep. Its `shutdown` stops its own tasks only."""
        with self._lock:
            return Lease(self, self._free.pop())

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a call in a worker. After a `BrokenProcessPool` the next call starts new workers."""
        with self._lock, _without_interrupts():  # any call may start a process
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self.workers,
                    mp_context=get_context("spawn"),
                    initializer=begin_worker,
                    initargs=(self.rounds, self._niceness),
                )
            try:
                return self._pool.submit(function, *arguments)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = None
                raise

    def end(self, lease: Lease) -> None:
        """Stop the tasks of a lease, and take it back."""
        with self._lock:
            self.rounds[lease.number] += 1
            self._free.append(lease.number)

    def close(self) -> None:
        """Stop all tasks, and end the processes."""
        with self._lock:
            if self._pool is not None:
                for number in range(LEASES):
                    self.rounds[number] += 1
                self._pool.shutdown(cancel_futures=True)
                self._pool = None


class Lease(Executor):
    """See `WorkerPool.lease`."""

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self.number = number
        self._pool = pool
        self._round = pool.rounds[number]
        self._is_over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **_: Any) -> Future[T]:
        """See `Executor.submit`."""
        return self._pool.submit(_run, self.number, self._round, fn, args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Stop the tasks."""
        if not self._is_over:
            self._is_over = True
            self._pool.end(self)


class OwnPool(Lease):
    """Worker processes of one sweep alone, which end with it."""

    def __init__(self, workers: int, niceness: int = 0) -> None:
        super().__init__(WorkerPool(workers, niceness), 0)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Stop the tasks and end the processes."""
        self._pool.close()


class _Round(Stop):
    """Asks to stop when the lease's round is over."""

    def __init__(self, number: int, of_task: int) -> None:
        super().__init__()
        self._number, self._round = number, of_task

    def check(self) -> None:
        """See `Stop.check`."""
        if _worker_rounds[self._number] != self._round:
            raise SweepError("stopped: nobody waits for this sweep any more")


_worker_rounds: Any = ()
"""In a worker: the present round of each lease."""


def begin_worker(rounds: Any, niceness: int) -> None:
    """Prepare a worker's process: one thread, its priority, the life of its parent."""
    global _worker_rounds
    _worker_rounds = rounds
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        os.nice(niceness)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    # Else a worker would wait for tasks forever when its parent was killed.
    threading.Thread(target=follow, daemon=True).start()


def _run(number: int, of_task: int, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    stop = _Round(number, of_task)
    stop.check()
    with stoppable(stop):
        return function(*arguments)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits until the end of the block, and processes that start in it do not get it while Python starts."""
    is_main = threading.current_thread() is threading.main_thread()
    caught: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: caught.append(number)) if is_main else None
    mask = None
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # its start would unblock the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
        if caught:  # also if the block raised: a broken pool is started again
            raise KeyboardInterrupt
