"""Mean-field theory of signal propagation through an infinitely wide random net.

    weights  W ~ N(0, σ_w²/fan_in), biases b ~ N(0, σ_b²)
    q        variance of a preactivation (over units and inputs); z is a standard normal, so a preactivation is √q z
    variance          q′ = σ_w² E[φ(√q z)²] + σ_b²
    gradient factor   χ₁ = σ_w² E[φ′(√q z)²]: what a layer multiplies the gradient's second moment by, on its way back
    correlation       c′ = (σ_w² E[φ(u₁) φ(u₂)] + σ_b²) / q′ for preactivations u₁, u₂ of two inputs, of correlation c
    depth scale       1/|ln χ|: layers until a figure shrinks or grows by a factor e; None without limit (χ = 1)

`weight_variance` is σ_w² = fan_in · Var(W) and `bias_variance` σ_b². Sources: Poole et al. 2016, *Exponential
expressivity in deep neural networks through transient chaos*; Schoenholz et al. 2017, *Deep information propagation*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from chainrule.theory.activations import activation_named
from chainrule.theory.gaussian import Array, correlation_series, halvings_for, rule, series_slope, series_value

TOLERANCE = 1e-9
"""Relative: anything closer to a fixed point counts as on it, any χ closer to 1 counts as 1."""

SMALLEST_Q, LARGEST_Q = 1e-16, 1e16
"""The recursion is followed between these; beyond them the signal counts as vanished or exploded."""

ROUNDING = 1e-30
"""A squared mean below this, relative to the second moment, is the rounding error of an odd φ: 0."""

STEP = 1.05
"""The factor in q between two steps of the search for a fixed point."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of φ and φ′ for a preactivation of variance q.

    `gain` is the √σ_w² that preserves q, √(q / E φ²); `chi1_at_gain` the gradient factor χ₁ at that gain: unless it is
    1, no gain preserves both directions.
    """

    mean: float
    second_moment: float
    std: float
    derivative_second_moment: float
    gain: float
    chi1_at_gain: float


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A stable fixed point of the recursion, its gradient factor χ₁, and how many layers it takes to get there."""

    q: float
    c: float
    chi1: float
    depth_scale_gradient: float | None
    depth_scale_correlation: float | None


@dataclass(frozen=True, slots=True)
class LayerTheory:
    """Mean-field theory of one kind of layer; `fixed_point` is None where the signal vanishes or explodes."""

    activation: str
    weight_variance: float
    bias_variance: float
    at_q1: Moments
    fixed_point: FixedPoint | None


def layer_theory(activation: str, weight_variance: float, bias_variance: float = 0.0) -> LayerTheory:
    """Mean-field theory of one kind of layer.

    Raises:
        ValueError: an unknown activation; a variance that is negative or not finite.
    """
    fixed = fixed_point(activation, weight_variance, bias_variance)
    return LayerTheory(activation, weight_variance, bias_variance, moments(activation), fixed)


@lru_cache(maxsize=4096)
def moments(activation: str, q: float = 1.0) -> Moments:
    """Moments of φ(√q z) and φ′(√q z). Not finite where float64 overflows (q > 1e300); `gain` is infinite at q = 0.

    Raises:
        ValueError: an unknown activation, or q < 0.
    """
    phi = activation_named(activation)
    if not q >= 0:
        raise ValueError(f"q = {q}; expected q ≥ 0")
    nodes, weights = rule(halvings_for(math.sqrt(q)))
    with np.errstate(all="ignore"):
        value, derivative = phi.both(math.sqrt(q) * nodes)
        mean = float(value @ weights)
        second_moment = float(value**2 @ weights)
        std = math.sqrt((value - mean) ** 2 @ weights)
        derivative_second_moment = float(derivative**2 @ weights)
    if mean**2 < ROUNDING * second_moment:
        mean = 0.0
    squared_gain = q / second_moment if second_moment > 0 and q > 0 else math.inf
    chi1_at_gain = squared_gain * derivative_second_moment
    return Moments(mean, second_moment, std, derivative_second_moment, math.sqrt(squared_gain), chi1_at_gain)


def variance_map(activation: str, q: float, weight_variance: float, bias_variance: float = 0.0) -> float:
    """The next layer's q: q′ = σ_w² E[φ(√q z)²] + σ_b²."""
    _check_variances(weight_variance, bias_variance)
    return weight_variance * moments(activation, q).second_moment + bias_variance


def gradient_factor(activation: str, q: float, weight_variance: float) -> float:
    """χ₁ = σ_w² E[φ′(√q z)²]."""
    return weight_variance * moments(activation, q).derivative_second_moment


def correlation_map(activation: str, c: float, q: float, weight_variance: float, bias_variance: float = 0.0) -> float:
    """Correlation of two inputs' preactivations in the next layer, from their correlation c in a layer of variance q.

    Raises:
        ValueError: c outside [−1, 1], or a next layer whose preactivations are all zero and so have no correlation.
    """
    _check_variances(weight_variance, bias_variance)
    if not -1 <= c <= 1:
        raise ValueError(f"correlation {c}; expected a number from −1 to 1")
    series = _scaled_series(activation, q)
    next_q = weight_variance * float(series.sum()) + bias_variance
    if not next_q > 0:
        raise ValueError("the correlation is undefined: all preactivations are zero")
    return min(1.0, (weight_variance * series_value(series, c) + bias_variance) / next_q)


@lru_cache(maxsize=1024)
def fixed_point(activation: str, weight_variance: float, bias_variance: float = 0.0) -> FixedPoint | None:
    """The fixed point that the recursion reaches from inputs of unit variance, q₁ = σ_w² + σ_b².

    None where q vanishes (tanh at σ_w² ≤ 1 without biases, relu below 2) or explodes (relu above 2). If the map keeps
    every q (relu at 2, linear at 1), it is q₁; if it keeps every c (linear), c is 1.

    Raises:
        ValueError: an unknown activation; a variance that is negative or not finite.
    """
    _check_variances(weight_variance, bias_variance)
    q = _settled_variance(activation, weight_variance, bias_variance)
    if q is None:
        return None
    chi1 = gradient_factor(activation, q, weight_variance)
    # E[φ(u₁)φ(u₂)] is convex in c and c = 1 is a fixed point with slope χ₁: if χ₁ > 1 it repels, and one c below 1
    # attracts.
    series = weight_variance / q * _scaled_series(activation, q)
    series[0] += bias_variance / q
    if chi1 <= 1 + TOLERANCE:
        c, slope = 1.0, chi1
    else:
        c = _attracting_correlation(series)
        slope = series_slope(series, c)
    return FixedPoint(q, c, chi1, depth_scale(chi1), depth_scale(slope))


def saturation(activation: str, q: float) -> float | None:
    """Share of activations with |tanh| > 0.97, mapped to (0, 1) for the sigmoid; None where φ is not bounded."""
    threshold = saturation_threshold(activation)
    if threshold is None:
        return None
    return math.erfc(threshold / math.sqrt(2 * q)) if q > 0 else 0.0


def saturation_threshold(activation: str) -> float | None:
    """The |u| beyond which φ(u) is saturated; None where φ is not bounded."""
    if activation_named(activation).plateaus is None:
        return None
    # sigmoid(u) = (1 + tanh(u/2)) / 2
    return math.atanh(1 - 0.03) * (2 if activation == "sigmoid" else 1)


def depth_scale(chi: float) -> float | None:
    """1/|ln χ| in layers: 0 where χ = 0, None (no limit) where χ = 1."""
    if chi <= 0:
        return 0.0
    return None if abs(chi - 1) <= TOLERANCE else 1 / abs(math.log(chi))


def _check_variances(weight_variance: float, bias_variance: float) -> None:
    for name, variance in (("weight_variance", weight_variance), ("bias_variance", bias_variance)):
        if not 0 <= variance < math.inf:
            raise ValueError(f"{name} = {variance}; expected a finite number ≥ 0")


@lru_cache(maxsize=256)
def _series(activation: str, q: float) -> Array:
    series = correlation_series(activation_named(activation).value(math.sqrt(q) * rule()[0]))
    series.flags.writeable = False
    return series


def _scaled_series(activation: str, q: float) -> Array:
    """E[φ(u₁) φ(u₂)] as a power series in c; for a homogeneous φ it is proportional to q."""
    return q * _series(activation, 1.0) if activation_named(activation).homogeneous else _series(activation, q)


def _settled_variance(activation: str, weight_variance: float, bias_variance: float) -> float | None:
    """The limit of q, starting from q₁.

    The map grows with q, so the recursion is monotonic and ends at the first fixed point. The search steps ahead by
    factors and bisects the step in which the map crosses the diagonal: near a critical point the recursion itself
    would take millions of layers.
    """

    def drift(q: float) -> float:
        return variance_map(activation, q, weight_variance, bias_variance) / q - 1

    q = float(weight_variance + bias_variance)
    if q == 0:
        return None
    start = drift(q)
    if abs(start) <= TOLERANCE:
        repels = drift(q * STEP) > TOLERANCE or drift(q / STEP) < -TOLERANCE
        return None if repels else q
    factor = STEP if start > 0 else 1 / STEP
    while SMALLEST_Q < q < LARGEST_Q:
        ahead = q * factor
        if (drift(ahead) > 0) != (start > 0):
            return _bisect(lambda p: (drift(p) > 0) == (start > 0), q, ahead)
        q = ahead
    return None


def _attracting_correlation(series: Array) -> float:
    """The c < 1 that attracts when c = 1 repels: there the map crosses the diagonal from above."""
    nearly_one = 1 - 1e-6
    if series_value(series, nearly_one) >= nearly_one:
        return 1.0
    return _bisect(lambda c: series_value(series, c) > c, 0.0, nearly_one)


def _bisect(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """The border between `inside`, where `holds` is true, and `outside`, to the last bit."""
    while True:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            return middle if inside else inside
        if holds(middle):
            inside = middle
        else:
            outside = middle
