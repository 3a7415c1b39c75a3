import math

import mpmath
import numpy as np
import pytest

from chainrule.theory.dead_units import dead_fractions


@pytest.mark.parametrize("inputs", [1, 2, 3, 30, 200, 1024])
def test_closed_form_at_correlation_one_half(inputs):
    # At correlation ½ a unit is dead if the shared part is less than every input's own part, all of equal variance.
    assert dead_fractions(np.array([0.5]), inputs) == pytest.approx(1 / (inputs + 1), rel=1e-12)


@pytest.mark.parametrize(
    "inputs", [1, 200, pytest.param(2, marks=pytest.mark.long), pytest.param(7, marks=pytest.mark.long)]
)
def test_dead_fraction_agrees_with_mpmath_on_either_side_of_one_half(inputs):
    correlations = np.array([0.02, 0.3, 0.49, 0.51, 0.8, 0.99, 0.99999])
    for correlation, found in zip(correlations, dead_fractions(correlations, inputs), strict=True):
        r = math.sqrt(correlation / (1 - correlation))
        exact = mpmath.quad(
            lambda z, r=r: mpmath.npdf(z) * mpmath.ncdf(-r * z) ** inputs, [-14, -6, -3, -1, -3 / r, 0, 3 / r, 14]
        )
        assert found == pytest.approx(float(exact), rel=1e-8, abs=1e-15)
        assert found == pytest.approx(dead_fractions(np.array([correlation]), inputs)[0], rel=1e-12)


def test_closed_forms():
    # independent, equal, and two inputs: the orthant probability 1/4 + arcsin(c) / 2π
    assert dead_fractions(np.array([0.0]), 3) == pytest.approx(1 / 8, abs=1e-12)
    assert dead_fractions(np.array([1.0]), 200) == 0.5
    assert dead_fractions(np.array([0.7]), 2) == pytest.approx(0.25 + math.asin(0.7) / (2 * math.pi), abs=1e-10)
