"""The scale that a spec's weights should have: it keeps the second moment from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from chainrule.build import weight_variances
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.theory.mean_field import moments

DIGITS = 5
"""Significant digits of an advised scale: more would only make links longer."""

REPELS = 1e-3
"""A deviation that grows by less than this per layer counts as constant, as it is for relu."""

ALIKE = 1e-9
"""Two values of σ_w that differ by less than this share count as equal."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How to keep the variance from layer to layer."""

    gain: float  # the σ_w = √(fan_in · Var(W)) that keeps the variance of preactivations, without biases
    scale: float | None  # gives every hidden layer this σ_w with the spec's own init; None if no scale does
    change: Mapping[str, float | str]  # spec keys: `scale` alone if there is one, else also an init that has fan_in
    note: str | None  # limits of the advice, None without any
    source: str


def advise(spec: ModelSpec) -> Advice | None:
    """The advice for a spec, whatever its present scale; None for a net without a hidden layer."""
    hidden = spec.depth if spec.last_activation else spec.depth - 1
    if hidden == 0:
        return None
    gain, growth = gain_of(spec.activation)
    variances = weight_variances(spec)[:hidden]
    unscaled = [math.sqrt(variance) / spec.scale for variance, _ in variances]
    notes = []
    if growth > 1 + REPELS:
        notes.append(f"this balance is unstable: a deviation from it grows by {growth - 1:.0%} per layer")
    if any(bias_variance > 0 for _, bias_variance in variances):
        notes.append("the biases add to this variance")
    note = "; ".join(notes) or None
    source = SOURCES.get(spec.activation, MEAN_FIELD)
    if max(unscaled) <= min(unscaled) * (1 + ALIKE) and min(unscaled) > 0:
        scale = _rounded(gain / min(unscaled))
        if KEY_BY_NAME["scale"].holds(scale):
            return Advice(gain, scale, {"scale": scale}, note, source)
    init, own_gain = ("kaiming_normal", math.sqrt(2)) if spec.activation == "relu" else ("lecun_normal", 1.0)
    return Advice(gain, None, {"init": init, "scale": _rounded(gain / own_gain)}, note, source)


@cache
def gain_of(activation: str) -> tuple[float, float]:
    """The σ_w that keeps the variance of a deep net's preactivations, and how a deviation grows.

    If q = 1 is a stable fixed point, σ_w = 1/√E[φ(z)²]. For gelu and silu it is unstable, so σ_w solves
    E[φ(σ_w z)²] = 1: activations keep the second moment 1 of the input, and q = σ_w² in every layer.

    Returns:
        σ_w, and d ln q′ / d ln q at the kept q: the growth of a deviation of ln q per layer.

    Raises:
        ValueError: an unknown activation.
    """
    if (growth := _growth(activation, 1.0)) <= 1 + REPELS:
        return moments(activation).gain, growth
    low, high = 0.1, 10.0
    while high / low > 1 + 1e-12:
        gain = math.sqrt(low * high)
        if moments(activation, gain**2).second_moment < 1:
            low = gain
        else:
            high = gain
    return gain, _growth(activation, gain**2)


def _growth(activation: str, q: float, step: float = 1e-3) -> float:
    """The slope d ln E[φ(√q z)²] / d ln q, by a central difference."""
    above, below = (moments(activation, q * math.exp(sign * step)).second_moment for sign in (1, -1))
    return math.log(above / below) / (2 * step)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


MEAN_FIELD = "B. Poole et al. 2016, Exponential expressivity in deep neural networks through transient chaos"

_KAIMING = "K. He et al. 2015, Delving Deep into Rectifiers"

SOURCES: Mapping[str, str] = {
    "linear": "Y. LeCun et al. 1998, Efficient BackProp",
    "relu": _KAIMING,
    "leaky_relu": _KAIMING,
    "selu": "G. Klambauer et al. 2017, Self-Normalizing Neural Networks",
}
"""The first publication of an activation's gain; the others follow from mean-field theory."""
