"""Every tensor that a spec draws: from its own generator, by the spec's scheme, the same in every style and dtype."""

from itertools import combinations

import pytest
import torch

from chainrule.build import build_model, weight_variances
from chainrule.build.draws import draw_leaves
from chainrule.foundations.initialization import generator_for
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.programs import PROGRAMS

STYLES = KEY_BY_NAME["style"].choices
INITS = KEY_BY_NAME["init"].choices


def spec_of(**values) -> ModelSpec:
    return ModelSpec.parse(values)


def chapter_leaves(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """The leaves of a built model, detached, weights as (fan_in, fan_out)."""
    model = build_model(spec)
    return {
        name: (leaf.t() if model.autograd and name.startswith("w") else leaf).detach()
        for name, leaf in model.leaves.items()
    }


BASE = {"widths": "12,10,8", "batch": 6, "bias_std": 0.5, "seed": 11}


@pytest.mark.smoke
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("style", STYLES)
def test_the_draw_is_the_same_in_every_style(style, init):
    values = BASE | {"init": init} | ({"bias_std": 0} if init == "torch_default" else {})
    expected = chapter_leaves(spec_of(**values))
    found = chapter_leaves(spec_of(**values, style=style))
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        assert torch.equal(leaf, expected[name]), name


def test_a_float64_draw_is_scaled_in_float64():
    rounded = chapter_leaves(spec_of(**BASE))
    for name, leaf in chapter_leaves(spec_of(**BASE, dtype="float64")).items():
        torch.testing.assert_close(leaf, rounded[name].double(), rtol=2**-23, atol=0)
    # Two scales that are one number in float32.
    first, second = (
        chapter_leaves(spec_of(**BASE, dtype="float64", scale=scale))["w1"] for scale in (1.5, 1.5 + 1e-12)
    )
    assert not torch.equal(first, second)
    torch.testing.assert_close(second / first, torch.full_like(first, 1 + 1e-12 / 1.5), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_dtype_casts_the_draw(dtype):
    expected = chapter_leaves(spec_of(**BASE))
    for name, leaf in chapter_leaves(spec_of(**BASE, dtype=dtype)).items():
        assert torch.equal(leaf, expected[name].to(getattr(torch, dtype))), name


def test_scale_multiplies_the_weights_alone():
    expected = chapter_leaves(spec_of(**BASE))
    for name, leaf in chapter_leaves(spec_of(**BASE, scale=0.25)).items():
        assert torch.equal(leaf, (0.25 if name.startswith("w") else 1) * expected[name]), name


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"widths": "12,10,8,7"}, "x w1 b1 w2 b2"),
        ({"widths": "12,10,8,6,5"}, "x w1 b1 w2 b2 w3 b3"),
        ({"batch": 7}, "w1 b1 w2 b2 w3 b3"),
        ({"seed": 12}, ""),
    ],
)
def test_a_draw_depends_on_its_seed_name_and_shape_alone(change, kept):
    values = {"widths": "12,10,8,6", "batch": 6, "bias_std": 0.5}
    before, after = chapter_leaves(spec_of(**values)), chapter_leaves(spec_of(**values | change))
    assert {name for name, leaf in before.items() if torch.equal(leaf, after[name])} == set(kept.split())
    square = chapter_leaves(spec_of(widths="10,10,10", batch=10))
    drawn = [square[name] for name in ("x", "w1", "w2", "y")]
    assert not any(torch.allclose(a / a.std(), b / b.std()) for a, b in combinations(drawn, 2))


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "linear_cpp"])
def test_building_reads_and_changes_no_global_state(program):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_model(ModelSpec(program=program)).leaves
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = build_model(ModelSpec(program=program)).leaves
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_generators_are_pinned():
    # These numbers are what every permalink promises to give again.
    assert [generator_for(42, name).initial_seed() for name in ("x", "w1", "y")] == [
        3559024184578332787,
        13066298538337190441,
        15734870594865485972,
    ]
    assert generator_for(2**63 - 1, "x").device.type == "cpu"


def test_models_share_no_tensor():
    # Base draws are kept between builds; what is handed out must be a copy even where nothing rescales it.
    spec = spec_of(init="standard_normal", widths="6,5,1", batch=4)
    first = build_model(spec)
    kept = {name: leaf.clone() for name, leaf in first.leaves.items()}
    with torch.no_grad():
        for leaf in first.leaves.values():
            leaf.fill_(7)
    for name, leaf in build_model(spec).leaves.items():
        assert torch.equal(leaf, kept[name]), name


def test_a_draw_too_large_to_keep_is_the_same_draw():
    large = spec_of(widths="300,200,1", init="standard_normal", batch=2)
    one, two = build_model(large).leaves["w1"], build_model(large).leaves["w1"]
    assert torch.equal(one, two)
    assert torch.equal(one, torch.randn(300, 200, generator=generator_for(42, "w1")))


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({"widths": "6,1"}, (3000,)),
        ({"widths": "6,3"}, (3000, 3)),
        ({"widths": "6,3", "loss": "cross_entropy"}, (3000,)),
    ],
)
def test_target(values, shape):
    y = build_model(spec_of(**values, batch=3000)).leaves["y"]
    assert y.shape == shape
    if values.get("loss") == "cross_entropy":
        assert y.dtype == torch.int64
        assert (y.bincount(minlength=3) / 3000).tolist() == pytest.approx([1 / 3] * 3, abs=0.05)
    else:
        assert (y.mean().item(), y.std().item()) == pytest.approx((0, 1), abs=0.1)


def test_biases():
    assert build_model(spec_of()).leaves["b1"].tolist() == [0] * 50
    drawn = build_model(spec_of(widths="4,3000,1", bias_std=0.5)).leaves["b1"]
    assert drawn.std().item() == pytest.approx(0.5, rel=0.1)
    assert not any(name.startswith("b") for name in build_model(spec_of(bias=False)).leaves)
    # torch draws its biases as it draws its weights; scale leaves them alone
    leaves = build_model(spec_of(widths="16,3000,1", init="torch_default", scale=100)).leaves
    assert 0.24 < leaves["b1"].abs().max().item() <= 0.25
    assert 24 < leaves["w1"].abs().max().item() <= 25


@pytest.mark.parametrize("init", INITS)
def test_weight_variances_match_the_draws(init):
    spec = spec_of(widths="300,400,200", init=init, scale=1.7, bias_std=0 if init == "torch_default" else 0.3)
    draws = [draw_leaves(spec.replace(seed=seed)) for seed in range(4)]
    for index, (weight_variance, bias_variance) in enumerate(weight_variances(spec), start=1):
        weights = torch.stack([leaves[f"w{index}"] for leaves in draws]).double()
        biases = torch.stack([leaves[f"b{index}"] for leaves in draws]).double()
        assert weights.shape[1] * weights.pow(2).mean().item() == pytest.approx(weight_variance, rel=0.02)
        assert biases.pow(2).mean().item() == pytest.approx(bias_variance, rel=0.2)
