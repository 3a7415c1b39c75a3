"""Which scale a spec's weights should have: the one that hands the second moment on as it is, layer after layer."""

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
"""Significant digits of an advised scale: more would make a link longer and no net better."""

REPELS = 1e-3
"""A deviation that grows by less than this per layer is one that does not grow: the leaky family's is exactly kept."""

ALIKE = 1e-9
"""Relative: layers whose σ_w differ by less have the same."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How to keep the variance from layer to layer.

    Attributes:
        gain: the σ_w = √(fan_in · Var(W)) that keeps the variance of preactivations, biases aside; see `gain_of`.
        scale: the spec's `scale` with which every hidden layer has this σ_w, by the spec's own init; None where no one
            scale suits them all.
        change: keys of the spec, with the values that bring it about: `scale` alone where there is one, else an init
            that looks at fan_in with the scale that suits that.
        note: what it does not see to, or None if it sees to everything.
        source: who says so.
    """

    gain: float
    scale: float | None
    change: Mapping[str, float | str]
    note: str | None
    source: str


def advise(spec: ModelSpec) -> Advice | None:
    """The advice for a spec, whatever its scale is now; None for a net without a hidden layer."""
    hidden = spec.depth if spec.last_activation else spec.depth - 1
    if hidden == 0:
        return None
    gain, growth = gain_of(spec.activation)
    variances = weight_variances(spec)[:hidden]
    unscaled = [math.sqrt(variance) / spec.scale for variance, _ in variances]
    notes = []
    if growth > 1 + REPELS:
        notes.append(f"an unstable balance: what strays from it strays {growth - 1:.0%} further at every layer")
    if any(bias_variance > 0 for _, bias_variance in variances):
        notes.append("the biases come on top")
    note = "; ".join(notes) or None
    source = SOURCES.get(spec.activation, MEAN_FIELD)
    if max(unscaled) <= min(unscaled) * (1 + ALIKE) and min(unscaled) > 0:
        scale = _rounded(gain / min(unscaled))
        if KEY_BY_NAME["scale"].holds(scale):
            return Advice(gain, scale, {"scale": scale}, note, source)
    if spec.activation == "relu":
        return Advice(gain, None, {"init": "kaiming_normal", "scale": _rounded(gain / math.sqrt(2))}, note, source)
    return Advice(gain, None, {"init": "lecun_normal", "scale": _rounded(gain)}, note, source)


@cache
def gain_of(activation: str) -> tuple[float, float]:
    """The σ_w that keeps the variance of a deep net's preactivations, and how a deviation from that grows.

    Where a net comes back to q = 1, that is 1/√E[φ(z)²], with which q = 1 is a fixed point. gelu and silu leave it, and
    an input with second moment 1 does not start there: for them it is the σ_w with E[φ(σ_w z)²] = 1, with which
    activations keep the second moment 1 of the input, and q = σ_w² from the first layer on.

    Returns:
        σ_w, and d ln q′ / d ln q at the q that is kept: by how much ln q strays more at every layer, if above 1.

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
"""Who found an activation's gain first; for the others it follows from mean-field theory."""
