"""Rows of statistics while they are being taken."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from chainrule.stats import native
from chainrule.stats.device import DeviceRows
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
    """Rows of statistics while they are being taken: one preallocated array that grows by doubling.

    Peak extra memory, whatever the size and strides of the tensors: 352 bytes a row, and up to three times that while
    the array grows; on the host 4 MiB while a tensor is read that the compiled kernel leaves to PyTorch, else nothing;
    on a CUDA device 72 MiB while one is read, and until the rows are fetched 41 MiB and 1,200 bytes a row (of more than
    4 Mi elements, 48 for each further 4 Mi; on several streams, 8 MiB for each further stream). Only what is on a
    device of another kind is copied to the host whole. No tensor is kept alive.
    """

    ON_DEVICE: ClassVar[frozenset[str]] = frozenset({"cuda"})
    """Types of device that take statistics themselves; what is on another one is copied to the host."""

    def __init__(self, capacity: int = 256) -> None:
        self.rows = 0
        self._moments: FloatArray = np.empty((capacity, len(COLUMNS)))
        self._counts: CountArray = np.empty((capacity, BINS), np.uint32)
        self._capacity = capacity
        self._waiting: DeviceRows | None = None

    @property
    def moments(self) -> FloatArray:
        """The moments (rows or more, len(COLUMNS)), with all that waited on a device."""
        self._fetch()
        return self._moments

    @property
    def counts(self) -> CountArray:
        """The histograms (rows or more, BINS), with all that waited on a device."""
        self._fetch()
        return self._counts

    def add(self) -> int:
        """Make room for one more row and give its number; the row's contents are the caller's to write."""
        row = self.rows
        if row == self._capacity:
            self._grow()
        self.rows += 1
        return row

    def take(self, tensor: torch.Tensor) -> int:
        """Add a row with the statistics of `tensor`, which has some, and give its number.

        Raises:
            RuntimeError, NotImplementedError, TypeError, ValueError: torch cannot read the tensor, or has no memory to
                read it with; no row is added.
        """
        row = self.rows
        if row == self._capacity:
            self._grow()
        self.rows = row + 1
        try:
            self.write(row, tensor)
        except BaseException:
            self.rows = row
            raise
        return row

    def take_at_once(self, tensor: torch.Tensor) -> int:
        """`take`, where the compiled kernel reads the tensor: the row, or -1. PyTorch is not called."""
        kernel = native.kernel
        if kernel is None or self._waiting is not None:
            return -1
        row = self.rows
        if row == self._capacity:
            self._grow()
        if not kernel.summarize_row(tensor, self._moments, self._counts, row):
            return -1
        self.rows = row + 1
        return row

    def write(self, row: int, tensor: torch.Tensor) -> None:
        """Let `row` say what `tensor` holds. Raises what `take` does; nothing waits for the row then."""
        kernel = native.kernel
        if kernel is not None and kernel.summarize_row(tensor, self._moments, self._counts, row):
            if self._waiting is not None:
                self._waiting.forget(row)
        elif tensor.device.type in self.ON_DEVICE and tensor.numel():
            self._on_device().write(row, tensor)
        else:
            if self._waiting is not None:
                self._waiting.forget(row)
            summarize(tensor, self._moments[row], self._counts[row])

    def write_dead_fraction(self, row: int, activation: torch.Tensor) -> None:
        """Write into `row` which share of the units of `activation`, (batch, …), is dead."""
        if activation.device.type in self.ON_DEVICE:
            self._on_device().write_dead_fraction(row, activation)
        else:
            self._on_host(row)[DEAD_FRACTION] = dead_fraction(activation)

    def write_saturation(self, row: int, activation: torch.Tensor, middle: float) -> None:
        """Write into `row` which share of the values of `activation` is saturated; `middle` is that of its range."""
        if activation.device.type in self.ON_DEVICE:
            self._on_device().write_saturation(row, activation, middle)
        else:
            self._on_host(row)[SATURATION] = saturation(activation, middle)

    def copy(self, row: int) -> int:
        """Add a row that says what `row` says, for a tensor of the same elements in another order."""
        new = self.add()
        self.write_copy(row, new)
        return new

    def write_copy(self, row: int, new: int) -> None:
        """Let row `new` say what `row` says, but for what depends on the order of the elements."""
        if self._waiting is not None and self._waiting.write_copy(row, new):
            return
        self._moments[new] = self._moments[row]
        self._moments[new, DEAD_FRACTION:] = np.nan
        self._counts[new] = self._counts[row]

    def table(self, tensors: list[str], rows: list[int]) -> StatisticsTable:
        """The finished table: `rows[i]` of the slab belongs to `tensors[i]`."""
        return StatisticsTable(tuple(tensors), self.moments[rows], self.counts[rows])

    def _grow(self) -> None:
        self._moments = np.concatenate([self._moments, np.empty_like(self._moments)])
        self._counts = np.concatenate([self._counts, np.empty_like(self._counts)])
        self._capacity = len(self._moments)

    def _on_device(self) -> DeviceRows:
        if self._waiting is None:
            self._waiting = DeviceRows()
        return self._waiting

    def _on_host(self, row: int) -> FloatArray:
        """The moments of a row; only if they wait on a device, they and all others are fetched."""
        if self._waiting is not None and row in self._waiting:
            self._fetch()
        moments: FloatArray = self._moments[row]
        return moments

    def _fetch(self) -> None:
        if self._waiting is not None:
            self._waiting.fetch(self._moments, self._counts)
