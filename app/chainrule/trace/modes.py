"""torch's stacks of modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def remove_mode(mode: object, length: Callable[[], int], pop: Callable[[], Any], push: Callable[[Any], Any]) -> None:
    """Remove a mode from a stack, also from below modes that were entered after it."""
    above = []
    while length():
        top = pop()
        if top is mode:
            break
        above.append(top)
    for each in reversed(above):
        push(each)
