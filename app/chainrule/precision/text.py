"""A comparison of two precisions as a few lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from chainrule.precision.findings import percent
from chainrule.trace.graph import Trace

WORST = 5
"""At most so many tensors are listed."""


def comparison_text(b: Trace) -> str:
    """The findings of B's trace, and the tensors with the largest error ÷ predicted error."""
    return "\n".join(_lines(b))


def _lines(b: Trace) -> Iterator[str]:
    errors = b.precision
    assert errors is not None, "the trace is of a comparison"
    name = b.environment.get("model", "the model")
    yield f"{name} in {errors.of}, measured against {errors.against}: {len(errors.tensor)} tensors"
    if b.error is not None:
        yield f"the pass in {errors.name} broke off: {b.error.message}"
    found = [fault for fault in b.faults if fault.kind in ("precision", "first_nonfinite")]
    if not any(fault.level == "fault" for fault in found):
        yield "no op exceeds what rounding predicts"
    for fault in found:
        line = "" if fault.source is None else f" ({fault.source.file}:{fault.source.line})"
        yield f"{fault.level}: {fault.message}{line}"
        if fault.remedy is not None:
            yield f"  fix: {fault.remedy}"
    rows = zip(errors.tensor, errors.error, errors.expected, strict=True)
    worst = sorted(
        ((error / expected, error, expected, each) for each, error, expected in rows if expected), reverse=True
    )
    if worst:
        yield f"{'error':>9} {'predicted':>9} {'ratio':>7}  tensor"
    for ratio, error, expected, identifier in worst[:WORST]:
        yield f"{percent(error):>9} {percent(expected):>9} {ratio:7.2g}  {b.tensor_by_id[identifier].name}"
