"""One unit of a layer, before its weights are drawn: a random function of the batch.

Its preactivations are √q (√c s + √(1−c) e): all inputs share s, each has its own e; both are standard normal. `Unit`
describes one layer, as far as the next layer depends on it; `Units` all layers, in columns. A homogeneous φ is
described at q = 1.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import Generic, NamedTuple

import numpy as np

from chainrule.theory.activations import Activation, activation_named
from chainrule.theory.gaussian import Array, Number, halvings_for, rule
from chainrule.theory.laws import quotient
from chainrule.theory.mean_field import ROUNDING, correlation_map, saturation_threshold

NODES = 81
"""Nodes per dimension of the grid of s and e. Noise is exact to about 1 %, more than a band needs."""

FEWER_NODES = (25, 37, 49, 61)
"""Fewer nodes suffice for a smooth φ: an evenly spaced rule converges exponentially."""

REACH = 6.0
"""The end of the grid."""

RESOLVED_Q = 50.0
"""The grid resolves the flank of a saturated activation, 1/√q wide, up to this q; larger q have its noise."""


class Marginal(NamedTuple, Generic[Number]):
    """Moments of φ and φ′ of one preactivation √q z, and their slopes with respect to ln q."""

    mean: Number  # E φ
    second: Number  # E φ²
    derivative: Number  # E φ′²
    mean_slope: Number
    second_slope: Number
    derivative_slope: Number
    saturation_slope: Number  # of the share of saturated activations


@lru_cache(maxsize=1024)
def marginal(activation: str, q: float) -> Marginal[float]:
    """The moments at q."""
    phi = activation_named(activation)
    halvings = halvings_for(math.sqrt(q))
    nodes, weights = _scored_rule(halvings)
    value, derivative = phi.both(math.sqrt(q) * nodes)
    figures = np.stack([value, value * value, derivative * derivative])
    moments, slopes = (weights @ figures.T).tolist()
    if moments[0] ** 2 < ROUNDING * moments[1]:
        moments[0] = 0.0
    return Marginal._make([*moments, *slopes, _saturation_slope(activation, q, halvings)])


@cache
def _scored_rule(halvings: int) -> tuple[Array, Array]:
    """Nodes of `rule`; its weights, plain and times the score (z² − 1)/2: `(2, nodes)`.

    E[f(√q z) · score] is d E[f(√q z)] / d ln q for every f.
    """
    nodes, weights = rule(halvings)
    return nodes, np.stack([weights, weights * (nodes**2 - 1) / 2])


def _saturation_slope(activation: str, q: float, halvings: int) -> float:
    threshold = saturation_threshold(activation)
    if threshold is None or q == 0:
        return 0.0
    nodes, beyond = _scored_tails(halvings)
    return 2 * beyond[bisect_right(nodes, threshold / math.sqrt(q))]


@cache
def _scored_tails(halvings: int) -> tuple[list[float], list[float]]:
    """The nodes above zero, and for each the scored weight of it and all larger nodes."""
    nodes, (_, scored) = _scored_rule(halvings)
    above = nodes > 0
    tails = np.append(np.cumsum(scored[above][::-1])[::-1], 0.0)
    return nodes[above].tolist(), tails.tolist()


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One layer's unit on the grid of s and e."""

    second: float  # E φ², as the grid has it
    squares_variance: float  # Var φ², of one input
    squares_shared: float  # variance over s of the mean of φ² over e
    derivative_product: float  # E[φ′(u₁) φ′(u₂)] of two inputs
    c_after: float  # correlation of φ of two inputs, E[φ(u₁) φ(u₂)] / E φ²; 1 if φ is all 0
    rows: Array  # means over e for each s: `(ROWS, nodes)`; missing ones are NaN


def unit(activation: str, q: float, c: float, banded: bool) -> Unit:
    """The unit of a layer whose preactivations have variance q and correlation c.

    Unless `banded`, rows that only bands need may be NaN.
    """
    if activation_named(activation).homogeneous:
        return _homogeneous_unit(activation, c)
    return _sampled_unit(activation, q, c, banded)


@lru_cache(maxsize=1024)
def _homogeneous_unit(activation: str, c: float) -> Unit:
    # A kink costs the grid a digit. The series is exact, and cheap: one serves every q.
    return replace(_sampled_unit(activation, 1.0, c, True), c_after=correlation_map(activation, c, 1.0, 1.0))


ROWS, VALUE_ROWS = 10, 7
"""Rows for φ, φ², φ⁴, φ′, φ′², φφ′ and φ²φ′²; and, for bands only, φ′⁴ and the second and fourth power of φ's
deviation from its mean over e."""


def _sampled_unit(activation: str, q: float, c: float, banded: bool) -> Unit:
    phi = activation_named(activation)
    scale = math.sqrt(q if phi.plateaus is None else min(q, RESOLVED_Q))
    nodes, weights = _grid(_nodes_for(phi, scale))
    samples = np.empty((ROWS if banded else VALUE_ROWS, nodes.size, nodes.size))  # s first, then e
    value, square, fourth, derivative, derivative_square, product, product_square = samples[:VALUE_ROWS]
    value[:], derivative[:] = phi.both(np.add.outer(scale * math.sqrt(c) * nodes, scale * math.sqrt(1 - c) * nodes))
    np.multiply(value, value, out=square)
    np.multiply(square, square, out=fourth)
    np.multiply(derivative, derivative, out=derivative_square)
    np.multiply(value, derivative, out=product)
    np.multiply(product, product, out=product_square)
    if banded:
        derivative_fourth, second_central, fourth_central = samples[VALUE_ROWS:]
        np.multiply(derivative_square, derivative_square, out=derivative_fourth)
        np.subtract(value, (value @ weights)[:, None], out=second_central)
        np.multiply(second_central, second_central, out=second_central)
        np.multiply(second_central, second_central, out=fourth_central)
    rows = np.empty((ROWS, nodes.size))
    np.matmul(samples, weights, out=rows[: len(samples)])
    rows[len(samples) :] = np.nan
    means, squares = (rows @ weights).tolist(), (rows * rows @ weights).tolist()
    second = means[1]
    return Unit(
        second=second,
        squares_variance=means[2] - second**2,
        squares_shared=max(0.0, squares[1] - second**2),
        derivative_product=squares[3],
        c_after=min(1.0, squares[0] / second) if second > 0 else 1.0,
        rows=rows,
    )


def _nodes_for(phi: Activation, scale: float) -> int:
    """The smallest grid whose steps are at most `phi.step` wide."""
    if phi.step is not None:
        for nodes in FEWER_NODES:
            if scale * 2 * REACH <= phi.step * (nodes - 1):
                return nodes
    return NODES


@cache
def _grid(size: int) -> tuple[Array, Array]:
    """Evenly spaced nodes and weights of a standard normal, each `(size,)`."""
    nodes = np.linspace(-REACH, REACH, size)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of all layers, in columns `(L,)`.

    m and v are mean and variance of φ over e, a is the mean of φ² and d of φ′²; all are functions of s. E, Var and Cov
    are over s.
    """

    mean: Array  # E m
    second: Array  # E a
    between_fourth: Array  # E (m − mean)⁴
    within_variance: Array  # Var v
    within_square: Array  # E v²
    within_noise: Array  # E of the variance over e of (φ − m)²
    within_and_between: Array  # Cov(v, (m − mean)²)
    within_times_between: Array  # E v (m − mean)²
    derivative: Array  # E d
    derivative_fourth: Array  # E φ′⁴
    derivative_square: Array  # E d²
    derivative_product: Array  # E[φ′(u₁) φ′(u₂)] of two inputs
    both: Array  # E φ² φ′²
    both_product: Array  # E[φφ′(u₁) φφ′(u₂)] of two inputs
    both_shared: Array  # Cov(a, d)
    correlation_noise: Array  # Var(m² − ĉ a) / (E a)², with ĉ = E m² / E a
    correlation_and_squares: Array  # Cov(m² − ĉ a, a) / (E a)²

    @property
    def passed(self) -> Array:
        """The factor that φ′ leaves of the correlation of two inputs' gradients: E[φ′(u₁) φ′(u₂)] / E φ′²."""
        return quotient(self.derivative_product, self.derivative, self.derivative > 0, otherwise=1.0)


def unit_columns(units: Sequence[Unit]) -> Units:
    """The units of some layers, in columns."""
    matrix = np.empty((len(fields(Units)), len(units)))
    sizes = [each.rows.shape[1] for each in units]
    for size in set(sizes):
        of_size = [index for index, each in enumerate(sizes) if each == size]
        found = _columns(np.stack([units[index].rows for index in of_size], axis=1))
        matrix[:, of_size] = [found[field.name] for field in fields(Units)]
    return Units(*matrix)


def _columns(rows: Array) -> Mapping[str, Array]:
    """The columns of `Units`, from rows `(ROWS, L, nodes)`."""
    m, a, _, slope, d, product, product_square, derivative_fourth, v, fourth_central = rows
    _, weights = _grid(rows.shape[-1])

    def mean(values: Array) -> Array:
        return values @ weights

    def centered(values: Array) -> Array:
        return values - mean(values)[:, None]

    between = centered(m) ** 2
    second, a_centered, v_centered = mean(a), centered(a), centered(v)
    c_after = np.minimum(1.0, quotient(mean(m * m), second, second > 0, otherwise=1.0))
    off = centered(m * m - c_after[:, None] * a)
    return {
        "mean": mean(m),
        "second": second,
        "between_fourth": mean(between * between),
        "within_variance": mean(v_centered * v_centered),
        "within_square": mean(v * v),
        "within_noise": np.maximum(0.0, mean(fourth_central - v * v)),
        "within_and_between": mean(v_centered * centered(between)),
        "within_times_between": mean(v * between),
        "derivative": mean(d),
        "derivative_fourth": mean(derivative_fourth),
        "derivative_square": mean(d * d),
        "derivative_product": mean(slope * slope),
        "both": mean(product_square),
        "both_product": mean(product * product),
        "both_shared": mean(a_centered * centered(d)),
        "correlation_noise": quotient(mean(off * off), second**2, second > 0),
        "correlation_and_squares": quotient(mean(off * a_centered), second**2, second > 0),
    }


def saturated_shared(activation: str, q: Array, c: Array) -> Array:
    """Variance over s of the share of saturated inputs, on the grid: `(L,)`, 0 for an unbounded φ."""
    threshold = saturation_threshold(activation)
    if threshold is None:
        return np.zeros_like(q)
    nodes, weights = _grid(NODES)
    below = np.concatenate([[0.0], np.cumsum(weights)])  # below[i]: the mass of the first i nodes
    u = threshold / np.sqrt(np.minimum(q, RESOLVED_Q))
    shared = np.multiply.outer(np.sqrt(c), nodes)
    with np.errstate(divide="ignore"):
        own = 1 / np.sqrt(1 - c)[:, None]
        low, high = ((edge[:, None] - shared) * own for edge in (-u, u))
    share = below[np.searchsorted(nodes, low)] + 1 - below[np.searchsorted(nodes, high, side="right")]
    variance: Array = (share - (share @ weights)[:, None]) ** 2 @ weights
    return variance
