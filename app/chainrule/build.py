"""spec → model: draws the tensors, puts the layers together in one of the chapter's five ways, names everything.

    functions          lin, relu, mse and their _grad twins        gradients by hand, in .g
    classes            Lin, Relu, Mse, Model                       gradients by hand, in .g
    layer_function     the same on LayerFunction                   gradients by hand, in .g
    autograd_function  LinearFunction, MyRelu, MseFunction         autograd calls ours, in .grad
    module             Linear, nn.ReLU, Mse, Model                 autograd's own, in .grad

All five compute the same numbers from the same draw. Tensors are named as in the chapter: x w1 b1 l1 l2 w2 b2 out y
loss; modules are `layers.0`, `layers.1`, … and `loss` in every style. Plain functions have no owner that could tell
their module, so those styles name it with `scope`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor, nn

from chainrule.foundations import layer_function, layers, modules
from chainrule.foundations.functions import (
    ActivationFunction,
    CrossEntropyFunction,
    LinearFunction,
    MseFunction,
    MyRelu,
)
from chainrule.foundations.initialization import SCHEMES, normal, orthogonal, uniform, zeros
from chainrule.spec import ModelSpec
from chainrule.trace.scope import scope

# -------------------------------------------------------------------------------------------------------------- model


@dataclass(frozen=True, slots=True)
class LayerNames:
    """The chapter's names of one layer's tensors.

    A layer without an activation of its own puts out its preactivation: then `preactivation` and `activation` are the
    same tensor. `index` counts from 1; `bias` is None where there is none.
    """

    index: int
    name: str
    preactivation: str
    activation: str
    weight: str
    bias: str | None


@dataclass(frozen=True)
class BuiltModel:
    """A model that is ready to run, and what its parts are called.

    `forward` may be called again: every pass starts with cleared gradients.

    Attributes:
        root: what is called with x and y: a scratch model or an nn.Module. Its `layers` and `loss` are the owners of
            the modules `layers.0`, … and `loss`.
        leaves: the tensors that are drawn, by name: x, y, w1, b1, … A weight is (fan_in, fan_out) where gradients are
            by hand, and (fan_out, fan_in) under autograd.
        outputs: module path → name of the tensor that module puts out.
        layers: the names of each layer's tensors, in order.
        autograd: whether autograd runs the backward pass, and gradients are in `.grad`; else they are in `.g`.
    """

    root: Any
    leaves: Mapping[str, Tensor]
    outputs: Mapping[str, str]
    layers: tuple[LayerNames, ...]
    autograd: bool

    def forward(self) -> Tensor:
        """The loss: ()."""
        for leaf in self.leaves.values():
            if self.autograd:
                leaf.grad = None
            else:
                layers.zero_grad(leaf)
        loss: Tensor = self.root(self.leaves["x"], self.leaves["y"])
        return loss

    def backward(self, loss: Tensor) -> None:
        """The gradients of x, of every parameter and of what lies between; `loss` is what `forward` returned."""
        if self.autograd:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.root.backward()


def build_model(spec: ModelSpec) -> BuiltModel:
    """Draw the tensors of a spec and put the model together.

    A pure function of the spec: no global random state is read or changed.

    Args:
        spec: of which style, seed, dtype and device count here as much as widths, activation, init and loss.

    Returns:
        The model, not yet run.

    Raises:
        RuntimeError: torch cannot put a tensor on `spec.device`. Whether the device is there and the sizes are within
            limits is for the caller to check before.
    """
    style = STYLES[spec.style]
    leaves = draw_leaves(spec)
    if style.autograd:
        leaves = {name: as_autograd_leaf(name, tensor) for name, tensor in leaves.items()}
    names = name_layers(spec)

    parts: list[Any] = []
    outputs: dict[str, str] = {}
    for layer in names:
        linear = style.linear(leaves[layer.weight], None if layer.bias is None else leaves[layer.bias])
        if isinstance(linear, modules.Linear):
            # nn.Parameter is a new tensor on the same memory: the leaf is the one that gets the gradient.
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


# -------------------------------------------------------------------------------------------------------------- draws

CACHED_ELEMENTS = 2**15
"""Base draws up to this size are kept: a slider asks for the same ones again and again, only rescaled."""

CACHED_DRAWS = 256
"""How many base draws are kept; with float32 this is 32 MB at most."""

BaseDraw = Callable[[tuple[int, ...], Generator], Tensor]


def generator_for(seed: int, name: str) -> Generator:
    """The generator of one tensor: its stream depends on the seed and the tensor's name, and on nothing else."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return Generator().manual_seed(int.from_bytes(digest, "little"))


def base_draw(seed: int, name: str, base: BaseDraw, shape: tuple[int, ...]) -> Tensor:
    """The draw of unit size behind the tensor `name`: float32, on the CPU. Shared, so never to be written to."""
    return base(shape, generator_for(seed, name))


_cached_base_draw = lru_cache(maxsize=CACHED_DRAWS)(base_draw)


def draw_leaves(spec: ModelSpec) -> dict[str, Tensor]:
    """Every tensor that is drawn, by its name.

    Each is drawn in float32 on the CPU by its own generator, then multiplied, cast and moved. So a change of scale,
    dtype, device, style or another layer's width leaves its draw as it was.

    Returns:
        x: (batch, n_in). y: (batch,) if n_out = 1, else (batch, n_out); class indices (batch,) of int64 for
        cross_entropy. w1, …: (fan_in, fan_out). b1, …: (fan_out,), unless spec.bias is false.
    """
    scheme = SCHEMES[spec.init]
    dtype = getattr(torch, spec.dtype)

    def leaf(name: str, base: BaseDraw, shape: tuple[int, ...], factor: float = 1.0) -> Tensor:
        draw = _cached_base_draw if prod(shape) <= CACHED_ELEMENTS else base_draw
        # Multiplied even by 1: what is cached must not be handed out.
        return (draw(spec.seed, name, base, shape) * factor).to(device=spec.device, dtype=dtype)

    leaves = {"x": leaf("x", normal, (spec.batch, spec.n_in))}
    for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
        factor = scheme.factor(fan_in, fan_out)
        leaves[f"w{index}"] = leaf(f"w{index}", scheme.base, (fan_in, fan_out), factor * spec.scale)
        if not spec.bias:
            continue
        if spec.init == "torch_default":
            leaves[f"b{index}"] = leaf(f"b{index}", scheme.base, (fan_out,), factor)
        elif spec.bias_std > 0:
            leaves[f"b{index}"] = leaf(f"b{index}", normal, (fan_out,), spec.bias_std)
        else:
            leaves[f"b{index}"] = torch.zeros(fan_out, device=spec.device, dtype=dtype)
    if spec.loss == "cross_entropy":
        labels = torch.randint(spec.n_out, (spec.batch,), generator=generator_for(spec.seed, "y"))
        leaves["y"] = labels.to(device=spec.device)
    else:
        leaves["y"] = leaf("y", normal, (spec.batch,) if spec.n_out == 1 else (spec.batch, spec.n_out))
    return leaves


BASE_VARIANCES: Mapping[BaseDraw, Callable[[int, int], float]] = {
    normal: lambda _fan_in, _fan_out: 1.0,
    uniform: lambda _fan_in, _fan_out: 1 / 3,
    # The longer side of a matrix with orthonormal vectors along the shorter: each of them has length 1.
    orthogonal: lambda fan_in, fan_out: 1 / max(fan_in, fan_out),
    zeros: lambda _fan_in, _fan_out: 0.0,
}
"""The variance of one element of each base draw, from (fan_in, fan_out)."""


def weight_variances(spec: ModelSpec) -> tuple[tuple[float, float], ...]:
    """What the draw of each layer is meant to have, in mean-field theory's terms: nothing is drawn.

    Returns:
        (σ_w², σ_b²) of each layer, first to last: σ_w² = fan_in · Var(W), and σ_b² the variance of a bias.
    """
    scheme = SCHEMES[spec.init]
    variances = []
    for fan_in, fan_out in pairwise(spec.widths):
        unscaled = scheme.factor(fan_in, fan_out) ** 2 * BASE_VARIANCES[scheme.base](fan_in, fan_out)
        bias_variance = spec.bias_std**2
        if spec.bias and spec.init == "torch_default":
            bias_variance = unscaled  # the bias is drawn like a weight, but never scaled
        variances.append((fan_in * unscaled * spec.scale**2, bias_variance))
    return tuple(variances)


def as_autograd_leaf(name: str, tensor: Tensor) -> Tensor:
    """The same leaf for autograd: a weight as (fan_out, fan_in), and all but the target asked for their gradient.

    x too, because the passes by hand compute its gradient as well: the five pictures show the same tensors.
    """
    if name == "y":
        return tensor
    return (tensor.t().contiguous() if name.startswith("w") else tensor).requires_grad_()


# ------------------------------------------------------------------------------------------------------------- styles


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
