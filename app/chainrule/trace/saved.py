"""What a node of autograd's graph keeps for its backward."""

from __future__ import annotations

from typing import Any

import torch

from chainrule.trace.nested import nested_tensors

_names: dict[type, tuple[str, ...]] = {}


def saved_tensors(node: Any) -> list[torch.Tensor]:
    """The tensors that a node keeps, always in the same order; each time other objects of the same values.

    Raises:
        RuntimeError: one of them has been changed in place since, or they are freed.
    """
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return nested_tensors(node.saved_tensors)
    names = _names.get(type(node))
    if names is None:
        names = tuple(name for name in dir(type(node)) if name.startswith("_saved_"))
        kept = []
        for name in names:
            value = getattr(node, name)
            plain = isinstance(value, (bool, int, float, str, torch.dtype, torch.device, torch.layout))
            if not plain and not (isinstance(value, tuple) and value and isinstance(value[0], (int, bool))):
                kept.append(name)
        names = _names[type(node)] = tuple(kept)
    return nested_tensors([getattr(node, name) for name in names])
