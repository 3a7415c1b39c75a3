"""Theory of one layer, from what came into it, against layers drawn and run by plain torch."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch_activations import TORCH_ACTIVATIONS, measured

from chainrule.theory.local import Elements, convolution, expected_forward, expected_gradient, linear, taps_on_input

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
SEEDS = 20
DRAWS = 50


def elements_of(values) -> Elements:
    values = values.double()
    return Elements(values.mean().item(), values.square().mean().item())


def inputs_of(generator, shape, alike, shift=0.0):
    """Normal inputs, any two of which have the correlation `alike`."""
    common, own = (torch.randn(1, *shape[1:], generator=generator), torch.randn(shape, generator=generator))
    return math.sqrt(alike) * common + math.sqrt(1 - alike) * own + shift


class Convolved:
    def __init__(self, channels, kernel, size, groups=1, batch=8, bias=True, **options):
        self.channels, self.kernel, self.size = channels, kernel, size
        self.groups, self.batch, self.bias = groups, batch, bias
        self.options = {"stride": 1, "padding": 0, "dilation": 1, **options}

    def draw(self, generator, alike=0.0):
        space = len(self.size)
        x = inputs_of(generator, (self.batch, self.channels[0], *self.size), alike)
        fan_in = self.channels[0] // self.groups * math.prod(self.kernel)
        shape = (self.channels[1], self.channels[0] // self.groups, *self.kernel)
        weight = torch.randn(shape, generator=generator) * math.sqrt(2 / fan_in)
        bias = 0.3 * torch.randn(self.channels[1], generator=generator) if self.bias else None
        z = CONVOLVE[space](x.requires_grad_(), weight, bias, groups=self.groups, **self.options)
        taps = [
            (size, out, taps_on_input(size, out, kernel, **self.options))
            for size, out, kernel in zip(self.size, z.shape[2:], self.kernel, strict=True)
        ]
        given = Elements(0, 0) if bias is None else elements_of(bias)
        return x, z, convolution(self.channels, self.groups, taps, elements_of(weight), given)


class Weighed:
    def __init__(self, units_in, units, batch=64, shift=0.0, bias=True):
        self.units_in, self.units, self.batch, self.shift, self.bias = units_in, units, batch, shift, bias

    def draw(self, generator, alike=0.0):
        x = inputs_of(generator, (self.batch, self.units_in), alike, self.shift)
        weight = torch.randn(self.units, self.units_in, generator=generator) * math.sqrt(2 / self.units_in)
        bias = 0.3 * torch.randn(self.units, generator=generator) if self.bias else None
        z = functional.linear(x.requires_grad_(), weight, bias)
        given = Elements(0, 0) if bias is None else elements_of(bias)
        return x, z, linear(self.units_in, self.units, elements_of(weight), given)


LAYERS = {
    "linear": Weighed(100, 50),
    "linear, wide": Weighed(64, 256),
    "linear, few units": Weighed(100, 5),
    "linear, shifted": Weighed(100, 50, shift=0.7, bias=False),
    "conv1d": Convolved((8, 16), (5,), (20,), padding=2),
    "conv2d": Convolved((3, 32), (3, 3), (12, 12), padding=1),
    "conv2d, strided": Convolved((16, 32), (3, 3), (9, 9), stride=2, padding=1),
    "conv2d, dilated": Convolved((8, 24), (3, 3), (10, 8), dilation=2, padding=2, bias=False),
    "conv2d, padded widely": Convolved((4, 16), (5, 5), (4, 4), padding=2),
    "conv2d, grouped": Convolved((16, 32), (3, 3), (8, 8), groups=4),
    "conv2d, depthwise": Convolved((32, 32), (3, 3), (8, 8), groups=32, padding=1),
    "conv3d": Convolved((4, 16), (3, 3, 3), (5, 6, 4), padding=1),
}


@pytest.mark.parametrize("alike", [0.0, 1.0])
@pytest.mark.parametrize("name", LAYERS)
def test_nineteen_of_twenty_draws_lie_within(name, alike):
    inside = {}
    for seed in range(DRAWS):
        x, z, layer = LAYERS[name].draw(torch.Generator().manual_seed(seed), alike)
        assert layer.fault is None
        for activation in ("relu", "tanh", "gelu"):
            expected = expected_forward(layer, elements_of(x), activation, x.shape[0])
            found = measured(activation, z, TORCH_ACTIVATIONS[activation](z))
            assert set(expected) == set(found)
            for key, figure in expected.items():
                low, high = figure.band
                inside.setdefault((activation, key), []).append(low <= found[key] <= high)
    shares = {key: np.mean(held) for key, held in inside.items()}
    # The band holds 95 %; fifty draws may well show 88.
    assert min(shares.values()) >= 0.88, shares
    assert np.mean(list(shares.values())) >= 0.92, shares


@pytest.mark.parametrize("name", LAYERS)
def test_the_gradient_that_is_handed_back(name):
    """The gradient is independent of the weights, as the textbook assumes."""
    inside = []
    ratios = []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        x, z, layer = LAYERS[name].draw(generator, 0.3)
        gradient = torch.randn(z.shape, generator=generator) * 0.01
        z.backward(gradient)
        expected = expected_gradient(layer, elements_of(gradient))
        std = x.grad.std(correction=0).item()
        inside.append(expected.band[0] <= std <= expected.band[1])
        ratios.append(std / expected.value)
    assert np.mean(inside) >= 0.9
    assert np.median(ratios) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("units", [10, 100])
def test_a_gradient_due_to_these_very_weights_lies_within(units):
    """In (x W − y) Wᵀ half or more points along x if there are as many outputs as inputs."""
    inside = []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        x, z, layer = Weighed(100, units, bias=False).draw(generator)
        z.retain_grad()
        (z - torch.randn(z.shape, generator=generator)).pow(2).mean().backward()
        expected = expected_gradient(layer, elements_of(z.grad))
        inside.append(expected.band[0] <= x.grad.std(correction=0).item() <= expected.band[1])
    assert np.mean(inside) >= 0.9


@pytest.mark.parametrize(
    ("layer", "fault"),
    [
        (linear(100, 1, Elements(0.0, 0.01)), "at least two units"),
        (linear(100, 10, Elements(0.0, 0.0)), "all its weights are equal"),
        (linear(100, 10, Elements(0.5, 0.25)), "all its weights are equal"),
        (linear(100, 10, Elements(0.5, 1 / 3)), "the mean of its weights is not 0"),
        (linear(100, 10, Elements(0.0, 0.01)), None),
    ],
)
def test_some_layers_have_no_theory(layer, fault):
    assert layer.fault is None if fault is None else fault in layer.fault


def test_inputs_of_zero_have_no_figures():
    layer = linear(100, 10, Elements(0.0, 0.01))
    assert expected_forward(layer, Elements(0.0, 0.0), "relu", 10) == {}
    assert expected_gradient(layer, Elements(0.0, 0.0)) is None
    assert set(expected_forward(layer, Elements(0.0, 1.0), None, 10)) == {"preactivation_std"}
