"""The verdict on every layer: which layers lose the signal or the gradient, and which make it explode.

`paths` explains the reference of each comparison.

The thresholds are AUTOTRAINER's (X. Zhang et al. 2021), which compares norms of gradients with the last layer's.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from chainrule.diagnose.passes import Passes
from chainrule.diagnose.paths import Paths
from chainrule.trace.graph import Fault, FaultKind

Health = Literal["non-finite", "dead", "saturated", "vanishing", "exploding"]

VANISHING = 1e-3
"""A signal or a gradient below this share of its reference is lost."""

EXPLODING = 70.0
"""A signal or a gradient above this multiple of its reference has exploded."""

GAIN = 5.0
"""Without a normalization each layer may multiply the signal by this at most, or divide it by WEAKENING."""

WEAKENING = 10.0

DROP = 100.0
"""A lost gradient is lost between two layers if it falls there by this factor; otherwise it fades gradually."""

SATURATED = 0.5
"""An activation stops the gradient if more than this share of its values is saturated."""

SELECTIVE = 0.05
"""A healthy unit may be above 0 for only this share of its inputs; in a small batch it is then dead by chance."""

DEVIATIONS = 4.0
"""A share of dead units may exceed the expected one by so many standard deviations of a binomial count."""

BY_CHANCE = 1e-3
"""All units of a layer are dead by chance if that is more probable than this."""

HEALTH_OF: Mapping[FaultKind, Health] = {
    "first_nonfinite": "non-finite",
    "exploding": "exploding",
    "dead": "dead",
    "saturated": "saturated",
    "vanishing": "vanishing",
    "gradient_drop": "vanishing",
}
"""The word for the layers of a fault; a layer with several faults has the word of the first in `layer_faults`."""


def layer_faults(passes: Passes) -> list[Fault]:
    """The faults of a pass that make layers unhealthy, except non-finite numbers; causes come first."""
    paths = Paths(passes)
    return [
        *_exploding(paths),
        *_dead(passes),
        *_saturated(paths),
        *_vanishing(paths),
        *_gradient_lost(paths),
        *_starts_at_zero(paths),
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


# ------------------------------------------------------------------------------------------------ signal and gradient


def _exploding(paths: Paths) -> list[Fault]:
    """Signals and gradients that have grown beyond EXPLODING, and the gain of nets without a normalization."""
    signals = []
    for place, layer in enumerate(paths.layers):
        signal, ahead = paths.signals.get(layer.activation or ""), paths.aheads[place]
        if signal is None or paths.signal[place] != paths.signal[place] or ahead.end < 0:
            continue
        limit = min(EXPLODING, GAIN ** min(signal.layers, 3)) if signal.is_plain else EXPLODING
        # A bias can be large beside a small input: the weights must multiply too.
        if min(paths.signal[place], ahead.least) > limit and signal.gain > limit:
            signals.append(place)
    smallest = paths.upstream(paths.least, min)
    gradients = [place for place, least in enumerate(smallest) if least > _most_of_a_gradient(paths, place)]
    if signals:
        worst = max(signals, key=paths.signal.__getitem__)
        message = f"the signal grows{_per_layer(paths, worst)}: the RMS of {paths.layers[worst].name} is "
        message += f"{figure(paths.signal[worst])} times the RMS where this signal starts"
        remedy = "Use a smaller scale of the weights (the scale that keeps the variance), or a normalization."
        return [_fault(paths, "exploding", signals[0], message, remedy, [*signals, *gradients])]
    if not gradients:
        return []
    worst = max(gradients, key=paths.least.__getitem__)
    message = (
        f"the gradient grows in the backward pass: in {paths.layers[worst].name} it is {figure(paths.least[worst])} "
        "times the gradient of the last layer"
    )
    remedy = "Use a smaller scale of the weights, a normalization, or gradient clipping."
    return [_fault(paths, "exploding", gradients[-1], message, remedy, gradients, gradient=True)]


def _most_of_a_gradient(paths: Paths, place: int) -> float:
    """The largest healthy gradient, relative to the last hidden layer, since the target sets the size of the output.

    Below a normalization a large gradient does little harm, because the steps become smaller as the gradient grows
    (S. Arora et al. 2019, Theoretical Analysis of Auto Rate-Tuning by Batch Normalization). So the limit is there
    1 / VANISHING.
    """
    ahead = paths.aheads[place]
    factor = paths.least[ahead.hidden] if ahead.hidden >= 0 else math.inf
    return (1 / VANISHING if ahead.is_normalized else EXPLODING) * (max(1.0, factor) if factor == factor else 1.0)


def _vanishing(paths: Paths) -> list[Fault]:
    """Signals that are lost and that no later layer recovers."""
    lost = []
    for place, layer in enumerate(paths.layers):
        signal, ahead = paths.signals.get(layer.activation or ""), paths.aheads[place]
        if signal is None or paths.signal[place] != paths.signal[place]:
            continue
        weak = WEAKENING ** -min(signal.layers, 3)
        # A sparse activation is small although its weights are not.
        limit = max(VANISHING, weak) if signal.is_plain and signal.gain < weak else VANISHING
        if max(paths.signal[place], ahead.most) < limit:
            lost.append(place)
    # If only the output is small, the target may be small, or the head may start small on purpose.
    if not any(paths.aheads[place].end >= 0 for place in lost):
        return []
    some = [place for place in lost if paths.signal[place] > 0]
    gone = next((paths.layers[place].name for place in lost if paths.signal[place] == 0), None)
    message = f"the signal is lost: it is 0 from {gone} on"
    if some:
        worst = min(some, key=paths.signal.__getitem__)
        message = f"the signal fades{_per_layer(paths, worst)}: " + (
            f"the RMS of {paths.layers[worst].name} is {figure(paths.signal[worst])} "
            "times the RMS where this signal starts"
            if gone is None
            else f"it is 0 from {gone} on"
        )
    remedy = "Use a larger scale of the weights (the scale that keeps the variance), or a normalization."
    return [_fault(paths, "vanishing", lost[0], message, remedy, lost)]


def _per_layer(paths: Paths, place: int) -> str:
    count = paths.signals[paths.layers[place].activation or ""].layers
    return f" by about ×{figure(paths.signal[place] ** (1 / count))} per layer" if count > 1 else ""


def _gradient_lost(paths: Paths) -> list[Fault]:
    """A gradient that is lost: at one place if it falls by DROP there, otherwise gradually.

    The gradients of several calls of one weight (the steps of a recurrent cell, say) add up, so it is lost only if all
    the calls lose it.
    """
    kept = paths.upstream(paths.most, max)
    of_weight: dict[str, float] = {}
    for place, layer in enumerate(paths.layers):
        if layer.weight is not None and kept[place] == kept[place]:
            of_weight[layer.weight] = max(kept[place], of_weight.get(layer.weight, 0.0))
    lost = [
        place
        for place, share in enumerate(paths.most)
        if share == share and of_weight.get(paths.layers[place].weight or "", kept[place]) < VANISHING
    ]
    if not lost:
        return _none_at_all(paths)
    ways = [place for place in range(lost[0], len(paths.layers)) if paths.most[place] == paths.most[place]]
    so_far = np.maximum.accumulate([kept[place] for place in ways])
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = np.where(so_far[1:] > 0, so_far[1:] / so_far[:-1], 1.0)
    # A gradient below the range of its dtype has faded until it underflowed: its last fall to 0 is no drop.
    steps = [fall if _is_normal(paths, ways[row + 1]) else 1.0 for row, fall in enumerate(falls.tolist())]
    steepest = max(range(len(steps)), key=steps.__getitem__, default=0)
    if steps and steps[steepest] >= DROP:
        return [_drop(paths, ways[steepest], ways[steepest + 1], steps[steepest], lost)]
    some = next((row for row, value in enumerate(so_far) if value > 0), len(ways) - 1)
    per_layer = float(so_far[some] / so_far[-1]) ** (1 / max(1, len(ways) - 1 - some))
    at = ways[int(np.flatnonzero(so_far * 10 <= so_far[-1])[-1])]
    first = paths.layers[ways[0]].name
    how = (
        f"0 in {first}"
        if so_far[0] == 0
        else (f"{figure(float(so_far[-1] / so_far[0]))} times smaller in {first} than in the last layer")
    )
    message = (
        f"the gradient fades by about ×{figure(per_layer)} per layer: it is {how}, and falls to a tenth in "
        f"{paths.layers[at].name}"
    )
    remedy = (
        "Use a larger scale of the weights (the scale that keeps the variance), a normalization, or residual "
        "connections."
    )
    return [_fault(paths, "gradient_drop", at, message, remedy, lost, gradient=True)]


def _none_at_all(paths: Paths) -> list[Fault]:
    """All gradients are 0 although the loss is not: an op before the loss has a derivative of 0, such as round.

    If the loss is 0, gradients of 0 are correct: for example a triplet loss with all margins satisfied.
    """
    trace = paths.passes.trace
    gradients = [each.gradient for each in paths.layers if each.gradient is not None]
    if not gradients or not trace.loss or any(not paths.is_zero(each) for each in gradients):
        return []
    for op in paths.passes.ops:
        ends_here = (
            op.outputs and all(map(paths.is_zero, op.outputs)) and any(paths.rms(each) > 0 for each in op.inputs)
        )
        if op.phase == "backward" and op.twin is not None and ends_here:
            twin = paths.passes.op(op.twin)
            message = f"the backward of {twin.name} returns only 0: its derivative is 0 here, so all gradients are 0"
            remedy = "Use an op whose derivative is not 0, or a straight-through estimator."
            fault = paths.passes.fault("gradient_drop", message, twin, op.outputs[0], remedy)
            layers = tuple(each.index for each in paths.layers if each.gradient is not None)
            return [dataclasses.replace(fault, layers=layers)]
    return []


def _is_normal(paths: Paths, place: int) -> bool:
    """Whether a layer's gradient is well above the smallest number that its dtype holds in full."""
    gradient = paths.layers[place].gradient
    if gradient is None:
        return False
    dtype = getattr(torch, paths.passes.tensors[gradient].dtype)
    return paths.rms(gradient) > DROP * torch.finfo(dtype).tiny


def _drop(paths: Paths, earlier: int, later: int, fall: float, lost: Sequence[int]) -> Fault:
    names = paths.layers[earlier].name, paths.layers[later].name
    message = f"the gradient of {names[0]} is {figure(fall)} times smaller than the gradient of {names[1]}, and it "
    message += "stays small in all earlier layers"
    if math.isinf(fall):
        message = f"the gradient is lost below {names[1]}: it is 0 in {names[0]} and in all earlier layers"
    remedy = (
        f"Look at the weight of {names[1]} and at the ops between the two layers: a weight may be too small, or an "
        "activation saturated."
    )
    activation = paths.layers[later].activation
    if activation in paths.passes.trace.statistics:
        summary = paths.passes.trace.statistics[activation or ""]
        if summary.dead_fraction is not None and summary.dead_fraction > 0.5:
            remedy = f"{summary.dead_fraction:.0%} of the units of {names[1]} are dead: look at its input."
        elif summary.saturation is not None and summary.saturation > SATURATED:
            remedy = f"{summary.saturation:.0%} of {names[1]} is saturated: use a smaller scale of its weight."
    fault = _fault(paths, "gradient_drop", later, message, remedy, lost)
    return dataclasses.replace(fault, tensor=paths.layers[earlier].gradient)


def _starts_at_zero(paths: Paths) -> list[Fault]:
    """One note for the parameters that start at 0 by design, if other layers get no gradient because of them."""
    waiting = [
        place
        for place, ahead in enumerate(paths.aheads)
        if ahead.scale == 0 and paths.rms(paths.layers[place].gradient) == 0 and paths.layers[place].gradient
    ]
    if not waiting:
        return []
    names = [paths.passes.tensors[each].name for each in paths.zeros]
    who = f"{names[-1]} and {len(names) - 1} more start" if len(names) > 1 else f"{names[-1]} starts"
    some = "one layer gets" if len(waiting) == 1 else f"{len(waiting)} layers get"
    message = f"{who} at 0 by design: {some} no gradient before step 2, such as {paths.layers[min(waiting)].name}"
    reader = next((paths.passes.op(each) for each in paths.passes.tensors[[*paths.zeros][-1]].consumers), None)
    fault = paths.passes.fault("starts_at_zero", message, reader, [*paths.zeros][-1])
    return [dataclasses.replace(fault, level="note")]


def _fault(
    paths: Paths, kind: FaultKind, place: int, message: str, remedy: str, places: Iterable[int], gradient: bool = False
) -> Fault:
    """A fault in a layer's module; the op of the layer's activation may belong to another module."""
    layer = paths.layers[place]
    tensor = layer.gradient if gradient else layer.activation
    fault = paths.passes.fault(kind, message, paths.passes.maker(layer.activation), tensor, remedy)
    module = layer.name if any(each.path == layer.name for each in paths.passes.trace.modules) else fault.module
    layers = tuple(sorted({paths.layers[each].index for each in places}))
    return dataclasses.replace(fault, module=module, layers=layers)


# ------------------------------------------------------------------------------------------------------------- units


def _dead(passes: Passes) -> list[Fault]:
    """Activations with more dead units than chance explains.

    In a deep relu net all inputs become similar, and half of the units are dead for all of them (`theory.dead_units`).
    A unit that is above 0 for one input in twenty is dead in a small batch. So that share plus DEVIATIONS standard
    deviations of a binomial count is healthy. If a layer has few units, all may be dead, as in a
    squeeze-and-excitation. In feature maps the channels count as units, because a channel that is dead at one position
    is often dead at all positions. A layer whose preactivation is 0 everywhere does not count: it starts at 0.
    """
    table = passes.trace.statistics
    column = table.column("dead_fraction")
    found: list[tuple[str, float]] = []
    for row in np.flatnonzero(column > 0.5):
        tensor, share = passes.tensors[table.tensors[row]], float(column[row])
        expected = max(0.5, (1 - SELECTIVE) ** tensor.shape[0])
        units = max(1, min(tensor.shape[1:], default=1))
        limit = expected + DEVIATIONS * math.sqrt(expected * (1 - expected) / units)
        if share <= limit if share < 1 else expected**units > BY_CHANCE:
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
    message = f"{who} of {tensor.name} are dead: they are not above 0 for any of {tensor.shape[0]} inputs"
    remedy = "Look at the input and the bias: the bias may be far below 0, or the last step too large."
    return [_of_tensors(passes, "dead", message, remedy, [each for each, _ in found])]


def _saturated(paths: Paths) -> list[Fault]:
    """Saturated activations that a layer reads; a saturated output of the net is only a certain answer."""
    passes = paths.passes
    column = passes.trace.statistics.column("saturation")
    rows = [(passes.trace.statistics.tensors[row], float(column[row])) for row in np.flatnonzero(column > SATURATED)]
    found = [(tensor, share) for tensor, share in rows if paths.has_layer_ahead(tensor)]
    if not found:
        return []
    tensor, share = found[0]
    message = f"{share:.0%} of {passes.tensors[tensor].name} is saturated: these values pass almost no gradient back"
    remedy = "Use a smaller scale of the weights before it, or a normalization."
    return [_of_tensors(passes, "saturated", message, remedy, [each for each, _ in found])]


def _of_tensors(passes: Passes, kind: FaultKind, message: str, remedy: str, tensors: Sequence[str]) -> Fault:
    """One fault for several activations with the same problem, at the first of them."""
    more = f" (and {len(tensors) - 1} more like this)" if len(tensors) > 1 else ""
    fault = passes.fault(kind, message + more, passes.maker(tensors[0]), tensors[0], remedy)
    layers = tuple(each.index for each in passes.trace.layers if each.activation in tensors)
    return dataclasses.replace(fault, layers=layers)


def figure(value: float) -> str:
    """A number in the page's notation: 4.88e4."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.3g}")
