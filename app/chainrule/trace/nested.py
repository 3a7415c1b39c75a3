"""Tensors inside nested arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def nested_tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among `values`, those inside lists, tuples and dicts included, in order."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)):
            found += _tensors_inside(value)
    return found


def _tensors_inside(container: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    pending: list[Any] = [container]
    while pending:
        value = pending.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            pending.extend(reversed(list(value.values())))
    return found
