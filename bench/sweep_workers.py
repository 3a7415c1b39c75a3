"""Workers of a sweep that stay warm between measurements: a process pool, and Dask on loopback; for sweep.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.errors import SweepError
from chainrule.sweeps.cluster import cluster
from chainrule.sweeps.conduct import Outcome, conduct
from chainrule.sweeps.pool import OwnPool
from chainrule.sweeps.work import Task

START_LIMIT = 120
"""Seconds that Dask may take to start."""

Span = tuple[int, float, float, int]
"""Worker, begin, end and cells of a task. Linux has one monotonic clock for all processes."""


def spanned(fn: Callable[[Task], Any], task: Task) -> tuple[Any, Span]:
    """The result of a task, and when it ran."""
    began = time.monotonic()
    result = fn(task)
    return result, (os.getpid(), began, time.monotonic(), sum(map(len, task.cells)))


@dataclass
class Warm(Executor):
    """An executor that outlives a sweep, and notes when its workers ran tasks."""

    executor: Executor
    workers: int
    spans: list[Span] = field(default_factory=list)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """See `Executor.submit`."""
        outer: Future[Any] = Future()

        def deliver(inner: Future[Any]) -> None:
            if error := inner.exception():
                outer.set_exception(error)
                return
            result, span = inner.result()
            self.spans.append(span)
            outer.set_result(result)

        self.executor.submit(spanned, fn, *args).add_done_callback(deliver)
        return outer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """It stays."""

    def run(self, tasks: Sequence[Task], at_once: int | None = None) -> list[Outcome]:
        """Run tasks as a sweep does."""
        self.spans.clear()
        outcomes = list(conduct(tasks, lambda: self, at_once or 2 * self.workers))
        assert all(each.values is not None for each in outcomes)
        return outcomes

    def warm_up(self, tasks: Sequence[Task]) -> None:
        """Run the tasks until each worker has run one."""
        while len({span[0] for span in self.spans}) < self.workers:
            self.run(tasks)

    def steady(self) -> tuple[float, float]:
        """Cells per second, and the overhead, of the last run while all workers had tasks; see `steady`."""
        return steady(self.spans, self.workers)


def steady(spans: Sequence[Span], workers: int) -> tuple[float, float]:
    """Cells per second, and the wall time beyond (seconds in tasks ÷ workers), as a share of the latter.

    Only the time counts in which all workers have tasks.
    """
    of = [[span for span in spans if span[0] == pid] for pid in {span[0] for span in spans}]
    assert len(of) == workers
    start = max(min(span[1] for span in each) for each in of)
    end = min(max(span[2] for span in each) for each in of)
    inside = [max(0.0, min(ended, end) - max(began, start)) for _, began, ended, _ in spans]
    cells = sum(part / (span[2] - span[1]) * span[3] for part, span in zip(inside, spans, strict=True))
    return cells / (end - start), (end - start) * workers / sum(inside) - 1


@contextmanager
def processes(workers: int, tasks: Sequence[Task]) -> Iterator[tuple[Warm, float]]:
    """A process pool, and the seconds until each of its workers has finished one of some short tasks."""
    began = time.perf_counter()
    pool = OwnPool(workers)
    warm = Warm(pool, workers)
    warm.warm_up(tasks)
    yield warm, time.perf_counter() - began
    pool.shutdown()


@contextmanager
def dask(workers: int, tasks: Sequence[Task]) -> Iterator[tuple[Warm, float]]:
    """The same with a scheduler and workers of Dask, which have one thread each."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "scheduler.json"
        common = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(file))
        worker = ("worker", "--nthreads", "1", "--no-nanny", "--local-directory", folder)
        # The workers import this module.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        started = [
            subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{name}", *options, *common],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            for name, *options in (("scheduler", "--port", "0"), *[worker] * workers)
        ]
        try:
            executor = _connected(file, workers, began + START_LIMIT)
            warm = Warm(executor, workers)
            warm.warm_up(tasks)
            yield warm, time.perf_counter() - began
            executor.shutdown()
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def _connected(file: Path, workers: int, until: float) -> Executor:
    """The executor of the scheduler that writes the file, once all its workers are there."""
    while time.perf_counter() < until:
        try:
            start, threads = cluster(json.loads(file.read_text())["address"])
        except (OSError, ValueError, SweepError):
            time.sleep(0.1)
            continue
        if threads == workers:
            return start()
        start().shutdown()
    raise TimeoutError(f"Dask has not started {workers} workers within {START_LIMIT} s")
