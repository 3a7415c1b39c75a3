"""The statistics of a trace as a table with a row per tensor, as CSV and for pandas."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from chainrule.errors import MissingExtraError
from chainrule.saving import plain_cell
from chainrule.stats import COLUMNS, COUNT_COLUMNS
from chainrule.trace.graph import Trace

if TYPE_CHECKING:
    from pandas import DataFrame


def to_csv(trace: Trace) -> str:
    """The table as text, column names first; a missing figure is empty, a shape is `200x100`."""
    about = _about(trace)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("tensor", *about, *COLUMNS))
    for row, tensor in enumerate(trace.statistics.tensors):
        said = [values[row] for values in about.values()]
        figures = zip(COLUMNS, trace.statistics.moments[row].tolist(), strict=True)
        writer.writerow(
            (
                plain_cell(tensor),
                *("x".join(map(str, each)) if isinstance(each, tuple) else plain_cell(each) for each in said),
                *(
                    int(value) if name in COUNT_COLUMNS else "" if math.isnan(value) else value
                    for name, value in figures
                ),
            )
        )
    return text.getvalue()


def dataframe(trace: Trace, *, histograms: bool = False) -> DataFrame:
    """The table as a pandas DataFrame, indexed by the tensors' ids; a missing figure is NaN.

    `histograms` adds columns bin_0 … bin_63: the number of values in each of 64 equal parts of [min, max].

    Raises:
        MissingExtraError: the extra `pandas` is not installed.
    """
    try:
        frame = trace.statistics.dataframe(histograms=histograms)
    except ImportError:
        raise MissingExtraError(
            "a DataFrame needs an optional dependency: pip install 'chainrule[pandas]'", limit="pandas"
        ) from None
    for place, (name, values) in enumerate(_about(trace).items()):
        frame.insert(place, name, values)
    return frame


def _about(trace: Trace) -> dict[str, list[Any]]:
    """The columns that describe a tensor: its role, its module's path, the op that made it and its phase, …."""
    tensors = [trace.tensor_by_id[tensor] for tensor in trace.statistics.tensors]
    ops = {op.id: op for op in trace.ops}
    producers = [None if tensor.producer is None else ops[tensor.producer] for tensor in tensors]
    return {
        "name": [tensor.name for tensor in tensors],
        "role": [tensor.role for tensor in tensors],
        "module": [trace.module_by_id[tensor.module].path for tensor in tensors],
        "op": [None if op is None else op.name for op in producers],
        "phase": [None if op is None else op.phase for op in producers],
        "gradient_of": [
            None if tensor.gradient_of is None else trace.tensor_by_id[tensor.gradient_of].name for tensor in tensors
        ],
        "shape": [tensor.shape for tensor in tensors],
        "dtype": [tensor.dtype for tensor in tensors],
    }
