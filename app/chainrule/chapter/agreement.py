"""The difference of two results that ought to be the same, and the result of an attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from chainrule.foundations.gradient_check import same_elements

Result = TypeVar("Result")


def max_difference(result: Tensor, expected: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape, computed in float64; 0 where there are no elements.

    NaN equals NaN, and ∞ equals ∞. A NaN in only one of the tensors makes the difference NaN.
    """
    wide, wide_expected = result.double(), expected.double()
    same = same_elements(wide, wide_expected)
    differences = torch.where(same, torch.zeros_like(wide), (wide - wide_expected).abs())
    return float(differences.max()) if differences.numel() else 0.0


def attempt(compute: Callable[[], Result]) -> tuple[Result | None, str | None]:
    """A result and None, or None and PyTorch's error message."""
    try:
        return compute(), None
    except RuntimeError as error:
        return None, str(error)
