"""Sweeps over a user's own model, and its arguments."""

import math
import sqlite3

import numpy as np
import pytest
import torch

import chainrule
from chainrule.errors import ExploreError, SweepError

FILE = """
import torch

def make(lr=0.1, width: int = 8, activation="tanh", scale=1.0):
    nonlinearity = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]
    model = torch.nn.Sequential(torch.nn.Linear(3, width), nonlinearity(), torch.nn.Linear(width, 1))
    with torch.no_grad():
        for weight in model.parameters():
            weight *= scale
    x = torch.randn(16, 3)
    y = x.sum(1, keepdim=True)
    return model, x, lambda out: torch.nn.functional.mse_loss(out, y), torch.optim.SGD(model.parameters(), lr)

def make_frozen(scale=1.0):
    return torch.nn.Linear(3, 1), torch.randn(4, 3), lambda out: out.sum()
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return f"{path}:make"


def alone(seed, steps, lr=0.1, width=8):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    x = torch.randn(16, 3)
    y = x.sum(1, keepdim=True)
    losses = []
    for step in range(steps + 1):
        model.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        losses.append(loss.item())
        loss.backward()
        if step < steps:
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= lr * weight.grad
    return losses


def test_a_cell_is_the_factory_s_model_with_its_arguments_and_seed(factory):
    found = chainrule.sweep(factory, ["lr=0.01,0.2", "width=4:8:2"], seeds=2, measure="loss", steps=5)
    assert found.values.shape == (2, 2, 2)
    for row, width in enumerate((4, 8)):
        for column, lr in enumerate((0.01, 0.2)):
            expected = [alone(seed, 5, lr, width)[-1] for seed in (42, 43)]
            np.testing.assert_allclose(found.values[row, column], expected, rtol=1e-5)
    assert found.columns["width"] == [4, 4, 4, 4, 8, 8, 8, 8]


def test_the_measures_of_a_training(factory):
    losses = alone(42, 60)
    limit = (losses[19] + losses[20]) / 2  # between two losses, whose last bits depend on the processor
    for measure, expected in (
        ("loss_ratio", losses[-1] / losses[0]),
        (f"steps_to_loss:{limit!r}", next(step for step, loss in enumerate(losses) if loss <= limit)),
        ("first_nonfinite", math.inf),
    ):
        found = chainrule.sweep(factory, ["lr=0.1"], measure=measure, steps=60)
        assert found.values.item() == pytest.approx(expected, rel=1e-4), measure
    diverged = chainrule.sweep(factory, ["lr=1e6"], measure="first_nonfinite", steps=60).values.item()
    assert 1 <= diverged <= 60
    torch.manual_seed(42)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(16, 3)
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    sizes = [model[place].weight.grad.square().mean().sqrt().item() for place in (0, 2)]
    found = chainrule.sweep(factory, ["lr=1"], measure="gradient_ratio").values.item()
    assert found == pytest.approx(sizes[0] / sizes[1], rel=1e-5)


@pytest.mark.long
def test_workers_and_files_are_those_of_any_sweep(factory, tmp_path):
    here = chainrule.sweep(factory, ["lr=0.01:0.2:6"], steps=3)
    found = chainrule.sweep(factory, ["lr=0.01:0.2:6"], steps=3, workers=2, keep=tmp_path / "a.sweep")
    assert found.values.tobytes() == here.values.tobytes()
    with sqlite3.connect(tmp_path / "a.sweep") as file:
        assert file.execute("SELECT count(*) FROM cell").fetchone() == (6,)
    file.close()


@pytest.mark.parametrize(
    ("over", "options", "says"),
    [
        (
            ["lrr=1,2"],
            {},
            r"lrr: unknown key; the keys of make\(\) are lr, width, activation, scale; did you mean 'lr'",
        ),
        ([], {}, "at least one axis"),
        (["lr=1,2", "lr=3,4"], {}, "lr is given twice"),
        (["lr=1,2"], {"seeds": 2.5}, "seeds: expected an integer from 1 to 1000, got 2.5"),
        (["lr=1,2"], {"workers": 1.5}, "workers: 1.5 is not an integer"),
        (["lr=1,2"], {"steps": -1}, "steps: expected an integer of at least 0"),
        (["width=1.5,2"], {}, "width: '1.5' is not an integer"),
        (["lr=1,2"], {"measure": "accuracy"}, "'accuracy' is not one of loss, loss_ratio"),
        (["lr=1,2"], {"measure": "loss_ratio"}, "loss_ratio needs a training; steps is 0"),
        (["lr=1:2:100000000"], {}, "at most 10000000 cells"),
    ],
)
def test_bad_input_is_named(factory, over, options, says):
    with pytest.raises(SweepError, match=says):
        chainrule.sweep(factory, over, **options)


def test_a_factory_that_cannot_run_says_why(factory):
    with pytest.raises(ExploreError, match="unknown name mak"):
        chainrule.sweep(factory.replace(":make", ":mak"), ["lr=1,2"])
    with pytest.raises(SweepError, match=r"make_frozen\(\) returned no optimizer"):
        chainrule.sweep(f"{factory}_frozen", ["scale=1,2"], steps=1)
    found = chainrule.sweep(factory, ["activation=tanh,sine"])
    assert found.reasons == {1: "failed 3 times: KeyError: 'sine'"}
    assert math.isfinite(found.values[0, 0])


def test_a_changed_file_is_another_sweep(factory, tmp_path):
    chainrule.sweep(factory, ["lr=0.1,0.2"], keep=tmp_path / "a.sweep")
    path = tmp_path / "mine.py"
    path.write_text(FILE.replace("out, y)", "out, 2 * y)"))
    with pytest.raises(SweepError, match=r"a\.sweep: the file holds another sweep, with other values of its file"):
        chainrule.sweep(factory, ["lr=0.1,0.2"], keep=tmp_path / "a.sweep")
