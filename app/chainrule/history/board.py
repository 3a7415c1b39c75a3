"""A folder of runs for the live page: only the changes since its last request, thinned to what it can draw."""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.errors import NotFoundError, RunError
from chainrule.history.reader import SUFFIX, Run

MAX_RUNS = 500
"""Maximum number of runs in the list; the ones written last are listed."""

MAX_POINTS = 2000
"""Maximum number of steps in one answer."""

MAX_COLUMNS = 500
"""Maximum number of steps of a table of layers in one answer."""

MAX_CELLS = 100_000
"""Maximum number of values of a table of layers in one answer."""

MAX_EVENTS = 500
"""Maximum number of events in one answer; it has the first ones."""

RATIO = "ratio"
"""One more statistic of the part `update`: the norm of the update ÷ the norm of the weight."""

_EXTREMES = ("loss", "gradient_norm")

MOMENTS = ("mean", "std", "min", "max", "norm")
"""The statistics of the finite elements of a tensor."""

ALMOST_ALL = 0.8
"""Share of the tensors of a step that thinning has not touched. A layer may be missing because no pass called it."""

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Steps = npt.NDArray[np.int64]


class Board:
    """The runs of a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, dict[str, Any]] = {}

    def listing(self) -> list[dict[str, Any]]:
        """One entry per file, in the order of the start: the run and its progress, or the `error` of reading it.

        The `state` of an entry changes whenever its file changes.
        """
        written = {path: _times(path) for path in self.folder.glob(f"*{SUFFIX}")}
        newest = sorted(written, key=lambda path: written[path], reverse=True)[:MAX_RUNS]
        known = self._known
        self._known = {path: self._entry(path, written[path], known.get(path)) for path in newest}
        return sorted(self._known.values(), key=lambda entry: (entry["started"] or math.inf, entry["name"]))

    def _entry(self, path: Path, written: tuple[float, ...], known: dict[str, Any] | None) -> dict[str, Any]:
        state = hashlib.blake2b(repr(written).encode(), digest_size=8).hexdigest()
        # An error may be temporary, so such a file is read again.
        if known is not None and known["state"] == state and known["error"] is None:
            return known
        about: dict[str, Any] = dict.fromkeys(("started", "ended", "step", "loss", "diverged", "spec", "model"))
        about |= {"name": path.stem, "state": state, "written": written[0], "events": 0, "error": None}
        try:
            run = Run(path)
            about |= {"started": run.started, "spec": run.spec, "model": run.model, **run.progress()}
        except RunError as error:
            about["error"] = error.message.removeprefix(f"{path}: ")
        return about

    def find(self, name: str) -> Run:
        """The run with this name. The name is compared with the files, so it cannot lead out of the folder.

        Raises:
            NotFoundError: the folder has no such run.
            RunError: the file of the run cannot be read.
        """
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.stem == name:
                return Run(path)
        raise NotFoundError(f"run: the folder has no run {name[:80]!r}", field="run")


def _times(path: Path) -> tuple[float, ...]:
    """The time of the last write to a run, and numbers that change with each commit."""
    times, sizes = [0.0], []
    for each in (path, path.with_name(f"{path.name}-wal")):
        try:
            state = each.stat()
        except OSError:
            continue
        times.append(state.st_mtime)
        sizes += [state.st_mtime_ns, state.st_size]
    return (max(times), *sizes)


def steps_after(run: Run, after: int) -> dict[str, list[Any]]:
    """The steps after a step, at most MAX_POINTS: with the extremes, and with the first NaN or Inf of each piece."""
    columns = run.step_columns(after)
    if len(columns["step"]) <= MAX_POINTS:
        return columns
    kept = {0, len(columns["step"]) - 1}
    # Each piece contributes its smallest, its largest and its first non-finite value.
    pieces = (MAX_POINTS - len(kept)) // (3 * len(_EXTREMES))
    for name in _EXTREMES:
        kept |= _extremes(columns[name], pieces)
    return {name: [values[place] for place in sorted(kept)] for name, values in columns.items()}


def _extremes(figures: list[float | None], pieces: int) -> set[int]:
    """Indices of the smallest, the largest and the first non-finite value of each piece."""
    values = np.array(figures, np.float64)  # None is NaN
    finite = np.isfinite(values)
    strange = ~finite & np.array([figure is not None for figure in figures])
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    bounds = np.linspace(0, len(values), pieces + 1).astype(int).tolist()
    kept: set[int] = set()
    for first, end in pairwise(bounds):
        kept |= {first + int(low[first:end].argmin()), first + int(high[first:end].argmax())}
        kept |= {first + int(place) for place in np.flatnonzero(strange[first:end])[:1]}
    return kept


def table_after(
    run: Run, part: str, statistic: str, after: int
) -> tuple[list[int], list[str], list[list[float | None]]]:
    """A statistic of a part after a step: steps, layers, and values (steps, layers), where None means not known.

    MOMENTS of a tensor with NaN or Inf are NaN or Inf. A step that thinning has cut is left out; those of its values
    that differ more from the others take the place of those of the step before. If there are too many steps, the ones
    that differ most from the others stay. So the values contain the extremes.

    Raises:
        NotFoundError: the run has no such part, or no such statistic.
    """
    parts = run.parts
    if part not in parts:
        message = f"part: the run has no part {part[:80]!r}; its parts are {', '.join(parts)}"
        raise NotFoundError(message, field="part", limit=list(parts))
    statistics = [*run.columns, *([RATIO] if part == "update" else [])]
    if statistic not in statistics:
        message = f"statistic: {part} has no statistic {statistic[:80]!r}; its statistics are {', '.join(statistics)}"
        raise NotFoundError(message, field="statistic", limit=statistics)
    layers = parts[part]
    name = "norm" if statistic == RATIO else statistic
    steps, values, known = _table(run, part, name, after, layers)
    if statistic == RATIO:
        weight_steps, weights, weights_known = _table(run, "weight", name, after, layers)
        _, own, other = np.intersect1d(steps, weight_steps, return_indices=True)
        steps, values, weights = steps[own], values[own], weights[other]
        known = known[own] & weights_known[other] & ~((values == 0) & (weights == 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = values / np.where(np.isinf(weights), np.nan, weights)
    if len(steps):
        counts = run.row_counts(after)  # thinning may have removed a step meanwhile
        of_steps = np.array([counts.get(step, 0) for step in steps.tolist()])
        of_steps[np.isin(steps, run.event_columns()["step"])] = of_steps.max()  # thinning leaves these whole
        steps, values, known = _without_cut(steps, values, known, of_steps)
    most = max(2, min(MAX_COLUMNS, MAX_CELLS // max(1, len(layers))))
    if len(steps) > most:
        places = _outstanding(_scores(values, known).max(1), most)
        steps, values, known = steps[places], values[places], known[places]
    cells = values.astype(object)
    cells[~known] = None
    return steps.tolist(), layers, cells.tolist()


def _table(run: Run, part: str, statistic: str, after: int, layers: list[str]) -> tuple[Steps, FloatArray, BoolArray]:
    """Steps, values (steps, layers), and which of them are known."""
    rows = run.row_columns(part=part, after=after)
    figures, known = rows[statistic].copy(), ~np.isnan(rows[statistic])
    if statistic in MOMENTS:
        for name, value in (("posinf", math.inf), ("neginf", math.inf), ("nan", math.nan)):
            if name in run.columns:
                figures[rows[name] > 0] = value
                known |= rows[name] > 0
    steps, at = np.unique(np.array(rows["step"], np.int64), return_inverse=True)
    place = {layer: index for index, layer in enumerate(layers)}
    # The run may have got a new layer after `layers` was read.
    listed = np.array([layer in place for layer in rows["layer"]], bool)
    places = at[listed], [place[layer] for layer in rows["layer"] if layer in place]
    values, is_known = np.full((len(steps), len(layers)), np.nan), np.zeros((len(steps), len(layers)), bool)
    values[places], is_known[places] = figures[listed], known[listed]
    return steps, values, is_known


def _scores(values: FloatArray, known: BoolArray) -> FloatArray:
    """The distance of each value from its column's mean, relative to the column's spread; inf for NaN and Inf."""
    finite = np.isfinite(values)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(finite, values, 0).sum(0) / np.maximum(1, finite.sum(0))
        spread = np.where(finite, values, -np.inf).max(0) - np.where(finite, values, np.inf).min(0)
        distance = np.abs(values - mean) / np.where((spread > 0) & (spread < np.inf), spread, 1)
    return np.where(finite, distance, np.where(known, np.inf, -1))


def _without_cut(
    steps: Steps, values: FloatArray, known: BoolArray, counts: Steps
) -> tuple[Steps, FloatArray, BoolArray]:
    """The steps without those that have fewer tensors than one before and one after them: thinning has cut these.

    Of them, a value with a higher score takes the place of that at the step before. `counts`: tensors of each step.
    """
    before, after = np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1]
    whole = np.flatnonzero(counts >= ALMOST_ALL * np.minimum(before, after))  # has the first step
    scores = _scores(values, known)
    column = np.repeat(np.arange(len(whole)), np.diff([*whole, len(steps)]))
    # Backwards, so that of equal scores the first stays.
    at, layer = (each[::-1] for each in np.nonzero(scores == np.maximum.reduceat(scores, whole)[column]))
    joined = values[whole]
    joined[column[at], layer] = values[at, layer]
    return steps[whole], joined, np.logical_or.reduceat(known, whole)


def _outstanding(scores: FloatArray, most: int) -> npt.NDArray[np.int64]:
    """Indices of `most` rows: from each piece the one with the highest score."""
    bounds = np.linspace(0, len(scores), most + 1).astype(int).tolist()
    return np.array([first + int(scores[first:end].argmax()) for first, end in pairwise(bounds)], np.int64)
