# mypy: disable-error-code="attr-defined"
# (`.g` is ours: torch.Tensor declares no such attribute.)
"""The page of the backward pass: the chain rule of the chapter's model, gradient by gradient, each one checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import choice, integer, seed_input
from chainrule.chapter.page import Link, Page, listings
from chainrule.chapter.reference_model import autograd_pass, draw_model
from chainrule.chapter.tensor_summary import summary
from chainrule.dump.json_values import json_number
from chainrule.foundations.layers import forward_and_backward, lin_grad, mse, mse_grad, relu_grad
from chainrule.foundations.misprints import mse_grad_bare_squeeze, mse_grad_over_batch, mse_without_squeeze


@dataclass(frozen=True, slots=True)
class Stage:
    """A call of the backward pass, its function's `listing`, and the line of the forward pass (`local`).

    `rules`: the tensor of each gradient, the line that computes it, and its name in `derivations`.
    """

    name: str
    call: str
    listing: str
    local: str
    rules: Sequence[tuple[str, str, str]]


def _lin_stage(name: str, inp: str, out: str, w: str, b: str) -> Stage:
    rules = (
        (inp, "accumulate(inp, out.g @ w.t())", "lin_inp"),
        (w, "accumulate(w, inp.t() @ out.g)", "lin_w"),
        (b, "accumulate(b, out.g.sum(0))", "lin_b"),
    )
    return Stage(name, f"lin_grad({inp}, {out}, {w}, {b})", "lin_grad", f"{out} = {inp} @ {w} + {b}", rules)


_MSE_LINE = "accumulate(inp, (2.0 * (match_target(inp, targ) - targ) / targ.numel()).view_as(inp))"
_RELU_LINE = "accumulate(inp, (inp > 0).to(inp.dtype) * out.g)"

STAGES: Sequence[Stage] = (
    Stage("mse", "mse_grad(out, targ)", "mse_grad", "loss = mse(out, targ)", (("out", _MSE_LINE, "mse"),)),
    _lin_stage("lin 2", "l2", "out", "w2", "b2"),
    Stage("relu", "relu_grad(l1, l2)", "relu_grad", "l2 = relu(l1)", (("l1", _RELU_LINE, "relu"),)),
    _lin_stage("lin 1", "inp", "l1", "w1", "b1"),
)
"""The backward pass, in its order."""


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"loss", "stages": the four calls with their gradients, "derivations", "trials": products tried, "traps"}."""
    drawn = draw_model(values["batch"], values["n_in"], values["hidden"], values["n_out"], values["seed"])
    x, targ, w1, b1, w2, b2 = drawn
    stopping.check()
    l1, l2, out, loss = forward_and_backward(*drawn)
    tensors = {"inp": x, "w1": w1, "b1": b1, "l1": l1, "l2": l2, "w2": w2, "b2": b2, "out": out}
    stopping.check()
    _loss, by_autograd = autograd_pass(*drawn)
    reference = {**by_autograd, "inp": by_autograd["x"]}
    inp, w, layer_out = (x, w1, l1) if values["layer"] == "1" else (l2, w2, out)
    return {
        "loss": json_number(float(loss)),
        "stages": [_stage_answer(stage, tensors, reference) for stage in STAGES],
        "derivations": _derivations(),
        "trials": {
            "layer": values["layer"],
            "w": try_products("w.g", w.g, {"inp": inp, "out.g": layer_out.g}),
            "inp": try_products("inp.g", inp.g, {"out.g": layer_out.g, "w": w}),
        },
        "traps": mse_traps(out, targ),
    }


def _stage_answer(stage: Stage, tensors: Mapping[str, Any], reference: Mapping[str, Tensor]) -> dict[str, Any]:
    stopping.check()
    return {
        "name": stage.name,
        "call": stage.call,
        "listing": stage.listing,
        "local": stage.local,
        "gradients": [
            {
                "name": f"{name}.g",
                "line": line,
                "derivation": derivation,
                **summary(tensors[name].g),
                "autograd_difference": json_number(max_difference(tensors[name].g, reference[name])),
            }
            for name, line, derivation in stage.rules
        ],
    }


@cache
def _derivations() -> dict[str, Any]:
    # Imported here: SymPy takes longer to load than the whole package, and only this page needs it.
    from chainrule.foundations.derivations import derivations

    return {
        name: {
            "title": derivation.title,
            "code": derivation.code,
            "equations": [{"says": each.says, "mathml": each.mathml()} for each in derivation.equations],
        }
        for name, derivation in derivations().items()
    }


def try_products(name: str, expected: Tensor, operands: Mapping[str, Tensor]) -> dict[str, Any]:
    """All products of two named matrices, in both orders, transposed or not, beside the `expected` gradient.

    Returns:
        {"name", "shape", "operands", "fitting": the number of products with the gradient's shape, "right": the code of
        those that equal it, "trials"}. A trial has shape None and PyTorch's `error` if the product does not exist.
        `is_transpose`: it is the transposed gradient, which a weight of shape (fan_out, fan_in) needs.
    """
    first, second = ({name: each, f"{name}.t()": each.t()} for name, each in operands.items())
    pairs = (*product(first.items(), second.items()), *product(second.items(), first.items()))
    trials = [_trial(f"{left} @ {right}", x, y, expected) for (left, x), (right, y) in pairs]
    fitting = [trial for trial in trials if trial["fits"]]
    return {
        "name": name,
        "shape": list(expected.shape),
        "operands": [{"name": each, "shape": list(tensor.shape)} for each, tensor in operands.items()],
        "trials": trials,
        "fitting": len(fitting),
        "right": [trial["code"] for trial in fitting if trial["is_gradient"]],
    }


def _trial(code: str, left: Tensor, right: Tensor, expected: Tensor) -> dict[str, Any]:
    stopping.check()
    tried: dict[str, Any] = {"code": code, "left": list(left.shape), "right": list(right.shape)}
    try:
        result = left @ right
    except RuntimeError as error:
        verdict = {"fits": False, "difference": None, "is_gradient": False, "is_transpose": False}
        return {**tried, "shape": None, "error": str(error), **verdict}
    tolerance = 1e-4 * float(expected.abs().max()) + 1e-30
    difference, turned = (
        max_difference(result, each) if result.shape == each.shape else None for each in (expected, expected.t())
    )
    is_gradient = difference is not None and difference <= tolerance
    return {
        **tried,
        "shape": list(result.shape),
        "error": None,
        "fits": difference is not None,
        "difference": json_number(difference),
        "is_gradient": is_gradient,
        "is_transpose": turned is not None and turned <= tolerance and not is_gradient,
    }


def mse_traps(out: Tensor, targ: Tensor) -> dict[str, Any]:
    """The misprints of mse and its gradient beside autograd. out: (batch, n_out), targ: (batch,) if n_out = 1."""
    leaf = out.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(F.mse_loss(leaf, targ.view_as(leaf)), leaf)
    ways = {
        "2. * (inp - targ) / targ.shape[0]": mse_grad_over_batch(out.detach(), targ.view_as(out)),
        "2. * (inp.squeeze() - targ).unsqueeze(-1) / targ.shape[0]": mse_grad_bare_squeeze(out.detach(), targ),
    }
    gradients = []
    largest = float(gradient.abs().max())
    for code, found in ways.items():
        fits = found.shape == gradient.shape
        gradients.append(
            {
                "code": code,
                "shape": list(found.shape),
                "fits": fits,
                "difference": json_number(max_difference(found, gradient)) if fits else None,
                "times_too_large": json_number(float(found.abs().max()) / largest) if largest else None,
            }
        )
    return {
        "out": list(out.shape),
        "targ": list(targ.shape),
        "numel": targ.numel(),
        "batch": targ.shape[0],
        "squeezed": list(out.squeeze().shape),
        "loss": json_number(float(mse(out, targ))),
        "unsqueezed_loss": json_number(float(mse_without_squeeze(out, targ))),
        "unsqueezed_shape": list((out.detach() - targ).shape),
        "gradient_max": json_number(largest),
        "gradients": gradients,
    }


PAGE = Page(
    name="backward",
    title="The backward pass",
    seed="002 Gradients and the Backward Pass",
    lead="The chain rule, applied from the loss back to the input: each step uses the gradient of the step before.",
    inputs=(
        integer("batch", 200, "Rows of x.", 1, 256),
        integer("n_in", 100, "Inputs of the model.", 1, 256),
        integer("hidden", 50, "Units between the two layers.", 1, 256),
        integer("n_out", 1, "Outputs of the model.", 1, 32),
        seed_input("Seed of all random numbers."),
        choice(
            "layer", "2", "The layer whose products the page tries: out = l2 @ w2 + b2, or l1 = inp @ w1 + b1.", "12"
        ),
    ),
    answer=answer,
    listings=listings(forward_and_backward, mse_grad, lin_grad, relu_grad, mse_grad_over_batch),
    links=(
        Link("this model in the explorer, gradients by hand", "style=functions"),
        Link("one row, so squeeze also removes the batch axis", "batch=1&style=functions"),
        Link("three outputs", "widths=100,50,3&style=functions"),
    ),
)
