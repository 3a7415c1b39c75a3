import math

import pytest
import torch
from torch import nn

from chainrule.foundations.initialization import SCHEMES, draw, normal, orthogonal, uniform


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def std(scheme, i, o):
    """Standard deviation of a weight of i inputs and o outputs, as the papers have it."""
    return {
        "standard_normal": 1.0,
        "lecun_normal": 1 / math.sqrt(i),
        "xavier_normal": math.sqrt(2 / (i + o)),
        "xavier_uniform": math.sqrt(2 / (i + o)),
        "kaiming_normal": math.sqrt(2 / i),
        "kaiming_uniform": math.sqrt(2 / i),
        "uniform": 0.1 / math.sqrt(3),
        "torch_default": 1 / math.sqrt(3 * i),
        "orthogonal": 1 / math.sqrt(max(i, o)),
        "zeros": 0.0,
    }[scheme]


@pytest.mark.smoke
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("i", "o"), [(300, 200), (200, 300)])
def test_std_is_the_paper_s(scheme, i, o):
    w = draw(scheme, i, o, generator())
    assert w.shape == (i, o)
    assert w.dtype == torch.float32
    # 60 000 numbers: the standard error of a std is 0.3 %, five of them.
    assert w.double().std(correction=0).item() == pytest.approx(std(scheme, i, o), rel=0.015, abs=1e-12)
    assert abs(w.double().mean().item()) <= 5 * std(scheme, i, o) / math.sqrt(w.numel())


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (20, 20), (1, 5), (5, 1), (1, 1)])
def test_orthogonal(shape):
    w = orthogonal(shape, generator())
    assert w.shape == shape
    assert w.is_contiguous()
    gram = w @ w.t() if shape[0] < shape[1] else w.t() @ w  # rows or columns
    torch.testing.assert_close(gram, torch.eye(min(shape)), rtol=0, atol=2e-6)
    expected = nn.init.orthogonal_(torch.empty(shape), generator=generator())
    torch.testing.assert_close(w, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scale_only_rescales_the_draw(scheme):
    w = draw(scheme, 30, 20, generator())
    torch.testing.assert_close(draw(scheme, 30, 20, generator(), scale=2.5), 2.5 * w, rtol=1e-6, atol=0)


def test_schemes_of_one_base_share_the_draw():
    for base, width, schemes in (
        (normal, 1, ("lecun_normal", "kaiming_normal", "xavier_normal")),
        (uniform, math.sqrt(3), ("uniform", "kaiming_uniform", "xavier_uniform", "torch_default")),
    ):
        drawn = base((30, 20), generator())
        for scheme in schemes:
            w = draw(scheme, 30, 20, generator())
            torch.testing.assert_close(w, drawn * std(scheme, 30, 20) * width, rtol=1e-6, atol=0)
    assert uniform((300, 200), generator()).abs().max().item() == pytest.approx(1, rel=1e-3)


def test_a_bad_draw_names_the_allowed_values():
    with pytest.raises(ValueError, match=r"expected scheme one of standard_normal, .*torch_default, got 'he'"):
        draw("he", 3, 2, generator())
    with pytest.raises(ValueError, match="at least 1, got 3 and 0"):
        draw("zeros", 3, 0, generator())
    with pytest.raises(ValueError, match=r"expected shape \(fan_in, fan_out\), got \(3,\)"):
        orthogonal((3,), generator())
