"""The page of broadcasting: two shapes or small tensors, a vector beside a matrix, and the trap of a lost squeeze."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import attempt
from chainrule.chapter.inputs import (
    SHAPE,
    choice,
    integer,
    number,
    read_shape,
    read_tensor,
    seed_input,
    tensor,
    tensor_pattern,
    text,
)
from chainrule.chapter.page import Link, Listing, Page, listings
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.errors import InputError
from chainrule.foundations.broadcasting import (
    ADDED_DIMENSIONS,
    BroadcastError,
    BroadcastStep,
    broadcast_shape,
    broadcast_steps,
    contiguous_strides,
    expand,
    expanded_strides,
    match_sizes,
    mean_squared_error_of_all_pairs,
)
from chainrule.foundations.layers import match_target, mse

MAX_TYPED = 64
"""Elements of a typed tensor, and of a shape that is filled with numbers."""

MAX_SHOWN = 256
"""Elements of a result whose values are computed."""

MAX_SIZE = 2**31
"""The largest size of a dimension."""

MAX_BYTES = 2**63 - 1
"""PyTorch cannot address more."""

MAX_BATCH = 512
"""Predictions in the trap, whose tensor of all pairs has the square of that."""

ITEM_BYTES = torch.float32.itemsize

OPERATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    ">": torch.gt,
    "<": torch.lt,
}
"""The chapter's elementwise operators."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One side: its shape, and its values if they were typed or are few enough to be numbered."""

    given: str
    shape: tuple[int, ...]
    values: Tensor | None


def read_operand(given: str) -> Operand:
    """A shape or a tensor. A shape of up to MAX_TYPED elements is filled with 0, 1, 2, ….

    Brackets, a semicolon, a decimal point, an exponent, a sign, inf or nan mean values: `[1,2]`, `1;2`, `2.73`, `-5`,
    `10.,20,30`. Anything else is a shape: `3,1,5`, `5`, `(200,1)`, and `()` or nothing for a scalar.

    Raises:
        ValueError: it is neither.
    """
    if re.search(r"[\[\].;eE+\-−aAiI]", given):
        values = read_tensor(given, max_numel=MAX_TYPED)
        return Operand("values", tuple(values.shape), values)
    shape = read_shape(given)
    if max(shape, default=0) > MAX_SIZE:
        raise ValueError(f"a size is more than {MAX_SIZE}")
    numel = math.prod(shape)
    numbered = torch.arange(numel, dtype=torch.float32).view(shape) if numel <= MAX_TYPED else None
    return Operand("shape", shape, numbered)


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"shape", "steps", … of a and b, "added_dimensions" and "normalized" of c and m, "trap"}."""
    stopping.check()
    c, m = values["c"], values["m"]
    return {
        **explain_pair(values["a"], values["b"], values["operator"]),
        "added_dimensions": {
            "c": json_tensor(c),
            "m": json_tensor(m),
            "ways": [explain_way(code, way(c), c, m) for code, way in ADDED_DIMENSIONS.items()],
        },
        "normalized": explain_normalization(m, values["mean"], values["std"]),
        "trap": explain_trap(values["n"], values["noise"], values["seed"]),
    }


def explain_pair(a: Operand, b: Operand, operator: str) -> dict[str, Any]:
    """The broadcasting of a and b, step by step, what is stored of each, and the result if it is small.

    Raises:
        InputError: they do not fit, in PyTorch's words; `limit` holds the steps up to the dimension at fault.
    """
    steps = broadcast_steps(a.shape, b.shape)
    try:
        shape = broadcast_shape(a.shape, b.shape)
    except BroadcastError as error:
        fault = error.steps[-1]
        limit = {
            "a": list(a.shape),
            "b": list(b.shape),
            "dimension": fault.dimension,
            "from_end": fault.from_end,
            "steps": [explain_step(step) for step in error.steps],
        }
        raise InputError(str(error), field="b", limit=limit) from None
    result = None
    if a.values is not None and b.values is not None and math.prod(shape) <= MAX_SHOWN:
        result = json_tensor(OPERATORS[operator](a.values, b.values))
    return {
        "shape": list(shape),
        "steps": [explain_step(step) for step in steps],
        "numel": json_count(math.prod(shape)),
        "bytes": json_count(math.prod(shape) * ITEM_BYTES),
        "is_addressable": math.prod(max(size, 1) for size in shape) * ITEM_BYTES <= MAX_BYTES,
        "operator": operator,
        "a": explain_operand(a, shape),
        "b": explain_operand(b, shape),
        "result": result,
    }


def json_count(count: int) -> int | float:
    """The count, as a float if it needs more than 64 bits."""
    return count if count <= MAX_BYTES else float(count)


def explain_step(step: BroadcastStep) -> dict[str, Any]:
    """The fields of a step, and its "explanation"."""
    says = {
        "equal": f"both are {step.a}",
        "stretch_a": f"a is 1: it is stretched to {step.b}",
        "stretch_b": f"b is 1: it is stretched to {step.a}",
        "pad_a": f"a does not have this dimension: it counts as 1 and is stretched to {step.b}",
        "pad_b": f"b does not have this dimension: it counts as 1 and is stretched to {step.a}",
        "fault": f"{step.a} and {step.b} differ, and neither is 1",
    }
    # If the other side is 1 too, nothing is stretched.
    if step.rule in ("pad_a", "pad_b") and step.size == 1:
        says[step.rule] = f"{step.rule[-1]} does not have this dimension: it counts as 1, like the other"
    return {**asdict(step), "explanation": says[step.rule]}


def explain_operand(operand: Operand, shape: tuple[int, ...]) -> dict[str, Any]:
    """An operand as it is stored, and the expanded view that the operation reads."""
    strides, numel, total = contiguous_strides(operand.shape), math.prod(operand.shape), math.prod(shape)
    expanded = None
    if operand.values is not None and total <= MAX_SHOWN:
        expanded = json_tensor(expand(operand.values, shape))
    return {
        "given": operand.given,
        "shape": list(operand.shape),
        "stride": [json_count(stride) for stride in strides],
        "stored_numel": json_count(numel),
        "stored_bytes": json_count(numel * ITEM_BYTES),
        "expanded_shape": list(shape),
        "expanded_stride": [json_count(stride) for stride in expanded_strides(operand.shape, strides, shape)],
        "expanded_numel": json_count(total),
        "copied_bytes": json_count(total * ITEM_BYTES),
        "tensor": None if operand.values is None else json_tensor(operand.values),
        "expanded": expanded,
    }


def explain_way(code: str, view: Tensor, c: Tensor, m: Tensor) -> dict[str, Any]:
    """A way to give c a second dimension: shape, stride, `expand_as(m)` and the sum with m, or PyTorch's errors."""
    expanded, expand_error = attempt(lambda: view.expand_as(m))
    total, sum_error = attempt(lambda: view + m)
    return {
        "code": code,
        "shape": list(view.shape),
        "stride": list(view.stride()),
        "expanded": None if expanded is None else json_tensor(expanded),
        "expanded_stride": None if expanded is None else list(expanded.stride()),
        "stored_numel": view.untyped_storage().nbytes() // view.itemsize,
        "shares_memory": expanded is not None and expanded.data_ptr() == c.data_ptr(),
        "expand_error": expand_error,
        "sum": None if total is None else json_tensor(total),
        "sum_error": sum_error,
    }


def explain_normalization(m: Tensor, mean: float, std: float) -> dict[str, Any]:
    """`(m - mean) / std`, and the mean and std of m itself."""
    return {
        "values": json_tensor((m - mean) / std if std else (m - mean) / torch.tensor(std)),
        "mean_of_m": json_number(float(m.mean())),
        # PyTorch warns if there are no elements.
        "std_of_m": json_number(float(m.std(correction=0)) if m.numel() else math.nan),
    }


def explain_trap(n: int, noise: float, seed: int) -> dict[str, Any]:
    """The loss of n predictions with and without the squeeze.

    Two predictors: one is right up to `noise`, the other always says mean(targ). The loss of all pairs prefers the
    second.
    """
    generator = torch.Generator().manual_seed(seed)
    targ = torch.randn(n, generator=generator)
    pred = targ.unsqueeze(-1) + noise * torch.randn(n, 1, generator=generator)
    constant = targ.mean().expand(n, 1)
    covariance = ((pred.squeeze(-1) - pred.mean()) * (targ - targ.mean())).mean()
    right, wrong = float(mse(pred, targ)), float(mean_squared_error_of_all_pairs(pred, targ))
    difference = pred - targ
    return {
        "pred": list(pred.shape),
        "targ": list(targ.shape),
        "difference": list(difference.shape),
        "squeezed_difference": list((pred.squeeze(-1) - targ).shape),
        "loss": json_number(wrong),
        "true_loss": json_number(right),
        "loss_difference": json_number(wrong - right),
        "twice_the_covariance": json_number(2 * float(covariance)),
        "loss_of_the_mean": json_number(float(mean_squared_error_of_all_pairs(constant, targ))),
        "true_loss_of_the_mean": json_number(float(mse(constant, targ))),
        "bytes": difference.untyped_storage().nbytes(),
        "squeezed_bytes": n * difference.itemsize,
        "steps": [explain_step(step) for step in broadcast_steps(pred.shape, targ.shape)],
    }


_PATTERN = f"{tensor_pattern()}|{SHAPE}"
_OPERAND = (
    f"a shape such as 3,1,5 (at most 8 sizes, each up to {MAX_SIZE}) or at most {MAX_TYPED} values such as "
    "[10,20,30], [[1,2],[3,4]] or 2.73"
)
_HOW = "Brackets, a semicolon, a decimal point, an exponent or a sign mean values; plain integers are a shape."

PAGE = Page(
    name="broadcasting",
    title="Broadcasting",
    seed="002 Broadcasting; Broadcasting rules",
    lead="How one elementwise operation combines tensors of different shapes without a copy.",
    inputs=(
        text("a", "3,1,5", f"The left side. {_HOW}", read_operand, _OPERAND, _PATTERN),
        text("b", "4,1", f"The right side. {_HOW}", read_operand, _OPERAND, _PATTERN),
        choice("operator", "+", "The operator between a and b.", tuple(OPERATORS)),
        tensor("c", "10,20,30", "The vector.", 8, dims=(1,)),
        tensor("m", "1,2,3;4,5,6;7,8,9", "The matrix.", MAX_TYPED, dims=(2,)),
        number("mean", "5", "Number to subtract from every element of m.", -1e6, 1e6),
        number("std", "2.73", "Number to divide every element of m by.", -1e6, 1e6),
        integer("n", 200, "Number of predictions.", 1, MAX_BATCH),
        number("noise", "0.1", "Standard deviation of the errors of the predictions.", 0, 100),
        seed_input("Seed of the targets and the errors."),
    ),
    answer=answer,
    listings=(
        *listings(match_sizes, broadcast_steps, expanded_strides),
        Listing("all_pairs", mean_squared_error_of_all_pairs),
        *listings(match_target, mse),
    ),
    links=(
        Link("The matrix product whose inner loop is broadcasting", "program=matmul&rung=broadcasting"),
        Link(
            "A bias (n,) is broadcast over a batch, and its gradient is summed over the batch",
            "program=linear_function",
        ),
        Link("A constant that multiplies every element", "program=mul_constant&constant=3"),
    ),
)
