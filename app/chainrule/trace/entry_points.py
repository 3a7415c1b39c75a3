"""The three ways into autograd's backward pass, and their arguments in one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, _engine_run_backward
from torch.overrides import handle_torch_function, has_torch_function


def _overridable(backward: Callable[..., None]) -> Callable[..., None]:
    """Torch 2.6 and 2.8 do not show `torch.autograd.backward` to modes. This does, as later versions do."""

    @wraps(backward)
    def overridable(tensors: Any, *args: Any, **kwargs: Any) -> None:
        roots = _as_tensors(tensors) or ()
        if has_torch_function(roots):
            return handle_torch_function(overridable, roots, tensors, *args, **kwargs)
        return backward(tensors, *args, **kwargs)

    return overridable


def _as_tensors(value: Any) -> tuple[torch.Tensor, ...] | None:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, torch.Tensor) for part in value):
        return tuple(value)
    return None


if "has_torch_function" not in torch.autograd.backward.__code__.co_names:
    torch.autograd.backward = _overridable(torch.autograd.backward)

ENTRY_POINTS = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)

_PARAMETERS: Mapping[Any, tuple[Sequence[str], frozenset[str]]] = {
    func: (tuple(given), frozenset(name for name, each in given.items() if each.default is each.empty))
    for func in ENTRY_POINTS
    if (given := inspect.signature(func).parameters)
}
"""The names of their arguments, and of those that must be there."""


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """The arguments of the three entry points in one form. `from_ones`: no gradients were given."""

    roots: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor, ...]
    from_ones: bool
    retain_graph: bool | None
    create_graph: bool
    inputs: tuple[torch.Tensor, ...] | None
    allow_unused: bool | None

    @classmethod
    def parse(cls, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> BackwardCall | None:
        """None for a call that goes through unchanged: batched gradients, function transforms, errors of torch."""
        if torch._C._are_functorch_transforms_active():
            return None
        names, required = _PARAMETERS[func]
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or not given.keys().isdisjoint(kwargs):
            return None
        given |= kwargs
        if not required <= given.keys() <= set(names):
            return None
        if given.get("is_grads_batched") or given.get("materialize_grads"):
            return None
        roots_name, gradients_name = names[:2]
        if func is torch.autograd.grad:
            gradients_name = "grad_outputs"
        roots, inputs, gradients = _as_tensors(given[roots_name]), None, given.get(gradients_name)
        if given.get("inputs") is not None and (inputs := _as_tensors(given["inputs"])) is None:
            return None
        if roots is None or not all(tensor.requires_grad for tensor in (*roots, *(inputs or ()))):
            return None
        listed = [gradients] * len(roots) if gradients is None else gradients
        if not isinstance(listed, (list, tuple)):
            listed = [listed]
        if len(listed) != len(roots):
            return None
        complete = []
        for root, gradient in zip(roots, listed, strict=True):
            if gradient is None and (root.numel() != 1 or not root.is_floating_point()):
                return None
            complete.append(torch.ones_like(root) if gradient is None else gradient)
        return cls(
            roots,
            tuple(complete),
            all(gradient is None for gradient in listed),
            given.get("retain_graph"),
            bool(given.get("create_graph")),
            inputs,
            given.get("allow_unused"),
        )

    def run(self, edges: Sequence[GradientEdge], targets: Sequence[GradientEdge] | None) -> None:
        """Run the engine from the gradient edges of `roots` to those of `inputs`; gradients are added to `.grad`."""
        if not self.from_ones:
            torch.autograd.backward(edges, self.gradients, self.retain_graph, self.create_graph, inputs=targets)
            return
        # Without torch's check of the gradients' shapes, which imports SymPy: a third of a second.
        _engine_run_backward(
            tuple(edges),
            self.gradients,
            self.create_graph if self.retain_graph is None else self.retain_graph,
            self.create_graph,
            tuple(targets or ()),
            allow_unreachable=True,
            accumulate_grad=True,
        )
