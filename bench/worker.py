"""One process of a bench: `python bench/worker.py MODEL CANDIDATE...`, started by turns.py.

It prepares the candidates and writes a line of JSON with facts about each. Then, for every line `CANDIDATE CALLS` that
it reads, it runs that candidate that many times and writes {"seconds": CPU seconds per call}. An untimed call goes
before, except for the first line and for calls that take as long as SLOW. A failure is written as {"failure": reason}
and ends the process. Each candidate has its own model, because it may leave hooks on it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from chainrule.dump.wire import dump_trace
from chainrule.stats import kernel_name
from chainrule.trace import Trace, trace_model
from chainrule.trace import record as recording_of
from models import Case, case
from peers import PEERS
from timing import cpu_seconds

SLOW = 1
"""A call of this many CPU seconds needs none before it: warming up is a small part of it."""

Prepared = tuple[Callable[[], object], Mapping[str, Any]]


def record(which: Case, level: str = "op") -> Trace:
    """Forward, backward, both graphs, all statistics."""
    which.model.zero_grad(set_to_none=True)
    recording = recording_of(which.model, level=level)
    return trace_model(which.model, which.x, loss=which.loss, recording=recording)


def full_trace(which: Case) -> bytes:
    """Everything: forward, backward, both graphs, all statistics, JSON."""
    return dump_trace(record(which))


def prepare(name: str, which: Case) -> Prepared:
    """The call of a candidate, and facts about it."""
    if name == "bare":
        return which.bare, {}
    if name == "trace":
        facts = {
            "tensors": len(record(which).statistics),
            "json_kb": round(len(full_trace(which)) / 1e3, 1),
            "kernel": kernel_name(),
        }
        return lambda: full_trace(which), facts
    if name == "aten":
        return lambda: dump_trace(record(which, "aten")), {}
    return PEERS[name].prepare(which), {}


def reason(error: BaseException) -> str:
    """Type and first line of an exception, of the one that caused it where it names one."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def measure(prepared: Mapping[str, Prepared], lines: Iterable[str]) -> Iterator[dict[str, float]]:
    """The answer to every line, `CANDIDATE CALLS`."""
    latest: dict[str, float] = {}
    for line in lines:
        name, calls = line.split()
        warm = latest.get(name, SLOW) < SLOW
        latest[name] = cpu_seconds(prepared[name][0], int(calls), warm=warm)
        yield {"seconds": latest[name]}


def main() -> None:
    # The answers go where standard output was; what a tool prints goes nowhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, *names = sys.argv[1:]
    try:
        prepared = {name: prepare(name, case(model)) for name in names}
        print(json.dumps({name: facts for name, (_, facts) in prepared.items()}), file=answers, flush=True)
        # The garbage between two turns is collected; what the imports have left need not be looked at again for it.
        gc.collect()
        gc.freeze()
        for answer in measure(prepared, sys.stdin):
            print(json.dumps(answer), file=answers, flush=True)
    except Exception as error:
        print(json.dumps({"failure": reason(error)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
