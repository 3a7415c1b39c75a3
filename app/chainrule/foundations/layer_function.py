# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
# mypy: disable-error-code="attr-defined, override"
# (`.g` is ours: torch.Tensor declares no such attribute. A layer names the arguments that the base hands on as *args.)
"""The common part of the layer classes: `LayerFunction` remembers the call, a layer defines only forward and bwd.

    class Relu(LayerFunction):
        def forward(self, inp): …             out
        def bwd(self, out, inp): …            adds to inp.g, given out.g

`layers.Model` takes these layers as it takes the others. Gradients accumulate in `.g`, as there.
"""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule.foundations.activations import activation_rule
from chainrule.foundations.layers import accumulate, check_classes, check_linear, match_target


class LayerFunction:
    """A function and its gradient: calling it keeps the arguments and the result, `backward` hands them to `bwd`.

        out = layer(*args)     →   layer.forward(*args)
        layer.backward()       →   layer.bwd(out, *args)

    It remembers one call. Source: ch. 17, "Going to PyTorch".
    """

    def __call__(self, *args: Tensor) -> Tensor:
        self.args = args
        self.out = self.forward(*args)
        return self.out

    def forward(self, *args: Tensor) -> Tensor:
        """Compute the output. Raises NotImplementedError: a layer defines it."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def bwd(self, out: Tensor, *args: Tensor) -> None:
        """Add to the `.g` of the arguments, given out.g. Raises NotImplementedError: a layer defines it."""
        raise NotImplementedError(f"{type(self).__name__}.bwd")

    def backward(self) -> None:
        self.bwd(self.out, *self.args)


class Lin(LayerFunction):
    """A linear layer: out = inp @ w + b.

    inp: (batch, fan_in), w: (fan_in, fan_out), b: (fan_out,) or None; raises ValueError if shapes do not fit.

    Source: ch. 17. There `bwd` reads `self.inp` and `self.out.g`; the first is set no longer and the line ends in an
    AttributeError. Here it takes its arguments, `inp` and `out.g`.
    """

    def __init__(self, w: Tensor, b: Tensor | None = None) -> None:
        self.w, self.b = w, b

    def forward(self, inp: Tensor) -> Tensor:
        check_linear(inp, self.w, self.b)
        out = inp @ self.w
        return out if self.b is None else out + self.b

    def bwd(self, out: Tensor, inp: Tensor) -> None:
        accumulate(inp, out.g @ self.w.t())
        accumulate(self.w, inp.t() @ out.g)
        if self.b is not None:
            accumulate(self.b, out.g.sum(0))


class Relu(LayerFunction):
    """The rectified linear unit: out = max(inp, 0), of any shape. Source: ch. 17; see `layers.relu_grad`."""

    def forward(self, inp: Tensor) -> Tensor:
        return inp.clamp_min(0.0)

    def bwd(self, out: Tensor, inp: Tensor) -> None:
        accumulate(inp, (inp > 0).to(inp.dtype) * out.g)


class Activation(LayerFunction):
    """The activation called `name` in the table of activations.py: out = f(inp), of any shape.

    Raises ValueError for a name that is not in the table.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rule = activation_rule(name)

    def forward(self, inp: Tensor) -> Tensor:
        return self.rule.f(inp)

    def bwd(self, out: Tensor, inp: Tensor) -> None:
        accumulate(inp, self.rule.gradient(inp, out) * out.g)


class Mse(LayerFunction):
    """The mean squared error: shapes and errors as for `layers.mse`. Source: ch. 17; differs as `layers.mse_grad`."""

    def forward(self, inp: Tensor, targ: Tensor) -> Tensor:
        return (match_target(inp, targ) - targ).pow(2).mean()

    def bwd(self, _out: Tensor, inp: Tensor, targ: Tensor) -> None:
        accumulate(inp, (2.0 * (match_target(inp, targ) - targ) / targ.numel()).view_as(inp))


class CrossEntropy(LayerFunction):
    """The cross entropy of softmax(inp) with the true classes: shapes and errors as for `layers.cross_entropy`."""

    def forward(self, inp: Tensor, targ: Tensor) -> Tensor:
        check_classes(inp, targ)
        return -inp.log_softmax(-1).gather(-1, targ.unsqueeze(-1)).mean()

    def bwd(self, _out: Tensor, inp: Tensor, targ: Tensor) -> None:
        batch, classes = inp.shape
        accumulate(inp, (inp.softmax(-1) - F.one_hot(targ, classes)) / batch)
