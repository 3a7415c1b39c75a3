"""The server's limits of a spec, checked before anything is allocated; every limit is a setting."""

from __future__ import annotations

from collections.abc import Sequence

from chainrule.errors import LimitError, SpecError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import ANSWERS, count_steps, estimate_cost, slowness, with_answer
from chainrule.spec.programs import MAX_SIZE
from chainrule.spec.values import widths_text


def check_limits(spec: ModelSpec, settings: Settings, form: str = "json") -> None:
    """Refuse a spec that exceeds the settings when answered in a format.

    Answers without a format (a profile, values of a tensor, live messages) are no larger than the graph dump.

    Raises:
        LimitError: names the key at fault, its amount, the limit and the setting.
    """
    _check("widths", "layers", spec.depth, settings.max_depth, "MAX_DEPTH")
    _check("widths", "features in one layer", max(spec.widths), settings.max_width, "MAX_WIDTH")
    if "batch" in spec.keys:
        _check("batch", "inputs", spec.batch, settings.max_batch, "MAX_BATCH")
    steps = count_steps(spec)
    if steps > settings.max_steps:
        sizes = f"batch={spec.batch} and widths={widths_text(spec.widths)}"
        raise LimitError(
            f"rung: {spec.rung!r} takes {steps} steps of Python for {sizes}; at most {settings.max_steps} are allowed "
            "here (CHAINRULE_MAX_STEPS). Choose smaller sizes or a higher rung",
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
    _check("widths", f"bytes of answer in the format {form}", answer, settings.max_response_bytes, "MAX_RESPONSE_BYTES")


def with_limits(error: SpecError, settings: Settings, *, layers: bool = True) -> SpecError:
    """The error with this server's limit, if that is lower; `layers` says whether widths are those of layers."""
    limits = {"widths": settings.max_width, "batch": settings.max_batch}
    if error.field not in limits or not isinstance(error.limit, dict) or error.limit.get("maximum") != MAX_SIZE:
        return error
    most = limits[error.field]
    here = f"{settings.max_depth} layers of {most}" if layers and error.field == "widths" else most
    message = f"{error.message}; at most {here} are computed here"
    return SpecError(message, field=error.field, limit={**error.limit, "maximum": most})


def check_device(spec: ModelSpec, devices: Sequence[str]) -> None:
    """Refuse a device that this machine does not have. Raises SpecError."""
    if spec.device not in devices:
        raise SpecError(
            f"device: {spec.device!r} is not available; this machine has {', '.join(devices)}",
            field="device",
            limit=list(devices),
        )


def _check(field: str, noun: str, asked: int, allowed: int, setting: str) -> None:
    if asked > allowed:
        raise LimitError(
            f"{field}: {asked} {noun}; at most {allowed} are allowed here (CHAINRULE_{setting})",
            field=field,
            limit=allowed,
        )
