"""The page of elementwise arithmetic, comparisons and reductions, and of the shapes that do not match."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import attempt
from chainrule.chapter.inputs import choice, tensor
from chainrule.chapter.page import Link, Page, listings
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.arithmetic import arithmetic, comparisons, elementwise_product, mean_as_number, reduction
from chainrule.foundations.broadcasting import match_sizes

MAX_NUMEL = 64
"""Elements of a tensor; two of them broadcast to at most the square of it."""

SIGNS: Mapping[str, str] = {"add": "+", "sub": "−", "mul": "*", "div": "/", "gt": ">", "lt": "<", "eq": "=="}
"""PyTorch's name of each operator → its sign."""

REDUCTIONS = ("all", "sum", "mean")


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"operators": all seven with their "reductions", "chosen": one of them, "elements" and "item" of its result, …}.

    "square" is m * m, "product" m * n; "elements" are those that are not finite, "item" the mean as a Python number.
    """
    a, b, m, n, chosen = (values[name] for name in ("a", "b", "m", "n", "op"))
    stopping.check()
    applied, message = attempt(lambda: arithmetic(a, b) | comparisons(a, b))
    results: Mapping[str, Tensor | None] = applied or dict.fromkeys(SIGNS)
    result = results[chosen]
    return {
        "a": json_tensor(a),
        "b": json_tensor(b),
        "m": json_tensor(m),
        "n": json_tensor(n),
        "chosen": chosen,
        "operators": [
            {"name": name, "sign": sign, "reductions": reduce_all(results[name])}
            | outcome(results[name], message, a, b)
            for name, sign in SIGNS.items()
        ],
        "elements": [] if result is None else explain_elements(chosen, a, b, result),
        "item": None if result is None else explain_item(result),
        "square": outcome(*attempt(lambda: elementwise_product(m, m)), m, m),
        "product": outcome(*attempt(lambda: elementwise_product(m, n)), m, n),
    }


def outcome(result: Tensor | None, message: str | None, a: Tensor, b: Tensor) -> dict[str, Any]:
    """{"result": a tensor or None, "error": None or PyTorch's message with the aligned shapes}."""
    if result is not None:
        return {"result": json_tensor(result), "error": None}
    return {"result": None, "error": {"message": message} | explain_mismatch(a.shape, b.shape)}


def explain_mismatch(a: Sequence[int], b: Sequence[int]) -> dict[str, Any]:
    """Two shapes, aligned at their last dimension: {"dimension": the last that does not fit, or None, "sizes"}."""
    sizes = [
        {"a": size_a, "b": size_b, "fits": match_sizes(size_a, size_b)[1] != "fault"}
        for size_a, size_b in zip_longest(reversed(a), reversed(b))
    ][::-1]
    faults = [dimension for dimension, each in enumerate(sizes) if not each["fits"]]
    return {"dimension": faults[-1] if faults else None, "sizes": sizes}


def explain_elements(name: str, a: Tensor, b: Tensor, result: Tensor) -> list[dict[str, Any]]:
    """Every element of a ∘ b that is not finite or compares a NaN: its index, and why."""
    sign = SIGNS[name]
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
    """Why x ∘ y is not finite, or how it compares a NaN, by the rules of IEEE 754."""
    if name in ("gt", "lt", "eq"):
        return "every comparison with NaN is false, even NaN == NaN"
    if math.isnan(x) or math.isnan(y):
        return "a computation with NaN gives NaN"
    if name == "div" and y == 0:
        return (
            "0 / 0 has no value"
            if x == 0
            else "division by 0 gives ∞, with the product of both signs, and no exception"
        )
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


def reduce_all(result: Tensor | None) -> dict[str, dict[str, Any]]:
    """Every reduction to one element: {"value", "dtype", "error": PyTorch's message or None}."""
    if result is None:
        return {}
    found = {}
    for name in REDUCTIONS:
        reduced, error = attempt(partial(reduction, result, name))
        there = {} if reduced is None else json_tensor(reduced)
        found[name] = {"value": there.get("values"), "dtype": there.get("dtype"), "error": error}
    return found


def explain_item(result: Tensor) -> dict[str, Any] | None:
    """`result.mean().item()` and the two roundings in it: of the sum, then of the quotient. None without a finite mean.

    Returns:
        "value": the Python number; "exact": its decimal digits; "binary": its 24 significant binary digits; "below" and
        "above": the float32 numbers next to it; "count": of the elements; "sum": exact; "float32_sum": rounded;
        "sum_error": rounded minus exact; "ratio": sum / count, exact; "ratio_digits": its binary digits, None if they
        never end; "rounded": the nearest float32, ties to even; "is_tie"; "error": value minus ratio. "sum_is_exact"
        and "ratio_is_exact" say whether the float64 in JSON is exact.
    """
    if not result.is_floating_point() or not result.numel() or not bool(result.isfinite().all()):
        return None
    value, float32_sum = mean_as_number(result), reduction(result, "sum").item()
    if not math.isfinite(value):
        return None
    total = sum((Fraction(each) for each in result.flatten().tolist()), Fraction(0))
    ratio = total / result.numel()
    rounded, is_tie = nearest_float32(ratio)
    below, above = _neighbours(value)
    return {
        "value": value,
        "exact": f"{Decimal(value):f}",
        "binary": _binary(value),
        "below": json_number(below),
        "above": json_number(above),
        "count": result.numel(),
        "sum": float(total),
        "sum_is_exact": Fraction(float(total)) == total,
        "float32_sum": float32_sum,
        "sum_error": float(Fraction(float32_sum) - total),
        "ratio": float(ratio),
        "ratio_is_exact": Fraction(float(ratio)) == ratio,
        "ratio_digits": _binary_digits(ratio),
        "rounded": rounded,
        "is_tie": is_tie,
        "error": float(Fraction(value) - ratio),
    }


def nearest_float32(exact: Fraction) -> tuple[float, bool]:
    """The float32 nearest to an exact number in range, and whether it is a tie; ties go to even (IEEE 754)."""
    # Rounding to float64 and then to float32 can be off by one: try the neighbours as well.
    twice = torch.tensor(float(exact), dtype=torch.float32).item()
    candidates = [each for each in (twice, *_neighbours(twice)) if math.isfinite(each)]
    distances = [abs(Fraction(each) - exact) for each in candidates]
    nearest = [each for each, distance in zip(candidates, distances, strict=True) if distance == min(distances)]
    return min(nearest, key=lambda each: _bits(each) & 1), len(nearest) > 1


def _neighbours(value: float) -> tuple[float, float]:
    """The float32 numbers below and above one."""
    number = torch.tensor(value, dtype=torch.float32)
    below, above = (torch.nextafter(number, torch.tensor(end)).item() for end in (-math.inf, math.inf))
    return below, above


def _bits(value: float) -> int:
    """The 32 bits of a float32."""
    return int.from_bytes(struct.pack(">f", value))


def _binary_digits(exact: Fraction) -> int | None:
    """The number of binary digits from the first 1 to the last; None if they never end."""
    numerator, denominator = abs(exact.numerator), exact.denominator
    if denominator & (denominator - 1):
        return None
    return numerator.bit_length() - ((numerator & -numerator).bit_length() - 1) if numerator else 1


def _binary(value: float) -> str | None:
    """A float32 in binary, `1001.10101010101010101011`; None for 0, subnormals and exponents outside -8 to 23."""
    bits = _bits(value)
    exponent = (bits >> 23 & 0xFF) - 127
    if not -8 <= exponent <= 23:
        return None
    digits = f"{1 << 23 | bits & 0x7FFFFF:024b}"
    digits = "0" * -exponent + digits
    point = max(exponent, 0) + 1
    before, after = digits[:point], digits[point:]
    return ("-" if value < 0 else "") + before + ("." + after if after else "")


PAGE = Page(
    name="arithmetic",
    title="Elementwise arithmetic",
    seed="002 Elementwise Arithmetic, Reduction Operators",
    lead="Operators work element by element, and reductions give one element. Different shapes are an error here.",
    inputs=(
        # −4 as in the chapter, which prints 12, 14, 3 for a + b; the extracted text has lost the minus sign.
        tensor("a", "10,6,-4", "The left operand.", MAX_NUMEL, dims=(0, 1, 2)),
        tensor("b", "2,8,7", "The right operand.", MAX_NUMEL, dims=(0, 1, 2)),
        choice("op", "add", "The operator between a and b.", tuple(SIGNS), label="operator"),
        tensor("m", "1,2,3;4,5,6;7,8,9", "A matrix, multiplied by itself.", MAX_NUMEL, dims=(0, 1, 2)),
        tensor("n", "1,2,3;4,5,6", "The second factor of m * n.", MAX_NUMEL, dims=(0, 1, 2)),
    ),
    answer=answer,
    listings=listings(arithmetic, comparisons, reduction, mean_as_number, elementwise_product),
    links=(
        Link(
            "an elementwise product and its sum, inside a matrix product",
            "program=matmul&rung=elementwise&widths=3,2&batch=2",
        ),
        Link("a tensor times a number", "program=mul_constant&constant=2"),
    ),
)
