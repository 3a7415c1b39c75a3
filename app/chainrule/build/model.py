"""What is built: a model that is ready to run, and what its parts are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from chainrule.foundations import layers


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
        root: what is called with `inputs` and gives the loss: a scratch model, an nn.Module or a function. The `layers`
            and `loss` of a model are the owners of the modules `layers.0`, … and `loss`.
        leaves: the tensors that are drawn, by name: x, y, w1, b1, … A weight is (fan_in, fan_out) where gradients are
            by hand, and (fan_out, fan_in) under autograd.
        outputs: module path → name of the tensor that module puts out; of one that puts out several, the op's name
            stands behind the path (`SinCos.sin`).
        layers: the names of each layer's tensors, in order; none where the program is not a net.
        autograd: whether autograd runs the backward pass, and gradients are in `.grad`; else they are in `.g`.
        inputs: names of the leaves that the root is called with, in order.
        roles: of leaves that are neither x (an input), y (a target) nor parameters.
    """

    root: Any
    leaves: Mapping[str, Tensor]
    outputs: Mapping[str, str]
    layers: tuple[LayerNames, ...]
    autograd: bool
    inputs: tuple[str, ...] = ("x", "y")
    roles: Mapping[str, str] = field(default_factory=dict)

    def forward(self) -> Tensor:
        """The loss: ()."""
        self.clear_gradients()
        loss: Tensor = self.root(*(self.leaves[name] for name in self.inputs))
        return loss

    def backward(self, loss: Tensor) -> None:
        """The gradients of x, of every parameter and of what lies between; `loss` is what `forward` returned."""
        if self.autograd:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.root.backward()

    def clear_gradients(self) -> None:
        """Forget the gradients of the leaves."""
        for leaf in self.leaves.values():
            if self.autograd:
                leaf.grad = None
            else:
                layers.zero_grad(leaf)
