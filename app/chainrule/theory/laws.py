"""How figures stray over draws, for all layers at once; columns `(L,)` have one entry per layer.

ln(‖x_L‖²/‖x_0‖²) is about Gaussian, and its mean and variance add up over the layers: per layer about −κ/(2n) and κ/n
with κ = Var(φ²)/E[φ²]² (2 for linear, 5 for relu). So after L layers the median signal of a correctly scaled net has
shrunk, and nets that differ only in the seed spread by a factor that grows with √(L/n). Source: Hanin and Nica 2018,
*Products of many large random matrices and gradients in deep neural networks*. One layer's factor is taken to be χ².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chainrule.theory.gaussian import Array, Mask, Number

DEVIATIONS = 2.0
"""A band reaches two standard deviations to either side: it holds 95 % of draws."""

WIDEST = 20.0
"""The largest relative variance of a χ², a tenth of a degree of freedom: a band of e^±20 excludes nothing."""

NARROWEST = 1e-9
"""Below this relative variance a χ² counts as normal."""

ASYMPTOTIC = 16
"""From here on `asymptotic_psi` holds to 1e-15."""


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Mean and variance of ln(figure²) relative to mean-field theory's, for one figure of every layer."""

    mean: Array
    variance: Array

    def __add__(self, other: Laws) -> Laws:
        return Laws(self.mean + other.mean, self.variance + other.variance)

    def answered(self, response: Array | float) -> Laws:
        """The laws of a figure whose logarithm is `response` times this one's."""
        return Laws(response * self.mean, response**2 * self.variance)

    def band(self, root: Array) -> tuple[Array, Array]:
        """The band around `root`, the root of a figure's mean-field value."""
        center = root * np.exp(self.mean / 2)
        factor = np.exp(DEVIATIONS * np.sqrt(self.variance) / 2)
        return center / factor, center * factor


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """One figure of every layer and its band; NaN where theory says nothing."""

    value: Array
    low: Array
    high: Array

    def where(self, said: Mask) -> Figures:
        """Set the other layers to NaN."""
        return Figures(*(np.where(said, column, np.nan) for column in (self.value, self.low, self.high)))


@dataclass(frozen=True, slots=True, eq=False)
class Strays:
    """How the correlation c strays over draws: its variance, and its covariance with ln q.

    A unit that all inputs share adds to both, so q (1 − c), the difference between inputs, strays less than either.
    """

    variance: Array
    with_q: Array


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The variance over all elements of a tensor, and how it depends on the layer before."""

    value: Array  # its expectation over draws
    own: Array  # its variance over draws, given the layer before, relative to value²
    slope: Array  # d ln value / d ln q
    c_slope: Array  # d ln value / d c

    def expected(self, walk: Laws, strays: Strays) -> Figures:
        """The standard deviation, where ln q obeys `walk` and c has its `strays`."""
        by_c = self.c_slope**2 * strays.variance + 2 * self.slope * self.c_slope * strays.with_q
        given = walk.answered(self.slope)
        noise = chi_square_laws(np.stack([self.own, by_c]))
        # A correlation that grows with q reduces the effect of q.
        variance = np.maximum(0.0, given.variance + noise.variance.sum(0) + np.minimum(by_c, 0.0))
        std = np.sqrt(self.value)
        return Figures(std, *Laws(given.mean + noise.mean.sum(0), variance).band(std))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Tensors (B, n) of n independent normal units, with correlation c between any two of the B inputs.

    Preactivations are such tensors given the layers before, gradients given the layers after.
    """

    second_moment: Array
    c: Array  # the mean correlation
    scatter: Array  # variance of the correlation from pair to pair; few dimensions hold few orthogonal directions
    units: Array  # n
    inputs: int  # B
    freedom: Array  # see `Net`

    @cached_property
    def overlap(self) -> Array:
        """Mean squared correlation of all B² pairs: the batch is worth 1/overlap independent inputs."""
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
        """Variances between the units, whose means vary by c + (1−c)/B, plus those within each, over its inputs."""
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
    """The mean over all B² pairs, of which the B pairs of an input with itself count 1."""
    return 1 / inputs + (1 - 1 / inputs) * pair_overlap


def quotient(numerator: Array | float, denominator: Array, sensible: Mask, otherwise: float = 0.0) -> Array:
    """The ratio where it is `sensible`, else `otherwise`."""
    ratio: Array = np.divide(numerator, denominator, out=np.full(denominator.shape, otherwise), where=sensible)
    return ratio


def chi_square_law(relative_variance: float) -> tuple[float, float]:
    """Mean and variance of ln(χ²/degrees) of the χ² with this relative variance.

    With x = 1/variance, half the degrees of freedom, they are ψ(x) − ln x and ψ′(x).
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
    """`chi_square_law` of each."""
    variance = np.clip(relative_variances, 0.0, WIDEST)
    x = 1 / np.maximum(variance, NARROWEST)
    steps = 1 / np.add.outer(np.arange(float(ASYMPTOTIC)), x)
    gap, spread = asymptotic_psi(x + ASYMPTOTIC)
    mean = np.log1p(ASYMPTOTIC / x) - gap - steps.sum(0)
    narrow = variance < NARROWEST
    return Laws(np.where(narrow, -variance / 2, mean), np.where(narrow, variance, spread + (steps * steps).sum(0)))


def asymptotic_psi(x: Number) -> tuple[Number, Number]:
    """The asymptotic series of ln x − ψ(x) and of ψ′(x)."""
    y = 1 / (x * x)
    gap = 0.5 / x + y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132)))))
    slope = 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66)))))
    return gap, slope
