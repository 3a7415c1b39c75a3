"""The custom Functions that a recording calls. The first call of each is kept, and checked after the recording.

The check calls a Function again, so the call must have no other effect than its result: its arguments are tensors and
plain values, and torch.distributed is not in use. Functions that torch itself defines need no check.
"""

from __future__ import annotations

import inspect
import os
import threading
import types
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from chainrule.diagnose.backward_check import Finding, OutOfTimeError, check_backward, unchecked
from chainrule.trace import sources
from chainrule.trace.custom_functions import Applied
from chainrule.trace.graph import Fault, Level
from chainrule.trace.journal import address
from chainrule.trace.nested import nested_tensors

BUDGET = 2.0
"""Seconds for all checks of one recording. A check that is not finished by then is stopped."""

MAX_BYTES = 64 << 20
"""Bytes of all arguments that one recording keeps for its checks."""

RULE = (
    "backward returns the derivative of forward: (f(x + ε) − f(x − ε)) / 2ε within 1 %, in float64, at the arguments "
    "of the call; large tensors are sampled; torch.autograd.gradcheck"
)

_PLAIN = (
    types.NoneType,
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    slice,
    Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    types.BuiltinFunctionType,
)
"""Values that a call cannot change."""

_one_at_a_time = threading.Lock()
"""A check seeds the generators and mutes stdout, which belong to the whole process, and restores them at its end."""

Findings = WeakKeyDictionary[type, MutableMapping[Hashable, Finding | None]]
"""The findings by Function, then by the kinds of its arguments."""


@dataclass(slots=True)
class _Call:
    function: Any
    key: Hashable
    applied: Applied
    arguments: tuple[Any, ...] | None  # copies; None: they were not kept, or are not needed any more
    why_not: str


class FunctionCalls:
    """The calls of one recording to check: the first call of each Function for each kind of arguments.

    Only calls that a gradient goes through count.

    Args:
        findings: the findings of earlier recordings of the same program; they are not checked again.
    """

    def __init__(self, findings: Findings | None = None) -> None:
        self._findings = Findings() if findings is None else findings
        self._calls: dict[tuple[type, Hashable], _Call] = {}
        self._bytes = 0

    def begin(self, function: type, arguments: Sequence[Any]) -> Callable[[Applied], None] | None:
        """Keep copies of the arguments of a call; see `trace.custom_functions.OnFunction`."""
        learns = any(isinstance(each, Tensor) and each.requires_grad for each in arguments)
        if not learns or not torch.is_grad_enabled() or function.__module__.partition(".")[0] == "torch":
            return None
        key = tuple(map(_kind, arguments))
        if (function, key) in self._calls:
            return None
        kept, why_not = None, ""
        if key not in self._findings.get(function, {}):
            try:
                kept = self._kept(arguments)
            except _NotKeptError as error:
                why_not = str(error)

        def has_returned(applied: Applied) -> None:
            self._calls.setdefault((function, key), _Call(function, key, applied, kept, why_not))

        return has_returned

    def faults(self, model: object) -> tuple[Fault, ...]:
        """Check the calls and drop their arguments. Returns one fault per Function and level, in order of the calls.

        Raises:
            ChainruleError: the work of this thread was stopped.
        """
        left = BUDGET
        # The quickest first, so a slow check does not use up the time of the others.
        for call in sorted(self._calls.values(), key=lambda call: call.applied.seconds):
            known = self._findings.setdefault(call.function, {})
            if call.key not in known:
                with _one_at_a_time:
                    began = perf_counter()
                    if call.key not in known:  # another thread may have checked it meanwhile
                        known[call.key] = _checked(call, began + left)
                    left -= perf_counter() - began
            call.arguments = None
        folder = sources.model_folder(model)
        found: dict[tuple[type, Level], Fault] = {}
        for call in self._calls.values():
            finding = self._findings[call.function][call.key]
            if finding is not None:
                found.setdefault((call.function, finding.level), _fault(call.function, call.applied, finding, folder))
        return tuple(found.values())

    def _kept(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Copies of the arguments of a call. Raises _NotKeptError if the call must not be repeated."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise _NotKeptError("a repeated call in one of several processes could wait forever for the others")
        tensors = nested_tensors(arguments)
        if any(type(each) not in (Tensor, nn.Parameter) or address(each) is None for each in tensors):
            raise _NotKeptError("an argument is a tensor, but not a dense torch.Tensor")
        size = self._bytes + sum(each.nbytes for each in tensors)
        if size > MAX_BYTES:
            raise _NotKeptError(f"its arguments are too large: a recording keeps at most {MAX_BYTES >> 20} MiB")
        copies = tuple(map(_copy, arguments))
        self._bytes = size
        return copies


class _NotKeptError(Exception):
    """The arguments of a call are not kept; the message says why."""


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (tuple, list):
        return type(value)(map(_copy, value))
    if type(value) is dict:
        return {key: _copy(each) for key, each in value.items()}
    if not isinstance(value, _PLAIN):
        raise _NotKeptError(f"an argument is of type {type(value).__name__}, and a repeated call could change it")
    return value


def _kind(value: Any) -> Hashable:
    """Calls whose arguments are of the same kinds are checked once; their numbers may differ."""
    if isinstance(value, Tensor):
        return value.dtype, value.dim(), value.requires_grad
    return value if isinstance(value, str | bool) else (type(value).__name__,)


def _checked(call: _Call, deadline: float) -> Finding | None:
    name = call.function.__name__
    if call.arguments is None:
        return unchecked(name, call.why_not)
    try:
        if call.applied.seconds > deadline - perf_counter():
            raise OutOfTimeError
        return check_backward(call.function, call.arguments, deadline)
    except OutOfTimeError:
        return unchecked(name, f"the check took longer than {BUDGET:g} s (stopped)")


def _fault(function: type, applied: Applied, finding: Finding, folder: str | None) -> Fault:
    code = getattr(inspect.unwrap(function.forward), "__code__", None)  # type: ignore[attr-defined]
    name = function.__qualname__
    remedy = finding.remedy
    if finding.level == "unchecked" and code is not None and "<locals>" not in name:
        file = os.path.basename(code.co_filename)
        remedy = (
            f"`chainrule gradcheck {file}:{name} --inputs {file}:make_inputs` checks it without a time limit, at the "
            "inputs that make_inputs() returns."
        )
    return Fault(
        "wrong_backward",
        finding.message,
        applied.module,
        applied.op,
        source=None if applied.line is None else sources.describe_source(applied.line[0], applied.line[1], folder),
        remedy=remedy,
        level=finding.level,
        rule=RULE,
    )
