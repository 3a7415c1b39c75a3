"""Theory's curves over a map, against values of the papers and against the nets themselves."""

import math
from itertools import pairwise

import numpy as np
import pytest

from chainrule.spec import ModelSpec
from chainrule.sweeps.curves import curves_of
from chainrule.sweeps.run import run_sweep
from chainrule.sweeps.sweep import read_sweep
from chainrule.theory.mean_field import fixed_point, gradient_factor

TANH = "widths=100x51&activation=tanh&init=lecun_normal"


def curves(query, over, measure="gradient_ratio"):
    plan = read_sweep(ModelSpec.from_query(query), over, measure=measure)
    return {curve.name: [point for point in curve.points if point] for curve in curves_of(plan)}


@pytest.mark.parametrize(
    ("query", "scale"),
    [
        pytest.param(TANH, 1.0, marks=pytest.mark.long),
        (f"{TANH}&bias_std=0.2236", 1.327),  # σ_w² = 1.76 at σ_b² = 0.05, Schoenholz et al. 2017, figure 1
        ("widths=100x51&init=lecun_normal", math.sqrt(2)),
        ("widths=100x51", 1.0),  # Kaiming has the √2
        ("widths=100x51&init=standard_normal", math.sqrt(2 / 100)),
        ("widths=100x51&activation=linear&init=xavier_uniform", 1.0),
    ],
)
def test_the_border_is_where_the_papers_have_it(query, scale):
    for over, place in ((["scale=0.1:2:9", "depth=2:50:9"], 0), (["lr=0.1,1", "scale=0.1:2:9"], 1)):
        border = curves(query, over)["χ₁ = 1"]
        assert {round(point[place] / scale, 3) for point in border} == {1.0}


def test_the_border_of_scale_and_bias_has_chi_1_everywhere():
    border = curves(TANH, ["scale=0.5:3:9", "bias_std=0:1:9"])["χ₁ = 1"]
    inside = [(scale, bias) for scale, bias in border if 0.05 < bias < 1]
    assert len(inside) > 20
    for scale, bias in inside:
        fixed = fixed_point("tanh", scale**2, bias**2)
        assert fixed.chi1 == pytest.approx(1, abs=1e-4)
        assert gradient_factor("tanh", fixed.q, scale**2) == pytest.approx(1, abs=1e-4)


def test_the_depth_scales_are_those_of_theory():
    found = curves(f"{TANH}&bias_std=0.2236", ["scale=0.5:2:9", "depth=2:50:9"])
    for name, scale_of in (("6 ξ (correlation)", "correlation"), ("6 ξ (gradient)", "gradient")):
        for scale, depth in found[name]:
            fixed = fixed_point("tanh", scale**2, 0.2236**2)
            assert depth == pytest.approx(6 * getattr(fixed, f"depth_scale_{scale_of}"), rel=1e-9)
    for scale, depth in curves("widths=100x51", ["scale=0.5:2:9", "depth=2:50:9"])["6 ξ (gradient)"]:
        assert depth == pytest.approx(6 / abs(math.log(scale**2)), rel=1e-9)


@pytest.mark.parametrize(
    "over",
    [
        ["scale=1,2"],
        ["lr=1,2", "depth=2,3"],
        ["scale=1,2", "activation=tanh,relu"],
        ["init=zeros,uniform", "scale=1,2"],
    ],
)
def test_no_curve_where_theory_says_nothing(over):
    assert curves(TANH, over) == {}


def ratios(query, depths):
    plan = read_sweep(ModelSpec.from_query(f"{query}&batch=20"), ["scale=0.6:2.2:17", f"depth={depths}"], 5)
    return np.array(plan.axes[0].values), np.median(run_sweep(plan).values, axis=-1)


def test_gradients_of_tanh_vanish_left_of_the_border_and_explode_right_of_it():
    scales, ratio = ratios(TANH, "40")
    assert (ratio[0, scales < 0.85] < 0.03).all()
    assert (ratio[0, scales > 1.25] > 2).all()


def test_the_border_of_relu_is_vertical_at_a_weight_variance_of_2():
    """The gradient's second moment changes by σ_w² / 2 per layer, at any depth."""
    scales, ratio = ratios("widths=100x51&activation=relu&init=lecun_normal", "10,20,40")
    for (less, more), (shallow, deep) in zip(pairwise((10, 20, 40)), pairwise(np.log10(ratio)), strict=True):
        # The first and the last layers change both by the same factor.
        assert np.interp(0, deep - shallow, scales) == pytest.approx(math.sqrt(2), rel=0.03)
        np.testing.assert_allclose(deep - shallow, np.log10(scales**2 / 2) * (more - less) / 2, atol=1)


@pytest.mark.long
def test_accuracy_fades_at_six_depth_scales_of_the_correlation():
    """Schoenholz et al. 2017, figure 5, with handwritten digits, 50 units and 100 steps."""
    query = (
        "widths=64,50x10,10&data=digits&loss=cross_entropy&activation=tanh&init=lecun_normal&bias_std=0.2236&batch=64"
        "&optimizer=momentum&lr=0.02&step=100"
    )
    plan = read_sweep(ModelSpec.from_query(query), ["scale=0.5,0.75,1", "depth=2:42:11"], 3, "accuracy")
    accuracy = np.median(run_sweep(plan).values, axis=-1)
    curve = dict(curves(query, ["scale=0.5:1:129", "depth=2:42:11"], "accuracy")["6 ξ (correlation)"])
    for column, scale in enumerate(plan.axes[0].values):
        fades = np.interp(-0.5, -accuracy[:, column], plan.axes[1].values)  # half of the samples are right
        assert 0.8 < fades / curve[scale] < 2, scale
        assert accuracy[0, column] > 0.9
