"""The events of a training in the lab."""

from __future__ import annotations

import math

from chainrule.build import Training
from chainrule.trace import Trace
from chainrule.watching.events import Detector, Event
from chainrule.watching.statistics import LEAST_BATCH


class TrainingEvents:
    """Compares each update of a training with the updates before it."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._detector = Detector()
        self._found: list[Event] = []
        self._next = 0

    def between(self, first: int, end: int) -> list[Event]:
        """The events of the updates first … end − 1, which the training has made."""
        for step in range(self._next, end):
            self._found += self._of_update(step)
            self._next = step + 1
        return [event for event in self._found if first <= event.step < end]

    def of_pass(self, step: int, loss: float) -> list[Event]:
        """The events of a pass whose update is not made."""
        found = [] if math.isfinite(loss) else self._detector.nonfinite(step, "the loss is NaN or Inf")
        return [*found, *self._detector.loss(step, loss)]

    def _of_update(self, step: int) -> list[Event]:
        layers = self.training.model.layers
        loss, norm, *norms = self.training.rows[step].tolist()
        weights, updates = (
            dict(zip((layer.name for layer in layers), norms[start : start + len(layers)], strict=True))
            for start in (0, 2 * len(layers))
        )
        found = self.of_pass(step, loss)
        if math.isfinite(loss) and not math.isfinite(norm):
            found += self._detector.nonfinite(step, "a gradient contains NaN or Inf")
        return [
            *found,
            *self._detector.gradient_norm(step, norm),
            *self._detector.update(step, self.training.spec.lr, updates, weights),
        ]

    def dead_units(self, step: int, trace: Trace) -> list[Event]:
        """The layers whose units have died before the pass of this trace and were alive in an earlier one."""
        if self.training.spec.batch < LEAST_BATCH:
            return []
        found = []
        for layer in trace.layers:
            fraction = None if layer.activation is None else trace.statistics[layer.activation].dead_fraction
            if fraction is not None:
                found += self._detector.dead_fraction(step, layer.name, fraction)
        return found
