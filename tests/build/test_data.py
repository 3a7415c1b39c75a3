"""The data sets: sizes, standardization, batches, and the shapes of their classes."""

import pytest
import torch

from chainrule.build.data import batch_of, data_set
from chainrule.spec.data import DATA_SETS


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_data_set_has_its_size_and_standard_features(name):
    size, data = DATA_SETS[name], data_set(name, 42)
    assert data.x.shape == (size.samples, size.features)
    assert data.held_out_x.shape == (size.held_out, size.features)
    assert data.y.shape == (size.samples,)
    assert data.held_out_y.shape == (size.held_out,)
    assert set(data.y.tolist()) == set(data.held_out_y.tolist()) == set(range(size.classes))
    assert data.x.double().mean(0).abs().max() < 1e-5
    std = data.x.double().std(0, correction=0)
    # A pixel of the digits that is 0 in every sample stays 0.
    assert ((std - 1).abs() < 1e-4).logical_or(std == 0).all()
    assert (std > 0).sum() >= 2


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_batch_has_different_samples_and_every_step_another_batch(name):
    data = data_set(name, 7)
    first, labels = batch_of(name, 7, 50, 0)
    assert len(first.unique(dim=0)) == 50 if name != "digits" else len(first) == 50
    again, _ = batch_of(name, 7, 50, 0)
    other, _ = batch_of(name, 7, 50, 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for x, label in zip(first, labels, strict=True):
        assert data.y[(data.x == x).all(1)].tolist() == [label]


def test_the_seed_draws_the_data_set():
    assert not torch.equal(data_set("moons", 1).x, data_set("moons", 2).x)
    digits = data_set("digits", 1), data_set("digits", 2)
    assert not torch.equal(digits[0].x, digits[1].x)  # another split
    assert digits[0].y.bincount().sum() == digits[1].y.bincount().sum()


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "digits"])
def test_no_line_separates_the_classes_but_a_small_neighbourhood_does(name):
    """A data set is worth a hidden layer: the best linear fit errs, and the nearest neighbour does not."""
    data = data_set(name, 42)
    x = torch.cat((data.x, torch.ones(len(data.x), 1)), 1).double()
    line = torch.linalg.lstsq(x, 2 * data.y.double() - 1).solution
    assert ((x @ line > 0) == (data.y == 1)).double().mean() < 0.9
    nearest = torch.cdist(data.held_out_x, data.x).argmin(1)
    assert (data.y[nearest] == data.held_out_y).double().mean() > 0.85
