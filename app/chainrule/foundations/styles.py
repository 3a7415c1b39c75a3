# mypy: disable-error-code="no-untyped-call"
# (PyTorch leaves `apply` and `backward` untyped.)
"""One model, five times: the same loss and the same gradients, each time with more of it said once and for all.

    functions          every gradient called by name, in reverse order
    classes            Model of Lin, Relu, Mse: layers remember their tensors, and a loop does the calling
    layer_function     the same Model: the remembering is written once, in a base class
    autograd_function  LinearFunction, MyRelu, MseFunction: autograd keeps the order, and calls our gradients
    module             Model of Linear, nn.ReLU, Mse: autograd knows the gradients too

Each takes x: (batch, n_in), targ: (batch,) for n_out = 1, else (batch, n_out), and the weights and biases of two
layers. It gives the loss, (), and the tensors that now hold their gradients, those of x, w1, b1, w2 and b2 in this
order: in `.g` or, under autograd, in `.grad`. Raises ValueError if shapes do not fit. `run_style` calls any of them.

Source: ch. 17, from "Gradients and the Backward Pass" to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from chainrule.foundations import layer_function, layers, modules
from chainrule.foundations.functions import LinearFunction, MseFunction, MyRelu

Written = tuple[Tensor, Sequence[Any]]
"""The loss, and the tensors that hold gradients."""


def with_functions(x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Written:
    """Functions. Weights are (fan_in, fan_out)."""
    _l1, _l2, _out, loss = layers.forward_and_backward(x, targ, w1, b1, w2, b2)
    return loss, (x, w1, b1, w2, b2)


def with_classes(x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Written:
    """Classes. Weights are (fan_in, fan_out)."""
    model = layers.Model([layers.Lin(w1, b1), layers.Relu(), layers.Lin(w2, b2)], layers.Mse())
    loss = model(x, targ)
    model.backward()
    return loss, (x, w1, b1, w2, b2)


def with_layer_function(x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Written:
    """Layers on LayerFunction. Weights are (fan_in, fan_out)."""
    lin_1, relu, lin_2 = layer_function.Lin(w1, b1), layer_function.Relu(), layer_function.Lin(w2, b2)
    model = layers.Model([lin_1, relu, lin_2], layer_function.Mse())
    loss = model(x, targ)
    model.backward()
    return loss, (x, w1, b1, w2, b2)


def with_autograd_function(x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Written:
    """torch.autograd.Function. Weights are (fan_out, fan_in), and all but targ have `requires_grad`."""
    l1 = LinearFunction.apply(x, w1, b1)
    l2 = MyRelu.apply(l1)
    out = LinearFunction.apply(l2, w2, b2)
    loss = MseFunction.apply(out, targ)
    loss.backward()
    return loss, (x, w1, b1, w2, b2)


def with_module(x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Written:
    """torch.nn.Module. Weights are (fan_out, fan_in), and x has `requires_grad`."""
    model = modules.Model([modules.Linear(w1, b1), nn.ReLU(), modules.Linear(w2, b2)], modules.Mse())
    loss = model(x, targ)
    loss.backward()
    return loss, (x, *model.parameters())


STYLES: Mapping[str, Callable[..., Written]] = {
    "functions": with_functions,
    "classes": with_classes,
    "layer_function": with_layer_function,
    "autograd_function": with_autograd_function,
    "module": with_module,
}
"""The five, by name, in the chapter's order."""

UNDER_AUTOGRAD = ("autograd_function", "module")
"""Those whose gradients autograd keeps, in `.grad`, and whose weights lie as PyTorch's."""

LEAVES = ("x", "w1", "b1", "w2", "b2")
"""The tensors that get gradients, in the order of a style's arguments."""


class Pass(NamedTuple):
    """A forward and a backward pass.

    Attributes:
        loss: ()
        gradients: of the loss with respect to x, w1, b1, w2 and b2, by these names, each of its tensor's shape.
    """

    loss: Tensor
    gradients: Mapping[str, Tensor]


def run_style(name: str, x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Pass:
    """A pass in one of the styles, on tensors of its own: none of the arguments is given a gradient.

    Shapes as for `layers.model`. Raises ValueError if no style has this name, or the shapes do not fit.
    """
    if name not in STYLES:
        raise ValueError(f"run_style: expected one of {', '.join(STYLES)}, got {name!r}")
    autograd = name in UNDER_AUTOGRAD
    leaves = []
    for leaf, tensor in zip(LEAVES, (x, w1, b1, w2, b2), strict=True):
        turned = tensor.detach().t() if autograd and leaf.startswith("w") else tensor.detach()
        leaves.append(turned.requires_grad_(autograd))
    loss, held = STYLES[name](leaves[0], targ, *leaves[1:])
    gradients = {}
    for leaf, tensor in zip(LEAVES, held, strict=True):
        gradient = tensor.grad if autograd else tensor.g
        gradients[leaf] = gradient.t() if autograd and leaf.startswith("w") else gradient
    return Pass(loss.detach(), gradients)
