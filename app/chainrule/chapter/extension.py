"""The page of the C++ extension: whether it is built and what the build requires, its gradients, and a race."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import flag, integer, seed_input
from chainrule.chapter.matmul import measure, rounding_bound
from chainrule.chapter.page import Link, Page, listings
from chainrule.dump.json_values import json_number
from chainrule.foundations.functions import LinearFunction
from chainrule.foundations.gradient_check import ATOL, EPS, RTOL, gradient_check
from chainrule.foundations.layers import lin, lin_grad
from chainrule.foundations.linear_extension import LinearCpp, LinearCppLayer
from chainrule.foundations.linear_extension import library as extension
from chainrule.foundations.linear_extension.build import Requirement, cuda_requirements, requirements
from chainrule.gradcheck.report import torch_verdict

logger = logging.getLogger(__name__)

MAX_BATCH, MAX_FEATURES = 256, 512
"""The race takes at most 67 million multiplications forward, and twice as many backward."""

REPEAT_SECONDS = 0.06
"""Seconds over which each pass of each style is repeated."""

Backward = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class Style:
    """A way to write the linear layer. `forward` returns the output, and a function from its gradient to `Backward`."""

    name: str
    code: str
    forward: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Callable[[Tensor], Backward]]]


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"state", "requirements", "cuda_requirements", "check", "race", "gpu"}; "check" and "gpu" may be None."""
    state = built_state()
    sizes = (values["batch"], values["fan_in"], values["fan_out"])
    bias, seed = values["bias"], values["seed"]
    has_gpu = state["with_cuda"] and torch.cuda.is_available()
    return {
        "state": state,
        "requirements": [_requirement(each) for each in requirements()],
        "cuda_requirements": [_requirement(each) for each in cuda_requirements()],
        "check": check(seed, bias) if state["built"] else None,
        "race": race(*sizes, bias, seed, state),
        "gpu": {
            "name": torch.cuda.get_device_name(),
            "check": check(seed, bias, "cuda"),
            "race": race(*sizes, bias, seed, state, "cuda"),
        }
        if has_gpu
        else None,
    }


def built_state() -> dict[str, Any]:
    """Whether the extension loads, and why not; "broken": it is built, but does not load."""
    state: dict[str, Any] = {"built": False, "broken": False, "with_cuda": False, "file": None, "reason": None}
    try:
        loaded = extension.load_extension()
    except extension.ExtensionNotBuiltError as error:
        # The path on this machine goes to the log only.
        logger.warning("%s", error)
        state |= {"broken": extension.extension_path() is not None, "reason": error.public}
    else:
        state |= {"built": True, "with_cuda": loaded.with_cuda, "file": Path(loaded.__file__).name}
    return {**state, "torch": torch.__version__}


def _requirement(each: Requirement) -> dict[str, Any]:
    # The path where it was found is left out.
    return {"name": each.name, "purpose": each.purpose, "found": each.found is not None, "remedy": each.remedy}


def check(seed: int, has_bias: bool, device: str = "cpu") -> dict[str, Any]:
    """The gradient check of the C++ operator, Chainrule's and torch's, in float64 at a random point."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (2, 4), *([(2,)] if has_bias else [])]
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    point = [each.to(device).requires_grad_() for each in drawn]
    result = gradient_check(LinearCpp.apply, point)
    return {
        "shapes": [list(shape) for shape in shapes],
        "eps": EPS,
        "atol": ATOL,
        "rtol": RTOL,
        "passed": result.passed,
        "max_difference": json_number(result.max_difference),
        "torch": torch_verdict(LinearCpp.apply, point, EPS, ATOL, RTOL),
    }


def by_hand(inp: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Callable[[Tensor], Backward]]:
    """The chapter's functions: `lin`, and `lin_grad` that leaves the gradients in `.g`."""
    transposed = weight.detach().t()
    inputs = [inp.detach(), transposed, *([] if bias is None else [bias.detach()])]
    out = lin(*inputs)

    def prepare(grad_output: Tensor) -> Backward:
        out.g = grad_output  # type: ignore[attr-defined]

        def backward() -> Sequence[Tensor]:
            for each in inputs:
                each.g = None  # type: ignore[attr-defined]
            lin_grad(inputs[0], out, inputs[1], *inputs[2:])
            grads: list[Tensor] = [each.g for each in inputs]  # type: ignore[attr-defined]
            return [grads[0], grads[1].t(), *grads[2:]]

        return backward

    return out, prepare


def by_autograd(f: Callable[..., Any]) -> Callable[..., tuple[Tensor, Callable[[Tensor], Backward]]]:
    """The `forward` of a style whose backward autograd runs."""

    def forward(inp: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Callable[[Tensor], Backward]]:
        arguments = [each for each in (inp, weight, bias) if each is not None]
        out = f(*arguments)
        return out, lambda grad: lambda: torch.autograd.grad(out, arguments, grad, retain_graph=True)

    return forward


STYLES = (
    Style("lin, lin_grad", "lin(inp, w, b); lin_grad(inp, out, w, b)", by_hand),
    Style("LinearFunction", "LinearFunction.apply(inp, weight, bias)", by_autograd(LinearFunction.apply)),
    Style("LinearCpp", "LinearCpp.apply(inp, weight, bias)", by_autograd(LinearCpp.apply)),
    Style("F.linear", "torch.nn.functional.linear(inp, weight, bias)", by_autograd(F.linear)),
)


def race(
    batch: int, fan_in: int, fan_out: int, has_bias: bool, seed: int, state: Mapping[str, Any], device: str = "cpu"
) -> dict[str, Any]:
    """Every style's forward and backward on the same float32 tensors, and their difference from float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    inp = draw(batch, fan_in).requires_grad_()
    weight = (draw(fan_out, fan_in) / fan_in**0.5).requires_grad_()
    bias = draw(fan_out).requires_grad_() if has_bias else None
    grad_output = draw(batch, fan_out)
    expected = _expected(inp, weight, bias, grad_output)
    return {
        "batch": batch,
        "fan_in": fan_in,
        "fan_out": fan_out,
        "multiplications": batch * fan_in * fan_out,
        "threads": torch.get_num_threads(),
        "styles": [
            _row(style, (inp, weight, bias), grad_output, expected, state["built"] or style.name != "LinearCpp")
            for style in STYLES
        ],
    }


def _expected(inp: Tensor, weight: Tensor, bias: Tensor | None, grad_output: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Output and gradients in float64, each with the largest error that rounding to float32 can cause."""
    x, w, g = inp.detach(), weight.detach(), grad_output
    ones = x.new_ones(1, x.shape[0])
    wide_x, wide_w, wide_g = x.double(), w.double(), g.double()
    out = wide_x @ wide_w.t() + (0.0 if bias is None else bias.detach().double())
    # The bias is one more addition: its rounding is at most that of the sum.
    slack = torch.finfo(torch.float32).eps * out.abs()
    pairs = [
        (out, rounding_bound(x, w.t()) + slack),
        (wide_g @ wide_w, rounding_bound(g, w)),
        (wide_g.t() @ wide_x, rounding_bound(g.t(), x)),
    ]
    if bias is not None:
        pairs.append((wide_g.sum(0), rounding_bound(ones, g)[0]))
    return pairs


def _row(
    style: Style,
    arguments: tuple[Tensor, Tensor, Tensor | None],
    grad_output: Tensor,
    expected: Sequence[tuple[Tensor, Tensor]],
    is_there: bool,
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": style.name, "code": style.code, "available": is_there}
    if not is_there:
        return row | dict.fromkeys(("forward_seconds", "backward_seconds", "max_difference", "equal"))
    out, prepare = style.forward(*arguments)
    backward = prepare(grad_output)
    results = [out, *backward()]
    wait = torch.cuda.synchronize if out.is_cuda else lambda: None
    return row | {
        "forward_seconds": measure(lambda: style.forward(*arguments), REPEAT_SECONDS, wait)[0],
        "backward_seconds": measure(backward, REPEAT_SECONDS, wait)[0],
        "max_difference": json_number(
            max(max_difference(each.detach(), right) for each, (right, _) in zip(results, expected, strict=True))
        ),
        "equal": all(
            bool(((each.detach().double() - right).abs() <= bound).all())
            for each, (right, bound) in zip(results, expected, strict=True)
        ),
    }


PAGE = Page(
    name="extension",
    title="A C++ extension",
    seed="003 Custom operators: sections 6 to 9 of the series, the linear operator in C++ and CUDA",
    lead="The linear layer again: derived by indices, written in C++, compiled with PyTorch, and measured.",
    inputs=(
        integer("batch", 64, "Rows of inp.", 1, MAX_BATCH),
        integer("fan_in", 100, "Columns of inp.", 1, MAX_FEATURES),
        integer("fan_out", 50, "Rows of weight.", 1, MAX_FEATURES),
        flag("bias", True, "Add a bias."),
        seed_input("Seed of the random tensors."),
    ),
    answer=answer,
    listings=listings(
        extension.HEADER, extension.SOURCE, extension.CUDA_SOURCE, LinearCpp, LinearCppLayer, LinearFunction
    ),
    links=(Link("linear_cpp in the explorer, if the extension is built", "program=linear_cpp"),),
    timed=True,
)
