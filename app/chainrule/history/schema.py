"""The tables of a run's file, and SQLite's errors in words.

`chainrule.run/1` is additive: a later version of Chainrule may add tables and columns, but does not change these.
"""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

from chainrule.errors import RunError

SCHEMA = "chainrule.run/1"

TABLES = """
CREATE TABLE run (
    schema TEXT NOT NULL,       -- chainrule.run/1
    spec TEXT,                  -- JSON: the spec of a net of the lab
    model TEXT,                 -- the description of any other model
    environment TEXT NOT NULL,  -- JSON
    rank INTEGER NOT NULL,
    world INTEGER NOT NULL,
    columns TEXT NOT NULL,      -- JSON: the names of the numbers in row.moments
    started REAL NOT NULL,      -- seconds since 1970
    ended TEXT                  -- NULL while the run is written or after a kill; 'complete'; or the exception
);
CREATE TABLE step (step INTEGER PRIMARY KEY, loss, lr, seconds, gradient_norm);
CREATE TABLE tensor (id INTEGER PRIMARY KEY, layer TEXT NOT NULL, part TEXT NOT NULL, UNIQUE (layer, part));
CREATE TABLE row (step INTEGER PRIMARY KEY, tensors BLOB NOT NULL, moments BLOB NOT NULL);
CREATE TABLE histogram (step INTEGER PRIMARY KEY, tensors BLOB NOT NULL, counts BLOB NOT NULL);
CREATE TABLE trace (step INTEGER PRIMARY KEY, dump BLOB NOT NULL);  -- a gzipped graph dump
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    op TEXT,       -- the path of a module or the name of a parameter
    node TEXT,     -- the id of an op in the trace of the step
    batch INTEGER, -- the index of the batch
    good_step INTEGER, -- the last recorded step before it without NaN and Inf
    rng TEXT       -- JSON: device → the state of its generator before the step, in base64
);
"""
"""A blob holds the numbers of all tensors of a step, in the order of `tensors`: ids as little-endian uint32, moments as
float64, counts as uint32. The bins are equally wide, from the tensor's min to its max.
"""

STEP_COLUMNS = ("step", "loss", "lr", "seconds", "gradient_norm")

EVENT_COLUMNS = ("step", "kind", "text", "op", "node", "batch", "good_step")


def to_column(value: float | None) -> float | str | None:
    """A number for SQLite. NaN becomes the text `NaN`, because SQLite would store it as NULL."""
    return "NaN" if value is not None and math.isnan(value) else value


def from_column(value: float | str | None) -> float | None:
    """The number that `to_column` wrote."""
    return None if value is None else float(value)


def run_error(path: Path, error: sqlite3.Error) -> RunError:
    """An error of reading a run, in words."""
    return RunError(f"{path}: {sqlite_words(error, f'run of schema {SCHEMA}')}")


def sqlite_words(error: sqlite3.Error, expected: str) -> str:
    """SQLite's error in words; `expected` is what the file should be."""
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_NOTADB" or (name == "SQLITE_ERROR" and "no such" in str(error)):
        return f"the file is not a {expected}"
    if name.startswith("SQLITE_CORRUPT"):
        return "the file is cut short or damaged"
    if name.startswith("SQLITE_CANTOPEN"):
        return "the file cannot be opened"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process writes the file; wait for it, or choose another name"
    return str(error)
