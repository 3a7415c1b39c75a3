"""Every tensor that a spec draws: in float32 on the CPU, by its own generator, then multiplied, cast and moved.

A draw is multiplied in float32, for the dtype float64 in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod

import torch
from torch import Generator, Tensor

from chainrule import stopping
from chainrule.build.data import batch_of
from chainrule.build.parametrization import output_factor
from chainrule.foundations.initialization import SCHEMES, generator_for, normal, orthogonal, uniform, zeros
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM

CACHED_ELEMENTS = 2**15
"""Base draws up to this size are cached: a slider only rescales them."""

CACHED_DRAWS = 256
"""The number of cached base draws: 32 MB at most."""

BaseDraw = Callable[[tuple[int, ...], Generator], Tensor]


def _base_draw(seed: int, name: str, base: BaseDraw, shape: tuple[int, ...]) -> Tensor:
    stopping.check()  # a large draw takes as long as a layer of the pass, an orthogonal one longer
    return base(shape, generator_for(seed, name))


_cached_base_draw = lru_cache(maxsize=CACHED_DRAWS)(_base_draw)


def base_draw(seed: int, name: str, base: BaseDraw, shape: tuple[int, ...], dtype: str) -> Tensor:
    """The draw of unit size behind the tensor `name`, on the CPU; read-only, because it may be cached.

    It is float32. For the dtype float64 it is cast, so that its product with a factor has all digits.
    """
    draw = (_cached_base_draw if prod(shape) <= CACHED_ELEMENTS else _base_draw)(seed, name, base, shape)
    return draw.double() if dtype == "float64" else draw


def draw_leaves(spec: ModelSpec) -> dict[str, Tensor]:
    """Every tensor that the program mlp draws, by its name.

    A change of scale, dtype, device, style or another layer's width does not change its draw.

    Returns:
        x: (batch, n_in). y: (batch,) if n_out = 1, else (batch, n_out); class indices (batch,) of int64 for
        cross_entropy. w1, …: (fan_in, fan_out). b1, …: (fan_out,), unless spec.bias is false.
    """
    x, y = draw_batch(spec)
    leaves = {"x": x}
    for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
        leaves[f"w{index}"] = draw_weight(spec, f"w{index}", fan_in, fan_out, index == spec.depth)
        if spec.bias:
            leaves[f"b{index}"] = draw_bias(spec, f"b{index}", fan_in, fan_out)
    leaves["y"] = y
    return leaves


def draw_batch(spec: ModelSpec) -> tuple[Tensor, Tensor]:
    """The inputs x and the targets y of the spec's step; see `draw_leaves`."""
    if spec.data != RANDOM:
        x, labels = batch_of(spec.data, spec.seed, spec.batch, spec.step)
        return as_spec(spec, x), target_of(spec, labels)
    x = draw_leaf(spec, "x", normal, (spec.batch, spec.n_in))
    if spec.loss == "cross_entropy":
        labels = torch.randint(spec.n_out, (spec.batch,), generator=generator_for(spec.seed, "y"))
        return x, target_of(spec, labels)
    return x, draw_target(spec)


def target_of(spec: ModelSpec, labels: Tensor) -> Tensor:
    """The target of samples of the classes `labels` (n,): themselves for cross_entropy.

    For mse ±1 in (n,) if n_out = 1, else 1 for the sample's class and 0 for the others, in (n, n_out).
    """
    if spec.loss == "cross_entropy":
        return labels.to(device=spec.device)
    return as_spec(spec, 2 * labels - 1 if spec.n_out == 1 else torch.nn.functional.one_hot(labels, spec.n_out))


def as_spec(spec: ModelSpec, tensor: Tensor) -> Tensor:
    """A tensor in the spec's dtype and on its device."""
    return tensor.to(device=spec.device, dtype=getattr(torch, spec.dtype))


def draw_leaf(spec: ModelSpec, name: str, base: BaseDraw, shape: tuple[int, ...], factor: float = 1.0) -> Tensor:
    """The tensor `name`, of this shape: its base draw times `factor`, in the spec's dtype and on its device."""
    # Multiplied even by 1, which copies: the cached tensor must not leave this module.
    return as_spec(spec, base_draw(spec.seed, name, base, shape, spec.dtype) * factor)


def draw_weight(spec: ModelSpec, name: str, fan_in: int, fan_out: int, is_last: bool = False) -> Tensor:
    """A weight by the spec's scheme and scale: (fan_in, fan_out); `is_last` in the last layer of a net."""
    factor = weight_factor(spec, fan_in, fan_out, is_last)
    return draw_leaf(spec, name, SCHEMES[spec.init].base, (fan_in, fan_out), factor)


def unscaled_weight(spec: ModelSpec, name: str, fan_in: int, fan_out: int) -> Tensor:
    """A weight before its multiplication by `weight_factor`: (fan_in, fan_out); see `base_draw`."""
    return base_draw(spec.seed, name, SCHEMES[spec.init].base, (fan_in, fan_out), spec.dtype)


def weight_factor(spec: ModelSpec, fan_in: int, fan_out: int, is_last: bool) -> float:
    """The factor of a weight's draw: the scheme's factor times the spec's scale, and µP's in a net's last layer."""
    factor = SCHEMES[spec.init].factor(fan_in, fan_out)
    return (factor * output_factor(spec, fan_in) if is_last else factor) * spec.scale


def draw_bias(spec: ModelSpec, name: str, fan_in: int, fan_out: int) -> Tensor:
    """A bias: (fan_out,). N(0, bias_std²); by torch_default like a weight, but never scaled."""
    if spec.init == "torch_default":
        scheme = SCHEMES[spec.init]
        return draw_leaf(spec, name, scheme.base, (fan_out,), scheme.factor(fan_in, fan_out))
    if spec.bias_std > 0:
        return draw_leaf(spec, name, normal, (fan_out,), spec.bias_std)
    return torch.zeros(fan_out, device=spec.device, dtype=getattr(torch, spec.dtype))


def draw_target(spec: ModelSpec) -> Tensor:
    """The target of the output: (batch,) if n_out = 1, else (batch, n_out)."""
    return draw_leaf(spec, "y", normal, (spec.batch,) if spec.n_out == 1 else (spec.batch, spec.n_out))


BASE_VARIANCES: Mapping[BaseDraw, Callable[[int, int], float]] = {
    normal: lambda _fan_in, _fan_out: 1.0,
    uniform: lambda _fan_in, _fan_out: 1 / 3,
    # The longer side of a matrix with orthonormal vectors along the shorter: each of them has length 1.
    orthogonal: lambda fan_in, fan_out: 1 / max(fan_in, fan_out),
    zeros: lambda _fan_in, _fan_out: 0.0,
}
"""The variance of one element of each base draw, from (fan_in, fan_out)."""


@lru_cache(maxsize=64)
def weight_variances(spec: ModelSpec) -> tuple[tuple[float, float], ...]:
    """The nominal (σ_w², σ_b²) of each layer, as in mean-field theory: σ_w² = fan_in · Var(W), σ_b² = Var(b)."""
    scheme = SCHEMES[spec.init]
    variances = []
    for index, (fan_in, fan_out) in enumerate(pairwise(spec.widths), start=1):
        base = BASE_VARIANCES[scheme.base](fan_in, fan_out)
        bias_variance = spec.bias_std**2
        if spec.bias and spec.init == "torch_default":
            # The bias is drawn like a weight, but never scaled.
            bias_variance = scheme.factor(fan_in, fan_out) ** 2 * base
        factor = weight_factor(spec, fan_in, fan_out, index == spec.depth)
        variances.append((fan_in * factor**2 * base, bias_variance))
    return tuple(variances)
