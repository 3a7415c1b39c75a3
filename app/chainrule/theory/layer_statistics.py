"""Expected statistics of every layer's tensors, and how far a net of finite width and batch strays from them.

Values are mean-field theory's; the band around them is the noise of finitely many units and inputs, followed from layer
to layer by `forward` and, for gradients, `backward`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from chainrule.theory.activations import activation_named
from chainrule.theory.backward import backward
from chainrule.theory.dead_units import dead_fractions
from chainrule.theory.forward import UNEVEN, Layers, Net, forward
from chainrule.theory.gaussian import Array
from chainrule.theory.laws import DEVIATIONS, Figures, chi_square_laws, quotient
from chainrule.theory.mean_field import saturation
from chainrule.theory.unit import saturated_shared


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected value of one figure: mean-field theory's, corrected for means over finitely many units and inputs.

    19 of 20 draws lie in the band, (low, high). Its center is the median, which sinks below `value` with depth.
    """

    value: float
    band: tuple[float, float]


def by_layer(columns: Mapping[str, Figures]) -> tuple[Mapping[str, Expected], ...]:
    """Figures in columns, layer by layer, without those that are NaN."""
    layers: list[dict[str, Expected]] = [{} for _ in columns["preactivation_std"].value]
    for name, figures in columns.items():
        rows = zip(layers, figures.value.tolist(), figures.low.tolist(), figures.high.tolist(), strict=True)
        for layer, value, low, high in rows:
            if not math.isnan(value):
                layer[name] = Expected(value, (low, high))
    return tuple(layers)


@lru_cache(maxsize=256)
def statistics_columns(net: Net, mse: bool = True) -> Mapping[str, Figures]:
    """The expected figures of every layer, in columns `(L,)`; without `mse`, the loss's, none of the gradient.

    Returns:
        preactivation_std, activation_mean, activation_std; dead_fraction unless φ is linear or bounded, as long as the
        inputs of the batch have similar sizes; saturation if φ is bounded; gradient_std, of the gradient with respect
        to the activation. All are NaN from the layer on whose variance leaves `SMALLEST_Q` to `LARGEST_Q`, or depends
        on few inputs (`UNEVEN`); gradients are then missing everywhere.

    Raises:
        ValueError: an unknown activation.
    """
    with np.errstate(all="ignore"):
        layers = forward(net, typical=False)
        figures = _figures(net, layers, mse)
        if layers.walked:
            # The norm walks too far for the slopes at its mean-field value: the band's are taken along the median.
            figures = {
                name: Figures(figures[name].value, around.low, around.high).where(~np.isnan(around.value))
                for name, around in _figures(net, forward(net, typical=True), mse).items()
                if name in figures
            }
    return MappingProxyType(figures)


def _figures(net: Net, layers: Layers, mse: bool) -> dict[str, Figures]:
    walk, strays = layers.walk, layers.strays
    figures = {
        "preactivation_std": layers.preactivations.variances.expected(walk, strays),
        "activation_mean": _activation_mean(layers),
        "activation_std": layers.variances.expected(walk, strays),
    }
    bounded = np.array([activation_named(each).plateaus is not None for each in layers.activations], dtype=bool)
    # Only for inputs of similar size, because one large input keeps a unit alive.
    rectified = ~bounded & ~layers.are("linear") & (layers.unevenness < UNEVEN / 10)
    if rectified.any():
        figures["dead_fraction"] = _dead_fraction(layers).where(rectified)
    if bounded.any():
        figures["saturation"] = _saturation(layers).where(bounded)
    depth = len(net.activations)
    if mse and len(layers) == depth:
        figures["gradient_std"] = backward(net, layers)
    missing = np.full(depth - len(layers), np.nan)
    return {
        name: Figures(*(np.append(column, missing) for column in (figure.value, figure.low, figure.high)))
        for name, figure in figures.items()
    }


def _activation_mean(layers: Layers) -> Figures:
    given, mean, n = layers.preactivations, layers.mean, layers.preactivations.units
    within = layers.second * (1 - layers.c_after)
    slope = layers.moments.mean_slope * np.sqrt(layers.size)
    own = (np.maximum(0.0, layers.second * layers.c_after - mean**2) + within / given.inputs) / n
    own = np.where(layers.are("linear"), given.mean_variance, own + 2 * slope**2 * given.scatter / n)

    reach = DEVIATIONS * np.sqrt(own + slope**2 * layers.walk.variance)
    # A mean that hardly ever changes its sign obeys a law of its logarithm, like a norm; ln(mean²) is twice ln(mean).
    signed = layers.are("relu") | (own < 0.1 * mean**2)
    some = mean != 0
    laws = chi_square_laws(quotient(own, mean**2, some)).answered(2.0)
    low, high = (laws + layers.walk.answered(quotient(2 * slope, mean, some))).band(np.abs(mean))
    return Figures(
        mean,
        np.where(signed, np.where(mean > 0, low, -high), mean - reach),
        np.where(signed, np.where(mean > 0, high, -low), mean + reach),
    )


def _dead_fraction(layers: Layers) -> Figures:
    """Units are independent given c, so the count of dead ones is binomial; a stray c shifts all units."""
    given = layers.preactivations
    step = np.sqrt(layers.strays.variance)
    c = np.stack([given.c, np.minimum(1.0, given.c + step), np.maximum(0.0, given.c - step)])
    shares = dead_fractions(c.ravel(), given.inputs).reshape(c.shape)
    dead, more, less = np.where(given.second_moment == 0, 1.0, shares)
    return _share(dead, dead * (1 - dead) / given.units + ((more - less) / 2) ** 2, given.units)


def _saturation(layers: Layers) -> Figures:
    given, slope = layers.preactivations, layers.moments.saturation_slope
    rows = zip(layers.activations, given.second_moment.tolist(), strict=True)
    shares = np.array([saturation(activation, q) or 0.0 for activation, q in rows])
    shared = np.zeros(len(layers))
    for activation in set(layers.activations):
        of_it = layers.are(activation)
        shared[of_it] = saturated_shared(activation, given.second_moment[of_it], given.c[of_it])
    single = np.maximum(0.0, shares * (1 - shares) - shared)
    own = (shared + single / given.inputs + 2 * slope**2 * given.scatter) / given.units
    return _share(shares, own + slope**2 * layers.walk.variance, given.units * given.inputs)


def _share(value: Array, variance: Array, trials: Array) -> Figures:
    """A share in [0, 1] of `trials`; near 0 and 1 a normal law alone falls short by about one trial."""
    reach = DEVIATIONS * np.sqrt(variance) + (DEVIATIONS**2 / 2) / trials * ((value > 0) & (value < 1))
    return Figures(value, np.maximum(0.0, value - reach), np.minimum(1.0, value + reach))
