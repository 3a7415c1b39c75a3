"""Tensors inside nested arguments and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def named_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a model is called with, and their names.

    Those given by position are called input, input_1, …; those given by keyword, or in a dict, after their key.
    """
    used: dict[str, int] = {}
    keyed: dict[Any, Any] = {}
    for value in args:
        if isinstance(value, Mapping):
            keyed.update(value)
        else:
            for tensor in nested_tensors((value,)):
                yield _numbered("input", used), tensor
    for key, value in (*keyed.items(), *kwargs.items()):
        for tensor in nested_tensors((value,)):
            yield _numbered(str(key), used), tensor


def _numbered(name: str, used: dict[str, int]) -> str:
    count = used[name] = used.get(name, -1) + 1
    return f"{name}_{count}" if count else name
