"""The curves of mean-field theory over a map: where nets of infinite width can pass a signal, and how far.

    χ₁ = 1     the border between vanishing and exploding gradients
    6 ξ_c      nets deeper than about 6 depth scales of the correlation cannot be trained
    6 ξ_∇      the same with the depth scale of the gradient

Source: Schoenholz et al. 2017, *Deep information propagation*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chainrule.build.draws import weight_variances
from chainrule.spec import ModelSpec
from chainrule.sweeps.axes import Axis
from chainrule.sweeps.sweep import Sweep
from chainrule.theory.mean_field import depth_scale, fixed_point, gradient_factor, moments

SAMPLES = 129
"""Points of a curve along an axis."""

SCALES = 6
"""Nets as deep as so many depth scales can still be trained."""

HOMOGENEOUS = ("linear", "relu", "leaky_relu")

VANISHED = 1e-12
"""A variance at which an activation is linear."""

Point = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve in the values of the first and the second axis; None is a gap."""

    name: str
    doc: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A hidden layer at scale 1: φ, σ_w² and σ_b²."""

    activation: str
    weight_variance: float
    bias_variance: float


def curves_of(sweep: Sweep) -> list[Curve]:
    """The curves over the first two axes of a sweep; none if theory does not cover its nets or its axes."""
    spec, axes = sweep.spec, sweep.axes
    keys = [axis.key for axis in axes[:2]]
    variance_follows_width = "width" in keys and spec.init in ("standard_normal", "uniform")
    if (
        "scale" not in keys
        or {"activation", "init", "bias"} & set(keys)
        or variance_follows_width
        or spec.init == "zeros"
    ):
        return []
    if max(each.depth for each in sweep.shapes.values()) < 3:
        return []  # theory describes what each further layer does
    if len(axes) < 2 or isinstance(axes[1 - keys.index("scale")].values[0], str | bool):
        return []
    kind = _hidden_layer(spec)
    scale, other = axes[keys.index("scale")], axes[1 - keys.index("scale")]
    curves = [_border(kind, other)]
    if other.key == "depth":
        curves += _depths(kind, scale)
    if keys[0] != "scale":
        curves = [
            Curve(each.name, each.doc, tuple(None if point is None else (point[1], point[0]) for point in each.points))
            for each in curves
        ]
    return [curve for curve in curves if any(curve.points)]


def _hidden_layer(spec: ModelSpec) -> _Kind:
    variances = weight_variances(spec.replace(scale=1.0))
    return _Kind(spec.activation, *variances[1 if len(variances) > 2 else 0])


def _border(kind: _Kind, other: Axis) -> Curve:
    """χ₁ = 1, in (scale, other)."""
    ends = float(min(other.values)), float(max(other.values))
    points: list[Point] = []
    if kind.activation in HOMOGENEOUS:
        critical = [1 / moments(kind.activation).derivative_second_moment]
    elif other.key == "bias_std":
        pairs = [_critical(kind.activation, q) for q in np.geomspace(VANISHED, 1e4, 8 * SAMPLES)]
        points = [
            (math.sqrt(weight / kind.weight_variance), math.sqrt(bias)) if bias >= 0 else None for weight, bias in pairs
        ]
        critical = []
    else:
        critical = _critical_weights(kind)
    for weight in critical:
        scale = math.sqrt(weight / kind.weight_variance)
        points += [(scale, ends[0]), (scale, ends[1]), None]
    doc = "At smaller scales gradients shrink on their way back, at larger scales they grow."
    return Curve("χ₁ = 1", doc, tuple(points))


def _critical(activation: str, q: float) -> tuple[float, float]:
    """The σ_w² and σ_b² for which q is a fixed point with χ₁ = 1; a negative σ_b² means that no net has it."""
    at = moments(activation, float(q))
    weight = 1 / at.derivative_second_moment
    bias = q - weight * at.second_moment
    return weight, 0.0 if abs(bias) < 1e-9 * q or q <= VANISHED else bias


def _critical_weights(kind: _Kind) -> list[float]:
    """Every σ_w² with χ₁ = 1 at the kind's σ_b²."""
    qs = [float(q) for q in np.geomspace(VANISHED, 1e4, 8 * SAMPLES)]
    excess = [_critical(kind.activation, q)[1] - kind.bias_variance for q in qs]
    found = []
    for place, (low, high) in enumerate(pairwise(excess)):
        if low != high and (low == 0 or low * high < 0):
            below, above = qs[place], qs[place + 1]
            for _ in range(50 if low else 0):
                middle = math.sqrt(below * above)
                inside = (_critical(kind.activation, middle)[1] - kind.bias_variance) * low > 0
                below, above = (middle, above) if inside else (below, middle)
            found.append(_critical(kind.activation, below)[0])
    return found


def _depths(kind: _Kind, scale: Axis) -> list[Curve]:
    """6 ξ_c and 6 ξ_∇ in (scale, depth)."""
    first, last = float(min(scale.values)), float(max(scale.values))
    scales = np.geomspace(first, last, SAMPLES) if scale.is_log else np.linspace(first, last, SAMPLES)
    columns: list[list[Point]] = [[], []]
    for value in map(float, scales):
        for column, depth in zip(columns, _depth_scales(kind, kind.weight_variance * value**2), strict=True):
            column.append(None if depth is None or depth == 0 else (value, SCALES * depth))
    return [
        Curve(
            "6 ξ (correlation)",
            "Six depth scales of the correlation: in deeper nets all inputs look alike, or all look unrelated.",
            tuple(columns[0]),
        ),
        Curve(
            "6 ξ (gradient)",
            "Six depth scales of the gradient: in deeper nets it has changed by a factor of more than 400.",
            tuple(columns[1]),
        ),
    ]


def _depth_scales(kind: _Kind, weight_variance: float) -> tuple[float | None, float | None]:
    """ξ_c and ξ_∇ in layers; None without limit, or where theory does not say."""
    if kind.activation in HOMOGENEOUS:
        return None, depth_scale(gradient_factor(kind.activation, 1.0, weight_variance))
    fixed = fixed_point(kind.activation, weight_variance, kind.bias_variance)
    if fixed is None:
        return None, depth_scale(gradient_factor(kind.activation, VANISHED, weight_variance))
    return fixed.depth_scale_correlation, fixed.depth_scale_gradient
