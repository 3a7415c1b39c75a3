"""Mean-field theory of signal propagation: what every layer of an infinitely wide random net does.

    weights  W ~ N(0, σ_w²/fan_in), biases b ~ N(0, σ_b²)
    q        variance of a preactivation (over units and inputs); z is a standard normal, so a preactivation is √q z
    variance          q′ = σ_w² E[φ(√q z)²] + σ_b²
    gradient factor   χ₁ = σ_w² E[φ′(√q z)²]: what a layer multiplies the gradient's second moment by, on its way back
    correlation       c′ = (σ_w² E[φ(u₁) φ(u₂)] + σ_b²) / q′ for preactivations u₁, u₂ of two inputs, of correlation c
    depth scale       1/|ln χ|: layers until something shrinks or grows by a factor e; None without limit (χ = 1)

`weight_variance` is σ_w² = fan_in · Var(W) and `bias_variance` σ_b². Sources: Poole et al. 2016, *Exponential
expressivity in deep neural networks through transient chaos*; Schoenholz et al. 2017, *Deep information propagation*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from chainrule.theory.activations import activation_named
from chainrule.theory.gaussian import Array, correlation_series, halvings_for, rule, series_slope, series_value

TOLERANCE = 1e-9
"""Relative: closer than this to a fixed point counts as on it, closer than this to 1 counts as χ = 1."""

SMALLEST_Q, LARGEST_Q = 1e-16, 1e16
"""The recursion is followed between these; beyond them the signal counts as vanished or exploded."""

ROUNDING = 1e-30
"""A squared mean of less, relative to the second moment, is what rounding leaves of the halves of an odd φ."""

STEP = 1.05
"""The factor in q of one step of that search."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What φ makes of a preactivation of variance q.

    `gain` is the √σ_w² that preserves q, √(q / E φ²); `chi1_at_gain` the gradient factor χ₁ at that gain: where it is
    not 1, no gain preserves both directions.
    """

    mean: float
    second_moment: float
    std: float
    derivative_second_moment: float
    gain: float
    chi1_at_gain: float


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Where the recursion comes to rest, with the gradient factor there and how many layers it takes."""

    q: float
    c: float
    chi1: float
    depth_scale_gradient: float | None
    depth_scale_correlation: float | None


@dataclass(frozen=True, slots=True)
class LayerTheory:
    """Everything mean-field theory says of one kind of layer; `fixed_point` is None where the signal finds no rest."""

    activation: str
    weight_variance: float
    bias_variance: float
    at_q1: Moments
    fixed_point: FixedPoint | None


def layer_theory(activation: str, weight_variance: float, bias_variance: float = 0.0) -> LayerTheory:
    """Moments at q = 1 and the stable fixed point of one kind of layer.

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
        raise ValueError(f"q must be ≥ 0, not {q}")
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
    return Moments(
        mean,
        second_moment,
        std,
        derivative_second_moment,
        gain=math.sqrt(squared_gain),
        chi1_at_gain=squared_gain * derivative_second_moment,
    )


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
        raise ValueError(f"a correlation lies in [−1, 1], not {c}")
    series = _scaled_series(activation, q)
    next_q = weight_variance * float(series.sum()) + bias_variance
    if not next_q > 0:
        raise ValueError("preactivations that are all zero have no correlation")
    return min(1.0, (weight_variance * series_value(series, c) + bias_variance) / next_q)


def preactivation_variances(
    activation: str, layers: Iterable[tuple[float, float]], input_second_moment: float = 1.0
) -> tuple[float, ...]:
    """The q of every layer's preactivations, from the input on.

    Args:
        activation: between any two layers.
        layers: (σ_w², σ_b²) of each layer, first to last.
        input_second_moment: E[x²] of the input's elements.
    """
    variances: list[float] = []
    for weight_variance, bias_variance in layers:
        _check_variances(weight_variance, bias_variance)
        incoming = moments(activation, variances[-1]).second_moment if variances else input_second_moment
        variances.append(weight_variance * incoming + bias_variance)
    return tuple(variances)


def preactivation_correlations(
    activation: str,
    layers: Iterable[tuple[float, float]],
    input_second_moment: float = 1.0,
    input_correlation: float = 0.0,
) -> tuple[float, ...]:
    """Correlation between two inputs' preactivations in every layer, from the inputs' own on.

    Raises:
        ValueError: a layer whose preactivations are all zero and so have no correlation.
    """
    layers = tuple(layers)
    variances = preactivation_variances(activation, layers, input_second_moment)
    correlations: list[float] = []
    for index, (weight_variance, bias_variance) in enumerate(layers):
        if correlations:
            c = correlation_map(activation, correlations[-1], variances[index - 1], weight_variance, bias_variance)
        elif variances[0] > 0:
            c = (weight_variance * input_second_moment * input_correlation + bias_variance) / variances[0]
        else:
            raise ValueError("preactivations that are all zero have no correlation")
        correlations.append(c)
    return tuple(correlations)


@lru_cache(maxsize=1024)
def fixed_point(activation: str, weight_variance: float, bias_variance: float = 0.0) -> FixedPoint | None:
    """Where the recursion settles that starts from inputs of unit variance: q₁ = σ_w² + σ_b².

    None where it vanishes (tanh at σ_w² ≤ 1 without biases, relu below 2) or explodes (relu above 2). Where every q
    is kept (relu at 2, linear at 1) it is q₁ itself, and where every c is kept (linear) c is 1.

    Raises:
        ValueError: an unknown activation; a variance that is negative or not finite.
    """
    _check_variances(weight_variance, bias_variance)
    q = _settled_variance(activation, weight_variance, bias_variance)
    if q is None:
        return None
    chi1 = gradient_factor(activation, q, weight_variance)
    # E[φ(u₁)φ(u₂)] is convex in c and the map leaves c = 1 where it is, with slope χ₁: above 1 that point repels, and
    # one other, below, attracts.
    series = weight_variance / q * _scaled_series(activation, q)
    series[0] += bias_variance / q
    if chi1 <= 1 + TOLERANCE:
        c, slope = 1.0, chi1
    else:
        c = _attracting_correlation(series)
        slope = series_slope(series, c)
    return FixedPoint(q, c, chi1, depth_scale(chi1), depth_scale(slope))


def critical_line(activation: str, q: float) -> tuple[float, float]:
    """(σ_w², σ_b²) that keep the variance at q *and* the gradient: χ₁ = 1. A negative σ_b² means that none does."""
    at_q = moments(activation, q)
    weight_variance = 1 / at_q.derivative_second_moment
    return weight_variance, q - weight_variance * at_q.second_moment


def saturation(activation: str, q: float, within: float = 0.03) -> float | None:
    """Share of activations in the outer `within`/2 of φ's range at either end; None where φ is not bounded.

    The default is the usual |tanh| > 0.97, and its like for the sigmoid.
    """
    threshold = saturation_threshold(activation, within)
    if threshold is None:
        return None
    return math.erfc(threshold / math.sqrt(2 * q)) if q > 0 else 0.0


def saturation_threshold(activation: str, within: float = 0.03) -> float | None:
    """The |u| from which on φ(u) is so near to a plateau; None where φ is not bounded."""
    if activation_named(activation).plateaus is None:
        return None
    # sigmoid(u) = (1 + tanh(u/2)) / 2
    return math.atanh(1 - within) * (2 if activation == "sigmoid" else 1)


def depth_scale(chi: float) -> float | None:
    """1/|ln χ| in layers: 0 where χ = 0, None (no limit) where χ = 1."""
    if chi <= 0:
        return 0.0
    return None if abs(chi - 1) <= TOLERANCE else 1 / abs(math.log(chi))


def _check_variances(weight_variance: float, bias_variance: float) -> None:
    for name, variance in (("weight_variance", weight_variance), ("bias_variance", bias_variance)):
        if not 0 <= variance < math.inf:
            raise ValueError(f"{name} must be finite and ≥ 0, not {variance}")


@lru_cache(maxsize=256)
def _series(activation: str, q: float) -> Array:
    series = correlation_series(activation_named(activation).value(math.sqrt(q) * rule()[0]))
    series.flags.writeable = False
    return series


def _scaled_series(activation: str, q: float) -> Array:
    """E[φ(u₁) φ(u₂)] as a power series in c; that of a homogeneous φ is the same at every q, but for the factor q."""
    return q * _series(activation, 1.0) if activation_named(activation).homogeneous else _series(activation, q)


def _settled_variance(activation: str, weight_variance: float, bias_variance: float) -> float | None:
    """The limit of q from q₁ on.

    The map grows with q, so the recursion runs one way, up to the first q that the map leaves where it is. It is found
    by looking ahead in steps and halving the one in which the map crosses the diagonal: near a critical point the
    recursion itself would take millions of layers.
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
    """The c < 1 that attracts when c = 1 repels: where the map, above the diagonal at 0, crosses to lie below it."""
    nearly_one = 1 - 1e-6
    if series_value(series, nearly_one) >= nearly_one:
        return 1.0
    return _bisect(lambda c: series_value(series, c) > c, 0.0, nearly_one)


def _bisect(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """The border between `inside`, on whose side `holds`, and `outside`, to the last bit."""
    while True:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            return middle if inside else inside
        if holds(middle):
            inside = middle
        else:
            outside = middle
