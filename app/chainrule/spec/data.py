"""The data sets that a spec can name, and their sizes; `build/data.py` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class DataSize(NamedTuple):
    """Features and classes of a sample, and the numbers of samples to train on and held out."""

    features: int
    classes: int
    samples: int
    held_out: int


RANDOM = "random"
"""The chapter's data: one batch of random inputs and random targets, of any width."""

_POINTS = DataSize(2, 2, 1000, 500)

DATA_SETS: Mapping[str, DataSize] = {
    "moons": _POINTS,
    "circles": _POINTS,
    "spirals": _POINTS,
    "xor": _POINTS,
    "digits": DataSize(64, 10, 1437, 360),
}
"""The data sets besides `random`."""
