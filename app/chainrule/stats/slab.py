"""Rows of statistics while they are being taken."""

from __future__ import annotations

import numpy as np
import torch

from chainrule.stats.kernel import summarize
from chainrule.stats.summary import (
    BINS,
    COLUMNS,
    DEAD_FRACTION,
    SATURATION,
    CountArray,
    FloatArray,
    StatisticsTable,
)
from chainrule.stats.units import dead_fraction, saturation


class StatisticsSlab:
    """Rows of statistics while they are being taken: one preallocated array that grows by doubling."""

    def __init__(self, capacity: int = 256) -> None:
        self.rows = 0
        self.moments: FloatArray = np.empty((capacity, len(COLUMNS)))
        self.counts: CountArray = np.empty((capacity, BINS), np.uint32)

    def add(self) -> int:
        """Make room for one more row and give its number; the row's contents are the caller's to write."""
        row = self.rows
        if row == len(self.moments):
            self.moments = np.concatenate([self.moments, np.empty_like(self.moments)])
            self.counts = np.concatenate([self.counts, np.empty_like(self.counts)])
        self.rows += 1
        return row

    def take(self, tensor: torch.Tensor) -> int:
        """Add a row with the statistics of `tensor`, which has some, and give its number.

        Raises:
            RuntimeError, NotImplementedError, TypeError, ValueError: torch cannot read the tensor; no row is added.
        """
        row = self.add()
        try:
            self.write(row, tensor)
        except BaseException:
            self.rows = row
            raise
        return row

    def write(self, row: int, tensor: torch.Tensor) -> None:
        """Let `row` say what `tensor` holds."""
        summarize(tensor, self.moments[row], self.counts[row])

    def write_dead_fraction(self, row: int, activation: torch.Tensor) -> None:
        """Write into `row` which share of the units of `activation`, (batch, …), is dead."""
        self.moments[row, DEAD_FRACTION] = dead_fraction(activation)

    def write_saturation(self, row: int, activation: torch.Tensor, middle: float) -> None:
        """Write into `row` which share of the values of `activation` is saturated; `middle` is that of its range."""
        self.moments[row, SATURATION] = saturation(activation, middle)

    def copy(self, row: int) -> int:
        """Add a row that says what `row` says, for a tensor of the same elements in another order."""
        new = self.add()
        self.write_copy(row, new)
        return new

    def write_copy(self, row: int, new: int) -> None:
        """Let row `new` say what `row` says, but for what depends on the order of the elements."""
        self.moments[new] = self.moments[row]
        self.moments[new, DEAD_FRACTION:] = np.nan
        self.counts[new] = self.counts[row]

    def table(self, tensors: list[str], rows: list[int]) -> StatisticsTable:
        """The finished table: `rows[i]` of the slab belongs to `tensors[i]`."""
        return StatisticsTable(tuple(tensors), self.moments[rows], self.counts[rows])
