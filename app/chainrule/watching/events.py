"""Events: numbers of a step that show that it went wrong."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

WINDOW = 50
"""Number of previous steps with which the loss and the gradient norm of a step are compared."""

LEAST = 10
"""Number of previous steps that a comparison needs."""

LEAST_NORMS = 5
"""Number of previous norms of gradients that a comparison needs: with `every=10`, they are of 50 steps."""

SPIKE = 8
"""A loss is a spike if it is this many median absolute deviations above the median, and also SHARE above it. For
positive losses, its logarithm must also lie as many typical changes within LAG steps above the last 10 and 20: healthy
losses of few examples, or with heavy tails, often are several times their median. Changes are small in a steady
descent, where deviations from the median are not.
"""

LAG = 4

SHARE = 0.1
"""A spike is also this share above the median. Without this, tiny changes of the loss on a plateau were spikes."""

EXPLOSION = 100
"""A gradient norm, or a ratio of update to weight, is an explosion if it is this many times its median."""

GROWTH = 10
"""A gradient norm is an explosion only if it is also this many times the first ones: at the end of a training gradients
are tiny, and a single hard example makes them 100 times as large."""

TINY = 1e-6
"""A loss below this share of the first losses is rounding, however much it jumps."""

LEAP = 10
"""A learning rate of more than this factor times all earlier ones is an event. A warm restart is not."""

DEAD = 0.5
"""A layer has died if more than this fraction of its units are dead. It is alive again at half of this fraction."""


@dataclass(frozen=True, slots=True)
class Event:
    """A step that went wrong.

    Attributes:
        step: the number of the step; the first step of the training is 0.
        kind: one of the keys of KINDS.
        text: one sentence.
        op: the path of the module or the name of the parameter; None if it is not known.
        node: the id of the op in the graph of the step's trace, if the step was run again.
        batch: the index of the batch that was given to `loss`; without one, the step.
        good_step: the last recorded step before this one without NaN and Inf.
        rng_states: device → the state of torch's generator at the beginning of the step.
    """

    step: int
    kind: str
    text: str
    op: str | None = None
    node: str | None = None
    batch: int | None = None
    good_step: int | None = None
    rng_states: Mapping[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)


KINDS = {
    "nonfinite": "the first NaN or Inf",
    "overflow": "a step that the GradScaler skips",
    "stale_gradients": "gradients that were not set to zero",
    "loss_spike": "a loss far above the previous losses",
    "gradient_explosion": "gradients far above the previous gradients",
    "update_spike": "an update or a learning rate far above the previous one",
    "dead_units": "units that have died",
}
"""The kinds of events."""

HARMLESS = frozenset({"overflow"})
"""Kinds that neither stop a training nor warn, because a GradScaler tries such steps on purpose."""


class _Episode:
    """Joins figures that are too high within WINDOW places, unless one is EXPLOSION times as high as the first.

    A place is the number of a step, or of a recorded step if only these have the figure.
    """

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None  # the last place, and the figure that was reported

    def begins(self, place: int, figure: float) -> bool:
        """Whether this figure is the first one of an episode, and is to be reported."""
        last, self._last = self._last, (place, figure)
        if last is None or place - last[0] > WINDOW or figure > EXPLOSION * last[1]:
            return True
        self._last = place, last[1]
        return False


class _Norms:
    """The last norms of one kind, and the first ones."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=WINDOW)
        self._first: list[float] = []

    def add(self, norm: float | None) -> tuple[float, int]:
        """The norm ÷ its median if it is an explosion, else 0; and the number of norms with which it is compared."""
        if norm is None or not math.isfinite(norm):
            return 0, 0
        count, ratio = len(self._last), 0.0
        if count >= LEAST_NORMS and norm > GROWTH * statistics.median(self._first):
            median = statistics.median(self._last)
            ratio = norm / median if norm > EXPLOSION * median > 0 else 0
        self._last.append(norm)
        if len(self._first) < LEAST_NORMS:
            self._first.append(norm)
        return ratio, count


class Detector:
    """Compares the numbers of a step with the numbers of the last WINDOW steps."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._spikes, self._explosions, self._leaps = _Episode(), _Episode(), _Episode()
        self._first_losses: list[float] = []
        self._norms, self._output_norms = _Norms(), _Norms()
        self._with_norm, self._with_ratio = 0, 0  # numbers of steps that had them
        self._is_dead: dict[str, bool] = {}
        self._nonfinite: list[Event] = []
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._ratio_of: Mapping[str, float] = {}
        self._lr, self._highest_lr, self._updates = 0.0, 0.0, 0

    def nonfinite(self, step: int, text: str, op: str | None = None) -> list[Event]:
        """The first NaN or Inf of the run, and the first one with a known place. All others follow from it."""
        if self._nonfinite and (op is None or self._nonfinite[-1].op is not None):
            return []
        self._nonfinite.append(Event(step, "nonfinite", text, op))
        return self._nonfinite[-1:]

    def loss(self, step: int, loss: float) -> list[Event]:
        """A spike, compared with the previous steps.

        Ignores NaN and Inf, which `nonfinite` reports.
        """
        if not math.isfinite(loss):
            return []
        found = []
        if len(self._losses) >= LEAST:
            median = statistics.median(self._losses)
            # Most steps need no further medians.
            if loss > max(median + SHARE * abs(median), TINY * statistics.median(self._first_losses)):
                found += self._spike(step, loss, median)
        self._losses.append(loss)
        if len(self._first_losses) < LEAST:
            self._first_losses.append(loss)
        return found

    def _spike(self, step: int, loss: float, median: float) -> list[Event]:
        deviation = statistics.median(abs(each - median) for each in self._losses)
        if deviation == 0 and median <= 0:
            return []  # a hinge loss is often exactly 0
        least = median + SPIKE * deviation if deviation else EXPLOSION * median
        logs = [math.log(each) for each in self._losses if each > 0]
        if len(logs) >= LEAST:
            # Two independent losses differ by √2 as much as one differs from their median; losses that drift, by more.
            lag = min(LAG, len(logs) // 5)  # few losses have few pairs
            changes = (abs(one - other) for one, other in zip(logs, logs[lag:], strict=False))
            change = statistics.median(changes) / math.sqrt(2)
            usual = max(statistics.median(logs[-LEAST:]), statistics.median(logs[-2 * LEAST :]))
            least = max(least, math.exp(min(usual + SPIKE * change, 700)))
        if loss <= least:
            return []
        if not self._spikes.begins(step, loss):
            return []
        text = (
            f"the loss is {loss:.4g}; the last {len(self._losses)} losses have a median of {median:.4g} "
            f"and a median absolute deviation of {deviation:.2g}"
        )
        return [Event(step, "loss_spike", text)]

    def gradient_norm(self, step: int, norm: float | None, outputs: float | None = None) -> list[Event]:
        """An explosion, compared with the previous steps.

        `norm`: of the gradients of all parameters, perhaps clipped. `outputs`: of the gradients of all outputs.
        """
        self._with_norm += norm is not None or outputs is not None
        own, of_outputs = self._norms.add(norm), self._output_norms.add(outputs)
        highest = max(own[0], of_outputs[0])
        if not highest or not self._explosions.begins(self._with_norm, highest):
            return []
        clipped = "the gradients of all outputs, which clipping does not change,"
        figure, (ratio, count), what = (norm, own, "all gradients") if own[0] else (outputs, of_outputs, clipped)
        text = f"the norm of {what} is {figure:.4g}, {ratio:.3g} times the median of the last {count} recorded steps"
        return [Event(step, "gradient_explosion", text)]

    def update(
        self, step: int, lr: float, updates: Mapping[str, float] | None, weights: Mapping[str, float]
    ) -> list[Event]:
        """A leap of the learning rate or of the update.

        `updates`, `weights`: parameter → L2 norm. `updates` is None for a step that is not recorded.
        """
        said, op = "", None
        # A warmup may begin near 0.
        if self._updates >= LEAST and lr > LEAP * self._highest_lr > 0:
            said = f"the learning rate rose from {self._lr:.4g} to {lr:.4g} in one step"
        self._lr, self._highest_lr, self._updates = lr, max(self._highest_lr, lr), self._updates + 1
        ratio_of = {name: norm / weights[name] for name, norm in (updates or {}).items() if weights.get(name, 0) > 0}
        if ratio_of:
            ratio = math.hypot(*(updates or {}).values()) / math.hypot(*weights.values())
            median = statistics.median(self._ratios) if len(self._ratios) >= LEAST else math.inf
            self._with_ratio += 1
            if math.isfinite(ratio):
                if ratio > EXPLOSION * median > 0 and self._leaps.begins(self._with_ratio, ratio / median) and not said:
                    said = f"the norm of all updates, relative to the weights, is {ratio / median:.3g} times its median"
                self._ratios.append(ratio)
            if said:
                op = max(ratio_of, key=lambda name: ratio_of[name] / (self._ratio_of.get(name) or 1))
                said += f"; update : weight of {op} is {ratio_of[op]:.3g}"
                if op in self._ratio_of:
                    said += f", and was {self._ratio_of[op]:.3g} in the previous recorded step"
            self._ratio_of = ratio_of
        return [Event(step, "update_spike", said, op)] if said else []

    def dead_fraction(self, step: int, layer: str, fraction: float) -> list[Event]:
        """Units of a layer that have died since an earlier step."""
        is_dead = self._is_dead.setdefault(layer, fraction > DEAD)
        if fraction <= DEAD / 2:
            self._is_dead[layer] = False
        elif fraction > DEAD and not is_dead:
            self._is_dead[layer] = True
            text = f"{fraction:.0%} of the units of {layer} are dead: they are not above 0 for any input of the batch"
            return [Event(step, "dead_units", text, layer)]
        return []
