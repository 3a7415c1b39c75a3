"""A layer, or a stack of them, drawn from a seed: its tensors, what one draw costs, and what theory expects of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from chainrule import stopping
from chainrule.foundations.initialization import SCHEMES, draw, generator_for, normal, orthogonal, uniform, zeros
from chainrule.foundations.layers import lin, relu

FURTHER_DRAWS = 10
"""Other seeds of the same experiment, whose lowest and highest figure are shown beside the one of `seed`."""

BUDGET = 0.2e9
"""ns of all those further draws of one setting together, by `cost`; a larger one is repeated less often."""


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
    return layers_of(x, _weights(setting, seed), setting.rectified)


def _weights(setting: Setting, seed: int) -> Iterator[Tensor]:
    for index in range(1, setting.depth + 1):
        stopping.check()
        yield draw(setting.init, setting.n_in, setting.hidden, generator_for(seed, f"w{index}"), setting.scale)


def cost(setting: Setting) -> float:
    """About how long one draw of a setting and its figures take, in ns of one core: the same on every machine.

    A batch of one has the same weights to draw as any other, and to draw them takes longer than to multiply by them: an
    element of a matrix as long as 200 multiplications, and a QR decomposition of it longer still.
    """
    fans = setting.n_in, setting.hidden
    multiplied = 0.02 * setting.batch * setting.n_in * setting.hidden
    drawn = 5 * setting.n_in * setting.hidden
    summed_up = 10 * setting.batch * setting.hidden
    decomposed = 2e4 + (15 + 0.07 * min(fans)) * fans[0] * fans[1] if SCHEMES[setting.init].base is orthogonal else 0
    return setting.depth * (3e4 + multiplied + drawn + summed_up + decomposed)


def other_seeds(setting: Setting, seed: int) -> range:
    """Seeds of the further draws; the fewer, the longer one of them takes."""
    return range(seed + 1, seed + 1 + min(FURTHER_DRAWS, int(BUDGET / cost(setting))))


def lowest_and_highest(figures: Iterator[float | None]) -> list[float] | None:
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


def weight_variance(setting: Setting) -> float:
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
    growth, second_moment = weight_variance(setting), 1.0
    found = []
    for _ in range(setting.depth):
        q = growth * second_moment
        second_moment = q / 2 if setting.rectified else q
        mean = math.sqrt(q / (2 * math.pi)) if setting.rectified else 0.0
        # By √q last: q itself may be too large for its square to be taken away again.
        std = math.sqrt(q) * (math.sqrt(0.5 - 0.5 / math.pi) if setting.rectified else 1.0)
        found.append((mean, std))
    return found


def with_relu(setting: Setting) -> Setting:
    """The same, rectified."""
    return Setting(
        setting.n_in, setting.hidden, setting.depth, setting.batch, setting.init, setting.scale, rectified=True
    )
