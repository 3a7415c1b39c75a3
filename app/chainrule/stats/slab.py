"""Rows of statistics while they are being taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from operator import length_hint
from threading import RLock
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
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

_Number = TypeVar("_Number", np.float64, np.uint32)

_Place = tuple[int, int, FloatArray, CountArray]
"""A row that is free: its number, that in its block, and the block's arrays."""


class StatisticsSlab:
    """Rows of statistics while they are being taken, in blocks of equal size that never move.

    Threads may add rows, and write to rows of their own, at once: those of the hooks of a backward pass do. A row is
    the caller's alone from before it is written; the arrays that it is in stay where they are meanwhile.

    Peak extra memory, whatever the size and strides of the tensors: 352 bytes a row, and up to three times that while
    what is in several blocks is put together; on the host 4 MiB while a tensor is read that the compiled kernel leaves
    to PyTorch, else nothing.

    On a CUDA device 72 MiB while one is read, and until the rows are fetched 41 MiB and 1,200 bytes a row (of more than
    4 Mi elements, 48 for each further 4 Mi; on several streams, 8 MiB for each further stream). Only what is on a
    device of another kind is copied to the host whole. No tensor is kept alive.
    """

    ON_DEVICE: ClassVar[frozenset[str]] = frozenset({"cuda"})
    """Types of device that take statistics themselves; what is on another one is copied to the host."""

    def __init__(self, capacity: int = 256) -> None:
        """Make room for `capacity` rows; whenever they are used up, for as many more."""
        self._size = max(capacity, 1)
        self._blocks = [self._new_block()]
        # Only one thread is given what an iterator in C says next.
        self._free, self._room = _places(0, 0, self._blocks[0])
        self._opened = 0  # blocks whose rows are free, or were
        self._spare: list[_Place] = []  # rows that came to nothing
        self._waiting: DeviceRows | None = None
        self._lock = RLock()

    @property
    def rows(self) -> int:
        """How many rows there are, up to the last that was added."""
        with self._lock:
            rows = self._opened * self._size - length_hint(self._free)
            spare = {place[0] for place in self._spare.copy()}
        while rows - 1 in spare:
            rows -= 1
        return rows

    @property
    def moments(self) -> FloatArray:
        """The moments (rows or more, len(COLUMNS)), with all that waited on a device; of several blocks a copy."""
        self._fetch()
        return _joined([moments for moments, _ in self._blocks])

    @property
    def counts(self) -> CountArray:
        """The histograms (rows or more, BINS), with all that waited on a device; of several blocks a copy."""
        self._fetch()
        return _joined([counts for _, counts in self._blocks])

    def add(self) -> int:
        """Make room for one more row and give its number; the row's contents are the caller's to write."""
        return self._reserve()[0]

    def take(self, tensor: torch.Tensor) -> int:
        """Add a row with the statistics of `tensor`, which has some, and give its number.

        Raises:
            RuntimeError, NotImplementedError, TypeError, ValueError: torch cannot read the tensor, or has no memory to
                read it with; no row is added.
        """
        place = self._reserve()
        try:
            self.write(place[0], tensor)
        except BaseException:
            self._spare.append(place)
            raise
        return place[0]

    def take_at_once(self, tensor: torch.Tensor) -> int:
        """`take`, where the compiled kernel reads the tensor: the row, or -1. PyTorch is not called."""
        kernel = native.kernel
        if kernel is None or self._waiting is not None:
            return -1
        place = next(self._room, None) or self._reserve()
        row, index, moments, counts = place
        if kernel.summarize_row(tensor, moments, counts, index):
            return row
        self._spare.append(place)
        return -1

    def write(self, row: int, tensor: torch.Tensor) -> None:
        """Let `row` say what `tensor` holds. Raises what `take` does; nothing waits for the row then."""
        kernel = native.kernel
        block, index = divmod(row, self._size)
        moments, counts = self._blocks[block]
        if kernel is not None and kernel.summarize_row(tensor, moments, counts, index):
            if self._waiting is not None:
                self._waiting.forget(row)
        elif tensor.device.type in self.ON_DEVICE and tensor.numel():
            self._on_device().write(row, tensor)
        else:
            if self._waiting is not None:
                self._waiting.forget(row)
            summarize(tensor, moments[index], counts[index])

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
        (moments, counts), (new_moments, new_counts) = self._at(row), self._at(new)
        new_moments[:] = moments
        new_moments[DEAD_FRACTION:] = np.nan
        new_counts[:] = counts

    def table(self, tensors: list[str], rows: list[int]) -> StatisticsTable:
        """The finished table: `rows[i]` of the slab belongs to `tensors[i]`."""
        return StatisticsTable(tuple(tensors), self.moments[rows], self.counts[rows])

    def _new_block(self) -> tuple[FloatArray, CountArray]:
        return np.empty((self._size, len(COLUMNS))), np.empty((self._size, BINS), np.uint32)

    def _at(self, row: int) -> tuple[FloatArray, CountArray]:
        """The moments (len(COLUMNS),) and the histogram (BINS,) of a row, to be written to."""
        block, index = divmod(row, self._size)
        moments, counts = self._blocks[block]
        return moments[index], counts[index]

    def _reserve(self) -> _Place:
        """A free row, which is the caller's alone from now on."""
        while True:
            with suppress(IndexError):
                return self._spare.pop()
            place = next(self._room, None)
            if place is not None:
                return place
            self._open()

    def _open(self) -> None:
        """Let the rows of one more block be free, unless another thread has done so."""
        with self._lock:
            if length_hint(self._free):
                return
            if self._opened == len(self._blocks):
                self._blocks.append(self._new_block())
            self._free, self._room = _places(self._opened * self._size, self._size, self._blocks[self._opened])
            self._opened += 1

    def _on_device(self) -> DeviceRows:
        with self._lock:
            if self._waiting is None:
                self._waiting = DeviceRows()
            return self._waiting

    def _on_host(self, row: int) -> FloatArray:
        """The moments of a row; only if they wait on a device, they and all others are fetched."""
        if self._waiting is not None and row in self._waiting:
            self._fetch()
        return self._at(row)[0]

    def _fetch(self) -> None:
        if self._waiting is not None:
            self._waiting.fetch(self._at)


def _places(start: int, size: int, block: tuple[FloatArray, CountArray]) -> tuple[Iterator[int], Iterator[_Place]]:
    """The numbers of the rows of a block that are free still, and their places; to take a place takes the number."""
    free = iter(range(start, start + size))
    moments, counts = block
    return free, zip(free, range(size), repeat(moments), repeat(counts), strict=False)


def _joined(blocks: list[npt.NDArray[_Number]]) -> npt.NDArray[_Number]:
    """The one block itself; of several a copy, not to be written to: nobody would read that."""
    if len(blocks) == 1:
        return blocks[0]
    joined = np.concatenate(blocks)
    joined.flags.writeable = False
    return joined
