"""The presets: nine, well-formed, and the experiments the chapter makes."""

import pytest

from chainrule.spec import ModelSpec
from chainrule.spec.presets import PRESET_BY_NAME, PRESETS

pytestmark = pytest.mark.smoke


def test_there_are_nine_with_names_of_their_own():
    assert len(PRESETS) == len(PRESET_BY_NAME) == 9
    for preset in PRESETS:
        assert PRESET_BY_NAME[preset.name] is preset
        assert preset.name == preset.name.lower()
        assert preset.title
        assert preset.theory
        assert preset.printed
        assert preset.note.endswith(".")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_presets_spec_holds_what_differs_from_the_default_and_nothing_else(preset):
    spec = ModelSpec.parse(preset.spec)
    default = ModelSpec()
    assert {name for name in ModelSpec.model_fields if getattr(spec, name) != getattr(default, name)} == set(
        preset.spec
    )
    assert (spec.batch, spec.dtype, spec.seed) == (200, "float32", 42)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_the_focus_is_a_tensor_of_the_net_and_bands_are_ranges(preset):
    depth = ModelSpec.parse(preset.spec).depth
    assert preset.focus == "out" if depth == 50 else preset.focus in ("l1", "l2")
    assert preset.band
    for low, high in preset.band.values():
        assert low <= high
    allowed = {"mean", "std", "zero_fraction", "first_inf_layer", "first_nan_layer"}
    assert set(preset.band) <= allowed
    assert preset.statistic in {*preset.band, "nan"}


def test_the_deep_ones_are_the_chapters_loop():
    deep = [ModelSpec.parse(preset.spec) for preset in PRESETS if preset.name.startswith("deep-")]
    assert len(deep) == 5
    for spec in deep:
        assert spec.widths == (100,) * 51
        assert not spec.bias
        # The loop's relu follows the last product as well.
        assert spec.last_activation == (spec.activation == "relu")
    # randn, randn·0.01, randn·0.1, randn·0.1 with relu, randn·√(2/100) with relu
    assert [(spec.init, spec.scale, spec.activation) for spec in deep] == [
        ("standard_normal", 1.0, "linear"),
        ("standard_normal", 0.01, "linear"),
        ("standard_normal", 0.1, "linear"),
        ("standard_normal", 0.1, "relu"),
        ("kaiming_normal", 1.0, "relu"),
    ]


@pytest.mark.parametrize(
    ("name", "statistic", "printed"),
    [
        ("randn", "std", 10.0544),
        ("scaled", "std", 1.0231),
        ("kaiming-relu", "mean", 0.5720),
        ("kaiming-relu", "std", 0.8259),
        ("deep-linear", "std", 1.0150),
    ],
)
def test_what_the_chapter_printed_lies_in_the_band(name, statistic, printed):
    low, high = PRESET_BY_NAME[name].band[statistic]
    assert low <= printed <= high
    assert f"{printed:.4f}" in PRESET_BY_NAME[name].printed


def test_a_preset_cannot_be_changed():
    preset = PRESETS[0]
    with pytest.raises(TypeError):
        preset.spec["seed"] = "1"
    with pytest.raises(AttributeError):
        preset.name = "other"
