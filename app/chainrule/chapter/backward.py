# mypy: disable-error-code="attr-defined"
# (`.g` is ours: torch.Tensor declares no such attribute.)
"""The page of the backward pass: the chain rule of the chapter's model, gradient by gradient, each one checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
class Rule:
    """A line of a backward function, the tensor whose gradient it computes, and its name in `derivations`."""

    gradient: str
    line: str
    derivation: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A call of the backward pass, its function's `listing`, the line of the forward pass (`local`), its gradients."""

    name: str
    call: str
    listing: str
    local: str
    rules: Sequence[Rule]


def _lin_stage(name: str, inp: str, out: str, w: str, b: str) -> Stage:
    return Stage(
        name,
        f"lin_grad({inp}, {out}, {w}, {b})",
        "lin_grad",
        f"{out} = {inp} @ {w} + {b}",
        (
            Rule(inp, "accumulate(inp, out.g @ w.t())", "lin_inp"),
            Rule(w, "accumulate(w, inp.t() @ out.g)", "lin_w"),
            Rule(b, "accumulate(b, out.g.sum(0))", "lin_b"),
        ),
    )


STAGES: Sequence[Stage] = (
    Stage(
        "mse",
        "mse_grad(out, targ)",
        "mse_grad",
        "loss = mse(out, targ)",
        (Rule("out", "accumulate(inp, (2.0 * (match_target(inp, targ) - targ) / targ.numel()).view_as(inp))", "mse"),),
    ),
    _lin_stage("lin 2", "l2", "out", "w2", "b2"),
    Stage(
        "relu",
        "relu_grad(l1, l2)",
        "relu_grad",
        "l2 = relu(l1)",
        (Rule("l1", "accumulate(inp, (inp > 0).to(inp.dtype) * out.g)", "relu"),),
    ),
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
    if values["layer"] == "1":
        inp, w, of_out, of_w = "inp", "w1", l1.g, w1.g
    else:
        inp, w, of_out, of_w = "l2", "w2", out.g, w2.g
    return {
        "loss": json_number(float(loss)),
        "stages": [_stage_answer(stage, tensors, reference) for stage in STAGES],
        "derivations": _derivations(),
        "trials": {
            "layer": values["layer"],
            "w": try_products("w.g", of_w, {"inp": tensors[inp], "out.g": of_out}),
            "inp": try_products("inp.g", tensors[inp].g, {"out.g": of_out, "w": tensors[w]}),
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
                "name": f"{rule.gradient}.g",
                "line": rule.line,
                "derivation": rule.derivation,
                **summary(tensors[rule.gradient].g),
                "autograd_difference": json_number(max_difference(tensors[rule.gradient].g, reference[rule.gradient])),
            }
            for rule in stage.rules
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
    (first, a), (second, b) = operands.items()
    forms = {first: a, f"{first}.t()": a.t()}, {second: b, f"{second}.t()": b.t()}
    trials = []
    for left_forms, right_forms in (forms, forms[::-1]):
        for left, x in left_forms.items():
            for right, y in right_forms.items():
                trials.append(_trial(f"{left} @ {right}", x, y, expected))
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
        product = left @ right
    except RuntimeError as error:
        verdict = {"fits": False, "difference": None, "is_gradient": False, "is_transpose": False}
        return {**tried, "shape": None, "error": str(error), **verdict}
    fits = product.shape == expected.shape
    tolerance = 1e-4 * float(expected.abs().max()) + 1e-30
    difference = max_difference(product, expected) if fits else None
    turned = product.shape == expected.t().shape and max_difference(product, expected.t()) <= tolerance
    return {
        **tried,
        "shape": list(product.shape),
        "error": None,
        "fits": fits,
        "difference": None if difference is None else json_number(difference),
        "is_gradient": difference is not None and difference <= tolerance,
        "is_transpose": turned and not (difference is not None and difference <= tolerance),
    }


def mse_traps(out: Tensor, targ: Tensor) -> dict[str, Any]:
    """The misprints of mse and its gradient beside autograd. out: (batch, n_out), targ: (batch,) if n_out = 1."""
    leaf = out.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(F.mse_loss(leaf, targ.view_as(leaf)), leaf)
    ways: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor], Tensor], ...] = (
        ("2. * (inp - targ) / targ.shape[0]", mse_grad_over_batch, targ.view_as(out)),
        ("2. * (inp.squeeze() - targ).unsqueeze(-1) / targ.shape[0]", mse_grad_bare_squeeze, targ),
    )
    gradients = []
    for code, way, target in ways:
        found = way(out.detach(), target)
        fits = found.shape == gradient.shape
        largest = float(gradient.abs().max())
        gradients.append(
            {
                "code": code,
                "shape": list(found.shape),
                "fits": fits,
                "difference": json_number(max_difference(found, gradient)) if fits else None,
                "times_too_large": json_number(float(found.abs().max()) / largest) if largest else None,
            }
        )
    difference = out.detach() - targ
    return {
        "out": list(out.shape),
        "targ": list(targ.shape),
        "numel": targ.numel(),
        "batch": targ.shape[0],
        "squeezed": list(out.squeeze().shape),
        "loss": json_number(float(mse(out, targ))),
        "unsqueezed_loss": json_number(float(mse_without_squeeze(out, targ))),
        "unsqueezed_shape": list(difference.shape),
        "gradient_max": json_number(float(gradient.abs().max())),
        "gradients": gradients,
    }


PAGE = Page(
    name="backward",
    title="The backward pass",
    seed="002 Gradients and the Backward Pass",
    lead="The chain rule, applied from the loss back to the input: every step needs the gradient just found.",
    inputs=(
        integer("batch", 200, "Rows of x.", 1, 256),
        integer("n_in", 100, "Inputs of the model.", 1, 256),
        integer("hidden", 50, "Units between the two layers.", 1, 256),
        integer("n_out", 1, "Outputs of the model.", 1, 32),
        seed_input("Of all draws."),
        choice("layer", "2", "Whose products are tried: out = l2 @ w2 + b2, or l1 = inp @ w1 + b1.", "12"),
    ),
    answer=answer,
    listings=listings(forward_and_backward, mse_grad, lin_grad, relu_grad, mse_grad_over_batch),
    links=(
        Link("this model in the explorer, gradients by hand", "style=functions"),
        Link("one row, so that a squeeze takes the batch axis too", "batch=1&style=functions"),
        Link("three outputs", "widths=100,50,3&style=functions"),
    ),
)
