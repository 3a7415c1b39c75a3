import pytest
import torch
from torch_activations import TORCH_ACTIVATIONS

from chainrule.foundations.activations import ACTIVATIONS, activation_rule

# The kink at 0 from both sides and on it, the ordinary range, and both tails.
POINTS = torch.cat(
    [
        torch.linspace(-6, 6, 241, dtype=torch.float64),
        torch.tensor([0.0, -0.0, 1e-12, -1e-12, 30.0, -30.0, 300.0, -300.0], dtype=torch.float64),
    ]
)


@pytest.mark.smoke
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_f_is_torch_s_and_its_gradient_autograd_s(name):
    rule = ACTIVATIONS[name]
    inp = POINTS.clone().requires_grad_()
    out = TORCH_ACTIVATIONS[name](inp)
    (expected,) = torch.autograd.grad(out.sum(), inp)
    torch.testing.assert_close(rule.f(POINTS), out.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(rule.gradient(POINTS, rule.f(POINTS)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["elu", "selu", "silu", "sigmoid"])
def test_gradient_keeps_relative_accuracy_in_the_left_tail(name):
    # e⁻³⁰ is far below the spacing of float64 at 1, so f(x) + 1 and the like would round it to 0.
    inp = torch.tensor([-30.0], dtype=torch.float64, requires_grad=True)
    out = ACTIVATIONS[name].f(inp)
    (expected,) = torch.autograd.grad(out.sum(), inp)
    torch.testing.assert_close(ACTIVATIONS[name].gradient(inp.detach(), out.detach()), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_shape_and_dtype_are_kept_in_a_new_tensor(name, dtype):
    inp = torch.linspace(-2, 2, 6).reshape(3, 1, 2).to(dtype)
    out = ACTIVATIONS[name].f(inp)
    gradient = ACTIVATIONS[name].gradient(inp, out)
    assert out.dtype == gradient.dtype == dtype
    assert out.shape == gradient.shape == inp.shape
    assert out.data_ptr() != inp.data_ptr(), "one tensor for both would have one .g for both"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"expected one of linear, leaky_relu, .*selu, got 'swish'"):
        activation_rule("swish")
