"""Signal and gradient of every layer, relative to the source and to the end of its path.

The comparison along the path avoids false alarms at a branch beside a residual, a normalization, a layer scale or a
weight that starts at zero:

signal     RMS(activation) divided by the RMS of its source. The source is the input of the first layer of the path, the
           output of an embedding, or the output of the last normalization. The ratio is also divided by the trainable
           scales since the source (LayerScale, ReZero), because their size is a choice. The signal is lost only if no
           later hidden layer recovers it: a residual branch may be weaker than its trunk. It has exploded only if all
           later hidden layers are too large as well. Counter-example: a comparison with x would call a net of
           LayerNorms on x·1e-4 exploding.
gradient   the gradient of the activation divided by the gradient of the last layer on its path and by the trainable
           scales on the way. It is lost only if no layer that feeds this layer has it. The largest ratio of RMS, norm
           and RMS · n counts, because an average over positions or a wider layer makes the RMS smaller without a loss.
           A normalization divides the gradient by the size of its input, so below it gradient times activation counts
           if that ratio is larger. Gradients of two backward passes (a gradient penalty, two losses) are not compared.
           Counter-example: by RMS alone, the first convolution of any ResNet on images of 0 to 255 has lost its
           gradient.
zero       a parameter that is 0 and gets a gradient (LoRA's B, the last normalization of a branch) starts at 0 by
           design: earlier layers have no gradient in this pass, and get no verdict for that. Counter-example: in a net
           whose weights are all 0, no weight gets a gradient.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from chainrule.diagnose.passes import Passes
from chainrule.diagnose.steps import Step
from chainrule.trace.graph import Layer


@dataclasses.dataclass(slots=True)
class Signal:
    """The path from a source to a tensor: the size of the source, the layers since then, the gain of their weights.

    `is_plain`: the path has no normalization and no gate. `scale`: the product of the trainable scales.
    """

    source: float
    is_weighed: bool = False
    layers: int = 0
    gain: float = 1.0
    is_plain: bool = True
    scale: float = 1.0


@dataclasses.dataclass(slots=True)
class Ahead:
    """The path from a tensor to the loss.

    `scale`: the product of the trainable scales on the best path; 0 if all paths go through a parameter that starts at
    0. `end`: the last layer on the path, and `hidden` the layer before it; -1 for none. `most` and `least`: the largest
    and smallest signal of the later hidden layers; `most` also includes the inputs of layers.
    """

    scale: float = 1.0
    end: int = -1
    hidden: int = -1
    is_normalized: bool = False
    most: float = 0.0
    least: float = math.inf


class Paths:
    """Signal and gradient of every layer, relative to their references; NaN without a reference.

    Attributes:
        signals: tensor id → the path from its source.
        signal: by layer, RMS(activation) divided by the RMS of its source.
        aheads: by layer, the path to the loss.
        least, most: by layer, the smallest and largest ratio of its gradient to the gradient of the last layer.
        zeros: the parameters that start at 0 by design.
    """

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
        self._gradient_of = {
            tensor.gradient_of: tensor.id for tensor in passes.tensors.values() if tensor.gradient_of is not None
        }
        self.zeros: dict[str, None] = {}
        count = len(self.layers)
        self.signals = self._follow_signals()
        self.signal = [math.nan] * count
        if any(step.weight in self._size and self.rms(step.weight) == 0 for step in self._steps):
            self._look_ahead()  # finds the parameters that start at 0
        self.signal = [self._relative_signal(place) for place in range(count)]
        found = self._look_ahead()
        self.aheads = [found.get(place, Ahead()) for place in range(count)]
        self._pass_of = self._passes_of_gradients()
        self.least, self.most = self._relative_gradients()

    def rms(self, tensor: str | None) -> float:
        """The root mean square of a tensor; 0 for a tensor without statistics or with a non-finite value."""
        return self._size.get(tensor or "", (0.0, 0))[0]

    def _follow_signals(self) -> dict[str, Signal]:
        found: dict[str, Signal] = {
            tensor.id: Signal(self.rms(tensor.id) if "float" in tensor.dtype else 0.0)
            for tensor in self.passes.tensors.values()
            if tensor.role in ("input", "target")
        }
        for step in self._steps:
            reached = [found[each] for each in step.reads if each in found]
            # A mask or a position that no layer has processed adds nothing to the source.
            reached = [each for each in reached if each.is_weighed] or reached
            signal = dataclasses.replace(reached[0]) if reached else Signal(0.0)
            for other in reached[1:]:
                signal.source, signal.gain = max(signal.source, other.source), max(signal.gain, other.gain)
                signal.layers, signal.scale = max(signal.layers, other.layers), max(signal.scale, other.scale)
                signal.is_weighed |= other.is_weighed
                signal.is_plain &= other.is_plain
            if step.does == "scales":
                signal.scale *= min(1.0, self.rms(step.weight) or 1.0)
            if step.does in ("weighs", "gates"):
                signal.source = signal.source if reached else self.rms(step.reads[0])
                signal.is_weighed = True
                signal.layers += 1
                signal.gain *= self._gain(step)
            signal.is_plain = signal.is_plain and step.does not in ("normalizes", "gates")
            for output in step.gives:
                if step.does == "normalizes":
                    found[output] = Signal(self.rms(output), signal.is_weighed, is_plain=False)
                elif step.does == "embeds" or not signal.is_weighed:
                    found[output] = dataclasses.replace(signal, source=self.rms(output))
                else:
                    found[output] = signal
        return found

    def _gain(self, step: Step) -> float:
        """The factor by which the weights of a linear op multiply the RMS of independent inputs; 1 for other ops."""
        if step.does != "weighs" or step.weight is None or not step.gives or step.weight not in self._size:
            return 1.0
        size, n = self._size[step.weight]
        # The output of a convolution has its channels before the spatial dimensions.
        units = self.passes.tensors[step.gives[0]].shape[1 - len(self.passes.tensors[step.weight].shape) :][:1]
        return size * math.sqrt(n / units[0]) if units and units[0] else 1.0

    def _relative_signal(self, place: int) -> float:
        layer = self.layers[place]
        return math.nan if layer.weight in self.zeros else self._signal_of(layer.activation)

    def _signal_of(self, tensor: str | None) -> float:
        signal = self.signals.get(tensor or "")
        if signal is None or not signal.source or tensor not in self._size:
            return math.nan
        return self.rms(tensor) / (signal.source * signal.scale)

    def _gets_gradient(self, tensor: str | None) -> bool:
        return self.rms(self._gradient_of.get(tensor or "")) > 0

    def _look_ahead(self) -> dict[int, Ahead]:
        """The path from every layer to the loss."""
        found: dict[str, Ahead] = {}
        of_layer: dict[int, Ahead] = {}
        for step in reversed(self._steps):
            for output in step.gives:
                place = self._of_activation.get(output)
                if place is not None:
                    ahead = of_layer[place] = found.get(output) or Ahead()
                    signal = self.signal[place]
                    behind = dataclasses.replace(ahead)
                    if ahead.end < 0:
                        behind.end = place
                    elif ahead.hidden < 0:
                        behind.hidden = place
                    # The size of the last layer follows the target or the bias, so it does not count.
                    if signal == signal and ahead.end >= 0:
                        behind.most, behind.least = max(ahead.most, signal), min(ahead.least, signal)
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
                if step.does == "joins" and not self._sends_back(step, read):
                    continue
                behind = ahead
                if step.does in ("weighs", "gates") and (signal := self._signal_of(read)) > ahead.most:
                    behind = dataclasses.replace(ahead, most=signal)  # the trunk that a branch was added to
                found[read] = self._together([found[read], behind]) if read in found else behind
        self._ahead_of = found
        return of_layer

    def _sends_back(self, step: Step, read: str) -> bool:
        """Whether an input of a join gets a gradient: not if its gradient is 0 and the result's is not."""
        if not any(self._gets_gradient(each) for each in step.gives):
            return True
        shape = self.passes.tensors[read].shape
        sent = [each for each in self.passes.sent_back.get(step.op, ()) if self.passes.tensors[each].shape == shape]
        return not sent or any(self.rms(each) > 0 for each in sent)

    def _ends(self, step: Step) -> bool:
        """Whether the path ends here: in the loss, or in another tensor at which a backward pass began."""
        return any(each in self.passes.reached or self.passes.tensors[each].role == "loss" for each in step.gives)

    def _together(self, aheads: Sequence[Ahead]) -> Ahead:
        if not aheads:
            return Ahead()
        main = max(aheads, key=lambda each: self._gradient(each.end)[0] if each.end >= 0 else -1.0)
        return Ahead(
            max(each.scale for each in aheads),
            main.end,
            max(each.hidden for each in aheads),
            any(each.is_normalized for each in aheads),
            max(each.most for each in aheads),
            min(each.least for each in aheads),
        )

    def _factor(self, step: Step, ahead: float) -> float:
        """The factor by which a step scales the gradient on purpose: its trainable scale; 0 if that starts at 0."""
        if step.weight is None or step.weight not in self._size or step.does not in ("normalizes", "weighs", "scales"):
            return 1.0
        size = self.rms(step.weight)
        if size == 0:
            if self._gets_gradient(step.weight) or ahead == 0:
                self.zeros[step.weight] = None
                return 0.0
            return 1.0
        return 1.0 if step.does == "weighs" else min(1.0, size)

    def _gradient(self, place: int) -> tuple[float, float, float]:
        """RMS, norm and RMS · n of a layer's gradient; NaN without a finite gradient."""
        size, n = self._size.get(self.layers[place].gradient or "", (math.nan, 0))
        return size, size * math.sqrt(n), size * n

    def _relative_gradients(self) -> tuple[list[float], list[float]]:
        """For every layer the smallest and largest ratio of its gradient to the gradient of the last layer on its path.

        NaN for layers without a gradient, and for layers before a parameter that starts at 0.
        """
        least, most = [], []
        for place, layer in enumerate(self.layers):
            ahead = self.aheads[place]
            end = ahead.end if ahead.end >= 0 else place
            own, last = self._gradient(place), self._gradient(end)
            of_one_pass = self._pass_of.get(layer.gradient) == self._pass_of.get(self.layers[end].gradient)
            if not of_one_pass or not last[0] > 0 or own[0] != own[0] or (ahead.scale == 0 and own[0] == 0):
                least.append(math.nan)
                most.append(math.nan)
                continue
            ratios = [one / other for one, other in zip(own, last, strict=True)]
            if ahead.is_normalized:
                signal, answer = self.rms(layer.activation), self.rms(self.layers[end].activation)
                if signal > 0 and answer > 0:
                    ratios += [ratio * signal / answer for ratio in ratios]
            least.append(min(ratios))
            most.append(max(ratios) / (ahead.scale or 1.0))
        return least, most

    def is_zero(self, tensor: str) -> bool:
        """Whether all of a tensor is known to be 0."""
        return tensor in self._size and self.rms(tensor) == 0

    def has_layer_ahead(self, tensor: str) -> bool:
        """Whether a layer reads a tensor, or a tensor computed from it."""
        place = self._of_activation.get(tensor)
        ahead = self._ahead_of.get(tensor, Ahead()) if place is None else self.aheads[place]
        return ahead.end >= 0

    def _passes_of_gradients(self) -> dict[str | None, int]:
        """Gradient → the number of its backward pass: a pass begins with a gradient that no op made."""
        count, found = 0, dict[str | None, int]()
        for tensor in self.passes.tensors.values():
            if tensor.role == "gradient":
                count += tensor.producer is None
                found[tensor.id] = count
        return found

    def upstream(self, values: Sequence[float], choose: Callable[..., float]) -> list[float]:
        """For every layer the largest (or smallest) value among it and the layers that feed it; NaN is ignored."""
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
