"""The page of layers and initialization: what lin and relu do to mean and std, once and fifty times in a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from torch import Tensor

from chainrule import stopping
from chainrule.chapter.inputs import choice, flag, integer, number, seed_input
from chainrule.chapter.layer_stack import (
    FURTHER_DRAWS,
    Setting,
    expected,
    layers_of,
    lowest_and_highest,
    other_seeds,
    run,
    weight_variance,
)
from chainrule.chapter.page import Link, Page, listings
from chainrule.chapter.tensor_summary import moments, spread, summary
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.initialization import SCHEMES, draw, generator_for, normal
from chainrule.foundations.layers import lin, relu

MAX_DEPTH = 64
"""Layers of the stack; the explorer's default limit."""

# torch_default draws biases as well, which the chapter's experiments do not have.
CHOICES = tuple(name for name in SCHEMES if name != "torch_default")


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
    others = [
        (moments(other), moments(relu(other))) for each in other_seeds(setting, seed) for other in run(setting, each)
    ]
    ((l1_mean, l1_std),) = expected(setting)
    ((l2_mean, l2_std),) = expected(replace(setting, rectified=True))
    return {
        "l1": {
            **summary(l1),
            "expected": {"mean": json_number(l1_mean), "std": json_number(l1_std)},
            "range": {name: lowest_and_highest(other[name] for other, _ in others) for name in ("mean", "std")},
        },
        "l2": {
            **summary(relu(l1)),
            "expected": {"mean": json_number(l2_mean), "std": json_number(l2_std)},
            "range": {name: lowest_and_highest(other[name] for _, other in others) for name in ("mean", "std")},
        },
        "further_draws": len(others),
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
    """An experiment whose result the chapter prints.

    Attributes:
        preset: its name in the explorer.
        printed: the printed mean and std; empty if the chapter prints values only.
        window: x[0:5, 0:5], as printed.
        signs: whether the signs in the window are known: the source text has lost every minus.
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
    for place, experiment in enumerate(EXPERIMENTS):
        setting = experiment.setting
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
                "measured": measured[place].figures,
                "expected": {"mean": json_number(mean), "std": json_number(std)},
                "range": {
                    name: lowest_and_highest(each[place].figures[name] for each in further) for name in ("mean", "std")
                },
                "further_draws": FURTHER_DRAWS,
                "window": measured[place].window,
                "set": _as_inputs(setting),
            }
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an experiment: the `moments` of its last layer, and x[0:5, 0:5]."""

    figures: Mapping[str, Any]
    window: Mapping[str, Any]


@lru_cache(maxsize=256)
def _outcomes(seed: int) -> tuple[Outcome, ...]:
    """Every experiment, once, from one seed; cached, since neighbouring seeds share their further draws.

    Each has the tensors of `run`. All of them scale draws from N(0, 1), so a weight of one shape is drawn only once.
    """

    @cache
    def base(fan_in: int, fan_out: int, index: int) -> Tensor:
        return normal((fan_in, fan_out), generator_for(seed, f"w{index}"))

    outcomes = []
    for setting in (experiment.setting for experiment in EXPERIMENTS):
        stopping.check()
        n_in, hidden = setting.n_in, setting.hidden
        factor = setting.scale * SCHEMES[setting.init].factor(n_in, hidden)
        weights = (base(n_in, hidden, index) * factor for index in range(1, setting.depth + 1))
        x = normal((setting.batch, n_in), generator_for(seed, "x"))
        *_, last = layers_of(x, weights, setting.rectified)
        outcomes.append(Outcome(moments(last), json_tensor(last[:5, :5])))
    return tuple(outcomes)


def _as_inputs(setting: Setting) -> str:
    """The query that makes this page run the experiment."""
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


PAGE = Page(
    name="initialization",
    title="Layers and initialization",
    seed="002 Defining and Initializing a Layer",
    lead="A layer multiplies the spread of what it is given; fifty layers do it fifty times.",
    inputs=(
        choice("init", "standard_normal", "How the weights are drawn.", CHOICES, label="scheme"),
        number("scale", "1", "Multiplies every weight: the same draw, rescaled.", 1e-4, 1e4),
        integer("n_in", 100, "Inputs of the layer, and the width of the stack.", 1, 256),
        integer("hidden", 50, "Outputs of the one layer.", 1, 256),
        integer("depth", 50, "Layers of the stack.", 1, MAX_DEPTH),
        integer("batch", 200, "Rows of x.", 1, 256),
        flag("relu", False, "Whether the stack rectifies.", label="relu after every layer"),
        seed_input("Of all draws."),
    ),
    answer=answer,
    listings=listings(lin, relu, layers_of, draw),
    links=tuple(Link(f"{each.preset}: {each.code}", f"preset={each.preset}") for each in EXPERIMENTS),
)
