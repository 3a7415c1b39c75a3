"""Tensors and numbers as JSON: a number that is not finite is a word."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

from torch import Tensor

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number as JSON carries it."""


@overload
def json_number(value: float) -> Number: ...
@overload
def json_number(value: float | None) -> Number | None: ...
def json_number(value: float | None) -> Number | None:
    """The number itself, or one of "NaN", "Infinity", "-Infinity"."""
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_value(value: Any) -> Any:
    """Apply `json_number` throughout nested lists, tuples and dicts; a tensor becomes the nested list of its values."""
    if isinstance(value, Tensor):
        return json_value(value.detach().cpu().tolist())
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {key: json_value(each) for key, each in value.items()}
    return value


def json_tensor(tensor: Tensor) -> dict[str, Any]:
    """A tensor: {"shape", "dtype", "values"}."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "values": json_value(tensor),
    }
