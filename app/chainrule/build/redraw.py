"""A parameter of any model, drawn again by one of the schemes."""

from __future__ import annotations

from math import prod

from torch import Tensor

from chainrule import stopping
from chainrule.foundations.initialization import SCHEMES, generator_for, orthogonal


def redraw(init: str, seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """New values of the parameter `name` by the scheme `init`, distributed as by `torch.nn.init`: float32, on the CPU.

    They depend on seed, name and shape alone. `shape` is (fan_out, fan_in), as nn.Linear's, or (channels out, channels
    in, *kernel), as a convolution's.

    Raises:
        KeyError: there is no such scheme.
        ValueError: shape has less than 2 dimensions.
    """
    stopping.check()  # a large draw takes as long as a layer of the pass
    fan_in, fan_out = fans(shape)
    scheme = SCHEMES[init]
    generator = generator_for(seed, name)
    if scheme.base is orthogonal:  # a matrix with a row per output, as torch.nn.init.orthogonal_ has it
        drawn = scheme.base((prod(shape[1:]), shape[0]), generator).t().reshape(shape)
    else:
        drawn = scheme.base(shape, generator)
    return drawn * scheme.factor(fan_in, fan_out)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan_in, fan_out) of a parameter of this shape, as in `torch.nn.init`: channels times the size of a kernel.

    Raises:
        ValueError: shape has less than 2 dimensions.
    """
    if len(shape) < 2:
        raise ValueError(f"fans: expected a shape with 2 or more dimensions, got {shape}")
    kernel = prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel
