"""The memory that a trace adds to the process's peak: `python bench/memory.py MODEL`, as JSON.

The bare pass runs first and sets the mark; the trace and its JSON then go beyond it, by what the journal, the
statistics and the JSON take together. A smaller model has been traced before, so that nothing counts that is loaded
once. Start it with SETTINGS in the environment, or the mark moves by as much as the allocator happens to keep.
"""

from __future__ import annotations

import json
import sys

import torch

from models import case
from worker import full_trace

SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Makes glibc's allocator give back what a tensor leaves; others do not read it."""


def peak_mb() -> float:
    """The most memory that this process has held, in MB.

    Raises:
        ImportError: the system is Windows, which keeps no such account.
    """
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def main() -> None:
    torch.set_num_threads(1)
    full_trace(case("M2"))
    which = case(sys.argv[1])
    began = peak_mb()
    for _ in range(2):
        which.bare()
    bare = peak_mb()
    for _ in range(2):
        size = len(full_trace(which))
    print(json.dumps({"bare_mb": bare - began, "trace_mb": peak_mb() - bare, "json_mb": size / 1e6}))


if __name__ == "__main__":
    main()
