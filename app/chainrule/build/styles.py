"""The chapter's five ways of writing the net: what each makes its layers, its loss and its model of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from chainrule.foundations import layer_function, layers, modules
from chainrule.foundations.functions import (
    ActivationFunction,
    CrossEntropyFunction,
    LinearFunction,
    MseFunction,
    MyRelu,
)
from chainrule.trace.scope import scope


@dataclass(frozen=True, slots=True)
class Call:
    """A function that is called in the forward pass, and the one that goes with it in the backward pass.

    Attributes:
        type: the function's name, which is what the module of its ops is called.
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
"""What the module style puts between its linear layers. `linear` is missing everywhere: it is no layer at all."""

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
"""The chapter's five ways, by their name in the spec."""
