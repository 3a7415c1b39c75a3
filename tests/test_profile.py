"""The profile of real traces: figures, verdicts, where numbers run out, and its JSON form."""

import dataclasses
import json
import math

import numpy as np
import pytest

from chainrule.presets import PRESETS
from chainrule.profile import (
    EXPLODING,
    SATURATED,
    VANISHING_NORM,
    LayerProfile,
    drawn_stds,
    expectations,
    health,
    profile,
    theory,
)
from chainrule.run import trace_spec
from chainrule.spec import KEY_BY_NAME, ModelSpec
from chainrule.stats import BINS, Summary
from chainrule.theory.layer_statistics import Expected
from chainrule.wire import dump_profile, dump_trace, load, theory_message

QUANTITIES = {
    "preactivation_std",
    "activation_mean",
    "activation_std",
    "gradient_std",
    "dead_fraction",
    "saturation",
}


def spec_of(**values) -> ModelSpec:
    return ModelSpec.parse(values)


def profile_of(**values):
    return profile(trace_spec(spec_of(**values)))


def measured(layer: LayerProfile, quantity: str) -> float | None:
    if quantity in ("dead_fraction", "saturation"):
        return getattr(layer, quantity)
    name, statistic = quantity.rsplit("_", 1)
    return getattr(getattr(layer, name), statistic)


# ---------------------------------------------------------------------------------------------------- what is measured


@pytest.mark.smoke
def test_profile_of_the_chapters_net():
    trace = trace_spec(spec_of())
    found = profile(trace)
    first, last = found.layers

    def statistics(name):
        return trace.statistics[trace.tensor_by_name[name].id]

    assert found.spec == trace.spec
    assert found.loss == trace.loss
    assert found.input == statistics("x")
    assert (first.index, first.name, last.index) == (1, "layer 1", 2)
    assert first.preactivation == statistics("l1")
    assert first.activation == statistics("l2")
    assert first.gradient == statistics("l2.g")
    assert first.weight == statistics("w1")
    assert first.weight_gradient == statistics("w1.g")
    assert first.bias_gradient == statistics("b1.g")
    assert last.preactivation == last.activation == statistics("out")
    assert first.gradient_to_weight_ratio == statistics("w1.g").std / statistics("w1").std
    assert first.dead_fraction == statistics("l2").dead_fraction
    assert last.dead_fraction is None
    assert first.saturation is None
    assert (first.health, last.health) == (None, None)
    assert (found.first_inf_layer, found.first_nan_layer) == (None, None)


def test_a_net_without_biases_has_no_bias_gradient():
    assert profile_of(bias=False).layers[0].bias_gradient is None


@pytest.mark.parametrize("init", KEY_BY_NAME["init"].choices)
def test_weights_are_drawn_with_the_std_that_is_said(init):
    found = profile_of(init=init, scale=1.7, widths="300,200,400,100", activation="tanh", batch=2)
    for layer in found.layers:
        # of so many elements the sample's std strays by less than 1 %
        assert layer.weight.std == pytest.approx(layer.weight_std, rel=0.02)
    assert [layer.weight_std for layer in found.layers] == list(drawn_stds(ModelSpec.parse(found.spec)))


def test_weights_of_zero_have_no_spread():
    assert [layer.weight_std for layer in profile_of(init="zeros").layers] == [0.0, 0.0]


def test_a_constant_weight_has_no_ratio():
    assert profile_of(init="zeros").layers[0].gradient_to_weight_ratio is None


@pytest.mark.smoke
def test_the_exploding_net_says_where_numbers_run_out():
    found = profile_of(preset="deep-exploding")
    assert math.isnan(found.loss)
    assert found.first_inf_layer == pytest.approx(38, abs=1)
    assert found.first_nan_layer == pytest.approx(39, abs=1)
    assert found.layers[-1].health == "non-finite"
    # The gradient starts from NaN, so no layer has a finite one.
    assert {layer.health for layer in found.layers} == {"non-finite"}
    assert found.layers[10].gradient_to_weight_ratio is None


def test_the_vanishing_net_vanishes():
    layers = profile_of(preset="deep-vanishing").layers
    assert layers[0].health is None or layers[0].health == "vanishing"
    assert {layer.health for layer in layers[1:]} == {"vanishing"}
    assert layers[-1].activation.zero_fraction == 1


def test_a_trace_without_a_spec_is_profiled_without_theory():
    found = profile(dataclasses.replace(trace_spec(spec_of()), spec=None))
    assert found.spec is None
    assert [layer.expected for layer in found.layers] == [{}, {}]
    assert found.layers[0].activation.std > 0
    assert (found.advice, found.layers[0].weight_std) == (None, None)


def test_a_trace_without_layers_has_an_empty_profile():
    found = profile(dataclasses.replace(trace_spec(spec_of()), layers=()))
    assert found.layers == ()
    assert (found.first_inf_layer, found.first_nan_layer) == (None, None)


def test_a_loaded_dump_has_the_same_profile():
    trace = trace_spec(spec_of(activation="tanh", widths="20x4"))
    assert dump_profile(profile(load(dump_trace(trace)))) == dump_profile(profile(trace))


# ------------------------------------------------------------------------------------------------------ what is healthy

GOOD = Summary(100, 0.0, 1.0, -3.0, 3.0, 10.0, 0.0, 0, 0, 0, None, None, (0,) * BINS)


def tensor(rms: float = 1.0, **changes) -> Summary:
    return dataclasses.replace(GOOD, norm=10 * rms, **changes)


def verdict(preactivation=GOOD, activation=GOOD, gradient=GOOD, source=GOOD, last_gradient=GOOD, expected=None):
    return health(preactivation, activation, gradient, source, last_gradient, expected or {})


@pytest.mark.smoke
def test_a_sound_layer_is_healthy():
    assert verdict() is None
    assert verdict(None, None, None, None, None) is None


@pytest.mark.parametrize("count", ["nan", "posinf", "neginf"])
@pytest.mark.parametrize("part", ["preactivation", "activation", "gradient"])
def test_one_non_finite_value_is_enough(part, count):
    assert verdict(**{part: tensor(**{count: 1}, dead_fraction=1.0)}) == "non-finite"


def test_dead_is_judged_by_what_is_expected():
    expected = {"dead_fraction": Expected(0.39, (0.29, 0.49))}
    assert verdict(activation=tensor(dead_fraction=0.55), expected=expected) is None
    assert verdict(activation=tensor(dead_fraction=0.60), expected=expected) == "dead"
    assert verdict(activation=tensor(dead_fraction=0.60)) is None
    assert verdict(activation=tensor(dead_fraction=1.0)) == "dead"
    assert verdict(activation=tensor(dead_fraction=1.0), expected={"dead_fraction": Expected(1, (1, 1))}) == "dead"


def test_saturated_is_judged_by_what_is_expected_up_to_one_half():
    expected = {"saturation": Expected(0.20, (0.15, 0.25))}
    assert verdict(activation=tensor(saturation=0.29), expected=expected) is None
    assert verdict(activation=tensor(saturation=0.31), expected=expected) == "saturated"
    assert verdict(activation=tensor(saturation=SATURATED)) is None
    far = {"saturation": Expected(0.8, (0.75, 0.85))}
    assert verdict(activation=tensor(saturation=0.8), expected=far) == "saturated"


def test_vanishing_and_exploding_are_relative():
    assert verdict(activation=tensor(0.9e-3)) == "vanishing"
    assert verdict(activation=tensor(1.1e-3)) is None
    assert verdict(activation=tensor(0.9e-3), source=tensor(0.5)) is None
    assert verdict(activation=tensor(1.1 * EXPLODING)) == "exploding"
    assert verdict(gradient=tensor(1.1 * EXPLODING)) == "exploding"
    assert verdict(gradient=tensor(1.1 * EXPLODING), last_gradient=tensor(2)) is None
    assert verdict(gradient=tensor(1e-6)) == "vanishing"
    # small against the last one, but not small
    assert verdict(gradient=tensor(0.9e-3)) is None
    assert VANISHING_NORM < 10 * 0.9e-3


def test_size_does_not_count_elements():
    wide = dataclasses.replace(GOOD, n=10_000 * GOOD.n, norm=100 * GOOD.norm)
    assert verdict(activation=wide) is None


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ({"widths": "100x21"}, {None}),
        ({"activation": "tanh", "init": "lecun_normal", "scale": 5 / 3, "widths": "100x11"}, {None}),
        ({"activation": "tanh", "init": "standard_normal", "widths": "100x4", "last_activation": True}, {"saturated"}),
        ({"init": "zeros", "last_activation": True}, {"dead"}),
        ({"init": "zeros", "activation": "linear"}, {"vanishing"}),
        ({"init": "standard_normal", "widths": "100,400,400", "activation": "linear"}, {None, "exploding"}),
    ],
)
def test_verdicts_on_real_nets(values, verdicts):
    assert {layer.health for layer in profile_of(**values).layers} == verdicts


# ----------------------------------------------------------------------------------------------------- what is expected


@pytest.mark.parametrize(
    "values",
    [
        {"widths": "100x13"},
        {"widths": "100x13", "init": "standard_normal", "scale": 0.1, "activation": "linear"},
        {"widths": "50x9,3", "activation": "tanh", "init": "lecun_normal", "scale": 1.327, "bias_std": 0.2236},
        {"widths": "50x9", "activation": "gelu", "init": "lecun_normal", "scale": 1.5335, "style": "module"},
        {"widths": "60,40,20,10", "init": "torch_default", "last_activation": True},
        {"widths": "50x5", "dtype": "bfloat16", "style": "functions"},
        {"widths": "60,60,30,80", "init": "orthogonal", "activation": "selu"},
    ],
)
def test_what_is_measured_lies_where_it_is_expected(values):
    inside = {}
    for seed in range(10):
        for layer in profile_of(**values, seed=seed).layers:
            for quantity, figure in layer.expected.items():
                low, high = figure.band
                inside.setdefault(quantity, []).append(low <= measured(layer, quantity) <= high)
    assert {"preactivation_std", "activation_mean", "activation_std", "gradient_std"} <= set(inside) <= QUANTITIES
    shares = {quantity: np.mean(held) for quantity, held in inside.items()}
    assert min(shares.values()) >= 0.75, shares
    assert np.mean(list(shares.values())) >= 0.88, shares


def test_gradients_of_the_chapters_net_have_the_published_size():
    rms = {"out.g": [], "l2.g": [], "l1.g": []}
    losses = []
    for seed in range(20):
        trace = trace_spec(spec_of(seed=seed))
        losses.append(trace.loss)
        for name, values in rms.items():
            summary = trace.statistics[trace.tensor_by_name[name].id]
            values.append(summary.norm**2 / summary.n)
    assert np.mean(losses) == pytest.approx(3, rel=0.15)
    sizes = {name: math.sqrt(np.mean(values)) for name, values in rms.items()}
    assert sizes == pytest.approx({"out.g": 0.01732, "l2.g": 0.003464, "l1.g": 0.002449}, rel=0.1)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_is_expected_where_its_band_is(preset):
    layers = expectations(spec_of(preset=preset.name))
    index = -1 if preset.focus == "out" else 0
    quantity = {"l1": "preactivation_std", "l2": "activation_std", "out": "activation_std"}[preset.focus]
    if preset.name in ("deep-exploding", "deep-vanishing"):
        assert not {"preactivation_std", "activation_std", "activation_mean"} & set(layers[index])
        return
    low, high = preset.band["std"]
    band = layers[index][quantity].band
    overlap = min(high, band[1]) - max(low, band[0])
    assert overlap >= 0.6 * max(high - low, band[1] - band[0])


@pytest.mark.smoke
def test_figures_that_the_dtype_cannot_hold_are_left_out():
    exploding = {"widths": "100x51", "activation": "linear", "init": "standard_normal"}
    for dtype, last in (("float16", 4), ("float32", 37), ("float64", 50)):
        held = [bool(layer) for layer in expectations(spec_of(**exploding, dtype=dtype))]
        assert sum(held) == pytest.approx(last, abs=1)
        assert held == sorted(held, reverse=True)


def test_cross_entropy_has_no_expected_gradient():
    for layer in expectations(spec_of(loss="cross_entropy", widths="20,10,5")):
        assert "gradient_std" not in layer
        assert "activation_std" in layer


@pytest.mark.parametrize("activation", KEY_BY_NAME["activation"].choices)
def test_any_net_can_be_profiled(activation):
    for init in KEY_BY_NAME["init"].choices:
        for widths, batch, dtype in (("4,3", 1, "float16"), ("5,1,6,2", 3, "float32")):
            values = {"activation": activation, "init": init, "widths": widths, "batch": batch, "dtype": dtype}
            for layer in profile_of(**values, last_activation=True).layers:
                for quantity, figure in layer.expected.items():
                    assert quantity in QUANTITIES
                    assert all(map(math.isfinite, (figure.value, *figure.band)))
                    assert measured(layer, quantity) is not None


# ------------------------------------------------------------------------------------------------------------ the dump

SUMMARY_KEYS = {
    *("n", "mean", "std", "min", "max", "norm", "zero_fraction", "nan", "posinf", "neginf"),
    *("dead_fraction", "saturation", "histogram"),
}
LAYER_KEYS = [
    *("index", "name", "preactivation", "activation", "gradient", "weight", "weight_gradient", "bias_gradient"),
    *("gradient_to_weight_ratio", "dead_fraction", "saturation", "health", "weight_std", "expected"),
]


@pytest.mark.smoke
def test_dump_has_every_key():
    found = profile_of(widths="20,10,4", activation="tanh", init="lecun_normal", bias=False)
    dump = json.loads(dump_profile(found))
    assert list(dump) == [
        *("schema", "spec", "loss", "first_inf_layer", "first_nan_layer", "input", "advice", "layers", "rules"),
    ]
    assert dump["schema"] == "chainrule.profile/1"
    assert dump["spec"] == found.spec
    assert dump["loss"] == found.loss
    assert set(dump["input"]) == SUMMARY_KEYS
    first, last = dump["layers"]
    assert list(first) == list(last) == LAYER_KEYS
    for name in ("preactivation", "activation", "gradient", "weight", "weight_gradient"):
        assert set(first[name]) == SUMMARY_KEYS
        assert sum(first[name]["histogram"]["counts"]) == first[name]["n"]
    assert first["bias_gradient"] is None
    assert first["activation"]["std"] == found.layers[0].activation.std
    expected = found.layers[0].expected["saturation"]
    assert first["expected"]["saturation"] == {"value": expected.value, "band": list(expected.band)}
    assert set(first["expected"]) == QUANTITIES - {"dead_fraction"}
    assert first["health"] is None
    assert first["weight_std"] == found.layers[0].weight_std
    assert dump["advice"] == {
        "gain": found.advice.gain,
        "scale": found.advice.scale,
        "change": {"scale": found.advice.scale},
        "note": None,
        "source": found.advice.source,
    }
    assert set(dump["rules"]["expected"]) == QUANTITIES


def test_what_the_live_path_carries_is_what_the_profile_says():
    trace = trace_spec(spec_of(widths="20x5", activation="tanh", init="standard_normal"))
    message, dump = json.loads(theory_message(theory(trace), 7)), json.loads(dump_profile(profile(trace)))
    assert (message["type"], message["seq"]) == ("theory", 7)
    told = message["theory"]
    assert list(told) == ["advice", "first_inf_layer", "first_nan_layer", "layers"]
    assert {name: told[name] for name in told if name != "layers"} == {
        name: dump[name] for name in told if name != "layers"
    }
    assert told["layers"] == [
        {name: layer[name] for name in ("index", "health", "weight_std", "expected")} for layer in dump["layers"]
    ]
    assert {layer["health"] for layer in told["layers"]} == {"saturated", None}


def test_dump_of_what_json_cannot_hold():
    dump = json.loads(dump_profile(profile_of(preset="deep-exploding")))
    assert dump["loss"] == "NaN"
    assert dump["first_inf_layer"] == pytest.approx(38, abs=1)
    assert dump["layers"][-1]["activation"]["std"] is None
    assert dump["layers"][-1]["health"] == "non-finite"
    assert dump["layers"][-1]["expected"] == {}
