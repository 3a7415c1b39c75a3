"""Which scale a spec's weights should have: the one that hands the second moment on as it is, layer after layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from chainrule.build import weight_variances
from chainrule.spec import KEY_BY_NAME, ModelSpec
from chainrule.theory.mean_field import moments

DIGITS = 5
"""Significant digits of an advised scale: more would make a link longer and no net better."""

ALIKE = 1e-9
"""Relative: layers whose σ_w differ by less have the same."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How to keep the variance from layer to layer.

    Attributes:
        gain: the σ_w = √(fan_in · Var(W)) with σ_w² E[φ(z)²] = 1: a layer whose preactivations have variance 1 hands
            on preactivations of variance 1, biases aside.
        scale: the spec's `scale` with which every hidden layer has this σ_w, by the spec's own init; None where no one
            scale suits them all.
        change: keys of the spec, with the values that bring it about: `scale` alone where there is one, else an init
            that looks at fan_in with the scale that suits that.
        source: who says so.
    """

    gain: float
    scale: float | None
    change: Mapping[str, float | str]
    source: str


def advise(spec: ModelSpec) -> Advice | None:
    """The advice for a spec, whatever its scale is now; None for a net without a hidden layer."""
    hidden = spec.depth if spec.last_activation else spec.depth - 1
    if hidden == 0:
        return None
    gain = moments(spec.activation).gain
    unscaled = [math.sqrt(variance) / spec.scale for variance, _ in weight_variances(spec)[:hidden]]
    source = SOURCES.get(spec.activation, MEAN_FIELD)
    if max(unscaled) <= min(unscaled) * (1 + ALIKE) and min(unscaled) > 0:
        scale = _rounded(gain / min(unscaled))
        if KEY_BY_NAME["scale"].holds(scale):
            return Advice(gain, scale, {"scale": scale}, source)
    if spec.activation == "relu":
        return Advice(gain, None, {"init": "kaiming_normal", "scale": _rounded(gain / math.sqrt(2))}, source)
    return Advice(gain, None, {"init": "lecun_normal", "scale": _rounded(gain)}, source)


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
