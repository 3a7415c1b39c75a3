"""The nine activations φ and their derivatives φ′ in float64 numpy, with PyTorch's conventions.

Independent of the activations that train: theory must share no code with the nets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from chainrule.theory.gaussian import Array

LEAKY_SLOPE = 0.01
SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


@dataclass(frozen=True, slots=True)
class Activation:
    """φ and φ′ as functions of an array of preactivations.

    `step`: the largest spacing at which an evenly spaced rule gives the powers of φ and φ′ to three digits; None where
    φ has a kink. The nearer φ's poles are to the real axis, the smaller it is.
    """

    both: Callable[[Array], tuple[Array, Array]]  # u → (φ(u), φ′(u)), which share most of their work
    homogeneous: bool = False  # φ(s u) = s φ(u) for s > 0
    step: float | None = None
    plateaus: tuple[float, float] | None = None  # of a bounded φ

    def value(self, u: Array) -> Array:
        """φ(u)."""
        return self.both(u)[0]


def normal_cdf(u: Array) -> Array:
    """Φ(u), with an absolute error of 1e-16: the lower tail is inexact."""
    cdf: Array = torch.erf(torch.from_numpy(u * (1 / math.sqrt(2)))).numpy()
    cdf *= 0.5
    cdf += 0.5
    return cdf


def _tanh(u: Array) -> tuple[Array, Array]:
    value = np.tanh(u)
    return value, 1.0 - value**2


def _sigmoid(u: Array) -> tuple[Array, Array]:
    half = 0.5 * np.tanh(u / 2)
    return 0.5 + half, 0.25 - half**2


def _gelu(u: Array) -> tuple[Array, Array]:
    cdf = normal_cdf(u)
    slope = u * u
    slope *= -0.5
    np.exp(slope, out=slope)
    slope *= 1 / math.sqrt(2 * math.pi)  # the normal density
    slope *= u
    slope += cdf
    return u * cdf, slope


def _silu(u: Array) -> tuple[Array, Array]:
    sigmoid, slope = _sigmoid(u)
    return u * sigmoid, sigmoid + u * slope


def _elu(u: Array) -> tuple[Array, Array]:
    below = np.minimum(u, 0.0)
    np.expm1(below, out=below)
    value = np.maximum(u, below)
    below += 1.0
    return value, below


def _selu(u: Array) -> tuple[Array, Array]:
    below = np.minimum(u, 0.0)
    np.expm1(below, out=below)
    below *= SELU_SCALE * SELU_ALPHA
    value = np.maximum(u, 0.0)
    value *= SELU_SCALE
    value += below
    below += SELU_SCALE * SELU_ALPHA
    below += (u > 0) * (SELU_SCALE - SELU_SCALE * SELU_ALPHA)
    return value, below


ACTIVATIONS: Mapping[str, Activation] = {
    "linear": Activation(lambda u: (u, np.ones_like(u)), homogeneous=True),
    "relu": Activation(lambda u: (np.maximum(u, 0.0), (u > 0).astype(np.float64)), homogeneous=True),
    "leaky_relu": Activation(
        lambda u: (np.maximum(u, LEAKY_SLOPE * u), np.where(u > 0, 1.0, LEAKY_SLOPE)), homogeneous=True
    ),
    "tanh": Activation(_tanh, step=0.45, plateaus=(-1.0, 1.0)),
    "sigmoid": Activation(_sigmoid, step=0.9, plateaus=(0.0, 1.0)),
    "gelu": Activation(_gelu, step=0.75),
    "silu": Activation(_silu, step=1.0),
    "elu": Activation(_elu),
    "selu": Activation(_selu),
}


def activation_named(name: str) -> Activation:
    """The activation with this name; raises ValueError with the known names."""
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ValueError(f"unknown activation {name!r}; expected one of {', '.join(ACTIVATIONS)}") from None
