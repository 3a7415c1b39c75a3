# mypy: disable-error-code="no-any-return"
# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
"""The same as `torch.nn.Module`: parameters are registered, and autograd finds the gradients from the expressions.

    Linear   Mse   CrossEntropy   Model        made of tensors that are drawn elsewhere, for any depth
    LinearLayer   SequentialModel              as the chapter writes them: they draw their own
    Module   AutoSuperModel                    the same without `super().__init__()`

The activations between the layers are torch.nn's own (nn.ReLU, nn.Tanh, …), as in the chapter. relu must not be written
`inp.clamp_min(0.)` here: autograd gives clamp_min the slope 1 at exactly 0, the chapter's relu has slope 0 there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.foundations.layers import cross_entropy, mse


class Linear(nn.Module):
    """The linear layer, with PyTorch's weight: (fan_out, fan_in) = (out_features, in_features).

        out = inp @ weightᵀ + bias

    inp: (..., in_features), out: (..., out_features). Raises ValueError unless bias is (out_features,) or None.

    Source: ch. 17's `LinearLayer`, and the `Linear` of the PyTorch tutorial. The tutorial's forward calls
    `LinearFunction.apply`; here the expression stands itself, as in the chapter, and autograd differentiates it.
    It is made of its tensors, like `layers.Lin`; `Linear.uniform` draws them as the tutorial's constructor does.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError(
                "Linear: expected weight (out_features, in_features), bias (out_features,) or None, "
                f"got weight {tuple(weight.shape)}, bias {None if bias is None else tuple(bias.shape)}"
            )
        self.out_features, self.in_features = weight.shape
        self.weight = nn.Parameter(weight)
        # Registered also where it is None, so that the attribute is always there.
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias))

    @classmethod
    def uniform(
        cls, in_features: int, out_features: int, bias: bool = True, *, generator: torch.Generator | None = None
    ) -> Linear:
        """A layer with weight and bias drawn from U(−0.1, 0.1): "not a very smart way to initialize weights".

        Source: the PyTorch tutorial. There `if bias is not None` guards the draw of the bias, which `bias=False`
        passes, to fail on the bias that does not exist.
        """
        weight = torch.empty(out_features, in_features).uniform_(-0.1, 0.1, generator=generator)
        if not bias:
            return cls(weight)
        return cls(weight, torch.empty(out_features).uniform_(-0.1, 0.1, generator=generator))

    def forward(self, inp: Tensor) -> Tensor:
        out = inp @ self.weight.t()
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """The text between the brackets of `Linear(…)`.

        Source: the PyTorch tutorial. There it reads `in_features` where the constructor had set `input_features`.
        """
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Mse(nn.Module):
    """The mean squared error; equation, shapes and errors as for `layers.mse`."""

    def forward(self, inp: Tensor, targ: Tensor) -> Tensor:
        return mse(inp, targ)


class CrossEntropy(nn.Module):
    """The cross entropy of softmax(inp) with the true classes; as for `layers.cross_entropy`."""

    def forward(self, inp: Tensor, targ: Tensor) -> Tensor:
        return cross_entropy(inp, targ)


class Model(nn.Module):
    """Layers one after the other, and a loss, Mse() or CrossEntropy(): loss = loss(layer_L(… layer_1(x)), targ).

    Source: ch. 17. There the layers are an nn.Sequential; a loop over an nn.ModuleList keeps the paths `layers.0` …
    without a module of its own between the model and its layers. The squeeze moved into the loss.
    """

    def __init__(self, layers: Iterable[nn.Module], loss: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.loss = loss

    def forward(self, x: Tensor, targ: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.loss(x, targ)


# ------------------------------------------------------------------------------------------- as the chapter writes them


class LinearLayer(nn.Module):
    """The chapter's linear layer: Kaiming weights for a relu, and biases of 0.

        out = x @ weightᵀ + bias          weight = z · √(2 / n_in),  z ~ N(0, 1): (n_out, n_in)      bias = 0: (n_out,)

    x: (..., n_in), out: (..., n_out). Without a generator the global one draws, as in the chapter.

    Source: ch. 17, "torch.nn.Module".
    """

    def __init__(self, n_in: int, n_out: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in, generator=generator) * math.sqrt(2 / n_in))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t() + self.bias


class Module(nn.Module):
    """An nn.Module that needs no call of `super().__init__()`: the call always happens before `__init__`.

    A module can register parameters and layers only after nn.Module's constructor has run. Before that, assigning
    one raises an AttributeError. Python calls `__new__` before `__init__`, so `__new__` runs the constructor here.

    Source: the Module of fastai, named in ch. 17. There a metaclass calls a `__pre_init__`.
    """

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Module:
        """A module that can register the parameters and layers that `__init__` assigns."""
        module = super().__new__(cls)
        nn.Module.__init__(module)
        return module

    def __init__(self) -> None:
        """Does nothing, so a call of it keeps everything that is registered already."""


class SequentialModel(nn.Module):
    """The chapter's model: two linear layers with a relu between them, and the mean squared error.

        loss = mse(layers(x), targ)          x: (batch, n_in), targ: (batch,) for n_out = 1, else (batch, n_out)

    n_in inputs, nh hidden units, n_out outputs; without a generator the global one draws.

    Source: ch. 17, "torch.nn.Module". There the layers are nn.Linear, which draws from the global generator alone;
    and `.squeeze()`, which `mse` does itself.
    """

    def __init__(self, n_in: int, nh: int, n_out: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            LinearLayer(n_in, nh, generator=generator), nn.ReLU(), LinearLayer(nh, n_out, generator=generator)
        )
        self.loss = mse

    def forward(self, x: Tensor, targ: Tensor) -> Tensor:
        return self.loss(self.layers(x), targ)


class AutoSuperModel(Module):
    """`SequentialModel` on a `Module` that calls `super().__init__()` by itself. Source: ch. 17."""

    def __init__(self, n_in: int, nh: int, n_out: int, *, generator: torch.Generator | None = None) -> None:
        self.layers = nn.Sequential(
            LinearLayer(n_in, nh, generator=generator), nn.ReLU(), LinearLayer(nh, n_out, generator=generator)
        )
        self.loss = mse

    def forward(self, x: Tensor, targ: Tensor) -> Tensor:
        return self.loss(self.layers(x), targ)
