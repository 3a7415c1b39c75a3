"""Expected values for the layers of a trace without a spec, from each layer's measured input.

Reads the arguments of `theory/local.py` from a trace: the weighing op, the statistics of its input and its weight, and
the activation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from chainrule.diagnose.passes import Passes
from chainrule.stats import Summary
from chainrule.theory.layer_statistics import Expected
from chainrule.theory.local import (
    ZERO,
    Elements,
    Weighing,
    convolution,
    expected_forward,
    expected_gradient,
    linear,
    taps_on_input,
)
from chainrule.trace import Layer, Op, Tensor, Trace
from chainrule.trace.ops import VIEWS

ACTIVATIONS: Mapping[str, str] = {
    **{name: name for name in ("relu", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "elu", "selu")},
    **{f"{name}_": name for name in ("relu", "leaky_relu", "tanh", "sigmoid", "elu", "selu")},
}
"""Op → the activation that theory knows, if the op's arguments are the defaults."""

COMPOSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("NewGELUActivation", "FastGELUActivation", "GELUActivation", "PytorchGELUTanh", "AccurateGELUActivation"),
        "gelu",
    ),
    **dict.fromkeys(("SiLUActivation", "Swish"), "silu"),
}
"""Module type → activation, for modules that compute it by several ops; a band covers approximations of gelu."""

_USUAL: Mapping[str, Mapping[str, float]] = {"leaky_relu": {"negative_slope": 0.01}, "elu": {"alpha": 1.0}}
_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_CONVOLUTION_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


class _UnsaidError(Exception):
    """Theory does not apply to a layer; the message says why."""


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The weighing op of a layer: its input, its output, and its parameters."""

    x: str
    output: str
    weighing: Weighing


def local_expectations(trace: Trace) -> list[tuple[Mapping[str, Expected], str | None]]:
    """The expected values of every layer of a trace, first to last, and why some are missing."""
    reading = _Reading(trace)
    weighed: list[_Weighed | str] = []
    for layer in trace.layers:
        try:
            weighed.append(reading.weighed(layer))
        except _UnsaidError as unsaid:
            weighed.append(str(unsaid))
    by_input = {each.x: each for each in weighed if isinstance(each, _Weighed)}
    return [_found(reading, layer, each, by_input) for layer, each in zip(trace.layers, weighed, strict=True)]


def _found(
    reading: _Reading, layer: Layer, weighed: _Weighed | str, by_input: Mapping[str, _Weighed]
) -> tuple[Mapping[str, Expected], str | None]:
    expected: dict[str, Expected] = {}
    reason: str | None = weighed if isinstance(weighed, str) else None
    if isinstance(weighed, _Weighed):
        activation, name = reading.activation(layer)
        if activation is None:
            reason = f"{name}: theory covers only the preactivation of this layer"
        shape = () if layer.activation is None else reading.tensors[layer.activation].shape
        # The first dimension is the batch, as it is when dead units are counted.
        inputs = max(1, shape[0]) if shape else 1
        expected |= expected_forward(weighed.weighing, reading.elements(weighed.x), activation, inputs)
        if not expected:
            reason = "all inputs are 0"
        elif (activated := reading.summary(layer.activation or "")) is not None:
            # If an activation consists of several ops, its units are not counted.
            for name in ("dead_fraction", "saturation"):
                if getattr(activated, name) is None:
                    expected.pop(name, None)
    gradient = reading.gradient_std(layer, by_input)
    if gradient is not None:
        expected["gradient_std"] = gradient
    return expected, reason


class _Reading(Passes):
    """A trace with lookups for theory."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.gradient = {
            tensor.gradient_of: tensor.id for tensor in reversed(trace.tensors) if tensor.gradient_of is not None
        }
        self._summaries: dict[str, Summary | None] = {}

    def summary(self, tensor: str) -> Summary | None:
        """The statistics of a tensor all of whose elements are finite floats."""
        if tensor not in self._summaries:
            found = None
            if tensor in self.trace.statistics and "float" in self.tensors[tensor].dtype:
                summary = self.trace.statistics[tensor]
                if summary.n and summary.norm is not None and not summary.nan + summary.posinf + summary.neginf:
                    found = summary
            self._summaries[tensor] = found
        return self._summaries[tensor]

    def elements(self, tensor: str) -> Elements:
        """Mean and second moment of a tensor.

        Raises:
            _UnsaidError: it has no statistics, or a value that is not finite.
        """
        summary = self.summary(tensor)
        if summary is None or summary.mean is None or summary.norm is None:
            raise _UnsaidError(f"{self.tensors[tensor].name}: it has no statistics, or a value that is not finite")
        return Elements(summary.mean, summary.norm**2 / summary.n)

    def kind(self, tensor: str) -> str:
        """The type of the module that made a tensor, or the op's name at the top level."""
        module = self.trace.module_by_id[self.tensors[tensor].module]
        maker = self.maker(tensor)
        return module.type if module.path or maker is None else maker.name

    def weighed(self, layer: Layer) -> _Weighed:
        """The weighing op of a layer.

        Raises:
            _UnsaidError: theory does not know the op, or lacks statistics.
        """
        output = layer.preactivation
        if output is None:
            raise _UnsaidError("the layer has no output")
        op, bias = self.maker(output), None
        while op is not None and op.name in VIEWS and op.inputs and self._size(op.inputs[0]) == self._size(output):
            op = self.maker(op.inputs[0])
        if op is not None and op.name in ("add", "add_"):
            op, bias = self._product_and_bias(op)
        if op is None or not (op.name in _CONVOLUTIONS or op.name in ("linear", "addmm", "matmul", "mm")):
            raise _UnsaidError(f"{self.kind(output)}: theory does not cover this layer")
        x, weight, given = self._operands(op, layer, self.kind(output))
        bias = bias if bias is not None else given
        elements = self.elements(weight.id)
        bias_elements = ZERO if bias is None else self.elements(bias)
        self.elements(x)
        weighing = self._weighing(op, self.tensors[x], weight, elements, bias_elements)
        if weighing.fault is not None:
            raise _UnsaidError(f"{self.kind(output)}: {weighing.fault}")
        return _Weighed(x, output, weighing)

    def _product_and_bias(self, addition: Op) -> tuple[Op | None, str | None]:
        """Split `matmul + bias` into the matmul op and the bias."""
        pair = addition.inputs[:2]
        for name, bias in zip(pair, [*pair[1:], *pair[:1]] if len(pair) > 1 else [None], strict=True):
            maker = self.maker(name)
            if maker is None or maker.name not in ("matmul", "mm"):
                continue
            if bias is None or (self.tensors[bias].role == "parameter" and len(self.tensors[bias].shape) <= 1):
                return maker, bias
        return None, None

    def _operands(self, op: Op, layer: Layer, kind: str) -> tuple[str, Tensor, str | None]:
        """The input, the weight and the bias of an op."""
        inputs = op.inputs
        if op.name == "addmm" and len(inputs) == 3:
            bias, x, weight = inputs
            return x, self.tensors[weight], bias
        if op.name in ("matmul", "mm"):
            viewed = inputs[-1]
            while (maker := self.maker(viewed)) is not None and maker.name in VIEWS and viewed != layer.weight:
                viewed = maker.inputs[0]
            if len(inputs) == 2 and viewed == layer.weight and len(self.tensors[inputs[1]].shape) == 2:
                return inputs[0], self.tensors[inputs[1]], None
        elif 2 <= len(inputs) <= 3:
            return inputs[0], self.tensors[inputs[1]], inputs[2] if len(inputs) == 3 else None
        raise _UnsaidError(f"{kind}: theory does not cover this layer")

    def _weighing(self, op: Op, x: Tensor, weight: Tensor, elements: Elements, bias: Elements) -> Weighing:
        if op.name not in _CONVOLUTIONS:
            first, second = weight.shape[-2:]
            units_in, units = (second, first) if op.name == "linear" else (first, second)
            return linear(units_in, units, elements, bias)
        space = _CONVOLUTIONS[op.name]
        size = x.shape[-space:]
        outputs = self.tensors[op.outputs[0]].shape
        kernel = weight.shape[2:]
        stride, dilation = (_per_dimension(_argument(op, name, 1), space) for name in ("stride", "dilation"))
        padding = _padding(_argument(op, "padding", 0), kernel, dilation)
        taps = [
            (size[d], outputs[-space:][d], taps_on_input(*row))
            for d, row in enumerate(zip(size, outputs[-space:], kernel, stride, padding, dilation, strict=True))
        ]
        channels = x.shape[-space - 1]
        return convolution((channels, weight.shape[0]), channels // weight.shape[1], taps, elements, bias)

    def activation(self, layer: Layer) -> tuple[str | None, str]:
        """The name of a layer's activation in theory, None if theory does not know it; and its name in messages."""
        if layer.activation is None or layer.activation == layer.preactivation:
            return "linear", "linear"
        op = self.maker(layer.activation)
        module = self.trace.module_by_id[self.tensors[layer.activation].module]
        if module.type in COMPOSED:
            return COMPOSED[module.type], module.type
        if op is None or op.inputs[:1] != (layer.preactivation,):
            return None, module.type
        if op.name in ("clamp_min", "clamp_min_") and _argument(op, "min", None, 1) == 0:
            return "relu", op.name
        name = ACTIVATIONS.get(op.name)
        usual = _USUAL.get(name or "", {})
        if any(_argument(op, key, value, 1) != value for key, value in usual.items()):
            return None, f"{op.name} with non-default arguments"
        return name, op.name

    def gradient_std(self, layer: Layer, by_input: Mapping[str, _Weighed]) -> Expected | None:
        """The expected gradient of a layer's activation, if exactly one layer reads it."""
        if layer.activation is None or layer.gradient is None:
            return None
        read = layer.activation
        while read not in by_input:
            readers = self.forward_readers(read)
            if len(readers) != 1 or readers[0].name not in VIEWS or len(readers[0].outputs) != 1:
                return None
            read = readers[0].outputs[0]
            if self._size(read) != self._size(layer.activation):
                return None
        if len(self.forward_readers(read)) != 1:
            return None
        after = by_input[read]
        arriving = self.gradient.get(after.output)
        if arriving is None or self.summary(arriving) is None:
            return None
        return expected_gradient(after.weighing, self.elements(arriving))

    def _size(self, tensor: str) -> int:
        return prod(self.tensors[tensor].shape)


def _argument(op: Op, name: str, default: object, position: int | None = None) -> object:
    """An argument of an op by name, or by position: the names of some torch functions' arguments are unknown."""
    if position is None:
        position = _CONVOLUTION_ARGUMENTS.index(name)
    return op.attributes.get(name, op.attributes.get(str(position), default))


def _per_dimension(value: object, space: int) -> list[int]:
    """A stride or a dilation for every dimension of space.

    Raises:
        _UnsaidError: it is neither a number nor a list of numbers.
    """
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    numbers = [each for each in values if isinstance(each, int)]
    if len(numbers) != len(values) or len(numbers) not in (1, space):
        raise _UnsaidError("the convolution's arguments were not recorded")
    return numbers * space if len(numbers) == 1 else numbers


def _padding(value: object, kernel: tuple[int, ...], dilation: list[int]) -> list[int]:
    """The padding before the first element, for every dimension of space."""
    if value == "valid":
        return [0] * len(kernel)
    if value == "same":
        return [reach * (taps - 1) // 2 for taps, reach in zip(kernel, dilation, strict=True)]
    return _per_dimension(value, len(kernel))
