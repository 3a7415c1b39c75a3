"""Events: the first NaN or Inf, a spike of the loss, an explosion of the gradients, units that died."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

WINDOW = 50
"""Steps that the loss and the gradient norm of a step are compared with."""

LEAST = 10
"""Steps before there is anything to compare with."""

SPIKE = 8
"""A loss above the median by so many median absolute deviations is a spike."""

EXPLOSION = 100
"""A gradient norm of so many medians is an explosion."""

DEAD = 0.5
"""The dead fraction of a layer beyond which its units have died."""


@dataclass(frozen=True, slots=True)
class Event:
    """What went wrong at a step.

    Attributes:
        step: counts the optimizer's steps from 0.
        kind: nonfinite, loss_spike, gradient_explosion or dead_units.
        text: one sentence.
        op: the path of the module or the name of the parameter; None if it is not known.
    """

    step: int
    kind: str
    text: str
    op: str | None = None


class Detector:
    """Compares the figures of a step with those of the last WINDOW steps."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._norms: deque[float] = deque(maxlen=WINDOW)
        self._alive: set[str] = set()
        self._nonfinite: list[Event] = []

    def nonfinite(self, step: int, text: str, op: str | None = None) -> list[Event]:
        """The first NaN or Inf of the run, and the first that has a place; all others follow from it."""
        if self._nonfinite and (op is None or self._nonfinite[-1].op is not None):
            return []
        self._nonfinite.append(Event(step, "nonfinite", text, op))
        return self._nonfinite[-1:]

    def loss(self, step: int, loss: float) -> list[Event]:
        """A spike, beside the steps before; a loss that is not finite is left to `nonfinite`."""
        if not math.isfinite(loss):
            return []
        found = []
        if len(self._losses) >= LEAST:
            median = statistics.median(self._losses)
            deviation = statistics.median(abs(each - median) for each in self._losses)
            if loss > median + SPIKE * deviation and deviation > 0:
                text = (
                    f"the loss is {loss:.4g}; the median of the last {len(self._losses)} steps is {median:.4g}, "
                    f"and their median absolute deviation {deviation:.2g}"
                )
                found.append(Event(step, "loss_spike", text))
        self._losses.append(loss)
        return found

    def gradient_norm(self, step: int, norm: float) -> list[Event]:
        """An explosion, beside the steps before."""
        if not math.isfinite(norm):
            return []
        found = []
        if len(self._norms) >= LEAST:
            median = statistics.median(self._norms)
            if norm > EXPLOSION * median > 0:
                text = (
                    f"the norm of all gradients is {norm:.4g}, {norm / median:.3g} times the median of the last "
                    f"{len(self._norms)} recorded steps"
                )
                found.append(Event(step, "gradient_explosion", text))
        self._norms.append(norm)
        return found

    def dead_fraction(self, step: int, layer: str, fraction: float) -> list[Event]:
        """Units of a layer that have died since an earlier step."""
        if fraction <= DEAD:
            self._alive.add(layer)
        elif layer in self._alive:
            self._alive.discard(layer)
            text = f"{fraction:.0%} of the units of {layer} are dead: they are above 0 for no input of the batch"
            return [Event(step, "dead_units", text, layer)]
        return []
