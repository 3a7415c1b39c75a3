"""Rules: one for every figure, band and verdict, short enough to be read, with the thresholds that are in force."""

from typing import get_args

from chainrule.diagnose import profile
from chainrule.diagnose.rules import LOCAL_RULES, RULES
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME

EVERY = {**RULES.expected, "band": RULES.band, **RULES.health}
LOCAL = {f"{name}, locally": rule for name, rule in {**LOCAL_RULES.expected, "band": LOCAL_RULES.band}.items()}


def test_every_figure_that_can_be_expected_has_its_rule():
    figures = set()
    for activation in KEY_BY_NAME["activation"].choices:
        for layer in profile.expectations(ModelSpec(widths="20x4", activation=activation)):
            figures |= set(layer)
    assert figures == set(RULES.expected) == set(LOCAL_RULES.expected)


def test_every_verdict_has_its_rule():
    assert set(RULES.health) == set(get_args(profile.Health))


def test_a_rule_is_one_line_with_a_source():
    for rule in {**EVERY, **LOCAL}.values():
        assert 10 < len(rule.rule) <= 240
        assert rule.source
        assert "\n" not in rule.rule + rule.source


def test_thresholds_are_those_that_judge():
    assert f"{profile.EXPLODING:g} RMS(x)" in RULES.health["exploding"].rule
    assert f"{profile.VANISHING:g} RMS(x)" in RULES.health["vanishing"].rule
    assert f"{profile.VANISHING_NORM:g}" in RULES.health["vanishing"].rule
    assert "50%" in RULES.health["saturated"].rule
    assert profile.SATURATED == 0.5
