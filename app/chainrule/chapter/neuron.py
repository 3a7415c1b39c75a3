"""The page of a neuron and of a layer: the sums as the chapter writes them, term by term."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import NUMBER, read_number, tensor, text
from chainrule.chapter.page import Link, Page, listings
from chainrule.dump.json_values import json_number, json_tensor, json_value
from chainrule.errors import InputError
from chainrule.foundations.neuron import dense, dense_matmul, neuron, relu

MAX_TERMS = 16
"""Inputs of the neuron."""

MAX_NUMEL = 64
"""Elements of x, of w and of b: the layer's sums run in Python, and their products are all listed."""


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"neuron": the terms of its sum and its output, "layer": its output, computed in both ways}."""
    stopping.check()
    return {
        "neuron": explain_neuron(values["inputs"], values["weights"], values["bias"]),
        "layer": explain_layer(values["x"], values["w"], values["b"]),
    }


def explain_neuron(inputs: Sequence[float], weights: Sequence[float], bias: float) -> dict[str, Any]:
    """The neuron's terms with the running sum, its output, and relu of it; in Python numbers, as in the chapter.

    Raises:
        InputError: inputs and weights differ in length; `limit` has the result of the chapter's `zip`.
    """
    pairs = min(len(inputs), len(weights))
    if len(inputs) != len(weights):
        longer, dropped = ("inputs", inputs[pairs:]) if len(inputs) > pairs else ("weights", weights[pairs:])
        output = neuron(inputs[:pairs], weights[:pairs], bias)
        needed = "1 number is needed" if len(inputs) == 1 else f"{len(inputs)} numbers are needed"
        last = "the last" if len(dropped) == 1 else f"the last {len(dropped)}"
        raise InputError(
            f"weights: {needed}, one per input, not {len(weights)}; zip would silently drop {last} of the {longer}, "
            f"and the output would be {output:.6g}",
            field="weights",
            limit={
                "inputs": len(inputs),
                "weights": len(weights),
                "pairs": pairs,
                "longer": longer,
                "dropped": json_value(list(dropped)),
                "terms": _terms(inputs, weights, pairs),
                "bias": json_number(bias),
                "output_without_the_dropped": json_number(float(output)),
            },
        )
    output = float(neuron(inputs, weights, bias))
    return {
        "terms": _terms(inputs, weights, pairs),
        "bias": json_number(bias),
        "output": json_number(output),
        "relu": json_number(float(relu(output))),
        "relu_as_printed": json_number(float(output if output >= 0 else 0)),
    }


def _terms(inputs: Sequence[float], weights: Sequence[float], pairs: int) -> list[dict[str, Any]]:
    return [
        {
            "input": json_number(inputs[i]),
            "weight": json_number(weights[i]),
            "product": json_number(inputs[i] * weights[i]),
            "running_sum": json_number(float(neuron(inputs[: i + 1], weights[: i + 1], 0.0))),
        }
        for i in range(pairs)
    ]


def explain_layer(x: Tensor, w: Tensor, b: Tensor) -> dict[str, Any]:
    """The layer's output by sums and by one product, their difference, and every product inside the sums.

    `rounding` is the largest difference that rounding can cause: both add n_inputs products and a bias.

    Raises:
        InputError: x, w and b do not fit; names the one to change.
    """
    try:
        y = dense(x, w, b)
    except ValueError as error:
        misfit = "w" if w.dim() == 2 and x.shape[1] != w.shape[1] else "b"
        size, unit, each = (x.shape[1], "column", "input") if misfit == "w" else (w.shape[0], "number", "neuron")
        wanted = f"{size} {unit}{'' if size == 1 else 's'}, one per {each}"
        limit = {"x": list(x.shape), "w": list(w.shape), "b": list(b.shape)}
        raise InputError(f"{misfit}: needs {wanted} ({error})", field=misfit, limit=limit) from None
    y_matmul = dense_matmul(x, w, b)
    products = x[:, None, :] * w[None, :, :]
    difference = max_difference(y, y_matmul)
    magnitudes = products.double().abs().sum(dim=-1) + b.double().abs()
    rounding = 2 * (x.shape[1] + 1) * torch.finfo(y.dtype).eps / 2 * float(magnitudes.max())
    return {
        "x": json_tensor(x),
        "w": json_tensor(w),
        "b": json_tensor(b),
        "y": json_tensor(y),
        "y_matmul": json_tensor(y_matmul),
        "products": json_tensor(products),
        "max_difference": json_number(difference),
        "rounding": json_number(rounding),
        "equal": difference <= rounding if math.isfinite(rounding) else difference == 0,
    }


def read_numbers(given: str) -> list[float]:
    """`1,2,3`: Python numbers. Raises ValueError."""
    words = given.strip().removeprefix("[").removesuffix("]").removesuffix(",").split(",")
    if len(words) > MAX_TERMS:
        raise ValueError(f"they are {len(words)}")
    return [read_number(word) for word in words]


_LIST = rf"\s*\[?{NUMBER}(,{NUMBER})*,?\]?\s*"
_NUMBERS = f"a list of numbers such as 1,2,3, at most {MAX_TERMS} of them"
_WEIGHTS = "The weights, n_neurons × n_inputs: a row per neuron."

PAGE = Page(
    name="neuron",
    title="A neuron, a layer",
    seed="002 Modeling a Neuron",
    lead="A neuron multiplies, adds and rectifies; a layer is many neurons that read the same inputs.",
    inputs=(
        text("inputs", "2,-1,0.5", "The inputs of the neuron.", read_numbers, _NUMBERS, _LIST),
        text("weights", "0.5,0.25,-2", "The weights, one for each input.", read_numbers, _NUMBERS, _LIST),
        text("bias", "0.75", "The number that is added to the sum.", read_number, "a number", NUMBER),
        tensor("x", "1,2,3;-1,0,2", "The inputs, batch_size × n_inputs.", MAX_NUMEL, dims=(2,)),
        tensor("w", "1,0,-1;0.5,0.5,0.5;2,-1,0;-1,1,1", _WEIGHTS, MAX_NUMEL, dims=(2,)),
        tensor("b", "0,1,-1,0.5", "The biases, one per neuron.", MAX_NUMEL, dims=(1,)),
    ),
    answer=answer,
    listings=listings(neuron, relu, dense, dense_matmul),
    links=(Link("a neuron in the explorer", "program=neuron&widths=3,1"),),
)
