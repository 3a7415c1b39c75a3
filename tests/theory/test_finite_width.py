"""The finite-width law against mpmath's special functions, published figures and sampled nets."""

import math

import mpmath
import numpy as np
import pytest
import torch

from chainrule.theory.finite_width import (
    dead_fraction,
    dead_fractions,
    depth_law,
    digamma,
    layer_law,
    linear_law,
    relu_law,
    trigamma,
)
from chainrule.theory.mean_field import preactivation_correlations

KAIMING = [(2.0, 0.0)] * 50


@pytest.mark.parametrize("x", [0.01, 0.5, 1, 1.5, 7.25, 15.99, 16, 50, 512, 1e6])
def test_psi_functions_agree_with_mpmath(x):
    assert digamma(x) == pytest.approx(float(mpmath.digamma(x)), rel=1e-14, abs=1e-14)
    assert trigamma(x) == pytest.approx(float(mpmath.polygamma(1, x)), rel=1e-14)


@pytest.mark.smoke
def test_laws_of_one_layer_of_a_hundred():
    linear, relu = linear_law(100), relu_law(100)
    assert (linear.mean, linear.variance) == pytest.approx((-0.01003, 0.02020), abs=1e-5)
    assert (relu.mean, relu.variance) == pytest.approx((-0.02542, 0.05194), abs=1e-5)


def test_laws_of_fifty_layers_of_a_hundred():
    linear, relu = depth_law([linear_law(100)] * 50), depth_law([relu_law(100)] * 50)
    assert (linear.median, linear.spread) == pytest.approx((0.7782, 1.653), abs=5e-4)
    assert (relu.median, relu.spread) == pytest.approx((0.5297, 2.238), abs=5e-4)
    low, high = relu.band(0.8, deviations=1)
    assert (low, high) == pytest.approx((0.8 * 0.5297 / 2.238, 0.8 * 0.5297 * 2.238), rel=1e-3)


def test_wide_limit_is_kappa_over_n():
    assert relu_law(1000).variance == pytest.approx(5 / 1000, rel=0.01)
    assert relu_law(1000).mean == pytest.approx(-5 / 2000, rel=0.01)
    leaky = layer_law("leaky_relu", 1000)
    assert leaky.variance == pytest.approx(relu_law(1000).variance, rel=0.01)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_narrow_relu_law_agrees_with_a_sample(n):
    z = torch.randn(400_000, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    norms = (2 * torch.relu(z) ** 2).mean(1)
    logs = norms[norms > 0].log()
    law = relu_law(n)
    assert law.mean == pytest.approx(logs.mean().item(), abs=0.02)
    assert law.variance == pytest.approx(logs.var().item(), rel=0.02)


@pytest.mark.parametrize("name", ["gelu", "tanh", "elu", "leaky_relu"])
def test_other_activations_agree_with_a_sample(name):
    n, q = 100, 1.7
    activation = torch.tanh if name == "tanh" else getattr(torch.nn.functional, name)
    u = math.sqrt(q) * torch.randn(40_000, n, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    logs = (activation(u) ** 2).mean(1).log()
    assert layer_law(name, n, q).variance == pytest.approx(logs.var().item(), rel=0.08)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_a_batch_averages_out_what_its_inputs_do_not_share(correlation):
    n, inputs = 50, 40
    generator = torch.Generator().manual_seed(11)
    shared = torch.randn(4000, 1, n, generator=generator, dtype=torch.float64)
    own = torch.randn(4000, inputs, n, generator=generator, dtype=torch.float64)
    u = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    logs = (torch.relu(u) ** 2).mean((1, 2)).log()
    law = layer_law("relu", n, inputs=inputs, correlation=correlation)
    assert law.variance == pytest.approx(logs.var().item(), rel=0.1)


def test_dead_units_of_a_correct_deep_relu_net():
    # measured at width 100 with 200 inputs; infinite width leaves out that c itself fluctuates
    measured = {3: 0.8, 5: 3.7, 10: 13.7, 20: 26.8, 50: 39.0}
    correlations = preactivation_correlations("relu", KAIMING)
    expected = {layer: 100 * dead_fraction(correlations[layer - 1], 200) for layer in measured}
    assert expected == pytest.approx(measured, abs=1.5)


def test_dead_fraction_in_closed_form():
    assert dead_fraction(0.0, 3) == pytest.approx(1 / 8, abs=1e-12)
    assert dead_fraction(1.0, 200) == 0.5
    # two inputs: the orthant probability 1/4 + arcsin(c) / 2π
    assert dead_fraction(0.7, 2) == pytest.approx(0.25 + math.asin(0.7) / (2 * math.pi), abs=1e-10)


@pytest.mark.parametrize("inputs", [1, 2, 3, 30, 200, 1024])
def test_one_of_equally_likely_inputs_and_the_shared_part_is_the_largest(inputs):
    # At correlation ½ a unit is dead if the shared part, of one size with each input's own, is less than all of these.
    assert dead_fraction(0.5, inputs) == pytest.approx(1 / (inputs + 1), rel=1e-12)


@pytest.mark.parametrize("inputs", [1, 2, 7, 200])
def test_dead_fraction_agrees_with_mpmath_on_either_side_of_one_half(inputs):
    correlations = np.array([0.02, 0.3, 0.49, 0.51, 0.8, 0.99, 0.99999])
    for correlation, found in zip(correlations, dead_fractions(correlations, inputs), strict=True):
        r = math.sqrt(correlation / (1 - correlation))
        exact = mpmath.quad(
            lambda z, r=r: mpmath.npdf(z) * mpmath.ncdf(-r * z) ** inputs, [-14, -6, -3, -1, -3 / r, 0, 3 / r, 14]
        )
        assert found == pytest.approx(float(exact), rel=1e-8, abs=1e-15)
        assert found == pytest.approx(dead_fraction(correlation, inputs), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer_law("relu", 0), "at least 1"),
        (lambda: layer_law("relu", 10, inputs=0), "at least 1"),
        (lambda: dead_fraction(-0.1, 10), "correlation must lie in"),
        (lambda: layer_law("maxout", 10), "unknown activation 'maxout'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
