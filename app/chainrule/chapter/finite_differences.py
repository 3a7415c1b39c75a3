"""The error of a central difference at a step eps, and its two causes.

    error(eps) ≈ rounding / eps + truncation · eps²

    rounding    u (|f_i| + |x_j ∂f_i/∂x_j|), u half the dtype's ε: f is rounded, and so is x_j ± eps
    truncation  |∂³f_i/∂x_j³| / 6, the first term of the Taylor series that the difference leaves out

each is the largest over all elements. The sum is least at eps = (rounding / (2 truncation))^(1/3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from chainrule.chapter.custom_functions import CustomFunction
from chainrule.foundations.gradient_check import analytic_jacobians, as_tuple

STEPS: tuple[float, ...] = tuple(10.0 ** (exponent / 2) for exponent in range(-24, -1))
"""The steps of a curve: 1e-12 … 1e-1, two per decade."""


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The two coefficients of one function at one point in one dtype."""

    rounding: float
    truncation: float

    def at(self, eps: float) -> float:
        """The expected error at a step."""
        return self.rounding / eps + self.truncation * eps * eps

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
