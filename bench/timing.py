"""Ratios that a shared machine does not spoil: candidates take turns, and each round gives one ratio of times."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

import torch


def cpu_seconds(run: Callable[[], object], calls: int = 1, *, warm: bool = False) -> float:
    """Seconds per call, see `now`; garbage that others have left is collected before the clock starts.

    With `warm`, one more call then fills the caches again that other processes and the collector have used meanwhile.
    """
    gc.collect()
    if warm:
        run()
    started = now()
    for _ in range(calls):
        run()
    return (now() - started) / calls


def now() -> float:
    """CPU seconds of this process; if it uses a CUDA device, the seconds of the clock when the device has ended."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def interleave(
    candidates: Mapping[str, Callable[[], object]], repeat: Mapping[str, int], seconds: float, min_rounds: int = 7
) -> dict[str, list[float]]:
    """CPU seconds per call of every candidate, round by round, until `seconds` have passed.

    Every round runs all candidates, in alternating order, so that a busy neighbour hits all alike.
    """
    for run in candidates.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    began = time.perf_counter()
    rounds = 0
    while rounds < min_rounds or time.perf_counter() - began < seconds:
        for name in candidates if rounds % 2 else reversed(list(candidates)):
            times[name].append(cpu_seconds(candidates[name], repeat.get(name, 1), warm=True))
        rounds += 1
    return times


def ratio(times: Mapping[str, list[float]], name: str, reference: str) -> tuple[float, float, float]:
    """Median over rounds of time(name) / time(reference), with the quartiles."""
    return quartiles([a / b for a, b in zip(times[name], times[reference], strict=True)])


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return median, low, high
