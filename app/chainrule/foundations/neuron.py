"""A neuron, then a layer of them: first with Python's own `sum` and `zip`, then as one matrix product.

    neuron          output = Σᵢ inputsᵢ · weightsᵢ + bias        one number
    relu            the nonlinear function its output is fed to
    dense           y[i, j] = Σₖ x[i, k] · w[j, k] + b[j]        one neuron per column of y
    dense_matmul    the same as y = x @ w.t() + b

Here w lies as in PyTorch, (n_neurons, n_inputs), a row per neuron; that is why it is transposed. The chapter's formula
writes w[k, j], a column per neuron, and its code w[j, :]; `layers.lin` has the former.

Source: ch. 17, "Modeling a Neuron".
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

Scalar = float | Tensor
"""A Python number or a tensor of shape ()."""


def neuron(inputs: Iterable[Scalar], weights: Iterable[Scalar], bias: Scalar) -> Scalar:
    """The output of a neuron before its activation function: the sum of the weighted inputs, and a bias.

        output = Σᵢ inputsᵢ · weightsᵢ + bias,  from the left, starting at 0

    inputs, weights: n numbers, or tensors (n,); bias: a number, or a tensor (). For tensors the output is a
    tensor () that autograd can follow. Raises ValueError unless there are as many inputs as weights.

    Source: ch. 17. There `zip` is not strict: if inputs and weights differ in length, it silently drops the end of
    the longer one, and the output is wrong.
    """
    # output = sum([x*w for x,w in zip(inputs, weights)]) + bias         # as printed
    return sum([x * w for x, w in zip(inputs, weights, strict=True)]) + bias


def relu(x: Scalar) -> Scalar:
    """The rectified linear unit of one number.

        relu(x) = x where x ≥ 0, else 0

    x: a number, or a tensor () (in truth of any shape). At 0 the derivative is 1, as `x >= 0` has it; PyTorch's is 0.

    Source: ch. 17. There as below; a NaN, for which no comparison is true, comes out as 0 and is never heard of again.
    """
    # def relu(x): return x if x >= 0 else 0                              # as printed
    if isinstance(x, Tensor):
        return x.clamp_min(0)  # a 0 that is a tensor, so that autograd can follow it
    return 0 if x < 0 else x


def dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The output of a fully connected layer, a neuron at a time.

        y[i, j] = Σₖ x[i, k] · w[j, k] + b[j]

    x: (batch_size, n_inputs), w: (n_neurons, n_inputs), b: (n_neurons,); y: (batch_size, n_neurons).
    Raises ValueError for other shapes. Source: ch. 17.
    """
    batch_size, n_neurons = _output_shape(x, w, b)
    y = torch.zeros(batch_size, n_neurons, dtype=x.dtype, device=x.device)
    for i in range(batch_size):
        for j in range(n_neurons):
            y[i, j] = sum([x_k * w_k for x_k, w_k in zip(x[i, :], w[j, :], strict=True)]) + b[j]
    return y


def dense_matmul(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The output of a fully connected layer at once; shapes and errors as for `dense`. Source: ch. 17.

    The sums are the same, but the order in which the matrix product adds is its own: they agree up to rounding.
    """
    _output_shape(x, w, b)
    # y[i, j] = sum([x_k * w_k for x_k, w_k in zip(x[i, :], w[j, :])]) + b[j]      # previous
    return x @ w.t() + b


def _output_shape(x: Tensor, w: Tensor, b: Tensor) -> tuple[int, int]:
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1] or b.shape != w.shape[:1]:
        raise ValueError(
            "dense: expected x (batch_size, n_inputs), w (n_neurons, n_inputs), b (n_neurons,), "
            f"got x {tuple(x.shape)}, w {tuple(w.shape)}, b {tuple(b.shape)}"
        )
    return x.shape[0], w.shape[0]
