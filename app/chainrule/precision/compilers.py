"""One pass of a user's model as it was written, A, and as torch.compile runs it, B.

The rounding is predicted for the ops of A, which are known one by one. A tensor that B writes into memory has the
prediction of the same tensor of A.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from chainrule.precision.compare import predictions, relative_error
from chainrule.precision.findings import Measured, findings
from chainrule.precision.formats import Precision, dtypes_of, unit_roundoff
from chainrule.precision.match import matched_tensors
from chainrule.precision.rounding import Rounding
from chainrule.precision.samples import Samples, in_pairs
from chainrule.trace.graph import PrecisionErrors, Trace
from chainrule.user_model.subject import Subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf


def compiled_pass(a: Trace, of_a: Samples, subject: Subject, backend: str, seed: int) -> Trace:
    """The trace B of a pass that a backend of torch.compile runs, with its errors against A.

    Raises:
        ExploreError: the backend fails.
        MemoryLimitError: there is no memory for a pass.
    """
    tracer, of_b = Tracer(subject, seed), Samples()
    b = tracer.record(WhatIf(recording=backend), of_b.add)
    match = matched_tensors(a, b, tracer.written)
    error: dict[str, float] = {}
    differing: dict[str, tuple[int, int]] = {}
    for identifier, one, other in in_pairs(of_a, of_b, match):
        if not (one.is_floating_point() or one.is_complex()):
            differing[identifier] = int((one != other).sum()), one.numel()
        elif (found := relative_error(other, one)) is not None and math.isfinite(found):
            error[identifier] = found
    statistics = a.statistics
    rounding = Rounding(
        a,
        Precision(backend, max(dtypes_of(subject), key=unit_roundoff, default=torch.float32)),
        {each.id: (each.dtype, each.dtype) for each in a.tensors},
        {each: (statistics[each].norm or 0.0, 1 - statistics[each].zero_fraction) for each in statistics},
        {match[each]: count / of for each, (count, of) in differing.items()},
    )
    expected, bounds = predictions(rounding, {match[each]: of for each, of in error.items()})
    rows = [each for each in error if match[each] in expected]
    errors = PrecisionErrors(
        backend,
        backend,
        "eager",
        tuple(rows),
        tuple(error[each] for each in rows),
        tuple(expected[match[each]] for each in rows),
        differing,
    )
    b = dataclasses.replace(b, precision=errors, environment={**b.environment, "precision": backend})
    bounds = {each: bounds[match[each]] for each in rows}
    return dataclasses.replace(b, faults=findings(Measured(a, b, match, bounds, {}, {})))
