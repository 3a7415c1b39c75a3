"""Runs in a terminal, while they are written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chainrule.errors import RunError
from chainrule.history.reader import SUFFIX, Run
from chainrule.history.summary import Summary, figure

SECONDS = 1.0
"""The time between two readings of the files."""

SILENT = 60
"""Seconds without a commit after which a run that has not ended is called silent."""

EVENTS = 5
"""Number of the last events that are shown."""

_CELLS = 24
"""Maximum number of characters of a sparkline."""

_WIDTH = 160
"""Width in characters of a table that is not printed to a terminal."""


@dataclass
class _Followed:
    """A run, or the reason why its file cannot be read."""

    path: Path
    summary: Summary = field(default_factory=lambda: Summary(_CELLS))
    error: str | None = None

    def read(self) -> None:
        try:
            self.summary.read(Run(self.path))
            self.error = None
        except RunError as error:
            self.error = error.message.removeprefix(f"{self.path}: ")

    @property
    def state(self) -> str:
        """The error of the file, the way the run ended, or its present state."""
        if self.error is not None:
            return self.error
        if self.summary.ended is not None:
            return self.summary.ended
        silent = time.time() - _written(self.path)
        return "running" if silent < SILENT else f"silent for {silent / 60:.0f} min"


def follow(
    path: Path, console: Console, *, once: bool = False, wait: Callable[[], None] = lambda: time.sleep(SECONDS)
) -> None:
    """Show the run in a file, or all runs in a folder, until all have ended.

    A terminal shows one table that is updated in place. Any other output gets one line per changed run, and per event.

    Args:
        path: the file or the folder; the folder may get more runs later.
        console: the output.
        once: print one table and return.
        wait: called between two readings of the files.

    Raises:
        RunError: the path does not exist, the file cannot be read, or `once` is set and the folder has no runs.
    """
    if not path.is_dir():
        Run(path)
    runs: dict[Path, _Followed] = {}
    lines = _Lines(console)
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not once else None
    with live or contextlib.nullcontext():
        while True:
            for each in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
                runs.setdefault(each, _Followed(each)).read()
            if not path.is_dir() and runs[path].error is not None:
                raise RunError(f"{path}: {runs[path].error}")
            if once and not runs:
                raise RunError(f"{path}: the folder has no runs (files *{SUFFIX})")
            if live is not None:
                live.update(_picture(path, runs), refresh=True)
            elif once:
                console.width = console.width if console.is_terminal else _WIDTH
                console.print(_picture(path, runs))
            else:
                lines.print(runs)
            readable = [each for each in runs.values() if each.error is None]
            if once or (readable and all(each.summary.ended is not None for each in readable)):
                return
            wait()


def _written(path: Path) -> float:
    """The time of the last write to a run, in seconds since 1970."""
    times = []
    for each in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(OSError):
            times.append(each.stat().st_mtime)
    return max(times, default=0.0)


def _picture(path: Path, runs: dict[Path, _Followed]) -> Group | Text:
    if not runs:
        return Text(f"{path} has no runs yet")
    figures = Table("run", box=None, pad_edge=False)
    for name in ("step", "loss"):
        figures.add_column(name, justify="right", no_wrap=True)
    figures.add_column("", no_wrap=True)
    for name in ("lr", "steps/s", "gradient norm"):
        figures.add_column(name, justify="right")
    figures.add_column("state")
    ratios = Table("run", "smallest update : weight", "largest", box=None, pad_edge=False)
    events = Table("run", "step", "event", box=None, pad_edge=False)
    newest = []
    for each in runs.values():
        own, name = each.summary, each.path.stem
        row = [name, str(own.step) if own.step >= 0 else "", figure(own.loss), own.losses.sparkline, figure(own.lr)]
        row += [figure(own.steps_per_second), figure(own.gradient_norm), each.state]
        figures.add_row(*map(Text, row))
        if own.ratios:
            ratios.add_row(*map(Text, (name, _layers(own.smallest), _layers(own.largest))))
        newest += [(event[0], name, event) for event in own.events[-EVENTS:]]
    for step, name, (_, kind, text) in sorted(newest)[-EVENTS:]:
        events.add_row(*map(Text, (name, str(step), f"{kind}: {text}")))
    return Group(*(part for table in (figures, ratios, events) if table.row_count for part in (table, Text())))


def _layers(ratios: list[tuple[str, float]]) -> str:
    return "\n".join(f"{layer}: {ratio:.2g}" for layer, ratio in ratios)


class _Lines:
    """Prints the changes since the last call."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._known: dict[Path, tuple[int, int, str]] = {}

    def print(self, runs: dict[Path, _Followed]) -> None:
        for line in self._changed(runs):
            self._console.print(Text(line), soft_wrap=True)

    def _changed(self, runs: dict[Path, _Followed]) -> Iterator[str]:
        for path, each in runs.items():
            own, name, state = each.summary, path.stem, each.state
            step, count, before = self._known.get(path, (-1, len(own.events) - EVENTS, "running"))
            self._known[path] = (own.step, len(own.events), state)
            if own.step > step:
                named = (("loss", own.loss), ("lr", own.lr), ("steps/s", own.steps_per_second))
                parts = [f"{name}  step {own.step}"]
                parts += [
                    f"{key} {figure(value)}"
                    for key, value in (*named, ("gradient norm", own.gradient_norm))
                    if value is not None
                ]
                if own.ratios:
                    low, high = own.smallest[0], (own.largest or own.smallest[::-1])[0]
                    parts.append(f"update : weight {low[1]:.2g} ({low[0]}) to {high[1]:.2g} ({high[0]})")
                yield "  ".join(parts)
            for at, kind, text in own.events[max(0, count) :]:
                yield f"{name}  step {at}  {kind}: {text}"
            if state != before and not (before.startswith("silent") and state.startswith("silent")):
                yield f"{name}  {state}"
