"""The findings of a comparison of two precisions, in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from chainrule.precision.rounding import ADDS, NORMALIZES, UNDERFLOWS
from chainrule.trace.graph import Fault, Level, Op, PrecisionErrors, Trace
from chainrule.user_model.what_if import COMPILERS

FACTOR = 6.0
"""An op is named if the error of its output is larger than this multiple of the error that rounding predicts from its
inputs. Healthy nets reach a multiple of 2.3, or of 5 with logits of standard deviation 4 before a softmax."""

DRAWS = frozenset(
    "rand randn rand_like randn_like normal normal_ uniform_ bernoulli bernoulli_ multinomial exponential_ rrelu "
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout gumbel_softmax".split()
)
MATTERS = 0.01
"""A smaller error is a note."""

LOSSES = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss kl_div binary_cross_entropy "
    "binary_cross_entropy_with_logits".split()
)
"""Losses whose relative error grows while they approach 0; this is a note."""

EXPONENTIALS = frozenset("softmax exp exp_".split())
"""Ops that turn an absolute error of their inputs into a relative error of each element."""

RULE = (
    f"the error of an output, ‖b − a‖/‖a‖, exceeds {FACTOR:g} times what rounding predicts: u for the result, √n u for "
    "sums of n terms, and the measured errors of the inputs, added in squares (N. Higham and T. Mary 2019, A New "
    "Approach to Probabilistic Rounding Error Analysis; the factor is Chainrule's). "
    f"An error below {MATTERS:.0%}, or of a loss near 0, is a note"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a comparison: B's trace with its errors, and A's trace.

    `match`: B's tensors → A's. `bounds`: what rounding predicts from the measured errors of the tensors that an op
    read. `elementwise`: the tensors whose errors are those of each element. `underflows`: see `Rounding`.
    """

    a: Trace
    b: Trace
    match: Mapping[str, str]
    bounds: Mapping[str, float]
    elementwise: Container[str]
    underflows: Mapping[str, float]

    @property
    def errors(self) -> PrecisionErrors:
        """The errors of B's trace."""
        assert self.b.precision is not None, "they are measured"
        return self.b.precision


def findings(measured: Measured) -> tuple[Fault, ...]:
    """B's faults, after an overflow that A does not have, and the first op that is beyond its bound."""
    overflows: list[Fault] = []
    others: list[Fault] = []
    for fault in measured.b.faults:
        told = _overflow(measured, fault)
        if told is None:
            others.append(_failed(measured, fault))
        else:
            overflows.append(told)
    found = (_beyond(measured), _underflow(measured))
    return (*overflows, *filter(None, found), *others)


def ratios(measured: Measured) -> Iterator[tuple[float, Op, str]]:
    """Error ÷ bound, op and tensor, in order of execution; not of ops that read NaN or Inf."""
    b, statistics = measured.b, measured.b.statistics
    error = dict(zip(measured.errors.tensor, measured.errors.error, strict=True))
    bad = {each for each in statistics if (row := statistics[each]).nan or row.posinf or row.neginf}
    for op in b.ops:
        if bad.intersection(op.inputs):
            continue
        for each in op.outputs:
            # A saved tensor, such as the mean of a layer norm, may be 0 except for rounding.
            if each in error and each not in bad and b.tensor_by_id[each].role not in ("saved", "buffer"):
                bound = measured.bounds[each]
                yield error[each] / bound if bound > 0 else math.inf if error[each] > 0 else 0.0, op, each


def percent(error: float) -> str:
    """`3.1 %`; errors below a millionth as powers of ten."""
    if error < 1e-6 or error >= 1e4:
        return f"{error:.1e}" if error else "0 %"
    return f"{100 * error:.2g} %" if error < 1 else f"{100 * error:,.0f} %"


def _overflow(measured: Measured, fault: Fault) -> Fault | None:
    """A fault of B's first NaN or Inf, if A's values there are finite, with their size."""
    there = measured.match.get(fault.tensor or "")
    if fault.kind != "first_nonfinite" or there is None or there not in measured.a.statistics:
        return None
    row = measured.a.statistics[there]
    if row.nan or row.posinf or row.neginf or row.min is None or row.max is None:
        return None
    errors = measured.errors
    other = errors.against if errors.of == errors.name else errors.of
    largest = max(abs(row.min), abs(row.max))
    message = f"{fault.message}. In {other} it is finite: its largest magnitude is {largest:.3g}"
    return dataclasses.replace(fault, message=message)


def _failed(measured: Measured, fault: Fault) -> Fault:
    """The fault of a pass that broke off in B alone: the op does not run in this precision."""
    op = next((each for each in measured.b.ops if each.id == fault.op), None)
    if fault.kind != "failed" or op is None:
        return fault
    name = measured.errors.name
    message = f"{op.name} does not run in {name}: {fault.message}"
    remedy = "Run this op in float32, or compare with autocast, which runs some ops in float32."
    if "dtype" in fault.message or "scalar type" in fault.message:
        remedy = (
            "Parameters, buffers and inputs were cast. Create other tensors in their dtype, like torch.zeros_like(x)."
        )
    return dataclasses.replace(fault, message=message, remedy=remedy)


def _beyond(measured: Measured) -> Fault | None:
    b, errors = measured.b, measured.errors
    known = dict(zip(errors.tensor, errors.error, strict=True))
    names = {op.id: op.name for op in b.ops}

    def is_fault(op: Op, identifier: str) -> bool:
        return known[identifier] >= MATTERS and LOSSES.isdisjoint((op.name, names.get(op.twin or "")))

    beyond = [(op, each) for ratio, op, each in ratios(measured) if ratio > FACTOR]
    if not beyond:
        return None
    op, identifier = next((each for each in beyond if is_fault(*each)), beyond[0])
    module = b.module_by_id[op.module].path
    level: Level = "fault" if is_fault(op, identifier) else "note"
    place = Fault("precision", "", module, op.id, identifier, op.source, level=level, rule=RULE)
    where = f"{op.name}{f' in {module}' if module else ''}"
    if op.name in DRAWS:
        message = f"{where} draws other random numbers in {errors.name}, so the errors after it mean nothing"
        remedy = "Draw the numbers in float32 and cast them, or call model.eval() in the factory."
        return dataclasses.replace(place, message=message, remedy=remedy, level="unchecked")
    each = " per element" if identifier in measured.elementwise else ""
    message = (
        f"{where} is the first op with a larger error than rounding predicts: {percent(known[identifier])}{each} in "
        f"{errors.of}, measured against {errors.against}; from its inputs rounding predicts "
        f"{percent(measured.bounds[identifier])}"
    )
    given = [known[each] for each in op.inputs if each in known]
    if given:
        message += f", since their errors are at most {percent(max(given))}"
    why, remedy = _why(measured, op)
    return dataclasses.replace(place, message=f"{message}. {why}", remedy=remedy)


def _why(measured: Measured, op: Op) -> tuple[str, str]:
    """The likely cause, and the remedy."""
    if measured.errors.name in COMPILERS:
        why = "The compiled graph computes another value, or rounds more than the program as it was written"
        remedy = "Compare --as aot_eager --as inductor: a difference of both lies in the graph, else in a kernel."
        return why, remedy
    in_float32 = "Run this op in float32: cast its inputs with .float()."
    read = [each for each in op.inputs if each in measured.b.statistics]
    ends = [
        abs(end) for each in read for end in (measured.b.statistics[each].min, measured.b.statistics[each].max) if end
    ]
    largest = f"up to {max(ends, default=0.0):.3g}"
    if op.name in EXPONENTIALS or op.name == "scaled_dot_product_attention":
        why = f"Its inputs are large ({largest}): their absolute error becomes the relative error of each result"
        return why, "Keep its inputs small: attention divides the scores by √(head size). Or run it in float32."
    if op.name in ADDS:
        why = f"Its terms are large ({largest}) beside the result: they cancel, and their rounding errors stay"
        return why, f"Avoid the difference of nearly equal numbers, or compute its terms in float32. {in_float32}"
    twin = next((each.name for each in measured.b.ops if each.id == op.twin), "")
    if not LOSSES.isdisjoint((op.name, twin)):
        why = "The loss is small beside what it compares, so their rounding errors are large beside it"
        return why, "Compute the last layer and the loss in float32, for example under autocast."
    if op.name in NORMALIZES:
        why = f"Its input has a large mean ({largest}), which it subtracts: the rounding errors of the input stay"
        return why, "Remove the offset before this op, or compute its input in float32."
    return f"It amplifies the errors of its inputs ({largest})", in_float32


def _underflow(measured: Measured) -> Fault | None:
    b = measured.b
    found = next((each for each in b.tensors if each.id in measured.underflows and each.producer is not None), None)
    if found is None:
        return None
    op = next(each for each in b.ops if each.id == found.producer)
    message = (
        f"{found.name} is the first tensor that is too small for {found.dtype}: its smallest numbers are so far apart "
        f"that rounding makes an error of {percent(measured.underflows[found.id])}"
    )
    remedy = "Scale the loss, for example with torch.amp.GradScaler, or use bfloat16, which has smaller numbers."
    module = b.module_by_id[op.module].path
    rule = f"the distance of the smallest numbers makes an error of more than {UNDERFLOWS:.0%}"
    return Fault("precision", message, module, op.id, found.id, op.source, remedy, level="note", rule=rule)
