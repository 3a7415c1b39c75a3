"""Expected statistics of layers against nets drawn and run by plain torch, closed forms and published figures."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from torch_activations import TORCH_ACTIVATIONS, measured

from chainrule.theory.activations import ACTIVATIONS
from chainrule.theory.layer_statistics import Net, by_layer, statistics_columns


def layer_statistics(net, mse=True):
    return by_layer(statistics_columns(net, mse))


def net_of(widths, activation, weight_variance, bias_variance=0.0, *, last=False, batch=200, orthogonal=False) -> Net:
    depth = len(widths) - 1
    activations = (activation,) * (depth - 1) + (activation if last else "linear",)
    return Net(tuple(widths), activations, ((weight_variance, bias_variance),) * depth, batch, orthogonal)


@cache
def sample(net: Net, seed: int) -> list[dict[str, float]]:
    """Draw the net, run it on N(0, 1) forward and backward in float64, and take the figures of every layer."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    a = normal(net.batch, net.widths[0])
    tensors = []
    for (fan_in, n), name, (w2, b2) in zip(itertools.pairwise(net.widths), net.activations, net.variances, strict=True):
        w = normal(fan_in, n) * math.sqrt(w2 / fan_in)
        if net.orthogonal:
            q, _ = torch.linalg.qr(w if fan_in >= n else w.T)
            w = (q if fan_in >= n else q.T) * math.sqrt(w2 * max(fan_in, n) / fan_in)
        h = a @ w + normal(n) * math.sqrt(b2)
        a = TORCH_ACTIVATIONS[name](h.requires_grad_()) if name != "linear" else h.requires_grad_()
        a.retain_grad()
        tensors.append((name, h, a))
    (a - normal(*a.shape)).pow(2).mean().backward()

    return [measured(name, h, a) | {"gradient_std": a.grad.std(correction=0).item()} for name, h, a in tensors]


KAIMING = net_of([100] * 13, "relu", 2.0)
NETS = {
    "kaiming": KAIMING,
    "kaiming to one output": net_of([100] * 11 + [1], "relu", 2.0),
    "kaiming, narrow": net_of([20] * 9 + [5], "relu", 2.0, last=True),
    "kaiming, one input": net_of([100] * 11, "relu", 2.0, batch=1),
    "relu with biases": net_of([100] * 11, "relu", 1.5, 0.2),
    "leaky": net_of([64] * 13, "leaky_relu", 2.0, last=True),
    "linear": net_of([100] * 13, "linear", 1.0),
    "tanh, critical": net_of([100] * 13, "tanh", 1.76095, 0.05),
    "tanh, 5/3": net_of([100] * 11, "tanh", (5 / 3) ** 2, last=True),
    "tanh, Xavier": net_of([100] * 13, "tanh", 1.0),
    "tanh, saturated": net_of([100] * 7, "tanh", 100.0),
    "sigmoid": net_of([60] * 8, "sigmoid", 2.0, 0.1),
    "gelu": net_of([100] * 11, "gelu", 1.5335**2),
    "gelu, vanishing": net_of([100] * 9, "gelu", 2.0),
    "silu": net_of([100] * 9, "silu", 2.8),
    "elu": net_of([100] * 11, "elu", 1.44),
    "selu": net_of([100] * 11, "selu", 1.0),
    "chapter": net_of([100, 50, 1], "relu", 2.0),
    "tapered": net_of([200, 80, 30, 10], "relu", 2.0),
    "orthogonal": net_of([60] * 9, "tanh", 1.5, orthogonal=True),
}
SEEDS = 20


LONG = {
    *("kaiming, narrow", "leaky", "linear", "tanh, critical", "tanh, Xavier", "gelu, vanishing", "silu", "elu", "selu"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in NETS])
def test_bands_hold_the_drawn_figures(name):
    net = NETS[name]
    expected = layer_statistics(net)
    inside: dict[str, list[bool]] = {}
    for seed in range(SEEDS):
        for figures, layer in zip(sample(net, seed), expected, strict=True):
            for key, figure in layer.items():
                low, high = figure.band
                inside.setdefault(key, []).append(low <= figures[key] <= high)
    shares = {key: np.mean(held) for key, held in inside.items()}
    assert {"preactivation_std", "activation_mean", "activation_std"} <= set(shares)
    # Layers of one draw stray together: of 95 %, twenty draws may well hold 85.
    assert min(shares.values()) >= 0.8, shares
    assert np.mean(list(shares.values())) >= 0.9, shares


@pytest.mark.parametrize("name", ["kaiming", "gelu", "chapter", "tapered"])
def test_bands_are_no_wider_than_the_draws_scatter(name):
    net = NETS[name]
    logs = {key: [] for key in ("preactivation_std", "gradient_std")}
    for seed in range(SEEDS):
        layers = sample(net, seed)
        for key, rows in logs.items():
            rows.append([math.log(layer[key]) for layer in layers])
    for key, rows in logs.items():
        bands = [layer[key].band for layer in layer_statistics(net)]
        theory = np.array([math.log(high / low) / 4 for low, high in bands])
        assert np.mean(np.std(rows, axis=0) / theory) == pytest.approx(1.0, abs=0.4), key


def figures(net: Net, key: str) -> list[float]:
    return [layer[key].value for layer in layer_statistics(net) if key in layer]


@pytest.mark.smoke
def test_published_values():
    kaiming = layer_statistics(net_of([100, 10000], "relu", 2.0, last=True, batch=1000))[0]
    assert kaiming["activation_mean"].value == pytest.approx(0.5642, abs=1e-4)
    assert kaiming["activation_std"].value == pytest.approx(0.8256, abs=1e-4)
    five_thirds = net_of([100] * 4, "tanh", (5 / 3) ** 2, last=True)
    assert figures(five_thirds, "saturation") == pytest.approx([0.2093, 0.0983, 0.0700], abs=1e-4)
    xavier = figures(net_of([1000] * 51, "tanh", 1.0, last=True), "activation_std")
    published = [0.6279, 0.4863, 0.4082, 0.3216, 0.2285, 0.1609, 0.1011]
    assert [xavier[layer - 1] for layer in (1, 2, 3, 5, 10, 20, 50)] == pytest.approx(published, rel=1e-3)


def test_norm_of_deep_nets_walks_as_published():
    # median and band of the presets' std after 50 layers
    for net, median, (low, high) in (
        (net_of([100] * 51, "linear", 1.0), 0.922, (0.56, 1.69)),
        (net_of([100] * 51, "relu", 2.0, last=True), 0.450, (0.089, 2.22)),
    ):
        band = layer_statistics(net)[-1]["activation_std"].band
        assert math.sqrt(band[0] * band[1]) == pytest.approx(median, rel=0.1)
        assert band == pytest.approx((low, high), rel=0.25)


def test_gradient_of_the_chapters_net():
    gradients = figures(NETS["chapter"], "gradient_std")
    # RMS √3/100 at out; with one output all inputs share the weights, whence the mean that std takes off
    correlation = 1 / math.pi
    variance = 2 * (1 - correlation) * (1 - 1 / 200) + 1 - 1 / 200
    assert gradients[1] == pytest.approx(2 / 200 * math.sqrt(variance), rel=1e-6)
    # RMS .003464 at l2, but for the part of the gradient that comes back along l2
    assert gradients[0] == pytest.approx(0.003464, rel=0.015)


@pytest.mark.parametrize("widths", [[50, 50], [50, 50, 50], [40] * 9, [100, 60, 30, 10], [10, 30, 60, 100]])
def test_linear_gradient_follows_products_of_wishart_matrices(widths):
    # out = a P: the gradient is a P Pᵀ − y Pᵀ, and E tr (P Pᵀ)² is the free product's
    layers = layer_statistics(net_of(widths, "linear", 1.0, batch=10_000))
    out, elements = widths[-1], 10_000 * widths[-1]
    for layer, found in enumerate(layers, start=1):
        back = 1 + out * sum(1 / width for width in widths[layer:-1])
        # Var(W) = 1/fan_in: each step back multiplies by fan_out/fan_in
        rms = 2 / elements * math.sqrt((back + 1) * out / widths[layer])
        assert found["gradient_std"].value == pytest.approx(rms, rel=1e-3)


def test_no_figures_after_an_overflow():
    layers = layer_statistics(net_of([100] * 101, "linear", 100.0))
    assert "preactivation_std" in layers[68]
    assert layers[72] == {}
    assert "gradient_std" not in layers[0]


def test_no_figures_where_few_inputs_decide():
    layers = layer_statistics(net_of([100] * 31, "gelu", 2.0))
    assert "activation_std" in layers[7]
    assert layers[-1] == {}


def test_zero_weights():
    first, second = layer_statistics(net_of([10, 8, 4], "sigmoid", 0.0))
    assert first["preactivation_std"].value == 0
    assert first["activation_mean"].value == pytest.approx(0.5)
    assert first["gradient_std"].value == 0
    assert first["gradient_std"].band == (0, 0)
    assert second["gradient_std"].value == pytest.approx(2 / 800, rel=1e-3)
    assert layer_statistics(net_of([10, 8, 4], "relu", 0.0))[0]["dead_fraction"].band == (1.0, 1.0)


@pytest.mark.parametrize(
    "activation",
    [pytest.param(each, marks=[pytest.mark.long] * (each not in ("relu", "tanh", "silu"))) for each in ACTIVATIONS],
)
def test_every_figure_is_finite(activation):
    every = itertools.product(
        ([3, 2], [1, 1, 1], [1] * 9, [7, 300, 1, 40, 2]),
        ((0.0, 0.0), (0.0, 0.3), (1e-7, 0.0), (2.0, 0.0), (1e8, 100.0)),
        (1, 2, 200),
        (True, False),
        (True, False),
    )
    for widths, (weight_variance, bias_variance), batch, last, orthogonal in every:
        net = net_of(widths, activation, weight_variance, bias_variance, last=last, batch=batch, orthogonal=orthogonal)
        layers = layer_statistics(net)
        assert len(layers) == len(widths) - 1
        for key, figure in itertools.chain.from_iterable(layer.items() for layer in layers):
            low, high = figure.band
            assert math.isfinite(figure.value), (net, key)
            assert -math.inf < low <= high < math.inf, (net, key)
