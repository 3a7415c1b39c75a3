"""The data sets of a training: samples to learn from and samples held out, as drawn by a spec's seed.

Features have mean 0 and standard deviation 1 over the training samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

from chainrule.errors import MissingExtraError
from chainrule.foundations.initialization import generator_for
from chainrule.spec.data import DATA_SETS

NOISE = 0.1
"""Standard deviation of the noise that is added to each coordinate of a point."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Samples x (n, features) in float32 and their classes y (n,) in int64, on the CPU; read-only, since shared."""

    x: Tensor
    y: Tensor
    held_out_x: Tensor
    held_out_y: Tensor


@lru_cache(maxsize=8)
def data_set(name: str, seed: int) -> DataSet:
    """The data set of this name, other than `random`, drawn and split by the seed.

    Raises:
        MissingExtraError: `digits` without scikit-learn.
    """
    generator = generator_for(seed, "data")
    size = DATA_SETS[name]
    if name == "digits":
        x, y = _digits()
        order = torch.randperm(len(x), generator=generator)
        x, y = x[order], y[order]
    else:
        n = size.samples + size.held_out
        y = torch.randint(2, (n,), generator=generator)
        x = _POINTS[name](y, generator) + NOISE * torch.randn((n, 2), generator=generator)
    train = x[: size.samples]
    # The border pixels of the digits are constant.
    x = (x - train.mean(0)) / train.std(0, correction=0).clamp_min(1e-6)
    return DataSet(x[: size.samples], y[: size.samples], x[size.samples :], y[size.samples :])


def batch_of(name: str, seed: int, size: int, step: int) -> tuple[Tensor, Tensor]:
    """The batch of a step: `size` different samples of the training set, x (size, features) and y (size,)."""
    return batch_from(data_set(name, seed), seed, size, step)


def batch_from(data: DataSet, seed: int, size: int, step: int) -> tuple[Tensor, Tensor]:
    """The batch of a step from the data set of the seed; see `batch_of`."""
    chosen = torch.randperm(len(data.x), generator=generator_for(seed, f"batch {step}"))[:size]
    return data.x[chosen], data.y[chosen]


def _moons(y: Tensor, generator: Generator) -> Tensor:
    """Two interleaving half circles of radius 1."""
    angle = math.pi * torch.rand(len(y), generator=generator)
    first = torch.stack((angle.cos(), angle.sin()), 1)
    return torch.where((y == 0)[:, None], first, torch.tensor([1.0, 0.5]) - first)


def _circles(y: Tensor, generator: Generator) -> Tensor:
    """A circle of radius 1 around one of radius 0.5."""
    angle = 2 * math.pi * torch.rand(len(y), generator=generator)
    return torch.stack((angle.cos(), angle.sin()), 1) * (1 - 0.5 * y)[:, None]


def _spirals(y: Tensor, generator: Generator) -> Tensor:
    """Two spirals of 1.5 turns, rotated against each other by half a turn; the radius grows from 0 to 3."""
    way = torch.rand(len(y), generator=generator).sqrt()
    angle = 3 * math.pi * way + math.pi * y
    return 3 * way[:, None] * torch.stack((angle.cos(), angle.sin()), 1)


def _xor(y: Tensor, generator: Generator) -> Tensor:
    """The four quadrants of a square with sides of 2: two opposite ones for each class."""
    x = 2 * torch.rand((len(y), 2), generator=generator) - 1
    same_sign = (x[:, 0] * x[:, 1] > 0) == (y == 0)
    return torch.stack((x[:, 0], torch.where(same_sign, x[:, 1], -x[:, 1])), 1)


_POINTS: Mapping[str, Callable[[Tensor, Generator], Tensor]] = {
    "moons": _moons,
    "circles": _circles,
    "spirals": _spirals,
    "xor": _xor,
}


@lru_cache(maxsize=1)
def _digits() -> tuple[Tensor, Tensor]:
    """1797 handwritten digits of 8 by 8 pixels: x (1797, 64) and y (1797,). E. Alpaydin and C. Kaynak (1998)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            "data: 'digits' needs scikit-learn, which is not installed: pip install 'chainrule[digits]'",
            field="data",
        ) from None
    digits = load_digits()
    return torch.from_numpy(digits.data).float(), torch.from_numpy(digits.target)
