"""The summary of a run that a terminal and a notebook show. Its size does not grow with the run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from chainrule.history.reader import Run

CELLS = 120
"""Maximum number of points of a curve."""

RECENT = 50
"""Number of the last steps that give the steps per second."""

EXTREMES = 3
"""Number of layers with the smallest update : weight, and also with the largest."""

LOGARITHMIC = 30
"""A curve has a logarithmic axis if its values differ by this factor."""

_FIGURES = ("step", "loss", "lr", "seconds", "gradient_norm")
_BLOCKS = "▁▂▃▄▅▆▇█"
_BROKEN = "×"


class Curve:
    """A value over the steps. Each cell has the same number of steps, and holds their mean."""

    def __init__(self, cells: int = CELLS) -> None:
        self._steps_per_cell = 1
        self._sums, self._counts = [0.0] * cells, [0] * cells

    def add(self, step: int, value: float | None) -> None:
        """Add the value of a step; None means not known. The mean of a cell with NaN or Inf is NaN or Inf."""
        if value is None:
            return
        cells = len(self._sums)
        while step >= self._steps_per_cell * cells:
            for cell in range(cells):
                pair = slice(2 * cell, 2 * cell + 2)
                self._sums[cell], self._counts[cell] = sum(self._sums[pair]), sum(self._counts[pair])
            self._steps_per_cell *= 2
        self._sums[step // self._steps_per_cell] += value
        self._counts[step // self._steps_per_cell] += 1

    @property
    def points(self) -> list[tuple[float, float]]:
        """The middle step and the mean of each cell that has a value."""
        middle = (self._steps_per_cell - 1) / 2
        return [
            (cell * self._steps_per_cell + middle, total / count)
            for cell, (total, count) in enumerate(zip(self._sums, self._counts, strict=True))
            if count
        ]

    @property
    def sparkline(self) -> str:
        """The curve as a character per cell that has a value; × for NaN and Inf."""
        heights = scaled([value for _, value in self.points])[0]
        return "".join(_BROKEN if height is None else _BLOCKS[round(height * (len(_BLOCKS) - 1))] for height in heights)


def scaled(values: Sequence[float]) -> tuple[list[float | None], float, float]:
    """Values on an axis from 0 to 1, None for NaN and Inf, and the ends of the axis.

    The axis is logarithmic if no value is negative and the largest is LOGARITHMIC times the smallest positive one.
    Zeros are then at 0.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    least = min((value for value in finite if value > 0), default=math.inf)
    is_logarithmic = low >= 0 and high >= LOGARITHMIC * least

    def place(value: float) -> float:
        return math.log(max(value, least)) if is_logarithmic else value

    start, length = place(low), place(high) - place(low)
    heights = [
        ((place(value) - start) / length if 0 < length < math.inf else 0.5) if math.isfinite(value) else None
        for value in values
    ]
    return heights, low, high


def update_ratios(weights: Mapping[str, float], updates: Mapping[str, float]) -> dict[str, float]:
    """Layer → norm of the update of its parameters ÷ norm of its parameters, from the norms of parameters at one step.

    The parameters `0.weight` and `0.bias` belong to the layer `0`. A layer of zeros, or with NaN or Inf, has no ratio.
    """
    squares: dict[str, list[float]] = {}
    for name, norm in updates.items():
        if name in weights:
            sums = squares.setdefault(name.rpartition(".")[0] or name, [0.0, 0.0])
            # If a float is too large, a product is Inf, but a power raises.
            sums[0] += norm * norm
            sums[1] += weights[name] * weights[name]
    ratios = {layer: update / weight for layer, (update, weight) in squares.items() if weight}
    return {layer: math.sqrt(ratio) for layer, ratio in ratios.items() if math.isfinite(ratio)}


class Summary:
    """The progress of a run.

    Attributes:
        step: the last step, or -1.
        loss: the last known loss.
        lr: the last known learning rate.
        gradient_norm: the last known norm of all gradients.
        losses: the curve of the losses.
        gradient_norms: the curve of the norms of all gradients.
        ratios: layer → ratio of update to weight at the last step that has rows.
        ratio_curves: the curves of the smallest, the median and the largest of these ratios.
        events: (step, kind, text) of each event.
        ended: see `Run`.
    """

    def __init__(self, cells: int = CELLS) -> None:
        self.step = -1
        self.loss: float | None = None
        self.lr: float | None = None
        self.gradient_norm: float | None = None
        self.losses, self.gradient_norms = Curve(cells), Curve(cells)
        self.ratios: dict[str, float] = {}
        self.ratio_curves = (Curve(cells), Curve(cells), Curve(cells))
        self.events: list[tuple[int, str, str]] = []
        self.ended: str | None = None
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._recorded = -1

    def add_step(
        self, step: int, loss: float | None, lr: float | None, seconds: float | None, gradient_norm: float | None
    ) -> None:
        """Add the numbers of a step; None means not known."""
        self.step = step
        self.losses.add(step, loss)
        self.gradient_norms.add(step, gradient_norm)
        self.loss = self.loss if loss is None else loss
        self.lr = self.lr if lr is None else lr
        self.gradient_norm = self.gradient_norm if gradient_norm is None else gradient_norm
        if seconds is not None:
            self._seconds.append(seconds)

    def add_rows(self, step: int, weights: Mapping[str, float], updates: Mapping[str, float]) -> None:
        """Add the norms of the parameters and of their updates at a step."""
        ratios = update_ratios(weights, updates)
        if ratios:
            self.ratios = ratios
            ordered = sorted(ratios.values())
            for curve, place in zip(self.ratio_curves, (0, len(ordered) // 2, -1), strict=True):
                curve.add(step, ordered[place])

    def read(self, run: Run, *, all_rows: bool = False) -> None:
        """Add the data written since the last call. Without `all_rows`, reads the rows of the last steps only."""
        # Read `ended` first: then all data written before the end is read below.
        self.ended = run.ended
        steps = run.step_columns(after=self.step)
        for figures in zip(*(steps[name] for name in _FIGURES), strict=True):
            self.add_step(*figures)
        recorded = [step for step in run.recorded_steps if step > self._recorded]
        if recorded:
            # In a run of the lab, the last step has no update.
            after = self._recorded if all_rows or len(recorded) < 3 else recorded[-3]
            weights, updates = (_norms(run.row_columns(part=part, after=after)) for part in ("weight", "update"))
            for step in recorded:
                if step in weights and step in updates:
                    self.add_rows(step, weights[step], updates[step])
            self._recorded = recorded[-1]
        events = run.event_columns()
        self.events = list(zip(events["step"], events["kind"], events["text"], strict=True))

    @property
    def steps_per_second(self) -> float | None:
        """The steps per second of the last RECENT steps."""
        seconds = sum(self._seconds)
        return len(self._seconds) / seconds if seconds > 0 else None

    @property
    def smallest(self) -> list[tuple[str, float]]:
        """The layers with the smallest update : weight."""
        return sorted(self.ratios.items(), key=lambda each: each[1])[:EXTREMES]

    @property
    def largest(self) -> list[tuple[str, float]]:
        """The layers with the largest update : weight, without those in `smallest`."""
        rest = sorted(self.ratios.items(), key=lambda each: each[1])[EXTREMES:]
        return rest[: -EXTREMES - 1 : -1]


def _norms(rows: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Step → layer → norm."""
    found: dict[int, dict[str, float]] = {}
    for step, layer, norm in zip(rows["step"], rows["layer"], rows["norm"].tolist(), strict=True):
        found.setdefault(step, {})[layer] = norm
    return found


def figure(value: float | None) -> str:
    """A number with at most four digits; empty if it is not known."""
    return "" if value is None else f"{value:.4g}"
