"""The nine activations φ and their derivatives φ′ in float64 numpy, with PyTorch's conventions.

Written out here once more, independently of the code that trains: theory is worth the comparison only if it shares
nothing with what it is compared to.
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

    `homogeneous`: φ(s u) = s φ(u) for s > 0, so that what holds at one scale holds at all. `plateaus`: the two limits
    between which φ is bounded, None where it is not.
    """

    value: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    homogeneous: bool = False
    plateaus: tuple[float, float] | None = None


def _normal_cdf(u: Array) -> Array:
    return np.asarray(torch.special.ndtr(torch.from_numpy(u)), dtype=np.float64)


def _normal_pdf(u: Array) -> Array:
    return np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)


def _sigmoid(u: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(u / 2))


def _elu(u: Array, alpha: float) -> Array:
    return np.where(u > 0, u, alpha * np.expm1(np.minimum(u, 0.0)))


def _elu_derivative(u: Array, alpha: float) -> Array:
    return np.where(u > 0, 1.0, alpha * np.exp(np.minimum(u, 0.0)))


ACTIVATIONS: Mapping[str, Activation] = {
    "linear": Activation(lambda u: u, np.ones_like, homogeneous=True),
    "relu": Activation(lambda u: np.maximum(u, 0.0), lambda u: np.where(u > 0, 1.0, 0.0), homogeneous=True),
    "leaky_relu": Activation(
        lambda u: np.where(u > 0, u, LEAKY_SLOPE * u), lambda u: np.where(u > 0, 1.0, LEAKY_SLOPE), homogeneous=True
    ),
    "tanh": Activation(np.tanh, lambda u: 1.0 - np.tanh(u) ** 2, plateaus=(-1.0, 1.0)),
    "sigmoid": Activation(_sigmoid, lambda u: _sigmoid(u) * _sigmoid(-u), plateaus=(0.0, 1.0)),
    "gelu": Activation(lambda u: u * _normal_cdf(u), lambda u: _normal_cdf(u) + u * _normal_pdf(u)),
    "silu": Activation(lambda u: u * _sigmoid(u), lambda u: _sigmoid(u) * (1.0 + u * _sigmoid(-u))),
    "elu": Activation(lambda u: _elu(u, 1.0), lambda u: _elu_derivative(u, 1.0)),
    "selu": Activation(
        lambda u: SELU_SCALE * _elu(u, SELU_ALPHA), lambda u: SELU_SCALE * _elu_derivative(u, SELU_ALPHA)
    ),
}


def activation_named(name: str) -> Activation:
    """The activation of that name; raises ValueError naming those there are."""
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ValueError(f"unknown activation {name!r}; there are: {', '.join(ACTIVATIONS)}") from None
