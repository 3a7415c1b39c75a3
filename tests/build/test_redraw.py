import math

import pytest
import torch
from torch import nn

from chainrule.build.redraw import fans, redraw
from chainrule.spec.keys import KEY_BY_NAME

SCHEMES = KEY_BY_NAME["init"].choices

TORCH = {
    "standard_normal": nn.init.normal_,
    "xavier_normal": nn.init.xavier_normal_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "kaiming_normal": lambda tensor: nn.init.kaiming_normal_(tensor, nonlinearity="relu"),
    "kaiming_uniform": lambda tensor: nn.init.kaiming_uniform_(tensor, nonlinearity="relu"),
    "lecun_normal": lambda tensor: nn.init.kaiming_normal_(tensor, nonlinearity="linear"),
    "uniform": lambda tensor: nn.init.uniform_(tensor, -0.1, 0.1),
    # The default of Linear and the convolutions.
    "torch_default": lambda tensor: nn.init.kaiming_uniform_(tensor, a=math.sqrt(5)),
}


@pytest.mark.parametrize("shape", [(5, 3), (16, 8, 3, 3), (4, 2, 7), (6, 5, 2, 2, 2)])
def test_fans_are_those_of_torch(shape):
    assert fans(shape) == nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    with pytest.raises(ValueError, match=r"expected a shape with 2 or more dimensions, got \(3,\)"):
        fans((3,))


@pytest.mark.parametrize("shape", [(300, 200), (64, 32, 5, 5)], ids=["matrix", "kernel"])
@pytest.mark.parametrize("scheme", TORCH)
def test_a_scheme_has_the_distribution_of_torch_nn_init(scheme, shape):
    torch.manual_seed(0)
    drawn, theirs = redraw(scheme, 0, "weight", shape), TORCH[scheme](torch.empty(shape))
    # Each std has a relative error of at most 1/√(2n); five of them of the difference.
    assert float(drawn.std()) == pytest.approx(float(theirs.std()), rel=5 / math.sqrt(drawn.numel()))
    if "uniform" in scheme or scheme == "torch_default":
        assert float(drawn.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=1e-3)
    else:
        # The largest of n normal values is near √(2 ln n) σ, of uniform ones √3 σ.
        assert float(drawn.abs().max() / drawn.std()) > 3.5


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 3, 2, 2)])
def test_orthogonal_has_orthonormal_rows_or_columns(shape):
    w = redraw("orthogonal", 3, "weight", shape).flatten(1)
    product = w @ w.t() if w.shape[0] <= w.shape[1] else w.t() @ w
    torch.testing.assert_close(product, torch.eye(len(product)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_draw_depends_on_its_seed_and_name_alone(scheme):
    before = torch.get_rng_state()
    first = redraw(scheme, 1, "a.weight", (7, 5))
    torch.manual_seed(99)
    assert torch.equal(first, redraw(scheme, 1, "a.weight", (7, 5)))
    assert first.dtype == torch.float32
    assert first.shape == (7, 5)
    if scheme != "zeros":
        assert not torch.equal(first, redraw(scheme, 2, "a.weight", (7, 5)))
        assert not torch.equal(first, redraw(scheme, 1, "b.weight", (7, 5)))
    torch.set_rng_state(before)
    redraw(scheme, 1, "a.weight", (7, 5))
    assert torch.equal(torch.get_rng_state(), before)
