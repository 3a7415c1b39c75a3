"""The page of layers and initialization: what lin and relu do to mean and std, once and fifty times in a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from chainrule.chapter.inputs import choice, flag, integer, number
from chainrule.chapter.json_values import json_number, json_tensor
from chainrule.chapter.page import Link, Listing, Page
from chainrule.chapter.tensor_summary import moments, spread, summary
from chainrule.foundations.initialization import (
    SCHEMES,
    draw,
    generator_for,
    normal,
    orthogonal,
    uniform,
    zeros,
)
from chainrule.foundations.layers import lin, relu

FURTHER_DRAWS = 10
"""Other seeds of the same experiment, whose lowest and highest figure are shown beside the one of `seed`."""

MULTIPLICATIONS = 2e9
"""Of all those further draws together; a larger experiment is repeated less often."""

MAX_SEED = 2**31 - 1

# torch_default draws biases as well, which the chapter's experiments do not have.
CHOICES = tuple(name for name in SCHEMES if name != "torch_default")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is drawn and computed: x: (batch, n_in), and `depth` weights.

    `hidden` is the width of every layer's output: n_in for a stack, so that its weights are square.
    """

    n_in: int
    hidden: int
    depth: int
    batch: int
    init: str
    scale: float
    rectified: bool


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"weight_std", "layer": l1 and l2, "stack": layer by layer, "experiments": the chapter's nine}."""
    seed, scheme = values["seed"], (values["init"], values["scale"])
    batch, n_in = values["batch"], values["n_in"]
    one = Setting(n_in, values["hidden"], 1, batch, *scheme, False)
    many = Setting(n_in, n_in, values["depth"], batch, *scheme, values["relu"])
    return {
        "weight_std": math.sqrt(_weight_variance(one) / n_in),
        "layer": explain_layer(one, seed),
        "stack": explain_stack(many, seed),
        "experiments": [*_experiments(seed)],
    }


# -------------------------------------------------------------------------------------------------------- experiments


def layers_of(x: Tensor, weights: Iterator[Tensor], rectified: bool) -> Iterator[Tensor]:
    """The chapter's loop: `for i in range(50): x = relu(x @ w)`, or without the relu; every x on the way.

    x: (batch, n_in), a weight: (fan_in, fan_out).
    """
    for w in weights:
        x = lin(x, w)
        if rectified:
            x = relu(x)
        yield x


def run(setting: Setting, seed: int) -> Iterator[Tensor]:
    """The layers of an experiment. Its tensors are those that the explorer draws from this seed under these names."""
    x = normal((setting.batch, setting.n_in), generator_for(seed, "x"))
    weights = (
        draw(setting.init, setting.n_in, setting.hidden, generator_for(seed, f"w{index}"), setting.scale)
        for index in range(1, setting.depth + 1)
    )
    return layers_of(x, weights, setting.rectified)


def explain_layer(setting: Setting, seed: int) -> dict[str, Any]:
    """l1 = lin(x, w1) and l2 = relu(l1): what is found, what theory expects, and the range over further draws."""
    (l1,) = run(setting, seed)
    others = [
        (moments(other), moments(relu(other))) for each in _other_seeds(setting, seed) for other in run(setting, each)
    ]
    ((l1_mean, l1_std),) = expected(setting)
    ((l2_mean, l2_std),) = expected(_with_relu(setting))
    return {
        "l1": {
            **summary(l1),
            "expected": {"mean": json_number(l1_mean), "std": json_number(l1_std)},
            "range": {name: _range(other[name] for other, _ in others) for name in ("mean", "std")},
        },
        "l2": {
            **summary(relu(l1)),
            "expected": {"mean": json_number(l2_mean), "std": json_number(l2_std)},
            "range": {name: _range(other[name] for _, other in others) for name in ("mean", "std")},
        },
        "further_draws": len(others),
    }


def explain_stack(setting: Setting, seed: int) -> dict[str, Any]:
    """Layer by layer: what is found, what theory expects, the range over further draws; and where it went wrong.

    Returns:
        {"layers", "first_inf", "first_nan", "first_all_zero": numbers of layers from 1, or None, "window": x[0:5, 0:5]
        at the end, "further_draws"}
    """
    found = []
    for x in run(setting, seed):
        found.append(moments(x))
    others = [[spread(other) for other in run(setting, each)] for each in _other_seeds(setting, seed)]
    layers = [
        {
            "index": index,
            **each,
            "expected": {"mean": json_number(mean), "std": json_number(std)},
            "range": _range(other[index - 1] for other in others),
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


def _other_seeds(setting: Setting, seed: int) -> range:
    """Seeds of the further draws; the fewer, the more one of them has to multiply."""
    cost = setting.batch * setting.n_in * setting.hidden * setting.depth
    return range(seed + 1, seed + 1 + min(FURTHER_DRAWS, int(MULTIPLICATIONS / cost)))


def _range(figures: Iterator[float | None]) -> list[float] | None:
    """The lowest and the highest of the figures there are."""
    there = [figure for figure in figures if isinstance(figure, float)]
    return [min(there), max(there)] if there else None


# ------------------------------------------------------------------------------------------------------------- theory

BASE_VARIANCES: Mapping[Callable[..., Tensor], Callable[[int, int], float]] = {
    normal: lambda _fan_in, _fan_out: 1.0,
    uniform: lambda _fan_in, _fan_out: 1 / 3,
    orthogonal: lambda fan_in, fan_out: 1 / max(fan_in, fan_out),
    zeros: lambda _fan_in, _fan_out: 0.0,
}
"""The variance of one element of each base draw, from (fan_in, fan_out)."""


def _weight_variance(setting: Setting) -> float:
    """σ_w² = fan_in · Var(w): what one layer multiplies the second moment by."""
    scheme = SCHEMES[setting.init]
    factor = scheme.factor(setting.n_in, setting.hidden) * setting.scale
    return setting.n_in * factor * factor * BASE_VARIANCES[scheme.base](setting.n_in, setting.hidden)


def expected(setting: Setting) -> list[tuple[float, float]]:
    """Mean and std of every layer in the limit of wide layers, where l ~ N(0, q) and x ~ N(0, 1).

        lin:   q ← σ_w² q                  mean 0,          std √q
        relu:  E relu(l)² = q / 2          mean √(q / 2π),  std √(q / 2 − q / 2π)

    Source: K. He et al., *Delving Deep into Rectifiers* (2015), 2.2.
    """
    weight_variance, second_moment = _weight_variance(setting), 1.0
    found = []
    for _ in range(setting.depth):
        q = weight_variance * second_moment
        second_moment = q / 2 if setting.rectified else q
        mean = math.sqrt(q / (2 * math.pi)) if setting.rectified else 0.0
        # By √q last: q itself may be too large for its square to be taken away again.
        std = math.sqrt(q) * (math.sqrt(0.5 - 0.5 / math.pi) if setting.rectified else 1.0)
        found.append((mean, std))
    return found


def _with_relu(setting: Setting) -> Setting:
    return Setting(
        setting.n_in, setting.hidden, setting.depth, setting.batch, setting.init, setting.scale, rectified=True
    )


# ------------------------------------------------------------------------------------------- the chapter's experiments


@dataclass(frozen=True, slots=True)
class Experiment:
    """One that the chapter prints the result of.

    Attributes:
        preset: its name in the explorer.
        code: as the chapter writes it.
        setting: the same.
        printed: the figures it prints; none where it shows values only.
        window: its x[0:5, 0:5], as printed.
        signs: whether that is known with its signs. The text at hand has lost every minus.
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
"""The chapter's nine, in its order, always at the chapter's sizes: only the seed is asked for."""


@lru_cache(maxsize=8)
def _experiments(seed: int) -> tuple[dict[str, Any], ...]:
    """Every experiment's printed figures beside those of this seed, what theory expects, and the range over draws."""
    rows = []
    for experiment in EXPERIMENTS:
        setting = experiment.setting
        *_, last = run(setting, seed)
        found = moments(last)
        others = [moments([*run(setting, each)][-1]) for each in _other_seeds(setting, seed)]
        mean, std = expected(setting)[-1]
        window = experiment.window
        rows.append(
            {
                "preset": experiment.preset,
                "code": experiment.code,
                "depth": setting.depth,
                "printed": dict(experiment.printed),
                "printed_window": None if window is None else [[json_number(value) for value in row] for row in window],
                "signs": experiment.signs,
                "measured": found,
                "expected": {"mean": json_number(mean), "std": json_number(std)},
                "range": {name: _range(other[name] for other in others) for name in ("mean", "std")},
                "further_draws": len(others),
                "window": json_tensor(last[:5, :5]),
                "set": _as_inputs(setting),
            }
        )
    return tuple(rows)


def _as_inputs(setting: Setting) -> str:
    """The query that makes this page run the experiment in its own figures."""
    wanted = {
        "n_in": setting.n_in,
        "batch": setting.batch,
        "depth": 50,
        "init": setting.init,
        "scale": f"{setting.scale:g}",
        "relu": "true" if setting.rectified else "false",
    }
    if setting.depth == 1:
        wanted["hidden"] = setting.hidden
    return "&".join(f"{name}={value}" for name, value in wanted.items())


# ----------------------------------------------------------------------------------------------------------- the page

PAGE = Page(
    name="initialization",
    title="Layers and initialization",
    seed="002 Defining and Initializing a Layer",
    lead="A layer multiplies the spread of what it is given; fifty layers do it fifty times.",
    inputs=(
        choice("init", "standard_normal", "scheme", "How the weights are drawn.", choices=CHOICES),
        number("scale", "1", "scale", "Multiplies every weight: the same draw, rescaled.", minimum=1e-4, maximum=1e4),
        integer("n_in", 100, "n_in", "Inputs of the layer, and the width of the stack.", minimum=1, maximum=256),
        integer("hidden", 50, "hidden", "Outputs of the one layer.", minimum=1, maximum=256),
        integer("depth", 50, "depth", "Layers of the stack.", minimum=1, maximum=100),
        integer("batch", 200, "batch", "Rows of x.", minimum=1, maximum=256),
        flag("relu", False, "relu after every layer", "Whether the stack rectifies."),
        integer("seed", 42, "seed", "Of all draws.", minimum=0, maximum=MAX_SEED),
    ),
    answer=answer,
    listings=(
        Listing("lin", lin),
        Listing("relu", relu),
        Listing("layers_of", layers_of),
        Listing("draw", draw),
    ),
    links=tuple(Link(f"{each.preset}: {each.code}", f"preset={each.preset}") for each in EXPERIMENTS),
)
