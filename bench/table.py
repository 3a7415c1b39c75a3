"""The figures as one table: a grid of sections, and beneath each what its rows mean."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 118
LABEL = 34
COLUMN = 12


@dataclass(frozen=True)
class Section:
    """`rows` are a label and a cell for each column; a missing figure is an empty cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str] = ()


def render(sections: Sequence[Section]) -> str:
    """The table as text, no line wider than WIDTH."""
    lines = []
    for section in sections:
        lines += ["", _line(section.title, section.columns)]
        lines += [_line(label, cells) for label, cells in section.rows]
        for note in section.notes:
            lines += textwrap.wrap(note, WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def _line(label: str, cells: Sequence[str]) -> str:
    return f"{label:{LABEL}}" + "".join(f"{cell:>{COLUMN}}" for cell in cells)


def times(value: object, digits: int = 2) -> str:
    """A ratio with its sign, three significant digits at most: 1.87×, 45.1×, 112×."""
    if not isinstance(value, (int, float)):
        return ""
    return f"{value:.{max(0, digits - (abs(value) >= 10) - (abs(value) >= 100))}f}×"


def number(value: object, digits: int = 2) -> str:
    """A figure as text; empty if it is missing."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else ""
