"""Rows of statistics during a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    SMALL,
    CountArray,
    FloatArray,
    StatisticsTable,
)
from chainrule.stats.units import dead_fraction, saturation

_Number = TypeVar("_Number", np.float64, np.uint32)

_Place = tuple[int, int, FloatArray, CountArray]
"""A free row: its number, its number in its block, and the block's arrays."""


class StatisticsSlab:
    """Rows of statistics during a recording, in blocks of equal size that never move.

    Threads, such as those of backward hooks, may add rows and write to their own rows concurrently.

    Peak extra memory, whatever the size and strides of the tensors: 352 bytes a row, and up to three times that while
    what is in several blocks is put together; 400 bytes for the values of a small tensor; on the host 4 MiB while a
    tensor is read that the compiled kernel leaves to PyTorch, else nothing.

    On a CUDA device 72 MiB while one is read, and until the rows are fetched 41 MiB and 1,200 bytes a row (of more than
    4 Mi elements, 48 for each further 4 Mi; on several streams, 8 MiB for each further stream). The kernels in
    `kernels.cu` need 480 bytes a row, up to 8 MiB more for each stream, and the copy of a tensor with gaps, up to
    32 MiB. Tensors on devices of other kinds are copied to the host whole. No tensor is kept alive, but with `beside`
    those that wait to be read.
    """

    ON_DEVICE: ClassVar[frozenset[str]] = frozenset({"cuda"})
    """Types of device that take statistics themselves; tensors on others are copied to the host."""

    def __init__(self, capacity: int = 256, *, only_moments: bool = False, beside: bool = False) -> None:
        """Make room for `capacity` rows; whenever they are used up, for as many more.

        With `only_moments`, the compiled kernel reads each tensor once, and its row has neither histogram nor values.
        With `beside`, `write` may read the tensor later, in another thread: call `settle` before a tensor changes. Then
        only one thread may write.
        """
        self._only_moments = only_moments
        self._beside = native.kernel.Beside() if beside and native.kernel is not None else None
        self._summarize_row = None if native.kernel is None or only_moments else native.kernel.summarize_row
        self._late: list[tuple[int, int, float]] = []  # row, column, share: the reader would overwrite it
        self._values: dict[int, FloatArray] = {}
        self._size = max(capacity, 1)
        self._blocks = [self._new_block()]
        # An iterator written in C gives each element to one thread only.
        self._free, self._room = _places(0, 0, self._blocks[0])
        self._opened = 0  # blocks whose rows are or were free
        self._spare: list[_Place] = []  # rows that were taken and not written
        self._waiting: DeviceRows | None = None
        self._lock = RLock()

    @property
    def rows(self) -> int:
        """Number of rows, up to the last one in use."""
        with self._lock:
            rows = self._opened * self._size - length_hint(self._free)
            spare = {place[0] for place in self._spare.copy()}
        while rows - 1 in spare:
            rows -= 1
        return rows

    @property
    def moments(self) -> FloatArray:
        """The moments (rows or more, len(COLUMNS)), fetched from devices; a copy if there are several blocks."""
        self._fetch()
        return _joined([moments for moments, _ in self._blocks])

    @property
    def counts(self) -> CountArray:
        """The histograms (rows or more, BINS), fetched from devices; a copy if there are several blocks."""
        self._fetch()
        return _joined([counts for _, counts in self._blocks])

    @property
    def values(self) -> dict[int, FloatArray]:
        """Row → the values of its tensor, row by row; of tensors with at most SMALL elements."""
        self._fetch()
        return self._values

    def take(self, tensor: torch.Tensor) -> int:
        """Add a row with the statistics of `tensor` (see `unsupported`) and return its number.

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
        """`take` by the compiled kernel alone, without a call of PyTorch; -1 if the kernel cannot read the tensor.

        `_observer.c` does the same.
        """
        if self._summarize_row is None:
            return -1
        place = next(self._room, None) or self._reserve()
        row, index, moments, counts = place
        if not self._summarize_row(tensor, moments, counts, index):
            return self._take_elsewhere(place, tensor)
        if tensor.numel() <= SMALL:
            self._keep_values(row, tensor)
        return row

    def _take_elsewhere(self, place: _Place, tensor: torch.Tensor) -> int:
        """`take_at_once` of a tensor that is not on the host; -1 and a free place if no kernel can read it."""
        if self._waiting is not None and self._waiting.take_at_once(place[0], tensor):
            return place[0]
        self._spare.append(place)
        return -1

    def take_named(self, tensor: torch.Tensor, rows: dict[str, int], name: str) -> int | None:
        """`take_at_once` of a tensor of floats, its row noted in `rows`.

        -1 if `rows` has the name, or the tensor has no floats. None if the kernel cannot read the tensor, or if rows
        have histograms.
        """
        kernel = native.kernel
        if kernel is None or not self._only_moments:
            return None
        if not self._opened:
            self._open()
        row = kernel.take_moments(tensor, rows, name, self._room)
        if row is None and self._waiting is not None and self._waiting.launches is not None:
            row = self._waiting.launches.take_moments(tensor, rows, name, self._room)
        return row

    def take_group(self, tensors: dict[str, torch.Tensor], rows: dict[str, int]) -> None:
        """`take_named` of many tensors, all at once on a device; `rows` lacks those that are not read so."""
        if self._only_moments and self._waiting is not None and self._waiting.launches is not None:
            self._waiting.launches.take_group(tensors, rows, self._room)

    def write(self, row: int, tensor: torch.Tensor) -> None:
        """Write the statistics of `tensor` to `row`. Raises the errors of `take`."""
        kernel = native.kernel
        block, index = divmod(row, self._size)
        moments, counts = self._blocks[block]
        wanted = None if self._only_moments else counts
        reader = kernel if self._beside is None or tensor.numel() <= SMALL else self._beside
        if reader is not None and reader.summarize_row(tensor, moments, wanted, index):
            if self._waiting is not None:
                self._waiting.forget(row)
        elif tensor.device.type in self.ON_DEVICE and tensor.numel():
            self._on_device().write(row, tensor)
            return
        else:
            if self._waiting is not None:
                self._waiting.forget(row)
            summarize(tensor, moments[index], counts[index])
        if tensor.numel() <= SMALL and not self._only_moments:
            self._keep_values(row, tensor)

    def _keep_values(self, row: int, tensor: torch.Tensor) -> None:
        # `tolist` shows no op to dispatch modes. A subclass of torch.Tensor may refuse it.
        with suppress(RuntimeError, TypeError, ValueError):
            self._values[row] = np.array(tensor.tolist(), np.float64).ravel()

    def write_dead_fraction(self, row: int, activation: torch.Tensor) -> None:
        """Write the dead fraction of `activation`, (batch, …), to `row`."""
        kernel = native.kernel
        if kernel is not None and (share := kernel.dead_fraction(activation)) is not None:
            self._write_fraction(row, DEAD_FRACTION, share)
        elif activation.device.type in self.ON_DEVICE:
            self._on_device().write_dead_fraction(row, activation)
        else:
            self._write_fraction(row, DEAD_FRACTION, dead_fraction(activation))

    def write_saturation(self, row: int, activation: torch.Tensor, middle: float) -> None:
        """Write the saturation of `activation` to `row`; `middle` is the middle of its range."""
        if activation.device.type in self.ON_DEVICE:
            self._on_device().write_saturation(row, activation, middle)
        else:
            self._write_fraction(row, SATURATION, saturation(activation, middle))

    def copy(self, row: int) -> int:
        """Add a copy of `row`, without its values, for a tensor with the same elements; return its number.

        The order of the elements may be another.
        """
        new, place, new_moments, new_counts = self._reserve()
        if self._waiting is None or not self._waiting.write_copy(row, new):
            block, index = divmod(row, self._size)
            moments, counts = self._blocks[block]
            if (kernel := native.kernel) is not None:
                kernel.copy_row(moments, counts, index, new_moments, new_counts, place)
            else:
                new_moments[place], new_counts[place] = moments[index], counts[index]
            new_moments[place, DEAD_FRACTION:] = np.nan  # these depend on the order
        return new

    def table(self, tensors: list[str], rows: list[int]) -> StatisticsTable:
        """The finished table: `rows[i]` of the slab belongs to `tensors[i]`."""
        return StatisticsTable(tuple(tensors), self.moments[rows], self.counts[rows], self.values_of(tensors, rows))

    def values_of(self, tensors: Iterable[str], rows: Iterable[int]) -> dict[str, FloatArray]:
        """The values of the tensors that have any; `rows[i]` belongs to `tensors[i]`."""
        values = self.values
        return {tensor: values[row] for tensor, row in zip(tensors, rows, strict=True) if row in values}

    def _new_block(self) -> tuple[FloatArray, CountArray]:
        return np.empty((self._size, len(COLUMNS))), np.empty((self._size, BINS), np.uint32)

    def _at(self, row: int) -> tuple[FloatArray, CountArray]:
        """The moments (len(COLUMNS),) and the histogram (BINS,) of a row, writable."""
        block, index = divmod(row, self._size)
        moments, counts = self._blocks[block]
        return moments[index], counts[index]

    def _reserve(self) -> _Place:
        """Reserve a free row for the caller."""
        while True:
            if self._spare:
                with suppress(IndexError):  # another thread was faster
                    return self._spare.pop()
            place = next(self._room, None)
            if place is not None:
                return place
            self._open()

    def _open(self) -> None:
        """Free the rows of one more block, unless another thread has just done so."""
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
                self._waiting = DeviceRows(only_moments=self._only_moments)
            return self._waiting

    def _write_fraction(self, row: int, column: int, share: float) -> None:
        """Write to a row, fetched first if it waits on a device."""
        if self._beside is not None:
            self._late.append((row, column, share))
            return
        if self._waiting is not None and row in self._waiting:
            self._fetch()
        self._at(row)[0][column] = share

    def settle(self) -> None:
        """Wait until all tensors that were written have been read.

        Raises:
            RuntimeError: one was changed in place before that.
        """
        if self._beside is None:
            return
        for tensor, moments, counts, row in self._beside.finish():
            summarize(tensor, moments[row], counts[row])
        for row, column, value in self._late:
            self._at(row)[0][column] = value
        self._late.clear()

    def _fetch(self) -> None:
        self.settle()
        if self._waiting is not None:
            self._waiting.fetch(self._at, self._write_rows, self._keep_values)

    def _write_rows(self, rows: npt.NDArray[np.int64], moments: FloatArray, counts: CountArray) -> None:
        blocks, places = np.divmod(rows, self._size)
        for block in np.unique(blocks):
            own = blocks == block
            to_moments, to_counts = self._blocks[block]
            to_moments[places[own]], to_counts[places[own]] = moments[own], counts[own]


def _places(start: int, size: int, block: tuple[FloatArray, CountArray]) -> tuple[Iterator[int], Iterator[_Place]]:
    """The numbers of a block's free rows, and their places; taking a place also takes its number."""
    free = iter(range(start, start + size))
    moments, counts = block
    return free, zip(free, range(size), repeat(moments), repeat(counts), strict=False)


def _joined(blocks: list[npt.NDArray[_Number]]) -> npt.NDArray[_Number]:
    """The one block itself, or a read-only copy of several: writing to a copy would be lost."""
    if len(blocks) == 1:
        return blocks[0]
    joined = np.concatenate(blocks)
    joined.flags.writeable = False
    return joined
