"""A trace, layer by layer: what its tensors look like, whether that is healthy, and what theory expects of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from chainrule.build import weight_variances
from chainrule.spec import ModelSpec
from chainrule.stats import Summary
from chainrule.theory.layer_statistics import Expected, Net, layer_statistics
from chainrule.trace import Layer, Trace

Health = Literal["non-finite", "dead", "saturated", "vanishing", "exploding"]

VANISHING = 1e-3
"""A layer whose RMS is below this share of where the signal came from has lost it (AUTOTRAINER, for gradients)."""

VANISHING_NORM = 1e-4
"""A gradient counts as vanished only if its norm is below this too (AUTOTRAINER)."""

EXPLODING = 70.0
"""A layer whose RMS is above this multiple of where the signal came from has exploded (AUTOTRAINER, for gradients)."""

SATURATED = 0.5
"""More than this share of units on a plateau is too much even where theory expects it: the typical unit is stuck."""

MARGIN = 2.0
"""One layer in twenty leaves its band by chance; a verdict takes this many times the way from the value to its edge."""

# -------------------------------------------------------------------------------------------------- what is handed out


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer in figures. A summary is None where the trace has no such tensor, or it has no statistics.

    Attributes:
        index: counts from 1.
        name: the layer's name in the trace.
        preactivation: of W x + b.
        activation: of what the layer puts out; the preactivation's where it has no activation of its own.
        gradient: of the loss with respect to `activation`.
        weight: of the layer's weight.
        weight_gradient: of the loss with respect to the weight.
        bias_gradient: of the loss with respect to the bias.
        gradient_to_weight_ratio: std(weight gradient) / std(weight). Times the learning rate it is the size of an
            SGD update relative to the data it updates, which should be about 1e-3 (A. Karpathy, makemore part 3). None
            where a weight is constant or a gradient is not finite.
        dead_fraction: share of units that are ≤ 0 for the whole batch; None unless a rectifier.
        saturation: share of activations on a plateau, |tanh| > .97; None unless the activation is bounded.
        health: None if healthy, else what is wrong; the rules are at `health`.
        expected: figure → what theory expects: preactivation_std, activation_mean, activation_std, gradient_std,
            dead_fraction, saturation. A figure that theory says nothing of, or that leaves the range of the spec's
            dtype, is missing.
    """

    index: int
    name: str
    preactivation: Summary | None
    activation: Summary | None
    gradient: Summary | None
    weight: Summary | None
    weight_gradient: Summary | None
    bias_gradient: Summary | None
    gradient_to_weight_ratio: float | None
    dead_fraction: float | None
    saturation: float | None
    health: Health | None
    expected: Mapping[str, Expected]


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace's layers in order, and the first of them whose preactivations or activations hold ±Inf, or NaN.

    `loss` is the number itself, non-finite included. `input` is the summary of x.
    """

    spec: Mapping[str, Any] | None
    loss: float | None
    first_inf_layer: int | None
    first_nan_layer: int | None
    input: Summary | None
    layers: tuple[LayerProfile, ...]


def profile(trace: Trace) -> Profile:
    """The profile of a trace; of one that knows no layers, a profile without any.

    What theory expects follows from the spec alone: a trace without one has no `expected`.
    """

    def summary(tensor: str | None) -> Summary | None:
        return trace.statistics[tensor] if tensor is not None and tensor in trace.statistics else None

    x = trace.tensor_by_name.get("x")
    source = None if x is None else summary(x.id)
    last_gradient = summary(trace.layers[-1].gradient) if trace.layers else None
    expected: tuple[Mapping[str, Expected], ...] = tuple({} for _ in trace.layers)
    if trace.spec is not None:
        expected = expectations(ModelSpec.parse(trace.spec))

    def measure(layer: Layer, layer_expected: Mapping[str, Expected]) -> LayerProfile:
        preactivation, activation = summary(layer.preactivation), summary(layer.activation)
        gradient, weight = summary(layer.gradient), summary(layer.weight)
        weight_gradient = summary(layer.weight_gradient)
        return LayerProfile(
            index=layer.index,
            name=layer.name,
            preactivation=preactivation,
            activation=activation,
            gradient=gradient,
            weight=weight,
            weight_gradient=weight_gradient,
            bias_gradient=summary(layer.bias_gradient),
            gradient_to_weight_ratio=_ratio(weight_gradient, weight),
            dead_fraction=None if activation is None else activation.dead_fraction,
            saturation=None if activation is None else activation.saturation,
            health=health(preactivation, activation, gradient, source, last_gradient, layer_expected),
            expected=layer_expected,
        )

    layers = tuple(map(measure, trace.layers, expected))
    return Profile(
        spec=trace.spec,
        loss=trace.loss,
        first_inf_layer=_first(layers, lambda summary: summary.posinf + summary.neginf),
        first_nan_layer=_first(layers, lambda summary: summary.nan),
        input=source,
        layers=layers,
    )


def health(
    preactivation: Summary | None,
    activation: Summary | None,
    gradient: Summary | None,
    source: Summary | None,
    last_gradient: Summary | None,
    expected: Mapping[str, Expected],
) -> Health | None:
    """The verdict on one layer: the first of these that holds, None if none does.

    - non-finite: a NaN or ±Inf in the preactivation, the activation or the gradient.
    - dead: no unit is alive, or so many are dead that theory's band would have to be MARGIN times as wide. A fixed
      alarm would call every deep relu net sick: 39 % dead is what 50 layers of correct Kaiming weights have.
    - saturated: more activations on a plateau than SATURATED, or than a band MARGIN times as wide would hold.
    - vanishing: RMS(activation) < VANISHING · RMS(x); or RMS(gradient) < VANISHING · RMS(gradient of the last layer)
      and ‖gradient‖ < VANISHING_NORM.
    - exploding: RMS(activation) > EXPLODING · RMS(x), or RMS(gradient) > EXPLODING · RMS(gradient of the last layer).

    Root mean squares, so that a wider layer is no larger. The thresholds are AUTOTRAINER's (X. Zhang et al. 2021,
    *AUTOTRAINER: An Automatic DNN Training Problem Detection and Repair System*), which compares norms of gradients.

    Args:
        preactivation: of the layer, like the next two.
        activation: None, like any other, if there are no statistics of it: then nothing is said of it.
        gradient: with respect to the activation.
        source: of x, which activations are compared to.
        last_gradient: of the last layer, which gradients are compared to.
        expected: what theory expects of the layer; may be empty.
    """
    if any(part is not None and part.nan + part.posinf + part.neginf for part in (preactivation, activation, gradient)):
        return "non-finite"
    if activation is not None:
        if _exceeds(activation.dead_fraction, expected.get("dead_fraction"), most=1.0):
            return "dead"
        if _exceeds(activation.saturation, expected.get("saturation"), most=SATURATED, strictly=True):
            return "saturated"
    forward, backward = _relative_size(activation, source), _relative_size(gradient, last_gradient)
    vanished = gradient is not None and gradient.norm is not None and gradient.norm < VANISHING_NORM
    if (forward is not None and forward < VANISHING) or (backward is not None and backward < VANISHING and vanished):
        return "vanishing"
    if any(size is not None and size > EXPLODING for size in (forward, backward)):
        return "exploding"
    return None


def _exceeds(share: float | None, expected: Expected | None, most: float, strictly: bool = False) -> bool:
    if share is None:
        return False
    beyond = share > most if strictly else share >= most
    return beyond or (
        expected is not None and share > expected.value + MARGIN * max(0.0, expected.band[1] - expected.value)
    )


def _relative_size(summary: Summary | None, reference: Summary | None) -> float | None:
    if summary is None or reference is None or summary.norm is None or not reference.norm:
        return None
    return (summary.norm / math.sqrt(summary.n)) / (reference.norm / math.sqrt(reference.n))


def _first(layers: tuple[LayerProfile, ...], count: Callable[[Summary], int]) -> int | None:
    for layer in layers:
        if any(part is not None and count(part) for part in (layer.preactivation, layer.activation)):
            return layer.index
    return None


def _ratio(gradient: Summary | None, weight: Summary | None) -> float | None:
    if gradient is None or weight is None or gradient.std is None or not weight.std:
        return None
    if gradient.nan + gradient.posinf + gradient.neginf + weight.nan + weight.posinf + weight.neginf:
        return None
    ratio = gradient.std / weight.std
    return ratio if math.isfinite(ratio) else None


# ------------------------------------------------------------------------------------------------ what theory expects


def expectations(spec: ModelSpec) -> tuple[Mapping[str, Expected], ...]:
    """What theory expects of every layer of a spec, first to last; nothing is run.

    Returns:
        The figures of `layer_statistics`, but for those that the spec's dtype cannot hold: too large, too small to be
        precise, or of a layer whose preactivations are, and no gradient at all once anything overflows. Bands have
        room for one rounding.
    """
    hidden = (spec.activation,) * (spec.depth - 1)
    net = Net(
        widths=spec.widths,
        activations=(*hidden, spec.activation if spec.last_activation else "linear"),
        variances=weight_variances(spec),
        batch=spec.batch,
        orthogonal=spec.init == "orthogonal",
    )
    limits = torch.finfo(getattr(torch, spec.dtype))
    layers = layer_statistics(net, mse=spec.loss == "mse")
    stds = [layer["preactivation_std"].value if layer else math.inf for layer in layers]
    finite = TAILS * max(stds) < limits.max
    return tuple(
        {
            name: _rounded(figure, limits.eps)
            for name, figure in layer.items()
            if _fits(figure, limits) and (finite if name == "gradient_std" else _holds(limits, std))
        }
        for layer, std in zip(layers, stds, strict=True)
    )


TAILS = 5.0
"""The largest elements of a tensor are about this many times its standard deviation."""


def _holds(limits: torch.finfo, std: float) -> bool:
    """Whether a tensor of this standard deviation neither overflows nor vanishes."""
    return TAILS * std < limits.max and (std == 0 or std > limits.tiny)


def _fits(figure: Expected, limits: torch.finfo) -> bool:
    sizes = [abs(number) for number in (figure.value, *figure.band)]
    return max(sizes) == 0 or limits.tiny < max(sizes) < limits.max


def _rounded(figure: Expected, eps: float) -> Expected:
    low, high = figure.band
    return Expected(figure.value, (low - eps * abs(low), high + eps * abs(high)))
