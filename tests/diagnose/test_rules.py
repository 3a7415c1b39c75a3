"""Rules: one for every figure, band and verdict, short enough to be read, with the thresholds that are in force."""

from dataclasses import asdict
from typing import get_args

import pytest

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
    assert figures == set(RULES.expected)


def test_every_verdict_has_its_rule():
    assert set(RULES.health) == set(get_args(profile.Health))


def test_the_rules_of_a_trace_without_a_spec_speak_of_the_same():
    assert LOCAL_RULES.expected.keys() == RULES.expected.keys()
    assert LOCAL_RULES.health == RULES.health


@pytest.mark.parametrize("name", [*EVERY, *LOCAL])
def test_a_rule_is_one_line_with_a_source(name):
    rule = {**EVERY, **LOCAL}[name]
    assert 10 < len(rule.rule) <= 240
    assert rule.source
    assert "\n" not in rule.rule + rule.source
    assert set(asdict(rule)) == {"rule", "source"}


def test_thresholds_are_those_that_judge():
    assert f"{profile.EXPLODING:g} RMS(x)" in RULES.health["exploding"].rule
    assert f"{profile.VANISHING:g} RMS(x)" in RULES.health["vanishing"].rule
    assert f"{profile.VANISHING_NORM:g}" in RULES.health["vanishing"].rule
    assert "50%" in RULES.health["saturated"].rule
    assert profile.SATURATED == 0.5
