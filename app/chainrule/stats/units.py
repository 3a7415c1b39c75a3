"""Dead units and saturated values of a live activation."""

from __future__ import annotations

import torch

from chainrule.stats import native
from chainrule.stats.kernel import is_freed

SATURATED = 0.97
"""An activation in (-1, 1) with a magnitude above this is saturated: tanh' is below 0.06."""


def dead_fraction(activation: torch.Tensor) -> float:
    """Share of units that are not above zero for any input of the batch; one that is NaN for some input is not dead.

    `activation`: floats, (batch, …) with at least one element; each place in … is a unit.

    Raises:
        ValueError: its memory was freed.
    """
    if native.kernel is not None and (fraction := native.kernel.dead_fraction(activation)) is not None:
        return fraction
    if is_freed(activation):
        raise ValueError("its memory was freed")
    dead = activation.detach().amax(0) <= 0
    return torch.count_nonzero(dead).item() / dead.numel()


def saturation(activation: torch.Tensor, middle: float) -> float:
    """Share of values that are saturated, in the arithmetic of their own dtype.

    `middle` of the activation's range: 0 for (-1, 1), 0.5 for (0, 1), which is first mapped to (-1, 1).

    Raises:
        ValueError: its memory was freed.
    """
    limit = SATURATED * (1 - middle)
    if native.kernel is not None and (fraction := native.kernel.saturation(activation, middle, limit)) is not None:
        return fraction
    if is_freed(activation):
        raise ValueError("its memory was freed")
    values = activation.detach()
    distance = (values - middle).abs_() if middle else values.abs()
    return torch.count_nonzero(distance > limit).item() / values.numel()
