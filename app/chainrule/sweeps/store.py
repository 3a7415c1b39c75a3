"""The file of a sweep: SQLite with a row per finished cell, so that the same sweep goes on where it stopped."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from chainrule.errors import SweepError
from chainrule.history.schema import from_column, sqlite_words, to_column
from chainrule.sweeps.conduct import Outcome
from chainrule.sweeps.sweep import Grid
from chainrule.sweeps.work import versions

SCHEMA = "chainrule.sweep/1"

TABLES = """
CREATE TABLE sweep (
    schema TEXT NOT NULL,   -- chainrule.sweep/1
    sweep TEXT NOT NULL,    -- JSON: spec or factory, over, seeds, measure
    versions TEXT NOT NULL  -- JSON
);
CREATE TABLE cell (
    id INTEGER PRIMARY KEY,
    value,                  -- a number, or the text NaN; NULL if the cell could not be computed
    reason TEXT             -- why it could not
);
"""


class SweepStore:
    """Writes and reads the file of a sweep. Another process cannot write it at the same time.

    A file of the same sweep is continued; its cells that could not be computed are tried again.

    Raises:
        SweepError: the file is another sweep's, of other versions, no sweep's, damaged, in use, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], sweep: Grid) -> None:
        self.path = Path(path)
        self._sweep = sweep
        try:
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=0, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._refused(error) from None
        try:
            # Kept for the life of the connection: a second writer is refused.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("BEGIN EXCLUSIVE")
            self._begin()
            self._connection.execute("COMMIT")
        except (sqlite3.Error, SweepError) as error:
            self._connection.close()
            raise error if isinstance(error, SweepError) else self._refused(error) from None

    def _begin(self) -> None:
        described = json.dumps(self._sweep.described(), sort_keys=True)
        if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in TABLES.split(";\n")[:2]:
                self._connection.execute(statement)
            row = (SCHEMA, described, json.dumps(dict(versions())))
            self._connection.execute("INSERT INTO sweep VALUES (?, ?, ?)", row)
            return
        schema, kept, of_versions = self._connection.execute("SELECT * FROM sweep").fetchone()
        if schema != SCHEMA:
            raise SweepError(f"{self.path}: schema {schema}; this version of Chainrule reads {SCHEMA}")
        if kept != described:
            differ = [key for key, value in json.loads(kept).items() if value != self._sweep.described()[key]]
            raise SweepError(
                f"{self.path}: the file holds another sweep, with other values of {', '.join(differ)}; choose another "
                "name, or remove the file"
            )
        if json.loads(of_versions) != dict(versions()):
            raise SweepError(
                f"{self.path}: computed with {_listed(json.loads(of_versions))}, and this is "
                f"{_listed(dict(versions()))}; choose another name, or remove the file"
            )
        self._connection.execute("DELETE FROM cell WHERE reason IS NOT NULL")

    def add(self, outcome: Outcome) -> None:
        """Write the cells of an outcome, all or none.

        Raises:
            SweepError: the file cannot be written, for example because the disk is full. It keeps what it has.
        """
        cells = outcome.cells.tolist()
        rows: list[tuple[int, float | str | None, str | None]]
        if outcome.values is None:
            rows = [(cell, None, outcome.failure) for cell in cells]
        else:
            rows = [(cell, to_column(value), None) for cell, value in zip(cells, outcome.values.tolist(), strict=True)]
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO cell VALUES (?, ?, ?)", rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._refused(error) from None

    def read(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64], dict[int, str]]:
        """Which cells are there, their values (NaN elsewhere), and the reasons of those without a value."""
        known = np.zeros(self._sweep.cells, bool)
        values = np.full(self._sweep.cells, np.nan)
        reasons = {}
        for cell, value, reason in self._connection.execute("SELECT * FROM cell"):
            known[cell] = True
            if value is None:
                reasons[cell] = reason
            else:
                values[cell] = from_column(value)
        return known, values, reasons

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refused(self, error: sqlite3.Error) -> SweepError:
        return SweepError(f"{self.path}: {sqlite_words(error, f'sweep of schema {SCHEMA}')}")


def _listed(of_versions: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in of_versions.items())
