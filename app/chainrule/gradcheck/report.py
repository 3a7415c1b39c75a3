"""A gradient check as JSON, for the chapter's Functions and for a user's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations.gradient_check import Checked, Comparison, GradientCheck

Shapes = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""Shapes of the outputs, and of the inputs."""

PROPERTIES = ("zero_for_zero", "takes_undefined", "forward_repeatable", "backward_repeatable")
"""The properties of a `GradientCheck` besides its comparisons."""

MAX_SHOWN = 64
"""Rows and columns of a Jacobian that a report holds."""


def check_report(check: GradientCheck, inputs: Sequence[str], outputs: Sequence[str], shapes: Shapes) -> dict[str, Any]:
    """{"passed", "max_difference", four other properties of `GradientCheck`, "comparisons": one per output and input}.

    For a large Jacobian the report holds the part around the worst element; the verdict includes all elements.
    """
    return {
        "passed": check.passed,
        "max_difference": json_number(check.max_difference),
        **{name: getattr(check, name) for name in PROPERTIES},
        "comparisons": [
            {
                "output": outputs[each.output],
                "input": inputs[each.input],
                "output_shape": list(shapes[0][each.output]),
                "input_shape": list(shapes[1][each.input]),
                "size": list(each.analytic.shape),
                "window": {"rows": rows, "columns": columns},
                "passed": each.passed,
                "max_difference": json_number(each.max_difference),
                "outside": int((~each.within).sum()),
                "worst": worst_element(each, shapes),
                "kink": kink_text(each),
                **{
                    name: json_tensor(getattr(each, name)[slice(*rows), slice(*columns)])
                    for name in ("analytic", "numeric", "difference", "tolerance", "within")
                },
            }
            for each in check.comparisons
            for rows, columns in [window(each)]
        ],
    }


def window(comparison: Comparison) -> tuple[list[int], list[int]]:
    """The rows and columns of the Jacobians to show, as [first, last + 1]: MAX_SHOWN around the worst element."""
    ranges = []
    for size, place in zip(comparison.analytic.shape, comparison.worst or (0, 0), strict=True):
        start = min(max(0, place - MAX_SHOWN // 2), max(0, size - MAX_SHOWN))
        ranges.append([start, min(size, start + MAX_SHOWN)])
    return ranges[0], ranges[1]


def worst_element(comparison: Comparison, shapes: Shapes) -> dict[str, Any] | None:
    """The element with the largest error relative to its tolerance: its place in output and input, and its values."""
    if comparison.worst is None:
        return None
    row, column = comparison.worst
    return {
        "row": row,
        "column": column,
        "output_index": index_of(row, shapes[0][comparison.output]),
        "input_index": index_of(column, shapes[1][comparison.input]),
        **{
            name: json_number(float(getattr(comparison, name)[row, column]))
            for name in ("analytic", "numeric", "difference", "tolerance")
        },
    }


def kink_text(comparison: Comparison) -> str | None:
    """The explanation of an error at a kink of the forward; None for other comparisons."""
    if comparison.kink is None:
        return None
    left, right = comparison.kink
    return (
        f"The forward has a kink here: the differences from the left ({left:.3g}) and the right ({right:.3g}) "
        "disagree. Move the input."
    )


def index_of(flat: int, shape: Sequence[int]) -> list[int]:
    """The index of an element of a shape, from its place in the flattened tensor."""
    return [int(each) for each in torch.unravel_index(torch.tensor(flat), tuple(shape))]


def torch_verdict(f: Checked, inputs: Sequence[Any], eps: float, atol: float, rtol: float) -> dict[str, Any]:
    """The verdict of `torch.autograd.gradcheck`: {"passed", "finds_fault", "message"}; the message is "" if it passes.

    "finds_fault": it found a difference. If it neither passed nor found one, it raised, perhaps because the function
    raised; then the message is the error's.
    """
    verdict = {"passed": False, "finds_fault": False, "message": ""}
    try:
        # It warns about every dtype other than float64, once per input; the page says this instead.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.autograd.gradcheck(f, tuple(inputs), eps=eps, atol=atol, rtol=rtol)
    except GradcheckError as error:
        return verdict | {"finds_fault": True, "message": str(error).strip()}
    except Exception as error:
        return verdict | {"message": f"{type(error).__name__}: {error}".strip()}
    return verdict | {"passed": True}


def output_names(count: int) -> list[str]:
    """`out`, or `out[0]`, `out[1]`, … if there are several outputs."""
    return ["out"] if count == 1 else [f"out[{index}]" for index in range(count)]


def shape_of(value: Any) -> list[int]:
    """A tensor's shape; [] for other values."""
    return list(value.shape) if isinstance(value, Tensor) else []
