"""The custom Functions that the pages run and check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule import stopping
from chainrule.foundations import exercises, functions

Outputs = Tensor | tuple[Tensor, ...]

ALL = ("batch", "n")

CONSTANT = 3.0
"""MulConstant's default."""

SLOPE = 0.1
"""The slope of the leaky exercise."""


@dataclass(frozen=True, slots=True)
class CustomFunction:
    """A Function and the same computation in torch's own operations (`plain`).

    `shapes`: per argument of forward the names of its sizes ("batch", "n", "fan_out"), or a number that stands for
    itself. `third_derivative`: at every element of the first input; None if it is 0 for every input.
    """

    name: str
    function: type[Function]
    plain: Callable[..., Outputs]
    formula: str
    inputs: tuple[str, ...] = ("inp",)
    outputs: tuple[str, ...] = ("out",)
    shapes: tuple[tuple[str, ...] | float, ...] = (ALL,)
    third_derivative: Callable[[Tensor], Tensor] | None = None

    def apply(self, *arguments: Any, **keywords: Any) -> Outputs:
        """Call the Function; the work can be stopped before each call, since a Jacobian takes many."""
        stopping.check()
        outputs: Outputs = self.function.apply(*arguments, **keywords)  # type: ignore[no-untyped-call]
        return outputs

    def draw(self, sizes: Mapping[str, int], generator: torch.Generator) -> tuple[Any, ...]:
        """Random arguments from N(0, 1): float64 tensors whose values float32 holds too; all require grad."""
        return tuple(
            torch.randn([sizes[name] for name in shape], generator=generator).double().requires_grad_()
            if isinstance(shape, tuple)
            else shape
            for shape in self.shapes
        )


def _third_of_tanh(inp: Tensor) -> Tensor:
    """With t = tanh: t' = 1 − t², t'' = −2 t t', t''' = −2 t'² + 4 t² t'."""
    t = inp.tanh()
    return -2 * (1 - t * t) * (1 - 3 * t * t)


FUNCTIONS: Mapping[str, CustomFunction] = {
    each.name: each
    for each in (
        CustomFunction("my_relu", functions.MyRelu, torch.relu, "out = max(inp, 0)"),
        CustomFunction("exp", functions.Exp, torch.exp, "out = exp(inp)", third_derivative=torch.exp),
        CustomFunction(
            "mul_constant",
            functions.MulConstant,
            torch.mul,
            "out = constant · inp",
            inputs=("inp", "constant"),
            shapes=(ALL, CONSTANT),
        ),
        CustomFunction(
            "linear_function",
            functions.LinearFunction,
            torch.nn.functional.linear,
            "out = inp @ weightᵀ + bias",
            inputs=("inp", "weight", "bias"),
            shapes=(ALL, ("fan_out", "n"), ("fan_out",)),
        ),
        CustomFunction(
            "sin_cos",
            functions.SinCos,
            lambda inp: (inp.sin(), inp.cos()),
            "sin, cos = sin(inp), cos(inp)",
            outputs=("sin", "cos"),
            third_derivative=lambda inp: torch.maximum(inp.cos().abs(), inp.sin().abs()),
        ),
    )
}
"""The Functions of foundations/functions.py."""

EXERCISES: Mapping[str, CustomFunction] = {
    f"exercise_{each.name}": replace(each, name=f"exercise_{each.name}")
    for each in (
        CustomFunction("a", exercises.ExerciseA, torch.square, "out = inp²"),
        CustomFunction(
            "b", exercises.ExerciseB, torch.matmul, "out = inp @ weight", ("inp", "weight"), shapes=(ALL, ("n", "n"))
        ),
        CustomFunction(
            "c",
            exercises.ExerciseC,
            torch.nn.functional.leaky_relu,
            "out = inp where inp > 0, else slope · inp",
            inputs=("inp", "slope"),
            shapes=(ALL, SLOPE),
        ),
        CustomFunction("d", exercises.ExerciseD, torch.add, "out = inp + bias", ("inp", "bias"), shapes=(ALL, ("n",))),
        CustomFunction("e", exercises.ExerciseE, torch.mul, "out = a · b", ("a", "b"), shapes=(ALL, ALL)),
        CustomFunction("f", exercises.ExerciseF, torch.tanh, "out = tanh(inp)", third_derivative=_third_of_tanh),
        CustomFunction(
            "g",
            exercises.ExerciseG,
            lambda inp: (inp.mean(), inp.var(correction=0)),
            "mean, spread = mean(inp), mean((inp − mean)²)",
            outputs=("mean", "spread"),
        ),
        CustomFunction("h", exercises.ExerciseH, lambda inp: inp.square().sum(), "loss = Σ inp²", outputs=("loss",)),
    )
}
"""The Functions of foundations/exercises.py, each with a mistake in its backward."""
