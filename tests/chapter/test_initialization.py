import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from chainrule.chapter import initialization
from chainrule.chapter.initialization import (
    CHOICES,
    EXPERIMENTS,
    PAGE,
    Setting,
    cost,
    expected,
    other_seeds,
    run,
)
from chainrule.chapter.tensor_summary import BINS, moments, spread, summary
from chainrule.foundations.initialization import draw
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.presets import PRESET_BY_NAME


@cache
def trace(query):
    return trace_spec(ModelSpec.parse(dict(pair.split("=") for pair in query.split("&"))))


def in_the_explorer(query, tensor):
    traced = trace(query)
    return traced.statistics[traced.tensor_by_name[tensor].id]


def assert_same(found, row):
    assert [found[name] for name in ("n", "nan", "posinf", "neginf")] == [row.n, row.nan, row.posinf, row.neginf]
    for name in ("mean", "std", "min", "max"):
        theirs = getattr(row, name)
        if theirs is None:
            assert found[name] is None
        else:
            assert found[name] == pytest.approx(theirs, rel=1e-5, abs=1e-5 * row.std)


@pytest.mark.smoke
@pytest.mark.parametrize("init", CHOICES)
def test_the_layer_is_the_explorer_s(init):
    answer = PAGE.ask({"seed": "3", "init": init, "scale": "2", "n_in": "60", "hidden": "50", "depth": "1"})
    query = f"widths=60,50,1&init={init}&scale=2&seed=3"
    for name in ("l1", "l2"):
        assert_same(answer["layer"][name], in_the_explorer(query, name))
    assert answer["weight_std"] == pytest.approx(in_the_explorer(query, "w1").std, rel=0.05, abs=1e-9)


def test_theory_agrees_with_a_wide_layer():
    for init in CHOICES:
        wide = Setting(800, 800, 2, 800, init, 1.5, rectified=True)
        for layer, (mean, std) in zip(run(wide, 0), expected(wide), strict=True):
            assert layer.mean().item() == pytest.approx(mean, rel=0.02, abs=1e-9)
            assert layer.std().item() == pytest.approx(std, rel=0.02, abs=1e-9)


@pytest.mark.parametrize("relu", ["true", "false"])
def test_every_layer_of_the_stack_is_the_explorer_s(relu):
    stack = PAGE.ask({"depth": "4", "n_in": "30", "batch": "20", "relu": relu, "init": "lecun_normal"})["stack"]
    kind = "last_activation=true" if relu == "true" else "activation=linear"
    query = f"widths=30x5&{kind}&init=lecun_normal&batch=20&bias=false"
    for found, layer in zip(stack["layers"], trace(query).layers, strict=True):
        assert_same(found, trace(query).statistics[layer.activation])


def test_the_layers_of_the_first_overflow_and_underflow():
    exploding = PAGE.ask({"init": "standard_normal"})["stack"]
    # float32 ends at 3.4e38, and every layer is ten times as large.
    assert exploding["first_inf"] in (37, 38, 39)
    assert exploding["first_nan"] in (38, 39, 40)
    assert exploding["first_all_zero"] is None
    assert exploding["window"]["values"] == [["NaN"] * 5] * 5
    vanishing = PAGE.ask({"init": "standard_normal", "scale": "0.01"})["stack"]
    assert vanishing["first_all_zero"] in (44, 45, 46, 47)
    assert vanishing["first_inf"] is vanishing["first_nan"] is None


@pytest.mark.parametrize("place", range(len(EXPERIMENTS)), ids=[each.preset for each in EXPERIMENTS])
def test_an_experiment_is_the_explorer_s_preset(place):
    row = PAGE.ask({"seed": "5", "depth": "1"})["experiments"][place]
    preset = PRESET_BY_NAME[row["preset"]]
    assert_same(row["measured"], in_the_explorer(f"preset={row['preset']}&seed=5", preset.focus))
    if "std" in preset.band:
        assert row["range"]["std"] == list(preset.band["std"])
    if "std" in row["printed"]:
        assert row["printed"]["std"] == pytest.approx(row["expected"]["std"], rel=0.06)


SIZES = (1, 10, 100, 101, 140, 256)


@pytest.mark.parametrize("init", CHOICES)
def test_no_setting_is_estimated_above_its_budget(init):
    for n_in, hidden, batch, depth in product(SIZES, SIZES, SIZES, (1, 50, 64)):
        single = Setting(n_in, hidden, 1, batch, init, 1.0, False)
        stack = Setting(n_in, n_in, depth, batch, init, 1.0, False)
        of_both = sum(cost(each) * (1 + len(other_seeds(each, 0))) for each in (single, stack))
        assert of_both < 0.85e9, (n_in, hidden, batch, depth)


def test_a_batch_of_one_draws_a_limited_number_of_weights(monkeypatch):
    drawn = []
    PAGE.ask({"depth": "1"})  # the experiments, which are kept
    monkeypatch.setattr(initialization, "draw", lambda *of: (drawn.append(of), draw(*of))[1])
    PAGE.ask({"n_in": "256", "hidden": "256", "depth": "64", "batch": "1", "init": "orthogonal"})
    assert 65 <= len(drawn) <= 2 * 64 + 11


def test_moments_are_of_the_finite_values():
    tensor = torch.tensor([[1.0, 2.0, math.nan], [math.inf, -math.inf, 0.0]])
    found = moments(tensor)
    assert (found["mean"], found["std"]) == (1.0, pytest.approx(np.std([1, 2, 0])))
    assert [found[name] for name in ("n", "zeros", "nan", "posinf", "neginf", "min", "max")] == [6, 1, 1, 1, 1, 0, 2]
    assert moments(torch.full((3,), math.nan))["mean"] is None
    for each in (tensor, tensor[:, :2], torch.full((3,), math.nan), torch.full((3,), 3e38), torch.zeros(2)):
        assert spread(each) == moments(each)["std"]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(500, generator=torch.Generator().manual_seed(1)),
        torch.ones(7),
        torch.tensor([-1.7e308, 0.0, 1.7e308], dtype=torch.float64),  # max - min overflows
    ],
)
def test_the_histogram_is_numpy_s(tensor):
    found = summary(tensor)
    if 0 < found["max"] - found["min"] < math.inf:
        counts, _ = np.histogram(tensor.double().numpy(), bins=BINS)
        assert found["histogram"] == counts.tolist()
    assert sum(found["histogram"]) == tensor.numel()
