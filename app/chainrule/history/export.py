"""A run for other tools: CSV, Parquet, TensorBoard."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.errors import MissingExtraError, RequestError
from chainrule.history.reader import Run
from chainrule.saving import plain_cell, replacing

TABLES: Mapping[str, Callable[[Run], Mapping[str, Any]]] = {
    "steps": Run.step_columns,
    "rows": Run.row_columns,
    "events": Run.event_columns,
}
"""The tables of a run, by name."""


def export(run: Run, path: Path, form: str | None = None, table: str = "rows") -> None:
    """Write a run as csv, parquet or tensorboard. Without `form`, the suffix of the file selects the format.

    csv and parquet contain one table: steps, rows or events. tensorboard is a folder with an event file. Missing
    folders are created.

    Raises:
        RequestError: the format, the suffix or the table is unknown.
        MissingExtraError: the extra of the format is not installed.
        RunError: the run cannot be read.
        OSError: the file cannot be written.
    """
    form = form or path.suffix.removeprefix(".")
    if form not in FORMATS:
        raise RequestError(f"format: {form!r} is not one of {', '.join(FORMATS)}", field="format", limit=list(FORMATS))
    if table not in TABLES:
        raise RequestError(f"table: {table!r} is not one of {', '.join(TABLES)}", field="table", limit=list(TABLES))
    path.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[form](run, path, table)


def write_csv(columns: Mapping[str, Any], path: Path) -> None:
    """Write a table, its columns by name, as CSV."""
    with replacing(path) as made, made.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(plain_cell, row) for row in zip(*columns.values(), strict=True))


def write_parquet(columns: Mapping[str, Any], path: Path | BinaryIO) -> None:
    """Write a table, its columns by name, as Parquet. Raises MissingExtraError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise _missing("parquet") from None
    with replacing(path) if isinstance(path, Path) else nullcontext(path) as made:
        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), made)


def _write_tensorboard(run: Run, path: Path, _table: str) -> None:
    """Write the numbers of steps and rows as scalars, and the histograms; TensorBoard has no form for events."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise _missing("tensorboard") from None
    path.mkdir(parents=True, exist_ok=True)
    steps, rows = run.step_columns(), run.row_columns()
    seconds = itertools.accumulate(each or 0.0 for each in steps["seconds"])
    at = dict(zip(steps["step"], (run.started + each for each in seconds), strict=True))
    events = path / f"events.out.tfevents.{run.started:.0f}.{run.name}"
    with replacing(events) as made, made.open("wb") as file:
        writer = RecordWriter(file)

        def write(step: int, **value: Any) -> None:
            event = Event(
                wall_time=at.get(step, run.started), step=step, summary=Summary(value=[Summary.Value(**value)])
            )
            writer.write(event.SerializeToString())

        writer.write(Event(wall_time=run.started, file_version="brain.Event:2").SerializeToString())
        for name in list(steps)[1:]:
            for step, figure in zip(steps["step"], steps[name], strict=True):
                if figure is not None:
                    write(step, tag=name, simple_value=figure)
        places = list(zip(rows["step"], rows["layer"], rows["part"], strict=True))
        for name in run.columns:
            for (step, layer, part), figure in zip(places, rows[name].tolist(), strict=True):
                if not math.isnan(figure):
                    write(step, tag=f"{name}/{layer}/{part}", simple_value=figure)
        place_of = {place: number for number, place in enumerate(places)}
        for step in run.histogram_steps:
            for (layer, part), counts in run.histograms(step).items():
                place, size = place_of.get((step, layer, part)), int(counts.sum())
                if place is None or not size:
                    continue  # the row was thinned out meanwhile, or has no finite value
                figures = {name: float(rows[name][place]) for name in run.columns}
                low, high = figures["min"], figures["max"]
                width = (high - low) / len(counts)
                histogram = HistogramProto(
                    min=low,
                    max=high,
                    num=size,
                    sum=size * figures["mean"],
                    sum_squares=figures["norm"] ** 2,
                    bucket_limit=[*(low + (number + 1) * width for number in range(len(counts) - 1)), high],
                    bucket=counts.tolist(),
                )
                write(step, tag=f"histogram/{layer}/{part}", histo=histogram)
        file.flush()


def _missing(extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"the format {extra} needs an optional dependency: pip install 'chainrule[{extra}]'", limit=extra
    )


FORMATS: Mapping[str, Callable[[Run, Path, str], None]] = {
    "csv": lambda run, path, table: write_csv(TABLES[table](run), path),
    "parquet": lambda run, path, table: write_parquet(TABLES[table](run), path),
    "tensorboard": _write_tensorboard,
}
"""The formats, by name."""
