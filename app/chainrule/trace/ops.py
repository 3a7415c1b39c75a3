"""Names, kinds and attributes of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any

import torch

from chainrule.errors import plain_text
from chainrule.trace import native

ACTIVATIONS = frozenset(
    "relu relu_ relu6 clamp_min leaky_relu leaky_relu_ tanh tanh_ sigmoid sigmoid_ gelu silu elu elu_ selu selu_ "
    "softplus mish hardtanh hardswish softmax log_softmax rrelu prelu celu threshold".split()
)
"""Ops whose output is an activation."""

RECTIFIERS = frozenset(
    "relu relu_ relu6 clamp_min leaky_relu leaky_relu_ gelu silu elu elu_ selu selu_ celu mish prelu threshold".split()
)
"""Activations whose units can be dead: not above zero for any input of the batch."""

SATURATING = {"tanh": 0.0, "tanh_": 0.0, "sigmoid": 0.5, "sigmoid_": 0.5}
"""Activations that saturate, with the middle of their range."""

UNIT_STATISTICS = RECTIFIERS | SATURATING.keys()
"""Ops whose output has a dead fraction or a saturation."""

LINEAR = frozenset(
    "linear matmul mm bmm addmm baddbmm einsum bilinear "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split()
)
"""Ops that weigh their input: their output is a preactivation."""

VIEWS = frozenset(
    "t T mT H mH transpose permute view reshape flatten unflatten squeeze unsqueeze detach data movedim swapaxes "
    "contiguous view_as reshape_as ravel "
    "TBackward0 TransposeBackward0 PermuteBackward0 ViewBackward0 UnsafeViewBackward0 ReshapeAliasBackward0 "
    "SqueezeBackward0 SqueezeBackward1 SqueezeBackward2 UnsqueezeBackward0 AliasBackward0".split()
)
"""Ops that may give the same elements in another shape; that they did is checked on the memory."""

_DUNDER = {
    **{f"__{name}__": name for name in "matmul add sub mul pow rpow neg abs eq ne lt le gt ge getitem".split()},
    **{f"__r{name}__": name for name in "matmul add mul".split()},
    **{f"__i{name}__": f"{name}_" for name in "add sub mul div".split()},
    **{f"__{name}__": f"bitwise_{name}" for name in "and or xor".split()},
    "__rsub__": "rsub",
    "__truediv__": "div",
    "__div__": "div",
    "__rtruediv__": "rdiv",
    "__rdiv__": "rdiv",
    "__itruediv__": "div_",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__invert__": "bitwise_not",
    "__setitem__": "setitem_",
    "_wrap_tensor_autograd": "wait_tensor",
}

_PARAMETER_NAMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys("add sub rsub mul div rdiv gt ge lt le eq".split(), ("input", "other")),
    **dict.fromkeys("squeeze unsqueeze softmax log_softmax".split(), ("input", "dim")),
    **dict.fromkeys(("sum", "mean"), ("input", "dim", "keepdim")),
    **dict.fromkeys(("cat", "stack"), ("tensors", "dim")),
    "clamp_min": ("input", "min"),
    "clamp": ("input", "min", "max"),
    "pow": ("input", "exponent"),
    "transpose": ("input", "dim0", "dim1"),
    "split": ("input", "split_size", "dim"),
    "chunk": ("input", "chunks", "dim"),
    "flatten": ("input", "start_dim", "end_dim"),
    "to": ("input", "dtype"),
    "getitem": ("input", "index"),
    "setitem_": ("input", "index", "value"),
    "conv2d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}

NORMALIZATIONS = frozenset(("batch_norm", "instance_norm"))
"""Ops that update buffers which are not among what they give."""

_COLLECTIVES = {
    **{name: name for name in "all_reduce all_gather reduce_scatter all_to_all broadcast".split()},
    **dict.fromkeys("all_gather_into_tensor all_gather_into_tensor_out all_gather_single".split(), "all_gather"),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_single"), "reduce_scatter"),
    "all_to_all_single": "all_to_all",
}
"""Functional collectives, and the names of the collectives."""

_SILENT = frozenset(("__set__", "__delete__", "requires_grad_", "retain_grad", "register_hook"))


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties of a torch function that every call needs.

    `silent`: it computes nothing itself. `may_change`: it may write into its arguments. `normalizes`: it updates
    buffers. `is_collective`: it exchanges tensors with other ranks.
    `role`: of its outputs. `has_units`: they have a dead fraction or a saturation. `parameters`: its arguments' names.
    """

    name: str
    silent: bool
    may_change: bool
    normalizes: bool
    is_collective: bool
    role: str
    has_units: bool
    parameters: tuple[str, ...]


if native.observer is not None:
    Kind = native.observer.Kind  # type: ignore[misc]

kinds: dict[Any, Kind] = {}
"""The kinds of the functions that were called."""


def kind_of(func: Callable[..., Any]) -> Kind:
    """The kind of a torch function, determined on its first call."""
    try:
        kind = kinds.get(func)
    except TypeError:  # a callable of the user's without a hash
        kind = None
    if kind is None:
        name = _name(func)
        code = getattr(func, "__code__", None)
        kind = Kind(
            name,
            # The functions of torch.distributed call methods of ProcessGroup, which are recorded.
            silent=name in _SILENT or getattr(func, "__module__", "") == "torch.distributed.distributed_c10d",
            may_change=name.endswith("_") or name in NORMALIZATIONS,
            normalizes=name in NORMALIZATIONS,
            is_collective=str(func).startswith("_c10d_functional") and name in _COLLECTIVES.values(),
            role="activation" if name in ACTIVATIONS else "preactivation" if name in LINEAR else "intermediate",
            has_units=name in UNIT_STATISTICS,
            parameters=_PARAMETER_NAMES.get(name, code.co_varnames[: code.co_argcount] if code is not None else ()),
        )
        # A closure or an object with a state would be kept alive with all that it holds.
        if len(kinds) < _MAX_KINDS and type(func) in _STATELESS and getattr(func, "__closure__", None) is None:
            kinds[func] = kind
    return kind


_MAX_KINDS = 10_000
_STATELESS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)


def _name(func: Callable[..., Any]) -> str:
    """The name users know an op by: `matmul` for `a @ b`; the name of a property or function."""
    raw = getattr(func, "__name__", None) or type(func).__name__
    if getattr(func, "__module__", "") == "_operator":
        raw = f"__{raw.strip('_')}__"  # as a graph of torch.compile has it
    if raw in ("__get__", "__set__"):
        return str(getattr(getattr(func, "__self__", None), "__name__", raw))
    name = _DUNDER.get(raw, raw).removesuffix(".default")
    return _COLLECTIVES.get(name, name)


def attributes(kind: Kind, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an op besides tensors, by parameter name or else by position."""
    found: dict[str, Any] = {}
    for position, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            continue
        plain = _plain(value)
        if plain is not _UNKNOWN:
            found[kind.parameters[position] if position < len(kind.parameters) else str(position)] = plain
    for key, value in kwargs.items():
        if not isinstance(value, torch.Tensor):
            plain = _plain(value)
            if plain is not _UNKNOWN:
                found[key] = plain
    return found


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_UNKNOWN = object()
_MAX_LENGTH = 16


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it, or _UNKNOWN."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else _plain(_as_float(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if isinstance(value, slice):
        ends = [("" if end is None else str(end)) for end in (value.start, value.stop)]
        return ":".join(ends if value.step is None else [*ends, str(value.step)])
    if value is Ellipsis:
        return "..."
    if isinstance(value, (list, tuple)) and len(value) <= _MAX_LENGTH:
        parts = [_plain(part) for part in value]
        return _UNKNOWN if any(part is _UNKNOWN for part in parts) else parts
    return _UNKNOWN
