"""The output of a notebook's cell while a training is watched."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from chainrule.history.picture import to_html
from chainrule.history.summary import Summary
from chainrule.watching.events import Event

logger = logging.getLogger(__name__)

SECONDS = 1.0
"""The shortest time between two pictures."""


class LiveOutput:
    """Curves of the run, drawn in the training's thread at most once a second. The last picture stays in the cell.

    After a picture fails, no other picture is drawn. One warning is logged, and the training continues.

    Args:
        name: the name of the run.
        events: the list to which the training adds its events.
    """

    def __init__(self, name: str, events: Sequence[Event]) -> None:
        self.summary = Summary()
        self._name, self._events = name, events
        self._output: Any = None
        self._is_broken = False
        self._drawn = 0.0
        self._draw()

    def refresh(self) -> None:
        """Draw, unless the last picture is less than SECONDS old."""
        if time.monotonic() - self._drawn >= SECONDS:
            self._draw()

    def close(self, ended: str) -> None:
        """Draw the last picture."""
        self.summary.ended = ended
        self._draw()

    def _draw(self) -> None:
        if self._is_broken:
            return
        self.summary.events = [(event.step, event.kind, event.text) for event in self._events]
        try:
            from IPython.display import display

            data = {"text/html": to_html(self.summary, self._name), "text/plain": f"<run {self._name}>"}
            if self._output is None:
                self._output = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._output.update(data, raw=True)
        except Exception as error:
            self._is_broken = True
            logger.warning("%s: the notebook cannot show the run: %s", self._name, error)
        self._drawn = time.monotonic()
