"""A trace layer by layer: the statistics of its tensors, a verdict, and the expected values.

`profile` returns all of it, `theory` only the part that a page cannot compute from the statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import torch

from chainrule import stopping
from chainrule.build import weight_variances
from chainrule.diagnose.advice import Advice, advise
from chainrule.diagnose.local_theory import local_expectations
from chainrule.diagnose.verdicts import Health, health_of
from chainrule.errors import SpecError
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM
from chainrule.stats import Summary
from chainrule.theory.forward import Net
from chainrule.theory.laws import Figures
from chainrule.theory.layer_statistics import Expected, by_layer, statistics_columns
from chainrule.trace import Layer, Trace

SUMMARIES = ("preactivation", "activation", "gradient", "weight", "weight_gradient", "bias_gradient")
"""The tensors of a layer whose statistics a profile holds."""

TRAINED = "the weights were trained; theory describes weights as they are drawn"
SAMPLES = "the inputs are samples of a data set; theory describes random inputs"


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The values of one layer. A summary is None if the trace has no such tensor, or no statistics of it.

    `gradient_to_weight_ratio` times the learning rate is the relative size of an SGD update, which should be about 1e-3
    (A. Karpathy, makemore part 3). `expected`: preactivation_std, activation_mean, activation_std, gradient_std,
    dead_fraction, saturation, if theory covers them and the spec's dtype can represent them.
    """

    index: int  # counts from 1
    name: str
    preactivation: Summary | None
    activation: Summary | None  # the preactivation's if the layer has no activation
    gradient: Summary | None  # with respect to the activation
    weight: Summary | None
    weight_gradient: Summary | None
    bias_gradient: Summary | None
    gradient_to_weight_ratio: float | None  # of the stds; None if the weight is constant or the gradient not finite
    dead_fraction: float | None  # None unless the activation is a rectifier
    saturation: float | None  # None unless the activation is bounded
    health: Health | None  # None if healthy
    weight_std: (
        float | None
    )  # of the distribution of the weights, scale included; None without a spec or after training
    expected: Mapping[str, Expected]
    reason: str | None = None  # why expected values are missing


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace's layers in order, and the first layer with ±Inf, and with NaN, in a preactivation or activation.

    `input` is the summary of x; without a spec, of the first float input. `advice` is None without a spec or a hidden
    layer, and after training. A program that is not a net has no layers.
    """

    spec: Mapping[str, Any] | None
    loss: float | None
    first_inf_layer: int | None
    first_nan_layer: int | None
    input: Summary | None
    advice: Advice | None
    layers: tuple[LayerProfile, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LayerTheory:
    """The part of a `LayerProfile` that does not follow from the statistics alone."""

    index: int
    health: Health | None
    weight_std: float | None
    expected: Mapping[str, Expected]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Theory:
    """The part of a `Profile` that does not follow from the statistics alone."""

    advice: Advice | None
    first_inf_layer: int | None
    first_nan_layer: int | None
    layers: tuple[LayerTheory, ...]


def profile(trace: Trace) -> Profile:
    """The profile of a trace.

    The expected values follow from the spec alone, if its inputs are random and its weights untrained; without a spec
    from each layer's measured input (`local_theory`).
    """
    found = theory(trace)

    def measure(layer: Layer, said: LayerTheory) -> LayerProfile:
        parts = {name: _summary(trace, getattr(layer, name)) for name in SUMMARIES}
        activation = parts["activation"]
        return LayerProfile(
            index=layer.index,
            name=layer.name,
            **parts,
            gradient_to_weight_ratio=_ratio(parts["weight_gradient"], parts["weight"]),
            dead_fraction=None if activation is None else activation.dead_fraction,
            saturation=None if activation is None else activation.saturation,
            health=said.health,
            weight_std=said.weight_std,
            expected=said.expected,
            reason=said.reason,
        )

    layers = tuple(map(measure, trace.layers, found.layers))
    firsts = found.first_inf_layer, found.first_nan_layer
    return Profile(trace.spec, trace.loss, *firsts, _source(trace), found.advice, layers)


def theory(trace: Trace) -> Theory:
    """The verdicts on a trace's layers and their expected values."""
    advice: Advice | None = None
    said: Iterable[tuple[Mapping[str, Expected], float | None, str | None]] = repeat(({}, None, None))
    spec = spec_of(trace)
    if spec is not None:
        if spec.is_net and spec.step:
            said = repeat(({}, None, TRAINED))
        elif spec.is_net and spec.data != RANDOM:
            advice, said = advise(spec), zip(repeat({}), drawn_stds(spec), repeat(SAMPLES), strict=False)
        elif spec.is_net:
            advice, said = advise(spec), zip(expectations(spec), drawn_stds(spec), repeat(None), strict=False)
    elif trace.layers:
        stopping.check()
        said = ((expected, None, reason) for expected, reason in local_expectations(trace))

    unhealthy = health_of(trace.faults)
    layers = tuple(
        LayerTheory(layer.index, unhealthy.get(layer.index), weight_std, expected, reason)
        for layer, (expected, weight_std, reason) in zip(trace.layers, said, strict=False)
    )
    return Theory(advice, _first_with(trace, "posinf", "neginf"), _first_with(trace, "nan"), layers)


def _first_with(trace: Trace, *columns: str) -> int | None:
    """The index of the first layer whose preactivation or activation has such elements."""
    table = trace.statistics
    having = {table.tensors[row] for row in np.flatnonzero(sum(table.column(name) for name in columns))}
    found = (layer.index for layer in trace.layers if {layer.preactivation, layer.activation} & having)
    return next(found, None) if having else None


def spec_of(trace: Trace) -> ModelSpec | None:
    """The spec of a trace; None without one, or if this version cannot read it: a later one may have written it."""
    try:
        return None if trace.spec is None else ModelSpec.parse(trace.spec)
    except SpecError:
        return None


def drawn_stds(spec: ModelSpec) -> tuple[float, ...]:
    """The standard deviation of the distribution of each layer's weights, first to last."""
    variances = zip(spec.widths, weight_variances(spec), strict=False)
    return tuple(math.sqrt(weight_variance / fan_in) for fan_in, (weight_variance, _) in variances)


def _source(trace: Trace) -> Summary | None:
    """The source of the signal: x, or the first float input, because the size of token ids means nothing."""
    x = trace.tensor_by_name.get("x")
    if x is None and trace.spec is None:
        x = next((each for each in trace.tensors if each.role == "input" and "float" in each.dtype), None)
    return None if x is None else _summary(trace, x.id)


def _summary(trace: Trace, tensor: str | None) -> Summary | None:
    return trace.statistics[tensor] if tensor is not None and tensor in trace.statistics else None


def _ratio(gradient: Summary | None, weight: Summary | None) -> float | None:
    if gradient is None or weight is None or gradient.std is None or not weight.std:
        return None
    ratio = gradient.std / weight.std
    return ratio if math.isfinite(ratio) and not _nonfinite(gradient) + _nonfinite(weight) else None


def _nonfinite(summary: Summary) -> int:
    return summary.nan + summary.posinf + summary.neginf


def expectations(spec: ModelSpec) -> tuple[Mapping[str, Expected], ...]:
    """The expected values of every layer of a spec, first to last, without running it.

    Returns:
        The values of `layer_statistics` that the spec's dtype can represent: neither too large nor too small, in a
        layer whose preactivations are neither. Gradients are missing if any layer overflows. Bands include one
        rounding.
    """
    stopping.check()  # the slowest part of a profile
    hidden = (spec.activation,) * (spec.depth - 1)
    net = Net(
        widths=spec.widths,
        activations=(*hidden, spec.activation if spec.last_activation else "linear"),
        variances=weight_variances(spec),
        batch=spec.batch,
        orthogonal=spec.init == "orthogonal",
    )
    limits = torch.finfo(getattr(torch, spec.dtype))
    columns = statistics_columns(net, mse=spec.loss == "mse")
    # Theory gives NaN for layers that it does not cover.
    stds = columns["preactivation_std"].value
    representable = (TAILS * stds < limits.max) & ((stds == 0) | (stds > limits.tiny))
    all_finite = bool((TAILS * stds < limits.max).all())
    held = {}
    for name, (value, low, high) in ((name, (each.value, each.low, each.high)) for name, each in columns.items()):
        sizes = np.max(np.abs([value, low, high]), axis=0)
        fits = (sizes == 0) | ((limits.tiny < sizes) & (sizes < limits.max))
        rounded = Figures(value, low - limits.eps * np.abs(low), high + limits.eps * np.abs(high))
        held[name] = rounded.where(fits & (all_finite if name == "gradient_std" else representable))
    return by_layer(held)


TAILS = 5.0
"""The largest elements of a tensor are about this many times its standard deviation."""
