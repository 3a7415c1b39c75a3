"""The page of the five styles: the same model written five times, the steps between them, and their agreement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import choice, integer, number, seed_input
from chainrule.chapter.page import Link, Listing, Page
from chainrule.chapter.reference_model import autograd_pass, draw_model
from chainrule.chapter.style_code import PAIRS, TITLES, side_by_side
from chainrule.dump.json_values import json_number
from chainrule.errors import InputError
from chainrule.foundations import layer_function, layers, misprints, modules
from chainrule.foundations.gradient_check import same_elements
from chainrule.foundations.initialization import generator_for
from chainrule.foundations.styles import LEAVES, STYLES, Pass, run_style

HALF = ("bfloat16", "float16")
HALF_MULTIPLICATIONS = 2_000_000
"""The most in half precision, which a CPU without instructions for it computes a hundred times slower."""
ALL = "all five"


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"code": side by side, "runs": every style's pass, "apart": differences between styles, "misprint", "modules"}.

    Raises:
        InputError: the model is too large for half precision.
    """
    sizes = values["batch"], values["n_in"], values["hidden"], values["n_out"]
    x, targ, *parameters = draw_model(*sizes, values["seed"], values["scale"])
    cost = values["batch"] * values["hidden"] * (values["n_in"] + values["n_out"])
    if values["dtype"] in HALF and cost > HALF_MULTIPLICATIONS:
        raise InputError(
            f"dtype: {values['dtype']} is slow on a CPU, so at most {HALF_MULTIPLICATIONS:,} multiplications are "
            f"allowed; batch × hidden × (n_in + n_out) is {cost:,}",
            field="dtype",
            limit=HALF_MULTIPLICATIONS,
        )
    dtype = getattr(torch, values["dtype"])
    given = [tensor.to(dtype) for tensor in (x, targ, *parameters)]
    passes = {}
    for name in STYLES:
        stopping.check()
        passes[name] = run_style(name, *given)
    stopping.check()
    return {
        "code": side_by_side(),
        **compare(passes, Pass(*autograd_pass(*(tensor.double() for tensor in given)))),
        "misprint": run_misprint(),
        "modules": run_modules(values["n_in"], values["hidden"], values["n_out"], values["seed"], x, targ),
    }


def compare(passes: Mapping[str, Pass], reference: Pass) -> dict[str, Any]:
    """Every style's gradients beside those of float64 autograd, and the styles beside each other.

    "apart" and "identical" have a row per style with an entry per style: the largest difference of any gradient, and
    whether all gradients are equal, NaN included.
    """
    runs = []
    for name, made in passes.items():
        stopping.check()
        found = {}
        for leaf, gradient in made.gradients.items():
            expected = reference.gradients[leaf]
            largest = float(expected.abs().max())
            difference = max_difference(gradient, expected)
            found[leaf] = {
                "difference": json_number(difference),
                "relative": json_number(difference / largest) if 0 < largest < torch.inf else None,
                "nan": int(gradient.isnan().sum()),
                "inf": int(gradient.isinf().sum()),
            }
        runs.append({"style": name, "loss": json_number(float(made.loss)), "gradients": found})
    pairs = [[(one, other) for other in passes.values()] for one in passes.values()]
    return {
        "leaves": list(LEAVES),
        "shapes": {leaf: list(reference.gradients[leaf].shape) for leaf in LEAVES},
        "reference_loss": json_number(float(reference.loss)),
        "runs": runs,
        "non_finite": non_finite([*passes.values()]),
        "apart": [[json_number(_apart(one, other, max_difference)) for one, other in row] for row in pairs],
        "identical": [[_apart(one, other, _differ) == 0 for one, other in row] for row in pairs],
    }


def non_finite(passes: Sequence[Pass]) -> dict[str, Any]:
    """The number of NaN and ±∞ in all gradients of each pass, and whether they are the same elements in every pass."""
    flat = [torch.cat([made.gradients[leaf].double().flatten() for leaf in LEAVES]) for made in passes]
    # Finite values are left out: they differ by rounding.
    odd = [torch.where(each.isfinite(), torch.zeros_like(each), each) for each in flat]
    return {
        "elements": flat[0].numel(),
        "nan": [int(each.isnan().sum()) for each in flat],
        "inf": [int(each.isinf().sum()) for each in flat],
        "same": all(_differ(odd[0], each) == 0 for each in odd),
    }


def _apart(one: Pass, other: Pass, by: Callable[[Tensor, Tensor], float]) -> float:
    found = [by(one.gradients[leaf], other.gradients[leaf]) for leaf in LEAVES]
    # max() would drop a NaN that does not stand first.
    return float(torch.tensor(found, dtype=torch.float64).max())


def _differ(one: Tensor, other: Tensor) -> float:
    """The number of different elements; NaN equals NaN."""
    return float((~same_elements(one, other)).sum())


def run_misprint() -> dict[str, Any]:
    """Call backward of `Lin` on LayerFunction, as printed and as meant."""
    inp, w, b = torch.ones(4, 3), torch.ones(3, 2), torch.zeros(2)
    ran = []
    for layer in (misprints.Lin(w, b), layer_function.Lin(w, b)):
        layers.zero_grad(inp, w, b)
        layer(inp).g = torch.ones(4, 2)  # type: ignore[attr-defined]
        error = _raised(layer.backward)
        there = [name for name, tensor in (("inp.g", inp), ("w.g", w), ("b.g", b)) if tensor.g is not None]  # type: ignore[attr-defined]
        ran.append({"error": error, "gradients": there, "attributes": sorted(vars(layer))})
    return {"as_printed": ran[0], "mended": ran[1]}


def run_modules(n_in: int, hidden: int, n_out: int, seed: int, x: Tensor, targ: Tensor) -> dict[str, Any]:
    """LinearLayer, the chapter's two Models, and a layer without `super().__init__()`."""
    layer = modules.LinearLayer(10, 2, generator=generator_for(seed, "layer"))
    made = {
        of.__name__: of(n_in, hidden, n_out, generator=generator_for(seed, "model"))
        for of in (modules.SequentialModel, modules.AutoSuperModel)
    }
    return {
        "linear_layer": [list(parameter.shape) for parameter in layer.parameters()],
        "forgotten": _raised(lambda: misprints.ForgetfulLayer(10, 2)),
        "models": [
            {
                "name": name,
                "loss": json_number(float(model(x, targ).detach())),
                "parameters": [
                    {"name": path, "shape": list(parameter.shape)} for path, parameter in model.named_parameters()
                ],
            }
            for name, model in made.items()
        ],
    }


def _raised(call: Callable[[], object]) -> dict[str, str] | None:
    """The type and message of the AttributeError that a call raises; None if it raises none."""
    try:
        call()
    except AttributeError as error:
        return {"type": type(error).__name__, "message": str(error)}
    return None


PAGE = Page(
    name="styles",
    title="Five styles",
    seed="002 Refactoring the Model, Going to PyTorch; 000",
    lead="One model in five styles: each style moves repeated code to one place, and the numbers stay the same.",
    inputs=(
        choice("compare", PAIRS[0], "The styles to show.", (*PAIRS, ALL), label="side by side"),
        integer("batch", 200, "Rows of x.", 1, 256),
        integer("n_in", 100, "Inputs of the model.", 1, 256),
        integer("hidden", 50, "Units between the two layers.", 1, 256),
        integer("n_out", 1, "Outputs of the model.", 1, 16),
        choice("dtype", "float32", "The dtype of all five styles.", ("float32", "float64", *HALF)),
        number("scale", "1", "Multiplies the Kaiming weights, before the cast to the dtype.", 1e-30, 1e30),
        seed_input("Seed of all random numbers."),
    ),
    answer=answer,
    listings=(
        Listing("misprint", misprints.Lin),
        Listing("lin", layer_function.Lin),
        Listing("LinearLayer", modules.LinearLayer),
        Listing("ForgetfulLayer", misprints.ForgetfulLayer),
        Listing("Module", modules.Module),
        Listing("SequentialModel", modules.SequentialModel),
        Listing("AutoSuperModel", modules.AutoSuperModel, previous="SequentialModel"),
    ),
    links=(
        *(Link(f"the chapter's model in {TITLES[name]}", f"style={name}") for name in STYLES),
        Link(
            "50 layers of randn weights with relu, by hand",
            "widths=100x51&init=standard_normal&bias=false&style=functions",
        ),
        Link("the same with autograd alone", "widths=100x51&init=standard_normal&bias=false&style=module"),
    ),
)
