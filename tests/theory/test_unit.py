import math

import numpy as np
import pytest

from chainrule.theory import unit as module
from chainrule.theory.activations import ACTIVATIONS, activation_named
from chainrule.theory.mean_field import moments
from chainrule.theory.unit import NODES, RESOLVED_Q, Units, marginal, saturated_shared, unit, unit_columns

SMOOTH = [name for name, activation in ACTIVATIONS.items() if activation.step is not None]


def fields(units):
    return {name: getattr(units, name)[0] for name in Units.__dataclass_fields__}


def at(activation, q, c):
    return fields(unit_columns([unit(activation, q, c, banded=True)]))


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("c", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("q", [1e-8, 0.8, 3.2, 24.0])
def test_fewer_nodes_agree_with_many(activation, q, c, monkeypatch):
    few = unit(activation, q, c, banded=True)
    few_figures = at(activation, q, c)
    monkeypatch.setattr(module, "FEWER_NODES", ())
    many = unit(activation, q, c, banded=True)
    assert many.rows.shape[1] == NODES
    if q <= 0.8:
        assert few.rows.shape[1] < NODES / 2
    assert few.c_after == pytest.approx(many.c_after, abs=1e-6)
    for name, figure in at(activation, q, c).items():
        # A band is a root of these.
        assert few_figures[name] == pytest.approx(figure, rel=1e-3, abs=max(1e-6 * many.second**2, 1e-12)), name


@pytest.mark.parametrize(
    "activation", [pytest.param(each, marks=[pytest.mark.long] * (each != "gelu")) for each in ACTIVATIONS]
)
def test_the_grid_agrees_with_a_sample(activation):
    q, c = 1.0 if activation_named(activation).homogeneous else 1.7, 0.6
    generator = np.random.default_rng(3)
    shared, own = generator.standard_normal((20_000, 1)), generator.standard_normal((20_000, 400))
    value, derivative = activation_named(activation).both(
        math.sqrt(q) * (math.sqrt(c) * shared + math.sqrt(1 - c) * own)
    )
    m, v, a, d = value.mean(1), value.var(1), (value**2).mean(1), (derivative**2).mean(1)
    figures = at(activation, q, c)
    for name, sample, within in (
        ("mean", m.mean(), 0.02),
        ("second", a.mean(), 0.03),
        ("within_square", (v**2).mean(), 0.04),
        ("within_times_between", (v * (m - m.mean()) ** 2).mean(), 0.05),
        ("between_fourth", ((m - m.mean()) ** 4).mean(), 0.08),
        ("derivative", d.mean(), 0.03),
        ("derivative_fourth", (derivative**4).mean(), 0.04),
        ("both", (value**2 * derivative**2).mean(), 0.04),
        ("both_shared", np.cov(a, d)[0, 1], 0.08),
    ):
        assert figures[name] == pytest.approx(sample, rel=within, abs=0.01), name


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("q", [1e-12, 0.3, 1.0, 7.0, 1e5])
def test_moments_are_those_of_mean_field_theory_and_slopes_their_derivatives(activation, q):
    found, exact = marginal(activation, q), moments(activation, q)
    assert (found.mean, found.second, found.derivative) == pytest.approx(
        (exact.mean, exact.second_moment, exact.derivative_second_moment), rel=1e-12
    )
    step = 1e-4
    low, high = moments(activation, q * math.exp(-step)), moments(activation, q * math.exp(step))
    for slope, name in (
        (found.mean_slope, "mean"),
        (found.second_slope, "second_moment"),
        (found.derivative_slope, "derivative_second_moment"),
    ):
        expected = (getattr(high, name) - getattr(low, name)) / (2 * step)
        assert slope == pytest.approx(expected, rel=1e-5, abs=1e-9 * (1 + abs(getattr(exact, name)))), name


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_shares_of_saturated_inputs_are_those_of_the_grid(activation):
    q, c = np.array([0.5, 2.8, 2.8, 30.0, 200.0]), np.array([0.2, 0.0, 0.7, 0.95, 1.0])
    nodes = np.linspace(-6, 6, NODES)
    weights = np.exp(-(nodes**2) / 2) / np.exp(-(nodes**2) / 2).sum()
    middle, reach = {"tanh": (0, 1), "sigmoid": (0.5, 0.5)}[activation]
    for index, found in enumerate(saturated_shared(activation, q, c)):
        scale = math.sqrt(min(q[index], RESOLVED_Q))
        u = scale * (math.sqrt(c[index]) * nodes[:, None] + math.sqrt(1 - c[index]) * nodes)
        share = (np.abs(activation_named(activation).value(u) - middle) > 0.97 * reach) @ weights
        assert found == pytest.approx(weights @ (share - weights @ share) ** 2, rel=1e-9, abs=1e-15)
    assert (saturated_shared("relu", q, c) == 0).all()
