"""A task of a sweep, as a worker runs it: some jobs, and the values of their cells."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from chainrule import __version__
from chainrule.build.stack import Stack
from chainrule.errors import SweepError
from chainrule.memory import memory_errors
from chainrule.spec import ModelSpec
from chainrule.sweeps.measures import read_measure

Values = npt.NDArray[np.float64]


class Job(Protocol):
    """Computes the values of some cells; any pickle can carry it."""

    def values(self) -> Values:
        """The values, one per cell."""


@dataclass(frozen=True, slots=True)
class StackJob:
    """A stack: its spec as a dict, its measure, and the seed and the other values of each net."""

    spec: Mapping[str, Any]
    measure: str
    seeds: tuple[int, ...]
    differing: Mapping[str, tuple[float, ...]]

    def values(self) -> Values:
        """See `Job`."""
        spec = ModelSpec.parse(self.spec)
        with torch.no_grad():
            found: Values = read_measure(self.measure).of(spec, Stack(spec, self.seeds, self.differing)).numpy()
        return found


@dataclass(frozen=True, slots=True)
class Task:
    """Some jobs, with the cells of all of them.

    Attributes:
        number: of the task in its sweep.
        jobs: run one after the other.
        cells: of each job.
        flops: of all jobs.
        versions: see `versions`, of the process that wants the values.
    """

    number: int
    jobs: tuple[Job, ...]
    cells: tuple[npt.NDArray[np.int64], ...]
    flops: float
    versions: tuple[tuple[str, str], ...]

    def parts(self) -> tuple[Task, ...]:
        """A task for each job."""
        pairs = zip(self.jobs, self.cells, strict=True)
        return tuple(
            replace(self, jobs=(job,), cells=(cells,), flops=self.flops / len(self.jobs)) for job, cells in pairs
        )


class Plan(Protocol):
    """Some cells that are computed together, and their cost in floating point operations."""

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """Their numbers."""

    @property
    def flops(self) -> float:
        """The operations of all cells."""

    def job(self) -> Job:
        """The job that computes them."""


def task_of(number: int, plans: Sequence[Plan]) -> Task:
    """The task of some plans."""
    jobs, cells = tuple(plan.job() for plan in plans), tuple(plan.cells for plan in plans)
    return Task(number, jobs, cells, sum(plan.flops for plan in plans), versions())


def versions() -> tuple[tuple[str, str], ...]:
    """The versions that must be equal wherever cells of one sweep are computed."""
    return ("chainrule", __version__), ("torch", str(torch.__version__)), ("numpy", np.__version__)


def run_task(task: Task) -> tuple[Values, float]:
    """The value of each cell of a task, and the seconds that it took. Uses one thread of PyTorch.

    Raises:
        SweepError: this process has other versions than the task.
        MemoryLimitError: memory ran out.
    """
    for (name, wanted), (_, here) in zip(task.versions, versions(), strict=True):
        if wanted != here:
            raise SweepError(
                f"{name} {here} of a worker is not {name} {wanted} of this command; install the same version on both"
            )
    # When a large tensor was freed once, glibc keeps the memory of smaller ones: without it a step has hundreds of page
    # faults, a fifth of its time.
    torch.empty(31 << 20, dtype=torch.uint8)
    began = time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with memory_errors():
            values = [job.values() for job in task.jobs]
    finally:
        torch.set_num_threads(threads)
    return np.concatenate(values), time.perf_counter() - began
