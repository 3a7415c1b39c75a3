# mypy: disable-error-code="no-untyped-call"
"""One call of a custom Function and its backward, with everything that it exchanges with autograd.

    forward(ctx, inp, …) ──▶ ctx: saved tensors, attributes ──▶ backward(ctx, grad_output, …) ──▶ one gradient per input

ctx is the graph's node, and its contents are read there; backward's arguments and results are recorded at its call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import new_class
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.chapter.agreement import max_difference
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.gradient_check import as_tuple


@dataclass(slots=True)
class Taken:
    """The arguments and the results of backward; None before it is called."""

    needs_input_grad: tuple[bool, ...] | None = None
    received: tuple[Tensor | None, ...] | None = None
    returned: tuple[Any, ...] | None = None


def recording(function: type[Function], taken: Taken) -> type[Function]:
    """A Function that does the same as `function`, and records the arguments and results of backward in `taken`."""

    def forward(ctx: Any, *args: Any) -> Any:
        taken.needs_input_grad = tuple(ctx.needs_input_grad)
        return function.forward(ctx, *args)

    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        taken.received = grad_outputs
        returned = function.backward(ctx, *grad_outputs)
        taken.returned = returned if isinstance(returned, tuple) else (returned,)
        return returned

    # Keeps the name, after which autograd names the node.
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return cast(type[Function], new_class(function.__name__, (function,), exec_body=lambda space: space.update(body)))


def record_call(
    function: type[Function],
    plain: Callable[..., Any],
    arguments: Sequence[Any],
    names: Sequence[str],
    output_names: Sequence[str],
    used: Sequence[bool],
    grad_output: Tensor,
) -> dict[str, Any]:
    """Call a Function, send `grad_output` back through the `used` outputs, and compare with autograd through `plain`.

    Raises:
        RuntimeError: grad_output does not broadcast to an output's shape.
        ValueError: forward does not take the arguments.
    """
    taken = Taken()
    leaves = _leaves(arguments)
    outputs: tuple[Tensor, ...] = as_tuple(recording(function, taken).apply(*leaves))
    context = outputs[0].grad_fn
    answer: dict[str, Any] = {
        "inputs": [_input(name, each) for name, each in zip(names, leaves, strict=True)],
        "outputs": [
            {"name": name, **json_tensor(each), "requires_grad": each.requires_grad, "used": is_used}
            for name, each, is_used in zip(output_names, outputs, used, strict=True)
        ],
        "needs_input_grad": list(taken.needs_input_grad or ()),
        "context": None if context is None else _context(context, leaves, outputs, names, output_names),
    }
    gradients = _send_back(outputs, used, grad_output, leaves) if context is not None else None
    expected = None
    if gradients is not None:
        twins = _leaves(arguments)
        expected = _send_back(as_tuple(plain(*twins)), used, grad_output, twins)
    answer["backward"] = _backward(taken, gradients, expected, leaves, names, output_names)
    return answer


def _leaves(arguments: Sequence[Any]) -> list[Any]:
    return [
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each
        for each in arguments
    ]


def _input(name: str, each: Any) -> dict[str, Any]:
    if isinstance(each, Tensor):
        return {"name": name, **json_tensor(each), "requires_grad": each.requires_grad}
    return {"name": name, "value": None if each is None else json_number(float(each)), "requires_grad": False}


def _context(
    context: Any, leaves: Sequence[Any], outputs: Sequence[Tensor], names: Sequence[str], output_names: Sequence[str]
) -> dict[str, Any]:
    """The node's saved tensors, with the names of the inputs or outputs that they are, and its attributes."""
    owners = [
        (name, each.untyped_storage().data_ptr())
        for name, each in zip((*names, *output_names), (*leaves, *outputs), strict=True)
        if isinstance(each, Tensor)
    ]
    saved = []
    for each in context.saved_tensors:
        same = [name for name, storage in owners if each is not None and storage == each.untyped_storage().data_ptr()]
        saved.append(
            {
                "is": same[0] if same else None,
                "shape": list(each.shape),
                "dtype": str(each.dtype).removeprefix("torch."),
                "bytes": each.numel() * each.element_size(),
            }
        )
    return {
        "node": type(context).__name__,
        "saved": saved,
        "bytes": sum(each["bytes"] for each in saved),
        "attributes": {
            name: json_number(value) if isinstance(value, float) else repr(value)
            for name, value in vars(context).items()
        },
    }


def _send_back(
    outputs: Sequence[Tensor], used: Sequence[bool], grad_output: Tensor, leaves: Sequence[Any]
) -> list[Tensor | None]:
    """The gradient in each leaf after a backward pass from the used outputs."""
    roots = [each for each, is_used in zip(outputs, used, strict=True) if is_used]
    torch.autograd.backward(roots, [grad_output.to(each.dtype).expand(each.shape).contiguous() for each in roots])
    return [each.grad if isinstance(each, Tensor) else None for each in leaves]


def _backward(
    taken: Taken,
    gradients: Sequence[Tensor | None] | None,
    expected: Sequence[Tensor | None] | None,
    leaves: Sequence[Any],
    names: Sequence[str],
    output_names: Sequence[str],
) -> dict[str, Any] | None:
    """The arguments and results of backward, and its gradients beside autograd's; None if it was not called."""
    if taken.received is None or taken.returned is None or gradients is None or expected is None:
        return None
    differences = [
        max_difference(ours, theirs)
        for ours, theirs in zip(gradients, expected, strict=True)
        if ours is not None and theirs is not None
    ]
    # Autograd ignores a surplus None: linear_function returns three gradients even without a bias.
    return {
        "received": [
            {"name": f"grad_{name}" if len(output_names) > 1 else "grad_output", "tensor": _optional(each)}
            for name, each in zip(output_names, taken.received, strict=True)
        ],
        "returned": [
            {
                "name": names[index] if index < len(names) else None,
                "needed": bool(taken.needs_input_grad[index]) if index < len(taken.needs_input_grad or ()) else False,
                "is_tensor": index < len(leaves) and isinstance(leaves[index], Tensor),
                "tensor": _optional(each),
            }
            for index, each in enumerate(taken.returned)
        ]
        if taken.needs_input_grad is not None
        else [],
        "gradients": [
            {"name": name, "tensor": _optional(each), "expected": _optional(other)}
            for name, each, other in zip(names, gradients, expected, strict=True)
        ],
        "max_difference": json_number(max(differences, default=0.0)),
        "same_places": [each is None for each in gradients] == [each is None for each in expected],
    }


def _optional(tensor: Tensor | None) -> dict[str, Any] | None:
    return None if tensor is None else json_tensor(tensor)
