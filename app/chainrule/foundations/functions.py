# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
# mypy: disable-error-code="no-untyped-call, no-any-return"
"""The same once more as `torch.autograd.Function`: autograd keeps the graph, and calls our gradients.

`forward(ctx, …)` computes and says with `ctx.save_for_backward` what the backward pass will need: no more than that.
`backward(ctx, grad_output)` takes the gradient of the output and returns one gradient per argument of forward, None
for what is not a tensor. Called as `MyRelu.apply(inp)`. No `.g` here: autograd accumulates, in `.grad` of the leaves.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor
from torch.autograd import Function

from chainrule.foundations.activations import activation_rule
from chainrule.foundations.layers import check_classes, match_target


class MyRelu(Function):
    """The rectified linear unit.

        out = max(inp, 0)        grad_input = 1[inp > 0] · grad_output        all of one shape

    As in `layers.relu_grad` the mask is a factor: where grad_output is Inf behind a closed unit, this gives NaN and
    PyTorch's relu gives 0. Source: ch. 17. There `.float()`, which changes the dtype of a float16 gradient.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:
        ctx.save_for_backward(inp)
        return inp.clamp_min(0.0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (inp,) = ctx.saved_tensors
        return grad_output * (inp > 0).to(inp.dtype)


class Exp(Function):
    """The exponential, which is its own derivative, so that the result is all it saves.

        out = e^inp        grad_input = out · grad_output        all of one shape

    Source: the documentation of `torch.autograd.Function`.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:
        out = inp.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        return grad_output * out


class MulConstant(Function):
    """Multiplication by a number that is no tensor: it is kept on ctx itself, and its gradient is None.

        out = constant · inp        grad_input = constant · grad_output        all of one shape

    Source: the PyTorch tutorial.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, constant: float) -> Tensor:
        ctx.constant = constant
        return inp * constant

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        """grad_input = constant · grad_output, and None for the constant."""
        return grad_output * ctx.constant, None


class SinCos(Function):
    """Sine and cosine together: two outputs, so that backward gets two gradients.

        sin, cos = sin(inp), cos(inp)
        grad_input = grad_sin · cos − grad_cos · sin        all of one shape

    One gradient per output of forward comes in, one per argument of forward goes out, whatever their numbers: where
    an output is not used its gradient is zeros. Each output is the other one's derivative, but for the sign, so that
    the outputs are all it saves.

    Source: the signature `backward(ctx, *grad_outputs)` in the documentation of `torch.autograd.Function`.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> tuple[Tensor, Tensor]:
        sin, cos = inp.sin(), inp.cos()
        ctx.save_for_backward(sin, cos)
        return sin, cos

    @staticmethod
    def backward(ctx: Any, grad_sin: Tensor, grad_cos: Tensor) -> Tensor:
        sin, cos = ctx.saved_tensors
        return grad_sin * cos - grad_cos * sin


class SinCosSparing(SinCos):
    """SinCos that wants no zeros for an output that nobody uses: backward gets None there, and has to look.

    `ctx.set_materialize_grads(False)` saves making the zeros, and the work done on them.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        sin, cos = inp.sin(), inp.cos()
        ctx.save_for_backward(sin, cos)
        return sin, cos

    @staticmethod
    def backward(ctx: Any, grad_sin: Tensor | None, grad_cos: Tensor | None) -> Tensor | None:  # type: ignore[override]
        """grad_input = grad_sin · cos − grad_cos · sin, of those that are there; None where neither is."""
        sin, cos = ctx.saved_tensors
        grad_input = None if grad_sin is None else grad_sin * cos
        if grad_cos is not None:
            grad_input = -grad_cos * sin if grad_input is None else grad_input - grad_cos * sin
        return grad_input


class LinearFunction(Function):
    """The linear layer, with PyTorch's weight: (fan_out, fan_in).

        out         = inp @ weightᵀ + bias          (batch, fan_out)
        grad_inp    = grad_output @ weight          (batch, fan_in)
        grad_weight = grad_outputᵀ @ inp            (fan_out, fan_in)
        grad_bias   = Σ_batch grad_output           (fan_out,)

    `ctx.needs_input_grad` says which of the three are asked for; the others are not computed and None is returned.
    Raises ValueError unless inp is (batch, fan_in), weight (fan_out, fan_in) and bias (fan_out,) or None.

    Source: the PyTorch tutorial. An older print of it has `grad_output.sum(0).squeeze(0)`, which for a layer of one
    output gives a bias gradient of shape () for a bias of shape (1,). Here it is `sum(0)`.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        inp_shape, weight_shape = inp.shape, weight.shape
        bias_shape = weight_shape[:1] if bias is None else bias.shape
        if (
            len(inp_shape) != 2
            or len(weight_shape) != 2
            or inp_shape[1] != weight_shape[1]
            or bias_shape != weight_shape[:1]
        ):
            raise ValueError(
                "LinearFunction: expected inp (batch, fan_in), weight (fan_out, fan_in), bias (fan_out,) or None, "
                f"got inp {tuple(inp_shape)}, weight {tuple(weight_shape)}, "
                f"bias {None if bias is None else tuple(bias_shape)}"
            )
        ctx.save_for_backward(inp, weight)
        out = inp @ weight.t()
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of inp, weight and bias; None for each that is not needed."""
        inp, weight = ctx.saved_tensors
        grad_inp = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_inp = grad_output @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t() @ inp
        # One flag per argument that was passed: there is no third one where the bias was left out.
        if any(ctx.needs_input_grad[2:]):
            grad_bias = grad_output.sum(0)
        return grad_inp, grad_weight, grad_bias


relu = MyRelu.apply
"""An alias: a Function is called by `apply`, which is a function like any other."""


def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`LinearFunction` behind a function: named arguments with defaults, types and a docstring, which `apply` lacks.

    Shapes, gradients and errors are LinearFunction's. Once this was the only way to pass an argument by its name;
    the `apply` of torch 2.13 takes keywords too.

    Source: the custom-operator series, "option 2: wrap in a function, to support default args and keyword args".
    """
    return LinearFunction.apply(inp, weight, bias)


class ActivationFunction(Function):
    """The activation called `name` in the table of activations.py.

        out = f(inp)        grad_input = f'(inp) · grad_output        all of one shape

    Raises ValueError for a name that is not in the table.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, name: str) -> Tensor:
        rule = activation_rule(name)
        out = rule.f(inp)
        ctx.rule = rule
        ctx.save_for_backward(inp, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        """grad_input = f'(inp) · grad_output, and None for the name."""
        inp, out = ctx.saved_tensors
        return grad_output * ctx.rule.gradient(inp, out), None


class MseFunction(Function):
    """The mean squared error; shapes and errors as for `layers.mse`.

        loss = mean((inp − targ)²)        grad_inp = grad_output · 2 (inp − targ) / n,  n the elements of targ

    The target is given, so it gets no gradient.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, targ: Tensor) -> Tensor:
        ctx.save_for_backward(inp, targ)
        return (match_target(inp, targ) - targ).pow(2).mean()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        inp, targ = ctx.saved_tensors
        return grad_output * (2.0 * (match_target(inp, targ) - targ) / targ.numel()).view_as(inp), None


class CrossEntropyFunction(Function):
    """The cross entropy of softmax(inp) with the true classes; shapes and errors as for `layers.cross_entropy`.

    loss = −mean_batch(log softmax(inp)[targ])        grad_inp = grad_output · (softmax(inp) − onehot(targ)) / batch
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, targ: Tensor) -> Tensor:
        check_classes(inp, targ)
        ctx.save_for_backward(inp, targ)
        return -inp.log_softmax(-1).gather(-1, targ.unsqueeze(-1)).mean()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        inp, targ = ctx.saved_tensors
        batch, classes = inp.shape
        return grad_output * (inp.softmax(-1) - F.one_hot(targ, classes)) / batch, None
