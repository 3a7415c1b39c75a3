"""Reads runs, also while they are written."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
import sqlite3
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from chainrule.errors import RunError
from chainrule.history.schema import EVENT_COLUMNS, SCHEMA, STEP_COLUMNS, from_column, run_error

SUFFIX = ".run"
"""The suffix of the files that `runs` finds in a folder."""

FINITE = "typeof(loss) IN ('real', 'integer') AND abs(loss) <= 1.7976931348623157e308"

PROGRESS = f"""
SELECT ended, (SELECT max(step) FROM step),
    (SELECT loss FROM step WHERE loss IS NOT NULL ORDER BY step DESC LIMIT 1),
    (SELECT min(step) FROM step WHERE loss IS NOT NULL
        AND step > COALESCE((SELECT step FROM step WHERE {FINITE} ORDER BY step DESC LIMIT 1), -1)),
    (SELECT count(*) FROM event)
FROM run
"""

DAMAGED = (ValueError, KeyError, TypeError, EOFError, zlib.error, gzip.BadGzipFile)
"""Errors of reading values that are not those that were written: SQLite does not check them."""

Columns = Mapping[str, Sequence[Any]]
"""A table: the values of each column."""


class Run:
    """A run in a file. Each call reads the file again, so it sees all data that has been committed until then.

    Attributes:
        name: the file's name without its suffix.
        spec: the spec of a net of the lab, or None.
        model: the description of any other model, or None.
        environment: versions, device, threads.
        rank: the rank of the process that wrote the run.
        world: the number of processes.
        columns: the names of the numbers in a row.
        started: the time of the start, in seconds since 1970.

    Raises:
        RunError: the file is not a run, is of another version, or is cut short or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = self.path.stem
        with self._connected() as connection:
            (schema,) = connection.execute("SELECT schema FROM run").fetchone() or (None,)
            if schema != SCHEMA:
                raise RunError(f"{self.path}: the file has schema {schema}; this version of Chainrule reads {SCHEMA}")
            pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            spec, self.model, environment, self.rank, self.world, columns, started = connection.execute(
                "SELECT spec, model, environment, rank, world, columns, started FROM run"
            ).fetchone()
            self.spec: Mapping[str, Any] | None = None if spec is None else json.loads(spec)
            self.environment: Mapping[str, Any] = json.loads(environment)
            self.columns: tuple[str, ...] = tuple(json.loads(columns))
            self.started = float(started)
        if self.path.stat().st_size < pages * size and not self._has_log():
            raise RunError(f"{self.path}: the file is cut short or damaged")

    def _has_log(self) -> bool:
        log = self.path.with_name(f"{self.path.name}-wal")
        return log.exists() and log.stat().st_size > 0

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise RunError(f"{self.path}: file not found")
        try:
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise run_error(self.path, error) from None
        except DAMAGED:
            raise RunError(f"{self.path}: the file is cut short or damaged") from None

    @property
    def ended(self) -> str | None:
        """None while the run is written and after a kill; `complete`; or the exception that ended the run."""
        with self._connected() as connection:
            ended: str | None = connection.execute("SELECT ended FROM run").fetchone()[0]
        return ended

    def progress(self) -> dict[str, Any]:
        """The progress: `ended`, the last `step` and `loss`, the number of `events`, and the step where it `diverged`.

        A run diverged at its first NaN or Inf loss that no finite loss follows. A value that is not known is None.
        """
        with self._connected() as connection:
            ended, step, loss, diverged, events = connection.execute(PROGRESS).fetchone()
            return {"ended": ended, "step": step, "loss": from_column(loss), "diverged": diverged, "events": events}

    def step_columns(self, after: int = -1) -> dict[str, list[Any]]:
        """The steps after a step: loss, learning rate, seconds and norm of all gradients; None means not known."""
        with self._connected() as connection:
            found = connection.execute(
                f"SELECT {', '.join(STEP_COLUMNS)} FROM step WHERE step > ? ORDER BY step", (after,)
            ).fetchall()
            steps, *figures = zip(*found, strict=True) if found else ((),) * len(STEP_COLUMNS)
            numbers = ([from_column(value) for value in each] for each in figures)
            return dict(zip(STEP_COLUMNS, (list(steps), *numbers), strict=True))

    def event_columns(self) -> dict[str, list[Any]]:
        """The events, in the order of their steps."""
        with self._connected() as connection:
            found = connection.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM event ORDER BY step, id").fetchall()
        columns = zip(*found, strict=True) if found else ((),) * len(EVENT_COLUMNS)
        return {name: list(values) for name, values in zip(EVENT_COLUMNS, columns, strict=True)}

    def row_columns(self, layer: str | None = None, part: str | None = None, after: int = -1) -> dict[str, Any]:
        """The rows of the steps after a step, for all layers and parts or for one of them.

        The keys are step, layer and part, with a list each, and the names in `columns`, with a float64 array each.
        """
        with self._connected() as connection:
            names = {place: key for place, *key in connection.execute("SELECT * FROM tensor")}
            sql = "SELECT step, tensors, moments FROM row WHERE step > ? ORDER BY step"
            found = connection.execute(sql, (after,)).fetchall()
            steps, tensors, blobs = zip(*found, strict=True) if found else ((), (), ())
            ids = np.frombuffer(b"".join(tensors), "<u4")
            at = np.repeat(np.array(steps, np.int64), [len(each) // ids.itemsize for each in tensors])
            moments = np.frombuffer(b"".join(blobs), "<f8").reshape(len(ids), len(self.columns))
            if layer is not None or part is not None:
                wanted = [place for place, key in names.items() if layer in (None, key[0]) and part in (None, key[1])]
                is_wanted = np.isin(ids, wanted)
                ids, at, moments = ids[is_wanted], at[is_wanted], moments[is_wanted]
            keys = [names[place] for place in ids.tolist()]
            figures = {name: moments[:, place] for place, name in enumerate(self.columns)}
        return {"step": at.tolist(), "layer": [key[0] for key in keys], "part": [key[1] for key in keys], **figures}

    def row_counts(self, after: int = -1) -> dict[int, int]:
        """Step → the number of its rows, for the steps after a step."""
        with self._connected() as connection:
            return dict(connection.execute("SELECT step, length(tensors) / 4 FROM row WHERE step > ?", (after,)))

    @property
    def parts(self) -> dict[str, list[str]]:
        """Part → its layers, in the order of the pass."""
        parts: dict[str, list[str]] = {}
        with self._connected() as connection:
            for layer, part in connection.execute("SELECT layer, part FROM tensor ORDER BY id"):
                parts.setdefault(part, []).append(layer)
        return parts

    def histograms(self, step: int) -> dict[tuple[str, str], npt.NDArray[np.uint32]]:
        """(layer, part) → the counts of equally wide bins from the row's min to its max; empty if the step has none."""
        with self._connected() as connection:
            names = {place: (layer, part) for place, layer, part in connection.execute("SELECT * FROM tensor")}
            found = connection.execute("SELECT tensors, counts FROM histogram WHERE step = ?", (step,)).fetchone()
            if found is None:
                return {}
            ids = np.frombuffer(found[0], "<u4").tolist()
            return {
                names[place]: counts
                for place, counts in zip(ids, np.frombuffer(found[1], "<u4").reshape(len(ids), -1), strict=True)
            }

    @property
    def histogram_steps(self) -> list[int]:
        """The steps that have histograms."""
        with self._connected() as connection:
            return [step for (step,) in connection.execute("SELECT step FROM histogram ORDER BY step")]

    @property
    def recorded_steps(self) -> list[int]:
        """The steps that have rows."""
        with self._connected() as connection:
            return [step for (step,) in connection.execute("SELECT step FROM row ORDER BY step")]

    @property
    def trace_steps(self) -> list[int]:
        """The steps that have a whole trace."""
        with self._connected() as connection:
            return [step for (step,) in connection.execute("SELECT step FROM trace ORDER BY step")]

    def trace(self, step: int) -> bytes:
        """The graph dump of a step.

        Raises:
            RunError: the step has no trace.
        """
        with self._connected() as connection:
            found = connection.execute("SELECT dump FROM trace WHERE step = ?", (step,)).fetchone()
            if found is not None:
                return gzip.decompress(found[0])
        steps = ", ".join(map(str, self.trace_steps)) or "none"
        raise RunError(f"{self.path}: step {step} has no trace; the steps with a trace are {steps}")

    def rng_states(self, step: int) -> dict[str, bytes]:
        """Device → the state of torch's generator before the step of an event; empty for other steps."""
        with self._connected() as connection:
            found = connection.execute("SELECT rng FROM event WHERE step = ?", (step,)).fetchone()
            return {device: base64.b64decode(state) for device, state in json.loads(found[0]).items()} if found else {}

    @property
    def steps(self) -> Any:
        """The steps as a DataFrame if pandas is installed, else as a list of dicts."""
        return as_table(self.step_columns())

    @property
    def rows(self) -> Any:
        """The statistics per step, layer and part as a DataFrame if pandas is installed, else as a list of dicts."""
        return as_table(self.row_columns())

    @property
    def events(self) -> Any:
        """The events as a DataFrame if pandas is installed, else as a list of dicts."""
        return as_table(self.event_columns())

    def _repr_html_(self) -> str:
        """A notebook cell's output: the curves of the run, and its last events."""
        from chainrule.history.picture import to_html
        from chainrule.history.summary import Summary

        summary = Summary()
        summary.read(self, all_rows=True)
        return to_html(summary, self.name)


class Runs(Sequence[Run]):
    """Runs in the order of their start. `steps`, `rows` and `events` join the tables, with the column `run`."""

    def __init__(self, found: Sequence[Run]) -> None:
        self._runs = sorted(found, key=lambda run: run.started)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return self._runs[index]

    @property
    def steps(self) -> Any:
        """The steps of all runs, as in `Run.steps`."""
        return as_table(self._joined([run.step_columns() for run in self]))

    @property
    def rows(self) -> Any:
        """The rows of all runs, as in `Run.rows`; a number that a run does not have is NaN."""
        return as_table(self._joined([run.row_columns() for run in self]))

    @property
    def events(self) -> Any:
        """The events of all runs, as in `Run.events`."""
        return as_table(self._joined([run.event_columns() for run in self]))

    def _joined(self, tables: list[dict[str, Any]]) -> Columns:
        names = dict.fromkeys(name for table in tables for name in table)
        sizes = [len(table["step"]) for table in tables]
        joined: dict[str, list[Any]] = {
            "run": [run.name for run, size in zip(self, sizes, strict=True) for _ in range(size)]
        }
        for name in names:
            columns = (table.get(name, [np.nan] * size) for table, size in zip(tables, sizes, strict=True))
            joined[name] = [value for column in columns for value in _plain(column)]
        return joined


def runs(path: str | os.PathLike[str]) -> Runs:
    """The run in a file, or all runs in a folder: the files `*.run`. Warns of a file in a folder that it cannot read.

    Raises:
        RunError: the file is not a run, is of another version, or is cut short or damaged.
    """
    path = Path(path)
    if not path.is_dir():
        return Runs([Run(path)])
    found = []
    for each in sorted(path.glob(f"*{SUFFIX}")):
        try:
            found.append(Run(each))
        except RunError as error:
            warnings.warn(error.message, stacklevel=2)
    return Runs(found)


def as_table(columns: Columns) -> Any:
    """A DataFrame if pandas is installed, else a list of dicts."""
    if importlib.util.find_spec("pandas") is not None:
        from pandas import DataFrame

        return DataFrame(columns)
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*map(_plain, columns.values()), strict=True)]


def _plain(values: Any) -> Sequence[Any]:
    """A column as a list of Python values."""
    plain: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    return plain
