"""The cost of a full trace as a ratio to the bare forward and backward pass of the same model, beside other tools.

    python bench/recording.py [--models M1,M2] [--peers torchlens,torchviz] [--seconds 3]
    python bench/recording.py --profile M1,M4
    python bench/recording.py --models M1@cuda,M4@cuda --peers none

A full trace is everything: both graphs, exact statistics with 64 bins of every tensor and gradient, and the JSON. The
other tools do less, and the table says what; one that fails is a row that says how. One thread, CPU time, all in turns
in the same rounds, each in a process of its own (turns.py), a call that is not timed before those that are; median of
per-round ratios, with quartiles. Then what recording takes per layer, what the statistics of one tensor take, and what
a trace adds to the peak of memory. --profile says where the time of a trace goes instead (breakdown.py).

Prints one table and writes bench/results/bench.json. A run that leaves out models or tools writes bench-partial.json
beside it, and so does one in which something of Chainrule's own fails: the rest is measured nevertheless, and the exit
status is 1. It takes about a quarter of an hour; run it on an idle machine. Of models on a CUDA device the first table
is all, by the clock, until the device has ended.
"""

from __future__ import annotations

import argparse
import json
import math
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
from turns import MIN_ROUNDS, Candidate, MeasurementError, environment_with, ratio_to, take_turns, workers

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CALLS = {"M1": 2, "M2": 20}
"""Calls in one turn of a small model, so that a turn is long enough for the clock."""

CUDA = "@cuda"
"""Ends the name of a model that is on that device."""

LAYERS = (10, 30, 100, 300, 1000)
NO_COMPILER = {"CHAINRULE_KERNEL": "torch"}
KERNEL_SECONDS = 2

Figures = dict[str, Any]


def model_figures(name: str, candidates: Mapping[str, Candidate]) -> Figures:
    """The figures of one model from what was measured of `bare`, `trace`, `no_compiler` and the peers.

    A failed figure is null; its reason is `PEER_MODEL_failure` or, for Chainrule, `MODEL_failure`, `MODEL_bare_failure`
    or `MODEL_no_compiler_failure`. Without a bare pass there are no ratios.
    """
    bare = candidates["bare"]
    figures: Figures = {
        f"{name}_bare_ms": round(statistics.median(bare.times.values()) * 1e3, 3) if bare.times else None
    }
    figures |= {f"{name}_{fact}": value for fact, value in candidates["trace"].facts.items()}
    for key, candidate in candidates.items():
        row = {"bare": f"{name}_bare", "trace": name, "no_compiler": f"{name}_no_compiler"}.get(key, f"{key}_{name}")
        if candidate.failure is not None:
            figures[f"{row}_failure"] = candidate.failure
        if key == "bare":
            continue
        measured = ratio_to(candidate, bare)
        figures[row] = None if measured is None else round(measured[0], 3)
        if measured is not None:
            figures |= {f"{row}_low": round(measured[1], 3), f"{row}_high": round(measured[2], 3)}
            figures[f"{row}_rounds"] = len(candidate.times.keys() & bare.times.keys())
    return figures


def bench_model(name: str, peers: Sequence[str], seconds: float) -> Figures:
    """The bare pass, ours, ours without a compiler and at level aten, and the peers, on one model."""
    groups: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
        ({"bare": "bare", "trace": "trace"}, {}),
        ({"no_compiler": "trace"}, NO_COMPILER),
        ({"aten": "aten"}, {}),
        *(({peer: peer}, {}) for peer in peers),
    ]
    with workers(name, groups) as candidates:
        take_turns(candidates, "bare", CALLS.get(name, 1), seconds)
    return model_figures(name, candidates)


def bench_layers(depth: int, seconds: float) -> Figures:
    """Microseconds of recording for one layer of that many: Linear and ReLU, forward and backward."""
    with workers(f"L{depth}", [({"bare": "bare", "trace": "trace"}, {})]) as candidates:
        take_turns(candidates, "bare", max(1, 100 // depth), seconds)
    bare, trace = candidates["bare"], candidates["trace"]
    for name, candidate in candidates.items():
        if candidate.failure is not None:
            return {f"layer_us_{depth}": None, f"layer_us_{depth}_failure": f"{name}: {candidate.failure}"}
    extra = [trace.times[number] - bare.times[number] for number in trace.times]
    return {
        f"layer_us_{depth}": round(statistics.median(extra) / depth * 1e6, 1),
        f"layer_us_{depth}_rounds": len(extra),
    }


def child(script: str, *arguments: str, **settings: str) -> Any:
    """The JSON that another file of this bench prints, in its own process.

    Raises:
        MeasurementError: it has failed; standard error shows its own message.
    """
    command = [sys.executable, str(HERE / script), *arguments]
    process = subprocess.run(command, check=False, stdout=subprocess.PIPE, env=environment_with(settings))
    if process.returncode != 0:
        raise MeasurementError(f"{script} ended with exit code {process.returncode}")
    return json.loads(process.stdout)


def bench_kernel() -> Figures:
    """Time for one tensor's statistics; without a dtype in its name, a figure is of float32."""
    figures: Figures = {}
    for end, settings in (("", {}), ("_no_compiler", NO_COMPILER)):
        try:
            measured = child("kernel.py", str(KERNEL_SECONDS), **settings)
        except MeasurementError as error:
            figures[f"kernel{end}_failure"] = str(error)
            continue
        for dtype, value in measured["ns_per_element"].items():
            figures[f"kernel_ns_per_element_{dtype}{end}"] = value
        for dtype, value in measured["floor_ratio"].items():
            figures[f"kernel_floor_ratio_dram_{dtype}{end}"] = value
    for name in ("kernel_ns_per_element", "kernel_floor_ratio_dram"):
        figures[name] = figures.get(f"{name}_float32")
    return figures


def bench_memory(name: str) -> Figures:
    """MB that the process has more at its peak: for a bare pass, and for a trace beyond it."""
    try:
        measured = child("memory.py", name, **memory.SETTINGS)
    except MeasurementError as error:
        return {f"{name}_memory_failure": str(error)}
    return {f"{name}_memory_{what}": round(value, 2) for what, value in measured.items()}


def sections(figures: Mapping[str, Any], models: Sequence[str], peers: Sequence[str]) -> list[Section]:
    """The table of what was measured."""

    def cell(key: str) -> str:
        return "fails" if f"{key}_failure" in figures else times(figures.get(key))

    def spread(key: str) -> str:
        low, high = (number(figures.get(f"{key}_{end}")) for end in ("low", "high"))
        return f"{low} – {high}" if low else ""

    def failures(label: str, keys: Mapping[str, str]) -> list[str]:
        """A line for each key that has failed; `keys` are by the word for what failed there."""
        return [
            f"{label} fails {where}: {figures[f'{key}_failure']}"
            for where, key in keys.items()
            if f"{key}_failure" in figures
        ]

    def of_models(label: str, key: str) -> list[str]:
        return failures(label, {f"on {name}": key.format(name) for name in models})

    def row(label: str, end: str, digits: int = 1) -> tuple[str, list[str]]:
        return label, [number(figures.get(f"{name}_{end}"), digits) for name in models]

    recording = Section(
        "× bare forward and backward pass",
        models,
        [
            (
                "bare pass, CPU ms",
                [
                    "fails" if f"{name}_bare_failure" in figures else number(figures[f"{name}_bare_ms"])
                    for name in models
                ],
            ),
            ("Chainrule", [cell(name) for name in models]),
            ("  quartiles", [spread(name) for name in models]),
            ("Chainrule without a compiler", [cell(f"{name}_no_compiler") for name in models]),
            ("Chainrule, level aten", [cell(f"aten_{name}") for name in models]),
            *((peer, [cell(f"{peer}_{name}") for name in models]) for peer in peers),
        ],
        [
            "Chainrule: both graphs; exact statistics and 64 bins of every tensor and gradient; JSON",
            *(f"{peer} {figures[f'{peer}_version'] or '(not installed)'}: {PEERS[peer].covers}" for peer in peers),
            *rounds_note(figures, models, peers),
            *of_models("the bare pass", "{}_bare"),
            *of_models("Chainrule", "{}"),
            *of_models("Chainrule without a compiler", "{}_no_compiler"),
            *of_models("Chainrule at level aten", "aten_{}"),
            *(line for peer in peers for line in of_models(peer, peer + "_{}")),
        ],
    )
    layers = Section(
        "layers of [Linear(100, 100), ReLU]",
        [str(depth) for depth in LAYERS],
        [
            (
                "µs of recording per layer",
                [
                    "fails" if f"layer_us_{depth}_failure" in figures else number(figures.get(f"layer_us_{depth}"), 0)
                    for depth in LAYERS
                ],
            )
        ],
        failures("recording", {f"with {depth} layers": f"layer_us_{depth}" for depth in LAYERS}),
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
        failures("the measurement", {"compiled": "kernel", "without a compiler": "kernel_no_compiler"}),
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
        of_models("the measurement of memory", "{}_memory"),
    )
    return [recording, layers, kernel, size]


def rounds_note(figures: Mapping[str, Any], models: Sequence[str], peers: Sequence[str]) -> list[str]:
    """How many rounds are behind the ratios of the table, and which has the fewest."""
    rows = {f"Chainrule on {name}": name for name in models}
    rows |= {f"Chainrule without a compiler on {name}": f"{name}_no_compiler" for name in models}
    rows |= {f"{peer} on {name}": f"{peer}_{name}" for peer in peers for name in models}
    rounds = {label: figures[f"{key}_rounds"] for label, key in rows.items() if f"{key}_rounds" in figures}
    if not rounds:
        return []
    slowest, most = min(rounds, key=rounds.__getitem__), max(rounds.values())
    fewest = rounds[slowest]
    note = f"medians over {most} rounds"
    if fewest < most:
        note += f"; slow rows have fewer, the slowest {fewest}: {slowest}"
    if fewest <= MIN_ROUNDS:
        note += f" (quartiles of {fewest} values say little)"
    return [note]


def names_of(known: Sequence[str], *, or_none: bool = False) -> Any:
    """Reads names separated by commas, each counted once, for argparse; `or_none` allows `none` and no name at all."""

    def read(text: str) -> list[str]:
        names = list(dict.fromkeys(name for name in text.split(",") if name))
        if or_none and names in ([], ["none"]):
            return []
        for name in names:
            if name.removesuffix(CUDA) not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        if not names:
            raise argparse.ArgumentTypeError(f"{text!r} names none of {', '.join(known)}")
        return names

    return read


def seconds_of(text: str) -> float:
    """Reads a time, for argparse.

    Raises:
        ArgumentTypeError: it is no number, infinite, or not greater than 0.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds greater than 0")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models, peers = names_of(NAMES), names_of(tuple(PEERS), or_none=True)
    parser.add_argument("--models", type=models, default=list(NAMES), help="which of M1 to M5, separated by commas")
    parser.add_argument("--peers", type=peers, default=list(PEERS), help="which of the other tools, or none")
    parser.add_argument("--seconds", type=seconds_of, default=3, help="of CPU time for each tool on each model")
    parser.add_argument("--profile", type=models, metavar="MODELS", help="where the time goes, of these models alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.profile is not None:
        print_breakdown(arguments.profile, arguments.seconds * 5)
        return
    began = time.perf_counter()
    figures: Figures = {f"{peer}_version": PEERS[peer].version() for peer in arguments.peers}
    for name in arguments.models:
        _progress(f"{name}, beside {len(arguments.peers)} others")
        figures |= bench_model(name, arguments.peers, arguments.seconds)
    on_host = not any(name.endswith(CUDA) for name in arguments.models)
    if on_host:
        for depth in LAYERS:
            _progress(f"{depth} layers")
            figures |= bench_layers(depth, arguments.seconds / 2)
        _progress("statistics kernel")
        figures |= bench_kernel()
        for name in arguments.models:
            _progress(f"memory of {name}")
            figures |= bench_memory(name)
    _progress("")
    print(render(sections(figures, arguments.models, arguments.peers)[: None if on_host else 1]))
    figures["seconds"] = round(time.perf_counter() - began)
    print(f"\n{figures['seconds']} s")
    failed = [key for key in figures if key.endswith("_failure") and not key.startswith(tuple(PEERS))]
    whole = set(arguments.models) == set(NAMES) and set(arguments.peers) == set(PEERS) and not failed
    target = RESULTS / ("bench.json" if whole else "bench-partial.json")
    RESULTS.mkdir(exist_ok=True)
    target.write_text(json.dumps({**figures, "environment": dict(environment())}, indent=2) + "\n")
    if not whole:
        print(f"Not all that the bench measures: written to {target.name}, bench.json is left as it is.")
    if failed:
        sys.exit(1)


def _progress(what: str) -> None:
    """Show the current step on a line of the terminal that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r{what:60}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
