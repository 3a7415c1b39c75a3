"""The page of layers and initialization: what lin and relu do to mean and std, once and fifty times in a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from torch import Tensor

from chainrule import stopping
from chainrule.chapter.inputs import choice, flag, integer, number, seed_input
from chainrule.chapter.page import Link, Page, listings
from chainrule.chapter.tensor_summary import moments, spread, summary
from chainrule.dump.json_values import json_number, json_tensor, json_value
from chainrule.foundations.initialization import SCHEMES, draw, generator_for, normal, orthogonal, uniform, zeros
from chainrule.foundations.layers import lin, relu

MAX_DEPTH = 64
"""Layers of the stack; the explorer's default limit."""

# torch_default draws biases as well, which the chapter's experiments do not have.
CHOICES = tuple(name for name in SCHEMES if name != "torch_default")

FURTHER_DRAWS = 10
"""Other seeds of the same experiment, whose lowest and highest figures are shown."""

BUDGET = 0.2e9
"""Nanoseconds for all further draws of one setting, by `cost`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The input x: (batch, n_in), and `depth` weights. A stack has hidden = n_in: its weights are square."""

    n_in: int
    hidden: int
    depth: int
    batch: int
    init: str
    scale: float
    rectified: bool


def layers_of(x: Tensor, weights: Iterator[Tensor], rectified: bool) -> Iterator[Tensor]:
    """Every x of the chapter's loop: `for i in range(50): x = relu(x @ w)`, or without the relu."""
    for w in weights:
        x = lin(x, w)
        if rectified:
            x = relu(x)
        yield x


def run(setting: Setting, seed: int) -> Iterator[Tensor]:
    """The layers of an experiment; the explorer draws the same tensors from this seed."""
    x = normal((setting.batch, setting.n_in), generator_for(seed, "x"))
    return layers_of(x, _weights(setting, seed), setting.rectified)


def _weights(setting: Setting, seed: int) -> Iterator[Tensor]:
    for index in range(1, setting.depth + 1):
        stopping.check()
        yield draw(setting.init, setting.n_in, setting.hidden, generator_for(seed, f"w{index}"), setting.scale)


def cost(setting: Setting) -> float:
    """An estimate of the nanoseconds of one draw and its figures on one core, the same on every machine.

    To draw an element takes as long as 200 multiplications, a QR decomposition longer still.
    """
    fans = setting.n_in, setting.hidden
    multiplied = 0.02 * setting.batch * setting.n_in * setting.hidden
    drawn = 5 * setting.n_in * setting.hidden
    summed_up = 10 * setting.batch * setting.hidden
    decomposed = 2e4 + (15 + 0.07 * min(fans)) * fans[0] * fans[1] if SCHEMES[setting.init].base is orthogonal else 0
    return setting.depth * (3e4 + multiplied + drawn + summed_up + decomposed)


def other_seeds(setting: Setting, seed: int) -> range:
    """Seeds of the further draws, as many as fit into BUDGET."""
    return range(seed + 1, seed + 1 + min(FURTHER_DRAWS, int(BUDGET / cost(setting))))


def lowest_and_highest(figures: Iterable[float | None]) -> list[float] | None:
    """The lowest and the highest figure, or None."""
    there = [figure for figure in figures if isinstance(figure, float)]
    return [min(there), max(there)] if there else None


BASE_VARIANCES: Mapping[Callable[..., Tensor], Callable[[int, int], float]] = {
    normal: lambda _fan_in, _fan_out: 1.0,
    uniform: lambda _fan_in, _fan_out: 1 / 3,
    orthogonal: lambda fan_in, fan_out: 1 / max(fan_in, fan_out),
    zeros: lambda _fan_in, _fan_out: 0.0,
}
"""The variance of one element of each base draw, from (fan_in, fan_out)."""


def weight_variance(setting: Setting) -> float:
    """σ_w² = fan_in · Var(w), the factor of the second moment per layer."""
    scheme = SCHEMES[setting.init]
    factor = scheme.factor(setting.n_in, setting.hidden) * setting.scale
    return setting.n_in * factor * factor * BASE_VARIANCES[scheme.base](setting.n_in, setting.hidden)


def expected(setting: Setting) -> list[tuple[float, float]]:
    """Mean and std of every layer in the limit of wide layers, where l ~ N(0, q) and x ~ N(0, 1).

        lin:   q ← σ_w² q                  mean 0,          std √q
        relu:  E relu(l)² = q / 2          mean √(q / 2π),  std √(q / 2 − q / 2π)

    Source: K. He et al., *Delving Deep into Rectifiers* (2015), 2.2.
    """
    growth, second_moment = weight_variance(setting), 1.0
    found = []
    for _ in range(setting.depth):
        q = growth * second_moment
        second_moment = q / 2 if setting.rectified else q
        mean = math.sqrt(q / (2 * math.pi)) if setting.rectified else 0.0
        # √q comes last: q² may overflow.
        std = math.sqrt(q) * (math.sqrt(0.5 - 0.5 / math.pi) if setting.rectified else 1.0)
        found.append((mean, std))
    return found


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"weight_std", "layer": l1 and l2, "stack": layer by layer, "experiments"}."""
    seed, scheme = values["seed"], (values["init"], values["scale"])
    batch, n_in = values["batch"], values["n_in"]
    one = Setting(n_in, values["hidden"], 1, batch, *scheme, False)
    many = Setting(n_in, n_in, values["depth"], batch, *scheme, values["relu"])
    return {
        "weight_std": math.sqrt(weight_variance(one) / n_in),
        "layer": explain_layer(one, seed),
        "stack": explain_stack(many, seed),
        "experiments": [*_experiments(seed)],
    }


def explain_layer(setting: Setting, seed: int) -> dict[str, Any]:
    """l1 = lin(x, w1) and l2 = relu(l1): measured, expected by theory, and the range over further draws."""
    (l1,) = run(setting, seed)
    others = [other for each in other_seeds(setting, seed) for other in run(setting, each)]
    return {
        "l1": summary(l1) | _beside(setting, [moments(other) for other in others]),
        "l2": summary(relu(l1)) | _beside(replace(setting, rectified=True), [moments(relu(each)) for each in others]),
        "further_draws": len(others),
    }


def _beside(setting: Setting, others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Theory's mean and std of the last layer, and their range over the `moments` of further draws."""
    mean, std = expected(setting)[-1]
    return {
        "expected": {"mean": json_number(mean), "std": json_number(std)},
        "range": {name: lowest_and_highest(each[name] for each in others) for name in ("mean", "std")},
    }


def explain_stack(setting: Setting, seed: int) -> dict[str, Any]:
    """Layer by layer: measured, expected by theory, the range over further draws.

    "first_inf", "first_nan" and "first_all_zero" are numbers of layers, or None; "window" is the last x[0:5, 0:5].
    """
    found = []
    for x in run(setting, seed):
        found.append(moments(x))
    others = [[spread(other) for other in run(setting, each)] for each in other_seeds(setting, seed)]
    layers = [
        {
            "index": index,
            **each,
            "expected": {"mean": json_number(mean), "std": json_number(std)},
            "range": lowest_and_highest(other[index - 1] for other in others),
        }
        for index, (each, (mean, std)) in enumerate(zip(found, expected(setting), strict=True), start=1)
    ]

    def first(is_so: Callable[[Mapping[str, Any]], bool]) -> int | None:
        return next((index for index, each in enumerate(found, start=1) if is_so(each)), None)

    return {
        "layers": layers,
        "first_inf": first(lambda each: each["posinf"] + each["neginf"] > 0),
        "first_nan": first(lambda each: each["nan"] > 0),
        "first_all_zero": first(lambda each: each["zeros"] == each["n"]),
        "window": json_tensor(x[:5, :5]),
        "further_draws": len(others),
    }


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment whose result the chapter prints: mean and std, or the values of x[0:5, 0:5], its `window`.

    `preset` is its name in the explorer. `signs`: the window's are known; the source text has lost every minus.
    """

    preset: str
    code: str
    setting: Setting
    printed: Mapping[str, float]
    window: Sequence[Sequence[float]] | None = None
    signs: bool = True


def _once(init: str, rectified: bool) -> Setting:
    return Setting(100, 50, 1, 200, init, 1.0, rectified)


def _fifty(init: str, scale: float, rectified: bool) -> Setting:
    return Setting(100, 100, 50, 200, init, scale, rectified)


EXPERIMENTS: Sequence[Experiment] = (
    Experiment(
        "randn", "lin(x, randn(100, 50), b1)", _once("standard_normal", False), {"mean": 0.0385, "std": 10.0544}
    ),
    Experiment(
        "scaled",
        "lin(x, randn(100, 50) / sqrt(100), b1)",
        _once("lecun_normal", False),
        {"mean": 0.0062, "std": 1.0231},
    ),
    Experiment("scaled-relu", "relu of that", _once("lecun_normal", True), {"mean": 0.3758, "std": 0.6150}),
    Experiment(
        "kaiming-relu",
        "relu(lin(x, randn(100, 50) * sqrt(2 / 100), b1))",
        _once("kaiming_normal", True),
        {"mean": 0.5720, "std": 0.8259},
    ),
    Experiment(
        "deep-exploding",
        "50 × x = x @ randn(100, 100)",
        _fifty("standard_normal", 1.0, False),
        {},
        [[math.nan] * 5] * 5,
    ),
    Experiment(
        "deep-vanishing",
        "50 × x = x @ (randn(100, 100) * 0.01)",
        _fifty("standard_normal", 0.01, False),
        {},
        [[0.0] * 5] * 5,
    ),
    Experiment(
        "deep-linear",
        "50 × x = x @ (randn(100, 100) * 0.1)",
        _fifty("standard_normal", 0.1, False),
        {"std": 1.0150},
        [
            [1.7695, 0.5923, 0.3357, 0.7702, 0.8877],
            [0.6093, 0.8594, 0.5679, 0.4050, 0.2279],
            [0.4312, 0.0497, 0.1795, 0.3184, 1.7031],
            [0.7370, 0.0251, 0.8574, 0.6826, 2.0615],
            [0.2335, 0.0042, 0.1503, 0.2087, 0.0405],
        ],
        signs=False,
    ),
    Experiment(
        "deep-relu",
        "50 × x = relu(x @ (randn(100, 100) * 0.1))",
        _fifty("standard_normal", 0.1, True),
        {},
        [
            [1.2172e-08, 0.0, 0.0, 7.1241e-09, 5.9308e-09],
            [1.9647e-08, 0.0, 0.0, 9.2189e-09, 7.1026e-09],
            [1.8266e-08, 0.0, 0.0, 1.1150e-08, 7.0774e-09],
            [1.8673e-08, 0.0, 0.0, 1.0574e-08, 7.3020e-09],
            [2.1829e-08, 0.0, 0.0, 1.1662e-08, 1.0466e-08],
        ],
    ),
    Experiment(
        "deep-kaiming",
        "50 × x = relu(x @ (randn(100, 100) * sqrt(2 / 100)))",
        _fifty("kaiming_normal", 1.0, True),
        {},
        [
            [0.0, 0.0, 0.1001, 0.0358, 0.0],
            [0.0, 0.0, 0.1612, 0.0164, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.1764, 0.0, 0.0],
            [0.0, 0.0, 0.1331, 0.0, 0.0],
        ],
    ),
)
"""The chapter's nine experiments, in its order, at its sizes."""


@lru_cache(maxsize=8)
def _experiments(seed: int) -> tuple[dict[str, Any], ...]:
    """Every experiment: its printed figures, those of this seed, theory's, and the range over further draws."""
    rows = []
    measured = _outcomes(seed)
    further = [_outcomes(other) for other in range(seed + 1, seed + 1 + FURTHER_DRAWS)]
    for place, each in enumerate(EXPERIMENTS):
        figures, window = measured[place]
        rows.append(
            {
                "preset": each.preset,
                "code": each.code,
                "depth": each.setting.depth,
                "printed": dict(each.printed),
                "printed_window": json_value(each.window),
                "signs": each.signs,
                "measured": figures,
                **_beside(each.setting, [outcomes[place][0] for outcomes in further]),
                "further_draws": FURTHER_DRAWS,
                "window": window,
                "set": _as_inputs(each.setting),
            }
        )
    return tuple(rows)


@lru_cache(maxsize=256)
def _outcomes(seed: int) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]:
    """The `moments` of every experiment's last layer, and its x[0:5, 0:5]; neighbouring seeds share further draws."""
    outcomes = []
    for each in EXPERIMENTS:
        *_, last = run(each.setting, seed)
        outcomes.append((moments(last), json_tensor(last[:5, :5])))
    return tuple(outcomes)


def _as_inputs(setting: Setting) -> str:
    """The query that makes this page run the experiment."""
    relu, hidden = str(setting.rectified).lower(), f"&hidden={setting.hidden}" if setting.depth == 1 else ""
    sizes = f"n_in={setting.n_in}&batch={setting.batch}&depth=50"
    return f"{sizes}&init={setting.init}&scale={setting.scale:g}&relu={relu}{hidden}"


PAGE = Page(
    name="initialization",
    title="Layers and initialization",
    seed="002 Defining and Initializing a Layer",
    lead="A layer multiplies the standard deviation of its input; fifty layers multiply it fifty times.",
    inputs=(
        choice("init", "standard_normal", "The distribution of the weights.", CHOICES, label="scheme"),
        number("scale", "1", "Multiplies every weight; the random draw stays the same.", 1e-4, 1e4),
        integer("n_in", 100, "Number of inputs of the layer, and width of the stack.", 1, 256),
        integer("hidden", 50, "Number of outputs of the single layer.", 1, 256),
        integer("depth", 50, "Layers of the stack.", 1, MAX_DEPTH),
        integer("batch", 200, "Rows of x.", 1, 256),
        flag("relu", False, "Apply relu after every layer of the stack.", label="relu after every layer"),
        seed_input("Seed of all random numbers."),
    ),
    answer=answer,
    listings=listings(lin, relu, layers_of, draw),
    links=tuple(Link(f"{each.preset}: {each.code}", f"preset={each.preset}") for each in EXPERIMENTS),
)
