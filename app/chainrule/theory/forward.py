"""The forward pass: the preactivations and activations of every layer, and how they stray.

Given the layers before, a layer's units are independent draws, so each figure is a mean over n units of B inputs each
and strays by its own 1/√n. The second moment strays too, and passes that on: with v the variance over draws of ln q,

    v′ = s² v + noise,    s = d ln q′ / d ln q

A homogeneous activation without biases has s = 1: the noise adds up and the norm does a random walk (Hanin and Nica
2018). A saturating one has s < 1: it returns to its fixed point. The less similar the inputs of a batch are, the more
noise averages out: hence the correlation c, and its scatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Generic, NamedTuple

import numpy as np

from chainrule.theory.activations import activation_named
from chainrule.theory.gaussian import Array, Mask, Number
from chainrule.theory.laws import Gaussians, Laws, Strays, Variances, chi_square_law, of_all_pairs, quotient
from chainrule.theory.unit import Marginal, Units, marginal, unit, unit_columns

SMALLEST_Q, LARGEST_Q = 1e-140, 1e140
"""Variances are followed between these: squares of values beyond overflow float64."""

UNEVEN = 0.5
"""How much ln q of the batch may depend on few inputs with a large q. Off its fixed point gelu or silu lets weaker
inputs vanish sooner; then the batch is no longer Gaussian, and theory stops."""

LINEAR = 0.05
"""If ln q strays further than this from its mean-field value, the slopes there are too inexact for a band."""


@dataclass(frozen=True, slots=True)
class Net:
    """A net of random weights with its inputs: x and, for the mean squared error, y, both N(0, 1)."""

    widths: tuple[int, ...]  # n_in, hidden …, n_out
    activations: tuple[str, ...]  # of each layer, `linear` for none
    variances: tuple[tuple[float, float], ...]  # (σ_w², σ_b²) of each layer
    batch: int
    orthogonal: bool = False  # weights are orthogonal matrices, which keep a vector's length

    def freedom(self, fan_in: int, fan_out: int) -> float:
        """The share of the randomness of |W x| that is left, relative to independent weights."""
        return max(0.0, 1 - fan_out / fan_in) if self.orthogonal else 1.0


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of the forward pass, in columns `(L,)`."""

    activations: tuple[str, ...]
    preactivations: Gaussians  # given q
    walk: Laws  # of ln q, relative to mean-field theory's
    strays: Strays  # of c
    share: Array  # the part of q that comes from the weights, not the biases
    moments: Marginal[Array]  # of φ and φ′ at q, or at 1 if φ is homogeneous
    units: Units  # at the same q
    size: Array  # the missing factor of E φ²: q if φ is homogeneous, else 1
    noise: Laws  # of ln(mean φ²), given q
    second: Array  # E φ²
    c_after: Array  # E[φ(u₁)φ(u₂)] / E φ²
    unevenness: Array  # the part of ln q that comes from few inputs with a large q
    walked: bool  # the norm has walked too far for bands, and figures for bands are missing

    def __len__(self) -> int:
        return len(self.activations)

    def are(self, activation: str) -> Mask:
        """Which layers have this activation."""
        return np.array([each == activation for each in self.activations], dtype=bool)

    @cached_property
    def mean(self) -> Array:
        """E φ."""
        return np.sqrt(self.size) * self.moments.mean

    @cached_property
    def second_response(self) -> Array:
        """The slope d ln E φ² / d ln q."""
        return quotient(self.moments.second_slope, self.units.second, self.units.second > 0)

    @cached_property
    def derivative_response(self) -> Array:
        """The slope d ln E φ′² / d ln q."""
        return quotient(self.moments.derivative_slope, self.units.derivative, self.units.derivative > 0)

    @cached_property
    def variances(self) -> Variances:
        """The variances over all activations."""
        n, inputs, units = self.preactivations.units, self.preactivations.inputs, self.units
        within = self.second * (1 - self.c_after)
        between = np.maximum(0.0, self.second * self.c_after - self.mean**2) + within / inputs
        value = within * (1 - 1 / inputs) + between * (1 - 1 / n)
        # The slope d ln Var φ / d ln q.
        variance = units.second - units.mean**2
        slope = quotient(self.moments.second_slope - 2 * units.mean * self.moments.mean_slope, variance, variance > 0)
        fourth = units.between_fourth + 6 * units.within_times_between / inputs + 3 * units.within_square / inputs**2
        within_noise = units.within_variance + units.within_noise / inputs + 2 * units.within_and_between * (1 - 1 / n)
        own = (
            within_noise * self.size**2
            + np.maximum(0.0, fourth * self.size**2 - between**2 * (n - 3) / np.maximum(1, n - 1)) * (1 - 1 / n) ** 2
            + 2 * (value * slope) ** 2 * self.preactivations.scatter
        ) / n
        c_slope = -(1 - 1 / inputs) / n * self.preactivations.second_moment * units.derivative_product
        varies = value > 0
        of_activations = (
            np.where(varies, value, 0.0),
            quotient(own, value**2, varies),
            np.where(varies, slope, 0.0),
            quotient(c_slope, value, varies),
        )
        given = self.preactivations.variances
        of_preactivations = (given.value, given.own, given.slope, given.c_slope)
        linear = self.are("linear")
        return Variances(*(np.where(linear, *pair) for pair in zip(of_preactivations, of_activations, strict=True)))


class _Row(NamedTuple, Generic[Number]):
    """One layer's figures as `forward` computes them, with the names of `Gaussians` and `Layers`."""

    q: Number
    c: Number
    scatter: Number
    units: Number
    freedom: Number
    share: Number
    unevenness: Number
    size: Number
    walk_mean: Number
    walk_variance: Number
    noise_mean: Number
    noise_variance: Number
    second: Number
    c_after: Number
    c_slope: Number  # d c_after / d c
    response: Number  # d ln E φ² / d ln q


def forward(net: Net, typical: bool) -> Layers:
    """The layers as far as q can be followed: along the mean-field path or, if `typical`, the median path.

    Raises:
        ValueError: an unknown activation.
    """
    inputs, n_in = net.batch, net.widths[0]
    # The previous layer's activations, first x: second moment, the law of its logarithm, the variance of that for a
    # single input, the correlation and its scatter.
    second, c, scatter = 1.0, 0.0 if inputs > 1 else 1.0, 1 / n_in if inputs > 1 else 0.0
    walk_mean, walk_variance = chi_square_law(2 / (inputs * n_in))
    _, single = chi_square_law(2 / n_in)
    unevenness = 0.0
    if typical:
        second, walk_mean = math.exp(walk_mean), 0.0

    rows, marginals, units = [], [], []
    walked = False
    for activation, (weight_variance, bias_variance), (fan_in, n) in zip(
        net.activations, net.variances, pairwise(net.widths), strict=True
    ):
        q = weight_variance * second + bias_variance
        if (q != 0 and not SMALLEST_Q < q < LARGEST_Q) or unevenness > UNEVEN:
            break
        share = weight_variance * second / q if q else 0.0
        c = min(1.0, max(0.0, share * c + 1 - share))
        scatter, single = share**2 * scatter, share**2 * single
        walk_mean, walk_variance = share * walk_mean, share**2 * walk_variance
        freedom = net.freedom(fan_in, n)

        homogeneous = activation_named(activation).homogeneous
        walked = walked or (abs(walk_mean) > LINEAR and not homogeneous)
        size, reference = (q, 1.0) if homogeneous else (1.0, q)
        moments, drawn = marginal(activation, reference), unit(activation, reference, c, banded=not walked)
        second = size * moments.second
        noise, single_noise, response, c_after, c_slope = 0.0, 0.0, 0.0, 1.0, 1.0
        if second > 0:
            c_after = drawn.c_after
            c_slope = drawn.derivative_product * reference / drawn.second
            response = moments.second_slope / drawn.second
            # A second Hermite coefficient is 2 (d/d ln q)², and the scatter of c acts through it.
            quadratic = 2 * response**2
            overlap = of_all_pairs(min(1.0, c**2 + scatter), inputs)
            noise = (drawn.squares_shared + (drawn.squares_variance - drawn.squares_shared) / inputs) / drawn.second**2
            noise += quadratic * scatter + 1 / n  # 1/n² in all: an allowance for the next order
            noise -= quadratic * overlap * (1 - freedom)
            single_noise = drawn.squares_variance / drawn.second**2 - quadratic * (1 - freedom)
        # If q differs between inputs, the batch's mean exceeds the map of the mean: E eˢˣ for a normal x, E eˣ = 1.
        bend = max(0.0, single - walk_variance) * response * (response - 1) / 2
        noise_mean, noise_variance = chi_square_law(noise / n)
        noise_mean += bend
        if typical:
            second, noise_mean = second * math.exp(noise_mean), 0.0

        given = (q, c, scatter, n, freedom, share, unevenness, size, walk_mean, walk_variance)
        rows.append(_Row(*given, noise_mean, noise_variance, second, c_after, c_slope, response))
        marginals.append(moments)
        units.append(drawn)
        single = response**2 * single + chi_square_law(single_noise / n)[1]
        scatter = scattered(scatter, c_slope, c_after, n, inputs)
        walk_mean, walk_variance = response * walk_mean + noise_mean, response**2 * walk_variance + noise_variance
        unevenness = share * response * unevenness + bend
        c = c_after
    columns = unit_columns(units)
    column: _Row[Array] = _Row(*np.array(rows).reshape(-1, len(_Row._fields)).T)
    return Layers(
        activations=net.activations[: len(rows)],
        preactivations=Gaussians(column.q, column.c, column.scatter, column.units, net.batch, column.freedom),
        walk=Laws(column.walk_mean, column.walk_variance),
        strays=_strays(rows, columns, net.batch),
        share=column.share,
        moments=Marginal(*np.array(marginals).reshape(-1, len(Marginal._fields)).T),
        units=columns,
        size=column.size,
        noise=Laws(column.noise_mean, column.noise_variance),
        second=column.second,
        c_after=column.c_after,
        unevenness=column.unevenness,
        walked=walked,
    )


def scattered(scatter: float, slope: float, c_after: float, n: int, inputs: int, again: float = 0.0) -> float:
    """The scatter of a correlation after a map of this slope and n units, each of which samples it.

    `again` is the share that has passed the same weights before: the Gram matrix of (a W) Wᵀ strays twice as much as
    the one of a W, so its variance is 4/n, where a W contributes one and an independent draw would add another.
    """
    if inputs == 1:
        return 0.0
    sampled = (1 + 2 * again) * (1 - c_after**2) ** 2 * (1 + scatter - 2 * scatter**2) / n
    return min(1 - c_after**2, slope**2 * scatter + sampled)


def _strays(rows: Sequence[_Row[float]], units: Units, inputs: int) -> Strays:
    """How c strays: the previous layer's strays times the slopes, plus the noise of each layer's units."""
    variance = with_q = 0.0
    found = []
    noises = zip(units.correlation_noise.tolist(), units.correlation_and_squares.tolist(), strict=True)
    for row, (noise, both) in zip(rows, noises, strict=True):
        variance, with_q = row.share**2 * variance, row.share**2 * with_q
        found.append((variance, with_q))
        if inputs > 1:
            variance = min(1.0, row.c_slope**2 * variance + noise / row.units)
            with_q = row.response * row.c_slope * with_q + both / row.units
    return Strays(*np.array(found).reshape(-1, 2).T)
