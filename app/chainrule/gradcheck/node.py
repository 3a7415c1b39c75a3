"""The gradient check of one custom Function of one's own model, at the very arguments that it is called with.

The forward pass is run on the copy, and the call that makes the op is found by what the recorder has written down when
it returns. It is run once more, and the arguments of that call are copied. What is checked are those copies, in float64
and in the dtypes that they have: as `chainrule gradcheck` does, for which somebody has to write inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.errors import ChainruleError, CheckError, NotFoundError, in_words
from chainrule.gradcheck.sample import check_call
from chainrule.stopping import current_stop
from chainrule.trace import custom_functions, record
from chainrule.trace.observer import Observer
from chainrule.user_model.code import is_interrupt, shown_path
from chainrule.user_model.seeded import seeded
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf

if TYPE_CHECKING:
    from chainrule.user_model.model import UserModel


def check_node(own: UserModel, what_if: WhatIf, op: str) -> dict[str, Any]:
    """Check the gradients of the custom Function that an op belongs to.

    Args:
        own: the model.
        what_if: what is changed on the copy before it runs.
        op: id of an op in the trace at this what-if; of a backward op, the forward op that it belongs to counts.

    Returns:
        The report of `chapter.own_check.check_own`, and "op"; "sampled": null, or {"columns": [checked, of], "rows":
        [checked, of]}. Of a sample the shapes and the indices of the worst element are those of the whole tensors.

    Raises:
        NotFoundError: there is no such op.
        CheckError: it is none of a custom Function, or it cannot be checked; says why.
        ChainruleError: see `Tracer.trace`.
    """
    tracer = own.tracer()
    found = _call_of(tracer, what_if, op)
    captured = _run(tracer, what_if, found.index).captured
    assert captured is not None, "the same pass makes the same calls"
    function, arguments = captured
    file = _file(function)
    try:
        with seeded(own.seed):  # what a function draws must not move what others draw
            report = check_call(function, arguments, file)
    except CheckError as error:
        raise CheckError(error.message.replace(file, shown_path(file)), field=error.field, limit=error.limit) from None
    return {**report, "file": shown_path(file), "op": op}


# ------------------------------------------------------------------------------------------------ which call it is


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a custom Function: which it is in the pass, and the ops that it has made, by row."""

    index: int
    ops: range


class _Listener:
    """Stands where the recorder waits for custom Functions, hands every call on to it, and notes what came of it."""

    def __init__(self, recorder: Observer, wanted: int | None) -> None:
        self.recorder = recorder
        self.wanted = wanted
        self.begun = 0
        self.calls: list[_Call] = []
        self.captured: tuple[type[Function], tuple[Any, ...]] | None = None

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `function.apply`, as the recorder does."""
        index = self.begun
        self.begun += 1
        if index == self.wanted:
            with torch._C.DisableTorchFunction():
                self.captured = function, _copies(function, args, kwargs)
        first = len(self.recorder.journal.ops)
        output = self.recorder.run_function(function, run, args, kwargs)
        self.calls.append(_Call(index, range(first, len(self.recorder.journal.ops))))
        return output


def _copies(function: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments by position, tensors detached and copied."""
    if kwargs:
        bound = inspect.signature(function.forward).bind(*args, **kwargs)  # type: ignore[attr-defined]
        bound.apply_defaults()
        args = bound.args
    return tuple(
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each for each in args
    )


def _run(tracer: Tracer, what_if: WhatIf, wanted: int | None = None) -> _Listener:
    """Run the forward pass, recorded, and listen to its custom Functions; of call `wanted` the arguments are kept.

    A pass that raises has made its calls until then.
    """
    with tracer.prepared(what_if) as run:
        recording = record(run.subject.model)
        observer = recording._observer
        listener = _Listener(observer, wanted)
        with recording:
            # Whoever stops the recorder takes away what stands in its place.
            custom_functions.active.remove(observer._thread)
            custom_functions.active.add(observer._thread, listener)
            try:
                run.forward()
            except ChainruleError:
                if current_stop().error is not None:
                    raise
            except BaseException as error:
                if is_interrupt(error):
                    raise
                if not listener.calls:
                    raise CheckError(f"the model raised before it came there: {in_words(error)}") from None
    return listener


def _call_of(tracer: Tracer, what_if: WhatIf, op: str) -> _Call:
    """The innermost call that has made an op."""
    trace = tracer.trace(what_if)
    known = {each.id: place for place, each in enumerate(trace.ops)}
    if op not in known:
        raise NotFoundError(f"op: {op} is none of the {len(known)} ops of {tracer.subject.name}", field="op")
    asked = trace.ops[known[op]]
    forward = known[asked.twin] if asked.twin is not None and asked.twin in known else known[op]
    calls = [each for each in _run(tracer, what_if).calls if forward in each.ops]
    if not calls:
        raise CheckError(
            f"op: {op} ({asked.name}) is no op of a custom autograd.Function: torch's own gradients need no check",
            field="op",
        )
    return min(calls, key=lambda each: len(each.ops))


def _file(function: type) -> str:
    code = getattr(inspect.unwrap(function.forward), "__code__", None)  # type: ignore[attr-defined]
    return function.__module__ if code is None else str(code.co_filename)
