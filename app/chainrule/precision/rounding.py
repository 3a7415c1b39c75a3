"""The relative error that rounding predicts for each tensor of a run, in the norm over its elements.

An output has the error of its own rounding, u for the result and √n · u of float32 for a sum of n terms, and the errors
of its inputs; independent errors add in squares. Source: N. Higham and T. Mary 2019, A New Approach to Probabilistic
Rounding Error Analysis (doi 10.1137/18M1226312).

    sums, products        an input's error counts by its share of the norm of the result, so that a result that is small
                          because its terms cancel has a large error
    add, sub              likewise, but at most once: their cancellation is what a report is to name
    selections, relu      errors have one size in all elements, so that a part with small elements has a large one
    relu and the like     backward: an input with relative error e crosses zero in a share e/π of the elements (the
                          angle between two Gaussian vectors), where the gradient is another one
    integers and bools    a share s of other elements makes a relative error √(2s)
    all others            the error of each input counts once: they are well conditioned
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import torch

from chainrule.precision.formats import TF32, Precision, unit_roundoff
from chainrule.trace import ops
from chainrule.trace.graph import Op, Tensor, Trace

ADDS = frozenset("add add_ sub sub_ rsub where accumulate".split())
NORMALIZES = frozenset("layer_norm group_norm batch_norm instance_norm rms_norm".split())
JOINS = frozenset(
    "cat concat stack hstack vstack SplitBackward0 SplitWithSizesBackward0 UnsafeSplitBackward0 UnbindBackward0".split()
)
SUMS = frozenset("sum mean nansum".split())
SELECTS = ops.RECTIFIERS | frozenset(
    "getitem select narrow split chunk unbind gather index_select masked_select take_along_dim diagonal topk sort "
    "clamp clamp_ clamp_max hardtanh max min amax amin maximum minimum".split()
)
KINKED = frozenset(
    "relu relu_ relu6 leaky_relu leaky_relu_ prelu rrelu threshold selu selu_ hardtanh hardswish clamp clamp_ "
    "clamp_min clamp_max abs maximum minimum".split()
)
PASSES_ON = re.compile(
    "accumulate|(Expand|ToCopy|Clone|Add|Sub|Sum|Mean|Cat|Stack|Repeat|Slice|Select|Unbind|T|Transpose|Permute|View|"
    "UnsafeView|Split|SplitWithSizes|UnsafeSplit|Reshape|ReshapeAlias|Squeeze|Unsqueeze)Backward"
)
PRODUCT_BACKWARD = re.compile("(Addmm|Mm|Bmm|Baddbmm|Convolution|Mv|Dot)Backward")

FLIPS = 4
"""This many elements may cross zero, or be another integer, in a healthy net."""

BY_CHANCE = 8
"""In a result with fewer elements, terms may cancel by chance."""

UNDERFLOWS = 0.25
"""A tensor underflows if the distance of the smallest numbers makes a larger error than this."""

WELL_CONDITIONED = 2.0
"""An amplification of less is taken as 1: no sum of random terms has exactly the norm that is usual."""

NOISE = 2.0**-8
"""A result whose error in the more precise run is larger is 0 but for rounding, such as the gradient of a bias before a
batch normalization."""


@cache
def dtype_of(name: str) -> torch.dtype | None:
    """The floating dtype of this name; None for integers, bools and complex numbers."""
    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) and found.is_floating_point else None


class Rounding:
    """The prediction for one run.

    Attributes:
        trace: the run whose ops and tensors it is about.
        dtypes: of each tensor, in the run that rounds more, and in the other one.
        norms: of each tensor, in the more precise run; and the share of its elements that are not 0.
        differing: of each integer or bool tensor, the share of elements that differ between the runs.
        underflows: the tensors whose elements are too small for their dtype, with the error that this makes.
    """

    def __init__(
        self,
        trace: Trace,
        precision: Precision,
        dtypes: Mapping[str, tuple[str, str]],
        norms: Mapping[str, tuple[float, float]],
        differing: Mapping[str, float],
    ) -> None:
        self.trace = trace
        self.underflows: dict[str, float] = {}
        self._is_tf32 = precision.is_tf32
        self._dtypes = dtypes
        self._norms = norms
        self._differing = differing
        self._tensors = trace.tensor_by_id
        self._ops = {op.id: op for op in trace.ops}
        self._with_gradient = {each.gradient_of for each in trace.tensors}
        self._saved: Mapping[str, list[str]] = defaultdict(list)
        for each in trace.saved:
            self._saved[each.op].append(each.tensor)

    def of_leaf(self, identifier: str) -> float:
        """The error of a tensor that the run was given."""
        less, more = map(dtype_of, self._dtypes[identifier])
        return 0.0 if less is None or less == more else unit_roundoff(less)

    def of_output(self, op: Op, identifier: str, errors: Mapping[str, float], at_most: bool = False) -> float | None:
        """The error of an output, from the `errors` of the tensors that its op reads; None for integers.

        If less than one element is expected to cross zero, none does; but `at_most` a few do.
        """
        y = self._tensors[identifier]
        dtype = dtype_of(self._dtypes[identifier][0])
        if dtype is None:
            return None
        twin = self._ops.get(op.twin or "")
        if twin is None or op.flops == 0 or op.name in ops.VIEWS or PASSES_ON.match(op.name):
            reads = list(op.inputs)
        else:
            reads = self._factors(op, y) if self._is_product(op) else [*op.inputs, *self._saved[twin.id]]
        if twin is not None:
            reads += [each for each in twin.inputs if each in self._differing and each not in reads]
        squares, saved = self._local(op, y, dtype), 0.0
        for place, each in enumerate(reads):
            x, is_saved = self._tensors[each], place >= len(op.inputs)
            size = max(1, math.prod(x.shape))
            slack = min(FLIPS, size // 4) if at_most and x.producer is not None else 0
            if each in self._differing:
                squares += 2 * (self._differing[each] + slack / size)
            # The mean that a normalization saves may be 0 but for rounding.
            if each not in errors or (is_saved and x.role == "saved" and twin is not None and twin.name in NORMALIZES):
                continue
            square = (self._weight(op, x, y, at_most) * errors[each]) ** 2
            if is_saved and twin is not None and twin.name in KINKED:
                flips = min(errors[each], 1.0) * size / math.pi
                square += 2 * ((flips if flips >= 1 or at_most else 0) + slack) / size
            # A module in C++ has saved all that its ops have saved; an op reads one of them.
            if is_saved:
                saved = max(saved, square)
            else:
                squares += square
        squares += saved
        below = self._below(y, dtype)
        if below > max(UNDERFLOWS, math.sqrt(squares)):
            self.underflows[y.id] = below
        return math.hypot(math.sqrt(squares), below)

    def _local(self, op: Op, y: Tensor, dtype: torch.dtype) -> float:
        """The square of the error that the op's own rounding makes."""
        read = {dtype_of(self._dtypes[each][0]) for each in op.inputs} - {None}
        if (op.flops == 0 or op.name in ops.VIEWS) and read == {dtype}:
            return 0.0
        # A recurrent layer under autocast computes in a lower precision than its result has.
        made = {dtype_of(self._dtypes[each][0]) for each in op.outputs}
        u = max(unit_roundoff(each) for each in made if each is not None)
        n = self._length(op, y)
        # Products and sums are added in float32; the backward of a normalization on CPU adds in its own dtype.
        adds_wide = op.phase == "forward" or self._is_product(op) or PASSES_ON.match(op.name) is not None
        coarsest = max([u, *(unit_roundoff(each) for each in read if each is not None)])
        inside = min(u, unit_roundoff(torch.float32)) if adds_wide else coarsest
        # Autocast rounds what an op in a lower precision reads.
        cast = sum(each is not None and unit_roundoff(each) < u for each in read)
        factors = 2 * TF32**2 if self._is_tf32 and self._is_product(op) else 0.0
        return (1 + cast) * u**2 + n * inside**2 + factors

    def _below(self, y: Tensor, dtype: torch.dtype) -> float:
        """The error of numbers below the normal ones, whose distance stays the same."""
        info, norm = torch.finfo(dtype), self._norms.get(y.id, (0.0, 0.0))[0]
        return min(1.0, info.tiny * info.eps / 2 * math.sqrt(math.prod(y.shape)) / norm) if norm > 0 else 0.0

    def _is_product(self, op: Op) -> bool:
        return op.name in ops.LINEAR or PRODUCT_BACKWARD.match(op.name) is not None

    def _length(self, op: Op, y: Tensor) -> float:
        """The terms of a sum in the op."""
        size = max(1, math.prod(y.shape))
        if self._is_product(op) and len(y.shape) > 1:
            products = sum(self._is_result(each) for each in op.outputs)
            return max(1.0, op.flops / (2 * size * products))
        return max([1.0, *(math.prod(self._tensors[each].shape) / size for each in op.inputs)])

    def _weight(self, op: Op, x: Tensor, y: Tensor, at_most: bool) -> float:
        """The relative error of `y` for a relative error of 1 of `x`; `at_most`: errors of a batch may agree."""
        size, n = math.prod(y.shape), self._length(op, y)
        norm, full = self._norms.get(y.id, (0.0, 0.0))
        if not norm > 0:
            return 1.0
        share = self._rms(x.id) * math.sqrt(size) / norm
        if op.name in JOINS:
            return share * math.sqrt(math.prod(x.shape) / size)
        if op.name in ADDS:
            noise = share * unit_roundoff(dtype_of(self._dtypes[y.id][1]) or torch.float32)
            is_named = op.phase == "forward" and size >= BY_CHANCE and noise < NOISE
            return min(share, 1.0) if is_named else share
        weight = 1.0
        terms = n if at_most and op.phase == "backward" else math.sqrt(n)
        twin = self._ops.get(op.twin or "")
        if op.name in SUMS:
            weight = share * terms / (n if op.name == "mean" else 1)
        elif self._is_product(op):
            factors = self._factors(op, y)
            if op.phase == "backward" and self._is_result(y.id):
                if len(factors) < 2:
                    return 1.0  # of a module in C++
                if twin is not None and factors[1] != self._factors(twin, y)[0]:
                    terms = math.sqrt(n)  # over features, not over a batch whose rows may round alike
            # A bias is added.
            weight = terms * math.prod(map(self._rms, factors)) * math.sqrt(size) / norm if x.id in factors else share
        elif op.name in SELECTS:
            weight = share * math.sqrt(full)
        elif op.phase == "backward" and x.id in op.inputs:
            if n > 1:
                weight = share * terms
            elif twin is not None and twin.name in (*NORMALIZES, "softmax"):
                # The backward of these ops removes a part of the gradient; for some losses, all of it.
                weight = share * self._slope(twin)
        return max(weight, 1.0) if weight >= WELL_CONDITIONED else 1.0

    def _slope(self, op: Op) -> float:
        """The usual size of the derivative of a normalization, 1/std times its weight, or of a softmax."""
        if op.name == "softmax":
            return self._rms(op.outputs[0])
        saved = [each for each in op.outputs if self._tensors[each].role == "saved"]
        scale = self._rms(op.inputs[1]) if len(op.inputs) > 1 else 1.0
        return scale * self._rms(saved[1]) if len(saved) > 1 else 0.0

    def _factors(self, op: Op, y: Tensor) -> list[str]:
        """The tensors whose product `y` is, of a backward op; of a forward op, the factors. Empty for other ops."""
        if op.name in ops.LINEAR:
            return list(op.inputs[1:3] if op.name in ("addmm", "baddbmm", "addmv") else op.inputs[:2])
        twin = self._ops.get(op.twin or "")
        if twin is None or not self._is_product(op):
            return []
        factors = self._factors(twin, y)
        made = [each for each in op.outputs if self._is_result(each)]
        if y.id not in made or len(factors) < 2:
            return list(op.inputs)
        # Autograd gives the gradient of the first factor first.
        place = made.index(y.id) if len(made) > 1 else int(factors[1] in self._with_gradient)
        return [*op.inputs, factors[1 - place]]

    def _is_result(self, identifier: str) -> bool:
        tensor = self._tensors[identifier]
        return len(tensor.shape) > 1 and tensor.role != "saved"

    def _rms(self, identifier: str) -> float:
        shape = self._tensors[identifier].shape
        return self._norms.get(identifier, (0.0, 0.0))[0] / math.sqrt(max(1, math.prod(shape)))
