"""Tensors and numbers as JSON: what is not finite is a word, as everywhere else."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor


def json_number(value: float) -> float | str:
    """A number, or one of "NaN", "Infinity", "-Infinity"."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_value(value: Any) -> Any:
    """The same in every place of nested lists, tuples and dicts; a tensor becomes the nested list of its values."""
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
