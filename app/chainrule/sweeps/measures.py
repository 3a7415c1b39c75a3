"""The measures of a sweep, one number per net: a figure of its layers, or of its training up to the spec's step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chainrule.build.stack import Stack
from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM
from chainrule.spec.values import closest, shown

SATURATED = {"tanh": (0.0, 0.97), "sigmoid": (0.5, 0.485)}
"""For each bounded activation the middle of its range, and the distance from it beyond which a value is saturated."""

LR_RANGE = (1e-6, 1e6)
LR_BISECTIONS = 14
"""`largest_lr` is known to a factor of 10^(12 / 2^14) = 1.002."""

Function = Callable[[ModelSpec, Stack, Any], Tensor]


@dataclass(frozen=True, slots=True)
class Kind:
    """A measure as the table has it.

    Attributes:
        function: (spec, freshly drawn stack, argument) → the figure of each net: (nets,).
        argument: the meaning of `NAME:ARGUMENT`: a `layer`, a `loss`, or nothing.
        is_log: whether its values are compared by factors.
        trains: whether it needs a training.
    """

    title: str
    doc: str
    function: Function
    argument: str = ""
    is_log: bool = False
    trains: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of the table `KINDS` with its argument; `text` is its name in a command or an address."""

    text: str
    kind: Kind
    argument: Any = None

    def of(self, spec: ModelSpec, stack: Stack) -> Tensor:
        """The figure of each net: (nets,), float64 on the CPU."""
        return self.kind.function(spec, stack, self.argument).detach().double().cpu()

    def check(self, spec: ModelSpec) -> None:
        """Raise SweepError if nets of this spec do not have the measure."""
        name = self.text.partition(":")[0]
        if self.kind.argument == "layer" and isinstance(self.argument, int) and self.argument > spec.depth:
            raise _refused(self.text, f"a net of the sweep has {spec.depth} layers")
        if name == "accuracy" and spec.data == RANDOM and spec.loss != "cross_entropy":
            raise _refused(self.text, "random targets have no classes; choose a data set, or loss=cross_entropy")
        if name.startswith("bias_") and not spec.bias:
            raise _refused(self.text, "the nets have no biases")
        if name == "dead_fraction" and spec.activation in ("linear", *SATURATED):
            raise _refused(self.text, f"units of {spec.activation} do not die; it needs an activation such as relu")
        if name == "saturation" and spec.activation not in SATURATED:
            raise _refused(self.text, f"{spec.activation} does not saturate; it needs tanh or sigmoid")
        if self.kind.trains and not spec.step and name != "loss":
            raise _refused(self.text, "it needs a training, and the spec's step is 0; add a step such as step=100")


def _refused(text: str, why: str) -> SweepError:
    return SweepError(f"measure: {shown(text)}: {why}", field="measure")


def read_measure(text: str) -> Measure:
    """A measure from its text.

    Raises:
        SweepError: it is unknown, or its argument is malformed.
    """
    name, colon, argument = text.partition(":")
    if name not in KINDS:
        near = closest(name, list(KINDS))
        raise SweepError(
            f"measure: {shown(name)} is not one of {', '.join(KINDS)}{near and f'; {near}'}",
            field="measure",
            limit=list(KINDS),
        )
    kind = KINDS[name]
    if not kind.argument:
        if colon:
            raise _refused(text, f"{name} takes no argument")
        return Measure(text, kind)
    if kind.argument == "loss":
        try:
            value = float(argument)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise _refused(text, f"write {name}:LOSS with a loss above 0")
        return Measure(text, kind, value)
    if not colon or argument == "output":
        return Measure(text, kind, argument or None)
    if not (argument.isascii() and argument.isdigit() and 0 < int(argument[:9]) <= 10_000):
        raise _refused(text, f"write {name}, {name}:LAYER with the number of a layer, or {name}:output")
    return Measure(text, kind, int(argument[:9]))


def _place(spec: ModelSpec, layer: int | str | None) -> int:
    """The index of a layer: the last hidden one, unless it is given."""
    if isinstance(layer, int):
        return layer - 1
    return spec.depth - 1 if layer == "output" else max(spec.depth - 2, 0)


def _pass(spec: ModelSpec, stack: Stack, gradients_of: str = "") -> None:
    """Train to the spec's step, and run its pass; the gradients of `activations` or `parameters` if wanted."""
    stack.train(spec.step)
    stack.forward()
    if gradients_of:
        stack.backward(parameters=gradients_of == "parameters")


def _of_layer(part: str, figure: Callable[[Tensor], Tensor], gradients_of: str = "") -> Function:
    def function(spec: ModelSpec, stack: Stack, layer: int | str | None) -> Tensor:
        _pass(spec, stack, gradients_of)
        return figure(getattr(stack, part)[_place(spec, layer)].double())

    return function


def _flat(values: Tensor) -> Tensor:
    """(nets, elements)."""
    return values.flatten(1)


def _std(values: Tensor) -> Tensor:
    return _flat(values).std(1, correction=0)


def _dead(values: Tensor) -> Tensor:
    return (values.amax(1) <= 0).double().mean(1)


STATISTICS: Mapping[str, tuple[str, Callable[[Tensor], Tensor], bool]] = {
    "mean": ("Mean", lambda values: _flat(values).mean(1), False),
    "std": ("Standard deviation", _std, True),
    "min": ("Smallest value", lambda values: _flat(values).amin(1), False),
    "max": ("Largest value", lambda values: _flat(values).amax(1), False),
    "norm": ("Norm", lambda values: _flat(values).norm(dim=1), True),
    "zero_fraction": ("Fraction of zeros", lambda values: (_flat(values) == 0).double().mean(1), False),
}
"""The statistics of a profile: a title, the figure of each net, and whether figures are compared by factors."""

PARTS: Mapping[str, tuple[str, str, str]] = {
    "preactivation": ("the preactivation", "preactivations", ""),
    "activation": ("the activation", "activations", ""),
    "gradient": ("the gradient", "gradients", "activations"),
    "weight": ("the weight", "weights", ""),
    "weight_gradient": ("the weight's gradient", "weight_gradients", "parameters"),
    "bias_gradient": ("the bias's gradient", "bias_gradients", "parameters"),
}
"""The tensors of a layer in a profile: its words, the attribute of a stack, and the gradients that it needs."""

_LAYER = "of the last hidden layer, or of another layer in NAME:LAYER (output is the last layer)"


def _figures() -> dict[str, Kind]:
    """A measure for each statistic of each part of a layer."""
    return {
        f"{part}_{statistic}": Kind(
            f"{title} of {words}", f"Its value {_LAYER}.", _of_layer(attribute, figure, needs), "layer", is_log
        )
        for part, (words, attribute, needs) in PARTS.items()
        for statistic, (title, figure, is_log) in STATISTICS.items()
    }


def _saturation(spec: ModelSpec, stack: Stack, layer: int | str | None) -> Tensor:
    _pass(spec, stack)
    middle, limit = SATURATED[spec.activation]
    return ((stack.activations[_place(spec, layer)] - middle).abs() > limit).double().mean((1, 2))


def _gradient_ratio(spec: ModelSpec, stack: Stack, _: object) -> Tensor:
    _pass(spec, stack, "activations")
    first, last = (stack.gradients[place].double() for place in (0, _place(spec, None)))
    return _std(first) / _std(last)


def _gradient_to_weight(spec: ModelSpec, stack: Stack, layer: int | str | None) -> Tensor:
    _pass(spec, stack, "parameters")
    place = _place(spec, layer)
    return _std(stack.weight_gradients[place].double()) / _std(stack.weights[place].double())


def _loss(spec: ModelSpec, stack: Stack, _: object) -> Tensor:
    stack.train(spec.step)
    return stack.forward()


def _loss_ratio(spec: ModelSpec, stack: Stack, _: object) -> Tensor:
    first = stack.forward()
    stack.train(spec.step)
    return stack.forward().double() / first.double()


def _accuracy(spec: ModelSpec, stack: Stack, _: object) -> Tensor:
    stack.train(spec.step)
    return stack.accuracy()


def _first_step(holds: Callable[[Tensor, Any], Tensor]) -> Function:
    """The first step whose loss satisfies a condition; Inf if none does."""

    def function(spec: ModelSpec, stack: Stack, argument: Any) -> Tensor:
        first = torch.full((len(stack.seeds),), math.inf, dtype=torch.float64)

        def watch(step: int, losses: Tensor) -> None:
            first[holds(losses, argument).cpu() & first.isinf()] = step

        stack.train(spec.step, watch)
        watch(spec.step, stack.forward())
        return first

    return function


def _largest_lr(spec: ModelSpec, stack: Stack, _: object) -> Tensor:
    """Bisection: a learning rate is stable if the loss at the step is at most the loss at the beginning.

    0 if no learning rate was stable, Inf if all were.
    """
    drawn = [parameter.clone() for parameter in stack.parameters]
    low = torch.full((len(stack.seeds),), math.log(LR_RANGE[0]), dtype=torch.float64)
    high = torch.full_like(low, math.log(LR_RANGE[1]))
    least, most = low, high
    for _bisection in range(LR_BISECTIONS):
        for parameter, values in zip(stack.parameters, drawn, strict=True):
            parameter.copy_(values)
        middle = (low + high) / 2
        stack.restart_training(middle.exp())
        first = stack.forward()
        stack.train(spec.step)
        stable = (stack.forward() <= first).cpu()
        low, high = torch.where(stable, middle, low), torch.where(stable, high, middle)
    found = torch.where(low == least, 0.0, low.exp())
    return torch.where(high == most, math.inf, found)


KINDS: Mapping[str, Kind] = {
    "gradient_ratio": Kind(
        "Gradient of the first layer ÷ gradient of the last hidden layer",
        "The standard deviation of the loss's gradient for the activation of layer 1, divided by that of the last "
        "hidden layer.",
        _gradient_ratio,
        is_log=True,
    ),
    "activation_size": Kind(
        "Mean size of the activation",
        f"The mean of the absolute values {_LAYER}. µP's coordinate check compares it between widths.",
        _of_layer("activations", lambda values: _flat(values).abs().mean(1)),
        "layer",
        True,
    ),
    "gradient_to_weight_ratio": Kind(
        "Gradient ÷ weight",
        f"The standard deviation of the weight's gradient, divided by that of the weight, {_LAYER}.",
        _gradient_to_weight,
        "layer",
        True,
    ),
    "dead_fraction": Kind(
        "Dead units",
        f"The fraction of units that are 0 for the whole batch, {_LAYER}.",
        _of_layer("activations", _dead),
        "layer",
    ),
    "saturation": Kind("Saturation", f"The fraction of saturated values {_LAYER}.", _saturation, "layer"),
    "loss": Kind("Loss", "The loss at the spec's step.", _loss, is_log=True, trains=True),
    "loss_ratio": Kind(
        "Loss ÷ loss at the beginning",
        "The loss at the spec's step, divided by the loss at step 0: below 1 the net learns, above 1 it diverges.",
        _loss_ratio,
        is_log=True,
        trains=True,
    ),
    "accuracy": Kind(
        "Accuracy",
        "The fraction of correct classes at the spec's step: of held-out samples, or of the batch without a data set.",
        _accuracy,
        trains=True,
    ),
    "steps_to_loss": Kind(
        "Steps to a loss",
        "The first step whose loss is at most LOSS, in steps_to_loss:LOSS; Inf if the loss stays above it.",
        _first_step(lambda losses, limit: losses <= limit),
        "loss",
        is_log=True,
        trains=True,
    ),
    "first_nonfinite": Kind(
        "First step with NaN or Inf",
        "The first step whose loss is not finite; Inf if it stays finite.",
        _first_step(lambda losses, _: ~losses.isfinite()),
        trains=True,
    ),
    "largest_lr": Kind(
        "Largest stable learning rate",
        "The largest learning rate whose loss at the spec's step is at most the loss at step 0, by bisection.",
        _largest_lr,
        is_log=True,
        trains=True,
    ),
    **_figures(),
}
"""The measures by name."""
