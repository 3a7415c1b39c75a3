"""The page of matrix multiplication: the five rungs raced against each other on two matrices of any size."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from statistics import mean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import integer, text
from chainrule.chapter.page import Link, Listing, Page
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.matmul import RUNGS

MAX_SIZE = 1024
"""Of m, k and n: the two matrices, their float64 product and the largest temporary stay below 64 MB together."""

LIMIT_SECONDS = 2.0
"""How long the runs of a request may take; a rung whose single run does not fit into that is refused."""

REPEAT_SECONDS = 0.2
"""How long a rung is repeated for; one that takes longer runs once."""

MAX_REPEATS = 200

SURE_SECONDS = 0.1
"""A run this short is estimated by its fastest piece; one that may be refused by the mean over SAMPLE_SECONDS."""

SAMPLE_SECONDS = 0.04

PRINTED_SECONDS = {"loops": 325e-3, "elementwise": 488e-6, "broadcasting": 414e-6, "einsum": 26.9e-6, "@": 6.42e-6}
"""What the chapter printed for 5×784 by 784×10. Its machine was another one: only the order carries over."""

WINDOW = (5, 6, 6)
"""Rows of a, columns of a, columns of b that are shown."""


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"rungs": a row for each that was asked for, "window": the corner of the matrices that is shown; the sizes}."""
    m, k, n = values["m"], values["k"], values["n"]
    a, b = draw(m, k, n, values["seed"])
    product, bound = a.double() @ b.double(), rounding_bound(a, b)
    estimates = {name: estimate(name, a, b) for name in values["rungs"]}
    limits = share_limit(estimates)
    # What no single run needs is there for repeating them.
    repeating = max(0.0, LIMIT_SECONDS - sum(estimates[name] for name in estimates if estimates[name] <= limits[name]))
    budget = min(REPEAT_SECONDS, repeating / len(estimates))
    rows = [race(name, a, b, product, bound, estimates[name], limits[name], budget) for name in estimates]
    measured = next((row["seconds"] for row in rows if row["name"] == "loops"), None)
    baseline = measured or estimates.get("loops") or estimate("loops", a, b)
    for row in rows:
        row["speedup"] = row["seconds"] and baseline / row["seconds"]
    rows_shown, inner_shown, columns_shown = WINDOW
    return {
        "m": m,
        "k": k,
        "n": n,
        "multiplications": m * k * n,
        "threads": torch.get_num_threads(),
        "baseline": {
            "seconds": baseline,
            "measured": measured is not None,
            "printed_seconds": PRINTED_SECONDS["loops"],
        },
        "rungs": rows,
        "window": {
            "a": json_tensor(a[:rows_shown, :inner_shown]),
            "b": json_tensor(b[:inner_shown, :columns_shown]),
            "c": json_tensor(product[:rows_shown, :columns_shown]),
        },
    }


def draw(m: int, k: int, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two matrices ~ N(0, 1) in float32, a (m, k) and b (k, n).

    Each has a generator of its own, so that the size of one leaves the other as it is.
    """
    a = torch.randn(m, k, generator=torch.Generator().manual_seed(2 * seed))
    b = torch.randn(k, n, generator=torch.Generator().manual_seed(2 * seed + 1))
    return a, b


def rounding_bound(a: Tensor, b: Tensor) -> Tensor:
    """How far an element of a @ b may be off by rounding alone, whatever the order of its additions: (m, n).

        |ĉ − c| ≤ γₖ Σₖ|a · b| ≤ γₖ ‖a[i]‖ ‖b[:, j]‖,   γₖ = k u / (1 − k u),  u half the dtype's eps

    Source: N. Higham, *Accuracy and Stability of Numerical Algorithms* (2002), section 3.1, and Cauchy-Schwarz.
    """
    ku = a.shape[1] * torch.finfo(a.dtype).eps / 2
    rows, columns = torch.linalg.vector_norm(a.double(), dim=1), torch.linalg.vector_norm(b.double(), dim=0)
    bound: Tensor = ku / (1 - ku) * torch.outer(rows, columns)
    return bound


# ------------------------------------------------------------------------------------------------------------- the race


def share_limit(estimates: Mapping[str, float]) -> dict[str, float]:
    """How long each rung of a request may take: what the ones that take less have left of the limit.

    One that takes more than the whole limit would be refused alone as well, and is told the whole.
    """
    left = LIMIT_SECONDS
    limits = {}
    for name in sorted(estimates, key=lambda name: estimates[name]):
        limits[name] = left if estimates[name] <= LIMIT_SECONDS else LIMIT_SECONDS
        if estimates[name] <= left:
            left -= estimates[name]
    return limits


def race(
    name: str, a: Tensor, b: Tensor, product: Tensor, bound: Tensor, expected: float, limit: float, budget: float
) -> dict[str, Any]:
    """A rung's row: its time, how often it was measured, and how far its result is from the product in float64.

    Args:
        name: of the rung.
        a: (m, k).
        b: (k, n).
        product: a @ b in float64.
        bound: how far rounding may take an element of it.
        expected: seconds that a run is estimated to take. Where that is more than `limit`, the rung does not run and
            "refused" says so.
        limit: seconds it may take.
        budget: seconds it is repeated for.
    """
    row: dict[str, Any] = {
        "name": name,
        "seconds": None,
        "repeats": 0,
        "speedup": None,
        "printed_seconds": PRINTED_SECONDS[name],
        "max_difference": None,
        "rounding_bound": float(bound.max()),
        "equal": None,
        "refused": None,
    }
    if expected > limit:
        return row | {"refused": {"estimate_seconds": expected, "limit_seconds": limit}}
    timing, c = measure(RUNGS[name], a, b, budget)
    return row | {
        "seconds": timing.seconds,
        "repeats": timing.repeats,
        "max_difference": json_number(max_difference(c, product)),
        "equal": bool(((c.double() - product).abs() <= bound).all()),
    }


class Timing(NamedTuple):
    """Seconds per run: the median of so many repeats."""

    seconds: float
    repeats: int


def measure(rung: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, budget: float) -> tuple[Timing, Tensor]:
    """Time a rung, and its result.

    It runs once, and if that took less than the budget again and again until the budget is spent. The first run of
    several does not count: it finds the caches cold.
    """
    times: list[float] = []
    total = 0.0
    while not times or (total < budget and len(times) <= MAX_REPEATS):
        stopping.check()
        start = time.perf_counter()
        c = rung(a, b)
        times.append(time.perf_counter() - start)
        total += times[-1]
    counted = times[1:] or times
    return Timing(median(counted), len(counted)), c


# -------------------------------------------------------------------------------------------------------- the estimates


def estimate(name: str, a: Tensor, b: Tensor) -> float:
    """Seconds that a single run of a rung will take, scaled up from a small piece of the same matrices.

    A piece keeps what the cost of one step depends on: its share of the loops is smaller, the vectors in them are not.
    """
    (m, k), n = a.shape, b.shape[1]
    pieces = {
        "loops": (min(m, 1), min(k, 64), min(n, 2)),
        "elementwise": (min(m, 1), k, min(n, 16)),
        "broadcasting": (min(m, 2), k, n),
    }
    rows, inner, columns = pieces.get(name, (min(m, 8), k, n))
    piece_a, piece_b = a[:rows, :inner], b[:inner, :columns]
    rung = RUNGS[name]
    times: list[float] = []
    scale = math.prod((m, k, n)) / math.prod((rows, inner, columns))
    while len(times) < 3 or (min(times) * scale > SURE_SECONDS and sum(times) < SAMPLE_SECONDS):
        stopping.check()
        start = time.perf_counter()
        rung(piece_a, piece_b)
        times.append(time.perf_counter() - start)
    # A long run shares a busy machine with others, which only the mean over a while shows.
    return scale * (min(times) if min(times) * scale <= SURE_SECONDS else mean(times[1:]))


# ------------------------------------------------------------------------------------------------------------- the page


def read_rungs(given: str) -> tuple[str, ...]:
    """Names of rungs, commas between them, each at most once; in the order of the ladder. Raises ValueError."""
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in RUNGS:
            raise ValueError(f"{name[:40]!r} is none of them" if name else "a name is missing")
    return tuple(name for name in RUNGS if name in names)


_RUNG = rf"\s*({'|'.join(map(re.escape, RUNGS))})\s*"

PAGE = Page(
    name="matmul",
    title="Matrix multiplication, five times",
    seed="002 Matrix Multiplication from Scratch",
    lead="Three nested loops, and what becomes of them when one after the other is left to PyTorch.",
    inputs=(
        integer("m", 5, "m", "Rows of a and of the product.", minimum=1, maximum=MAX_SIZE),
        integer("k", 784, "k", "Columns of a, rows of b: what is summed over.", minimum=1, maximum=MAX_SIZE),
        integer("n", 10, "n", "Columns of b and of the product.", minimum=1, maximum=MAX_SIZE),
        integer("seed", 42, "seed", "Of the two matrices, drawn from N(0, 1).", minimum=0, maximum=2**31 - 1),
        text(
            "rungs",
            ",".join(RUNGS),
            "rungs",
            "Which of the five run.",
            read=read_rungs,
            allowed=f"a list of names out of {', '.join(RUNGS)}, with commas between them",
            pattern=rf"{_RUNG}(,{_RUNG})*",
        ),
    ),
    answer=answer,
    listings=tuple(Listing(name, rung) for name, rung in RUNGS.items()),
    links=tuple(
        Link(f"{name} in the explorer", f"program=matmul&rung={query}&widths=3,2&batch=2")
        for name, query in ((name, name.replace("@", "%40")) for name in RUNGS)
    ),
    timed=True,
)
