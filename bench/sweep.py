"""How fast a sweep goes: stacks of nets against a plain loop of PyTorch, one worker against two, and a large map.

    python bench/sweep.py [--rounds 5]

A plain loop trains or measures one net after the other, as a user would write it, with the same draws; the values of
both must agree. All that is compared takes turns in each round of one run, with one thread of PyTorch per process. The
table has medians over the rounds, with quartiles. In one process the clock is CPU time: other work on the machine does
not count. With several processes it is wall time, in the steady state: while all workers have tasks. The start of the
workers has rows of its own.

The time of a large map on 64 cores is simulated: a greedy list scheduler, with the measured times of tasks of that map
and of Dask. Writes bench/results/bench-sweep.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from chainrule.build.draws import draw_leaves
from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.sweeps.cluster import cluster
from chainrule.sweeps.conduct import Outcome, conduct, process_pool
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.run import TASK_SECONDS, Pace, run_sweep
from chainrule.sweeps.sweep import StackPlan, Sweep, read_sweep
from chainrule.sweeps.work import Task, run_task, task_of
from timing import cpu_seconds, quartiles

RESULTS = Path(__file__).parent / "results" / "bench-sweep.json"

TASKS = 5
"""Tasks of each worker in a round."""

SIDE, CORES = 512, 64
"""Of the large map, and of the cluster that is simulated."""

SMALL_TASKS = 200
"""Tasks with next to no work, for the time that Dask and the sweep's own process take for each."""

PRESETS = {preset.name: preset for preset in MAP_PRESETS}
FRACTAL = ModelSpec.from_query(PRESETS["fractal"].spec)
FRACTAL_MAP = read_sweep(FRACTAL, PRESETS["fractal"].over, 1, PRESETS["fractal"].measure)
LARGE_MAP = read_sweep(FRACTAL, [f"scale=log:0.1:10:{SIDE}", f"lr=log:0.01:100:{SIDE}"], 1, "loss_ratio")
WIDE = ModelSpec.from_query(PRESETS["tanh_phases"].spec).replace(widths=(100,) * 11)
WIDE_MAP = read_sweep(WIDE, PRESETS["tanh_phases"].over, 1, "gradient_ratio")

COUNTS = {FRACTAL_MAP: 24, WIDE_MAP: 200}
"""About how many cells the plain loops compute in a round, evenly distributed over the map."""


def plain_net(spec: ModelSpec) -> nn.Sequential:
    """Linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(spec.widths):
        layers += [nn.Linear(n_in, n_out, bias=spec.bias, dtype=getattr(torch, spec.dtype)), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def prepared(net: nn.Sequential, spec: ModelSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """The spec's x and y, (batch, n_in) and (batch, n_out), after its draws went into the net; they are cached."""
    leaves = draw_leaves(spec)
    with torch.no_grad():
        for index, layer in enumerate(net[::2], start=1):
            layer.weight.copy_(leaves[f"w{index}"].T)
            if spec.bias:
                layer.bias.copy_(leaves[f"b{index}"])
    return leaves["x"], leaves["y"].view(spec.batch, spec.n_out)


def plain_training(spec: ModelSpec) -> float:
    """The loss at the spec's step ÷ the loss at the beginning."""
    net = plain_net(spec)
    x, y = prepared(net, spec)
    optimizer, loss_of = torch.optim.SGD(net.parameters(), lr=spec.lr), nn.MSELoss()
    first = loss_of(net(x), y).item()
    for _ in range(spec.step):
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
    return float(loss_of(net(x), y).item() / first)


def plain_pass(spec: ModelSpec, net: nn.Sequential | None = None) -> float:
    """The gradient's standard deviation in the first hidden activation ÷ in the last; with a new net if none is given."""
    net = plain_net(spec) if net is None else net
    h, y = prepared(net, spec)
    net.zero_grad()
    kept = []
    for place, layer in enumerate(net):
        h = layer(h)
        if place in (1, len(net) - 2):
            h.retain_grad()
            kept.append(h)
    nn.MSELoss()(h, y).backward()
    first, last = (each.grad.std(correction=0).item() for each in kept)
    return float(first / last)


def check_agreement(sweep: Sweep, cells: Sequence[int], plain: Callable[[ModelSpec], float]) -> float:
    """The share of cells with equal values; NaN and Inf are equal, and so are values that differ by 0.1 %.

    Raises:
        AssertionError: more than a tenth differ. Some do at the border of the fractal, where rounding decides.
    """
    values = run_sweep(sweep).values.reshape(-1)
    pairs = [(values[cell], plain(sweep.spec_of(cell))) for cell in cells]
    share = np.mean([np.isclose(a, b, rtol=1e-3) or not (np.isfinite(a) or np.isfinite(b)) for a, b in pairs])
    assert share >= 0.9, pairs
    return float(share)


def spanned(fn: Callable[..., Any], task: Task) -> tuple[Any, tuple[int, float, float, int]]:
    """A task's result; and its worker, begin, end and number of cells. Linux has one monotonic clock for all."""
    began = time.monotonic()
    result = fn(task)
    return result, (os.getpid(), began, time.monotonic(), len(task.cells))


@dataclass
class Warm(Executor):
    """An executor that outlives a sweep and notes when its workers ran tasks."""

    executor: Executor
    workers: int
    spans: list[tuple[int, float, float, int]] = field(default_factory=list)

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
        outcomes = list(conduct(tasks, lambda: self, at_once or self.workers + 1))
        assert all(each.values is not None for each in outcomes)
        return outcomes

    def steady(self) -> tuple[float, float]:
        """Cells/s, and the wall time beyond (seconds of tasks ÷ workers), while all workers had tasks."""
        of = {pid: [span for span in self.spans if span[0] == pid] for pid, *_ in self.spans}
        assert len(of) == self.workers
        start = max(min(span[1] for span in each) for each in of.values())
        end = min(max(span[2] for span in each) for each in of.values())
        shares = [(max(0.0, min(b, end) - max(a, start)), b - a, cells) for _, a, b, cells in self.spans]
        done = sum(cells * inside / whole for inside, whole, cells in shares)
        return done / (end - start), (end - start) * self.workers / sum(each[0] for each in shares) - 1


def short_tasks(count: int) -> list[Task]:
    """Tasks as large as those of the large map, with one step of training."""
    short = [replace(plan, spec=plan.spec.replace(step=1)) for plan in full_stacks()[: 2 * count]]
    return [task_of(number, "loss_ratio", short[2 * number : 2 * number + 2]) for number in range(count)]


def full_stacks() -> list[StackPlan]:
    """The stacks of the large map with the most nets (nearly all), shuffled."""
    stacks = [plan for plan in LARGE_MAP.stacks if len(plan) == max(map(len, LARGE_MAP.stacks))]
    random.Random(0).shuffle(stacks)
    return stacks


@contextmanager
def processes(workers: int) -> Iterator[tuple[Warm, float]]:
    """A process pool, and the seconds until each of its workers has finished a task."""
    began = time.perf_counter()
    pool = process_pool(workers)
    warm = Warm(pool, workers)
    while len({span[0] for span in warm.spans}) < workers:
        warm.run(short_tasks(4 * workers))
    yield warm, time.perf_counter() - began
    pool.shutdown()


@contextmanager
def dask(workers: int) -> Iterator[tuple[Warm, float]]:
    """A scheduler and its workers as processes on loopback, and the seconds until each has finished a task."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "scheduler.json"
        named = ("--scheduler-file", str(file))
        on = ("--no-dashboard", "--host", "127.0.0.1", *named)
        commands = [("dask_scheduler", "--port", "0", *on)]
        commands += [("dask_worker", "--nthreads", "1", "--no-nanny", "--local-directory", folder, *on)] * workers
        started = [
            subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{name}", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name, *options in commands
        ]
        try:
            executor = connect(file, workers, began + 120)
            warm = Warm(executor, workers)
            while len({span[0] for span in warm.spans}) < workers:
                warm.run(short_tasks(4 * workers))
            yield warm, time.perf_counter() - began
            executor.shutdown()
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def connect(file: Path, workers: int, until: float) -> Executor:
    """The executor of the scheduler that wrote the file, when all its workers are there."""
    while time.perf_counter() < until:
        try:
            start, threads = cluster(json.loads(file.read_text())["address"])
        except (OSError, ValueError, SweepError):
            time.sleep(0.1)
            continue
        if threads == workers:
            return start()
        start().shutdown()
    raise TimeoutError(f"no {workers} workers of Dask")


def makespan(durations: Sequence[float], workers: int, gap: float, dispatch: float) -> float:
    """The wall time of tasks on a cluster: each free worker takes the next one of the list.

    Args:
        durations: of the tasks, in their order.
        workers: their number.
        gap: seconds between two tasks of a worker.
        dispatch: seconds that the scheduler, which serves one task at a time, takes for each.
    """
    free = [0.0] * workers
    for number, duration in enumerate(durations):
        begin = max(heapq.heappop(free) + gap, (number + 1) * dispatch)
        heapq.heappush(free, begin + duration)
    return max(free)


def planned(stack_seconds: Sequence[float], workers: int) -> list[float]:
    """The durations of the large map's tasks, as a sweep with so many workers would cut them.

    A full stack takes one of the measured times `stack_seconds`, in turn; a smaller one a share by its operations.
    """
    stacks = LARGE_MAP.stacks
    most = max(stack.flops for stack in stacks)
    pace = Pace(LARGE_MAP, stacks, workers)
    durations: list[float] = []
    groups: list[list[StackPlan]] = []
    at_once, place = workers + 1 + workers // 8, 0
    for number, group in enumerate(pace.tasks(stacks)):
        times = [stack_seconds[(place + each) % len(stack_seconds)] for each in range(len(group))]
        durations.append(sum(one * plan.flops / most for one, plan in zip(times, group, strict=True)))
        groups.append(group)
        place += len(group)
        # The next task is cut when the one that is `at_once` older has come back.
        if (old := number + 1 - at_once) >= 0:
            cells = np.concatenate([plan.cells for plan in groups[old]])
            pace.add(Outcome(old, cells, np.zeros(len(cells)), durations[old]))
    return durations


def row(text: str, values: Sequence[float], shape: str, goal: str = "", factor: float = 1.0) -> dict[str, Any]:
    """Print a row, and return it. `goal`: `>= 20` or `<= 5`, of the median."""
    found = [value * factor for value in values]
    median, low, high = quartiles(found)
    sign, _, limit = goal.partition(" ")
    hit = None if not goal else median >= float(limit) if sign == ">=" else median <= float(limit)
    spread = f"{shape.format(median)} ({low:.3g}–{high:.3g})" if len(found) > 1 else shape.format(median)
    print(f"| {text} | {spread} | {goal} | {'' if hit is None else 'hit' if hit else 'MISS'} |", flush=True)
    return {"what": text, "median": median, "rounds": found, "goal": goal, "hit": hit}


def clocked(run: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds and wall seconds."""
    began = time.perf_counter()
    return cpu_seconds(run), time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    spread = {sweep: range(0, sweep.cells, sweep.cells // count) for sweep, count in COUNTS.items()}
    trained, passed = spread.values()
    reused = plain_net(WIDE)
    agreement = [check_agreement(FRACTAL_MAP, trained, plain_training), check_agreement(WIDE_MAP, passed, plain_pass)]

    found: dict[str, list[float]] = {}

    def note(**figures: float) -> None:
        for name, value in figures.items():
            found.setdefault(name, []).append(value)

    for _ in range(rounds):
        with processes(2) as (_, seconds):
            note(pool_start=seconds)
        with dask(2) as (_, seconds):
            note(dask_start=seconds)

    stacks = full_stacks()
    one_stack = run_task(task_of(0, "loss_ratio", stacks[:1]))[1]
    size = math.ceil(TASK_SECONDS / one_stack)
    stack_seconds: list[float] = []
    with processes(1) as (one, _), processes(2) as (two, _), dask(2) as (grid, _):

        def in_process() -> None:
            stacked, _ = clocked(lambda: run_sweep(FRACTAL_MAP))
            plain, wall = clocked(lambda: [plain_training(FRACTAL_MAP.spec_of(cell)) for cell in trained])
            note(stacked=FRACTAL_MAP.cells / stacked, plain=len(trained) / plain, plain_wall=len(trained) / wall)
            wide, _ = clocked(lambda: run_sweep(WIDE_MAP))
            new, _ = clocked(lambda: [plain_pass(WIDE_MAP.spec_of(cell)) for cell in passed])
            kept, _ = clocked(lambda: [plain_pass(WIDE_MAP.spec_of(cell), reused) for cell in passed])
            note(wide=WIDE_MAP.cells / wide, wide_new=len(passed) / new, wide_kept=len(passed) / kept)

        def on(name: str, warm: Warm, tasks: list[Task]) -> None:
            outcomes = warm.run(tasks[: TASKS * warm.workers])
            rate, overhead = warm.steady()
            mean = statistics.mean(each.seconds for each in outcomes)
            note(**{name: rate, f"{name}_overhead": overhead, f"{name}_task": mean})
            if warm is two:
                stack_seconds.extend(each.seconds / size for each in outcomes)

        for number in range(rounds):
            groups = [random.Random(f"{number} {place}").sample(stacks, size) for place in range(2 * TASKS)]
            tasks = [task_of(place, "loss_ratio", group) for place, group in enumerate(groups)]
            turns = [
                in_process,
                lambda: on("one", one, tasks),
                lambda: on("two", two, tasks),
                lambda: on("dask", grid, tasks),
            ]
            for turn in turns if number % 2 else reversed(turns):
                turn()
        began = time.perf_counter()
        outcomes = grid.run(short_tasks(SMALL_TASKS), CORES + 1 + CORES // 8)
        wall = time.perf_counter() - began
        dispatch = (wall - sum(each.seconds for each in outcomes) / grid.workers) / SMALL_TASKS

    def over(above: str, below: str) -> list[float]:
        return [a / b for a, b in zip(found[above], found[below], strict=True)]

    task = statistics.median(found["two_task"])
    gap = max(0.0, statistics.median(found["dask_overhead"])) * statistics.median(found["dask_task"])
    durations = planned(stack_seconds, CORES)
    on_cores = makespan(durations, CORES, gap, dispatch)
    of_plain = f"÷ plain loop, {len(trained)} cells"
    of_wide = f"width 100, {WIDE_MAP.cells} cells: stacked ÷ plain loop, {len(passed)} cells,"
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start")
    print(f"Equal values: {agreement[0]:.0%} of the trainings, {agreement[1]:.0%} of the passes\n")
    print("| what | median (quartiles) | goal | |\n|---|---|---|---|")
    rows = [
        row("plain loop, trainings/s in one process", found["plain"], "{:.2f}"),
        row("stacked, trainings/s in one process", found["stacked"], "{:.0f}"),
        row(
            f"width 16, {FRACTAL_MAP.cells} cells: stacked, 1 process {of_plain}",
            over("stacked", "plain"),
            "{:.1f}",
            ">= 20",
        ),
        row(f"width 16: 2 workers {of_plain}, 1 process", over("two", "plain_wall"), "{:.1f}", ">= 20"),
        row("width 100, stacked, passes/s in one process", found["wide"], "{:.0f}"),
        row(f"{of_wide} a new net per cell", over("wide", "wide_new"), "{:.2f}", ">= 5"),
        row(f"{of_wide} one net with new weights", over("wide", "wide_kept"), "{:.2f}", ">= 5"),
        row("seconds of a task", found["two_task"], "{:.2f} s"),
        row("overhead of the process pool, 2 workers", found["two_overhead"], "{:.2f} %", "<= 5", 100),
        row("overhead of Dask, 2 workers", found["dask_overhead"], "{:.2f} %", "<= 5", 100),
        row("start of the process pool", found["pool_start"], "{:.1f} s"),
        row("start of Dask: scheduler, 2 workers", found["dask_start"], "{:.1f} s"),
        row("2 workers ÷ 1 worker", over("two", "one"), "{:.2f}", ">= 1.8"),
        row("2 workers of Dask ÷ 1 worker of a pool", over("dask", "one"), "{:.2f}", ">= 1.8"),
        row(f"{SIDE}² cells on 2 cores", [LARGE_MAP.cells / rate / 60 for rate in found["two"]], "{:.1f} min", "<= 60"),
        row("Dask and this process, per task", [dispatch], "{:.1f} ms", factor=1e3),
        row(f"{SIDE}² cells on {CORES} cores, simulated", [on_cores], "{:.1f} s"),
        row(f"efficiency of the {CORES} cores", [sum(durations) / CORES / on_cores], "{:.0f} %", factor=100),
    ]
    print(
        f"\n{SIDE}²: from {len(stack_seconds) // size} tasks of {size} stacks with {len(stacks[0])} nets, drawn at random"
        f" from the map; {task:.2f} s each. {CORES} cores: {len(durations)} tasks as a sweep cuts them, in its order."
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"load": load, "agreement": agreement, "rows": rows, "rates": found}, indent=1))


if __name__ == "__main__":
    main()
