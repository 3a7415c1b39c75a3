"""The backward pass: the gradient of the mean squared error with respect to every layer's activation.

γ, the second moment of the gradient with respect to a layer's activation, becomes about γ · E φ′² · n Var(W) for the
layer before, which strays as the activations do and also depends on q.

The textbook assumes that the gradient is independent of the weights it passes. That fails for the part that comes from
the output, which these weights computed: (x W) Wᵀ points along x. For few outputs the part is small; if n_out is as
large as the widths it is most of the gradient after some layers. Hence a gradient is split into `coherent` · a + noise,
where a is the activation. For linear nets the second moments are those of products of Wishart matrices (Fuss–Catalan
numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, NamedTuple

import numpy as np

from chainrule.theory.forward import Layers, Net, scattered
from chainrule.theory.gaussian import Array, Number
from chainrule.theory.laws import (
    Figures,
    Gaussians,
    Laws,
    Strays,
    Variances,
    chi_square_laws,
    of_all_pairs,
    quotient,
)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """The gradients with respect to the layers' activations, in columns `(L,)`."""

    noise: Gaussians  # the part that is not along the activation
    variances: Variances
    pair_overlap: Array  # mean squared correlation of two inputs' gradients
    signal_part: Array  # share of the second moment that is coherent
    out_part: Array  # share of the second moment that comes from the output, rather than from the target


def backward(net: Net, layers: Layers) -> Figures:
    """The standard deviation of every layer's gradient."""
    gradients = gradients_of(net, layers)
    mask = _mask_noise(layers, gradients)
    weighted = _weighted_noise(layers, gradients)
    arriving = _arriving(layers, gradients, mask, weighted, _shared_noise(layers, gradients, weighted.variance))
    # Only the last layer's gradient depends on c directly.
    zero = np.zeros(len(layers))
    strays = Strays(zero, zero.copy())
    strays.variance[-1], strays.with_q[-1] = layers.strays.variance[-1], layers.strays.with_q[-1]
    return gradients.variances.expected(arriving, strays)


class _Row(NamedTuple, Generic[Number]):
    """A layer's gradient: the factor of a, and the noise by its origin, with correlation and scatter."""

    coherent: Number
    from_out: Number
    from_target: Number
    c: Number
    scatter: Number


def gradients_of(net: Net, layers: Layers) -> Gradients:
    """The gradients, last layer first computed from the residual 2 (out − y) / numel(y).

    The next layer's gradient is δ = φ′(h) ∘ (α φ(h) + noise), and its part ρ h with ρ = α E[φ φ′ h] / q lies along h.
    The part of h that came through the weights comes back along a: (a W) Wᵀ = n Var(W) a + noise.
    """
    given, units, inputs = layers.preactivations, layers.units, net.batch
    q = given.second_moment
    widths = np.array(net.widths[1:], np.float64)
    gains = np.append(widths[1:] * np.array(net.variances)[1:, 0] / widths[:-1], 0.0)
    elements = inputs * net.widths[-1]
    factor = 2 / elements

    # How the next layer's φ and weights change each part of the gradient.
    along = quotient(layers.moments.second_slope * layers.size, q, q > 0)
    after = zip(
        gains.tolist(),
        along[1:].tolist(),
        (along**2 * q * layers.share * (1 - given.freedom))[1:].tolist(),
        (layers.size * units.both)[1:].tolist(),
        (layers.size * units.both_product)[1:].tolist(),
        layers.moments.derivative[1:].tolist(),
        units.passed[1:].tolist(),
        given.scatter[1:].tolist(),
        net.widths[2:],
        strict=False,
    )
    row: _Row[float] = _Row(factor, 0.0, factor**2, 0.0 if inputs > 1 else 1.0, 0.0)
    rows = [row]
    for gain, along_h, kept, both, both_product, derivative, passed, scatter, fan_out in reversed(list(after)):
        square = row.coherent**2
        noise = row.from_out + row.from_target
        out_moment = square * both + row.from_out * derivative
        moment = out_moment + row.from_target * derivative
        c, noisy = row.c, 1.0
        if moment > 0:
            noisy = noise * derivative / moment
            if inputs > 1:
                c = min(1.0, max(0.0, (square * both_product + noise * derivative * row.c * passed) / moment))
        # Signal and noise come from the same inputs: their scatters add coherently.
        old_scatter = (noisy * math.sqrt(row.scatter) + (1 - noisy) * math.sqrt(scatter)) ** 2
        row = _Row(
            coherent=row.coherent * along_h * gain,
            from_out=max(0.0, gain * (out_moment - square * kept)),
            from_target=gain * row.from_target * derivative,
            c=c,
            scatter=scattered(old_scatter, passed, c, fan_out, inputs, again=1 - noisy),
        )
        rows.append(row)
    return _columns(net, layers, _Row(*np.array(rows[::-1]).T), elements)


def _columns(net: Net, layers: Layers, row: _Row[Array], elements: int) -> Gradients:
    inputs = net.batch
    # A gradient passes the transposed weights of the next layer.
    freedom = [net.freedom(fan_out, n) for n, fan_out in zip(net.widths[1:], net.widths[2:], strict=False)]
    units, second_moment = layers.preactivations.units, row.from_out + row.from_target
    noise = Gaussians(second_moment, row.c, row.scatter, units, inputs, np.array([*freedom, 1.0]))
    signal = row.coherent**2 * layers.second
    total = signal + noise.second_moment
    signal_part = quotient(signal, total, total > 0)
    c = signal_part * layers.c_after + (1 - signal_part) * noise.c
    scatter = signal_part * np.sqrt(layers.preactivations.scatter) + (1 - signal_part) * np.sqrt(noise.scatter)
    return Gradients(
        noise=noise,
        variances=_variances(row.coherent, noise, layers, elements),
        pair_overlap=np.minimum(1.0, c**2 + scatter**2),
        signal_part=signal_part,
        out_part=quotient(signal + row.from_out, total, total > 0),
    )


def _variances(coherent: Array, noise: Gaussians, layers: Layers, elements: int) -> Variances:
    """Variances of `coherent` · a + noise, where a strays with q, and of the residual, which strays as the output."""
    activations, of_noise = layers.variances, noise.variances
    value = coherent**2 * activations.value + of_noise.value
    shared = of_all_pairs(noise.c * layers.c_after, noise.inputs)
    part = quotient(of_noise.value, value, value > 0)
    own = part**2 * of_noise.own + 4 * part * (1 - part) * shared / noise.units
    slope, c_slope = (value > 0).astype(np.float64), np.zeros_like(value)

    out = activations.value[-1]
    residual = out + 1 - 1 / elements
    value[-1] = own[-1] = slope[-1] = 0.0
    if residual > 0:
        value[-1] = (2 / elements) ** 2 * residual
        own[-1] = (activations.own[-1] * out**2 + (4 * out + 2) / elements) / residual**2
        slope[-1], c_slope[-1] = (activations.slope[-1] * out / residual, activations.c_slope[-1] * out / residual)
    return Variances(value, own, slope, c_slope)


def _mask_noise(layers: Layers, gradients: Gradients) -> Laws:
    """The law of ln(mean of (g φ′)²) over a layer's units and inputs, given the second moments of both."""
    units, noise = layers.units, gradients.noise
    alive = units.derivative > 0
    square = units.derivative**2
    single = (1 + 2 * noise.freedom) * quotient(units.derivative_fourth, square, alive) - 1
    pair = (1 + 2 * noise.freedom * gradients.pair_overlap) * quotient(units.derivative_square, square, alive) - 1
    variance = np.maximum(0.0, single / noise.inputs + (1 - 1 / noise.inputs) * pair) / noise.units
    return chi_square_laws(np.where(alive, variance, 0.0))


def _weighted_noise(layers: Layers, gradients: Gradients) -> Laws:
    """The noise of ln(mean φ²), as it affects the gradient.

    The part along the activation weighs directions by how much of them reaches the output and comes back. These are
    fewer directions than the activations have, so less noise averages out.
    """
    given = layers.preactivations
    overlap = of_all_pairs(gradients.pair_overlap, given.inputs)
    fewer = gradients.out_part * np.maximum(0.0, overlap - given.overlap) * given.freedom
    return Laws(layers.noise.mean, layers.noise.variance + 2 * layers.second_response**2 * fewer / given.units)


def _shared_noise(layers: Layers, gradients: Gradients, noise: Array) -> Array:
    """Covariance of `_mask_noise` with `noise`, the variance of `_weighted_noise`: both depend on one unit's draw.

    The gradient's part along the activation strays as the activation does, the rest through φ′ alone.
    """
    units, part, inputs = layers.units, gradients.signal_part, layers.preactivations.inputs
    alive = (units.second > 0) & (units.derivative > 0)
    covariance = units.both_shared + (units.both - units.second * units.derivative - units.both_shared) / inputs
    by_derivative = quotient(covariance, units.second * units.derivative * layers.preactivations.units, alive)
    return np.where(alive, part * noise + (1 - part) * by_derivative, 0.0)


def _arriving(layers: Layers, gradients: Gradients, mask: Laws, weighted: Laws, shared: Array) -> Laws:
    """The law of ln γ at every layer; for the last layer the law of ln q.

    Noise that enters before a layer comes back to it through the output and through φ′: ln γ responds with slope
    `fixed` + `out` ω, where ω is the `out_part` of γ. So the law has a mean m₀ + m₁ω and a variance v₀ + v₁ω + v₂ω².
    """
    walk, share, part = layers.walk, layers.share, gradients.out_part
    fixed_after, out_after = _answers(layers)
    # The response to noise that enters at a layer, through the next layer's weights; none after the last.
    fixed, out = np.append(fixed_after * share[1:], 0.0), np.append(out_after * share[1:], 0.0)
    noise, variance = weighted.mean, weighted.variance
    means = _from_after(fixed * noise + mask.mean, out * noise)
    variances = _from_after(
        fixed**2 * variance + 2 * fixed * shared + mask.variance,
        2 * fixed * out * variance + 2 * out * shared,
        out**2 * variance,
    )
    # Plus the walk of the next layer's ln q.
    walk_mean, walk_variance = walk.mean[1:], walk.variance[1:]
    means += np.stack([fixed_after, out_after]) * walk_mean
    variances += np.stack([fixed_after**2, 2 * fixed_after * out_after, out_after**2]) * walk_variance
    omega = part[:-1]
    mean = means[0] + means[1] * omega
    variance = np.maximum(0.0, variances[0] + variances[1] * omega + variances[2] * omega**2)
    return Laws(np.append(mean, walk.mean[-1]), np.append(variance, walk.variance[-1]))


def _answers(layers: Layers) -> Array:
    """The response of every layer's ln γ but the last to ln q of the next layer, `fixed` and `out`: `(2, L − 1)`."""
    responses, derivative_responses = layers.second_response.tolist(), layers.derivative_response.tolist()
    shares = layers.share.tolist()
    fixed, out = derivative_responses[-1], responses[-1]
    found = [(fixed, out)]
    for index in range(len(layers) - 2, 0, -1):
        handed_on = responses[index] * shares[index + 1]
        fixed, out = derivative_responses[index] + handed_on * fixed, handed_on * out
        found.append((fixed, out))
    return np.array(found[::-1][: len(layers) - 1]).reshape(-1, 2).T


def _from_after(*columns: Array) -> Array:
    """For every layer but the last, the sums over all later layers: `(columns, L − 1)`."""
    return np.cumsum(np.stack(columns)[:, :0:-1], axis=1)[:, ::-1]
