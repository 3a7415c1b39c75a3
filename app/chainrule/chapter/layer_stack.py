"""A layer, or a stack of layers, drawn from a seed: its tensors, the cost of a draw, and theory's moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from chainrule import stopping
from chainrule.foundations.initialization import SCHEMES, draw, generator_for, normal, orthogonal, uniform, zeros
from chainrule.foundations.layers import lin, relu

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


def lowest_and_highest(figures: Iterator[float | None]) -> list[float] | None:
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
