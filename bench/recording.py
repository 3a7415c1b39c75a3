"""What a full trace costs, as a ratio to the bare forward and backward pass of the same model.

    python bench/recording.py [--models M1,M2] [--seconds 20]

A full trace is everything: both graphs, exact statistics with 64 bins of every tensor and gradient, and the JSON.
One thread, CPU time, median of per-round ratios. Also the statistics kernel, in nanoseconds per element and against
`X.sum()` on memory that no cache holds. Prints one table and writes bench/results/bench.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from chainrule.run import environment
from chainrule.stats import BINS, COLUMNS, summarize
from chainrule.trace import trace_model
from chainrule.wire import dump_trace
from models import NAMES, Case, case
from timing import interleave, ratio

RESULTS = Path(__file__).parent / "results"
CALLS = {"M1": 2, "M2": 20}
"""Calls per round, of the bare pass and of the trace alike: both run with warm caches."""


def full_trace(which: Case) -> bytes:
    """Forward, backward, both graphs, all statistics, JSON."""
    which.model.zero_grad(set_to_none=True)
    return dump_trace(trace_model(which.model, which.x, loss=which.loss))


def bench_models(names: list[str], seconds: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    print(f"{'model':6}{'bare ms':>10}{'trace ÷ bare':>14}{'quartiles':>16}{'tensors':>9}{'JSON kB':>9}")
    for name in names:
        which = case(name)
        candidates = {"bare": which.bare, "trace": lambda which=which: full_trace(which)}
        times = interleave(candidates, dict.fromkeys(candidates, CALLS.get(name, 1)), seconds)
        median, low, high = ratio(times, "trace", "bare")
        figures[name] = round(median, 3)
        tensors = len(trace_model(which.model, which.x, loss=which.loss).statistics)
        size = len(full_trace(which)) / 1e3
        bare = float(np.median(times["bare"])) * 1e3
        print(
            f"{name:6}{bare:>10.3f}{median:>13.2f}×{f'{low:.2f} – {high:.2f}':>16}{tensors:>9}{size:>9.0f}", flush=True
        )
    return figures


def bench_kernel(seconds: float) -> dict[str, float]:
    moments, counts = np.empty(len(COLUMNS)), np.empty(BINS, np.uint32)
    cached, large = torch.randn(200, 100), torch.randn(64 * 1024 * 1024 // 4)
    in_cache = interleave({"kernel": lambda: summarize(cached, moments, counts)}, {"kernel": 200}, seconds)
    per_element = float(np.median(in_cache["kernel"])) / cached.numel() * 1e9
    candidates = {"kernel": lambda: summarize(large, moments, counts), "sum": large.sum}
    floor, _, _ = ratio(interleave(candidates, {"sum": 5}, seconds), "kernel", "sum")
    print(f"\nstatistics kernel: {per_element:.2f} ns per element of a (200, 100) float32 in cache")
    print(f"                   {floor:.1f} × the time of X.sum() on 64 MiB of float32")
    return {"kernel_ns_per_element": round(per_element, 3), "kernel_floor_ratio_dram": round(floor, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NAMES), help="which of M1 to M5, separated by commas")
    parser.add_argument("--seconds", type=float, default=20, help="at least this long per model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, object] = {}
    figures |= bench_models(arguments.models.split(","), arguments.seconds)
    figures |= bench_kernel(min(arguments.seconds, 10))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps({**figures, "environment": dict(environment())}, indent=2) + "\n")


if __name__ == "__main__":
    main()
