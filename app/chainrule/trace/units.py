"""Statistics of the units of an activation: which are dead, how far they are saturated."""

from __future__ import annotations

import torch

from chainrule.stats.summary import DEAD_FRACTION, SATURATION, FloatArray
from chainrule.trace import ops


def summarize_units(op_name: str, tensor: torch.Tensor, moments: FloatArray) -> None:
    """Write the dead fraction or the saturation of an activation into its row of moments (len(COLUMNS),).

    A unit is dead if it is not above zero for any input of the batch (dimension 0). An activation in (-1, 1) is
    saturated where its magnitude is above .97; one in (0, 1) is first mapped there.

    Args:
        op_name: what made the activation; of another op than a rectifier or a saturating one nothing is written.
        tensor: the activation, floating point and not empty.
        moments: its row, the rest of which is left as it is.
    """
    values = tensor.detach()
    if op_name in ops.RECTIFIERS:
        if values.dim() >= 2:
            dead = values.amax(0) <= 0
            moments[DEAD_FRACTION] = torch.count_nonzero(dead).item() / dead.numel()
    elif op_name in ops.SATURATING:
        middle = ops.SATURATING[op_name]
        distance = (values - middle).abs_() if middle else values.abs()
        limit = 0.97 * (1 - middle)
        saturated = torch.count_nonzero(distance > limit).item()
        moments[SATURATION] = saturated / values.numel()
