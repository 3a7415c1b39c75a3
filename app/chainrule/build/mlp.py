"""The program `mlp`: the net in one of the chapter's five styles, with the chapter's names for everything.

    functions          lin, relu, mse and their _grad twins        gradients by hand, in .g
    classes            Lin, Relu, Mse, Model                       gradients by hand, in .g
    layer_function     the same on LayerFunction                   gradients by hand, in .g
    autograd_function  LinearFunction, MyRelu, MseFunction         autograd calls ours, in .grad
    module             Linear, nn.ReLU, Mse, Model                 autograd's own, in .grad

All five compute the same numbers from the same draw. Tensors are named as in the chapter: x w1 b1 l1 l2 w2 b2 out y
loss; modules are `layers.0`, `layers.1`, … and `loss` in every style. Plain functions belong to no object, so those
styles name the module with `scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from chainrule.build.draws import draw_leaves
from chainrule.build.model import BuiltModel, LayerNames
from chainrule.foundations import layer_function, layers, modules
from chainrule.foundations.functions import (
    ActivationFunction,
    CrossEntropyFunction,
    LinearFunction,
    MseFunction,
    MyRelu,
)
from chainrule.spec import ModelSpec
from chainrule.trace.scope import scope


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the forward pass, and its gradient for the backward pass.

    Attributes:
        type: the function's name, which becomes the type of its module.
        forward: out = forward(inp), for the loss forward(inp, targ).
        gradient: gradient(inp, out), for the loss gradient(inp, targ); None under autograd.
    """

    type: str
    forward: Callable[..., Tensor]
    gradient: Callable[..., None] | None = None


class FunctionModel:
    """The chapter's `forward_and_backward` for any depth: functions called in turn, each in the scope of its module."""

    def __init__(self, calls: Sequence[Call], loss: Call) -> None:
        self.calls = [(f"layers.{position}", call) for position, call in enumerate(calls)]
        self.loss = loss

    def __call__(self, x: Tensor, targ: Tensor) -> Tensor:
        """The loss: ()."""
        self.targ = targ
        self.tensors = [x]
        for path, call in self.calls:
            with scope(path, call.type):
                self.tensors.append(call.forward(self.tensors[-1]))
        with scope("loss", self.loss.type):
            return self.loss.forward(self.tensors[-1], targ)

    def backward(self) -> None:
        """The chain rule by hand, from the loss back to x: every call's gradient, in reverse."""
        if self.loss.gradient is not None:
            with scope("loss", self.loss.type):
                self.loss.gradient(self.tensors[-1], self.targ)
        pairs = list(pairwise(self.tensors))
        for (path, call), (inp, out) in zip(reversed(self.calls), reversed(pairs), strict=True):
            if call.gradient is not None:
                with scope(path, call.type):
                    call.gradient(inp, out)


@dataclass(frozen=True, slots=True)
class Style:
    """One way of writing the model: how it makes its parts, and whether autograd runs the backward pass.

    Attributes:
        linear: (weight, bias or None) → a linear layer
        activation: the spec's name of an activation → that layer
        loss: the spec's name of a loss → that loss
        model: (layers, loss) → the model
        autograd: gradients by autograd, weights as (fan_out, fan_in); else by hand and as (fan_in, fan_out)
    """

    linear: Callable[[Tensor, Tensor | None], Any]
    activation: Callable[[str], Any]
    loss: Callable[[str], Any]
    model: Callable[[list[Any], Any], Any]
    autograd: bool


def _lin_call(w: Tensor, b: Tensor | None) -> Call:
    return Call("lin", lambda inp: layers.lin(inp, w, b), lambda inp, out: layers.lin_grad(inp, out, w, b))


def _activation_call(name: str) -> Call:
    if name == "relu":
        return Call("relu", layers.relu, layers.relu_grad)
    return Call(
        name,
        lambda inp: layers.activation(inp, name),
        lambda inp, out: layers.activation_grad(inp, out, name),
    )


def _linear_function_call(weight: Tensor, bias: Tensor | None) -> Call:
    return Call("LinearFunction", lambda inp: LinearFunction.apply(inp, weight, bias))  # type: ignore[no-untyped-call]


def _activation_function_call(name: str) -> Call:
    if name == "relu":
        return Call("MyRelu", MyRelu.apply)
    return Call("ActivationFunction", lambda inp: ActivationFunction.apply(inp, name))  # type: ignore[no-untyped-call]


ACTIVATION_MODULES: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
}
"""The activations of the style module. `linear` has no layer in any style."""

STYLES: Mapping[str, Style] = {
    "functions": Style(
        linear=_lin_call,
        activation=_activation_call,
        loss={
            "mse": Call("mse", layers.mse, layers.mse_grad),
            "cross_entropy": Call("cross_entropy", layers.cross_entropy, layers.cross_entropy_grad),
        }.__getitem__,
        model=FunctionModel,
        autograd=False,
    ),
    "classes": Style(
        linear=layers.Lin,
        activation=lambda name: layers.Relu() if name == "relu" else layers.Activation(name),
        loss=lambda name: {"mse": layers.Mse, "cross_entropy": layers.CrossEntropy}[name](),
        model=layers.Model,
        autograd=False,
    ),
    "layer_function": Style(
        linear=layer_function.Lin,
        activation=lambda name: layer_function.Relu() if name == "relu" else layer_function.Activation(name),
        loss=lambda name: {"mse": layer_function.Mse, "cross_entropy": layer_function.CrossEntropy}[name](),
        model=layers.Model,
        autograd=False,
    ),
    "autograd_function": Style(
        linear=_linear_function_call,
        activation=_activation_function_call,
        loss={
            "mse": Call("MseFunction", MseFunction.apply),
            "cross_entropy": Call("CrossEntropyFunction", CrossEntropyFunction.apply),
        }.__getitem__,
        model=FunctionModel,
        autograd=True,
    ),
    "module": Style(
        linear=modules.Linear,
        activation=lambda name: ACTIVATION_MODULES[name](),
        loss=lambda name: {"mse": modules.Mse, "cross_entropy": modules.CrossEntropy}[name](),
        model=modules.Model,
        autograd=True,
    ),
}
"""The five styles, by their name in the spec."""


def build_mlp(spec: ModelSpec, leaves: Mapping[str, Tensor] | None = None) -> BuiltModel:
    """The net of a spec, from its drawn `leaves` if they are given; see `build_model`."""
    style = STYLES[spec.style]
    leaves = dict(draw_leaves(spec) if leaves is None else leaves)
    if style.autograd:
        leaves = {name: as_autograd_leaf(name, tensor) for name, tensor in leaves.items()}
    names = name_layers(spec)

    parts: list[Any] = []
    outputs: dict[str, str] = {}
    for layer in names:
        linear = style.linear(leaves[layer.weight], None if layer.bias is None else leaves[layer.bias])
        if isinstance(linear, modules.Linear):
            # nn.Parameter is a new tensor on the same memory, and gets the gradient.
            leaves[layer.weight] = linear.weight
            if layer.bias is not None and linear.bias is not None:
                leaves[layer.bias] = linear.bias
        parts.append(linear)
        outputs[f"layers.{len(outputs)}"] = layer.preactivation
        if layer.activation != layer.preactivation:
            parts.append(style.activation(spec.activation))
            outputs[f"layers.{len(outputs)}"] = layer.activation
    outputs["loss"] = "loss"

    root = style.model(parts, style.loss(spec.loss))
    return BuiltModel(root, leaves, outputs, names, style.autograd)


def name_layers(spec: ModelSpec) -> tuple[LayerNames, ...]:
    """The chapter's names: l1 = lin, l2 = relu, l3 = lin, …; the result of the last layer is `out`."""
    names = []
    count = 0  # of the l's so far
    for index in range(1, spec.depth + 1):
        last = index == spec.depth
        has_activation = spec.activation != "linear" and (spec.last_activation or not last)
        made = [f"l{count + 1}", f"l{count + 2}"] if has_activation else [f"l{count + 1}"]
        count += len(made)
        if last:
            made[-1] = "out"
        names.append(
            LayerNames(
                index=index,
                name=f"layer {index}",
                preactivation=made[0],
                activation=made[-1],
                weight=f"w{index}",
                bias=f"b{index}" if spec.bias else None,
            )
        )
    return tuple(names)


def as_autograd_leaf(name: str, tensor: Tensor) -> Tensor:
    """The leaf for autograd: a weight as (fan_out, fan_in); all but the target require a gradient.

    So does x, whose gradient the passes by hand compute too: all five styles show the same tensors.
    """
    if name == "y":
        return tensor
    return (tensor.t().contiguous() if name.startswith("w") else tensor).requires_grad_()
