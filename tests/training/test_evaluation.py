"""Scores, decision surfaces and confusions, against the built model and plain torch."""

import math

import pytest
import torch
from torch import nn

from chainrule.build import Training
from chainrule.build.data import data_set
from chainrule.spec import ModelSpec
from chainrule.training.evaluation import (
    GRID,
    UNIT_GRID,
    activations_of,
    confusion_of,
    score_batch,
    score_held_out,
    surface_of,
)

STYLES = ("functions", "classes", "layer_function", "autograd_function", "module")
ACTIVATIONS = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "linear": nn.Identity()}


def trained(step: int = 5, **values) -> Training:
    training = Training(ModelSpec.parse({"lr": 0.3, "batch": 100, **values}))
    training.go_to(step)
    return training


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_the_activations_are_those_of_torch_s_layers(style, activation):
    training = trained(widths="2,7,2", data="moons", style=style, activation=activation, dtype="float64")
    x = torch.randn(9, 2, dtype=torch.float64)
    leaves = {name: leaf.detach() for name, leaf in training.model.leaves.items()}
    weights = [leaves[name] if training.model.autograd else leaves[name].t() for name in ("w1", "w2")]
    hidden = ACTIVATIONS[activation](nn.functional.linear(x, weights[0], leaves["b1"]))
    expected = [hidden, nn.functional.linear(hidden, weights[1], leaves["b2"])]
    torch.testing.assert_close(activations_of(training, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("style", STYLES)
def test_the_score_of_the_batch_has_the_loss_of_the_pass(style, loss):
    training = trained(widths="64,12,10", data="digits", style=style, loss=loss, dtype="float64")
    assert score_batch(training).loss == pytest.approx(training.model.forward().item(), rel=1e-12)


@pytest.mark.parametrize(("loss", "widths"), [("mse", "2,20,1"), ("mse", "2,20,2"), ("cross_entropy", "2,20,2")])
def test_a_trained_net_knows_held_out_samples_and_shows_it_on_the_surface(loss, widths):
    training = trained(step=400, widths=widths, data="circles", loss=loss, optimizer="adam", lr=0.01)
    held_out = score_held_out(training)
    assert held_out.accuracy > 0.95
    assert held_out.loss < 0.3
    surface = surface_of(training)
    assert surface.output.shape == (GRID, GRID)
    assert [units.shape for units in surface.units] == [(16, UNIT_GRID, UNIT_GRID)]
    # The value at the pixel of a held-out sample tells its class: class 1 is the inner circle.
    data = data_set("circles", 42)
    places = ((data.held_out_x + surface.extent) / (2 * surface.extent) * (GRID - 1)).round().long().clamp(0, GRID - 1)
    said = torch.from_numpy(surface.output)[GRID - 1 - places[:, 1], places[:, 0]] > 127
    assert (said == (data.held_out_y == 1)).double().mean() > 0.9
    middle, corner = surface.output[GRID // 2, GRID // 2], surface.output[0, 0]
    assert middle > 127 > corner


def test_a_unit_s_map_is_its_activation():
    training = trained(widths="2,3,2", data="moons", loss="cross_entropy")
    surface = surface_of(training)
    axis = torch.linspace(-surface.extent, surface.extent, GRID)[::2]
    top = torch.linspace(surface.extent, -surface.extent, GRID)[::2]
    points = torch.tensor([[x, y] for y in top for x in axis])
    hidden = activations_of(training, points)[0].T.reshape(3, UNIT_GRID, UNIT_GRID)
    for unit, values in zip(surface.units[0], hidden, strict=True):
        active = values > 0
        assert (torch.from_numpy(unit)[~active] == 128).all()
        brightness = torch.from_numpy(unit)[active].double() - 128
        # The scale is the largest value of the finer grid.
        scale = (brightness / values[active]).median()
        assert (brightness - scale * values[active]).abs().max() < 1.5


def test_confusions_count_every_held_out_sample():
    training = trained(step=150, widths="64,30,10", data="digits", loss="cross_entropy", lr=0.1)
    confusion, data = confusion_of(training), data_set("digits", 42)
    counts = torch.tensor(confusion.counts)
    assert counts.sum(1).tolist() == data.held_out_y.bincount(minlength=10).tolist()
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(score_held_out(training).accuracy)
    assert score_held_out(training).accuracy > 0.9
    for sample, given in confusion.wrong:
        assert data.held_out_y[sample] != given
    assert len(confusion.wrong) == min(24, int(counts.sum() - counts.diagonal().sum()))


def test_what_does_not_apply_is_missing():
    random = trained()
    assert (score_held_out(random), surface_of(random), confusion_of(random)) == (None, None, None)
    assert score_batch(random).accuracy is None
    labels = trained(widths="9,5,3", loss="cross_entropy")
    assert 0 <= score_batch(labels).accuracy <= 1
    digits = trained(widths="64,5,10", data="digits", loss="cross_entropy")
    assert surface_of(digits) is None
    assert confusion_of(trained(widths="2,5,2", data="moons")) is None


def test_a_net_that_diverged_knows_no_class_and_its_surface_prefers_none():
    training = trained(step=200, widths="2,9,2", data="moons", loss="cross_entropy", scale=1e4, lr=1e9)
    assert math.isnan(score_batch(training).loss)
    assert (score_batch(training).accuracy, score_held_out(training).accuracy) == (0, 0)
    surface = surface_of(training)
    assert surface.output.shape == (GRID, GRID)
    assert set(surface.output.flatten().tolist()) == {128}


def test_samples_whose_outputs_are_nan_are_in_no_confusion():
    confusion = confusion_of(
        trained(step=20, widths="64,20,10", data="digits", loss="cross_entropy", scale=1e4, lr=1e9)
    )
    assert sum(map(sum, confusion.counts)) == 0
    assert confusion.wrong == ()
