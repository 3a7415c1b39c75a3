"""The page of the gradient check: two Jacobians, their difference, and its dependence on step and dtype.

The error of a central difference at a step eps has two causes:

    error(eps) ≈ rounding / eps + truncation · eps²

    rounding    u (|f_i| + |x_j ∂f_i/∂x_j|), u half the dtype's ε: f is rounded, and so is x_j ± eps
    truncation  |∂³f_i/∂x_j³| / 6, the first term of the Taylor series that the difference leaves out

each is the largest over all elements. The sum is least at eps = (rounding / (2 truncation))^(1/3).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from chainrule.chapter.custom_functions import EXERCISES, FUNCTIONS, CustomFunction
from chainrule.chapter.inputs import choice, flag, integer, number, seed_input
from chainrule.chapter.page import Link, Listing, Page, listings
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.foundations import gradient_check as textbook
from chainrule.foundations.exercises import SOLUTIONS
from chainrule.foundations.gradient_check import analytic_jacobians, as_tuple, gradient_check, step_errors, with_dtype
from chainrule.gradcheck.report import check_report, shape_of, torch_verdict

MAX_SIZE = 5
"""The largest batch, n and fan_out: the Jacobian of linear_function is then (25, 25)."""

DTYPES = {"float64": torch.float64, "float32": torch.float32}

CASES: Mapping[str, CustomFunction] = {**FUNCTIONS, **EXERCISES}


STEPS: tuple[float, ...] = tuple(10.0 ** (exponent / 2) for exponent in range(-24, -1))
"""The steps of a curve: 1e-12 … 1e-1, two per decade."""


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The two coefficients of one function at one point in one dtype."""

    rounding: float
    truncation: float

    @property
    def best_step(self) -> float | None:
        """The step of the least error; None without truncation, since then a larger step is always better."""
        if self.truncation == 0 or not math.isfinite(self.truncation):
            return None
        return math.cbrt(self.rounding / (2 * self.truncation))


def expected_error(case: CustomFunction, inputs: Sequence[Any], dtype: torch.dtype) -> ExpectedError:
    """The coefficients for the forward of a Function at a float64 point."""
    values = as_tuple(case.plain(*inputs))
    scales = []
    for (output, position), jacobian in analytic_jacobians(case.plain, inputs).items():
        value, point = values[output].detach().reshape(-1, 1), inputs[position].detach().reshape(1, -1)
        scale = value.abs() + (jacobian * point).abs()
        # Where the output does not depend on the element the difference is 0, exactly.
        scales.append(torch.where(jacobian == 0, torch.zeros_like(scale), scale).max())
    truncation = 0.0
    if case.third_derivative is not None:
        truncation = float(case.third_derivative(inputs[0].detach()).abs().max()) / 6
    return ExpectedError(torch.finfo(dtype).eps / 2 * float(torch.stack(scales).max()), truncation)


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """The check in both dtypes with torch's verdicts, the error at every step, and the exercise's solution."""
    case = CASES[values["function"]]
    generator = torch.Generator().manual_seed(values["seed"])
    point = case.draw({name: values[name] for name in ("batch", "n", "fan_out")}, generator)
    if values["kink"]:
        with torch.no_grad():
            point[0].view(-1)[0] = 0.0
    tolerances = {name: values[name] for name in ("eps", "atol", "rtol")}
    return {
        "function": case.name,
        "is_exercise": case.name in EXERCISES,
        "formula": case.formula,
        "dtype": values["dtype"],
        **tolerances,
        "inputs": [
            {"name": name, **(json_tensor(each) if isinstance(each, torch.Tensor) else {"value": each})}
            for name, each in zip(case.inputs, point, strict=True)
        ],
        "checks": {name: check_in(case, with_dtype(point, dtype), tolerances) for name, dtype in DTYPES.items()},
        "steps": step_curves(case, point),
        "solution": solution(case),
    }


def check_in(case: CustomFunction, point: Sequence[Any], tolerances: Mapping[str, float]) -> dict[str, Any]:
    """The check at a point in the dtype that it has, and torch's verdict on it."""
    outputs = as_tuple(case.apply(*point))
    shapes = ([shape_of(each) for each in outputs], [shape_of(each) for each in point])
    check = gradient_check(case.apply, point, **tolerances)
    return {
        **check_report(check, case.inputs, case.outputs, shapes),
        "torch": torch_verdict(case.apply, point, **tolerances),
    }


def step_curves(case: CustomFunction, point: Sequence[Any]) -> dict[str, Any]:
    """{"eps": [...], dtype: {"measured", "rounding", "truncation", "best_step"}}.

    `measured` is the largest |analytic − numeric| at each step, which is rounding / eps + truncation · eps² if right.
    """
    curves: dict[str, Any] = {"eps": list(STEPS)}
    for name, dtype in DTYPES.items():
        expected = expected_error(case, point, dtype)
        curves[name] = {
            "measured": [json_number(each) for each in step_errors(case.apply, with_dtype(point, dtype), STEPS)],
            "rounding": expected.rounding,
            "truncation": expected.truncation,
            "best_step": expected.best_step,
            "machine_epsilon": torch.finfo(dtype).eps,
        }
    return curves


def solution(case: CustomFunction) -> dict[str, Any] | None:
    """The mistake of an exercise: {"line", "wrong", "right", "shows"}; None for other Functions."""
    found = SOLUTIONS.get(case.function)
    if found is None:
        return None
    lines, first = inspect.getsourcelines(case.function)
    line = first + next(index for index, text in enumerate(lines) if text.strip() == found.wrong)
    return {"line": line, "wrong": found.wrong, "right": found.right, "shows": found.shows}


_CHECKED = "The Function to check: one of the chapter, or one with a mistake in its backward."

PAGE = Page(
    name="gradcheck",
    title="Gradient check",
    seed="001 Extending torch.autograd: gradcheck",
    lead="A backward is correct if its Jacobian matches finite differences of the forward, element by element.",
    inputs=(
        choice("function", "linear_function", _CHECKED, tuple(CASES), label="Function"),
        choice("dtype", "float64", "The heatmaps show the check in this dtype.", tuple(DTYPES)),
        number("eps", "1e-6", "Step of the central difference: each element moves by ±eps.", 1e-12, 1.0),
        number("atol", "1e-5", "Absolute tolerance.", 0.0, 1.0),
        number("rtol", "1e-3", "Tolerance relative to the numeric value.", 0.0, 1.0),
        integer("batch", 3, "Rows of inp.", 1, MAX_SIZE),
        integer("n", 3, "Columns of inp.", 1, MAX_SIZE),
        integer("fan_out", 2, "Outputs of linear_function.", 1, MAX_SIZE),
        seed_input("Seed of the random point."),
        flag("kink", False, "Sets the first element of the first input to relu's kink, 0.", label="first element at 0"),
    ),
    answer=answer,
    listings=(
        *listings(textbook.gradient_check, textbook.numeric_jacobians, textbook.analytic_jacobians),
        *(Listing(case.name, case.function) for case in CASES.values()),
    ),
    links=tuple(
        Link(f"{name} in the explorer", f"program={'two_outputs' if name == 'sin_cos' else name}") for name in FUNCTIONS
    ),
)
