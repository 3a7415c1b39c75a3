"""Statistics of the units of an activation: dead fraction and saturation."""

from __future__ import annotations

from contextlib import suppress

import torch

from chainrule.stats import StatisticsSlab, StreamCapturedError
from chainrule.trace import ops


def summarize_units(op_name: str, tensor: torch.Tensor, slab: StatisticsSlab, row: int) -> None:
    """Write the dead fraction or the saturation of an activation, which is not empty, into its row of the slab.

    The row stays if the device has no memory left, captures its stream, or has freed the tensor's memory.
    """
    # These errors concern only the statistics, so the recorded program continues.
    with suppress(torch.OutOfMemoryError, StreamCapturedError, ValueError):
        if op_name in ops.RECTIFIERS:
            if tensor.dim() >= 2:
                slab.write_dead_fraction(row, tensor)
        elif op_name in ops.SATURATING:
            slab.write_saturation(row, tensor, ops.SATURATING[op_name])
