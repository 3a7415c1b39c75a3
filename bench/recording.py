"""What a full trace costs, as a ratio to the bare forward and backward pass of the same model, beside other tools.

    python bench/recording.py [--models M1,M2] [--peers torchlens,torchviz] [--seconds 3]
    python bench/recording.py --profile M1,M4

A full trace is everything: both graphs, exact statistics with 64 bins of every tensor and gradient, and the JSON. The
other tools do less, and the table says what; one that fails is a row that says how. One thread, CPU time, all in turns
in the same rounds, each in a process of its own (turns.py); median of per-round ratios, with quartiles. Then what
recording takes per layer, what the statistics of one tensor take, and what a trace adds to the peak of memory.
--profile says where the time of a trace goes instead (breakdown.py). Prints one table and writes
bench/results/bench.json. It takes about ten minutes; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import memory
from breakdown import print_breakdown
from chainrule.run import environment
from models import NAMES
from peers import PEERS
from table import Section, number, render, times
from turns import Candidate, environment_with, ratio_to, take_turns, workers

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CALLS = {"M1": 2, "M2": 20}
"""Calls in one turn of a small model, so that a turn is long enough for the clock."""

LAYERS = (10, 30, 100, 300, 1000)
NO_COMPILER = {"CHAINRULE_KERNEL": "torch"}
KERNEL_SECONDS = 2

Figures = dict[str, Any]


def model_figures(name: str, candidates: Mapping[str, Candidate]) -> Figures:
    """The figures of one model from what was measured of `bare`, `trace`, `no_compiler` and the peers.

    A peer that has failed is null, and says how under `PEER_MODEL_failure`.

    Raises:
        SystemExit: the bare pass or our own trace failed.
    """
    bare, trace = candidates["bare"], candidates["trace"]
    if bare.failure or trace.failure:
        raise SystemExit(f"{name}: {bare.failure or trace.failure}")
    figures: Figures = {f"{name}_bare_ms": round(statistics.median(bare.times.values()) * 1e3, 3)}
    figures |= {f"{name}_{fact}": value for fact, value in trace.facts.items()}
    for key, candidate in candidates.items():
        row = {"trace": name, "no_compiler": f"{name}_no_compiler"}.get(key, f"{key}_{name}")
        if key == "bare":
            continue
        measured = ratio_to(candidate, bare)
        figures[row] = None if measured is None else round(measured[0], 3)
        if measured is not None:
            figures |= {f"{row}_low": round(measured[1], 3), f"{row}_high": round(measured[2], 3)}
        if candidate.failure is not None:
            figures[f"{row}_failure"] = candidate.failure
        if "version" in candidate.facts:
            figures[f"{key}_version"] = candidate.facts["version"]
    return figures


def bench_model(name: str, peers: Sequence[str], seconds: float) -> Figures:
    """The bare pass, ours, ours without a compiler, and the peers, on one model."""
    groups: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
        ({"bare": "bare", "trace": "trace"}, {}),
        ({"no_compiler": "trace"}, NO_COMPILER),
        *(({peer: peer}, {}) for peer in peers),
    ]
    with workers(name, groups) as candidates:
        take_turns(candidates, "bare", CALLS.get(name, 1), seconds)
    return model_figures(name, candidates)


def bench_layers(depth: int, seconds: float) -> Figures:
    """Microseconds of recording for one layer of that many: Linear and ReLU, forward and backward."""
    with workers(f"L{depth}", [({"bare": "bare", "trace": "trace"}, {})]) as candidates:
        take_turns(candidates, "bare", max(1, 100 // depth), seconds)
    bare, trace = candidates["bare"].times, candidates["trace"].times
    extra = statistics.median(trace[number] - bare[number] for number in trace)
    return {f"layer_us_{depth}": round(extra / depth * 1e6, 1)}


def child(script: str, *arguments: str, **settings: str) -> Any:
    """What another file of this bench writes, in a process of its own."""
    command = [sys.executable, str(HERE / script), *arguments]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment_with(settings))
    return json.loads(process.stdout)


def bench_kernel() -> Figures:
    """Time for one tensor's statistics; without a dtype in its name, a figure is of float32."""
    figures: Figures = {}
    for end, settings in (("", {}), ("_no_compiler", NO_COMPILER)):
        measured = child("kernel.py", str(KERNEL_SECONDS), **settings)
        for dtype, value in measured["ns_per_element"].items():
            figures[f"kernel_ns_per_element_{dtype}{end}"] = value
        for dtype, value in measured["floor_ratio"].items():
            figures[f"kernel_floor_ratio_dram_{dtype}{end}"] = value
    for name in ("kernel_ns_per_element", "kernel_floor_ratio_dram"):
        figures[name] = figures[f"{name}_float32"]
    return figures


def bench_memory(name: str) -> Figures:
    """MB that the process has more at its peak: for a bare pass, and for a trace beyond it."""
    measured = child("memory.py", name, **memory.SETTINGS)
    return {f"{name}_memory_{what}": round(value, 2) for what, value in measured.items()}


def sections(figures: Mapping[str, Any], models: Sequence[str], peers: Sequence[str]) -> list[Section]:
    """The table of what was measured."""

    def cell(key: str) -> str:
        return "fails" if f"{key}_failure" in figures else times(figures.get(key))

    def spread(key: str) -> str:
        return f"{number(figures.get(f'{key}_low'))} – {number(figures.get(f'{key}_high'))}"

    def row(label: str, end: str, digits: int = 1) -> tuple[str, list[str]]:
        return label, [number(figures.get(f"{name}_{end}"), digits) for name in models]

    recording = Section(
        "× bare forward and backward pass",
        models,
        [
            row("bare pass, CPU ms", "bare_ms", 2),
            ("Chainrule", [cell(name) for name in models]),
            ("  quartiles", [spread(name) for name in models]),
            ("Chainrule without a compiler", [cell(f"{name}_no_compiler") for name in models]),
            *((peer, [cell(f"{peer}_{name}") for name in models]) for peer in peers),
        ],
        [
            "Chainrule: both graphs; exact statistics and 64 bins of every tensor and gradient; JSON",
            *(f"{peer} {figures.get(f'{peer}_version', '')}: {PEERS[peer].covers}" for peer in peers),
            *(
                f"{peer} fails on {name}: {figures[f'{peer}_{name}_failure']}"
                for peer in peers
                for name in models
                if f"{peer}_{name}_failure" in figures
            ),
        ],
    )
    layers = Section(
        "layers of [Linear(100, 100), ReLU]",
        [str(depth) for depth in LAYERS],
        [("µs of recording per layer", [number(figures.get(f"layer_us_{depth}"), 0) for depth in LAYERS])],
    )
    dtypes = ("float32", "float64", "bfloat16", "float16")

    def per_dtype(name: str, end: str = "") -> list[str]:
        return [number(figures.get(f"{name}_{dtype}{end}")) for dtype in dtypes]

    kernel = Section(
        "statistics of one tensor",
        dtypes,
        [
            ("ns per element, in cache", per_dtype("kernel_ns_per_element")),
            ("  without a compiler", per_dtype("kernel_ns_per_element", "_no_compiler")),
            ("× X.sum(), from memory", per_dtype("kernel_floor_ratio_dram")),
            ("  without a compiler", per_dtype("kernel_floor_ratio_dram", "_no_compiler")),
        ],
    )
    size = Section(
        "size of a trace",
        models,
        [
            row("tensors with statistics", "tensors", 0),
            row("JSON, kB", "json_kb", 0),
            row("peak memory of a bare pass, MB", "memory_bare_mb"),
            row("  a trace adds, JSON included, MB", "memory_trace_mb"),
        ],
    )
    return [recording, layers, kernel, size]


def names_of(known: Sequence[str]) -> Any:
    """Reads names separated by commas, for argparse."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name and name != "none"]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models, peers = names_of(NAMES), names_of(tuple(PEERS))
    parser.add_argument("--models", type=models, default=list(NAMES), help="which of M1 to M5, separated by commas")
    parser.add_argument("--peers", type=peers, default=list(PEERS), help="which of the other tools, or none")
    parser.add_argument("--seconds", type=float, default=3, help="of CPU time for each tool on each model")
    parser.add_argument("--profile", type=models, metavar="MODELS", help="where the time goes, of these models alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.profile is not None:
        print_breakdown(arguments.profile, arguments.seconds * 5)
        return
    began = time.perf_counter()
    figures: Figures = {}
    for name in arguments.models:
        _progress(f"{name}, beside {len(arguments.peers)} others")
        figures |= bench_model(name, arguments.peers, arguments.seconds)
    for depth in LAYERS:
        _progress(f"{depth} layers")
        figures |= bench_layers(depth, arguments.seconds / 2)
    _progress("statistics kernel")
    figures |= bench_kernel()
    for name in arguments.models:
        _progress(f"memory of {name}")
        figures |= bench_memory(name)
    _progress("")
    print(render(sections(figures, arguments.models, arguments.peers)))
    figures["seconds"] = round(time.perf_counter() - began)
    print(f"\n{figures['seconds']} s")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps({**figures, "environment": dict(environment())}, indent=2) + "\n")


def _progress(what: str) -> None:
    """What runs now, on a line of the terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r{what:60}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
