"""The measures of a sweep are the figures that the explorer shows for the spec of a cell."""

import math

import numpy as np
import pytest

from chainrule.build import Training
from chainrule.diagnose.profile import SUMMARIES, profile
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.sweeps.measures import KINDS
from chainrule.sweeps.run import run_sweep, sweep
from chainrule.sweeps.sweep import read_sweep


def of_profile(part, statistic, layer=-2):
    return lambda layers: getattr(getattr(layers[layer], part), statistic)


FIGURES = {
    "gradient_ratio": lambda layers: layers[0].gradient.std / layers[-2].gradient.std,
    "activation_std": of_profile("activation", "std"),
    "activation_mean:1": of_profile("activation", "mean", 0),
    "preactivation_std:output": of_profile("preactivation", "std", -1),
    "preactivation_mean:2": of_profile("preactivation", "mean", 1),
    "gradient_std": of_profile("gradient", "std"),
    "weight_gradient_std:1": of_profile("weight_gradient", "std", 0),
    "weight_norm": of_profile("weight", "norm"),
    "weight_min:2": of_profile("weight", "min", 1),
    "bias_gradient_max:output": of_profile("bias_gradient", "max", -1),
    "activation_zero_fraction": of_profile("activation", "zero_fraction"),
    "gradient_to_weight_ratio": lambda layers: layers[-2].gradient_to_weight_ratio,
    "dead_fraction": lambda layers: layers[-2].dead_fraction,
    "saturation": lambda layers: layers[-2].saturation,
}


@pytest.mark.parametrize("measure", FIGURES)
@pytest.mark.parametrize("step", [0, 3])
def test_a_figure_is_that_of_the_profile(measure, step):
    activation = "tanh" if measure == "saturation" else "relu"
    spec = ModelSpec.from_query(f"widths=20x5&batch=30&activation={activation}&bias_std=0.2&lr=0.001&step={step}")
    plan = read_sweep(spec, ["scale=0.7:1.6:3", "depth=3:5:2"], 2, measure)
    values = run_sweep(plan).values.reshape(-1)
    for cell in range(plan.cells):
        layers = profile(trace_spec(plan.spec_of(cell))).layers
        assert values[cell] == pytest.approx(FIGURES[measure](layers), rel=2e-5, abs=1e-6), cell


def test_losses_are_those_of_the_training():
    spec = ModelSpec.from_query("widths=8,6,2&batch=16&step=30&dtype=float64")
    over = ["lr=log:0.001:3000:6"]
    loss, ratio, first, reached = (
        sweep(spec, over, seeds=2, measure=measure).values
        for measure in ("loss", "loss_ratio", "first_nonfinite", "steps_to_loss:1.2")
    )
    plan = read_sweep(spec, over, 2, "loss")
    diverged = 0
    for cell in range(plan.cells):
        alone = Training(plan.spec_of(cell))
        alone.go_to(31)
        losses = alone.rows[:, 0]
        place = divmod(cell, 2)
        np.testing.assert_allclose(loss[place], losses[30], rtol=1e-9)
        np.testing.assert_allclose(ratio[place], losses[30] / losses[0], rtol=1e-9)
        assert first[place] == next((step for step in range(31) if not math.isfinite(losses[step])), math.inf)
        assert reached[place] == next((step for step in range(31) if losses[step] <= 1.2), math.inf)
        diverged += first[place] < math.inf
    assert 0 < diverged < plan.cells


def test_the_largest_stable_learning_rate_of_a_linear_net():
    """Gradient descent on mean squared errors is stable up to 2 / λ, the largest eigenvalue of their Hessian."""
    spec = ModelSpec.from_query("widths=6,3&activation=linear&bias=false&batch=40&step=400&dtype=float64")
    found = sweep(spec, ["scale=0.5,1"], seeds=3, measure="largest_lr").values
    for seed in range(3):
        x = Training(spec.replace(seed=42 + seed)).model.leaves["x"].numpy()
        largest = np.linalg.eigvalsh(x.T @ x).max() * 2 / (40 * 3)
        np.testing.assert_allclose(found[:, seed], 2 / largest, rtol=0.05)


def test_a_net_without_a_stable_learning_rate_has_0_and_one_without_a_limit_inf():
    # Without a gradient nothing changes; at a loss of 10⁸⁰ every step explodes.
    spec = ModelSpec.from_query("widths=20x20&batch=8&step=5&dtype=float64&activation=linear")
    assert sweep(spec, ["init=zeros", "bias=false"], measure="largest_lr").values.tolist() == [[[math.inf]]]
    assert sweep(spec, ["scale=10000"], measure="largest_lr").values.tolist() == [[0.0]]


def test_every_statistic_of_a_profile_is_a_measure():
    for part in SUMMARIES:
        for statistic in ("mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"):
            assert f"{part}_{statistic}" in KINDS or statistic in KINDS
