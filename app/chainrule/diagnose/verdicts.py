"""The verdict on every layer: which layers lose the signal or the gradient, and which make it explode.

A layer is compared with what feeds its path and with where its path ends, so that a branch beside a residual, a
normalization, a layer scale or a weight that starts at zero alarms nobody:

signal     RMS(activation) over the RMS of its source: what the first layer of the path reads, what an embedding gives,
           or what the last normalization gives. It is lost only if no layer further on has it back: a residual branch
           may be weak beside its trunk. It has exploded only if it stays so in all hidden layers further on.
           Counter-example: comparing with x calls a net of LayerNorms on x·1e-4 exploding.
gradient   that of the activation over that of the last layer on its path, divided by the trainable scales on the way
           (LayerScale, ReZero), for their size is chosen. It is lost only if no layer that feeds this one has it. The
           largest ratio of RMS, norm and RMS · n counts, since an average over positions or a wider layer makes an RMS
           smaller and loses nothing. Below a normalization, which divides the gradient by the size of what it reads,
           gradient times activation counts if that is more. Counter-example: by its RMS alone the first convolution
           of any ResNet on images of 0 to 255 has lost its gradient.
zero       a parameter that is 0 and gets a gradient, as LoRA's B or the last normalization of a branch, starts at 0 by
           design: layers behind it have no gradient in this pass, and are not judged by it. Counter-example: in a net
           whose weights are all 0 none of them gets a gradient.

The thresholds are AUTOTRAINER's (X. Zhang et al. 2021), which compares norms of gradients with the last layer's.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from chainrule.diagnose.passes import Passes
from chainrule.diagnose.steps import Step
from chainrule.trace.graph import Fault, FaultKind, Layer, Op

Health = Literal["non-finite", "dead", "saturated", "vanishing", "exploding"]

VANISHING = 1e-3
"""A signal or a gradient below this share of its reference is lost."""

EXPLODING = 70.0
"""A signal or a gradient above this multiple of its reference has exploded."""

GAIN = 3.0
"""Without a normalization each layer may multiply the signal by this at most, or divide it by WEAKENING."""

WEAKENING = 10.0

DROP = 100.0
"""A lost gradient that falls by this factor between two layers is lost there; else it fades."""

SATURATED = 0.5
"""More than this share of an activation's values on its plateaus stops the gradient."""

SELECTIVE = 0.05
"""A unit may answer to so few of its inputs: in a small batch it is then dead by chance."""

DEVIATIONS = 4.0
"""A share of dead units may exceed the expected one by so many standard deviations of a binomial count."""

HEALTH_OF: Mapping[FaultKind, Health] = {
    "first_nonfinite": "non-finite",
    "exploding": "exploding",
    "dead": "dead",
    "saturated": "saturated",
    "vanishing": "vanishing",
    "gradient_drop": "vanishing",
}
"""The word for a layer of a fault, in the order of `layer_faults`. The first of several faults counts."""


def layer_faults(passes: Passes) -> list[Fault]:
    """The faults of a pass that make layers unhealthy, but for numbers that are not finite; causes come first."""
    judged = _Judged(passes)
    return [
        *judged.exploding(),
        *_dead(passes),
        *_saturated(passes),
        *judged.vanishing(),
        *judged.gradient_lost(),
        *judged.starts_at_zero(),
    ]


def nonfinite_layers(passes: Passes) -> tuple[int, ...]:
    """The layers with a NaN or ±Inf in the preactivation, the activation or the gradient."""
    table = passes.trace.statistics
    bad = sum(table.column(name) for name in ("nan", "posinf", "neginf"))
    ids = {table.tensors[row] for row in np.flatnonzero(bad)}
    return tuple(
        each.index
        for each in passes.trace.layers
        if not ids.isdisjoint((each.preactivation, each.activation, each.gradient))
    )


def health_of(faults: Iterable[Fault]) -> dict[int, Health]:
    """Layer → its word; healthy layers are missing."""
    found: dict[int, Health] = {}
    for fault in faults:
        if fault.kind in HEALTH_OF:
            for index in fault.layers:
                found.setdefault(index, HEALTH_OF[fault.kind])
    return found


# ------------------------------------------------------------------------------------------------- signal and gradient


@dataclasses.dataclass(slots=True)
class _Signal:
    """What has reached a tensor: the size of its source, the layers since the source, the gain of their weights.

    `is_plain`: no normalization and no gate has set the size anew.
    """

    source: float
    is_weighed: bool = False
    layers: int = 0
    gain: float = 1.0
    is_plain: bool = True


@dataclasses.dataclass(slots=True)
class _Ahead:
    """What lies between a tensor and the loss.

    `scale`: the product of the trainable scales on the best way; 0 if all ways lead through a parameter that starts at
    0. `end`: the last layer on the way, and `hidden` the one before it; -1 for none. `most` and `least`: of the signals
    of the layers ahead.
    """

    scale: float = 1.0
    end: int = -1
    hidden: int = -1
    is_normalized: bool = False
    most: float = 0.0
    least: float = math.inf


class _Judged:
    """Signal and gradient of every layer, relative to their references; NaN where there is none."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.layers: Sequence[Layer] = passes.trace.layers
        table = passes.trace.statistics
        n, norm = table.column("n"), table.column("norm")
        with np.errstate(invalid="ignore", divide="ignore"):
            rms = norm / np.sqrt(n)
        bad = sum(table.column(name) for name in ("nan", "posinf", "neginf"))
        finite = (bad == 0) & (n > 0)
        rows = zip(table.tensors, rms.tolist(), finite.tolist(), n.tolist(), strict=True)
        # Tensors whose elements are all finite: RMS and count.
        self._size: dict[str, tuple[float, int]] = {
            tensor: (size, int(count)) for tensor, size, is_finite, count in rows if is_finite and size == size
        }
        self._steps = passes.steps
        self._of_activation = {each.activation: place for place, each in enumerate(self.layers)}
        self._of_parameter = {
            tensor.gradient_of: tensor.id for tensor in passes.tensors.values() if tensor.gradient_of is not None
        }
        self._zeros: dict[str, None] = {}  # parameters that start at 0 by design
        count = len(self.layers)
        self._signals = self._follow_signals()
        self.signal = [self._relative_signal(place) for place in range(count)]
        self._aheads = self._look_ahead()
        self.ends = {found.end for found in self._aheads.values()}
        self.least, self.most = self._relative_gradients()

    def _rms(self, tensor: str | None) -> float:
        return self._size.get(tensor or "", (0.0, 0))[0]

    def _follow_signals(self) -> dict[str, _Signal]:
        found: dict[str, _Signal] = {
            tensor.id: _Signal(self._rms(tensor.id) if "float" in tensor.dtype else 0.0)
            for tensor in self.passes.tensors.values()
            if tensor.role in ("input", "target")
        }
        for step in self._steps:
            reached = [found[each] for each in step.reads if each in found]
            # A mask or a position that no layer has weighed adds nothing to the source.
            reached = [each for each in reached if each.is_weighed] or reached
            signal = _Signal(
                max((each.source for each in reached), default=0.0),
                any(each.is_weighed for each in reached),
                max((each.layers for each in reached), default=0),
                max((each.gain for each in reached), default=1.0),
                all(each.is_plain for each in reached),
            )
            if step.does in ("weighs", "gates"):
                signal.source = signal.source if reached else self._rms(step.reads[0])
                signal.is_weighed = True
                signal.layers += 1
                signal.gain *= self._gain(step)
            signal.is_plain = signal.is_plain and step.does not in ("normalizes", "gates")
            for output in step.gives:
                if step.does == "normalizes":
                    found[output] = _Signal(self._rms(output), signal.is_weighed, is_plain=False)
                elif step.does == "embeds" or not signal.is_weighed:
                    found[output] = dataclasses.replace(signal, source=self._rms(output))
                else:
                    found[output] = signal
        return found

    def _gain(self, step: Step) -> float:
        """By how much the weights of a linear op multiply the RMS of independent inputs; 1 for other ops."""
        if step.does != "weighs" or step.weight is None or not step.gives or step.weight not in self._size:
            return 1.0
        is_convolution = len(self.passes.tensors[step.weight].shape) > 2
        units = self.passes.tensors[step.gives[0]].shape[1 if is_convolution else -1 :][:1]
        size, n = self._size[step.weight]
        return size * math.sqrt(n / units[0]) if units and units[0] else 1.0

    def _relative_signal(self, place: int) -> float:
        activation = self.layers[place].activation
        signal = self._signals.get(activation or "")
        if signal is None or not signal.source or activation not in self._size:
            return math.nan
        weight = self.layers[place].weight
        return (
            math.nan
            if weight in self._size and self._rms(weight) == 0 and self._gets_gradient(weight)
            else (self._rms(activation) / signal.source)
        )

    def _gets_gradient(self, parameter: str | None) -> bool:
        return self._rms(self._of_parameter.get(parameter or "")) > 0

    def _look_ahead(self) -> dict[int, _Ahead]:
        """What lies ahead of every layer."""
        found: dict[str, _Ahead] = {}
        of_layer: dict[int, _Ahead] = {}
        for step in reversed(self._steps):
            for output in step.gives:
                place = self._of_activation.get(output)
                if place is not None:
                    ahead = of_layer[place] = found.get(output) or _Ahead()
                    signal = self.signal[place]
                    behind = dataclasses.replace(ahead)
                    if ahead.end < 0:
                        behind.end = place
                    elif ahead.hidden < 0:
                        behind.hidden = place
                    if signal == signal:
                        behind.most = max(ahead.most, signal)
                        # The size of an answer is the target's, not the net's.
                        behind.least = min(ahead.least, signal) if ahead.end >= 0 else ahead.least
                    found[output] = behind
            aheads = [found[each] for each in step.gives if each in found]
            if step.does == "cuts" or not (aheads or self._ends(step)):
                continue
            ahead = aheads[0] if len(aheads) == 1 else self._together(aheads)
            factor = self._factor(step, ahead.scale)
            if factor != 1 or (step.does == "normalizes" and not ahead.is_normalized):
                ahead = dataclasses.replace(
                    ahead, scale=ahead.scale * factor, is_normalized=ahead.is_normalized or step.does == "normalizes"
                )
            for read in step.reads:
                if step.does != "joins" or self._sends_back(step, read):
                    found[read] = self._together([found[read], ahead]) if read in found else ahead
        return of_layer

    def _sends_back(self, step: Step, read: str) -> bool:
        """Whether a step's gradient for an input is not 0: what is joined may be left out again."""
        shape = self.passes.tensors[read].shape
        sent = [each for each in self.passes.sent_back.get(step.op, ()) if self.passes.tensors[each].shape == shape]
        return not sent or any(self._rms(each) > 0 for each in sent)

    def _ends(self, step: Step) -> bool:
        """Whether the path ends here: in the loss, or in another tensor that a backward pass began with."""
        return any(each in self.passes.reached or self.passes.tensors[each].role == "loss" for each in step.gives)

    def _together(self, aheads: Sequence[_Ahead]) -> _Ahead:
        if not aheads:
            return _Ahead()
        main = max(aheads, key=lambda each: self._gradient(each.end)[0] if each.end >= 0 else -1.0)
        return _Ahead(
            max(each.scale for each in aheads),
            main.end,
            max(each.hidden for each in aheads),
            any(each.is_normalized for each in aheads),
            max(each.most for each in aheads),
            min(each.least for each in aheads),
        )

    def _factor(self, step: Step, ahead: float) -> float:
        """By how much a step multiplies the gradient on purpose: its trainable scale, 0 for what starts at 0."""
        if step.weight is None or step.weight not in self._size or step.does not in ("normalizes", "weighs", "scales"):
            return 1.0
        size = self._rms(step.weight)
        if size == 0:
            if self._gets_gradient(step.weight) or ahead == 0:
                self._zeros[step.weight] = None
                return 0.0
            return 1.0
        return 1.0 if step.does == "weighs" else min(1.0, size)

    def _gradient(self, place: int) -> tuple[float, float, float]:
        """RMS, norm and RMS · n of a layer's gradient; NaN if it has none, or one that is not finite."""
        size, n = self._size.get(self.layers[place].gradient or "", (math.nan, 0))
        return size, size * math.sqrt(n), size * n

    def _relative_gradients(self) -> tuple[list[float], list[float]]:
        """For every layer the least and the most ratio of its gradient to that of the last layer on its path.

        NaN for layers without a gradient, and for those behind a parameter that starts at 0.
        """
        least, most = [], []
        for place, layer in enumerate(self.layers):
            ahead = self._aheads.get(place, _Ahead())
            end = ahead.end if ahead.end >= 0 else place
            own, last = self._gradient(place), self._gradient(end)
            if not last[0] > 0 or own[0] != own[0] or (ahead.scale == 0 and own[0] == 0):
                least.append(math.nan)
                most.append(math.nan)
                continue
            ratios = [one / other for one, other in zip(own, last, strict=True)]
            if ahead.is_normalized:
                signal, answer = self._rms(layer.activation), self._rms(self.layers[end].activation)
                if signal > 0 and answer > 0:
                    ratios += [ratio * signal / answer for ratio in ratios]
            least.append(min(ratios))
            most.append(max(ratios) / (ahead.scale or 1.0))
        return least, most

    def _upstream(self, values: Sequence[float], choose: Callable[..., float]) -> list[float]:
        """For every layer the largest (or smallest) value among it and the layers that feed it; NaN counts as none."""
        found: dict[str, float] = {}
        chosen = list(values)
        for step in self._steps:
            behind = [found[each] for each in step.reads if each in found]
            value = choose(behind) if behind else math.nan
            for output in step.gives:
                place = self._of_activation.get(output)
                if place is not None:
                    own = [each for each in (value, values[place]) if each == each]
                    chosen[place] = choose(own) if own else math.nan
                    if own and values[place] == values[place]:
                        found[output] = chosen[place]
                        continue
                if value == value:
                    found[output] = value
        return chosen

    # ------------------------------------------------------------------------------------------------ the faults

    def exploding(self) -> list[Fault]:
        """Signals and gradients that have grown beyond EXPLODING, and the gain of nets without a normalization."""
        signals = []
        for place, layer in enumerate(self.layers):
            signal, ahead = self._signals.get(layer.activation or ""), self._aheads.get(place, _Ahead())
            if signal is None or self.signal[place] != self.signal[place] or ahead.end < 0:
                continue
            limit = min(EXPLODING, GAIN**signal.layers) if signal.is_plain else EXPLODING
            # A bias can be large beside a small input: the weights must multiply too.
            if min(self.signal[place], ahead.least) > limit and signal.gain > limit:
                signals.append(place)
        smallest = self._upstream(self.least, min)
        gradients = [place for place, least in enumerate(smallest) if least > EXPLODING * self._by_the_answer(place)]
        if signals:
            first, worst = signals[0], max(signals, key=self.signal.__getitem__)
            count = max(1, self._signals[self.layers[worst].activation or ""].layers)
            message = (
                f"the signal grows by about ×{self.signal[worst] ** (1 / count):.2f} per layer: the RMS of "
                f"{self.layers[worst].name} is {figure(self.signal[worst])} times that of its source"
            )
            remedy = "A smaller scale of the weights (the one that keeps the variance), or a normalization."
            return [self._fault("exploding", first, message, remedy, [*signals, *gradients])]
        if not gradients:
            return []
        worst = max(gradients, key=self.least.__getitem__)
        message = (
            f"the gradient grows on its way back: that of {self.layers[worst].name} is {figure(self.least[worst])} "
            "times that of the last layer"
        )
        remedy = "A smaller scale of the weights, a normalization, or gradient clipping."
        return [self._fault("exploding", gradients[-1], message, remedy, gradients, gradient=True)]

    def _by_the_answer(self, place: int) -> float:
        """By how much the last layer alone multiplies the gradient: the size of an answer is the target's."""
        hidden = self._aheads[place].hidden if place in self._aheads else -1
        factor = self.least[hidden] if hidden >= 0 else math.inf
        return max(1.0, factor) if factor == factor else 1.0

    def vanishing(self) -> list[Fault]:
        """Signals that are lost, and that no layer further on has back."""
        lost = []
        for place, layer in enumerate(self.layers):
            signal, ahead = self._signals.get(layer.activation or ""), self._aheads.get(place, _Ahead())
            if signal is None or self.signal[place] != self.signal[place]:
                continue
            weak = WEAKENING**-signal.layers
            # A sparse activation is small, and its weights are not.
            limit = max(VANISHING, weak) if signal.is_plain and signal.gain < weak else VANISHING
            if max(self.signal[place], ahead.most) < limit:
                lost.append(place)
        # A small answer alone is the target's size, or a head that starts small.
        if not any(self._aheads.get(place, _Ahead()).end >= 0 for place in lost):
            return []
        some = [place for place in lost if self.signal[place] > 0]
        gone = next((self.layers[place].name for place in lost if self.signal[place] == 0), None)
        message = f"the signal is gone: from {gone} on all of it is 0"
        if some:
            worst = min(some, key=self.signal.__getitem__)
            share, count = self.signal[worst], max(1, self._signals[self.layers[worst].activation or ""].layers)
            message = f"the signal fades by about ×{share ** (1 / count):.2f} per layer: " + (
                f"the RMS of {self.layers[worst].name} is {figure(share)} times that of its source"
                if gone is None
                else f"from {gone} on all of it is 0"
            )
        remedy = "A larger scale of the weights (the one that keeps the variance), or a normalization."
        return [self._fault("vanishing", lost[0], message, remedy, lost)]

    def gradient_lost(self) -> list[Fault]:
        """A gradient that is lost: at one place, if it falls by DROP there, else gradually."""
        kept = self._upstream(self.most, max)
        lost = [place for place, share in enumerate(self.most) if share == share and kept[place] < VANISHING]
        if not lost:
            return []
        ways = [place for place in range(lost[0], len(self.layers)) if self.most[place] == self.most[place]]
        so_far = np.maximum.accumulate([kept[place] for place in ways])
        with np.errstate(divide="ignore", invalid="ignore"):
            falls = np.where(so_far[1:] > 0, so_far[1:] / so_far[:-1], 1.0)
        # What has no place in the dtype fades, and is cut off at the end.
        steps = [fall if self._is_normal(ways[row + 1]) else 1.0 for row, fall in enumerate(falls.tolist())]
        steepest = max(range(len(steps)), key=steps.__getitem__, default=0)
        if steps and steps[steepest] >= DROP:
            return [self._drop(ways[steepest], ways[steepest + 1], steps[steepest], lost)]
        some = next((row for row, value in enumerate(so_far) if value > 0), len(ways) - 1)
        per_layer = float(so_far[some] / so_far[-1]) ** (1 / max(1, len(ways) - 1 - some))
        at = ways[int(np.flatnonzero(so_far * 10 <= so_far[-1])[-1])]
        first = self.layers[ways[0]].name
        how = (
            f"gone in {first}"
            if so_far[0] == 0
            else (f"{figure(float(so_far[-1] / so_far[0]))} times smaller in {first} than at the end")
        )
        message = (
            f"the gradient fades: {how}, about ×{per_layer:.2f} per layer; a tenth is left in {self.layers[at].name}"
        )
        remedy = (
            "A larger scale of the weights (the one that keeps the variance), a normalization, or residual connections."
        )
        return [self._fault("gradient_drop", at, message, remedy, lost, gradient=True)]

    def _is_normal(self, place: int) -> bool:
        """Whether a layer's gradient is well above the smallest number that its dtype holds in full."""
        gradient = self.layers[place].gradient
        if gradient is None:
            return False
        dtype = getattr(torch, self.passes.tensors[gradient].dtype)
        return self._rms(gradient) > DROP * torch.finfo(dtype).tiny

    def _drop(self, earlier: int, later: int, fall: float, lost: Sequence[int]) -> Fault:
        names = self.layers[earlier].name, self.layers[later].name
        message = f"going back from {names[1]} to {names[0]} the gradient is {figure(fall)} times smaller, and so it "
        message += "stays before that"
        if math.isinf(fall):
            message = f"no gradient goes back beyond {names[1]}: in {names[0]} and before it is 0"
        remedy = (
            "Look at the weight of the later layer and at what lies between: a small weight, or an activation on a "
            "plateau."
        )
        activation = self.layers[later].activation
        if activation in self.passes.trace.statistics:
            summary = self.passes.trace.statistics[activation or ""]
            if summary.dead_fraction is not None and summary.dead_fraction > 0.5:
                remedy = f"{summary.dead_fraction:.0%} of the units of {names[1]} are dead: look at what comes in."
            elif summary.saturation is not None and summary.saturation > SATURATED:
                remedy = f"{summary.saturation:.0%} of {names[1]} is saturated: a smaller scale of its weight."
        return self._fault("gradient_drop", earlier, message, remedy, lost, gradient=True)

    def starts_at_zero(self) -> list[Fault]:
        """One note for the parameters that start at 0 by design, if they keep the gradient from others."""
        waiting = [
            place
            for place, ahead in self._aheads.items()
            if ahead.scale == 0 and self._rms(self.layers[place].gradient) == 0 and self.layers[place].gradient
        ]
        if not waiting:
            return []
        names = [self.passes.tensors[each].name for each in self._zeros]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        some = "a layer" if len(waiting) == 1 else f"{len(waiting)} layers"
        message = (
            f"{names[-1]}{more} starts at 0 by design: no gradient goes through it yet; {some} before it, such as "
        )
        message += f"{self.layers[min(waiting)].name}, will get one with step 2"
        reader = next((self.passes.op(each) for each in self.passes.tensors[[*self._zeros][-1]].consumers), None)
        fault = self.passes.fault("starts_at_zero", message, reader, [*self._zeros][-1])
        return [dataclasses.replace(fault, level="note")]

    def _fault(
        self, kind: FaultKind, place: int, message: str, remedy: str, places: Iterable[int], gradient: bool = False
    ) -> Fault:
        """A fault in a layer's module: the op of its activation may belong to another one."""
        layer = self.layers[place]
        tensor = layer.gradient if gradient else layer.activation
        fault = self.passes.fault(kind, message, self.passes.maker(layer.activation), tensor, remedy)
        module = layer.name if any(each.path == layer.name for each in self.passes.trace.modules) else fault.module
        layers = tuple(sorted({self.layers[each].index for each in places}))
        return dataclasses.replace(fault, module=module, layers=layers)


# ------------------------------------------------------------------------------------------------------------- units


def _dead(passes: Passes) -> list[Fault]:
    """Activations with more dead units than chance would leave.

    In a deep relu net all inputs become alike, and half of the units are dead for all of them (`theory.dead_units`); a
    unit that answers to one input in twenty is dead in a small batch. So that share, and DEVIATIONS of a binomial
    count, are healthy. Feature maps count channels as units, since a channel that is dead at one position is often dead
    at all. A preactivation that is 0 everywhere says nothing: its layer starts at 0.
    """
    table = passes.trace.statistics
    column = table.column("dead_fraction")
    found: list[tuple[str, float]] = []
    for row in np.flatnonzero(column > 0.5):
        tensor, share = passes.tensors[table.tensors[row]], float(column[row])
        expected = max(0.5, (1 - SELECTIVE) ** tensor.shape[0])
        units = max(1, min(tensor.shape[1:], default=1))
        if share < 1 and share <= expected + DEVIATIONS * math.sqrt(expected * (1 - expected) / units):
            continue
        op = passes.maker(tensor.id)
        before = next(iter(op.inputs), "") if op is not None else ""
        if before in table and table[before].norm == 0:
            continue
        found.append((tensor.id, share))
    if not found:
        return []
    tensor = passes.tensors[found[0][0]]
    who = "all units" if found[0][1] == 1 else f"{found[0][1]:.0%} of the units"
    message = f"{who} of {tensor.name} are dead: not above 0 for any of {tensor.shape[0]} inputs"
    remedy = "Look at what comes in: a bias far below 0, or weights that a large step has thrown off."
    return [_of_tensors(passes, "dead", message, remedy, [each for each, _ in found])]


def _saturated(passes: Passes) -> list[Fault]:
    """Activations with most values on a plateau, except one that the loss reads: an answer may be certain."""
    table = passes.trace.statistics
    column = table.column("saturation")
    found = []
    for row in np.flatnonzero(column > SATURATED):
        # A loss is known by its name, or by its output of one element.
        readers = passes.forward_readers(table.tensors[row])
        if not any(map(_is_loss(passes), readers)):
            found.append((table.tensors[row], float(column[row])))
    if not found:
        return []
    tensor, share = found[0]
    message = f"{share:.0%} of {passes.tensors[tensor].name} is saturated: its flat ends pass no gradient"
    remedy = "A smaller scale of the weights before it, or a normalization."
    return [_of_tensors(passes, "saturated", message, remedy, [each for each, _ in found])]


def _is_loss(passes: Passes) -> Callable[[Op], bool]:
    return lambda op: (
        op.name.endswith(("_loss", "cross_entropy", "_loss_"))
        or all(passes.tensors[each].shape == () for each in op.outputs)
    )


def _of_tensors(passes: Passes, kind: FaultKind, message: str, remedy: str, tensors: Sequence[str]) -> Fault:
    """One fault for activations of the same kind, at the first of them."""
    more = f"; and so {'is' if len(tensors) == 2 else 'are'} {len(tensors) - 1} more" if len(tensors) > 1 else ""
    fault = passes.fault(kind, message + more, passes.maker(tensors[0]), tensors[0], remedy)
    layers = tuple(each.index for each in passes.trace.layers if each.activation in tensors)
    return dataclasses.replace(fault, layers=layers)


def figure(value: float) -> str:
    """A number as the page writes it: 4.88e4."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.3g}")
