"""How the weights are drawn: a base draw of unit size, times a factor that looks at the fans.

    w = base(shape, generator) · factor(fan_in, fan_out)          w: (fan_in, fan_out)

The two stand apart so that one draw can be rescaled: schemes of one base (kaiming_normal and lecun_normal, say) give
the same tensor but for its size. Every draw takes a `torch.Generator`: a global seed would be one for all threads, and
one generator for all tensors would give w2 other numbers as soon as w1 has another shape (`generator_for`).

Source of the factor: with W of variance σ² and inputs of second moment 1, a preactivation has variance
fan_in · σ². 1/√fan_in keeps it at 1 (LeCun); relu halves the second moment, hence √(2/fan_in) (Kaiming); the backward
pass wants fan_out in place of fan_in, and Xavier takes the mean of both. U(−a, a) has standard deviation a/√3.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

# --------------------------------------------------------------------------------------------------------- base draws


def generator_for(seed: int, name: str) -> Generator:
    """The generator of one tensor: its stream depends on the seed and the tensor's name, and on nothing else."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return Generator().manual_seed(int.from_bytes(digest, "little"))


def normal(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """N(0, 1) of any shape, float32."""
    return torch.randn(shape, generator=generator)


def uniform(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """U(−1, 1) of any shape, float32."""
    return torch.empty(shape).uniform_(-1, 1, generator=generator)


def orthogonal(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """A random matrix with orthonormal columns (fan_in ≥ fan_out) or rows (fan_in < fan_out), float32.

        A ~ N(0, 1),  Q R = A,  w = Q · sign(diag R)

    Without the signs Q would not be uniformly distributed, since QR chooses them its own way. A wide matrix is the
    transpose of a tall one. Raises ValueError unless shape is (fan_in, fan_out).

    Source: A. Saxe et al., *Exact solutions to the nonlinear dynamics of learning in deep linear neural networks*
    (2013); F. Mezzadri, *How to generate random matrices from the classical compact groups* (2006) for the signs.
    """
    if len(shape) != 2:
        raise ValueError(f"orthogonal: expected shape (fan_in, fan_out), got {shape}")
    wide = shape[0] < shape[1]
    a = torch.randn(shape, generator=generator)
    q, r = torch.linalg.qr(a.t() if wide else a)
    q = q * r.diagonal().sign()
    w: Tensor = q.t() if wide else q
    # `contiguous()` would leave a single column with the strides of a row.
    return w.clone(memory_format=torch.contiguous_format)


def zeros(shape: tuple[int, ...], _generator: Generator) -> Tensor:
    """All zeros, of any shape, float32: nothing is drawn."""
    return torch.zeros(shape)


# ------------------------------------------------------------------------------------------------------------ schemes


class Scheme(NamedTuple):
    """A base draw, and what it is multiplied by: `factor(fan_in, fan_out)`, a std or, for a uniform base, a bound."""

    base: Callable[[tuple[int, ...], Generator], Tensor]
    factor: Callable[[int, int], float]


SCHEMES = {
    # std 1, as in the chapter's first attempt
    "standard_normal": Scheme(normal, lambda _fan_in, _fan_out: 1.0),
    # std 1/√fan_in: Y. LeCun et al., Efficient BackProp (1998); ch. 17's second attempt
    "lecun_normal": Scheme(normal, lambda fan_in, _fan_out: 1 / math.sqrt(fan_in)),
    # std √(2/(fan_in + fan_out)): X. Glorot and Y. Bengio, Understanding the difficulty of training … (2010)
    "xavier_normal": Scheme(normal, lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out))),
    "xavier_uniform": Scheme(uniform, lambda fan_in, fan_out: math.sqrt(6 / (fan_in + fan_out))),
    # std √(2/fan_in): K. He et al., Delving Deep into Rectifiers (2015); ch. 17's third attempt
    "kaiming_normal": Scheme(normal, lambda fan_in, _fan_out: math.sqrt(2 / fan_in)),
    "kaiming_uniform": Scheme(uniform, lambda fan_in, _fan_out: math.sqrt(6 / fan_in)),
    # U(−0.1, 0.1): the PyTorch tutorial's Linear
    "uniform": Scheme(uniform, lambda _fan_in, _fan_out: 0.1),
    "orthogonal": Scheme(orthogonal, lambda _fan_in, _fan_out: 1.0),
    "zeros": Scheme(zeros, lambda _fan_in, _fan_out: 1.0),
    # U(±1/√fan_in), for weight and bias alike: torch.nn.Linear's own
    "torch_default": Scheme(uniform, lambda fan_in, _fan_out: 1 / math.sqrt(fan_in)),
}


def draw(scheme: str, fan_in: int, fan_out: int, generator: Generator, scale: float = 1.0) -> Tensor:
    """A weight by one of the schemes, times `scale`.

        w = scale · factor(fan_in, fan_out) · base((fan_in, fan_out), generator)        w: (fan_in, fan_out), float32

    Raises ValueError if no scheme has this name, or a fan is below 1. Source: named at each scheme.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"draw: expected scheme one of {', '.join(SCHEMES)}, got {scheme!r}")
    if fan_in < 1 or fan_out < 1:
        raise ValueError(f"draw: expected fan_in and fan_out of at least 1, got {fan_in} and {fan_out}")
    base, factor = SCHEMES[scheme]
    return base((fan_in, fan_out), generator) * (scale * factor(fan_in, fan_out))
