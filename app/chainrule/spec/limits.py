"""Whether a spec asks for more than is allowed, known before anything is allocated: every limit is a setting.

`cost.py` says what it would take.
"""

from __future__ import annotations

from collections.abc import Sequence

from chainrule.errors import LimitError, SpecError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import ANSWERS, count_steps, estimate_cost, slowness, with_answer
from chainrule.spec.programs import MAX_SIZE
from chainrule.spec.values import widths_text


def check_limits(spec: ModelSpec, settings: Settings, form: str = "json") -> None:
    """Refuse a spec that would take more than the settings allow, before anything is allocated.

    Args:
        spec: what would be computed.
        settings: what is allowed.
        form: the format of the answer, which takes memory of its own while it is made. What else is told of a spec
            (its profile, values of a tensor, what a live socket sends) is no larger than its graph dump.

    Raises:
        LimitError: names the key at fault, what it asks for, what is allowed and the setting that says so.
    """
    _check("widths", "layers", spec.depth, settings.max_depth, "MAX_DEPTH")
    _check("widths", "features in one layer", max(spec.widths), settings.max_width, "MAX_WIDTH")
    if "batch" in spec.keys:
        _check("batch", "inputs", spec.batch, settings.max_batch, "MAX_BATCH")
    steps = count_steps(spec)
    if steps > settings.max_steps:
        sizes = f"batch={spec.batch} and widths={widths_text(spec.widths)}"
        raise LimitError(
            f"rung: {spec.rung!r} takes {steps} steps of Python for {sizes}, at most {settings.max_steps} are allowed "
            "here (CHAINRULE_MAX_STEPS); take smaller sizes or a rung further up",
            field="rung",
            limit=settings.max_steps,
        )
    cost = estimate_cost(spec)
    answer = ANSWERS[form].of(cost.response_bytes)
    times = slowness(spec)
    operations = "floating point operations"
    if times > 1:
        operations += f" ({spec.dtype} on a CPU counts {times}-fold)"
    memory = with_answer(cost, form)
    _check("widths", operations, cost.flops, settings.max_flops, "MAX_FLOPS")
    _check("widths", "bytes of memory", memory, settings.max_memory_bytes, "MAX_MEMORY_BYTES")
    _check("widths", f"bytes of answer as {form}", answer, settings.max_response_bytes, "MAX_RESPONSE_BYTES")


def with_limits(error: SpecError, settings: Settings, *, layers: bool = True) -> SpecError:
    """The same error with what *this* server allows, where that is less than a spec can name.

    Args:
        error: what is wrong with a spec.
        settings: what the server allows.
        layers: whether its widths are those of layers, any number of which there may be.
    """
    if not isinstance(error.limit, dict) or error.limit.get("maximum") != MAX_SIZE:
        return error
    if error.field == "widths":
        most = f"{settings.max_depth} layers of {settings.max_width}" if layers else str(settings.max_width)
        here = f"at most {most} are computed here"
        limit = {**error.limit, "maximum": settings.max_width}
    elif error.field == "batch":
        here = f"at most {settings.max_batch} are computed here"
        limit = {**error.limit, "maximum": settings.max_batch}
    else:
        return error
    return SpecError(f"{error.message}; {here}", field=error.field, limit=limit)


def check_device(spec: ModelSpec, devices: Sequence[str]) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        SpecError: names the device and those there are.
    """
    if spec.device not in devices:
        raise SpecError(
            f"device: {spec.device!r} is not on this machine, which has {', '.join(devices)}",
            field="device",
            limit=list(devices),
        )


def _check(field: str, noun: str, asked: int, allowed: int, setting: str) -> None:
    if asked > allowed:
        raise LimitError(
            f"{field}: {asked} {noun}, at most {allowed} are allowed here (CHAINRULE_{setting})",
            field=field,
            limit=allowed,
        )
