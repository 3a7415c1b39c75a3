"""The programs besides `mlp`: one construct of the chapter each, from the foundations, with a loss.

    neuron           l1 = neuron(x, w, b)      out = relu(l1)            loss = (out − y)²
    matmul           c = RUNGS[rung](a, b)                               loss = Σ c
    exp              out = Exp.apply(x)                                  loss = Σ out
    mul_constant     out = MulConstant.apply(x, constant)                loss = Σ out
    my_relu          out = MyRelu.apply(x)                               loss = Σ out
    linear_function  out = LinearFunction.apply(x, w, b)                 loss = mse(out, y)
    two_outputs      sines, cosines = SinCos.apply(x)                    loss = Σ sines · cosines
    linear_cpp       out = LinearCpp.apply(x, w, b)                      loss = mse(out, y)

The backward pass is autograd's, which calls the Functions' own. Leaves are drawn as in the net: w and b as its first
layer, everything else from N(0, 1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from torch import Tensor
from torch.autograd import Function

from chainrule.build.draws import draw_bias, draw_leaf, draw_target, draw_weight
from chainrule.build.model import BuiltModel
from chainrule.errors import MissingExtraError
from chainrule.foundations import layers, neuron
from chainrule.foundations.functions import Exp, LinearFunction, MulConstant, MyRelu, SinCos
from chainrule.foundations.initialization import normal
from chainrule.foundations.linear_extension import ExtensionNotBuiltError, LinearCpp, load_extension
from chainrule.foundations.matmul import RUNGS
from chainrule.spec import ModelSpec
from chainrule.trace.scope import scope

logger = logging.getLogger(__name__)


def build_neuron(spec: ModelSpec) -> BuiltModel:
    """One neuron: x (n_in,), w (n_in,), b (), y ()."""
    leaves = {
        "x": draw_leaf(spec, "x", normal, (spec.n_in,)),
        "w": draw_weight(spec, "w", spec.n_in, 1).squeeze(1),
        "b": draw_bias(spec, "b", spec.n_in, 1).squeeze(0),
        "y": draw_leaf(spec, "y", normal, ()),
    }

    def one_neuron(x: Tensor, w: Tensor, b: Tensor, y: Tensor) -> Tensor:
        with scope("neuron", "neuron"):
            l1 = neuron.neuron(x, w, b)
        with scope("relu", "relu"):
            out = neuron.relu(l1)
        with scope("loss", "squared_error"):
            loss: Tensor = (out - y) ** 2
        return loss

    return _built(one_neuron, leaves, {"neuron": "l1", "relu": "out", "loss": "loss"})


def build_matmul(spec: ModelSpec) -> BuiltModel:
    """A matrix product by the spec's rung: a (batch, k), b (k, n) → c (batch, n), for widths k,n."""
    matmul = RUNGS[spec.rung]
    leaves = {
        "a": draw_leaf(spec, "a", normal, (spec.batch, spec.n_in)),
        "b": draw_leaf(spec, "b", normal, (spec.n_in, spec.n_out)),
    }

    def product(a: Tensor, b: Tensor) -> Tensor:
        with scope("matmul", matmul.__name__):
            c = matmul(a, b)
        with scope("loss", "sum"):
            return c.sum()

    return _built(product, leaves, {"matmul": "c", "loss": "loss"}, roles={"a": "input", "b": "input"})


def build_two_outputs(spec: ModelSpec) -> BuiltModel:
    """Sine and cosine of x (batch, n), the two outputs of one Function."""

    def sines_and_cosines(x: Tensor) -> Tensor:
        sines, cosines = SinCos.apply(x)  # type: ignore[no-untyped-call]
        with scope("loss", "sum"):
            loss: Tensor = (sines * cosines).sum()
        return loss

    outputs = {"SinCos.sin": "sines", "SinCos.cos": "cosines", "loss": "loss"}
    return _built(sines_and_cosines, _input(spec), outputs)


def check_program(spec: ModelSpec) -> None:
    """Refuse a program whose C++ extension is not built.

    Raises:
        MissingExtraError: the extension is missing, or lacks support for the spec's device; the message has the remedy.
    """
    if spec.program != "linear_cpp":
        return
    try:
        extension = load_extension()
    except ExtensionNotBuiltError as error:
        # The answer may go to anybody, so paths of this machine are only logged.
        logger.warning("%s", error)
        raise MissingExtraError(f"program: 'linear_cpp' cannot run here: {error.public}", field="program") from None
    if spec.device != "cpu" and not extension.with_cuda:
        raise MissingExtraError(
            f"device: {spec.device!r} is not supported by this build of the C++ extension: "
            "run `chainrule build-extension` on a machine with nvcc and a GPU",
            field="device",
        )


PROGRAM_BUILDERS: Mapping[str, Callable[[ModelSpec], BuiltModel]] = {
    "neuron": build_neuron,
    "matmul": build_matmul,
    "exp": lambda spec: _elementwise(spec, Exp),
    "mul_constant": lambda spec: _elementwise(spec, MulConstant, spec.constant),
    "my_relu": lambda spec: _elementwise(spec, MyRelu),
    "linear_function": lambda spec: _linear(spec, LinearFunction),
    "two_outputs": build_two_outputs,
    "linear_cpp": lambda spec: _linear(spec, LinearCpp),
}
"""Builds each program of a spec besides the net."""


def _elementwise(spec: ModelSpec, function: type[Function], *constants: float) -> BuiltModel:
    def elementwise(x: Tensor) -> Tensor:
        out = function.apply(x, *constants)  # type: ignore[no-untyped-call]
        with scope("loss", "sum"):
            loss: Tensor = out.sum()
        return loss

    return _built(elementwise, _input(spec), {function.__name__: "out", "loss": "loss"})


def _linear(spec: ModelSpec, function: type[Function]) -> BuiltModel:
    check_program(spec)
    leaves = {**_input(spec), "w": draw_weight(spec, "w", spec.n_in, spec.n_out).t().contiguous()}
    if spec.bias:
        leaves["b"] = draw_bias(spec, "b", spec.n_in, spec.n_out)
    leaves["y"] = draw_target(spec)

    def linear(x: Tensor, y: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        # Without a bias the argument is left out: backward then returns None in its place.
        out = function.apply(x, w) if b is None else function.apply(x, w, b)  # type: ignore[no-untyped-call]
        with scope("loss", "mse"):
            return layers.mse(out, y)

    outputs = {function.__name__: "out", "loss": "loss"}
    return _built(linear, leaves, outputs, ("x", "y", "w", *(("b",) if spec.bias else ())))


def _input(spec: ModelSpec) -> dict[str, Tensor]:
    return {"x": draw_leaf(spec, "x", normal, (spec.batch, spec.n_in))}


def _built(
    root: Callable[..., Tensor],
    leaves: dict[str, Tensor],
    outputs: Mapping[str, str],
    inputs: tuple[str, ...] = (),
    roles: Mapping[str, str] | None = None,
) -> BuiltModel:
    for name, leaf in leaves.items():
        # Inputs get a gradient too, as in the net.
        leaf.requires_grad_(name != "y")
    return BuiltModel(root, leaves, outputs, (), autograd=True, inputs=inputs or tuple(leaves), roles=roles or {})
