from chainrule.diagnose import profile
from chainrule.diagnose.rules import LOCAL_RULES, RULES
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME


def test_every_figure_that_can_be_expected_has_its_rule():
    figures = set()
    for activation in KEY_BY_NAME["activation"].choices:
        for layer in profile.expectations(ModelSpec(widths="20x4", activation=activation)):
            figures |= set(layer)
    assert figures == set(RULES.expected) == set(LOCAL_RULES.expected)
