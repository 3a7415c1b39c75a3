"""The statistics of one tensor, and the table that holds them for many.

All moments are over the finite values and accumulated in float64; the standard deviation is the population's
(`correction=0`). Bins are half-open and equally wide over [min, max], the last one closed: value x falls into bin
floor((x - min) · 64 / (max - min)), in float64. A tensor whose finite values are all equal has them in the first bin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pandas import DataFrame

BINS = 64

SMALL = 16
"""A tensor with at most so many elements is small: its values are kept."""

FloatArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of one tensor. Moments are None where no value is finite, fractions where they do not apply."""

    n: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    norm: float | None
    zero_fraction: float
    nan: int
    posinf: int
    neginf: int
    dead_fraction: float | None
    saturation: float | None
    counts: tuple[int, ...] = field(repr=False)


COLUMNS = tuple(each.name for each in fields(Summary))[:-1]
"""Columns of the table, in order. `n` counts all elements; `norm` is the L2 norm; fractions are of all elements, but
`dead_fraction`, which is of the units. A moment that does not exist, or a fraction that does not apply, is NaN."""

COUNT_COLUMNS = ("n", "nan", "posinf", "neginf")

N, NAN, POSINF, NEGINF = map(COLUMNS.index, COUNT_COLUMNS)
NORM, DEAD_FRACTION, SATURATION = map(COLUMNS.index, ("norm", "dead_fraction", "saturation"))


class StatisticsTable:
    """One row of statistics per tensor, held in columns. Immutable.

    `values`: tensor → its values, row by row, for tensors with at most SMALL elements.
    """

    def __init__(
        self,
        tensors: tuple[str, ...],
        moments: FloatArray,
        counts: CountArray,
        values: Mapping[str, FloatArray] | None = None,
    ) -> None:
        """Take the ids of the tensors, their moments (rows, len(COLUMNS)) and their histograms (rows, BINS)."""
        self.tensors = tensors
        self.moments = moments
        self.counts = counts
        self.values = values or {}
        moments.flags.writeable = False
        counts.flags.writeable = False

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Tensor → row."""
        return {tensor: row for row, tensor in enumerate(self.tensors)}

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.row_of

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __getitem__(self, tensor: str) -> Summary:
        """The summary of the tensor with this id; KeyError if it has none."""
        row = self.row_of[tensor]
        # Only NaN differs from itself.
        values: list[Any] = [value if value == value else None for value in self.moments[row].tolist()]
        for column in (N, NAN, POSINF, NEGINF):
            values[column] = int(values[column])
        return Summary(**dict(zip(COLUMNS, values, strict=True)), counts=tuple(self.counts[row].tolist()))

    def dataframe(self, *, histograms: bool = False) -> DataFrame:
        """The table as a pandas DataFrame, by the tensors' ids; with `histograms` columns bin_0 … bin_63 follow.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        from pandas import DataFrame, Index

        columns: dict[str, Any] = {
            name: self.column(name).astype(np.int64) if name in COUNT_COLUMNS else self.column(name) for name in COLUMNS
        }
        if histograms:
            columns |= {f"bin_{place}": self.counts[:, place] for place in range(BINS)}
        return DataFrame(columns, Index(self.tensors, name="tensor"))

    def column(self, name: str) -> FloatArray:
        """One column of the table as float64, NaN for missing values."""
        values: FloatArray = self.moments[:, COLUMNS.index(name)]
        return values
