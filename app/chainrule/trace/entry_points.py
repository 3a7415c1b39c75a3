"""The three ways into autograd's backward pass, and their arguments in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, _engine_run_backward

ENTRY_POINTS = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)


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
        names = _PARAMETERS[func]
        if len(args) > len(names) or not set(kwargs) <= set(names):
            return None
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if any(given.get(name) for name in ("is_grads_batched", "materialize_grads")):
            return None
        roots = _as_tensors(given["roots"] if "roots" in given else given.get(names[0]))
        inputs = _as_tensors(given.get("inputs"))
        gradients = given.get(names[1] if func is not torch.autograd.grad else "grad_outputs")
        if (
            not roots
            or any(not root.requires_grad for root in roots)
            or (given.get("inputs") is not None and not inputs)
        ):
            return None
        if inputs is not None and any(not tensor.requires_grad for tensor in inputs):
            return None
        listed = (
            list(gradients)
            if isinstance(gradients, (list, tuple))
            else [gradients] * (1 if gradients is not None else len(roots))
        )
        if len(listed) != len(roots):
            return None
        complete = []
        for root, gradient in zip(roots, listed, strict=True):
            if gradient is None and (root.numel() != 1 or not root.is_floating_point()):
                return None
            complete.append(
                torch.ones_like(root, memory_format=torch.preserve_format) if gradient is None else gradient
            )
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


_PARAMETERS: Mapping[Any, tuple[str, ...]] = {
    torch.Tensor.backward: ("self", "gradient", "retain_graph", "create_graph", "inputs"),
    torch.autograd.backward: ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"),
    torch.autograd.grad: (
        "outputs",
        "inputs",
        "grad_outputs",
        "retain_graph",
        "create_graph",
        "only_inputs",
        "allow_unused",
        "is_grads_batched",
        "materialize_grads",
    ),
}


def _as_tensors(value: Any) -> tuple[torch.Tensor, ...] | None:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, torch.Tensor) for part in value):
        return tuple(value)
    return None
