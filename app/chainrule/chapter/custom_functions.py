"""The custom Functions that the pages run and check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule import stopping
from chainrule.foundations import exercises, functions

Outputs = Tensor | tuple[Tensor, ...]

CONSTANT = 3.0
"""MulConstant's default."""

SLOPE = 0.1
"""The slope of the leaky exercise."""


@dataclass(frozen=True, slots=True)
class CustomFunction:
    """A Function and the same computation in torch's own operations (`plain`).

    Attributes:
        shapes: per argument of forward: the names of its sizes ("batch", "n", "fan_out"), or a number that stands for
            itself.
        third_derivative: at every element of the first input; None if it is 0 for every input.
    """

    name: str
    function: type[Function]
    plain: Callable[..., Outputs]
    formula: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[tuple[str, ...] | float, ...]
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


def _linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = inp @ weight.t()
    return product if bias is None else product + bias


def _sin_cos(inp: Tensor) -> tuple[Tensor, Tensor]:
    return inp.sin(), inp.cos()


def _third_of_sin_cos(inp: Tensor) -> Tensor:
    """The larger of |−cos| and |sin|."""
    return torch.maximum(inp.cos().abs(), inp.sin().abs())


def _third_of_tanh(inp: Tensor) -> Tensor:
    """With t = tanh: t' = 1 − t², t'' = −2 t t', t''' = −2 t'² + 4 t² t'."""
    t = inp.tanh()
    return -2 * (1 - t * t) * (1 - 3 * t * t)


def _mean_and_spread(inp: Tensor) -> tuple[Tensor, Tensor]:
    return inp.mean(), inp.var(correction=0)


_ALL = ("batch", "n")

FUNCTIONS: Mapping[str, CustomFunction] = {
    each.name: each
    for each in (
        CustomFunction("my_relu", functions.MyRelu, torch.relu, "out = max(inp, 0)", ("inp",), ("out",), (_ALL,)),
        CustomFunction("exp", functions.Exp, torch.exp, "out = exp(inp)", ("inp",), ("out",), (_ALL,), torch.exp),
        CustomFunction(
            "mul_constant",
            functions.MulConstant,
            torch.mul,
            "out = constant · inp",
            ("inp", "constant"),
            ("out",),
            (_ALL, CONSTANT),
        ),
        CustomFunction(
            "linear_function",
            functions.LinearFunction,
            _linear,
            "out = inp @ weightᵀ + bias",
            ("inp", "weight", "bias"),
            ("out",),
            (_ALL, ("fan_out", "n"), ("fan_out",)),
        ),
        CustomFunction(
            "sin_cos",
            functions.SinCos,
            _sin_cos,
            "sin, cos = sin(inp), cos(inp)",
            ("inp",),
            ("sin", "cos"),
            (_ALL,),
            _third_of_sin_cos,
        ),
    )
}
"""The Functions of foundations/functions.py."""

EXERCISES: Mapping[str, CustomFunction] = {
    each.name: each
    for each in (
        CustomFunction("exercise_a", exercises.ExerciseA, torch.square, "out = inp²", ("inp",), ("out",), (_ALL,)),
        CustomFunction(
            "exercise_b",
            exercises.ExerciseB,
            torch.matmul,
            "out = inp @ weight",
            ("inp", "weight"),
            ("out",),
            (_ALL, ("n", "n")),
        ),
        CustomFunction(
            "exercise_c",
            exercises.ExerciseC,
            torch.nn.functional.leaky_relu,
            "out = inp where inp > 0, else slope · inp",
            ("inp", "slope"),
            ("out",),
            (_ALL, SLOPE),
        ),
        CustomFunction(
            "exercise_d", exercises.ExerciseD, torch.add, "out = inp + bias", ("inp", "bias"), ("out",), (_ALL, ("n",))
        ),
        CustomFunction("exercise_e", exercises.ExerciseE, torch.mul, "out = a · b", ("a", "b"), ("out",), (_ALL, _ALL)),
        CustomFunction(
            "exercise_f",
            exercises.ExerciseF,
            torch.tanh,
            "out = tanh(inp)",
            ("inp",),
            ("out",),
            (_ALL,),
            _third_of_tanh,
        ),
        CustomFunction(
            "exercise_g",
            exercises.ExerciseG,
            _mean_and_spread,
            "mean, spread = mean(inp), mean((inp − mean)²)",
            ("inp",),
            ("mean", "spread"),
            (_ALL,),
        ),
        CustomFunction(
            "exercise_h",
            exercises.ExerciseH,
            lambda inp: inp.square().sum(),
            "loss = Σ inp²",
            ("inp",),
            ("loss",),
            (_ALL,),
        ),
    )
}
"""The Functions of foundations/exercises.py, each with a mistake in its backward."""
