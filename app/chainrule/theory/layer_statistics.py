"""What the statistics of every layer's tensors should be, and how far a net of finite width and batch strays from it.

Values are mean-field theory's; the band around them comes about as follows. Given everything before it, a layer's
units are independent draws, so each figure of a layer is a mean over n units of B inputs each, and strays by its own
1/√n. The second moment strays too, and hands that on: with v the variance over draws of ln q,

    v′ = s² v + noise,    s = d ln q′ / d ln q

A homogeneous activation without biases has s = 1: the noise adds up and the norm does a random walk (Hanin and Nica
2018). A saturating one has s < 1: it comes back to its fixed point and forgets. On its way back the gradient's second
moment multiplies by χ₁ at every layer, which strays for the same reasons and depends on q besides. And the less the
inputs of a batch have in common, the more of the noise averages out: hence the correlation c, and its scatter.

Logarithms of positive figures are taken to be normal (`NormLaw`), the same figure's share of one layer to be χ².
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

from chainrule.theory.activations import activation_named
from chainrule.theory.finite_width import NormLaw, dead_fraction, digamma, trigamma
from chainrule.theory.gaussian import Array, expectation, rule
from chainrule.theory.mean_field import correlation_map, moments, saturation

DEVIATIONS = 2.0
"""A band reaches so many standard deviations to either side, for 95 % of draws."""

SMALLEST_Q, LARGEST_Q = 1e-140, 1e140
"""Variances are followed between these: the squares of what lies beyond leave float64."""

NODES = 81
"""Nodes per dimension of `_unit`'s grid. The noise it gives is good to about 1 %, more than a band needs."""

RESOLVED_Q = 50.0
"""The flank of a saturated activation, 1/√q wide, is resolved by that grid up to this q; noise is taken from here on
as it is here."""


LINEAR = 0.05
"""ln q may stray from its mean-field value by so much before the slopes there are not good enough for a band."""


UNEVEN = 0.5
"""How much ln q of the whole batch may owe to few inputs with a large q of their own. Off its fixed point gelu or silu
lets the weaker inputs vanish sooner; what is left is no Gaussian's business, and theory stops there."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What theory says of one figure.

    Attributes:
        value: what mean-field theory says, less what a mean over finitely many units and inputs takes off.
        band: (low, high), where 19 of 20 draws lie. It is laid around the median, which sinks below `value` as the
            norm's random walk goes on.
    """

    value: float
    band: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Net:
    """A net of random weights, and what it is run on: x and, for the mean squared error, y, both N(0, 1).

    Attributes:
        widths: n_in, hidden …, n_out.
        activations: φ of each layer, `linear` where it has none.
        variances: (σ_w², σ_b²) of each layer.
        batch: inputs.
        orthogonal: weights are orthogonal matrices, which keep a vector's length, rather than independent elements.
    """

    widths: tuple[int, ...]
    activations: tuple[str, ...]
    variances: tuple[tuple[float, float], ...]
    batch: int
    orthogonal: bool = False

    def freedom(self, fan_in: int, fan_out: int) -> float:
        """Relative to independent weights, how much of the length of W x is left to chance."""
        return max(0.0, 1 - fan_out / fan_in) if self.orthogonal else 1.0


@lru_cache(maxsize=256)
def layer_statistics(net: Net, mse: bool = True) -> tuple[Mapping[str, Expected], ...]:
    """What is to be expected of every layer, first to last.

    Args:
        net: of any depth, widths, batch.
        mse: the loss is the mean squared error, whose gradient 2 (out − y) / numel(y) is where the way back begins;
            of other losses no gradient is given.

    Returns:
        Per layer: preactivation_std, activation_mean, activation_std; dead_fraction unless φ is linear or bounded, as
        long as all inputs of the batch are much of a size;
        saturation if φ is bounded; gradient_std, of the gradient with respect to the activation. From the layer on
        whose variance is out of all bounds (`SMALLEST_Q`, `LARGEST_Q`), or that of few inputs only (`UNEVEN`), there
        is nothing, and no gradient anywhere.

    Raises:
        ValueError: an unknown activation.
    """
    layers = _forward(net, typical=False)
    figures = _figures(net, layers, mse)
    if any(abs(layer.walk.mean) > LINEAR and not activation_named(layer.activation).homogeneous for layer in layers):
        # The norm walks too far for the slopes at its mean-field value: the band's are taken along the median.
        median = _figures(net, _forward(net, typical=True), mse)
        figures = [
            {name: Expected(figure.value, around[name].band) for name, figure in found.items() if name in around}
            for found, around in zip(figures, median, strict=True)
        ]
    return tuple(map(MappingProxyType, figures))


def _figures(net: Net, layers: list[_Layer], mse: bool) -> list[dict[str, Expected]]:
    figures = [_forward_figures(layer) for layer in layers]
    if mse and len(layers) == len(net.activations):
        for layer_figures, gradient in zip(figures, _backward(net, layers), strict=True):
            layer_figures["gradient_std"] = gradient
    return figures + [{} for _ in net.activations[len(layers) :]]


# ---------------------------------------------------------------------------------------------------- one unit's noise


@dataclass(frozen=True, slots=True)
class _Unit:
    """One unit of a layer, before its weights are drawn: a random function of the batch.

    Its preactivations are √q (√c s + √(1−c) e): s is the unit's and shared by all inputs, e is each input's own. With
    m, v the mean and variance of φ over e, a the mean of φ² and d that of φ′², all functions of s; E, Var and Cov are
    over s. Slopes are with respect to ln q. A homogeneous φ is described at q = 1.
    """

    mean: float  # E m
    second: float  # E a
    between_variance: float  # Var m
    between_fourth: float  # E (m − mean)⁴
    within_variance: float  # Var v
    within_square: float  # E v²
    within_noise: float  # E of the variance over e of (φ − m)²
    within_and_between: float  # Cov(v, (m − mean)²)
    within_times_between: float  # E v (m − mean)²
    squares_variance: float  # Var φ², of one input
    squares_shared: float  # Var a
    derivative: float  # E d
    derivative_fourth: float  # E φ′⁴
    derivative_square: float  # E d²
    derivative_product: float  # E[φ′(u₁) φ′(u₂)] of two inputs
    both: float  # E φ² φ′²
    both_product: float  # E[φφ′(u₁) φφ′(u₂)] of two inputs
    both_shared: float  # Cov(a, d)
    correlation: float  # ĉ = E m² / E a, of φ of two inputs; 1 if it is nothing but 0
    correlation_noise: float  # Var(m² − ĉ a)
    correlation_and_squares: float  # Cov(m² − ĉ a, a)
    saturated_shared: float  # Var of the share of saturated inputs
    mean_slope: float  # of E φ
    second_slope: float  # of E φ²
    derivative_slope: float  # of E φ′²
    saturation_slope: float  # of the share of saturated activations

    @property
    def passed(self) -> float:
        """What is left of the correlation of two inputs' gradients: E[φ′(u₁) φ′(u₂)] / E φ′²."""
        return self.derivative_product / self.derivative if self.derivative > 0 else 1.0

    @property
    def spread_slope(self) -> float:
        """The slope d ln Var φ / d ln q; 0 for what does not vary."""
        variance = self.second - self.mean**2
        return (self.second_slope - 2 * self.mean * self.mean_slope) / variance if variance > 0 else 0.0

    @property
    def second_response(self) -> float:
        """The slope d ln E φ² / d ln q."""
        return self.second_slope / self.second if self.second > 0 else 0.0

    @property
    def derivative_response(self) -> float:
        """The slope d ln E φ′² / d ln q."""
        return self.derivative_slope / self.derivative if self.derivative > 0 else 0.0


@cache
def _grid() -> tuple[Array, Array]:
    """Nodes and weights (each `(NODES,)`) of a standard normal, evenly spaced: no worse at a kink than elsewhere."""
    nodes = np.linspace(-6.0, 6.0, NODES)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


@cache
def _score() -> Array:
    """(z² − 1)/2 at the nodes of `rule`: E[f(√q z) · score] is d E[f(√q z)] / d ln q, whatever f."""
    score: Array = (rule()[0] ** 2 - 1) / 2
    return score


@lru_cache(maxsize=4096)
def _slopes(activation: str, q: float) -> tuple[float, float, float, float]:
    """d/d ln q of E φ, E φ², E φ′² and of the share of saturated activations."""
    phi = activation_named(activation)
    preactivation = math.sqrt(q) * rule()[0]
    value, derivative, saturated = phi.value(preactivation), phi.derivative(preactivation), 0.0
    if phi.plateaus is not None:
        saturated = expectation(_is_saturated(value, phi.plateaus) * _score())
    return (
        expectation(value * _score()),
        expectation(value**2 * _score()),
        expectation(derivative**2 * _score()),
        saturated,
    )


@lru_cache(maxsize=4096)
def _unit(activation: str, q: float, c: float) -> _Unit:
    phi = activation_named(activation)
    mean_slope, second_slope, derivative_slope, saturation_slope = _slopes(activation, q)
    nodes, weights = _grid()
    scale = math.sqrt(q if phi.plateaus is None else min(q, RESOLVED_Q))
    preactivation = scale * (math.sqrt(c) * nodes[:, None] + math.sqrt(1 - c) * nodes)
    value, derivative = phi.value(preactivation), phi.derivative(preactivation)
    value_squares, derivative_squares = value**2, derivative**2
    m, a, d = value @ weights, value_squares @ weights, derivative_squares @ weights
    deviation_squares = (value - m[:, None]) ** 2
    v = deviation_squares @ weights

    def mean(values: Array) -> float:
        return float(weights @ values)

    def covariance(first: Array, second: Array) -> float:
        return float(weights @ ((first - mean(first)) * (second - mean(second))))

    mean_value, second, derivative_mean = mean(m), mean(a), mean(d)
    between = (m - mean_value) ** 2
    correlation = min(1.0, mean(m**2) / second) if second > 0 else 1.0
    off = m**2 - correlation * a
    saturated = np.zeros_like(m) if phi.plateaus is None else _is_saturated(value, phi.plateaus) @ weights
    return _Unit(
        mean=mean_value,
        second=second,
        between_variance=mean(between),
        between_fourth=mean(between**2),
        within_variance=covariance(v, v),
        within_square=mean(v**2),
        within_noise=max(0.0, mean(deviation_squares**2 @ weights - v**2)),
        within_and_between=covariance(v, between),
        within_times_between=mean(v * between),
        squares_variance=mean(value_squares**2 @ weights) - second**2,
        squares_shared=covariance(a, a),
        derivative=derivative_mean,
        derivative_fourth=mean(derivative_squares**2 @ weights),
        derivative_square=mean(d**2),
        derivative_product=mean((derivative @ weights) ** 2),
        both=mean((value_squares * derivative_squares) @ weights),
        both_product=mean(((value * derivative) @ weights) ** 2),
        both_shared=covariance(a, d),
        correlation=correlation,
        correlation_noise=covariance(off, off),
        correlation_and_squares=covariance(off, a),
        saturated_shared=covariance(saturated, saturated),
        mean_slope=mean_slope,
        second_slope=second_slope,
        derivative_slope=derivative_slope,
        saturation_slope=saturation_slope,
    )


def _is_saturated(value: Array, plateaus: tuple[float, float]) -> Array:
    """1 where a value lies in the outer 3 % of the way from the middle to a plateau, else 0."""
    low, high = plateaus
    return (np.abs(value - (low + high) / 2) > 0.97 * (high - low) / 2).astype(np.float64)


# ------------------------------------------------------------------------------------------------- a tensor's variance


@dataclass(frozen=True, slots=True)
class _Stray:
    """How the correlation c strays over draws: its variance, and its covariance with ln q.

    A unit that all inputs share adds to both, so that q (1 − c), by which inputs differ, strays less than either.
    """

    variance: float = 0.0
    with_q: float = 0.0


@dataclass(frozen=True, slots=True)
class _Variance:
    """The variance over all elements of a tensor: its expectation, and what it depends on besides.

    Attributes:
        value: its expectation over draws.
        own: its variance over draws, given all that came before, relative to value².
        slope: d ln value / d ln q.
        c_slope: d ln value / d c.
    """

    value: float
    own: float = 0.0
    slope: float = 0.0
    c_slope: float = 0.0

    def expected(self, walk: NormLaw, stray: _Stray) -> Expected:
        """Of the standard deviation, where ln q obeys `walk` and c has a `stray`."""
        law = _law(self.own) + _answer(walk, self.slope)
        by_c = self.c_slope**2 * stray.variance + 2 * self.slope * self.c_slope * stray.with_q
        law = law + _law(by_c) if by_c > 0 else NormLaw(law.mean, max(0.0, law.variance + by_c))
        std = math.sqrt(self.value)
        return Expected(std, law.band(std, DEVIATIONS))


@dataclass(frozen=True, slots=True)
class _Gaussian:
    """A tensor (B, n) of n independent units, each normal, with correlation c between any two of the B inputs.

    Preactivations are one, given all that came before, and gradients, given all that comes after.

    Attributes:
        second_moment: of its elements.
        c: the mean correlation.
        scatter: variance of the correlation from pair to pair: in few dimensions no two directions are orthogonal.
        units: n.
        inputs: B.
        freedom: see `Net`.
    """

    second_moment: float
    c: float
    scatter: float
    units: int
    inputs: int
    freedom: float

    @property
    def overlap(self) -> float:
        """Mean squared correlation of all B² pairs: 1/overlap is how many independent inputs the batch stands for."""
        return 1 / self.inputs + (1 - 1 / self.inputs) * self.pair_overlap

    @property
    def pair_overlap(self) -> float:
        """Mean squared correlation of the pairs of different inputs."""
        return min(1.0, self.c**2 + self.scatter)

    @property
    def mean_variance(self) -> float:
        """Variance over draws of the mean over all elements."""
        return self.second_moment * (self.c + (1 - self.c) / self.inputs) / self.units

    @property
    def variance(self) -> _Variance:
        """Of all elements: between the units, whose means vary by c + (1−c)/B, and within each, over its inputs."""
        n, inputs = self.units, self.inputs
        unit_mean = self.c + (1 - self.c) / inputs
        within = (1 - self.c) * (1 - 1 / inputs)
        share = unit_mean * (n - 1) / n + within
        if self.second_moment == 0 or share <= 0:
            return _Variance(0.0)
        own = 2 * unit_mean**2 * (n - 1) / n**2 + 2 * (1 - self.c) * within / (n * inputs) + 2 * self.scatter / n
        return _Variance(
            value=self.second_moment * share,
            own=own * self.freedom / share**2,
            slope=1.0,
            c_slope=-(1 - 1 / inputs) / n / share,
        )


_STILL = NormLaw(0.0, 0.0)
"""The law of what does not stray."""


WIDEST = 20.0
"""Relative variance of the widest χ² that is taken for a law, of a tenth of a degree: e^±20 is no news any more."""


def _law(relative_variance: float) -> NormLaw:
    """The law of ln(χ²/degrees), a χ² of the degrees of freedom that make this its variance."""
    if relative_variance < 1e-9:  # so many degrees of freedom that it is normal itself
        variance = max(0.0, relative_variance)
        return NormLaw(-variance / 2, variance)
    half_degrees = 1 / min(WIDEST, relative_variance)
    return NormLaw(digamma(half_degrees) - math.log(half_degrees), trigamma(half_degrees))


def _answer(law: NormLaw, response: float) -> NormLaw:
    """The law of what answers by `response` to each unit of what obeys `law`."""
    return NormLaw(response * law.mean, response**2 * law.variance)


# -------------------------------------------------------------------------------------------------------- the way there


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer on the way forward.

    Attributes:
        activation: φ.
        preactivation: given q.
        walk: of ln q, relative to mean-field theory's.
        stray: of c.
        share: of q, what comes by the weights and not by the biases.
        unit: at q, or at 1 where φ is homogeneous.
        size: the factor in E φ² that is missing there: q, or 1.
        noise: of ln(mean φ²), given q.
        bend: what is in the mean of that because q is not the same for all inputs.
        single_after: variance of ln(mean φ²) over the units alone, for one input.
        second: E φ².
        c_after: E[φ(u₁)φ(u₂)] / E φ².
        scatter_after: of that correlation from pair to pair.
        unevenness: what the bends of the layers before come to here.
    """

    activation: str
    preactivation: _Gaussian
    walk: NormLaw
    stray: _Stray
    share: float
    unit: _Unit
    size: float
    noise: NormLaw
    bend: float
    single_after: float
    second: float
    c_after: float
    stray_after: _Stray
    scatter_after: float
    unevenness: float = 0.0

    @property
    def q(self) -> float:
        return self.preactivation.second_moment

    @property
    def slope(self) -> float:
        """The slope d ln(mean φ²) / d ln(mean φ²) of the layer before."""
        return self.share * self.unit.second_response

    @property
    def walk_after(self) -> NormLaw:
        """Of ln(mean φ²)."""
        return _answer(self.walk, self.unit.second_response) + self.noise

    @property
    def variance(self) -> _Variance:
        """Of all activations."""
        if self.activation == "linear":
            return self.preactivation.variance
        n, inputs = self.preactivation.units, self.preactivation.inputs
        unit, size = self.unit, self.size
        mean = moments(self.activation, self.q).mean
        within = self.second * (1 - self.c_after)
        between = max(0.0, self.second * self.c_after - mean**2) + within / inputs
        value = within * (1 - 1 / inputs) + between * (1 - 1 / n)
        if value <= 0:
            return _Variance(0.0)
        fourth = (
            unit.between_fourth + 6 * unit.within_times_between / inputs + 3 * unit.within_square / inputs**2
        ) * size**2
        own = (
            size**2 * (unit.within_variance + unit.within_noise / inputs + 2 * unit.within_and_between * (1 - 1 / n))
            + max(0.0, fourth - between**2 * (n - 3) / max(1, n - 1)) * (1 - 1 / n) ** 2
            + 2 * (value * unit.spread_slope) ** 2 * self.preactivation.scatter
        ) / n
        c_slope = -(1 - 1 / inputs) / n * self.q * unit.derivative_product
        return _Variance(value, own / value**2, unit.spread_slope, c_slope / value)


def _forward(net: Net, typical: bool) -> list[_Layer]:
    """From x on, as far as q can be followed: along the mean-field path or, if `typical`, along the median one."""
    inputs = net.batch
    second, c, stray = 1.0, 0.0 if inputs > 1 else 1.0, _Stray()
    scatter = 1 / net.widths[0] if inputs > 1 else 0.0
    walk = _law(2 / (inputs * net.widths[0]))
    single, unevenness = _law(2 / net.widths[0]).variance, 0.0
    if typical:
        second, walk = math.exp(walk.mean), NormLaw(0.0, walk.variance)
    layers: list[_Layer] = []
    for index, (activation, (weight_variance, bias_variance)) in enumerate(
        zip(net.activations, net.variances, strict=True)
    ):
        fan_in, n = net.widths[index], net.widths[index + 1]
        q = weight_variance * second + bias_variance
        if (q != 0 and not SMALLEST_Q < q < LARGEST_Q) or unevenness > UNEVEN:
            break
        share = weight_variance * second / q if q else 0.0
        preactivation = _Gaussian(
            second_moment=q,
            c=min(1.0, max(0.0, share * c + 1 - share)),
            scatter=share**2 * scatter,
            units=n,
            inputs=inputs,
            freedom=net.freedom(fan_in, n),
        )
        stray = _Stray(share**2 * stray.variance, share**2 * stray.with_q)
        layer = _layer(activation, preactivation, _answer(walk, share), share**2 * single, stray, share)
        if typical:
            median, still = layer.second * math.exp(layer.noise.mean), NormLaw(0.0, layer.noise.variance)
            layer = replace(layer, second=median, noise=still)
        layer = replace(layer, unevenness=unevenness)
        layers.append(layer)
        second, c, stray = layer.second, layer.c_after, layer.stray_after
        scatter, walk, single = layer.scatter_after, layer.walk_after, layer.single_after
        unevenness = layer.slope * unevenness + layer.bend
    return layers


def _layer(
    activation: str, preactivation: _Gaussian, walk: NormLaw, single: float, stray: _Stray, share: float
) -> _Layer:
    q, c, n, inputs = preactivation.second_moment, preactivation.c, preactivation.units, preactivation.inputs
    homogeneous = activation_named(activation).homogeneous
    unit = _unit(activation, 1.0 if homogeneous else q, c)
    second = moments(activation, q).second_moment
    c_after = c_slope = 1.0
    noise, single_noise, c_noise, both_noise = 0.0, 0.0, 0.0, 0.0
    if second > 0:
        # Where a kink costs the grid a digit the series is cheap, as one does for every q.
        c_after = correlation_map(activation, c, 1.0, 1.0) if homogeneous else unit.correlation
        c_slope = unit.derivative_product * (1.0 if homogeneous else q) / unit.second
        # A second Hermite coefficient is 2 (d/d ln q)², and the scatter of c acts through it.
        quadratic = 2 * unit.second_response**2
        noise = (unit.squares_shared + (unit.squares_variance - unit.squares_shared) / inputs) / unit.second**2
        noise += quadratic * preactivation.scatter + 1 / n  # 1/n² over all: the next order, whatever it may be
        noise -= quadratic * preactivation.overlap * (1 - preactivation.freedom)
        single_noise = unit.squares_variance / unit.second**2 - quadratic * (1 - preactivation.freedom)
        c_noise = unit.correlation_noise / unit.second**2
        both_noise = unit.correlation_and_squares / unit.second**2
    # Where q differs from input to input, with variance u of its logarithm, the mean of the batch goes ahead of what
    # the map makes of the mean: E eˢˣ for a normal x of E eˣ = 1.
    response = unit.second_response
    bend = max(0.0, single - walk.variance) * response * (response - 1) / 2
    law = _law(noise / n)
    stray_after = _Stray()
    if inputs > 1:
        stray_after = _Stray(
            variance=min(1.0, c_slope**2 * stray.variance + c_noise / n),
            with_q=response * c_slope * stray.with_q + both_noise / n,
        )
    return _Layer(
        activation=activation,
        preactivation=preactivation,
        walk=walk,
        stray=stray,
        share=share,
        unit=unit,
        size=q if homogeneous else 1.0,
        noise=NormLaw(law.mean + bend, law.variance),
        bend=bend,
        single_after=response**2 * single + _law(single_noise / n).variance,
        second=second,
        c_after=c_after,
        stray_after=stray_after,
        scatter_after=_scatter(preactivation.scatter, c_slope, c_after, n, inputs),
    )


def _scatter(scatter: float, slope: float, c_after: float, n: int, inputs: int, again: float = 0.0) -> float:
    """The scatter of a correlation after a map of this slope and n units, each of which samples it.

    `again` is the share that has passed the same weights before: a Gram matrix of (a W) Wᵀ strays by twice as much as
    one of a W, in variance by 4/n, of which a W has brought one and a draw of its own would bring another.
    """
    if inputs == 1:
        return 0.0
    sampled = (1 + 2 * again) * (1 - c_after**2) ** 2 * (1 + scatter - 2 * scatter**2) / n
    return min(1 - c_after**2, slope**2 * scatter + sampled)


def _forward_figures(layer: _Layer) -> dict[str, Expected]:
    walk, stray, unit = layer.walk, layer.stray, layer.unit
    n, inputs = layer.preactivation.units, layer.preactivation.inputs
    preactivation_std = layer.preactivation.variance.expected(walk, stray)
    figures = {"preactivation_std": preactivation_std}
    if layer.activation == "linear":
        figures["activation_mean"] = _additive(0.0, layer.preactivation.mean_variance)
        figures["activation_std"] = preactivation_std
        return figures

    figures["activation_mean"] = _activation_mean(layer)
    figures["activation_std"] = layer.variance.expected(walk, stray)
    saturated = saturation(layer.activation, layer.q)
    if saturated is None:
        if layer.unevenness < UNEVEN / 10:  # one odd input is enough to keep a unit alive
            figures["dead_fraction"] = _dead_fraction(layer)
    else:
        single = max(0.0, saturated * (1 - saturated) - unit.saturated_shared)
        scattered = 2 * unit.saturation_slope**2 * layer.preactivation.scatter
        own = (unit.saturated_shared + single / inputs + scattered) / n
        figures["saturation"] = _share(saturated, own + unit.saturation_slope**2 * walk.variance, n * inputs)
    return figures


def _activation_mean(layer: _Layer) -> Expected:
    unit, n, inputs = layer.unit, layer.preactivation.units, layer.preactivation.inputs
    mean = moments(layer.activation, layer.q).mean
    within = layer.second * (1 - layer.c_after)
    own = (max(0.0, layer.second * layer.c_after - mean**2) + within / inputs) / n
    slope = unit.mean_slope * math.sqrt(layer.size)
    own += 2 * slope**2 * layer.preactivation.scatter / n
    if layer.activation == "relu" or own < 0.1 * mean**2:
        if mean == 0:
            return Expected(0.0, (0.0, 0.0))
        # ln of the mean is half of what a law is of.
        law = _answer(_law(own / mean**2), 2.0) + _answer(layer.walk, 2 * slope / mean)
        low, high = law.band(abs(mean), DEVIATIONS)
        return Expected(mean, (low, high) if mean > 0 else (-high, -low))
    return _additive(mean, own + slope**2 * layer.walk.variance)


def _dead_fraction(layer: _Layer) -> Expected:
    """Units are independent given c, so the count of dead ones is binomial; a stray c shifts all of them."""
    c, n, inputs = layer.preactivation.c, layer.preactivation.units, layer.preactivation.inputs
    if layer.q == 0:
        return Expected(1.0, (1.0, 1.0))
    dead = dead_fraction(c, inputs)
    step = math.sqrt(layer.stray.variance)
    shift = (dead_fraction(min(1.0, c + step), inputs) - dead_fraction(max(0.0, c - step), inputs)) / 2
    return _share(dead, dead * (1 - dead) / n + shift**2, n)


def _additive(value: float, variance: float) -> Expected:
    reach = DEVIATIONS * math.sqrt(variance)
    return Expected(value, (value - reach, value + reach))


def _share(value: float, variance: float, trials: int) -> Expected:
    """A share in [0, 1] of so many trials: where it is about 0 or 1, a normal law falls short of one trial more."""
    reach = DEVIATIONS * math.sqrt(variance) + (DEVIATIONS**2 / 2) / trials * (0 < value < 1)
    return Expected(value, (max(0.0, value - reach), min(1.0, value + reach)))


# -------------------------------------------------------------------------------------------------------- the way back


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The gradient with respect to a layer's activation a: `coherent` · a + noise.

    The textbook's assumption, that the gradient knows nothing of the weights it comes back through, fails for what of
    it is due to the output itself: that was made by these very weights, and (x W) Wᵀ points along x. With few outputs
    this is little; with n_out as large as the widths it is most of the gradient after some layers. For linear nets
    the second moments are those of products of Wishart matrices (Fuss and Catalan's numbers).

    Attributes:
        coherent: factor of a.
        from_out: second moment of the noise that goes back to the output.
        from_target: second moment of the noise that goes back to the target.
        noise: the two together, as a tensor.
        variance: of all elements.
        pair_overlap: mean squared correlation of two inputs' gradients.
        signal_part: share of the second moment that is coherent.
        out_part: share of the second moment that goes back to the output.
    """

    coherent: float
    from_out: float
    from_target: float
    noise: _Gaussian
    variance: _Variance
    pair_overlap: float
    signal_part: float
    out_part: float


@dataclass(frozen=True, slots=True)
class _Strays:
    """The law of ln γ as it depends on the `out_part` ω of γ: mean m₀ + m₁ω, variance v₀ + v₁ω + v₂ω²."""

    means: tuple[float, float]
    variances: tuple[float, float, float]

    def add(self, noise: NormLaw, fixed: float, out: float, other: NormLaw, covariance: float) -> _Strays:
        """With one more layer's noise, which γ answers by `fixed` + `out` ω, and the `other` that γ meets there."""
        m0, m1 = self.means
        v0, v1, v2 = self.variances
        return _Strays(
            means=(m0 + fixed * noise.mean + other.mean, m1 + out * noise.mean),
            variances=(
                v0 + fixed**2 * noise.variance + 2 * fixed * covariance + other.variance,
                v1 + 2 * fixed * out * noise.variance + 2 * out * covariance,
                v2 + out**2 * noise.variance,
            ),
        )

    def law(self, out_part: float) -> NormLaw:
        """At one ω."""
        m0, m1 = self.means
        v0, v1, v2 = self.variances
        return NormLaw(m0 + m1 * out_part, max(0.0, v0 + v1 * out_part + v2 * out_part**2))


def _backward(net: Net, layers: list[_Layer]) -> list[Expected]:
    """The gradient's standard deviation, from the mean squared error back to the first layer.

    γ, the second moment of the gradient with respect to a layer's activation, is for the layer before it about
    γ · E φ′² · n Var(W). Noise that enters before a layer comes back to it, by the output and by φ′: `fixed` + `out` ω
    is d ln γ / d ln q of the layer after.
    """
    last = layers[-1]
    gradient = _residual(last)
    found = [gradient.variance.expected(last.walk, last.stray)]
    fixed, out = last.unit.derivative_response, last.unit.second_response
    strays = _Strays((0.0, 0.0), (0.0, 0.0, 0.0)).add(_STILL, 0.0, 0.0, _mask_noise(last, gradient), 0.0)
    for index in range(len(layers) - 2, -1, -1):
        layer, after = layers[index], layers[index + 1]
        freedom = net.freedom(net.widths[index + 2], net.widths[index + 1])
        gradient = _before(gradient, layer, after, net.variances[index + 1][0], freedom)
        arriving = strays.add(after.walk, fixed, out, _STILL, 0.0).law(gradient.out_part)
        found.append(gradient.variance.expected(arriving, _Stray()))
        fixed, out = fixed * after.share, out * after.share
        noise = _weighted_noise(layer, gradient)
        shared = _shared_noise(layer, gradient, noise.variance)
        strays = strays.add(noise, fixed, out, _mask_noise(layer, gradient), shared)
        fixed = layer.unit.derivative_response + layer.unit.second_response * fixed
        out = layer.unit.second_response * out
    return found[::-1]


def _residual(last: _Layer) -> _Gradient:
    """2 (out − y) / numel(y)."""
    inputs, n = last.preactivation.inputs, last.preactivation.units
    elements = inputs * n
    factor = 2 / elements
    out = last.variance
    value = out.value + 1 - 1 / elements
    variance = _Variance(0.0)
    if value > 0:
        own = out.own * out.value**2 + (4 * out.value + 2) / elements
        part = out.value / value
        variance = _Variance(factor**2 * value, own / value**2, out.slope * part, out.c_slope * part)
    noise = _Gaussian(factor**2, 0.0 if inputs > 1 else 1.0, 0.0, n, inputs, 1.0)
    return _Gradient(
        coherent=factor,
        from_out=0.0,
        from_target=factor**2,
        noise=noise,
        variance=variance,
        pair_overlap=_pair_overlap(factor**2 * last.second, noise, last),
        signal_part=last.second / (last.second + 1),
        out_part=last.second / (last.second + 1),
    )


def _before(gradient: _Gradient, layer: _Layer, after: _Layer, weight_variance: float, freedom: float) -> _Gradient:
    """The gradient of `layer`, from that of the layer after it.

    There it is δ = φ′(h) ∘ (α φ(h) + noise), of which ρ h with ρ = α E[φ φ′ h] / q lies along h. What of h came by the
    weights comes back along a: (a W) Wᵀ = n Var(W) a + noise.
    """
    n, fan_out, inputs = layer.preactivation.units, after.preactivation.units, layer.preactivation.inputs
    unit, size, q, old = after.unit, after.size, after.q, gradient.noise
    gain = fan_out * weight_variance / n
    derivative = moments(after.activation, q).derivative_second_moment
    square = gradient.coherent * gradient.coherent * size
    along = gradient.coherent * unit.second_slope * size / q if q else 0.0

    out_moment = square * unit.both + gradient.from_out * derivative
    moment = out_moment + gradient.from_target * derivative
    product = square * unit.both_product + old.second_moment * derivative * old.c * unit.passed
    c = min(1.0, max(0.0, product / moment)) if moment > 0 and inputs > 1 else old.c
    noisy = old.second_moment * derivative / moment if moment > 0 else 1.0
    # Signal and noise come of the same inputs: where two of them happen to be alike, both show it.
    old_scatter = (noisy * math.sqrt(old.scatter) + (1 - noisy) * math.sqrt(after.preactivation.scatter)) ** 2

    from_out = max(0.0, gain * (out_moment - along * along * q * after.share * (1 - after.preactivation.freedom)))
    from_target = gain * gradient.from_target * derivative
    coherent = along * gain
    noise = _Gaussian(
        second_moment=from_out + from_target,
        c=c,
        scatter=_scatter(old_scatter, unit.passed, c, fan_out, inputs, again=1 - noisy),
        units=n,
        inputs=inputs,
        freedom=freedom,
    )
    signal = coherent * coherent * layer.second
    total = signal + noise.second_moment
    return _Gradient(
        coherent=coherent,
        from_out=from_out,
        from_target=from_target,
        noise=noise,
        variance=_sum_variance(coherent * coherent * layer.variance.value, noise, layer),
        pair_overlap=_pair_overlap(signal, noise, layer),
        signal_part=signal / total if total > 0 else 0.0,
        out_part=(signal + from_out) / total if total > 0 else 0.0,
    )


def _sum_variance(signal: float, noise: _Gaussian, layer: _Layer) -> _Variance:
    """Of `coherent` · a + noise, where the former has the variance `signal`: it strays with q, not by itself."""
    value = signal + noise.variance.value
    if value <= 0:
        return _Variance(0.0)
    shared = 1 / noise.inputs + (1 - 1 / noise.inputs) * noise.c * layer.c_after
    part = noise.variance.value / value
    own = part**2 * noise.variance.own + 4 * part * (1 - part) * shared / noise.units
    return _Variance(value, own, 1.0)


def _pair_overlap(signal: float, noise: _Gaussian, layer: _Layer) -> float:
    """Mean squared correlation of the gradients of two inputs, where `signal` is the coherent second moment."""
    total = signal + noise.second_moment
    part = signal / total if total > 0 else 0.0
    c = part * layer.c_after + (1 - part) * noise.c
    return min(1.0, c**2 + (part * math.sqrt(layer.preactivation.scatter) + (1 - part) * math.sqrt(noise.scatter)) ** 2)


def _mask_noise(layer: _Layer, gradient: _Gradient) -> NormLaw:
    """Of ln(mean of (g φ′)²) over a layer's units and inputs, given the second moments of both."""
    unit, inputs, free = layer.unit, gradient.noise.inputs, gradient.noise.freedom
    if unit.derivative <= 0:
        return _STILL
    single = (1 + 2 * free) * unit.derivative_fourth / unit.derivative**2 - 1
    pair = (1 + 2 * free * gradient.pair_overlap) * unit.derivative_square / unit.derivative**2 - 1
    return _law(max(0.0, single / inputs + (1 - 1 / inputs) * pair) / gradient.noise.units)


def _weighted_noise(layer: _Layer, gradient: _Gradient) -> NormLaw:
    """The noise of ln(mean φ²), as the gradient sees it.

    What lies along the activation weighs directions by how much of them reaches the output and comes back. There are
    fewer of these than the activations have, and less averages out.
    """
    unit, preactivation = layer.unit, layer.preactivation
    overlap = 1 / preactivation.inputs + (1 - 1 / preactivation.inputs) * gradient.pair_overlap
    fewer = gradient.out_part * max(0.0, overlap - preactivation.overlap) * preactivation.freedom
    return NormLaw(layer.noise.mean, layer.noise.variance + 2 * unit.second_response**2 * fewer / preactivation.units)


def _shared_noise(layer: _Layer, gradient: _Gradient, noise: float) -> float:
    """Covariance of `_mask_noise` with `noise`, the variance of `_weighted_noise`: one unit's draw decides on both.

    What of the gradient lies along the activation strays as the activation does, the rest by φ′ alone.
    """
    unit, inputs, part = layer.unit, layer.preactivation.inputs, gradient.signal_part
    if unit.second <= 0 or unit.derivative <= 0:
        return 0.0
    covariance = unit.both_shared + (unit.both - unit.second * unit.derivative - unit.both_shared) / inputs
    by_derivative = covariance / (unit.second * unit.derivative * layer.preactivation.units)
    return part * noise + (1 - part) * by_derivative
