"""The statistics of one tensor: nanoseconds per element in cache, and from memory against the time of `X.sum()`.

    python bench/kernel.py [SECONDS]

for each dtype, written as JSON. CHAINRULE_KERNEL=torch in the environment measures what runs without a compiler.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable

import torch

from chainrule.stats import StatisticsSlab, kernel_name
from timing import interleave, ratio

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

CACHED = (200, 100)
"""The shape of an activation of M1: a second-level cache holds it."""

LARGE_BYTES = 64 * 1024 * 1024
"""More than the caches hold, so that `sum` runs at the speed of the memory."""


def measure(dtype: torch.dtype, seconds: float) -> tuple[float, float]:
    """Nanoseconds per element of a small tensor; the time for a large one, divided by that of its sum."""
    torch.manual_seed(0)
    cached = torch.randn(CACHED).to(dtype)
    large = torch.randn(LARGE_BYTES // dtype.itemsize).to(dtype)
    slab = StatisticsSlab()
    row = slab.take(cached)
    in_cache = interleave({"kernel": lambda: slab.write(row, cached)}, {"kernel": 50}, seconds / 2)
    candidates: dict[str, Callable[[], object]] = {
        "kernel": lambda: slab.write(row, large),
        "sum": large.sum,
    }
    floor, _, _ = ratio(interleave(candidates, {"sum": 2}, seconds / 2), "kernel", "sum")
    return statistics.median(in_cache["kernel"]) / cached.numel() * 1e9, floor


def main() -> None:
    torch.set_num_threads(1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3
    figures = {name: measure(dtype, seconds) for name, dtype in DTYPES.items()}
    print(
        json.dumps(
            {
                "kernel": kernel_name(),
                "ns_per_element": {name: round(figure[0], 3) for name, figure in figures.items()},
                "floor_ratio": {name: round(figure[1], 2) for name, figure in figures.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
