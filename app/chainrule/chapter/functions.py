"""The page of custom autograd Functions: one call, and everything that the Function and autograd exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chainrule.chapter.agreement import max_difference
from chainrule.chapter.custom_functions import FUNCTIONS, CustomFunction
from chainrule.chapter.inputs import choice, flag, number, tensor
from chainrule.chapter.page import Link, Listing, Page
from chainrule.chapter.recorded_call import record_call
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.errors import InputError
from chainrule.foundations import functions
from chainrule.foundations.gradient_check import as_tuple
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
    recorded = record_call(case.function, case.plain, arguments, names, case.outputs, used, gradient)
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
    match values["has_bias"]:
        case "None":
            return typed("x"), typed("weight"), None
        case "left out":
            return typed("x"), typed("weight")
    return typed("x"), typed("weight"), typed("bias")


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


def ways_to_call(case: CustomFunction, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """`apply` with a keyword, which raises an error of torch's, and the same call through a wrapper function."""
    with torch.no_grad():
        names = case.inputs[: len(arguments)]
        by_position = as_tuple(case.apply(*arguments))[0]
        answer: dict[str, Any] = {
            "torch": torch.__version__,
            "keyword_call": _call(f"{case.function.__name__}.apply", names),
            "keyword_error": None,
            "max_difference": None,
            "wrapper": None,
        }
        try:
            by_keyword = as_tuple(case.apply(*arguments[:-1], **{names[-1]: arguments[-1]}))[0]
            answer["max_difference"] = json_number(max_difference(by_keyword, by_position))
        except TypeError as error:  # of a torch that takes none
            answer["keyword_error"] = f"{type(error).__name__}: {error}"
        if case.name == "linear_function":
            by_name = functions.linear(**dict(zip(names, arguments, strict=True)))
            answer["wrapper"] = {
                "call": _call("linear", names, first=0),
                "out": json_tensor(by_name),
                "max_difference": json_number(max_difference(by_name, by_position)),
            }
        return answer


def _call(name: str, arguments: tuple[str, ...], first: int | None = None) -> str:
    """`f(inp, weight, bias=bias)`: keywords from `first` on, by default the last argument alone."""
    start = len(arguments) - 1 if first is None else first
    return f"{name}({', '.join([*arguments[:start], *(f'{each}={each}' for each in arguments[start:])])})"


_WEIGHT = "Of linear_function: (fan_out, fan_in), as PyTorch's layers have it."
_GRAD_OUTPUT = "The gradient that comes back to each output that is used; broadcast to its shape."
_MATERIALIZE = "Whether sin_cos gets zeros for an output that is not used, or None."


def _wanted(name: str, label: str) -> Key:
    doc = f"Whether autograd is to find {label}'s gradient."
    return flag(f"{name}_requires_grad", True, doc, label=f"{label} requires grad")


PAGE = Page(
    name="functions",
    title="Custom Functions",
    seed="001 Extending torch.autograd · 003 torch.autograd.Function · 004 Uses of a custom Function",
    lead="A torch.autograd.Function is a forward and the backward that belongs to it; autograd carries the rest.",
    inputs=(
        choice("function", "linear_function", "Which one is called.", tuple(FUNCTIONS), label="Function"),
        tensor("x", "1,-2,0.5;3,0,-1", "The input; for linear_function (batch, fan_in).", MAX_NUMEL, label="inp"),
        _wanted("x", "inp"),
        tensor("weight", "0.5,-1,2;1,1,-0.5", _WEIGHT, MAX_NUMEL, dims=(2,)),
        _wanted("weight", "weight"),
        tensor("bias", "0.1,-0.2", "Of linear_function: (fan_out,).", MAX_NUMEL, dims=(1,)),
        _wanted("bias", "bias"),
        choice("has_bias", BIASES[0], "What linear_function gets as its bias.", BIASES, label="bias is"),
        number("constant", "3", "Of mul_constant: a number.", -1e6, 1e6),
        tensor("grad_output", "1", _GRAD_OUTPUT, MAX_NUMEL),
        choice(
            "used", BOTH, "Which outputs of sin_cos the loss depends on.", (BOTH, "sin", "cos"), label="outputs used"
        ),
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
