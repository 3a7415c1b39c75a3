"""Statistics of the units of an activation: which are dead, how far they are saturated."""

from __future__ import annotations

import torch

from chainrule.stats import dead_fraction, saturation
from chainrule.stats.summary import DEAD_FRACTION, SATURATION, FloatArray
from chainrule.trace import ops


def summarize_units(op_name: str, tensor: torch.Tensor, moments: FloatArray) -> None:
    """Write the dead fraction or the saturation of an activation into its row of moments (len(COLUMNS),).

    Args:
        op_name: what made the activation; of another op than a rectifier or a saturating one nothing is written.
        tensor: the activation, floating point and not empty.
        moments: its row, the rest of which is left as it is.
    """
    if op_name in ops.RECTIFIERS:
        if tensor.dim() >= 2:
            moments[DEAD_FRACTION] = dead_fraction(tensor)
    elif op_name in ops.SATURATING:
        moments[SATURATION] = saturation(tensor, ops.SATURATING[op_name])
