"""The page of matrix multiplication: a race of the five rungs on two matrices of any size."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from statistics import mean, median
from typing import Any, TypeVar

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import integer, seed_input, text
from chainrule.chapter.page import Link, Listing, Page
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.matmul import RUNGS

Result = TypeVar("Result")

MAX_SIZE = 1024
"""The largest m, k and n: the matrices, their float64 product and the largest temporary stay below 64 MB together."""

LIMIT_SECONDS = 2.0
"""For all runs of a request; a rung whose single run takes longer is refused."""

REPEAT_SECONDS = 0.2
"""A rung is repeated for this long; one that takes longer runs once."""

MAX_REPEATS = 200

SURE_SECONDS = 0.1
"""A shorter run is estimated by its fastest piece, a longer one by the mean over SAMPLE_SECONDS."""

SAMPLE_SECONDS = 0.04

PRINTED_SECONDS = {"loops": 325e-3, "elementwise": 488e-6, "broadcasting": 414e-6, "einsum": 26.9e-6, "@": 6.42e-6}
"""The chapter's figures for 5×784 by 784×10, on another machine: only their order carries over."""

WINDOW = (5, 6, 6)
"""The shown rows of a, columns of a, columns of b."""


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"rungs": a row per chosen rung, "window": the shown corner of the matrices, "m", "k", "n", …}."""
    m, k, n = values["m"], values["k"], values["n"]
    a, b = draw(m, k, n, values["seed"])
    product, bound = a.double() @ b.double(), rounding_bound(a, b)
    estimates = {name: estimate(name, a, b) for name in values["rungs"]}
    limits = share_limit(estimates)
    # The time that the single runs leave is for repetitions.
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
    """Two float32 matrices ~ N(0, 1), a (m, k) and b (k, n), from separate generators: their sizes are independent."""
    a = torch.randn(m, k, generator=torch.Generator().manual_seed(2 * seed))
    b = torch.randn(k, n, generator=torch.Generator().manual_seed(2 * seed + 1))
    return a, b


def rounding_bound(a: Tensor, b: Tensor) -> Tensor:
    """The largest rounding error of each element of a @ b, for any order of additions: (m, n).

        |ĉ − c| ≤ γₖ Σₖ|a · b| ≤ γₖ ‖a[i]‖ ‖b[:, j]‖,   γₖ = k u / (1 − k u),  u half the dtype's eps

    Source: N. Higham, *Accuracy and Stability of Numerical Algorithms* (2002), section 3.1, and Cauchy-Schwarz.
    """
    ku = a.shape[1] * torch.finfo(a.dtype).eps / 2
    rows, columns = torch.linalg.vector_norm(a.double(), dim=1), torch.linalg.vector_norm(b.double(), dim=0)
    bound: Tensor = ku / (1 - ku) * torch.outer(rows, columns)
    return bound


def share_limit(estimates: Mapping[str, float]) -> dict[str, float]:
    """The seconds that each rung may take: LIMIT_SECONDS, less the time of the faster ones.

    A rung that takes more than LIMIT_SECONDS would be refused alone too, so its limit is LIMIT_SECONDS.
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
    """A rung's row: its time, the number of repeats, and the difference of its result from the float64 `product`.

    If the `expected` seconds of a run exceed `limit`, the rung does not run, and "refused" says so; else it is repeated
    for `budget` seconds.
    """
    row: dict[str, Any] = {
        "name": name,
        **dict.fromkeys(("seconds", "speedup", "max_difference", "equal", "refused")),
        "repeats": 0,
        "printed_seconds": PRINTED_SECONDS[name],
        "rounding_bound": float(bound.max()),
    }
    if expected > limit:
        return row | {"refused": {"estimate_seconds": expected, "limit_seconds": limit}}
    seconds, repeats, c = measure(lambda: RUNGS[name](a, b), budget)
    return row | {
        "seconds": seconds,
        "repeats": repeats,
        "max_difference": json_number(max_difference(c, product)),
        "equal": bool(((c.double() - product).abs() <= bound).all()),
    }


def measure(
    run: Callable[[], Result], budget: float, wait: Callable[[], object] = lambda: None
) -> tuple[float, int, Result]:
    """The median seconds per run over the budget, the number of runs that count, and the last result.

    Runs at least once. The first of several runs, with cold caches, is dropped. `wait` returns when a run on a GPU,
    which a call only queues, has ended.
    """
    times: list[float] = []
    while not times or (sum(times) < budget and len(times) <= MAX_REPEATS):
        stopping.check()
        wait()
        start = time.perf_counter()
        result = run()
        wait()
        times.append(time.perf_counter() - start)
    counted = times[1:] or times
    return median(counted), len(counted), result


def estimate(name: str, a: Tensor, b: Tensor) -> float:
    """The seconds of a single run of a rung, scaled up from a piece: fewer steps of loops, the same vectors."""
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
    # A busy machine slows a long run down, and only the mean shows it.
    return scale * (min(times) if min(times) * scale <= SURE_SECONDS else mean(times[1:]))


def read_rungs(given: str) -> tuple[str, ...]:
    """Names of rungs, separated by commas, as a tuple in the order of RUNGS. Raises ValueError."""
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in RUNGS:
            raise ValueError(f"unknown name {name[:40]!r}" if name else "a name is missing")
    return tuple(name for name in RUNGS if name in names)


_RUNGS = f"a list of these names: {', '.join(RUNGS)}, with commas between them"
_RUNG = rf"\s*({'|'.join(map(re.escape, RUNGS))})\s*"

PAGE = Page(
    name="matmul",
    title="Matrix multiplication in five ways",
    seed="002 Matrix Multiplication from Scratch",
    lead="Three nested loops, which PyTorch replaces one after the other.",
    inputs=(
        integer("m", 5, "Rows of a and of the product.", 1, MAX_SIZE),
        integer("k", 784, "Columns of a and rows of b, the index of the sum.", 1, MAX_SIZE),
        integer("n", 10, "Columns of b and of the product.", 1, MAX_SIZE),
        seed_input("Seed of the two matrices, drawn from N(0, 1)."),
        text("rungs", ",".join(RUNGS), "The rungs to run.", read_rungs, _RUNGS, rf"{_RUNG}(,{_RUNG})*"),
    ),
    answer=answer,
    listings=tuple(Listing(name, rung) for name, rung in RUNGS.items()),
    links=tuple(
        Link(f"{name} in the explorer", f"program=matmul&rung={query}&widths=3,2&batch=2")
        for name, query in ((name, name.replace("@", "%40")) for name in RUNGS)
    ),
    timed=True,
)
