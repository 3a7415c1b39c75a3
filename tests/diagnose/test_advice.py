import math

import pytest

from chainrule.build import weight_variances
from chainrule.diagnose.advice import advise
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.theory.mean_field import moments

ACTIVATIONS = KEY_BY_NAME["activation"].choices
INITS = KEY_BY_NAME["init"].choices


# 1/√E φ², to the four digits of the published tables; gelu leaves q = 1, and has another
def spec_of(**values):
    return ModelSpec.parse(values)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ({}, 1.0),
        ({"scale": 0.3}, 1.0),
        ({"activation": "tanh", "init": "lecun_normal"}, 1.5925),
        ({"activation": "tanh"}, 1.1261),
        ({"init": "standard_normal", "widths": "100x51"}, 0.14142),
        ({"init": "torch_default"}, 2.4495),  # √2 · √3
        ({"init": "xavier_uniform", "widths": "50x9"}, 1.4142),
        ({"init": "orthogonal", "widths": "60,40,20"}, 1.4142),
        ({"init": "uniform", "widths": "100x4", "activation": "linear"}, 1.7321),  # 1 / (0.1 √(100/3))
    ],
)
def test_the_scale_of_the_specs_own_init(values, scale):
    advice = advise(spec_of(**values))
    assert advice.scale == scale
    assert advice.change == {"scale": scale}


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ({"init": "zeros"}, {"init": "kaiming_normal", "scale": 1.0}),
        ({"init": "standard_normal", "widths": "100,50,20,1"}, {"init": "kaiming_normal", "scale": 1.0}),
        (
            {"init": "xavier_normal", "widths": "9,5,7,1", "activation": "tanh"},
            {"init": "lecun_normal", "scale": 1.5925},
        ),
        ({"init": "zeros", "activation": "leaky_relu"}, {"init": "lecun_normal", "scale": 1.4141}),
    ],
)
def test_where_no_scale_suits_all_layers_the_init_changes(values, change):
    advice = advise(spec_of(**values))
    assert advice.scale is None
    assert advice.change == change


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"activation": "gelu"}, "unstable"),
        ({"activation": "silu"}, "unstable"),
        ({"bias_std": 0.3}, "biases"),
        ({"init": "torch_default"}, "biases"),
        ({"activation": "tanh"}, None),
        ({"bias": False}, None),
    ],
)
def test_limits_of_the_advice_are_noted(values, word):
    advice = advise(spec_of(**values))
    assert advice.note is None if word is None else word in advice.note
    if word == "unstable":
        assert moments(values["activation"], advice.gain**2).second_moment == pytest.approx(1, abs=1e-9)


def test_only_hidden_layers_count():
    # The last layer, from 50, would want another scale than the two hidden ones, from 100.
    values = {"init": "standard_normal", "widths": "100,100,50,1", "activation": "tanh"}
    assert advise(spec_of(**values)).scale == 0.15925
    assert advise(spec_of(**values, last_activation=True)).scale is None


def test_a_net_without_a_hidden_layer_needs_no_advice():
    assert advise(spec_of(widths="10,3")) is None
    assert advise(spec_of(widths="10,3", last_activation=True)).scale == 1.0


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("widths", ["100x4", "100,50,1", "7,300,20,20"])
def test_the_advice_can_be_followed_and_gives_the_gain(init, widths):
    for activation in ACTIVATIONS:
        spec = spec_of(activation=activation, init=init, widths=widths, scale=7)
        advice = advise(spec)
        changed = spec.replace(**advice.change)
        assert changed.query().count("scale=") <= 1
        for weight_variance, _ in weight_variances(changed)[: spec.depth - 1]:
            assert math.sqrt(weight_variance) == pytest.approx(advice.gain, rel=1e-4)
        assert advise(changed).change["scale"] == pytest.approx(changed.scale, rel=1e-4)
        assert advice.source
