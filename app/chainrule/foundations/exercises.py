# mypy: disable-error-code="no-any-return"
# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
"""Backward passes with a mistake in each, to be found by a gradient check.

Every forward here is right, and computes what the docstring says; one line of every backward is wrong, and all of them
run without a word. `SOLUTIONS`, at the end of the file, names the line and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class ExerciseA(Function):
    """`out = inp²`, all of one shape."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:
        ctx.save_for_backward(inp)
        return inp * inp

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (inp,) = ctx.saved_tensors
        return grad_output * inp


class ExerciseB(Function):
    """`out = inp @ weight`: (batch, n) @ (n, n)."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inp, weight)
        return inp @ weight

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        inp, weight = ctx.saved_tensors
        grad_inp = grad_output @ weight
        grad_weight = inp.t() @ grad_output
        return grad_inp, grad_weight


class ExerciseC(Function):
    """`out = inp where inp > 0, else slope · inp`, all of one shape; the slope is a number."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(inp)
        ctx.slope = slope
        return torch.where(inp > 0, inp, slope * inp)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        """The gradient of inp, and None for the slope."""
        (inp,) = ctx.saved_tensors
        grad_input = torch.where(inp < 0, grad_output, ctx.slope * grad_output)
        return grad_input, None


class ExerciseD(Function):
    """`out = inp + bias`: (batch, n) + (n,)."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor, bias: Tensor) -> Tensor:  # noqa: ARG004
        return inp + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        grad_inp = grad_output
        grad_bias = grad_output[0]
        return grad_inp, grad_bias


class ExerciseE(Function):
    """`out = a · b`, element by element, all of one shape."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        grad_a = grad_output * b
        grad_b = grad_output * a
        return grad_b, grad_a


class ExerciseF(Function):
    """`out = tanh(inp)`, all of one shape."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:
        out = inp.tanh()
        ctx.save_for_backward(inp)
        return out

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return grad_output * (1 - out * out)


class ExerciseG(Function):
    """`mean, spread = mean(inp), mean((inp − mean)²)`, two numbers of a vector of any shape."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> tuple[Tensor, Tensor]:
        mean = inp.mean()
        spread = (inp - mean).square().mean()
        ctx.save_for_backward(inp, mean)
        return mean, spread

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_spread: Tensor) -> Tensor:
        inp, mean = ctx.saved_tensors
        from_mean = torch.full_like(inp, 1.0 / inp.numel()) * grad_mean
        from_spread = 2.0 * (inp - mean) * grad_spread
        return from_mean + from_spread


class ExerciseH(Function):
    """`loss = Σ inp²`, a number."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:
        ctx.save_for_backward(inp)
        return inp.square().sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:  # noqa: ARG004
        (inp,) = ctx.saved_tensors
        return 2.0 * inp


@dataclass(frozen=True, slots=True)
class Solution:
    """The line that is wrong, as it stands there; the line that is right; what the Jacobians show of it."""

    wrong: str
    right: str
    shows: str


SOLUTIONS: Mapping[Callable[..., Any], Solution] = {
    ExerciseA: Solution(
        "return grad_output * inp",
        "return grad_output * 2 * inp",
        "A factor of 2 is missing: every analytic element is half the numeric element.",
    ),
    ExerciseB: Solution(
        "grad_inp = grad_output @ weight",
        "grad_inp = grad_output @ weight.t()",
        "A transpose is missing. The weight is square, so the shapes fit: each block of the analytic Jacobian of inp "
        "is the transpose of the numeric block, and correct only on its diagonal.",
    ),
    ExerciseC: Solution(
        "grad_input = torch.where(inp < 0, grad_output, ctx.slope * grad_output)",
        "grad_input = torch.where(inp > 0, grad_output, ctx.slope * grad_output)",
        "The mask selects the wrong side: 1 and the slope are swapped.",
    ),
    ExerciseD: Solution(
        "grad_bias = grad_output[0]",
        "grad_bias = grad_output.sum(0)",
        "The sum over the batch is missing: only the first row of the output reaches the bias. (Returning grad_output "
        "itself raises no error: autograd sums a larger gradient to the shape of its input.)",
    ),
    ExerciseE: Solution(
        "return grad_b, grad_a",
        "return grad_a, grad_b",
        "The two gradients are swapped. Their shapes are equal, so there is no error.",
    ),
    ExerciseF: Solution(
        "ctx.save_for_backward(inp)",
        "ctx.save_for_backward(out)",
        "The wrong tensor is saved: the slope is 1 − inp² instead of 1 − tanh(inp)². The two are close only near zero.",
    ),
    ExerciseG: Solution(
        "from_spread = 2.0 * (inp - mean) * grad_spread",
        "from_spread = 2.0 * (inp - mean) * grad_spread / inp.numel()",
        "The mean's 1/n is missing for one of two outputs. The Jacobian of the other output is correct.",
    ),
    ExerciseH: Solution(
        "return 2.0 * inp",
        "return grad_output * 2.0 * inp",
        "The factor grad_output is missing. For a loss grad_output is 1, so both Jacobians agree. Only the test with a "
        "grad_output of 0, which must give 0, finds the mistake.",
    ),
}
