"""Arithmetic on whole tensors: operators and comparisons element by element, and reductions to one element.

    arithmetic            + − * /     a tensor of numbers
    comparisons           > < ==      a tensor of True and False
    elementwise_product   m * n       of two matrices: not their product, which is `matmul`
    reduction             all, sum or mean of what an operator gives: a tensor of one element
    mean_as_number        t.mean().item(), a number of Python

Operands of one shape go together, and those that broadcasting makes so; others are refused with a RuntimeError that
names the sizes and the dimension. Source: ch. 17, "Elementwise Arithmetic", and of the notes on it "Reduction
Operators". The chapter says that the shapes must be the same; PyTorch asks for less, see `broadcasting`.
"""

from __future__ import annotations

from torch import Tensor


def arithmetic(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """PyTorch's name of each operator → a ∘ b, one number for each pair of elements that stand in the same place.

    a, b: of one shape, or of shapes that broadcast; the results have the broadcast shape. Integers divide to floats.
    """
    return {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "div": a / b,
    }


def comparisons(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """PyTorch's name of each comparison → a ∘ b, a tensor of bool; shapes as for `arithmetic`.

    With a NaN every one of them is False, NaN == NaN too.
    """
    return {
        "gt": a > b,
        "lt": a < b,
        "eq": a == b,
    }


def elementwise_product(m: Tensor, n: Tensor) -> Tensor:
    """Element i, j of m times element i, j of n; shapes as for `arithmetic`."""
    return m * n


def reduction(t: Tensor, name: str) -> Tensor:
    """All elements of t reduced to one, a tensor (): "all", "sum" or "mean".

    all: whether every element is true, which numbers are unless they are 0; of no elements True.
    sum: of bools it counts those that are True, as an int64.
    mean: the sum divided by the number of elements, both in t's dtype. RuntimeError for bools and integers, whose mean
        would not be one of them. The mean of no elements is NaN.

    Raises ValueError for other names.
    """
    if name == "all":
        return t.all()
    if name == "sum":
        return t.sum()
    if name == "mean":
        return t.mean()
    raise ValueError(f"reduction: expected all, sum or mean, got {name!r}")


def mean_as_number(t: Tensor) -> float:
    """The mean as a number of Python: `item` turns a tensor of one element into one, and keeps every digit of it.

    A float32 has 24 binary digits and Python's float 53, so that it prints what was rounded away before:
    29 / 3 = 9.666666666666666, but the mean of [12., 14., 3.] in float32 prints as 9.666666984558105.
    """
    return t.mean().item()
