# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
# mypy: disable-error-code="attr-defined, no-any-return"
# (`.g` is ours: torch.Tensor declares no such attribute.)
"""The layers as plain functions, each with its gradient beside it; then as classes that remember their own tensors.

    lin   relu   activation   mse   cross_entropy          forward: out = f(inp, …)
    lin_grad  relu_grad  …                                 backward: reads out.g, adds to inp.g, w.g, b.g
    model   forward_and_backward                           the chapter's two layers: lin, relu, lin and mse

    Lin   Relu   Activation   Mse   CrossEntropy           out = layer(inp), then layer.backward()
    Model                                                  loss = model(x, targ), then model.backward()

Gradients are kept in `.g` and *accumulate*: a tensor that is used twice gets the sum of both uses. The chapter prints
`inp.g = …`, where the second use overwrites the first. Gradients must be cleared before the next pass:
`zero_grad` does it, and `Model` calls it at the start of every forward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule.foundations.activations import activation_rule

# ---------------------------------------------------------------------------------------------------- gradients in .g


def accumulate(tensor: Tensor, gradient: Tensor) -> None:
    """Add one use's share to the gradient of a tensor: t.g += gradient. Both have one shape."""
    g = getattr(tensor, "g", None)
    tensor.g = gradient if g is None else g + gradient


def zero_grad(*tensors: Tensor) -> None:
    """Forget the gradients of these tensors, so that the next backward pass starts afresh: t.g = None."""
    for tensor in tensors:
        tensor.g = None


# ------------------------------------------------------------------------------------------------------- linear layer


def check_linear(inp: Tensor, w: Tensor, b: Tensor | None) -> None:
    """Raise ValueError unless the shapes are inp (batch, fan_in), w (fan_in, fan_out) and b (fan_out,) or None.

    Without it a b of shape (1,), or an inp of three dimensions, goes through the forward pass without a word and gives
    gradients of the wrong shape.
    """
    inp_shape, w_shape = inp.shape, w.shape
    b_shape = w_shape[1:] if b is None else b.shape
    if len(inp_shape) != 2 or len(w_shape) != 2 or inp_shape[1] != w_shape[0] or b_shape != w_shape[1:]:
        raise ValueError(
            "lin: expected inp (batch, fan_in), w (fan_in, fan_out), b (fan_out,) or None, "
            f"got inp {tuple(inp_shape)}, w {tuple(w_shape)}, b {None if b is None else tuple(b_shape)}"
        )


def lin(inp: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """The linear layer.

        out = inp @ w + b

    inp: (batch, fan_in), w: (fan_in, fan_out), b: (fan_out,) or None; out: (batch, fan_out). Raises ValueError if the
    shapes do not fit.

    Source: ch. 17, "Defining and Initializing a Layer". There b is always present and shapes are not checked.
    """
    check_linear(inp, w, b)
    out = inp @ w
    return out if b is None else out + b


def lin_grad(inp: Tensor, out: Tensor, w: Tensor, b: Tensor | None = None) -> None:
    """The gradients of a linear layer's input, weight and bias.

        inp.g += out.g @ wᵀ        (batch, fan_in)
        w.g   += inpᵀ @ out.g      (fan_in, fan_out)
        b.g   += Σ_batch out.g     (fan_out,)

    Source: ch. 17, "Gradients and the Backward Pass". There `=` instead of `+=`.
    """
    accumulate(inp, out.g @ w.t())
    accumulate(w, inp.t() @ out.g)
    if b is not None:
        accumulate(b, out.g.sum(0))


# -------------------------------------------------------------------------------------------------------- activations


def relu(inp: Tensor) -> Tensor:
    """The rectified linear unit, element by element: out = max(inp, 0). Source: ch. 17."""
    return inp.clamp_min(0.0)


def relu_grad(inp: Tensor, out: Tensor) -> None:
    """The gradient of relu's input: it passes where the input was positive.

        inp.g += 1[inp > 0] · out.g

    At 0 the slope is 0, the slope on its left. inp, out and out.g have one shape.

    The mask is a factor, as printed, so that 0 · Inf = NaN: a gradient that overflowed shows as NaN behind a closed
    unit too. PyTorch's own relu selects instead and puts 0 there. On finite values the two agree.

    Source: ch. 17. There `.float()`, which would make a float32 gradient for a float16 tensor, and `=` for `+=`.
    """
    accumulate(inp, (inp > 0).to(inp.dtype) * out.g)


def activation(inp: Tensor, name: str) -> Tensor:
    """The activation called `name` in the table of activations.py: out = f(inp). Raises ValueError for other names."""
    return activation_rule(name).f(inp)


def activation_grad(inp: Tensor, out: Tensor, name: str) -> None:
    """The gradient of an activation's input: inp.g += f'(inp) · out.g. Raises ValueError for an unknown name."""
    accumulate(inp, activation_rule(name).gradient(inp, out) * out.g)


# ------------------------------------------------------------------------------------------------------------- losses


def match_target(inp: Tensor, targ: Tensor) -> Tensor:
    """`inp` in the shape of `targ`: (batch, 1) becomes (batch,) where targ is (batch,).

    Raises:
        ValueError: the shapes differ in any other way. `inp - targ` would often work all the same: (200, 1) − (200,)
            broadcasts to (200, 200) without a word, and the mean is taken over every pair.

    Source: ch. 17 squeezes with `.squeeze()`, which at batch 1 takes the batch axis too and leaves shape ().
    """
    inp_shape, targ_shape = inp.shape, targ.shape
    if inp_shape == targ_shape:
        return inp
    if inp_shape == (*targ_shape, 1):
        return inp.squeeze(-1)
    raise ValueError(
        "mse: expected inp (batch, 1) with targ (batch,), or inp and targ of one shape, "
        f"got inp {tuple(inp_shape)}, targ {tuple(targ_shape)}"
    )


def mse(inp: Tensor, targ: Tensor) -> Tensor:
    """The mean squared error: loss = mean((inp − targ)²).

    inp: (batch, 1) with targ (batch,), or both (batch, n_out); loss: (). Raises ValueError if the shapes do not fit,
    also where broadcasting would make them fit.

    Source: ch. 17. There `.squeeze()` (see `match_target`) and one output only.
    """
    return (match_target(inp, targ) - targ).pow(2).mean()


def mse_grad(inp: Tensor, targ: Tensor) -> None:
    """The gradient of the mean squared error's input.

        inp.g += 2 (inp − targ) / n,  n the number of elements of targ

    Shapes and errors as for `mse`.

    Source: ch. 17. There n is `targ.shape[0]`, the batch, which is n_out times too little where n_out > 1. `view_as`
    undoes the squeeze; it is `unsqueeze(-1)` in the chapter, and nothing where there was no squeeze.
    """
    accumulate(inp, (2.0 * (match_target(inp, targ) - targ) / targ.numel()).view_as(inp))


def check_classes(inp: Tensor, targ: Tensor) -> None:
    """Raise ValueError unless inp is (batch, classes) and targ is (batch,) of int64."""
    inp_shape, targ_shape, targ_dtype = inp.shape, targ.shape, targ.dtype
    if len(inp_shape) != 2 or targ_shape != inp_shape[:1] or targ_dtype != torch.int64:
        raise ValueError(
            "cross_entropy: expected inp (batch, classes), targ (batch,) of int64, "
            f"got inp {tuple(inp_shape)}, targ {tuple(targ_shape)} of {str(targ_dtype).removeprefix('torch.')}"
        )


def cross_entropy(inp: Tensor, targ: Tensor) -> Tensor:
    """The cross entropy of softmax(inp) with the true classes: loss = −mean_batch(log softmax(inp)[targ]).

    inp: (batch, classes), any real numbers (logits); targ: (batch,) of int64, class indices 0 … classes − 1; loss: ().
    Raises ValueError for others.

    Source: C. Bishop, *Pattern Recognition and Machine Learning* (2006), 4.3.4. The chapter's model has mse only.
    """
    check_classes(inp, targ)
    return -inp.log_softmax(-1).gather(-1, targ.unsqueeze(-1)).mean()


def cross_entropy_grad(inp: Tensor, targ: Tensor) -> None:
    """The gradient of the cross entropy's input.

        inp.g += (softmax(inp) − onehot(targ)) / batch

    Shapes and errors as for `cross_entropy`.

    Source: C. Bishop, *Pattern Recognition and Machine Learning* (2006), equation 4.109.
    """
    check_classes(inp, targ)
    batch, classes = inp.shape
    accumulate(inp, (inp.softmax(-1) - F.one_hot(targ, classes)) / batch)


# --------------------------------------------------------------------------------------------- the chapter's two layers


def model(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a relu between them: out = lin(relu(lin(x, w1, b1)), w2, b2).

    x: (batch, n_in), w1: (n_in, hidden), b1: (hidden,), w2: (hidden, n_out), b2: (n_out,); out: (batch, n_out). Raises
    ValueError if the shapes do not fit.

    Source: ch. 17, "Defining and Initializing a Layer". There the parameters are global.
    """
    l1 = lin(x, w1, b1)
    l2 = relu(l1)
    return lin(l2, w2, b2)


def forward_and_backward(
    inp: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The chain rule, written out for the chapter's model: each gradient needs the one computed just before it.

        loss = mse(lin(relu(lin(inp, w1, b1)), w2, b2), targ)

    Starts a new pass: clears the gradients of inp and of the parameters, and puts the new ones into their `.g`.

    targ: (batch,) for n_out = 1, else (batch, n_out); the others as for `model`. Returns l1: (batch, hidden), l2:
    (batch, hidden) and out: (batch, n_out), each with its gradient in `.g`, and the loss, ().

    Source: ch. 17, "Gradients and the Backward Pass". There the parameters are global and nothing is returned.
    """
    zero_grad(inp, w1, b1, w2, b2)
    # forward pass:
    l1 = lin(inp, w1, b1)
    l2 = relu(l1)
    out = lin(l2, w2, b2)
    # The backward pass does not need the loss: mse_grad starts from out.
    loss = mse(out, targ)

    # backward pass:
    mse_grad(out, targ)
    lin_grad(l2, out, w2, b2)
    relu_grad(l1, l2)
    lin_grad(inp, l1, w1, b1)
    return l1, l2, out, loss


# ------------------------------------------------------------------------------------------- the same, as classes
#
# A class remembers what its gradient needs, so that `backward` takes no arguments. It remembers one call: a weight that
# is used twice in a pass belongs to two layers.


class Lin:
    """A linear layer that knows its weight and bias.

        out = inp @ w + b          inp: (batch, fan_in)   w: (fan_in, fan_out)   b: (fan_out,) or None

    `backward` needs out.g and adds to inp.g, w.g and b.g; see `lin_grad`. Raises ValueError if shapes do not fit.

    Source: ch. 17, "Refactoring the Model". There b is always present, and `=` instead of `+=`.
    """

    def __init__(self, w: Tensor, b: Tensor | None = None) -> None:
        self.w, self.b = w, b

    def __call__(self, inp: Tensor) -> Tensor:
        check_linear(inp, self.w, self.b)
        self.inp = inp
        self.out = inp @ self.w
        if self.b is not None:
            self.out = self.out + self.b
        return self.out

    def backward(self) -> None:
        accumulate(self.inp, self.out.g @ self.w.t())
        accumulate(self.w, self.inp.t() @ self.out.g)
        if self.b is not None:
            accumulate(self.b, self.out.g.sum(0))


class Relu:
    """The rectified linear unit: out = max(inp, 0), of any shape. Source: ch. 17; for `backward` see `relu_grad`."""

    def __call__(self, inp: Tensor) -> Tensor:
        self.inp = inp
        self.out = inp.clamp_min(0.0)
        return self.out

    def backward(self) -> None:
        accumulate(self.inp, (self.inp > 0).to(self.inp.dtype) * self.out.g)


class Activation:
    """The activation called `name` in the table of activations.py: out = f(inp), of any shape.

    Raises ValueError for a name that is not in the table.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rule = activation_rule(name)

    def __call__(self, inp: Tensor) -> Tensor:
        self.inp = inp
        self.out = self.rule.f(inp)
        return self.out

    def backward(self) -> None:
        accumulate(self.inp, self.rule.gradient(self.inp, self.out) * self.out.g)


class Mse:
    """The mean squared error: loss = mean((inp − targ)²); shapes and errors as for the function `mse`.

    Source: ch. 17; for where it differs see `match_target` and `mse_grad`.
    """

    def __call__(self, inp: Tensor, targ: Tensor) -> Tensor:
        self.inp = inp
        self.targ = targ
        self.out = (match_target(inp, targ) - targ).pow(2).mean()
        return self.out

    def backward(self) -> None:
        difference = match_target(self.inp, self.targ) - self.targ
        accumulate(self.inp, (2.0 * difference / self.targ.numel()).view_as(self.inp))


class CrossEntropy:
    """The cross entropy of softmax(inp) with the true classes; shapes and errors as for `cross_entropy`."""

    def __call__(self, inp: Tensor, targ: Tensor) -> Tensor:
        check_classes(inp, targ)
        self.inp = inp
        self.targ = targ
        self.out = -inp.log_softmax(-1).gather(-1, targ.unsqueeze(-1)).mean()
        return self.out

    def backward(self) -> None:
        batch, classes = self.inp.shape
        accumulate(self.inp, (self.inp.softmax(-1) - F.one_hot(self.targ, classes)) / batch)


class Model:
    """Layers one after the other, and a loss.

        loss = loss(layer_L(… layer_1(x)), targ)

    A layer is called with one tensor, the loss with two, and both have a `backward()`: the classes above, or those of
    layer_function.py. Afterwards x.g and the .g of every weight, bias and tensor between are the loss's gradients.

    Every call starts a new pass: it clears the gradients of x and of all parameters, so that nothing is left of the
    pass before. (The tensors between are new in every pass.)

    Source: ch. 17. There the two linear layers and the relu between are fixed, and nothing need be cleared since
    nothing accumulates.
    """

    def __init__(self, layers: list[Any], loss: Any) -> None:
        self.layers = layers
        self.loss = loss

    def parameters(self) -> list[Tensor]:
        """The w and b of every layer that has them, in order of execution."""
        tensors = (getattr(layer, name, None) for layer in self.layers for name in ("w", "b"))
        return [tensor for tensor in tensors if tensor is not None]

    def __call__(self, x: Tensor, targ: Tensor) -> Tensor:
        zero_grad(x, *self.parameters())
        for layer in self.layers:
            x = layer(x)
        return self.loss(x, targ)

    def backward(self) -> None:
        self.loss.backward()
        for layer in reversed(self.layers):
            layer.backward()
