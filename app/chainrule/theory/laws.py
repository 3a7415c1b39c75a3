"""How figures stray over draws, for all layers at once: what stands here in columns `(L,)` has an entry per layer.

Logarithms of positive figures are taken to be normal, the same figure's share of one layer to be χ².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chainrule.theory.finite_width import ASYMPTOTIC, asymptotic_psi
from chainrule.theory.gaussian import Array, Mask, Number

DEVIATIONS = 2.0
"""A band reaches so many standard deviations to either side, for 95 % of draws."""

WIDEST = 20.0
"""Relative variance of the widest χ² that is taken for a law, of a tenth of a degree: e^±20 is no news any more."""

NARROWEST = 1e-9
"""Below this relative variance a χ² has so many degrees of freedom that it is normal itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """The `NormLaw` of one figure of every layer: mean and variance of ln(figure²), relative to mean-field theory's."""

    mean: Array
    variance: Array

    def __add__(self, other: Laws) -> Laws:
        return Laws(self.mean + other.mean, self.variance + other.variance)

    def answered(self, response: Array | float) -> Laws:
        """Of what answers by `response` to each unit of what obeys these."""
        return Laws(response * self.mean, response**2 * self.variance)

    def band(self, root: Array) -> tuple[Array, Array]:
        """Where the root of a figure is to be expected whose mean-field value is `root`."""
        center = root * np.exp(self.mean / 2)
        factor = np.exp(DEVIATIONS * np.sqrt(self.variance) / 2)
        return center / factor, center * factor


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """One figure of every layer, with the band it should lie in; NaN where nothing is said."""

    value: Array
    low: Array
    high: Array

    def where(self, said: Mask) -> Figures:
        """The same, with nothing said of the other layers."""
        return Figures(*(np.where(said, column, np.nan) for column in (self.value, self.low, self.high)))


@dataclass(frozen=True, slots=True, eq=False)
class Strays:
    """How the correlation c strays over draws: its variance, and its covariance with ln q.

    A unit that all inputs share adds to both, so that q (1 − c), by which inputs differ, strays less than either.
    """

    variance: Array
    with_q: Array


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The variance over all elements of a tensor: its expectation, and what it depends on besides.

    Attributes:
        value: its expectation over draws.
        own: its variance over draws, given all that came before, relative to value².
        slope: d ln value / d ln q.
        c_slope: d ln value / d c.
    """

    value: Array
    own: Array
    slope: Array
    c_slope: Array

    def expected(self, walk: Laws, strays: Strays) -> Figures:
        """Of the standard deviation, where ln q obeys `walk` and c has its `strays`."""
        by_c = self.c_slope**2 * strays.variance + 2 * self.slope * self.c_slope * strays.with_q
        given = walk.answered(self.slope)
        noise = chi_square_laws(np.stack([self.own, by_c]))
        # A correlation that is larger where q is takes away from what q does.
        variance = np.maximum(0.0, given.variance + noise.variance.sum(0) + np.minimum(by_c, 0.0))
        std = np.sqrt(self.value)
        return Figures(std, *Laws(given.mean + noise.mean.sum(0), variance).band(std))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Tensors (B, n) of n independent units, each normal, with correlation c between any two of the B inputs.

    Preactivations are such, given all that came before, and gradients, given all that comes after.

    Attributes:
        second_moment: of its elements.
        c: the mean correlation.
        scatter: variance of the correlation from pair to pair: in few dimensions no two directions are orthogonal.
        units: n.
        inputs: B.
        freedom: see `Net`.
    """

    second_moment: Array
    c: Array
    scatter: Array
    units: Array
    inputs: int
    freedom: Array

    @cached_property
    def overlap(self) -> Array:
        """Mean squared correlation of all B² pairs: 1/overlap is how many independent inputs the batch stands for."""
        return of_all_pairs(self.pair_overlap, self.inputs)

    @cached_property
    def pair_overlap(self) -> Array:
        """Mean squared correlation of the pairs of different inputs."""
        return np.minimum(1.0, self.c**2 + self.scatter)

    @property
    def mean_variance(self) -> Array:
        """Variance over draws of the mean over all elements."""
        return self.second_moment * (self.c + (1 - self.c) / self.inputs) / self.units

    @cached_property
    def variances(self) -> Variances:
        """Of all elements: between the units, whose means vary by c + (1−c)/B, and within each, over its inputs."""
        n, inputs = self.units, self.inputs
        unit_mean = self.c + (1 - self.c) / inputs
        within = (1 - self.c) * (1 - 1 / inputs)
        share = unit_mean * (n - 1) / n + within
        own = 2 * unit_mean**2 * (n - 1) / n**2 + 2 * (1 - self.c) * within / (n * inputs) + 2 * self.scatter / n
        varies = (self.second_moment > 0) & (share > 0)
        return Variances(
            value=np.where(varies, self.second_moment * share, 0.0),
            own=quotient(own * self.freedom, share**2, varies),
            slope=varies.astype(np.float64),
            c_slope=quotient(-(1 - 1 / inputs) / n, share, varies),
        )


def of_all_pairs(pair_overlap: Number, inputs: int) -> Number:
    """The mean over all B² pairs of what is 1 for an input with itself and `pair_overlap` for two."""
    return 1 / inputs + (1 - 1 / inputs) * pair_overlap


def quotient(numerator: Array | float, denominator: Array, sensible: Mask, otherwise: float = 0.0) -> Array:
    """The ratio of the two where that is `sensible`."""
    ratio: Array = np.divide(numerator, denominator, out=np.full(denominator.shape, otherwise), where=sensible)
    return ratio


def chi_square_law(relative_variance: float) -> tuple[float, float]:
    """Mean and variance of ln(χ²/degrees), for a χ² of the degrees of freedom that make this its relative variance.

    With x half the degrees, they are ψ(x) − ln x and ψ′(x).
    """
    if relative_variance < NARROWEST:
        variance = max(0.0, relative_variance)
        return -variance / 2, variance
    x = y = 1 / min(WIDEST, relative_variance)
    steps = squares = 0.0
    while y < ASYMPTOTIC:
        steps += 1 / y
        squares += 1 / (y * y)
        y += 1
    gap, spread = asymptotic_psi(y)
    return math.log(y / x) - gap - steps, spread + squares


def chi_square_laws(relative_variances: Array) -> Laws:
    """`chi_square_law` of every one."""
    variance = np.clip(relative_variances, 0.0, WIDEST)
    x = 1 / np.maximum(variance, NARROWEST)
    steps = 1 / np.add.outer(np.arange(float(ASYMPTOTIC)), x)
    gap, spread = asymptotic_psi(x + ASYMPTOTIC)
    mean = np.log1p(ASYMPTOTIC / x) - gap - steps.sum(0)
    narrow = variance < NARROWEST
    return Laws(np.where(narrow, -variance / 2, mean), np.where(narrow, variance, spread + (steps * steps).sum(0)))
