"""Mean-field theory against published closed forms, tabulated quadrature, PyTorch and sampled nets."""

import math

import pytest
import torch
from torch_activations import TORCH_ACTIVATIONS

from chainrule.theory.activations import ACTIVATIONS
from chainrule.theory.gaussian import correlation_series, expectation, rule, series_value
from chainrule.theory.mean_field import (
    correlation_map,
    depth_scale,
    fixed_point,
    gradient_factor,
    moments,
    saturation,
    variance_map,
)

# φ: E φ, E φ², std φ, E φ'², gain, χ₁ at that gain; to the four digits of the published tables
AT_Q1 = {
    "linear": (0, 1, 1, 1, 1, 1),
    "relu": (0.3989, 0.5000, 0.5838, 0.5000, 1.4142, 1),
    "leaky_relu": (0.3950, 0.5001, 0.5866, 0.5001, 1.4141, 1),
    "tanh": (0, 0.3943, 0.6279, 0.4644, 1.5925, 1.1778),
    "gelu": (0.2821, 0.4252, 0.5879, 0.4559, 1.5335, 1.0720),
    "selu": (0, 1, 1, 1.0716, 1, 1.0716),
}


def preactivation_variances(activation, layers):
    """The q of every layer, from an input with second moment 1."""
    variances = []
    for weight_variance, bias_variance in layers:
        variances.append(
            variance_map(activation, variances[-1], weight_variance, bias_variance)
            if variances
            else weight_variance + bias_variance
        )
    return variances


@pytest.mark.parametrize("name", ACTIVATIONS | TORCH_ACTIVATIONS)
def test_values_and_derivatives_agree_with_autograd(name):
    u = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    u = u[u != 0].requires_grad_()  # at a kink PyTorch's derivative is a convention
    value = TORCH_ACTIVATIONS[name](u)
    (derivative,) = torch.autograd.grad(value.sum(), u)
    ours, points = ACTIVATIONS[name], u.detach().numpy()
    torch.testing.assert_close(torch.from_numpy(ours.value(points)), value.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(torch.from_numpy(ours.both(points)[1]), derivative, rtol=1e-11, atol=1e-14)


def test_the_rule_integrates_moments_of_a_normal_and_a_step():
    z, _ = rule()
    assert [expectation(z**k) for k in (0, 1, 2, 4, 6)] == pytest.approx([1, 0, 1, 3, 15], abs=1e-12)
    assert expectation((z > 0) * z) == pytest.approx(1 / math.sqrt(2 * math.pi), abs=1e-14)


@pytest.mark.parametrize("degree", [2, 4, 50, 256, 512])
def test_high_hermite_coefficients_of_relu_in_closed_form(degree):
    # a_k² = (k−3)!!² / (2π k!) for even k ≥ 2, with (−1)!! = 1 (Daniely, Frostig and Singer 2016)
    log_double_factorial = math.lgamma((degree - 1) / 2) + (degree - 2) / 2 * math.log(2) - math.log(math.pi) / 2
    expected = math.exp(2 * log_double_factorial - math.lgamma(degree + 1)) / (2 * math.pi)
    series = correlation_series(rule()[0].clip(min=0))
    assert series[degree] == pytest.approx(expected, rel=1e-6)
    assert series[degree - 1] == pytest.approx(0.25 if degree == 2 else 0, abs=1e-15)


@pytest.mark.smoke
@pytest.mark.parametrize(("name", "expected"), AT_Q1.items(), ids=AT_Q1)
def test_moments_at_unit_variance(name, expected):
    at = moments(name)
    found = (at.mean, at.second_moment, at.std, at.derivative_second_moment, at.gain, at.chi1_at_gain)
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_step_is_resolved_at_any_scale():
    # tanh of a huge preactivation is its sign
    assert moments("tanh", 1e12).second_moment == pytest.approx(1, abs=1e-5)
    assert moments("sigmoid", 1e12).second_moment == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(("q", "weight_variance", "bias_variance"), [(0.2, 1.32641, 0.004776), (1.0, 2.15330, 0.15097)])
def test_critical_line_of_tanh(q, weight_variance, bias_variance):
    fixed = fixed_point("tanh", weight_variance, bias_variance)
    assert (fixed.q, fixed.chi1) == pytest.approx((q, 1), rel=1e-3)
    assert gradient_factor("tanh", q, weight_variance) == pytest.approx(1, abs=1e-5)
    assert fixed_point("tanh", 1.76095, 0.05).chi1 == pytest.approx(1, abs=1e-4)


def test_relu_under_pytorchs_default_initialization():
    # U(±1/√n) for weights and biases: σ_w² = 1/3, σ_b² = 1/(3n)
    fixed = fixed_point("relu", 1 / 3, 1 / 300)
    assert (fixed.q, fixed.chi1, fixed.c) == pytest.approx((0.4 / 100, 1 / 6, 1), rel=1e-9)
    assert fixed.depth_scale_gradient == pytest.approx(1 / math.log(6), rel=1e-9)


def test_relu_rests_on_the_critical_point_alone():
    assert fixed_point("relu", 1.9) is None
    assert fixed_point("relu", 2.1) is None
    critical = fixed_point("relu", 2.0)
    assert (critical.q, critical.c, critical.chi1) == pytest.approx((2, 1, 1))
    assert critical.depth_scale_gradient is None
    assert critical.depth_scale_correlation is None


@pytest.mark.parametrize(
    ("name", "weight_variance", "bias_variance"),
    [("tanh", 2.5, 0.0), ("tanh", 4, 0.1), ("sigmoid", 60, 0.5), ("elu", 1.2, 0.1), ("silu", 2, 0.1), ("selu", 1, 0.2)],
)
def test_fixed_points_are_where_the_recursion_ends(name, weight_variance, bias_variance):
    fixed = fixed_point(name, weight_variance, bias_variance)
    c, variances = 0.6, preactivation_variances(name, [(weight_variance, bias_variance)] * 400)
    assert variances[-1] == pytest.approx(fixed.q, rel=1e-6)
    for q in variances:
        c = correlation_map(name, c, q, weight_variance, bias_variance)
    assert c == pytest.approx(fixed.c, abs=1e-5)
    assert fixed.chi1 == pytest.approx(gradient_factor(name, fixed.q, weight_variance))


def test_correlation_under_kaiming_from_independent_inputs():
    c = [0.0]
    for _ in range(49):
        c.append(correlation_map("relu", c[-1], 2.0, 2.0))
    assert [c[layer - 1] for layer in (1, 2, 3, 5, 10, 20, 50)] == pytest.approx(
        [0, 0.3183, 0.4937, 0.6810, 0.8548, 0.9445, 0.9874], abs=1e-4
    )


def test_correlation_series_of_a_square_in_closed_form():
    # E[u₁² u₂²] = 1 + 2c²
    series = correlation_series(rule()[0] ** 2)
    assert [series_value(series, c) for c in (-0.5, 0, 0.8, 1)] == pytest.approx([1.5, 1, 2.28, 3], abs=1e-9)


def test_saturation_of_the_sigmoid_is_that_of_its_tanh():
    u = 3 * torch.randn(200_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    share = ((2 * torch.sigmoid(u) - 1).abs() > 0.97).double().mean().item()
    assert saturation("sigmoid", 9.0) == pytest.approx(share, abs=0.004)


def test_overflow_is_infinite_not_an_error():
    assert preactivation_variances("relu", [(1e20, 0.0)] * 40)[-1] == math.inf
    assert fixed_point("elu", 1e30) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moments("softmax"), "unknown activation 'softmax'; expected one of linear, relu"),
        (lambda: moments("relu", -1.0), "q = -1.0; expected q ≥ 0"),
        (lambda: moments("relu", math.nan), "q = nan; expected q ≥ 0"),
        (lambda: variance_map("relu", 1, -2.0), "weight_variance = -2.0; expected a finite number ≥ 0"),
        (lambda: fixed_point("relu", 2.0, math.inf), "bias_variance = inf; expected a finite number ≥ 0"),
        (lambda: correlation_map("relu", 1.5, 1.0, 2.0), "correlation 1.5; expected a number from −1 to 1"),
        (lambda: correlation_map("tanh", 0.5, 0.0, 2.0), "the correlation is undefined"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_depth_scales():
    assert depth_scale(math.exp(-1 / 7)) == pytest.approx(7)
    assert depth_scale(math.exp(0.25)) == pytest.approx(4)
    assert depth_scale(1.0) is None
    assert depth_scale(0.0) == 0
