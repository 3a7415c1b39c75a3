"""How fast a sweep goes: stacks of nets against a plain loop of PyTorch, one worker against two, and a large map.

    python bench/sweep.py [--rounds 5]

A plain loop has one net after the other, as a user would write it, with the same draws; its values must agree with
those of the sweep. All candidates take turns in each round, with one thread of PyTorch per process; the table has
medians over the rounds and quartiles. The clock of a single process is CPU time: other work on the machine does not
count. Several workers are measured in wall time, while all of them have tasks; their start has rows of its own.

The time of the large map on many cores is simulated, from the measured times of some of its tasks and of Dask. Writes
bench/results/bench-sweep.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chainrule.spec import ModelSpec
from chainrule.sweeps.conduct import Outcome
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.run import TASK_SECONDS, Pace, run_sweep
from chainrule.sweeps.sweep import StackPlan, Sweep, read_sweep
from chainrule.sweeps.work import run_task, task_of
from plain_loops import plain_net, plain_pass, plain_training
from sweep_workers import Warm, dask, processes
from timing import cpu_seconds, quartiles

RESULTS = Path(__file__).parent / "results" / "bench-sweep.json"

TASKS = 5
"""Tasks of each worker in a round."""

SIDE, CORES = 512, 64
"""The side of the large map, and the cores of the simulated cluster."""

IN_FLIGHT = 2 * CORES
"""Tasks that a sweep gives to so many workers at a time."""

SMALL_TASKS = 200
"""Tasks with one step of training, for the time that Dask and the sweep's own process take for each."""

PRESETS = {preset.name: preset for preset in MAP_PRESETS}
FRACTAL = ModelSpec.from_query(PRESETS["fractal"].spec)
FRACTAL_MAP = read_sweep(FRACTAL, PRESETS["fractal"].over, 1, PRESETS["fractal"].measure)
LARGE_MAP = read_sweep(FRACTAL, [f"scale=log:0.1:10:{SIDE}", f"lr=log:0.01:100:{SIDE}"], 1, "loss_ratio")
WIDE = ModelSpec.from_query(PRESETS["tanh_phases"].spec).replace(widths=(100,) * 11)
WIDE_MAP = read_sweep(WIDE, PRESETS["tanh_phases"].over, 1, "gradient_ratio")

TRAINED, PASSED = range(0, FRACTAL_MAP.cells, 170), range(0, WIDE_MAP.cells, 4)
"""The cells that the plain loops compute in a round."""


def agreement(sweep: Sweep, cells: Sequence[int], plain: Callable[[ModelSpec], float]) -> float:
    """The share of cells with equal values: both not finite, or within 0.1 %.

    Raises:
        AssertionError: more than a tenth differ. A few may, at the border of the fractal, where rounding decides.
    """
    values = run_sweep(sweep).values.reshape(-1)
    pairs = [(values[cell], plain(sweep.spec_of(cell))) for cell in cells]
    share = np.mean([np.isclose(a, b, rtol=1e-3) or not (np.isfinite(a) or np.isfinite(b)) for a, b in pairs])
    assert share >= 0.9, pairs
    return float(share)


def makespan(durations: Sequence[float], workers: int, gap: float, dispatch: float) -> float:
    """The wall time of tasks on a cluster: a worker that is free takes the next one of the list.

    Args:
        durations: of the tasks.
        workers: their number.
        gap: seconds between two tasks of a worker.
        dispatch: seconds that the scheduler takes for a task; it serves one at a time.
    """
    free = [0.0] * workers
    for number, duration in enumerate(durations, start=1):
        heapq.heappush(free, max(heapq.heappop(free) + gap, number * dispatch) + duration)
    return max(free)


def large_tasks(stack_seconds: Sequence[float]) -> list[float]:
    """The durations of the large map's tasks, as a sweep on CORES workers cuts them.

    A stack takes one of the measured times of full stacks, in turn; a smaller stack a share by its operations.
    """
    stacks = LARGE_MAP.stacks
    full = max(stack.flops for stack in stacks)
    pace = Pace(LARGE_MAP, stacks, CORES)
    durations: list[float] = []
    groups: list[list[StackPlan]] = []
    for number, group in enumerate(pace.tasks(stacks)):
        times = [stack_seconds[(number + place) % len(stack_seconds)] for place in range(len(group))]
        durations.append(sum(one * stack.flops / full for one, stack in zip(times, group, strict=True)))
        groups.append(group)
        # A sweep cuts the next task when an earlier one has come back.
        if (old := number + 1 - IN_FLIGHT) >= 0:
            cells = np.concatenate([stack.cells for stack in groups[old]])
            pace.add(
                Outcome(old, cells, np.zeros(len(cells)), durations[old], sum(stack.flops for stack in groups[old]))
            )
    return durations


def row(what: str, values: Sequence[float], shape: str, goal: str = "") -> dict[str, Any]:
    """Print a row with the median, and return it. The goal: `>= 20` or `<= 5`."""
    median, low, high = quartiles(list(values))
    limit = float(goal[3:] or "nan")
    hit = None if not goal else median >= limit if goal.startswith(">=") else median <= limit
    spread = f" ({low:.3g}–{high:.3g})" if len(values) > 1 else ""
    verdict = {None: "", True: "hit", False: "MISS"}[hit]
    print(f"| {what} | {shape.format(median)}{spread} | {goal} | {verdict} |")
    return {"what": what, "median": median, "rounds": list(values), "goal": goal, "hit": hit}


def measure(rounds: int) -> dict[str, list[float]]:
    """Each figure of the table, by rounds."""
    found: dict[str, list[float]] = {}

    def note(name: str, *values: float) -> None:
        found.setdefault(name, []).extend(values)

    full = [stack for stack in LARGE_MAP.stacks if len(stack) == max(map(len, LARGE_MAP.stacks))]
    short = [replace(stack, spec=stack.spec.replace(step=1)) for stack in full[: 2 * SMALL_TASKS]]
    small = [task_of(number, pair) for number, pair in enumerate(zip(short[::2], short[1::2], strict=True))]
    for _ in range(rounds):
        for name, start in ("pool_start", processes), ("dask_start", dask):
            with start(2, small[:8]) as (_, seconds):
                note(name, seconds)
    size = math.ceil(TASK_SECONDS / run_task(task_of(0, full[:1]))[1])
    note("stacks_of_task", size)
    net = plain_net(WIDE)

    def plainly() -> None:
        began = time.perf_counter()
        note("plain", len(TRAINED) / cpu_seconds(lambda: [plain_training(FRACTAL_MAP.spec_of(c)) for c in TRAINED]))
        note("plain_wall", len(TRAINED) / (time.perf_counter() - began))
        note("wide_new", len(PASSED) / cpu_seconds(lambda: [plain_pass(WIDE_MAP.spec_of(c)) for c in PASSED]))
        note("wide_kept", len(PASSED) / cpu_seconds(lambda: [plain_pass(WIDE_MAP.spec_of(c), net) for c in PASSED]))

    def stacked() -> None:
        note("stacked", FRACTAL_MAP.cells / cpu_seconds(lambda: run_sweep(FRACTAL_MAP)))
        note("wide", WIDE_MAP.cells / cpu_seconds(lambda: run_sweep(WIDE_MAP)))

    def on(name: str, warm: Warm, groups: Sequence[Sequence[StackPlan]]) -> None:
        tasks = [task_of(number, group) for number, group in enumerate(groups[: TASKS * warm.workers])]
        seconds = [each.seconds for each in warm.run(tasks)]
        rate, overhead = warm.steady()
        note(name, rate)
        note(f"{name}_overhead", 100 * overhead)
        note(f"{name}_tasks", *seconds)

    with processes(1, small) as (one, _), processes(2, small) as (two, _), dask(2, small) as (cluster, _):
        for number in range(rounds):
            chosen = random.Random(number).sample(full, 2 * TASKS * size)
            groups = [chosen[start : start + size] for start in range(0, len(chosen), size)]
            warm = {"one": one, "two": two, "dask": cluster}
            turns = [plainly, stacked, *(partial(on, name, each, groups) for name, each in warm.items())]
            for turn in turns if number % 2 else reversed(turns):
                turn()
            began = time.perf_counter()
            in_tasks = sum(each.seconds for each in cluster.run(small, IN_FLIGHT))
            note("dispatch", (time.perf_counter() - began - in_tasks / cluster.workers) / SMALL_TASKS)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    equal = [agreement(FRACTAL_MAP, TRAINED, plain_training), agreement(WIDE_MAP, PASSED, plain_pass)]
    found = measure(rounds)

    def over(above: str, below: str) -> list[float]:
        return [a / b for a, b in zip(found[above], found[below], strict=True)]

    size = int(found["stacks_of_task"][0])
    gap = max(0.0, statistics.median(found["dask_overhead"]) / 100) * statistics.median(found["dask_tasks"])
    durations = large_tasks([seconds / size for seconds in found["two_tasks"]])
    seconds = makespan(durations, CORES, gap, max(0.0, statistics.median(found["dispatch"])))
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores, load {load:.1f} at the start, {rounds} rounds.")
    print(f"Width 16, 500 steps: all {FRACTAL_MAP.cells} cells stacked, {len(TRAINED)} in the plain loop.")
    print(f"Width 100, 10 layers, step 0: all {WIDE_MAP.cells} cells stacked, {len(PASSED)} in the plain loop.")
    print(f"The plain loop agrees in {equal[0]:.0%} and {equal[1]:.0%} of its cells.")
    print(f"Workers, and {SIDE}² cells: {len(found['two_tasks'])} tasks of {size} full stacks, drawn from that map.\n")
    print("| what | median (quartiles) | goal | |\n|---|---|---|---|")
    rows = [
        row("width 16, plain loop, cells/s", found["plain"], "{:.2f}"),
        row("width 16, stacked, cells/s", found["stacked"], "{:.0f}"),
        row("width 16, stacked ÷ plain, a process each", over("stacked", "plain"), "{:.1f}", ">= 20"),
        row("width 16, stacked in 2 workers ÷ plain in a process", over("two", "plain_wall"), "{:.1f}", ">= 20"),
        row("width 100, stacked, cells/s", found["wide"], "{:.0f}"),
        row("width 100, stacked ÷ plain with a new net per cell", over("wide", "wide_new"), "{:.2f}", ">= 5"),
        row("width 100, stacked ÷ plain with one net, drawn into", over("wide", "wide_kept"), "{:.2f}", ">= 5"),
        row("a task, seconds in 2 workers", found["two_tasks"], "{:.2f}"),
        row("process pool, overhead in %", found["two_overhead"], "{:.2f}", "<= 5"),
        row("Dask, overhead in %", found["dask_overhead"], "{:.2f}", "<= 5"),
        row("process pool, start of 2 workers in s", found["pool_start"], "{:.1f}"),
        row("Dask, start with 2 workers in s", found["dask_start"], "{:.1f}"),
        row("2 workers ÷ 1 worker", over("two", "one"), "{:.2f}", ">= 1.8"),
        row("2 workers of Dask ÷ 1 worker of the pool", over("dask", "one"), "{:.2f}", ">= 1.8"),
        row(
            f"{SIDE}² cells in 2 workers, minutes",
            [LARGE_MAP.cells / each / 60 for each in found["two"]],
            "{:.1f}",
            "<= 60",
        ),
        row("Dask and the sweep's process, ms per task", [1e3 * each for each in found["dispatch"]], "{:.1f}"),
        row(f"{SIDE}² cells on {CORES} cores, simulated, {len(durations)} tasks, seconds", [seconds], "{:.1f}"),
        row(f"{CORES} cores, simulated, efficiency in %", [100 * sum(durations) / CORES / seconds], "{:.0f}"),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"load": load, "equal": equal, "rows": rows, "figures": found}, indent=1))


if __name__ == "__main__":
    main()
