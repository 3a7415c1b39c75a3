"""The program `mlp`: layers put together in one of the chapter's five ways, and the chapter's names for everything.

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

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from chainrule.build.draws import draw_leaves
from chainrule.build.model import BuiltModel, LayerNames
from chainrule.build.styles import STYLES
from chainrule.foundations import modules
from chainrule.spec import ModelSpec


def build_mlp(spec: ModelSpec, leaves: Mapping[str, Tensor] | None = None) -> BuiltModel:
    """Draw the tensors of a net, unless `draw_leaves` has, and put its layers together; see `build_model`."""
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


def as_autograd_leaf(name: str, tensor: Tensor) -> Tensor:
    """The same leaf for autograd: a weight as (fan_out, fan_in), and all but the target asked for their gradient.

    x too, because the passes by hand compute its gradient as well: the five pictures show the same tensors.
    """
    if name == "y":
        return tensor
    return (tensor.t().contiguous() if name.startswith("w") else tensor).requires_grad_()
