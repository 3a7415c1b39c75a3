"""Runs a whole sweep: in this process, in worker processes, or on a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.build.stack import Stack
from chainrule.errors import MissingExtraError, SweepError
from chainrule.history.export import write_csv, write_parquet
from chainrule.spec import ModelSpec
from chainrule.spec.values import shown
from chainrule.sweeps.conduct import Inline, Outcome, conduct
from chainrule.sweeps.factory import read_factory_sweep
from chainrule.sweeps.pool import OwnPool
from chainrule.sweeps.store import SweepStore
from chainrule.sweeps.sweep import FLOPS_PER_SECOND, Grid, Sweep, read_sweep, stack_flops
from chainrule.sweeps.work import Plan, run_task, task_of

TASK_SECONDS = 2.0
"""Seconds of a task, about: long beside the way to a worker, short beside the patience of a person."""

FIRST_TASK_SECONDS = 0.2

PROBE_STEPS = 20
"""Steps of the training that `probe` times."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Cells that are computed, of all; cells per second since the beginning; and the seconds left, None at first."""

    done: int
    cells: int
    rate: float
    seconds_left: float | None


@dataclass(frozen=True)
class SweepResult:
    """The values of a sweep.

    Attributes:
        values: (values of the last axis, …, values of the first axis, seeds), float64. A cell without a value is NaN.
        reasons: why a cell has no value, by its number.
    """

    sweep: Grid
    values: npt.NDArray[np.float64] = field(repr=False)
    reasons: dict[int, str]

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The table with a row per cell: the value of each axis, the seed, and the measure."""
        axes, measure = self.sweep.axes, self.sweep.measure_text
        indices, seeds = self.sweep.places(np.arange(self.sweep.cells))
        return {
            **{
                axis.key: [axis.values[place] for place in index.tolist()]
                for axis, index in zip(axes, indices, strict=True)
            },
            "seed": [self.sweep.seeds[place] for place in seeds.tolist()],
            measure: self.values.reshape(-1).tolist(),
        }

    def replay(self, cell: int) -> npt.NDArray[np.float64]:
        """The loss of a cell's net at every step up to the spec's, computed in its stack: (steps + 1,).

        These are the numbers behind its value, to the last bit.

        Raises:
            SweepError: the sweep is over a factory.
        """
        if not isinstance(self.sweep, Sweep):
            raise SweepError("only a sweep over a spec has stacks to replay")
        plan = next(plan for plan in self.sweep.stacks if cell in plan.cells)
        place = int(np.flatnonzero(plan.cells == cell)[0])
        losses: list[float] = []
        with torch.no_grad():
            stack = Stack(plan.spec, plan.seeds, plan.values)
            stack.train(plan.spec.step, lambda _, loss: losses.append(float(loss[place])))
            losses.append(float(stack.forward()[place]))
        return np.array(losses)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a file: .csv or .parquet.

        Raises:
            SweepError: another suffix.
            MissingExtraError: Parquet without pyarrow.
        """
        writer_of(path)(self.columns, Path(path))


def writer_of(path: str | os.PathLike[str]) -> Callable[[Mapping[str, Any], Path], None]:
    """The function that writes a table to a file of this suffix. Raises SweepError for an unknown suffix."""
    suffix = Path(path).suffix
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingExtraError(
            "the format parquet needs an optional dependency: pip install 'chainrule[parquet]'", limit="parquet"
        )
    if suffix not in WRITERS:
        raise SweepError(
            f"{path}: the suffix is {suffix or 'missing'}; it must be {' or '.join(WRITERS)}", field="output"
        )
    return WRITERS[suffix]


WRITERS = {".csv": write_csv, ".parquet": write_parquet}
"""By suffix."""


class Pace:
    """How fast a sweep goes: sizes the tasks, and estimates the time that is left."""

    def __init__(self, sweep: Grid, stacks: Sequence[Plan], workers: int, seconds: float = TASK_SECONDS) -> None:
        self._cells, self._left_flops = sweep.cells, sum(stack.flops for stack in stacks)
        self._known = self._done = sweep.cells - sum(len(stack.cells) for stack in stacks)
        self._workers, self._seconds = workers, seconds
        self._flops = self._worker_seconds = 0.0
        self._began = time.perf_counter()

    def tasks(self, stacks: Sequence[Plan]) -> Iterator[list[Plan]]:
        """Consecutive stacks in tasks of about the wanted time, as measured so far; the first ones are short."""
        group: list[Plan] = []
        size, left = 0.0, self._left_flops
        for place, stack in enumerate(stacks):
            group.append(stack)
            size += stack.flops
            rate = self._flops / self._worker_seconds if self._worker_seconds else FLOPS_PER_SECOND
            seconds = self._seconds if self._worker_seconds else FIRST_TASK_SECONDS
            # Towards the end tasks are shorter, so that all workers end at about the same time.
            if size >= min(rate * seconds, left / (2 * self._workers)) or place == len(stacks) - 1:
                yield group
                group, size, left = [], 0.0, left - size

    def add(self, outcome: Outcome) -> Progress:
        """Note an outcome."""
        self._done += len(outcome.cells)
        self._left_flops -= outcome.flops
        if outcome.values is not None:
            self._flops += outcome.flops
            self._worker_seconds += outcome.seconds
        elapsed = time.perf_counter() - self._began
        left = None
        if self._flops:
            left = self._left_flops * self._worker_seconds / self._flops / self._workers
        return Progress(self._done, self._cells, (self._done - self._known) / elapsed, left)


def run_sweep(
    sweep: Grid,
    *,
    start: Callable[[], Executor] = Inline,
    workers: int = 1,
    store: SweepStore | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SweepResult:
    """Compute all cells that the store does not have, and return the values of all.

    Args:
        sweep: the sweep.
        start: makes the executor.
        workers: how many tasks it runs at a time.
        store: every finished task is written to it at once.
        progress: called after each task.

    Raises:
        SweepError: the file cannot be written, or the executor has ended.
    """
    known, values, reasons = np.zeros(sweep.cells, bool), np.full(sweep.cells, np.nan), dict[int, str]()
    if store is not None:
        known, values, reasons = store.read()
    stacks = [stack for stack in sweep.stacks if not known[stack.cells[0]]]
    pace = Pace(sweep, stacks, workers)
    tasks = (task_of(number, group) for number, group in enumerate(pace.tasks(stacks)))
    # Two tasks per worker: none waits for the way here and back.
    for outcome in conduct(tasks, start, 1 if start is Inline else 2 * workers):
        if store is not None:
            store.add(outcome)
        if outcome.values is None:
            reasons.update(dict.fromkeys(outcome.cells.tolist(), outcome.failure or ""))
        else:
            values[outcome.cells] = outcome.values
        progress(pace.add(outcome))
    return SweepResult(sweep, values.reshape(*sweep.shape[::-1], len(sweep.seeds)), reasons)


def probe(sweep: Sweep) -> float:
    """Floating point operations per second of one core, measured with a stack of the sweep and a short training."""
    plan = sorted(sweep.stacks, key=lambda stack: stack.flops)[len(sweep.stacks) // 2]
    plan = replace(plan, spec=plan.spec.replace(step=min(plan.spec.step, PROBE_STEPS)))
    task = task_of(0, [plan])
    run_task(task)
    return stack_flops(plan.spec, sweep.measure, len(plan)) / run_task(task)[1]


def sweep(
    spec: ModelSpec | str,
    over: Sequence[str],
    *,
    seeds: int = 1,
    measure: str | None = None,
    steps: int = 0,
    workers: int = 1,
    scheduler: str | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> SweepResult:
    """Measure many nets: a spec or a user's model, over axes such as `scale=0.5:2:64`, with several seeds.

    Args:
        spec: a spec, its query string, or `file.py:factory` (see `sweeps/factory.py`).
        over: the axes; see `sweeps/axes.py`. For a factory: its arguments.
        seeds: the number of seeds: the spec's, or 42, and the following ones.
        measure: see `sweeps/measures.py`; gradient_ratio, or for a factory loss.
        steps: the training steps of a factory's model; a spec has its own.
        workers: worker processes; with 1 the sweep runs in this process.
        scheduler: the address of a Dask scheduler, whose workers then compute the cells (extra `dask`).
        keep: a file for the finished cells; the same sweep goes on where it stopped.

    Raises:
        SpecError, SweepError: bad input, a file that cannot be written, or a scheduler that does not answer.
        ExploreError: the factory cannot be used.
    """
    plan: Grid
    if isinstance(spec, str) and ".py:" in spec:
        plan = read_factory_sweep(spec, over, seeds, measure or "loss", steps)
    else:
        spec = ModelSpec.from_query(spec) if isinstance(spec, str) else spec
        plan = read_sweep(spec, over, seeds, measure or "gradient_ratio")
    with nullcontext() if keep is None else SweepStore(keep, plan) as store:
        start, at_once = executors(workers, scheduler)
        return run_sweep(plan, start=start, workers=at_once, store=store)


def executors(workers: int, scheduler: str | None) -> tuple[Callable[[], Executor], int]:
    """A function that makes the executor, and how many tasks it runs at a time."""
    if scheduler is not None:
        from chainrule.sweeps.cluster import cluster

        return cluster(scheduler)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SweepError(f"workers: {shown(workers)} is not an integer of at least 1", field="workers", limit=1)
    return (Inline, 1) if workers == 1 else (lambda: OwnPool(workers), workers)
