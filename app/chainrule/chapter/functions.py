# mypy: disable-error-code="no-untyped-call"
"""The page of custom autograd Functions: one call, and everything that the Function and autograd exchange.

    forward(ctx, inp, …) ──▶ ctx: saved tensors, attributes ──▶ backward(ctx, grad_output, …) ──▶ one gradient per input

ctx is the graph's node, and its contents are read there; backward's arguments and results are recorded at its call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from types import new_class
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.chapter.agreement import max_difference
from chainrule.chapter.custom_functions import FUNCTIONS, CustomFunction
from chainrule.chapter.inputs import choice, flag, number, tensor
from chainrule.chapter.page import Link, Listing, Page
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.errors import InputError
from chainrule.foundations import functions
from chainrule.foundations.gradient_check import as_tuple, leaves
from chainrule.spec.values import Key

MAX_NUMEL = 36
"""Elements of each typed tensor."""

BIASES = ("a tensor", "None", "left out")

BOTH = "both"


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """One call of the Function with everything that it saves, gets and returns; the ways to call it."""
    case = FUNCTIONS[values["function"]]
    if case.name == "sin_cos" and not values["materialize_grads"]:
        case = replace(case, function=functions.SinCosSparing)
    arguments = _arguments(case, values)
    names = case.inputs[: len(arguments)]
    used = [values["used"] in (BOTH, name) or len(case.outputs) == 1 for name in case.outputs]
    try:
        gradient = _gradient(case, arguments, values["grad_output"])
    except ValueError as error:
        raise _misfit(error, arguments) from None
    recorded = record_call(case, arguments, used, gradient)
    return {
        "function": case.name,
        "class": case.function.__name__,
        "formula": case.formula,
        "forward_arguments": list(case.inputs),
        "call": f"{case.function.__name__}.apply({', '.join(names)})",
        **recorded,
        "calls": ways_to_call(case, arguments),
    }


def _arguments(case: CustomFunction, values: Mapping[str, Any]) -> tuple[Any, ...]:
    def typed(name: str) -> Tensor:
        value: Tensor = values[name]
        return value.clone().requires_grad_(values[f"{name}_requires_grad"])

    if case.name == "mul_constant":
        return typed("x"), values["constant"]
    if case.name != "linear_function":
        return (typed("x"),)
    biases = {"a tensor": (typed("bias"),), "None": (None,), "left out": ()}
    return typed("x"), typed("weight"), *biases[values["has_bias"]]


def _gradient(case: CustomFunction, arguments: tuple[Any, ...], typed: Tensor) -> Tensor:
    """The gradient of each output, in its shape. Raises ValueError if forward does."""
    with torch.no_grad():
        shape = as_tuple(case.apply(*arguments))[0].shape
    try:
        return typed.expand(shape)
    except RuntimeError:
        raise InputError(
            f"grad_output: its shape {tuple(typed.shape)} does not broadcast to that of the output, {tuple(shape)}",
            field="grad_output",
            limit=list(shape),
        ) from None


def _misfit(error: Exception, arguments: tuple[Any, ...]) -> InputError:
    """The error for shapes of linear_function that do not fit; names the one to change."""
    x, weight = arguments[:2]
    field = "x" if x.dim() != 2 else "weight" if weight.dim() != 2 or x.shape[1] != weight.shape[1] else "bias"
    return InputError(f"{field}: {error}", field=field)


@dataclass(slots=True)
class Taken:
    """The arguments and the results of backward; empty before it is called."""

    needs_input_grad: tuple[bool, ...] = ()
    received: tuple[Tensor | None, ...] = ()
    returned: tuple[Any, ...] = ()


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
    case: CustomFunction, arguments: Sequence[Any], used: Sequence[bool], grad_output: Tensor
) -> dict[str, Any]:
    """Call a Function, send `grad_output` back through the `used` outputs, and compare with autograd through `plain`.

    Raises:
        RuntimeError: grad_output does not broadcast to an output's shape.
        ValueError: forward does not take the arguments.
    """
    names = case.inputs[: len(arguments)]
    taken, given = Taken(), leaves(arguments)
    outputs: tuple[Tensor, ...] = as_tuple(recording(case.function, taken).apply(*given))
    node = outputs[0].grad_fn
    context = backward = None
    if node is not None:
        context = _context(node, given, outputs, names, case.outputs)
        gradients = _send_back(outputs, used, grad_output, given)
        twins = leaves(arguments)
        expected = _send_back(as_tuple(case.plain(*twins)), used, grad_output, twins)
        backward = _backward(taken, gradients, expected, given, names, case.outputs)
    return {
        "inputs": [_input(name, each) for name, each in zip(names, given, strict=True)],
        "outputs": [
            {"name": name, **json_tensor(each), "requires_grad": each.requires_grad, "used": is_used}
            for name, each, is_used in zip(case.outputs, outputs, used, strict=True)
        ],
        "needs_input_grad": list(taken.needs_input_grad),
        "context": context,
        "backward": backward,
    }


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
    gradients: Sequence[Tensor | None],
    expected: Sequence[Tensor | None],
    leaves: Sequence[Any],
    names: Sequence[str],
    output_names: Sequence[str],
) -> dict[str, Any]:
    """The arguments and results of backward, and its gradients beside autograd's."""
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
                "name": name,
                "needed": bool(needed),
                "is_tensor": isinstance(leaf, Tensor),
                "tensor": _optional(each),
            }
            for each, name, needed, leaf in islice(
                zip_longest(taken.returned, names, taken.needs_input_grad, leaves), len(taken.returned)
            )
        ],
        "gradients": [
            {"name": name, "tensor": _optional(each), "expected": _optional(other)}
            for name, each, other in zip(names, gradients, expected, strict=True)
        ],
        "max_difference": json_number(max(differences, default=0.0)),
        "same_places": [each is None for each in gradients] == [each is None for each in expected],
    }


def _optional(tensor: Tensor | None) -> dict[str, Any] | None:
    return None if tensor is None else json_tensor(tensor)


def ways_to_call(case: CustomFunction, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """`apply` with a keyword, which raises an error of torch's, and the same call through a wrapper function."""
    with torch.no_grad():
        names = case.inputs[: len(arguments)]
        by_position = as_tuple(case.apply(*arguments))[0]
        answer: dict[str, Any] = {
            "torch": torch.__version__,
            "keyword_call": _call(f"{case.function.__name__}.apply", names, len(names) - 1),
            **dict.fromkeys(("keyword_error", "max_difference", "wrapper")),
        }
        try:
            by_keyword = as_tuple(case.apply(*arguments[:-1], **{names[-1]: arguments[-1]}))[0]
            answer["max_difference"] = json_number(max_difference(by_keyword, by_position))
        except TypeError as error:  # of a torch that takes none
            answer["keyword_error"] = f"{type(error).__name__}: {error}"
        if case.name == "linear_function":
            by_name = functions.linear(**dict(zip(names, arguments, strict=True)))
            answer["wrapper"] = {
                "call": _call("linear", names, 0),
                "out": json_tensor(by_name),
                "max_difference": json_number(max_difference(by_name, by_position)),
            }
        return answer


def _call(name: str, arguments: tuple[str, ...], first: int) -> str:
    """`f(inp, weight, bias=bias)`: argument `first` and all later ones are keywords."""
    return f"{name}({', '.join([*arguments[:first], *(f'{each}={each}' for each in arguments[first:])])})"


_WEIGHT = "Weight of linear_function: (fan_out, fan_in), as in PyTorch's layers."
_GRAD_OUTPUT = "The gradient of each used output, broadcast to its shape."
_MATERIALIZE = "For an unused output, sin_cos gets zeros instead of None."


def _wanted(name: str, label: str) -> Key:
    doc = f"Let autograd compute the gradient of {label}."
    return flag(f"{name}_requires_grad", True, doc, label=f"{label} requires grad")


PAGE = Page(
    name="functions",
    title="Custom Functions",
    seed="001 Extending torch.autograd · 003 torch.autograd.Function · 004 Uses of a custom Function",
    lead="A torch.autograd.Function is a pair of a forward and a backward; autograd does the rest.",
    inputs=(
        choice("function", "linear_function", "The Function to call.", tuple(FUNCTIONS), label="Function"),
        tensor("x", "1,-2,0.5;3,0,-1", "The input; for linear_function (batch, fan_in).", MAX_NUMEL, label="inp"),
        _wanted("x", "inp"),
        tensor("weight", "0.5,-1,2;1,1,-0.5", _WEIGHT, MAX_NUMEL, dims=(2,)),
        _wanted("weight", "weight"),
        tensor("bias", "0.1,-0.2", "Bias of linear_function: (fan_out,).", MAX_NUMEL, dims=(1,)),
        _wanted("bias", "bias"),
        choice("has_bias", BIASES[0], "The kind of the bias of linear_function.", BIASES, label="bias is"),
        number("constant", "3", "The factor of mul_constant: a number.", -1e6, 1e6),
        tensor("grad_output", "1", _GRAD_OUTPUT, MAX_NUMEL),
        choice("used", BOTH, "The outputs of sin_cos that the loss uses.", (BOTH, "sin", "cos"), label="outputs used"),
        flag("materialize_grads", True, _MATERIALIZE, label="materialize grads"),
    ),
    answer=answer,
    listings=(
        *(Listing(case.name, case.function) for case in FUNCTIONS.values()),
        Listing("sin_cos_sparing", functions.SinCosSparing, previous="sin_cos"),
        Listing("linear", functions.linear),
    ),
    links=tuple(
        Link(label, f"program={program}")
        for label, program in (
            ("exp", "exp"),
            ("mul_constant, times 3", "mul_constant&constant=3"),
            ("my_relu", "my_relu"),
            ("linear_function", "linear_function"),
            ("sin_cos: two outputs", "two_outputs"),
        )
    ),
)
