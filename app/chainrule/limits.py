"""What a spec would cost, known from the spec alone, and whether that is more than is allowed.

Nothing is allocated to find out: the figures are sums over the widths. They are estimates from above of the pass as it
is recorded, and meant to tell the harmless from the harmful, not to bill anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from chainrule.errors import LimitError, SpecError
from chainrule.programs import MAX_SIZE
from chainrule.settings import Settings
from chainrule.spec import ModelSpec, widths_text

ITEM_SIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per value."""

COPIES = 6
"""Tensors of an activation's size a layer keeps: product, preactivation, activation, and the gradient of the last two
with the mask it is made from."""

FLOPS_PER_VALUE = 10
"""Operations per value outside the matrix products: nonlinearity, bias, their gradients, statistics."""


MAX_STEPS = 256
"""Steps of Python that a program may take: each is half a dozen ops of the graph, and as many backward."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one pass takes: floating point operations, and bytes at its height."""

    flops: int
    memory_bytes: int


def estimate_cost(spec: ModelSpec) -> Cost:
    """Cost of drawing the tensors and of one forward and backward pass with statistics of every tensor.

    A product of (batch, fan_in) and (fan_in, fan_out) takes 2·batch·fan_in·fan_out operations; the backward pass has
    two such products per layer, for the gradients of its input and of its weight. An orthogonal draw is a QR
    decomposition. A matrix product written out in Python makes tensors of its terms, and of a gradient for each step.
    """
    pairs = list(pairwise(spec.widths))
    batch = spec.batch if "batch" in spec.keys else 1
    products = sum(fan_in * fan_out for fan_in, fan_out in pairs)
    values = batch * sum(spec.widths) + (batch * products if count_steps(spec) else 0)
    parameters = products + sum(spec.widths[1:])
    flops = 6 * batch * products + FLOPS_PER_VALUE * (COPIES * values + 2 * parameters)
    if spec.init == "orthogonal":
        flops += sum(4 * max(pair) * min(pair) ** 2 for pair in pairs)
    item = ITEM_SIZE[spec.dtype]
    # Statistics work on one tensor at a time, at most twice in float64; a draw is float32 first and then cast.
    largest = max(batch * max(spec.widths), max((fan_in * fan_out for fan_in, fan_out in pairs), default=0))
    memory = item * (COPIES * values + 2 * parameters) + largest * (4 + 2 * 8)
    return Cost(flops=flops, memory_bytes=memory)


def count_steps(spec: ModelSpec) -> int:
    """Steps of Python that a program takes, whose ops are all recorded one by one: 0 where that depends on no size.

    The matrix product of (m, k) and (k, n) takes m·k·n of them with three loops, m·n with two, m with one.
    """
    if spec.program != "matmul":
        return 0
    m, k, n = spec.batch, spec.n_in, spec.n_out
    return {"loops": m * k * n, "elementwise": m * n, "broadcasting": m}.get(spec.rung, 0)


def check_limits(spec: ModelSpec, settings: Settings) -> None:
    """Refuse a spec that would take more than the settings allow, before anything is allocated.

    Raises:
        LimitError: names the key at fault, what it asks for, what is allowed and the setting that says so.
    """
    _check("widths", "layers", spec.depth, settings.max_depth, "MAX_DEPTH")
    _check("widths", "features in one layer", max(spec.widths), settings.max_width, "MAX_WIDTH")
    if "batch" in spec.keys:
        _check("batch", "inputs", spec.batch, settings.max_batch, "MAX_BATCH")
    steps = count_steps(spec)
    if steps > MAX_STEPS:
        sizes = f"batch={spec.batch} and widths={widths_text(spec.widths)}"
        raise LimitError(
            f"rung: {spec.rung!r} takes {steps} steps for {sizes}, at most {MAX_STEPS} are recorded; "
            "take smaller sizes or a rung further up",
            field="rung",
            limit=MAX_STEPS,
        )
    cost = estimate_cost(spec)
    _check("widths", "floating point operations", cost.flops, settings.max_flops, "MAX_FLOPS")
    _check("widths", "bytes of memory", cost.memory_bytes, settings.max_memory_bytes, "MAX_MEMORY_BYTES")


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
