"""Runs the tasks of a sweep on any `concurrent.futures.Executor`, and runs a task again whose worker died."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.errors import ChainruleError, SweepError, in_words
from chainrule.sweeps.work import Task, Values, run_task

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""After so many seconds in which no task has ended, the executor is checked."""

RETRIES = 2
"""How often a task is run again whose worker died or ran out of memory."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The values of a task's cells and the worker's seconds; without values, the reason.

    A task that failed has an outcome for each of its jobs.
    """

    number: int
    cells: npt.NDArray[np.int64]
    values: Values | None
    seconds: float
    flops: float
    failure: str | None = None


class Checked(Executor):
    """An executor that can lose all its workers without an error."""

    def check(self) -> None:
        """Raise SweepError if no task will end any more."""
        raise NotImplementedError


class Inline(Executor):
    """Runs a call in the caller's thread, when it is submitted."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        """See `Executor.submit`."""
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def conduct(tasks: Iterable[Task], start: Callable[[], Executor], at_once: int) -> Generator[Outcome, None, None]:
    """Run all tasks, and yield their outcomes as they come.

    Args:
        tasks: the tasks; each is taken when there is place for it.
        start: makes the executor; called again when the executor is broken.
        at_once: how many tasks the executor has at a time.

    Raises:
        SweepError: the workers have other versions, or the connection to them is lost.
    """
    waiting, tries = iter(tasks), dict[int, int]()
    again: deque[Task] = deque()
    running: dict[Future[tuple[Values, float]], Task] = {}
    executor = start()
    try:
        while True:
            # A task that failed runs alone: if its worker dies again, it is known whose fault that is.
            chosen = islice(waiting, at_once - len(running)) if not again else () if running else (again.popleft(),)
            for task in chosen:
                running[_submit(executor, task)] = task
            if not running:
                return
            is_alone = len(running) == 1
            done = wait(running, PATIENCE, FIRST_COMPLETED).done
            if not done and isinstance(executor, Checked):
                executor.check()
            is_broken = any(isinstance(_error(future), BrokenProcessPool) for future in done)
            if is_broken:
                done = wait(running).done
            for future in done:
                task, error = running.pop(future), _error(future)
                cells = np.concatenate(task.cells)
                if error is None:
                    yield Outcome(task.number, cells, *future.result(), task.flops)
                    continue
                if isinstance(error, SweepError):
                    raise error
                if isinstance(error, CancelledError):
                    raise SweepError("the workers are gone: the connection to their scheduler is lost")
                logger.warning("task %d: %s", task.number, in_words(error))
                tried = tries.get(int(cells[0]), 0) + (is_alone or not is_broken)
                if tried > RETRIES:
                    yield Outcome(task.number, cells, None, 0.0, task.flops, _reason(error))
                    continue
                # In parts: one bad job spoils no other.
                again.extend(task.parts())
                tries.update({int(part.cells[0][0]): tried for part in task.parts()})
            if is_broken:
                executor.shutdown(wait=False)
                executor = start()
    finally:
        executor.shutdown(wait=False)


def _submit(executor: Executor, task: Task) -> Future[tuple[Values, float]]:
    try:
        return executor.submit(run_task, task)
    except BrokenProcessPool as error:  # a worker has died since
        future: Future[tuple[Values, float]] = Future()
        future.set_exception(error)
        return future


def _error(future: Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:
        return error


def _reason(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return f"its worker died {RETRIES + 1} times, perhaps because the system stopped it for lack of memory"
    said = error.message if isinstance(error, ChainruleError) else in_words(error)
    return f"failed {RETRIES + 1} times: {said}"
