"""One pass of a user's model in two precisions, compared tensor by tensor.

    subject ─▶ A, as the factory made it ─▶ samples ┐
       └─▶ B, a copy in another precision ─▶ samples ┴▶ errors beside what rounding predicts ─▶ B's trace, with findings

The errors are those of the less precise run, measured against the more precise one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch

from chainrule.errors import ExploreError
from chainrule.precision.findings import EXPONENTIALS, Measured, findings
from chainrule.precision.formats import (
    Precision,
    check_precision,
    dtypes_of,
    in_words,
    precision_named,
    products_in,
    unit_roundoff,
)
from chainrule.precision.match import matched_tensors
from chainrule.precision.rounding import Rounding
from chainrule.precision.samples import Samples, in_pairs
from chainrule.trace.graph import PrecisionErrors, Trace
from chainrule.user_model.copies import copied_subject
from chainrule.user_model.subject import Subject
from chainrule.user_model.tracer import Tracer


def relative_error(value: torch.Tensor, reference: torch.Tensor) -> float | None:
    """‖value − reference‖ / ‖reference‖ over the elements that are finite in both, in float64; None for 0 / 0."""
    wide = torch.complex128 if reference.is_complex() else torch.float64
    x, y = value.to(wide), reference.to(wide)
    both = x.isfinite() & y.isfinite()
    apart, norm = float((x - y)[both].norm()), float(y[both].norm())
    return apart / norm if norm > 0 else 0.0 if apart == 0 and bool(both.any()) else None


def elementwise_error(value: torch.Tensor, reference: torch.Tensor) -> float | None:
    """The root mean square of |value − reference| ÷ |reference|, at most 1 each; None without normal numbers.

    The error of probabilities: in the norm, the largest ones would hide the others.
    """
    x, y = value.double(), reference.double()
    large = y.isfinite() & x.isfinite() & (y.abs() > max(torch.finfo(each.dtype).tiny for each in (value, reference)))
    found = ((x - y)[large] / y[large]).clamp(-1, 1)
    return float(found.square().mean().sqrt()) if found.numel() else None


def compare_precisions(subject: Subject, *names: str, seed: int = 42) -> list[Trace]:
    """Trace one pass as it is, A, and in each precision of these names, or compiled, B. A comes first.

    B's trace has the errors and what they mean. If B's pass raises, its trace ends there. With tf32 among the
    names, the products of A are in IEEE float32.

    Raises:
        ExploreError: there is no such precision here, the model is in it already, or A's pass raises.
        MemoryLimitError: there is no memory for a copy or a pass.
    """
    from chainrule.precision.compilers import compiled_pass

    precisions = [precision_named(name) for name in names]
    for precision in precisions:
        check_precision(precision, subject)
    own = dtypes_of(subject)
    with products_in("ieee" if any(each.is_tf32 for each in precisions) else None):
        a, of_a = _sampled(subject, seed)
    if a.error is not None:
        raise ExploreError(a.error.message)
    traces = [a]
    for precision in precisions:
        if precision.is_compiled:
            traces.append(compiled_pass(a, of_a, subject, precision.name, seed))
            continue
        if precision.is_autocast:
            other = dataclasses.replace(subject, autocast=precision.dtype)
        else:
            other = subject if precision.is_tf32 else copied_subject(subject, precision.dtype)
        with products_in("tf32" if precision.is_tf32 else None):
            b, of_b = _sampled(other, seed)
        traces.append(_judged(a, of_a, b, of_b, precision, own))
    return traces


def _sampled(subject: Subject, seed: int) -> tuple[Trace, Samples]:
    samples = Samples()
    return Tracer(subject, seed).record(on_tensor=samples.add), samples


def _judged(a: Trace, of_a: Samples, b: Trace, of_b: Samples, precision: Precision, own: set[torch.dtype]) -> Trace:
    """B with the errors of its tensors and the findings; `own`: the dtypes of A."""
    match = matched_tensors(a, b)
    coarsest = max(own, key=unit_roundoff)
    b_rounds = precision.is_tf32 or unit_roundoff(precision.dtype) >= unit_roundoff(coarsest)
    error: dict[str, float] = {}
    elementwise: dict[str, float] = {}
    probabilities = {op.outputs[0] for op in b.ops if op.name in EXPONENTIALS and op.outputs}
    differing: dict[str, tuple[int, int]] = {}
    for identifier, one, other in in_pairs(of_a, of_b, match):
        if not (one.is_floating_point() or one.is_complex()) or one.is_floating_point() != other.is_floating_point():
            differing[identifier] = int((one != other).sum()), one.numel()
            continue
        found = relative_error(other, one) if b_rounds else relative_error(one, other)
        if identifier in probabilities:
            each = elementwise_error(other, one) if b_rounds else elementwise_error(one, other)
            elementwise |= {} if each is None else {identifier: each}
        if found is not None and math.isfinite(found):
            error[identifier] = found
    dtypes: dict[str, tuple[str, str]] = {}
    norms: dict[str, tuple[float, float]] = {}
    for tensor in b.tensors:
        there = a.tensor_by_id.get(match.get(tensor.id, ""))
        pair = tensor.dtype, in_words([coarsest]) if there is None else there.dtype
        dtypes[tensor.id] = pair if b_rounds else pair[::-1]
        trace, key = (a, there.id) if b_rounds and there is not None else (b, tensor.id)
        if key in trace.statistics:
            row = trace.statistics[key]
            norms[tensor.id] = row.norm or 0.0, 1 - row.zero_fraction
    shares = {each: count / of for each, (count, of) in differing.items()}
    rounding = Rounding(b, precision, dtypes, norms, shares)
    expected, bounds = predictions(rounding, error)
    rows = [each for each in error if each in expected]
    of, against = (precision.name, in_words(own)) if b_rounds else (in_words(own), precision.name)
    errors = PrecisionErrors(
        precision.name,
        of,
        against,
        tuple(rows),
        tuple(elementwise.get(each, error[each]) for each in rows),
        tuple(expected[each] for each in rows),
        differing,
    )
    b = dataclasses.replace(b, precision=errors, environment={**b.environment, "precision": precision.name})
    measured = Measured(a, b, match, bounds, elementwise, rounding.underflows)
    return dataclasses.replace(b, faults=findings(measured))


def predictions(rounding: Rounding, error: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """The predicted error of each tensor: from the inputs of the pass, and from the measured errors its op read.

    A tensor without a measured error counts with its second prediction.
    """
    expected: dict[str, float] = {}
    bounds: dict[str, float] = {}
    known = dict[str, float]()
    for tensor in rounding.trace.tensors:
        if tensor.producer is None:
            expected[tensor.id] = bounds[tensor.id] = rounding.of_leaf(tensor.id)
            known[tensor.id] = error.get(tensor.id, expected[tensor.id])
    for op in rounding.trace.ops:
        for each in op.outputs:
            from_start = rounding.of_output(op, each, expected)
            from_inputs = rounding.of_output(op, each, known, at_most=True)
            if from_start is not None and from_inputs is not None:
                expected[each], bounds[each] = from_start, from_inputs
                known[each] = error.get(each, from_inputs)
    return expected, bounds
