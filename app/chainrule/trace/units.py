"""Statistics of the units of an activation: which are dead, how far they are saturated."""

from __future__ import annotations

from contextlib import suppress

import torch

from chainrule.stats import StatisticsSlab, StreamCapturedError
from chainrule.trace import ops


def summarize_units(op_name: str, tensor: torch.Tensor, slab: StatisticsSlab, row: int) -> None:
    """Write the dead fraction or the saturation of an activation into its row of the slab.

    Args:
        op_name: what made the activation; of another op than a rectifier or a saturating one nothing is written.
        tensor: the activation, floating point and not empty.
        slab: where its statistics stand.
        row: in which row, the rest of which is left as it is. So is all of it where the activation's device has no
            memory left to look at it with, its stream is being captured, or its own memory was given back.
    """
    # The program that is watched may still have memory enough, and may meet what it made before in a CUDA graph.
    with suppress(torch.OutOfMemoryError, StreamCapturedError, ValueError):
        if op_name in ops.RECTIFIERS:
            if tensor.dim() >= 2:
                slab.write_dead_fraction(row, tensor)
        elif op_name in ops.SATURATING:
            slab.write_saturation(row, tensor, ops.SATURATING[op_name])
