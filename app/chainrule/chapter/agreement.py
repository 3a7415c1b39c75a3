"""The difference of two results that ought to be the same."""

from __future__ import annotations

import torch
from torch import Tensor


def max_difference(result: Tensor, expected: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape, computed in float64; 0 where there are no elements.

    NaN equals NaN, and ∞ equals ∞. A NaN in only one of the tensors makes the difference NaN.
    """
    wide, wide_expected = result.double(), expected.double()
    same = (wide == wide_expected) | (wide.isnan() & wide_expected.isnan())
    differences = torch.where(same, torch.zeros_like(wide), (wide - wide_expected).abs())
    return float(differences.max()) if differences.numel() else 0.0
