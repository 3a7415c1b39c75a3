"""Many nets of one shape at once: each tensor has an axis of nets in front, and one batched product serves all nets.

The nets have one spec but for its seed, scale, bias_std, lr and weight_decay. The gradients are those by hand of
`foundations/layers.py`. On a CPU, with one thread of PyTorch, each net has the bits that it has alone, with one
exception: PyTorch computes exp with vector instructions, but not for the last elements of a tensor, and these have
other last bits. So sigmoid, gelu, silu, elu and selu need layers of batch · width = 64, 128, …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule import stopping
from chainrule.build.data import batch_from, data_set
from chainrule.build.draws import BaseDraw, as_spec, base_draw, draw_batch, target_of, weight_factor
from chainrule.build.parametrization import rate_factors
from chainrule.build.training import OPTIMIZERS
from chainrule.foundations.activations import activation_rule
from chainrule.foundations.initialization import SCHEMES, normal
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM

STACKED = ("scale", "bias_std", "lr", "weight_decay")
"""The keys whose values differ between the nets of a stack, besides the seed."""

PROBED_NETS, PROBED_VALUES = 4, 4096
"""Minimum number of nets, and about the number of values, with which `bmm` is compared with `mm`."""

ALIGNMENT = 64
"""Bytes: the memory of a tensor begins at a multiple."""


class _PerNet:
    """A factor per net, which computes as a Python number does: in float64, and rounded to the tensor it multiplies."""

    def __init__(self, values: Tensor) -> None:
        """`values`: (nets, 1, 1), float64."""
        self.values = values
        # A factor of half precision would be off by up to 0.4 %.
        self._single = values.float()

    def __neg__(self) -> _PerNet:
        return _PerNet(-self.values)

    def __truediv__(self, number: float) -> _PerNet:
        return _PerNet(self.values / number)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, _PerNet):
            return _PerNet(self.values * other.values)
        factors = self.values if other.dtype == torch.float64 else self._single
        return (factors * other).to(other.dtype)


class Stack:
    """Nets of one shape, trained together.

    Attributes:
        spec: the values that the nets share; its step is not used.
        seeds: of each net.
        step: the number of updates that the parameters have had.
        weights, biases: of each layer: (nets, fan_in, fan_out) and (nets, 1, fan_out); no biases without `bias`.
        weight_gradients, bias_gradients: of the last backward pass, in the same shapes.
        preactivations, activations: of each layer in the last forward pass: (nets, batch, width).
        gradients: of each layer's activation in the last backward pass: (nets, batch, width).
        x, y: the step's batch: (nets, batch, n_in), and (nets, batch, n_out) or (nets, batch) of classes.
    """

    def __init__(self, spec: ModelSpec, seeds: Sequence[int], values: Mapping[str, Sequence[float]]) -> None:
        """`values`: for some of the keys STACKED, the value of each net."""
        self.spec = spec.replace(step=0)
        self.seeds = tuple(seeds)
        self._distinct = sorted(set(seeds))
        place = {seed: position for position, seed in enumerate(self._distinct)}
        self._which = torch.tensor([place[seed] for seed in seeds])
        self._values = {
            name: torch.tensor(values.get(name, [getattr(spec, name)] * len(seeds)), dtype=torch.float64)
            for name in STACKED
        }
        self.weights: list[Tensor] = []
        self.biases: list[Tensor] = []
        for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
            self._draw_layer(index, fan_in, fan_out)
        # Kept here: the cache of data sets is small.
        self._data = [] if spec.data == RANDOM else [data_set(spec.data, seed) for seed in self._distinct]
        self.restart_training()

    def _draw_layer(self, index: int, fan_in: int, fan_out: int) -> None:
        scheme = SCHEMES[self.spec.init]
        factor = weight_factor(self.spec.replace(scale=1.0), fan_in, fan_out, index == self.spec.depth)
        weight = self._drawn(f"w{index}", scheme.base, (fan_in, fan_out), factor * self._values["scale"])
        self.weights.append(weight)
        if not self.spec.bias:
            return
        if self.spec.init == "torch_default":
            factors = torch.full_like(self._values["scale"], scheme.factor(fan_in, fan_out))
            bias = self._drawn(f"b{index}", scheme.base, (fan_out,), factors)
        else:
            bias = self._drawn(f"b{index}", normal, (fan_out,), self._values["bias_std"])
        self.biases.append(bias[:, None])

    def _drawn(self, name: str, base: BaseDraw, shape: tuple[int, ...], factors: Tensor) -> Tensor:
        """The tensor `name` of every net: its seed's draw times its factor, as in `draws.draw_leaf`."""
        draws = torch.stack([base_draw(seed, name, base, shape, self.spec.dtype) for seed in self._distinct])
        if len(draws) > 1:
            draws = draws[self._which]
        return as_spec(self.spec, draws * factors.to(draws.dtype).reshape(-1, *[1] * len(shape)))

    def restart_training(self, lr: Tensor | None = None) -> None:
        """Begin at step 0 with a new optimizer, and with a learning rate per net if `lr` (nets,) is given.

        The parameters stay as they are.
        """
        rates = {"lr": self._values["lr"] if lr is None else lr, "weight_decay": self._values["weight_decay"]}
        self._optimizer = OPTIMIZERS[self.spec.optimizer](self.spec)
        factors, layers = rate_factors(self.spec), range(1, self.spec.depth + 1)
        names = [*(f"w{index}" for index in layers), *(f"b{index}" for index in layers if self.biases)]
        self._factors = [factors.get(name, 1.0) for name in names]
        for name, values in rates.items():
            setattr(self._optimizer, name, _PerNet(values.to(self.spec.device).reshape(-1, 1, 1)))
        self._set_step(0)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, then all biases."""
        return [*self.weights, *self.biases]

    def forward(self) -> Tensor:
        """The loss of each net on the step's batch: (nets,)."""
        self.preactivations, self.activations = self._layers(self.x)
        return self.loss(self.activations[-1], self.y)

    def _layers(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        preactivations: list[Tensor] = []
        activations: list[Tensor] = []
        spec = self.spec
        for index, weight in enumerate(self.weights):
            z = _products(activations[-1] if activations else x, weight)
            if self.biases:
                z += self.biases[index]
            preactivations.append(z)
            if self._has_activation(index):
                z = z.clamp_min(0.0) if spec.activation == "relu" else activation_rule(spec.activation).f(z)
            activations.append(z)
        return preactivations, activations

    def _has_activation(self, index: int) -> bool:
        return self.spec.activation != "linear" and (self.spec.last_activation or index < self.spec.depth - 1)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """The loss of each net: (nets,)."""
        if self.spec.loss == "cross_entropy":
            return -out.log_softmax(-1).gather(-1, target.unsqueeze(-1)).flatten(1).mean(1)
        return (out.view_as(target) - target).pow(2).flatten(1).mean(1)

    def backward(self, *, parameters: bool = True) -> None:
        """The gradients of each layer's activation, and of the `parameters`, after `forward`."""
        out, spec = self.activations[-1], self.spec
        if spec.loss == "cross_entropy":
            g = (out.softmax(-1) - F.one_hot(self.y, spec.n_out)) / out.shape[1]
        else:
            g = 2.0 * (out - self.y.view_as(out)) / self.y[0].numel()
        gradients, of_weights, of_biases = [g], [], []
        for index in reversed(range(spec.depth)):
            if self._has_activation(index):
                z, a = self.preactivations[index], self.activations[index]
                if spec.activation == "relu":
                    g = (z > 0).to(z.dtype) * g
                else:
                    g = activation_rule(spec.activation).gradient(z, a) * g
            if parameters:
                inp = self.activations[index - 1] if index else self.x
                of_weights.append(_products(inp.mT, g))
                if self.biases:
                    of_biases.append(g.sum(1, keepdim=True))
            if index:
                g = _products(g, self.weights[index].mT)
                gradients.append(g)
        self.gradients = gradients[::-1]
        self.weight_gradients, self.bias_gradients = of_weights[::-1], of_biases[::-1]

    def train(self, steps: int, watch: Callable[[int, Tensor], None] | None = None) -> None:
        """Train to a step; `watch(step, losses)` sees the loss of each net before each update."""
        while self.step < steps:
            stopping.check()
            loss = self.forward()
            if watch is not None:
                watch(self.step, loss)
            self.backward()
            updates = self._optimizer.updates(self.parameters, [*self.weight_gradients, *self.bias_gradients])
            for parameter, update, factor in zip(self.parameters, updates, self._factors, strict=True):
                parameter += update if factor == 1 else factor * update
            self._set_step(self.step + 1)

    def accuracy(self) -> Tensor:
        """The fraction of held-out samples to which each net gives the right class: (nets,), float64.

        Without a data set, of the samples of the batch; the loss must then be cross_entropy.
        """
        x, labels = self.x, self.y
        if self.spec.data != RANDOM:
            x = as_spec(self.spec, torch.stack([each.held_out_x for each in self._data]))[self._which]
            labels = torch.stack([each.held_out_y for each in self._data])[self._which].to(x.device)
        out = self._layers(x)[1][-1]
        chosen = (out[..., 0] > 0).long() if self.spec.n_out == 1 else out.argmax(-1)
        return (chosen == labels).double().mean(1)

    def _set_step(self, step: int) -> None:
        self.step = step
        spec = self.spec
        if spec.data != RANDOM:
            sets = zip(self._data, self._distinct, strict=True)
            pairs = [batch_from(data, seed, spec.batch, step) for data, seed in sets]
            x, labels = (torch.stack(each)[self._which] for each in zip(*pairs, strict=True))
            self.x, self.y = as_spec(spec, x), target_of(spec, labels)
        elif step == 0:
            pairs = [draw_batch(spec.replace(seed=seed)) for seed in self._distinct]
            self.x, self.y = (torch.stack(each)[self._which] for each in zip(*pairs, strict=True))


def _products(a: Tensor, b: Tensor) -> Tensor:
    """The product of each net's matrices: (nets, rows, columns)."""
    if a.is_cpu and not _batched_is_single(a.dtype, a.shape[1:], a.stride()[1:], b.shape[1:], b.stride()[1:]):
        pairs = zip(a.unbind(), b.unbind(), strict=True)
        return torch.stack([torch.mm(_aligned(first), _aligned(second)) for first, second in pairs])
    return torch.bmm(a, b)


def _aligned(matrix: Tensor) -> Tensor:
    """The matrix in memory that begins like that of a tensor of its own: on some processors MKL's bits depend on it."""
    return matrix if matrix.data_ptr() % ALIGNMENT == 0 else matrix.clone()


@cache
def _batched_is_single(dtype: torch.dtype, *layout: Sequence[int]) -> bool:
    """Whether `bmm` gives the bits of `mm` for matrices of a shape and strides, tried with random numbers.

    With MKL it does, except for vectors and for products of less than 400 multiplications.
    """
    random = torch.Generator().manual_seed(0)
    factors = []
    for (rows, columns), strides in (layout[:2], layout[2:]):
        nets = max(PROBED_NETS, PROBED_VALUES // (rows * columns))
        values = torch.empty_strided((nets, rows, columns), (rows * columns, *strides), dtype=dtype)
        factors.append(values.copy_(torch.randn(values.shape, generator=random, dtype=torch.float64)))
    nets = min(map(len, factors))
    batched = torch.bmm(*(factor[:nets] for factor in factors))
    alone = (_aligned(a) @ _aligned(b) for a, b in zip(*factors, strict=False))
    return all(torch.equal(product, each) for product, each in zip(batched, alone, strict=False))
