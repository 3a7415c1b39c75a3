"""The scores of a net at a step of its training, and its predictions for its data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule.build import Training
from chainrule.build.data import data_set
from chainrule.build.draws import as_spec, target_of
from chainrule.foundations.activations import activation_rule
from chainrule.foundations.layers import cross_entropy, lin, mse, relu
from chainrule.spec import ModelSpec
from chainrule.spec.data import DATA_SETS, RANDOM

GRID = 32
"""Number of points of a decision surface along each feature."""

UNIT_GRID = 16
"""Number of points of a unit's map along each feature."""

MAX_UNITS = 16
"""Maximum number of units of a layer that have a map."""

MAX_WRONG = 24
"""Maximum number of samples in the list of wrong answers."""

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Score:
    """The loss, and the fraction of samples with the correct class; None without classes."""

    loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Surface:
    """The outputs of a net of two features at every point of a square.

    Attributes:
        extent: the square is [−extent, extent]², in standardized features.
        output: (GRID, GRID): 0 for class 0, 255 for class 1; rows from the largest second feature down.
        units: for each hidden layer (units, UNIT_GRID, UNIT_GRID): 128 is an activation of 0, 255 the unit's largest.
    """

    extent: float
    output: Pixels
    units: tuple[Pixels, ...]


@dataclass(frozen=True, slots=True)
class Confusion:
    """The classes that a net assigns to the held-out samples.

    Attributes:
        counts: (classes, classes): number of samples of the row's class that the net assigns to the column's class.
        wrong: (sample, assigned class) of the first wrong answers.
    """

    counts: tuple[tuple[int, ...], ...]
    wrong: tuple[tuple[int, int], ...]


def activations_of(training: Training, x: Tensor) -> list[Tensor]:
    """The output of every layer for inputs x (n, features): (n, width) each, the net's output last."""
    spec, leaves = training.spec, training.model.leaves
    outputs = [as_spec(spec, x)]
    for layer in training.model.layers:
        weight = leaves[layer.weight].detach()
        bias = None if layer.bias is None else leaves[layer.bias].detach()
        z = lin(outputs[-1], weight.t() if training.model.autograd else weight, bias)
        if layer.activation != layer.preactivation:
            z = relu(z) if spec.activation == "relu" else activation_rule(spec.activation).f(z)
        outputs.append(z)
    return outputs[1:]


def score_batch(training: Training) -> Score:
    """The score on the step's batch."""
    loss, leaves = training.loss, training.model.leaves
    if loss is not None and not _has_classes(training.spec):
        return Score(loss, None)
    return _score(training, activations_of(training, leaves["x"].detach())[-1], leaves["y"])


def score_held_out(training: Training) -> Score | None:
    """The score on the held-out samples; None without a data set."""
    spec = training.spec
    if spec.data == RANDOM:
        return None
    data = data_set(spec.data, spec.seed)
    return _score(training, activations_of(training, data.held_out_x)[-1], target_of(spec, data.held_out_y))


def _score(training: Training, out: Tensor, target: Tensor) -> Score:
    spec = training.spec
    loss = cross_entropy(out, target) if spec.loss == "cross_entropy" else mse(out, target)
    accuracy = None
    if _has_classes(spec):
        right = _classes(out) == (target if spec.loss == "cross_entropy" else _target_classes(target))
        right &= ~out.isnan().any(1)  # NaN is no class
        accuracy = float(right.double().mean())
    return Score(float(loss), accuracy)


def _has_classes(spec: ModelSpec) -> bool:
    return spec.data != RANDOM or spec.loss == "cross_entropy"


def _classes(out: Tensor) -> Tensor:
    """The class of each row of outputs: (n,)."""
    return (out[:, 0] > 0).long() if out.shape[1] == 1 else out.argmax(1)


def _target_classes(target: Tensor) -> Tensor:
    return (target > 0).long() if target.ndim == 1 else target.argmax(1)


def surface_of(training: Training) -> Surface | None:
    """The decision surface; None unless the data set has two features."""
    spec = training.spec
    if spec.data == RANDOM or DATA_SETS[spec.data].features != 2:
        return None
    extent = float(torch.ceil(data_set(spec.data, spec.seed).x.abs().max() * 10) / 10)
    axis = torch.linspace(-extent, extent, GRID)
    points = torch.stack(torch.meshgrid(axis, axis.flip(0), indexing="xy"), -1).reshape(-1, 2)
    *hidden, out = (layer.double().cpu() for layer in activations_of(training, points))
    if spec.loss == "cross_entropy":
        share = out.softmax(1)[:, 1]
    else:
        share = (out[:, 0] + 1) / 2 if spec.n_out == 1 else out[:, 1]
    maps = []
    step = GRID // UNIT_GRID
    for layer in hidden:
        units = layer[:, :MAX_UNITS].T.reshape(-1, GRID, GRID)[:, ::step, ::step]
        largest = units.abs().amax((1, 2), keepdim=True).clamp_min(1e-300)
        maps.append(_bytes(128 + 127 * units / largest))
    return Surface(extent, _bytes(255 * share.reshape(GRID, GRID)), tuple(maps))


def _bytes(values: Tensor) -> Pixels:
    """Values rounded to 0 … 255; NaN becomes the middle, 128."""
    pixels: Pixels = values.nan_to_num(128.0).round().clamp(0, 255).to(torch.uint8).numpy()
    return pixels


def confusion_of(training: Training) -> Confusion | None:
    """The confusions of the held-out samples; None unless there are more than two classes."""
    spec = training.spec
    if spec.data == RANDOM or DATA_SETS[spec.data].classes == 2:
        return None
    data, classes = data_set(spec.data, spec.seed), DATA_SETS[spec.data].classes
    out = activations_of(training, data.held_out_x)[-1].cpu()
    given, has_class = _classes(out), ~out.isnan().any(1)
    pairs = (data.held_out_y * classes + given)[has_class]
    counts = torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    wrong = (has_class & (given != data.held_out_y)).nonzero()[:MAX_WRONG, 0].tolist()
    return Confusion(tuple(map(tuple, counts.tolist())), tuple((sample, int(given[sample])) for sample in wrong))
