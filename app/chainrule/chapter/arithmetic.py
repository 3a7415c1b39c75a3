"""The page of elementwise arithmetic, comparisons and reductions, and of the shapes that do not match."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from chainrule.chapter.inputs import choice, tensor
from chainrule.chapter.json_values import json_number, json_tensor, json_value
from chainrule.chapter.page import Page

MAX_NUMEL = 64
"""Elements of a tensor; two of them broadcast to at most the square of it."""

OPERATORS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", operator.add),
    "sub": ("−", operator.sub),
    "mul": ("*", operator.mul),
    "div": ("/", operator.truediv),
    "gt": (">", operator.gt),
    "lt": ("<", operator.lt),
    "eq": ("==", operator.eq),
}
"""PyTorch's name of each operator → its sign, and what it is in Python."""

REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"all": Tensor.all, "sum": Tensor.sum, "mean": Tensor.mean}


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of a and b under every operator, and of the matrices m * m and m * n.

    Returns:
        "operators": a ∘ b for all seven, each with its "reductions"; "chosen": the name of one; of its result
        "elements" (those that are not finite, and why) and "item" (its mean as a Python number); "square": m * m;
        "product": m * n; and the four operands.
    """
    a, b, m, n, chosen = (values[name] for name in ("a", "b", "m", "n", "op"))
    applied = {name: apply(function, a, b) for name, (_, function) in OPERATORS.items()}
    result = applied[chosen][0]
    return {
        "a": json_tensor(a),
        "b": json_tensor(b),
        "m": json_tensor(m),
        "n": json_tensor(n),
        "chosen": chosen,
        "operators": [
            {"name": name, "sign": OPERATORS[name][0], "reductions": reduce_all(applied[name][0])}
            | outcome(*applied[name], a, b)
            for name in OPERATORS
        ],
        "elements": [] if result is None else explain_elements(chosen, a, b, result),
        "item": None if result is None else explain_item(result),
        "square": outcome(*apply(operator.mul, m, m), m, m),
        "product": outcome(*apply(operator.mul, m, n), m, n),
    }


# -------------------------------------------------------------------------------------------------- element by element


def apply(function: Callable[[Any, Any], Any], a: Tensor, b: Tensor) -> tuple[Tensor | None, str]:
    """The result and "", or None and PyTorch's message where it refuses."""
    try:
        return function(a, b), ""
    except RuntimeError as error:
        return None, str(error)


def outcome(result: Tensor | None, message: str, a: Tensor, b: Tensor) -> dict[str, Any]:
    """{"result": a tensor or None, "error": None or PyTorch's message with the shapes as it compared them}."""
    if result is not None:
        return {"result": json_tensor(result), "error": None}
    return {"result": None, "error": {"message": message} | explain_mismatch(a.shape, b.shape)}


def explain_mismatch(a: Sequence[int], b: Sequence[int]) -> dict[str, Any]:
    """Two shapes aligned from the trailing dimension.

    Returns:
        "dimension", the one at fault, counted from the left of the aligned shapes as PyTorch does: the last one of
        those where the sizes differ and neither is 1; None if the shapes fit. "sizes": per dimension, the two sizes
        (None where a tensor has none) and whether they fit.
    """
    dims = max(len(a), len(b))
    padded_a: list[int | None] = [None] * (dims - len(a)) + list(a)
    padded_b: list[int | None] = [None] * (dims - len(b)) + list(b)
    sizes = [
        {"a": size_a, "b": size_b, "fits": size_a == size_b or 1 in (size_a, size_b) or None in (size_a, size_b)}
        for size_a, size_b in zip(padded_a, padded_b, strict=True)
    ]
    return {
        "dimension": next((d for d in reversed(range(dims)) if not sizes[d]["fits"]), None),
        "sizes": sizes,
    }


def explain_elements(name: str, a: Tensor, b: Tensor, result: Tensor) -> list[dict[str, Any]]:
    """Every element of a ∘ b that is not finite, or that compares a NaN: where it stands and why it is so."""
    sign, _ = OPERATORS[name]
    wide_a, wide_b = a.expand(result.shape), b.expand(result.shape)
    special = wide_a.isnan() | wide_b.isnan()
    if result.is_floating_point():
        special = special | ~result.isfinite()
    found = []
    for index in special.nonzero().tolist():
        x, y, value = (float(t[tuple(index)]) for t in (wide_a, wide_b, result))
        found.append(
            {
                "index": index,
                "a": json_number(x),
                "sign": sign,
                "b": json_number(y),
                "value": json_number(value) if result.is_floating_point() else bool(value),
                "why": _why(name, x, y),
            }
        )
    return found


def _why(name: str, x: float, y: float) -> str:
    """Why x ∘ y is not finite, or what it says of a NaN, by the rules of IEEE 754."""
    if name in ("gt", "lt", "eq"):
        return "every comparison with NaN is false, even NaN == NaN"
    if math.isnan(x) or math.isnan(y):
        return "NaN goes on: whatever is computed with it is NaN"
    if name == "div" and y == 0:
        return "0 / 0 has no value" if x == 0 else "divided by 0: ∞, with the signs of both, and no exception"
    if name == "div" and math.isinf(x) and math.isinf(y):
        return "∞ / ∞ has no value"
    if name == "mul" and 0 in (x, y) and math.inf in (abs(x), abs(y)):
        return "0 · ∞ has no value"
    if math.isinf(x) and math.isinf(y):
        against = (x > 0) != (y > 0) if name == "add" else (x > 0) == (y > 0)
        return "∞ − ∞ has no value" if against and name in ("add", "sub") else "∞ stays ∞"
    if math.isinf(x) or math.isinf(y):
        return "∞ stays ∞"
    return f"beyond the largest float32, {torch.finfo(torch.float32).max:.3g}"


# ----------------------------------------------------------------------------------------------------------- reductions


def reduce_all(result: Tensor | None) -> dict[str, dict[str, Any]]:
    """Every reduction to one element: {"value", "dtype", "error"}, the latter PyTorch's message where there is none."""
    return {} if result is None else {name: _reduce(function, result) for name, function in REDUCTIONS.items()}


def _reduce(function: Callable[[Tensor], Tensor], result: Tensor) -> dict[str, Any]:
    try:
        reduced = function(result)
    except RuntimeError as error:
        return {"value": None, "dtype": None, "error": str(error)}
    return {"value": json_value(reduced.item()), "dtype": _dtype(reduced), "error": None}


def explain_item(result: Tensor) -> dict[str, Any] | None:
    """`result.mean().item()`, and why its digits are what they are; None where there is no finite mean of floats.

    Returns:
        "value": the Python number; "exact": all of its decimal digits; "sum" and "count", what the mean is the ratio
        of, as decimals; "ratio": their quotient rounded to float64; "error": value minus the quotient; "below" and
        "above": the float32 numbers next to it; "binary": its 24 significant binary digits, the point among them.
    """
    if not result.is_floating_point() or not result.numel() or not bool(result.isfinite().all()):
        return None
    mean = result.mean()
    value = mean.item()
    if not math.isfinite(value):
        return None
    total = sum((Fraction(each) for each in result.flatten().tolist()), Fraction(0))
    ratio = total / result.numel()
    towards = {
        side: torch.nextafter(mean, torch.tensor(end)).item()
        for side, end in (("below", -math.inf), ("above", math.inf))
    }
    return {
        "value": value,
        "exact": f"{Decimal(value):f}",
        "sum": json_number(float(total)),
        "count": result.numel(),
        "ratio": float(ratio),
        "error": float(Fraction(value) - ratio),
        "below": json_number(towards["below"]),
        "above": json_number(towards["above"]),
        "binary": _binary(value),
    }


def _binary(value: float) -> str | None:
    """A float32 in binary, `1001.10101010101010101011`; None for 0, for subnormals, and where it would be too long."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    exponent = (bits >> 23 & 0xFF) - 127
    if not -8 <= exponent <= 23:
        return None
    digits = f"{1 << 23 | bits & 0x7FFFFF:024b}"
    before, after = (
        (digits[: exponent + 1], digits[exponent + 1 :]) if exponent >= 0 else ("0", "0" * (-exponent - 1) + digits)
    )
    return ("-" if value < 0 else "") + before + ("." + after if after else "")


def _dtype(of: Tensor) -> str:
    return str(of.dtype).removeprefix("torch.")


# ------------------------------------------------------------------------------------------------------------- the page

PAGE = Page(
    name="arithmetic",
    title="Elementwise arithmetic",
    seed="002 Elementwise Arithmetic, Reduction Operators",
    lead="Operators work element by element, reductions leave one element, and shapes that differ are refused.",
    inputs=(
        # −4 as in the chapter, which prints 12, 14, 3 for a + b; the extracted text has lost the minus sign.
        tensor("a", "10,6,-4", "a", "The left operand.", max_numel=MAX_NUMEL, dims=(0, 1, 2)),
        tensor("b", "2,8,7", "b", "The right operand.", max_numel=MAX_NUMEL, dims=(0, 1, 2)),
        choice("op", "add", "operator", "What is reduced: a ∘ b.", choices=tuple(OPERATORS)),
        tensor("m", "1,2,3;4,5,6;7,8,9", "m", "A matrix, multiplied by itself.", max_numel=MAX_NUMEL, dims=(0, 1, 2)),
        tensor("n", "1,2,3;4,5,6", "n", "What m is multiplied by.", max_numel=MAX_NUMEL, dims=(0, 1, 2)),
    ),
    answer=answer,
)
