"""Expectations under a standard normal z, by quadrature.

The rule is Gauss–Legendre on panels laid symmetrically about zero. Zero is a panel's edge, so a kink there (relu, elu,
selu) costs no accuracy; the panels halve towards it, so f(√q z) is resolved for any scale √q, be it a step or a line.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

Number = TypeVar("Number", float, Array)
"""One figure, or one of every layer."""

REACH = 12.0
"""The end of the rule; the probability beyond is 4e-33."""

HALVINGS = 40
NODES_PER_PANEL = 24

DEGREE = 512
"""The highest Hermite degree. relu's series converges slowest: 1e-5 of E φ² lies beyond."""


@cache
def rule(halvings: int = HALVINGS) -> tuple[Array, Array]:
    """Nodes and weights (each `(2496,)`, read-only) such that E[f(z)] ≈ Σ weights · f(nodes).

    Each halving of the panels next to zero less removes 48 nodes.
    """
    edges = np.concatenate([[0.0], 0.5 ** np.arange(halvings, -1, -1.0), np.arange(2.0, REACH + 1)])
    legendre_nodes, legendre_weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    half_widths = np.diff(edges)[:, None] / 2
    right = ((edges[:-1, None] + half_widths) + half_widths * legendre_nodes).ravel()
    mass = (half_widths * legendre_weights).ravel() * np.exp(-(right**2) / 2) / np.sqrt(2 * np.pi)
    nodes, weights = np.concatenate([-right[::-1], right]), np.concatenate([mass[::-1], mass])
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights


def halvings_for(scale: float) -> int:
    """The halvings with which `rule` resolves f(scale · z) for an f of scale 1: its smallest panel is 1/scale."""
    return min(HALVINGS, max(0, math.frexp(scale)[1]))


def expectation(values: Array) -> float:
    """E[f(z)] from f's values `(2496,)` at the nodes of `rule`."""
    return float(values @ rule()[1])


@cache
def hermite_polynomials() -> Array:
    """Normalised probabilists' Hermite polynomials h_0 … h_DEGREE at the nodes: `(DEGREE + 1, 2496)`.

    Normalised: E[h_i h_j] = δ_ij. Recurrence: h_{k+1} = (z h_k − √k h_{k−1}) / √(k+1).
    """
    nodes, _ = rule()
    polynomials = np.empty((DEGREE + 1, nodes.size))
    polynomials[0] = 1.0
    polynomials[1] = nodes
    for k in range(1, DEGREE):
        polynomials[k + 1] = (nodes * polynomials[k] - np.sqrt(k) * polynomials[k - 1]) / np.sqrt(k + 1)
    polynomials.flags.writeable = False
    return polynomials


def correlation_series(values: Array) -> Array:
    """Power series in c of E[f(u₁) f(u₂)] for standard normals u₁, u₂ of correlation c: `(DEGREE + 2,)`.

    With f = Σ a_k h_k, E[f(u₁) f(u₂)] = Σ a_k² cᵏ (Mehler's formula; the *dual activation* of Daniely, Frostig and
    Singer 2016). The last coefficient is the remainder of E[f²], so the sum is exact at c = 1; at other c its error is
    below that coefficient.

    Args:
        values: f at the nodes of `rule`, `(2496,)`.
    """
    coefficients = (hermite_polynomials() @ (values * rule()[1])) ** 2
    remainder = max(0.0, expectation(values**2) - float(coefficients.sum()))
    return np.append(coefficients, remainder)


def series_value(series: Array, c: float) -> float:
    """Σ series[k] cᵏ."""
    powers = np.full(series.size, c)
    powers[0] = 1.0
    return float(series @ np.multiply.accumulate(powers, out=powers))


def series_slope(series: Array, c: float) -> float:
    """Σ k series[k] cᵏ⁻¹."""
    degrees = np.arange(1, series.size)
    return float((series[1:] * degrees) @ c ** (degrees - 1))
