"""The tensors inside nested arguments and results, and those that an autograd node keeps."""

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
        elif isinstance(value, (list, tuple)):
            found += nested_tensors(value)
        elif isinstance(value, dict):
            found += nested_tensors(tuple(value.values()))
    return found


def named_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The arguments of a model with their names: input, input_1, … by position, else the keyword or the dict's key."""
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


saved_names: dict[type, tuple[str, ...]] = {}
"""The attributes with the tensors of a node, by its type."""


def saved_tensors(node: Any) -> list[torch.Tensor]:
    """The tensors that a node keeps for its backward, in a fixed order; every call returns other objects.

    Raises:
        RuntimeError: one of them was changed in place, or they are freed.
    """
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return nested_tensors(node.saved_tensors)
    names = saved_names.get(type(node))
    if names is None:
        kept = []
        for name in dir(type(node)):
            if name.startswith("_saved_"):
                value = getattr(node, name)
                plain = isinstance(value, (bool, int, float, str, torch.dtype, torch.device, torch.layout))
                if not plain and not (isinstance(value, tuple) and value and isinstance(value[0], (int, bool))):
                    kept.append(name)
        names = saved_names[type(node)] = tuple(kept)
    return nested_tensors([getattr(node, name) for name in names])
