"""The cost of a spec, estimated from above without running it.

A table lists the recorded ops and tensors of each part of a graph (a linear layer, an activation, a loss, a step of
Python); the bytes that each of them takes in an answer are measured. Tests compare all of it with recordings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import orjson

from chainrule.spec import ModelSpec

Shapes = Mapping[str, int]
"""The number of tensors of each shape: `input` (batch, fan_in), `output` (batch, fan_out), `weight` (fan_in, fan_out),
`row` (fan_in,), `bias` (fan_out,) and `one` ()."""

ITEM_SIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per value."""

FLOAT16_ON_CPU = 100
"""A CPU takes as long for one operation of a float16 matrix product as for this many in float32.

Measured with PyTorch 2.13 on one core of an x86 with AVX-512, for sides 1 to 1024 in all four layouts: 0.1 to 20 · 10⁹
operations a second, half of them at less than 3; in float32 15 to 100. So the factor is 1 to 250, about 30 in the
middle, and 70 to 220 for large matrices in a bad layout. Elementwise ops and statistics are as fast as in float32.
"""

FLOPS_PER_VALUE = 11
"""Operations per value of a tensor: one to compute it, ten for its statistics."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a pass: float32 operations (a slower one counts several times), peak memory, and the dump's size."""

    flops: int
    memory_bytes: int
    response_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """The recorded ops (of both phases) and tensors of one part of a graph.

    `held` are the tensors that are alive at the peak of the pass, None for all. It is measured, so it includes memory
    that the allocator cannot reuse.
    """

    ops: int
    tensors: Shapes
    held: Shapes | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """The parts of a net in one style.

    Attributes:
        ends: once per net: x, and the loss with the target.
        activation: None if its formula is recorded op by op, and not as one op of autograd.
        held: the tensors of such a formula that are alive at the peak of the pass.
    """

    linear: Part
    linear_without_bias: Part
    ends: Part
    activation: Part | None = None
    held: int = 5


_BY_HAND = Style(
    linear=Part(7, {"input": 2, "output": 2, "weight": 3, "bias": 2}, {"output": 4, "weight": 3}),
    linear_without_bias=Part(5, {"input": 2, "output": 1, "weight": 3}, {"output": 4, "weight": 3}),
    ends=Part(9, {"input": 1, "output": 9, "one": 1}, {"input": 4, "output": 10}),
)

STYLES: Mapping[str, Style] = {
    "functions": _BY_HAND,
    "classes": _BY_HAND,
    "layer_function": _BY_HAND,
    "autograd_function": Style(
        linear=Part(7, {"input": 1, "output": 3, "weight": 3, "bias": 2}, {"output": 3, "weight": 3}),
        linear_without_bias=Part(5, {"input": 1, "output": 2, "weight": 3}, {"output": 3, "weight": 3}),
        ends=Part(10, {"input": 1, "output": 10, "one": 3}, {"input": 4, "output": 12}),
        held=2,
    ),
    "module": Style(
        linear=Part(6, {"output": 4, "weight": 4, "bias": 2}, {"output": 3, "weight": 3}),
        linear_without_bias=Part(4, {"output": 2, "weight": 4}, {"output": 3, "weight": 3}),
        ends=Part(9, {"input": 2, "output": 7, "one": 4}, {"input": 4, "output": 10}),
        activation=Part(2, {"output": 2}, {"output": 1}),
    ),
}
"""The five styles of the net."""

OPS_OF_ACTIVATION = {
    "linear": 0,
    "relu": 4,
    "leaky_relu": 5,
    "tanh": 4,
    "sigmoid": 4,
    "gelu": 12,
    "silu": 7,
    "elu": 5,
    "selu": 6,
}
"""The number of ops in the formulas of an activation and of its gradient; each makes one tensor."""

ELEMENTWISE: Mapping[str, Part] = {
    "exp": Part(4, {"input": 4, "one": 2}),
    "mul_constant": Part(4, {"input": 4, "one": 2}),
    "my_relu": Part(6, {"input": 6, "one": 2}),
    "two_outputs": Part(9, {"input": 10, "one": 2}),
}
"""The programs that consist of one Function of x (batch, n) and a sum."""

_MATMUL_ENDS = Part(5, {"input": 2, "weight": 2, "output": 1, "one": 3})

STEPS: Mapping[str, Part] = {
    "loops": Part(15, {"output": 6, "input": 1, "weight": 1, "bias": 1, "row": 1, "one": 10}, {"one": 10}),
    "elementwise": Part(10, {"output": 2, "input": 1, "weight": 1, "row": 6, "one": 2}, {"row": 6}),
    "broadcasting": Part(10, {"output": 2, "input": 1, "weight": 3, "row": 4, "bias": 2}, {"weight": 1, "row": 4}),
}
"""A step of Python in a matrix product of a (m, k) and b (k, n): batch m, fan_in k, fan_out n."""

PRODUCTS: Mapping[str, Part] = {
    "einsum": Part(15, {"input": 6, "weight": 6, "output": 5, "one": 2}, {"input": 3, "weight": 3, "output": 3}),
    "@": Part(4, {"input": 2, "weight": 2, "output": 2, "one": 2}),
}
"""The matrix products that one op computes; most ops inside einsum are views."""


def estimate_cost(spec: ModelSpec) -> Cost:
    """The cost of the draws, of one forward and backward pass, of all statistics and of the dump.

    A product of (batch, fan_in) and (fan_in, fan_out) takes 2·batch·fan_in·fan_out operations; the backward pass has
    two such products per layer. Any other op takes about one per value. An orthogonal draw is a QR decomposition.
    """
    tally = count_graph(spec)
    flops = slowness(spec) * tally.product_flops + FLOPS_PER_VALUE * tally.values
    # The largest tensor once more: its draw is float32 before the cast, and its statistics may be float64.
    memory = ITEM_SIZE[spec.dtype] * tally.held + (4 + 2 * 8) * tally.largest
    if spec.step:
        # The parameters are drawn and copied, and with them two moments, the gradients, the updates and a checkpoint.
        memory += 10 * ITEM_SIZE[spec.dtype] * sum(fan_in * fan_out for fan_in, fan_out in pairwise(spec.widths))
    if "init" in spec.keys and spec.init == "orthogonal":
        flops += sum(4 * max(pair) * min(pair) ** 2 for pair in pairwise(spec.widths))
        memory += 2 * 4 * max(fan_in * fan_out for fan_in, fan_out in pairwise(spec.widths))
    answer = _dump_bytes(tally, spec)
    # The recording's objects with the dump, and the smallest pass: buffers of products, rounding by the allocator.
    return Cost(flops, memory + 6 * answer + (4 << 20), answer)


def slowness(spec: ModelSpec) -> int:
    """The time of an operation of a matrix product, in units of float32's."""
    return FLOAT16_ON_CPU if spec.dtype == "float16" and spec.device == "cpu" else 1


def count_steps(spec: ModelSpec) -> int:
    """The steps of Python in the matrix product of (m, k) and (k, n): m·k·n with three loops, m·n with two, m with one.

    0 for other programs and for products of one op. The ops of every step are recorded.
    """
    if spec.program != "matmul":
        return 0
    m, k, n = spec.batch, spec.n_in, spec.n_out
    return {"loops": m * k * n, "elementwise": m * n, "broadcasting": m}.get(spec.rung, 0)


class Tally:
    """The figures of a graph while its parts are added to it."""

    def __init__(self) -> None:
        self.ops = 0
        self.tensors = 0
        self.modules = 3  # the root, the loss, and the list of layers or the program
        self.layers = 0
        self.activations = 0  # tensors with fractions of dead and saturated units
        self.product_flops = 0
        self.values = 0  # of all tensors
        self.held = 0  # values that are alive at the peak
        self.largest = 0
        self.row_bytes = 0.0  # of the statistics of all tensors

    def add(self, part: Part, batch: int, fan_in: int, fan_out: int, times: int = 1) -> None:
        """Add a part so many times."""
        sizes = {
            "input": batch * fan_in,
            "output": batch * fan_out,
            "weight": fan_in * fan_out,
            "row": fan_in,
            "bias": fan_out,
            "one": 1,
        }
        self.ops += times * part.ops
        for shape, count in part.tensors.items():
            size = sizes[shape]
            self.tensors += times * count
            self.values += times * count * size
            self.largest = max(self.largest, size)
            self.row_bytes += times * count * _row_bytes(size)
        held = part.tensors if part.held is None else part.held
        self.held += times * sum(count * sizes[shape] for shape, count in held.items())


def count_graph(spec: ModelSpec) -> Tally:
    """The figures of the graph that a spec's recording has."""
    tally = Tally()
    if spec.is_net:
        _add_net(tally, spec)
        return tally
    if spec.program == "neuron":
        # Each input is selected from x and from w, multiplied and added, and each of these ops has a gradient.
        tally.modules += 1
        tally.add(Part(12, {"row": 4, "one": 11}), 1, spec.n_in, 1)
        tally.add(Part(4, {"one": 8}), 1, spec.n_in, 1, times=spec.n_in)
        tally.activations += 1
        return tally
    sizes = spec.batch, spec.n_in, spec.n_out
    if spec.program in ELEMENTWISE:
        tally.add(ELEMENTWISE[spec.program], *sizes)
        tally.activations += 1
        return tally
    tally.product_flops += 6 * math.prod(sizes)
    if spec.program != "matmul":
        tally.add(STYLES["autograd_function"].linear, *sizes)
        tally.add(STYLES["autograd_function"].ends, *sizes)
    elif spec.rung in STEPS:
        tally.add(_MATMUL_ENDS, *sizes)
        tally.add(STEPS[spec.rung], *sizes, times=count_steps(spec))
    else:
        tally.add(PRODUCTS[spec.rung], *sizes)
    return tally


def _add_net(tally: Tally, spec: ModelSpec) -> None:
    style = STYLES[spec.style]
    linear = style.linear if spec.bias else style.linear_without_bias
    count = OPS_OF_ACTIVATION[spec.activation]
    activation = style.activation or Part(count, {"output": count}, {"output": min(count, style.held)})
    # Layers of equal size are added at once: most nets have few sizes, and a slider asks many times a second.
    for (fan_in, fan_out), times in Counter(pairwise(spec.widths)).items():
        tally.add(linear, spec.batch, fan_in, fan_out, times)
        tally.product_flops += times * 6 * spec.batch * fan_in * fan_out  # the product and its two gradients
    tally.modules += spec.depth
    if spec.activation != "linear":
        activated = spec.widths[1:] if spec.last_activation else spec.widths[1:-1]
        for width, times in Counter(activated).items():
            tally.add(activation, spec.batch, width, width, times)
        tally.modules += len(activated)
        tally.activations += 3 * len(activated)
    tally.add(style.ends, spec.batch, spec.n_in, spec.n_out)
    tally.layers = spec.depth


@lru_cache(maxsize=1024)
def _row_bytes(size: int) -> float:
    """The largest row of statistics of `size` values: counts of 64 bins, moments, a small tensor's values; no id.

    The mean number of digits of 64 counts is largest when they are equal. A float64 has up to 24 characters.
    """
    counts = 64 * (2 + math.log10(1 + size / 64)) + 2
    moments = 7 * 25 + 2 * len("null,") + 23
    values = len('"":[],') + 25 * size if size <= 16 else 0  # `stats.SMALL`
    return counts + moments + 4 * (len(str(size)) + 1) + values


def _dump_bytes(tally: Tally, spec: ModelSpec) -> int:
    digits = len(str(tally.tensors))  # of the number in an id
    size_digits = len(str(2 * tally.largest))
    return (
        3072  # the lines of source, the environment, the keys
        + len(orjson.dumps(spec.as_dict()))
        + tally.ops * (330 + 6 * digits + 2 * size_digits)  # names, line of source, saved tensors, duration
        + tally.tensors * (172 + 6 * digits)
        + tally.modules * 75
        + tally.layers * (155 + 7 * digits)
        + tally.activations * 2 * 20  # the fractions of dead and of saturated units
        + math.ceil(tally.row_bytes)
    )


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """The size of an answer in a format: `percent` of the dump, and `fixed` bytes."""

    percent: int
    fixed: int = 0

    def of(self, dump_bytes: int) -> int:
        """Bytes of the answer to a dump of this size."""
        return self.fixed + dump_bytes * self.percent // 100


ANSWERS: Mapping[str, AnswerSize] = {
    "json": AnswerSize(100),
    "dot": AnswerSize(100),
    # If every group is open, each op is a box of several elements.
    "svg": AnswerSize(250, 4096),
    # It contains the explorer.
    "html": AnswerSize(115, 2 << 20),
    "model-explorer": AnswerSize(125),
    "node-data": AnswerSize(100),
    "pytorch": AnswerSize(100),
}
"""By the names of `formats.py`."""

WORKING_MEMORY: Mapping[str, AnswerSize] = {
    # The engine's process with the page's modules, the layout, the picture as elements and text. Measured: 80 MiB, and
    # 25 to 57 times the dump.
    "svg": AnswerSize(6000, 96 << 20),
    # The page's files and copies of the text. Measured: 17 MiB, and 3 times the dump.
    "html": AnswerSize(400, 24 << 20),
}
"""The memory for making an answer, beside the dump; other formats need less than the pass has freed."""


def with_answer(cost: Cost, form: str) -> int:
    """Bytes of memory at the height of a pass and of writing its answer in a format, from above."""
    working = WORKING_MEMORY.get(form)
    return cost.memory_bytes + (0 if working is None else working.of(cost.response_bytes))
