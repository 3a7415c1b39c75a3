import numpy as np
import pytest
import torch

from chainrule.foundations.activations import ACTIVATIONS, SELU_ALPHA, SELU_SCALE, activation_rule

# The kink at 0 from both sides and on it, the ordinary range, and both tails.
POINTS = torch.cat(
    [
        torch.linspace(-6, 6, 241, dtype=torch.float64),
        torch.tensor([0.0, -0.0, 1e-12, -1e-12, 30.0, -30.0, 300.0, -300.0], dtype=torch.float64),
    ]
)


def erf(x: np.ndarray) -> np.ndarray:
    # Abramowitz and Stegun 7.1.5, exact to float64 where |x| is small enough for the series not to cancel.
    total, term = np.zeros_like(x), x.copy()
    for n in range(60):
        total += term / (2 * n + 1)
        term = -term * x * x / (n + 1)
    return 2 / np.sqrt(np.pi) * total


FORMULAS = {
    "linear": lambda x: x,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "tanh": lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "selu": lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * (np.exp(x) - 1)),
}
NAMES = list(FORMULAS)


@pytest.mark.parametrize("name", NAMES)
def test_f_is_its_formula(name):
    x = np.linspace(-2.5, 2.5, 101)
    got = ACTIVATIONS[name].f(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, FORMULAS[name](x), rtol=1e-12, atol=1e-13)


@pytest.mark.smoke
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_autograd_s(name):
    rule = ACTIVATIONS[name]
    inp = POINTS.clone().requires_grad_()
    out = rule.f(inp)
    (expected,) = torch.autograd.grad(out.sum(), inp)
    torch.testing.assert_close(rule.gradient(POINTS, rule.f(POINTS)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["elu", "selu", "silu", "sigmoid"])
def test_gradient_keeps_relative_accuracy_in_the_left_tail(name):
    # e⁻³⁰ is far below the spacing of float64 at 1, so f(x) + 1 and the like would round it to 0.
    inp = torch.tensor([-30.0], dtype=torch.float64, requires_grad=True)
    out = ACTIVATIONS[name].f(inp)
    (expected,) = torch.autograd.grad(out.sum(), inp)
    torch.testing.assert_close(ACTIVATIONS[name].gradient(inp.detach(), out.detach()), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_shape_and_dtype_are_kept_in_a_new_tensor(name, dtype):
    inp = torch.linspace(-2, 2, 6).reshape(3, 1, 2).to(dtype)
    out = ACTIVATIONS[name].f(inp)
    gradient = ACTIVATIONS[name].gradient(inp, out)
    assert out.dtype == gradient.dtype == dtype
    assert out.shape == gradient.shape == inp.shape
    assert out.data_ptr() != inp.data_ptr(), "one tensor for both would have one .g for both"


def test_selu_constants_make_0_and_1_a_fixed_point():
    # E f and E f² for a standard normal input, by the trapezoidal rule with a node on the kink.
    z = np.linspace(-12, 12, 240_001)
    weight = (z[1] - z[0]) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    f = ACTIVATIONS["selu"].f(torch.from_numpy(z)).numpy()
    assert abs((f * weight).sum()) < 1e-8
    assert abs((f * f * weight).sum() - 1) < 1e-8


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"expected one of linear, leaky_relu, .*selu, got 'swish'"):
        activation_rule("swish")
