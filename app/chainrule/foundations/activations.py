"""One table of activations: name → f and its gradient; relu itself is spelled out in layers.py, as in the chapter.

`f(inp)` works element by element and keeps shape and dtype. `gradient(inp, out)` is the derivative f'(inp), where
`out = f(inp)` is passed along because some derivatives are simplest in terms of it (tanh: 1 − out²). The chain rule
gives inp the gradient `gradient(inp, out) * out.g`. Where f has a kink, f'(0) is the slope on its left, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

LEAKY_SLOPE = 0.01
"""leaky_relu's slope left of 0 (Maas et al., 2013)."""

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
"""selu's α and λ, which make mean 0 and variance 1 a fixed point (Klambauer et al., 2017)."""


def linear(inp: Tensor) -> Tensor:
    """No activation at all: f(x) = x. A copy, because an `out` that is `inp` itself would share its `.g`."""
    return inp.clone()


def linear_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = 1."""
    return torch.ones_like(inp)


def leaky_relu(inp: Tensor) -> Tensor:
    """A relu that lets a little through on the left: f(x) = x for x > 0, else 0.01 x."""
    return F.leaky_relu(inp, LEAKY_SLOPE)


def leaky_relu_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = 1 for x > 0, else 0.01."""
    return torch.where(inp > 0, torch.ones_like(inp), LEAKY_SLOPE)


def tanh(inp: Tensor) -> Tensor:
    """f(x) = (eˣ − e⁻ˣ) / (eˣ + e⁻ˣ), between −1 and 1."""
    return torch.tanh(inp)


def tanh_gradient(_inp: Tensor, out: Tensor) -> Tensor:
    """f'(x) = 1 − f(x)²."""
    return 1 - out * out


def sigmoid(inp: Tensor) -> Tensor:
    """f(x) = 1 / (1 + e⁻ˣ), between 0 and 1."""
    return torch.sigmoid(inp)


def sigmoid_gradient(_inp: Tensor, out: Tensor) -> Tensor:
    """f'(x) = f(x) (1 − f(x))."""
    return out * (1 - out)


def gelu(inp: Tensor) -> Tensor:
    """f(x) = x Φ(x), Φ the normal distribution function ½ (1 + erf(x/√2)) (Hendrycks and Gimpel, 2016)."""
    return F.gelu(inp)


def gelu_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = Φ(x) + x φ(x), φ the normal density e^(−x²/2) / √(2π)."""
    distribution = 0.5 * (1 + torch.erf(inp / math.sqrt(2)))
    density = torch.exp(-0.5 * inp * inp) / math.sqrt(2 * math.pi)
    return distribution + inp * density


def silu(inp: Tensor) -> Tensor:
    """f(x) = x σ(x), σ the sigmoid; also called swish (Elfwing et al., 2017)."""
    return F.silu(inp)


def silu_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = σ(x) (1 + x (1 − σ(x)))."""
    s = torch.sigmoid(inp)
    return s * (1 + inp * (1 - s))


def elu(inp: Tensor) -> Tensor:
    """f(x) = x for x > 0, else eˣ − 1 (Clevert et al., 2015, with α = 1)."""
    return F.elu(inp)


def elu_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = 1 for x > 0, else eˣ (not f(x) + 1, which is 0 long before eˣ is)."""
    return torch.where(inp > 0, 1.0, inp.exp())


def selu(inp: Tensor) -> Tensor:
    """f(x) = λx for x > 0, else λα (eˣ − 1) (Klambauer et al., 2017)."""
    return F.selu(inp)


def selu_gradient(inp: Tensor, _out: Tensor) -> Tensor:
    """f'(x) = λ for x > 0, else λα eˣ."""
    return torch.where(inp > 0, SELU_SCALE, SELU_SCALE * SELU_ALPHA * inp.exp())


class ActivationRule(NamedTuple):
    """An activation: `f(inp)`, and `gradient(inp, out)` with out = f(inp); all of one shape."""

    f: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]


ACTIVATIONS = {
    "linear": ActivationRule(linear, linear_gradient),
    "leaky_relu": ActivationRule(leaky_relu, leaky_relu_gradient),
    "tanh": ActivationRule(tanh, tanh_gradient),
    "sigmoid": ActivationRule(sigmoid, sigmoid_gradient),
    "gelu": ActivationRule(gelu, gelu_gradient),
    "silu": ActivationRule(silu, silu_gradient),
    "elu": ActivationRule(elu, elu_gradient),
    "selu": ActivationRule(selu, selu_gradient),
}


def activation_rule(name: str) -> ActivationRule:
    """The row of the table called `name`; raises ValueError that lists the names there are."""
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {name!r}") from None
