"""What a finite width n adds to mean-field theory: the norm of a signal does a random walk from layer to layer.

ln(‖x_L‖²/‖x_0‖²) is about Gaussian, with a mean and a variance that add up over the layers: per layer about −κ/(2n) and
κ/n with κ = Var(φ²)/E[φ²]² (2 for linear, 5 for relu). So after L layers a correctly scaled net's median signal has
shrunk, and nets that differ in nothing but the seed spread by a factor that grows with √(L/n). Source: Hanin and Nica
2018, *Products of many large random matrices and gradients in deep neural networks*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from chainrule.theory.activations import activation_named, normal_cdf
from chainrule.theory.gaussian import Array, Number, correlation_series, expectation, rule, series_value


@dataclass(frozen=True, slots=True)
class NormLaw:
    """ln(‖x_L‖²/‖x_0‖²), relative to what mean-field theory says: Gaussian of this mean and variance."""

    mean: float
    variance: float

    def __add__(self, other: NormLaw) -> NormLaw:
        """The law of the layers of both, one after the other."""
        return NormLaw(self.mean + other.mean, self.variance + other.variance)

    @property
    def median(self) -> float:
        """The factor between the median root mean square and mean-field theory's."""
        return math.exp(self.mean / 2)

    @property
    def spread(self) -> float:
        """The factor of one standard deviation: about two nets in three lie within median ×/÷ spread."""
        return math.exp(math.sqrt(self.variance) / 2)

    def band(self, value: float, deviations: float = 2.0) -> tuple[float, float]:
        """Where `value`, mean-field theory's root mean square, is to be expected; two deviations hold 95 %."""
        center, factor = value * self.median, self.spread**deviations
        return center / factor, center * factor


@lru_cache(maxsize=4096)
def layer_law(activation: str, n: int, q: float = 1.0, inputs: int = 1, correlation: float = 1.0) -> NormLaw:
    """The law of one layer of n units: of the mean of φ² over units and inputs.

    Exact for a single input of linear and relu, else κ/n. Averaging over several inputs takes away the part of the
    fluctuation that they do not share; how much they share follows from the correlation of their preactivations.

    Args:
        activation: φ.
        n: the layer's width.
        q: variance of its preactivations.
        inputs: batch size.
        correlation: of two inputs' preactivations, in [0, 1] (`mean_field.preactivation_correlations`).
    """
    if n < 1 or inputs < 1:
        raise ValueError(f"n and inputs must be at least 1, not {n} and {inputs}")
    if activation == "linear":
        single = linear_law(n)
    elif activation == "relu":
        single = relu_law(n)
    else:
        kappa = _squares_covariance(activation, q, 1.0)
        single = NormLaw(-kappa / (2 * n), kappa / n)
    if inputs == 1 or correlation == 1.0:
        return single
    shared = _squares_covariance(activation, q, correlation) / _squares_covariance(activation, q, 1.0)
    part = 1 / inputs + (1 - 1 / inputs) * shared
    return NormLaw(part * single.mean, part * single.variance)


def depth_law(laws: Iterable[NormLaw]) -> NormLaw:
    """The law of many layers, one after the other."""
    return sum(laws, NormLaw(0.0, 0.0))


@lru_cache(maxsize=4096)
def linear_law(n: int) -> NormLaw:
    """Exact for one linear layer: ‖Wx‖² is ‖x‖²/n times a χ² of n degrees of freedom."""
    return NormLaw(digamma(n / 2) + math.log(2 / n), trigamma(n / 2))


@lru_cache(maxsize=4096)
def relu_law(n: int) -> NormLaw:
    """Exact for one relu layer under Kaiming's scaling: 2‖x‖²/n times a χ² of K degrees, K ~ Binomial(n, ½) live units.

    Given that one is alive: all n are dead with probability 2⁻ⁿ, and then there is no logarithm.
    """
    live = np.arange(1, n + 1)
    weights = np.array([math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) for k in live])
    weights /= weights.sum()
    means = np.array([digamma(k / 2) for k in live])
    mean = float(weights @ means)
    variance = float(weights @ np.array([trigamma(k / 2) for k in live]) + weights @ (means - mean) ** 2)
    return NormLaw(mean + math.log(4 / n), variance)


def dead_fraction(correlation: float, inputs: int) -> float:
    """Expected share of units that are ≤ 0 for all of `inputs` inputs whose preactivations have that correlation ≥ 0.

    2^−inputs for independent inputs, ½ for identical ones. It grows with depth in a *correct* deep relu net too,
    because c tends to 1.
    """
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation must lie in [0, 1], not {correlation}")
    return float(dead_fractions(np.array([correlation]), inputs)[0])


def dead_fractions(correlations: Array, inputs: int) -> Array:
    """`dead_fraction` of many correlations `(L,)` at once.

    With u_i = √c z + √(1−c) z_i and r = √(c/(1−c)) a unit is dead if the largest z_i is ≤ −r z. Hence two forms,
    E[Φ(−M/r)] over that largest M and E[Φ(−r z)^inputs] over z; either is smooth where the other has a step.
    """
    with np.errstate(divide="ignore", under="ignore"):
        r = np.sqrt(correlations / (1 - correlations))
        alike = r >= 1
        shares = np.empty_like(r)
        largest, mass = _largest_of(inputs)
        shares[alike] = normal_cdf(np.multiply.outer(-1 / r[alike], largest)) @ mass
        z = np.arange(-12.0, 12.0, STEP)
        weights = np.exp(-(z**2) / 2) * (STEP / math.sqrt(2 * math.pi))
        shares[~alike] = normal_cdf(np.multiply.outer(-r[~alike], z)) ** inputs @ weights
    return np.where(correlations < 1, shares, 0.5)


STEP = 0.1
"""From node to node. Evenly spaced ones converge exponentially, and nothing here is narrower than three of these."""


@lru_cache(maxsize=256)
def _largest_of(inputs: int) -> tuple[Array, Array]:
    """Nodes and weights of the largest of so many standard normals, which has the density `inputs` Φ^(inputs−1) Φ′."""
    nodes = np.arange(-9.0, 9.0, STEP)
    density = inputs * normal_cdf(nodes) ** (inputs - 1) * np.exp(-(nodes**2) / 2)
    weights = density * (STEP / math.sqrt(2 * math.pi))
    some = weights > 1e-18
    return nodes[some], weights[some]


def digamma(x: float) -> float:
    """ψ(x) = d ln Γ/dx for x > 0: up by ψ(x) = ψ(x+1) − 1/x until the asymptotic series holds."""
    total = 0.0
    while x < ASYMPTOTIC:
        total -= 1 / x
        x += 1
    return total + math.log(x) - asymptotic_psi(x)[0]


def trigamma(x: float) -> float:
    """ψ′(x) for x > 0: up by ψ′(x) = ψ′(x+1) + 1/x² until the asymptotic series holds."""
    total = 0.0
    while x < ASYMPTOTIC:
        total += 1 / x**2
        x += 1
    return total + asymptotic_psi(x)[1]


ASYMPTOTIC = 16
"""From here on `asymptotic_psi` holds to 1e-15."""


def asymptotic_psi(x: Number) -> tuple[Number, Number]:
    """The asymptotic series of ln x − ψ(x) and of ψ′(x)."""
    y = 1 / (x * x)
    gap = 0.5 / x + y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132)))))
    slope = 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66)))))
    return gap, slope


@lru_cache(maxsize=256)
def _squares_series(activation: str, q: float) -> tuple[float, ...]:
    """Power series in c of Cov(φ(u₁)², φ(u₂)²) / E[φ²]²."""
    squares = activation_named(activation).value(math.sqrt(q) * rule()[0]) ** 2
    series = correlation_series(squares) / expectation(squares) ** 2
    series[0] = 0.0
    return tuple(series.tolist())


def _squares_covariance(activation: str, q: float, correlation: float) -> float:
    homogeneous = activation_named(activation).homogeneous
    return series_value(np.array(_squares_series(activation, 1.0 if homogeneous else q)), correlation)
