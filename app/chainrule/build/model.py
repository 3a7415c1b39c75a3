"""A model that is ready to run, and the names of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from chainrule.foundations import layers


@dataclass(frozen=True, slots=True)
class LayerNames:
    """The chapter's names of one layer's tensors; `index` counts from 1.

    In a layer without activation function `preactivation` and `activation` are the same tensor.
    """

    index: int
    name: str
    preactivation: str
    activation: str
    weight: str
    bias: str | None


@dataclass(frozen=True)
class BuiltModel:
    """A model that is ready to run, any number of times: every pass starts with cleared gradients.

    Attributes:
        root: a scratch model, an nn.Module or a function; called with `inputs`, it gives the loss.
        leaves: the drawn tensors by name: x, y, w1, b1, … A weight is (fan_in, fan_out) with gradients by hand, and
            (fan_out, fan_in) under autograd.
        outputs: module path → name of its output; with the op's name after the path where there are several
            (`SinCos.sin`).
        layers: the names of each layer's tensors, in order; empty for a program that is no net.
        autograd: whether autograd runs the backward pass, with gradients in `.grad`; else they are in `.g`.
        inputs: names of the root's arguments, in order.
        roles: roles of leaves other than x (an input), y (a target) and parameters.
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
        """The gradients of x, of every parameter and of the tensors between; `loss` comes from `forward`."""
        if self.autograd:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.root.backward()

    def clear_gradients(self) -> None:
        """Remove the gradients of the leaves."""
        for leaf in self.leaves.values():
            if self.autograd:
                leaf.grad = None
            else:
                layers.zero_grad(leaf)
