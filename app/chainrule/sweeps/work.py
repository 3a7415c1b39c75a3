"""A task of a sweep, as a worker runs it: some stacks, and the values of their cells."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule import __version__
from chainrule.build.stack import Stack
from chainrule.errors import SweepError
from chainrule.memory import memory_errors
from chainrule.spec import ModelSpec
from chainrule.sweeps.measures import read_measure
from chainrule.sweeps.sweep import StackPlan

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """Some stacks, in values that any pickle can carry.

    Attributes:
        number: of the task in its sweep.
        measure: its text.
        stacks: of each stack the spec, the seeds and the values of its nets.
        cells: of all stacks.
        versions: see `versions`, of the process that wants the values.
    """

    number: int
    measure: str
    stacks: tuple[tuple[Mapping[str, Any], tuple[int, ...], Mapping[str, tuple[float, ...]]], ...]
    cells: npt.NDArray[np.int64]
    versions: tuple[tuple[str, str], ...]


def task_of(number: int, measure: str, stacks: Sequence[StackPlan]) -> Task:
    """The task of some stacks."""
    parts = tuple((stack.spec.as_dict(), stack.seeds, stack.values) for stack in stacks)
    return Task(number, measure, parts, np.concatenate([stack.cells for stack in stacks]), versions())


def versions() -> tuple[tuple[str, str], ...]:
    """The versions that must be equal wherever cells of one sweep are computed."""
    return ("chainrule", __version__), ("torch", str(torch.__version__)), ("numpy", np.__version__)


def begin_worker() -> None:
    """Prepare a worker's process: one thread, a lower priority than all interactive work, the life of its parent."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    if sys.platform != "win32":
        os.nice(10)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    # Else a worker would wait for tasks forever when its parent was killed.
    threading.Thread(target=follow, daemon=True).start()


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
    began = time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    measure = read_measure(task.measure)
    try:
        with torch.no_grad(), memory_errors():
            values = []
            for described, seeds, differing in task.stacks:
                spec = ModelSpec.parse(described)
                values.append(measure.of(spec, Stack(spec, seeds, differing)).numpy())
    finally:
        torch.set_num_threads(threads)
    return np.concatenate(values), time.perf_counter() - began
