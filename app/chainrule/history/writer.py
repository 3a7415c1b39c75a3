"""Writes a run: the training hands over its numbers and continues; a thread commits them within a second.

The tables never take more than `limit` bytes. When they are full, every second old step loses its rows and histograms.
The steps around an event keep them, and so does every row with the smallest or the largest number of its tensor.
"""

from __future__ import annotations

import atexit
import base64
import gzip
import itertools
import json
import logging
import math
import os
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from chainrule.errors import RunError, in_words
from chainrule.history.schema import EVENT_COLUMNS, SCHEMA, TABLES, to_column

logger = logging.getLogger(__name__)

LIMIT = 180_000_000
"""Maximum size of a run's tables in bytes. The file and its log stay below 200 MB."""

MAX_STEPS = 1_000_000
"""Maximum number of steps whose loss is kept."""

COMMIT_SECONDS = 0.5
"""The longest wait for a commit."""

MAX_PENDING = 4_000_000
"""Bytes that wait for a commit. Beyond them the training waits too, so that the file stays below its limit."""

RECORD = 100
"""Bytes of a record without its blobs, about."""

DELETED_AT_ONCE = 500
"""Number of steps whose rows one transaction deletes."""

PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "journal_size_limit = 4000000")

_COMPLETE = "complete"

_Records = list[tuple[str, tuple[Any, ...]]]


class RunWriter:
    """Writes one run into a new file. Any thread may call its methods.

    Use it as a context manager, or call `close`. At the end of the process, waiting data is committed; a killed process
    loses at most the last second. If the disk is full, the writer logs one warning and stops; the training continues.

    Args:
        path: the new file; missing folders are created.
        columns: the names of the numbers in a row.
        spec: the spec of a net of the lab.
        model: the description of any other model.
        environment: versions, device, threads.
        rank: the rank of this process.
        world: the number of processes.
        limit: see LIMIT.

    Attributes:
        failure: the reason why the writer has stopped, or None.

    Raises:
        RunError: the file exists, or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str],
        *,
        spec: Mapping[str, Any] | None = None,
        model: str | None = None,
        environment: Mapping[str, Any] | None = None,
        rank: int = 0,
        world: int = 1,
        limit: int = LIMIT,
    ) -> None:
        self.path = Path(path)
        self.failure: str | None = None
        self._limit = limit
        self._process = os.getpid()
        self._create()
        connection = None
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            # In one transaction, so a reader finds all tables or no table.
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            connection.executescript(f"BEGIN; {TABLES}")
            described = None if spec is None else json.dumps(spec)
            about = (SCHEMA, described, model, json.dumps(environment or {}), rank, world, json.dumps(list(columns)))
            connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", (*about, time.time()))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            self.path.unlink()  # else a second try would find a file that exists
            raise RunError(f"{self.path}: {error}") from None
        self._connection = connection
        self._width = len(columns)
        self._tensors: dict[tuple[str, str], int] = {}
        self._last_tensors: list[tuple[str, str]] = []  # of the last rows, with their ids
        self._last_ids = np.zeros(0, np.intp)
        self._extremes = _Extremes(self._width)
        self._lowest = math.inf, 0  # loss and step
        self._highest = -math.inf, 0
        self._details, self._steps = _Kept(), _Kept()
        self._eventful: list[int] = []
        self._pending: _Records = []
        self._pending_bytes = 0
        self._closed = False
        self._turn = threading.Lock()  # for the connection
        self._change = threading.Lock()  # for the waiting data
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._commit, name="chainrule run", daemon=True)
        self._thread.start()
        atexit.register(self.close, "the process ended")

    def _create(self) -> None:
        """Create the file. If it exists, raise an error, so only one of two writers gets it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            if not self.path.is_file():
                wrong = "is a folder; name a file in it" if self.path.is_dir() else "lies below a file, not in a folder"
                raise RunError(f"{self.path}: the path {wrong}") from None
            raise RunError(
                f"{self.path}: the file exists, and Chainrule never overwrites a run; choose another name, or remove "
                "the file"
            ) from None
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from None

    def add_step(
        self,
        step: int,
        loss: float | None = None,
        lr: float | None = None,
        seconds: float | None = None,
        gradient_norm: float | None = None,
    ) -> None:
        """Write the numbers of a step; a second call for the same step replaces them."""
        figures = (to_column(loss), to_column(lr), to_column(seconds), to_column(gradient_norm))
        with self._change:
            self._steps.add(step)
            if loss is not None and not math.isnan(loss):
                self._lowest = min(self._lowest, (loss, step))
                self._highest = max(self._highest, (loss, step))
        self._add([("INSERT OR REPLACE INTO step VALUES (?, ?, ?, ?, ?)", (step, *figures))])

    def add_rows(
        self,
        step: int,
        tensors: Sequence[tuple[str, str]],
        moments: npt.NDArray[np.float64],
        counts: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        """Write the statistics of a step: for each (layer, part) its moments (width,) and its histogram (bins,)."""
        records: _Records = []
        with self._change:
            if tensors != self._last_tensors:
                known = len(self._tensors)
                numbers = [self._tensors.setdefault(key, len(self._tensors)) for key in tensors]
                new = itertools.islice(self._tensors, known, None)
                records += [("INSERT INTO tensor VALUES (?, ?, ?)", (i, *key)) for i, key in enumerate(new, known)]
                self._last_tensors, self._last_ids = list(tensors), np.array(numbers, np.intp)
            ids = self._last_ids
            self._details.add(step)
            self._extremes.add(step, ids, moments)
        # One record per step for all tensors, because SQLite takes microseconds per record.
        places = ids.astype("<u4").tobytes()
        for name, values in (("row", moments.astype("<f8", copy=False)), ("histogram", counts)):
            if values is not None:
                records.append((f"INSERT OR REPLACE INTO {name} VALUES (?, ?, ?)", (step, places, values.tobytes())))
        self._add(records)

    def add_trace(self, step: int, dump: bytes) -> None:
        """Write the whole trace of a step: a graph dump. Thinning never deletes it."""
        self._add([("INSERT OR REPLACE INTO trace VALUES (?, ?)", (step, gzip.compress(dump, mtime=0)))])

    def remove_trace(self, step: int) -> None:
        """Remove the whole trace of a step, if it has one."""
        self._add([("DELETE FROM trace WHERE step = ?", (step,))])

    def add_event(
        self,
        step: int,
        kind: str,
        text: str,
        op: str | None = None,
        *,
        node: str | None = None,
        batch: int | None = None,
        good_step: int | None = None,
        rng: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write an event; thinning keeps its step and the recorded steps around it.

        `node`: the op in the graph of the step's trace. `good_step`: the last recorded step before this one without NaN
        and Inf. `rng`: device → the state of its generator before the step.
        """
        states = {device: base64.b64encode(state).decode() for device, state in (rng or {}).items()}
        with self._change:
            self._eventful.append(step)
        columns = ", ".join((*EVENT_COLUMNS, "rng"))
        sql = f"INSERT INTO event ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._add([(sql, (step, kind, text, op, node, batch, good_step, json.dumps(states)))])

    def _add(self, records: _Records) -> None:
        with self._change:
            if self._closed:
                raise RunError(f"{self.path}: the run is closed, so nothing can be added")
            if self.failure is not None:
                return
            self._pending += records
            for _, values in records:
                self._pending_bytes += RECORD + sum(len(value) for value in values if isinstance(value, bytes))
            wait = self._pending_bytes <= MAX_PENDING
        if not wait:
            self.flush()

    def flush(self) -> None:
        """Commit all waiting data."""
        if os.getpid() != self._process:
            return  # after a fork: the connection belongs to the parent process
        with self._turn:
            self._write()
            self._thin()

    def _commit(self) -> None:
        """The thread: commits until the run is closed."""
        # Records do not wake this thread, because waking at each step would slow the training down.
        while not self._ending.wait(COMMIT_SECONDS):
            if self._pending:
                self.flush()

    def _write(self) -> None:
        """Commit all waiting data. The caller holds `_turn`."""
        with self._change:
            records, self._pending, self._pending_bytes = self._pending, [], 0
        if records:
            self._transact(records)

    def _transact(self, records: _Records) -> None:
        """Commit records. After an error, log one warning and write no more; the file stays as it was."""
        if self.failure is not None:
            return
        try:
            self._connection.execute("BEGIN")
            try:
                for sql, group in itertools.groupby(records, itemgetter(0)):
                    self._connection.executemany(sql, map(itemgetter(1), group))
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.failure = str(error)
            logger.warning("%s: %s; the training continues, but the rest of the run is not written", self.path, error)

    def _thin(self) -> None:
        """If the tables are too large, delete the rows of every second old step. The caller holds `_turn`."""
        if self.failure is not None or self._size() <= self._limit:
            return
        with self._change:
            kept = self._extremes.steps()
            doomed = self._details.halve({near for each in self._eventful for near in self._details.around(each)})
            forgotten = self._steps.halve({*self._eventful, self._lowest[1], self._highest[1]}, MAX_STEPS)
            # A row that is an extreme now may not be one at the next thinning.
            self._details.put_back([step for step in doomed if step in kept])
        for start in range(0, len(doomed), DELETED_AT_ONCE):
            records: _Records = []
            for step in doomed[start : start + DELETED_AT_ONCE]:
                records += self._only(step, kept.get(step, set()))
            self._transact(records)
            self._write()
        self._transact([("DELETE FROM step WHERE step = ?", (step,)) for step in forgotten])

    def _only(self, step: int, spared: set[int]) -> _Records:
        """Records that delete the rows and histograms of a step, except those of the spared tensors."""
        records: _Records = []
        for table, column in (("row", "moments"), ("histogram", "counts")):
            found = None
            if spared:
                sql = f"SELECT tensors, {column} FROM {table} WHERE step = ?"
                found = self._connection.execute(sql, (step,)).fetchone()
            if found is None:
                records.append((f"DELETE FROM {table} WHERE step = ?", (step,)))
            else:
                tensors = np.frombuffer(found[0], "<u4")
                is_spared = np.isin(tensors, list(spared))
                values = np.frombuffer(found[1], np.uint8).reshape(len(tensors), -1)[is_spared]
                sql = f"UPDATE {table} SET tensors = ?, {column} = ? WHERE step = ?"
                records.append((sql, (tensors[is_spared].tobytes(), values.tobytes(), step)))
        return records

    def _size(self) -> int:
        """The size of the tables in bytes: the file without its free pages."""
        asked = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked)
        return int((pages - free) * size)

    def close(self, ended: str = _COMPLETE) -> None:
        """Commit all waiting data and how the run ended. The run is then one file. A second call does nothing."""
        if os.getpid() != self._process:
            return
        with self._change:
            if self._closed:
                return
            self._closed = True
            self._pending.append(("UPDATE run SET ended = ?", (ended,)))
        self._ending.set()
        atexit.unregister(self.close)
        self._thread.join()
        self.flush()
        try:
            if self.failure is None:
                # Without its log the file can be copied, and can be read in a read-only folder.
                self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            pass  # another process reads the file, so its log stays
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(_COMPLETE if error is None else in_words(error))


class _Extremes:
    """For each tensor and column, the steps with the smallest and the largest number."""

    def __init__(self, width: int) -> None:
        self._best = np.full((2, 0, width), -math.inf)  # of the negated numbers, and of the numbers
        self._at = np.full((2, 0, width), -1, np.int64)

    def add(self, step: int, ids: npt.NDArray[np.intp], moments: npt.NDArray[np.float64]) -> None:
        missing = int(ids.max(initial=-1)) + 1 - self._best.shape[1]
        if missing > 0:
            missing = max(missing, self._best.shape[1])
            more = ((0, 0), (0, missing), (0, 0))
            self._best = np.pad(self._best, more, constant_values=-math.inf)
            self._at = np.pad(self._at, more, constant_values=-1)
        # Most often the ids are 0, 1, …; a slice makes no copy.
        of_ids = slice(len(ids)) if np.array_equal(ids, np.arange(len(ids))) else ids
        figures = np.stack((-moments, moments))
        sides, rows, columns = np.nonzero(figures > self._best[:, of_ids])  # never for NaN
        places = sides, ids[rows], columns
        self._best[places] = figures[sides, rows, columns]
        self._at[places] = step

    def steps(self) -> dict[int, set[int]]:
        """Step → the tensors that have an extreme at this step."""
        found: dict[int, set[int]] = {}
        for _, tensor, column in zip(*np.nonzero(self._at >= 0), strict=True):
            for step in self._at[:, tensor, column].tolist():
                found.setdefault(step, set()).add(int(tensor))
        return found


class _Kept:
    """The steps of a table in order. Each keeps the number that it got when it was added."""

    def __init__(self) -> None:
        self._numbered: dict[int, int] = {}
        self._count = 0
        self._stride = 1

    def add(self, step: int) -> None:
        if step not in self._numbered:
            self._numbered[step] = self._count
            self._count += 1

    def put_back(self, steps: Sequence[int]) -> None:
        """Keep steps that `halve` has removed, until its next call."""
        for step in steps:
            self._numbered[step] = 1  # an odd number

    def around(self, step: int) -> list[int]:
        """The nearest steps: at or before `step`, and after it."""
        steps = sorted(self._numbered)
        place = bisect_right(steps, step)
        return steps[max(place - 1, 0) : place + 1]

    def halve(self, spared: Collection[int], most: int = 0) -> list[int]:
        """If there are more than `most` steps, keep the newest quarter, and every 2nd, 4th, … until half are left.

        Returns the others.
        """
        if len(self._numbered) <= most:
            return []
        numbers = np.array(list(self._numbered.values()))
        while self._stride < self._count and np.count_nonzero(numbers % self._stride == 0) > len(numbers) / 2:
            self._stride *= 2
        # The steps since the last call are dense, and the older ones may already be sparse.
        kept = {*spared, *sorted(self._numbered)[-len(self._numbered) // 4 :]}
        removed = [step for step, number in self._numbered.items() if number % self._stride and step not in kept]
        for step in removed:
            del self._numbered[step]
        return removed
