"""Theory of one layer, given its input's statistics: all that a model without a spec tells.

    preactivation   zₒ = Σᵢ Wₒᵢ xᵢ + bₒ:   var z = n_in · Var(W) · E[x²] + Var(b)
    activation      φ(u), u ~ N(mean z, var z), by quadrature
    gradient        of the loss with respect to x:   E[g_x²] = n_out · Var(W) · E[g_z²]

with n_in and n_out the numbers of products per sum, which for a convolution is the number of taps on the input. Second
moments of x and of the gradient, mean and variance of weights and biases are measured; weights are assumed to be drawn
independently of x. So each of n units is an independent draw, and figures stray by about √(2/n) if all inputs of the
batch are alike. Less similar inputs stray less, but no statistic of x tells how similar they are: bands are as wide as
equal inputs need, and at least 19 of 20 draws lie within.

Sources: Poole et al. 2016, *Exponential expressivity in deep neural networks through transient chaos*; for convolutions
He et al. 2015, *Delving deep into rectifiers*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.theory.activations import activation_named, normal_cdf
from chainrule.theory.dead_units import normal_grid
from chainrule.theory.gaussian import halvings_for, rule
from chainrule.theory.laws import DEVIATIONS, chi_square_law
from chainrule.theory.layer_statistics import Expected
from chainrule.theory.mean_field import saturation_threshold


@dataclass(frozen=True, slots=True)
class Elements:
    """Mean and second moment of a tensor's elements."""

    mean: float
    second_moment: float

    @property
    def variance(self) -> float:
        """E[(x − mean)²]."""
        return max(0.0, self.second_moment - self.mean**2)


BY_CHANCE = 16.0
"""The square of four standard deviations: draws around 0 do not stray further."""

ZERO = Elements(0.0, 0.0)
"""Stands for a missing bias."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """A Linear or a convolution."""

    fan_in: float  # products that are summed per output element, on average: taps beyond a border do not count
    fan_out: float  # products that an input element is part of, on average
    units_in: int  # input features or channels
    units: int  # output features or channels
    weight: Elements
    bias: Elements = ZERO

    @property
    def fault(self) -> str | None:
        """Why theory does not apply, whatever the input."""
        if self.units < 2:
            return "theory needs at least two units"
        if not self.weight.variance > 0:
            return "all its weights are equal"
        # The mean of draws around 0 strays too.
        if self.weight.mean**2 * self.fan_in > self.weight.variance * max(1.0, BY_CHANCE / self.units):
            return "the mean of its weights is not 0"
        return None


def linear(units_in: int, units: int, weight: Elements, bias: Elements = ZERO) -> Weighing:
    """A layer of `units` outputs, each a sum over all inputs."""
    return Weighing(units_in, units, units_in, units, weight, bias)


def convolution(
    channels: tuple[int, int],
    groups: int,
    taps: Sequence[tuple[int, int, int]],
    weight: Elements,
    bias: Elements = ZERO,
) -> Weighing:
    """A convolution of channels (in, out).

    `taps` has per dimension of space: input size, output size, and the number of pairs of an output and a tap that lie
    on the input (`taps_on_input`).
    """
    size_in, size_out, pairs = (math.prod(column) for column in zip(*taps, strict=True))
    fan_in, fan_out = channels[0] / groups * pairs / size_out, channels[1] / groups * pairs / size_in
    return Weighing(fan_in, fan_out, *channels, weight, bias)


def taps_on_input(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Number of pairs (output o, tap t) whose place o·stride − padding + t·dilation lies on the input."""
    places = np.add.outer(np.arange(outputs) * stride - padding, np.arange(kernel) * dilation)
    return int(np.count_nonzero((places >= 0) & (places < size)))


def expected_forward(layer: Weighing, x: Elements, activation: str | None, inputs: int) -> Mapping[str, Expected]:
    """The expected figures of a layer without `fault`; `activation` is None if theory does not know it.

    Returns:
        preactivation_std; and unless φ is unknown activation_mean and activation_std, dead_fraction if φ has units that
        can be dead, saturation if it is bounded. Empty where the input is all 0 and there is no bias.

    Raises:
        ValueError: an unknown activation.
    """
    n = layer.units
    weighed = layer.fan_in * layer.weight.variance * x.second_moment
    variance = weighed + layer.bias.variance
    if not 0 < variance < math.inf:
        return {}
    # The weights' mean adds a term that varies with the sum of an input, by no more than this.
    more = layer.fan_in**2 * layer.weight.mean**2 * x.variance
    straying = (2 * weighed**2 + 4 * weighed * layer.bias.variance) / ((n - 1) * variance**2)
    found = {"preactivation_std": _root(variance, weighed / n, more, straying)}
    if activation is None:
        return found

    mean = layer.fan_in * layer.weight.mean * x.mean + layer.bias.mean
    std = math.sqrt(variance)
    nodes, weights = rule(halvings_for(std))
    with np.errstate(all="ignore"):
        values = activation_named(activation).value(mean + std * nodes)
        first = float(values @ weights)
        centered = (values - first) ** 2
        second, fourth = float(centered @ weights), float(centered**2 @ weights)
    if not (math.isfinite(fourth) and second > 0):
        return found
    stray_mean = DEVIATIONS * math.sqrt(second / n)
    found["activation_mean"] = Expected(first, (first - stray_mean, first + stray_mean))
    if activation == "linear":
        found["activation_std"] = found["preactivation_std"]
        return found
    # The variance of n independent values (E. Cho and M. J. Cho 2008, Variance of sample variance).
    straying = max(0.0, fourth / second**2 - (n - 3) / (n - 1)) / n
    found["activation_std"] = _root(second, second / n, second * min(1.0, more / variance), straying)

    threshold = saturation_threshold(activation)
    if threshold is not None:
        above, below = normal_cdf(np.array([(mean - threshold) / std, (-threshold - mean) / std]))
        found["saturation"] = _share(float(above + below), float(above + below), n)
    else:
        common = weighed * (x.mean**2 / x.second_moment if x.second_moment else 0.0) + layer.bias.variance
        apart, alike = (_dead(mean / std, c, inputs) for c in (min(1.0, common / variance), 1.0))
        found["dead_fraction"] = _share(apart, max(apart, alike), n)
    return found


def _root(variance: float, less: float, more: float, straying: float) -> Expected:
    """A standard deviation: its square lies in [variance − less, variance + more], and strays by `straying`."""
    law_mean, law_variance = chi_square_law(straying)
    factor = math.exp(DEVIATIONS * math.sqrt(law_variance) / 2)
    low = math.sqrt(max(0.0, variance - less)) * math.exp(law_mean / 2) / factor
    return Expected(math.sqrt(variance), (low, math.sqrt(variance + more) * factor))


def _share(low: float, high: float, units: int) -> Expected:
    """A share of `units`, between `low` for independent inputs and `high` for equal ones."""

    def reach(share: float) -> float:
        one_more = (DEVIATIONS**2 / 2) / units if 0 < share < 1 else 0.0
        return DEVIATIONS * math.sqrt(share * (1 - share) / units) + one_more

    return Expected(low, (max(0.0, low - reach(low)), min(1.0, high + reach(high))))


def _dead(shift: float, c: float, inputs: int) -> float:
    """The share of units ≤ 0 for all inputs, if preactivations are N(shift, 1) with pairwise correlation c."""
    if c >= 1:
        return float(normal_cdf(np.array([-shift]))[0])
    z, weights = normal_grid()
    with np.errstate(under="ignore"):
        return float(normal_cdf(-(shift + math.sqrt(c) * z) / math.sqrt(1 - c)) ** inputs @ weights)


def expected_gradient(layer: Weighing, gradient: Elements) -> Expected | None:
    """The standard deviation of the gradient with respect to a layer's input, from that of its preactivation.

    The band has room for the part of the gradient that comes from the layer's own weights: (x W) Wᵀ points along x.
    None for a single input unit, or a gradient that is all 0.
    """
    n = layer.units_in
    second = layer.fan_out * layer.weight.variance * gradient.second_moment
    if n < 2 or not 0 < second < math.inf:
        return None
    more = layer.fan_out**2 * layer.weight.mean**2 * gradient.second_moment
    coherent = second * min(1.0, layer.fan_out / layer.fan_in)
    return _root(second, second / n, more + coherent, 2 / (n - 1))
