"""The gradient check of a custom Function in a user's model, at the arguments of its call.

One forward pass finds the call that makes the op, from the number of recorded ops after each call. A second pass copies
the arguments of that call. The check uses these copies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function

from chainrule.errors import ChainruleError, CheckError, NotFoundError, in_words
from chainrule.foundations.gradient_check import leaves
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


def check_node(model: UserModel, what_if: WhatIf, op: str) -> dict[str, Any]:
    """Check the gradients of the custom Function that an op of the trace at this what-if belongs to.

    `op` is its id; a backward op stands for its forward op.

    Returns the report of `sample.check_call`, and "op". Raises NotFoundError if there is no such op, CheckError if it
    belongs to no custom Function or cannot be checked, and the errors of `Tracer.trace`.
    """
    tracer = model.tracer()
    captured = _run(tracer, what_if, _call_of(tracer, what_if, op)).captured
    assert captured is not None, "the same pass makes the same calls"
    function, arguments = captured
    code = getattr(inspect.unwrap(function.forward), "__code__", None)
    file = function.__module__ if code is None else shown_path(code.co_filename)
    with seeded(model.seed):  # the user's function may draw
        return {**check_call(function, arguments, file), "op": op}


class _Listener:
    """Replaces the recorder as watcher of custom Functions: notes every call and passes it on to the recorder."""

    def __init__(self, recorder: Observer, wanted: int | None) -> None:
        self.recorder = recorder
        self.wanted = wanted
        self.begun = 0
        self.calls: dict[int, range] = {}  # the number of a call → the rows of its ops
        self.captured: tuple[type[Function], tuple[Any, ...]] | None = None

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `function.apply`, as the recorder does."""
        index = self.begun
        self.begun += 1
        if index == self.wanted:
            with torch._C.DisableTorchFunction():
                if kwargs:
                    bound = inspect.signature(function.forward).bind(*args, **kwargs)  # type: ignore[attr-defined]
                    bound.apply_defaults()
                    args, kwargs = bound.args, {}
                self.captured = function, tuple(leaves(args))
        first = len(self.recorder.journal.ops)
        output = self.recorder.run_function(function, run, args, kwargs)
        self.calls[index] = range(first, len(self.recorder.journal.ops))
        return output


def _run(tracer: Tracer, what_if: WhatIf, wanted: int | None = None) -> _Listener:
    """Record the forward pass and listen to its custom Functions; keep the arguments of call number `wanted`.

    If the pass raises, the calls before that count.
    """
    with tracer.prepared(what_if) as run:
        level = "aten" if what_if.recording == "aten" else "op"
        recording = record(run.subject.model, level=level)
        observer = recording._observer
        listener = _Listener(observer, wanted)
        with recording:
            # When the recorder stops, it removes the watcher of this thread, the listener.
            custom_functions.unwatch(observer._thread)
            custom_functions.watch(observer._thread, listener.run_function)
            try:
                run.forward()
            except ChainruleError:
                if current_stop().error is not None:
                    raise
            except BaseException as error:
                if is_interrupt(error):
                    raise
                if not listener.calls:
                    raise CheckError(f"the model raised before it reached this op: {in_words(error)}") from None
    return listener


def _call_of(tracer: Tracer, what_if: WhatIf, op: str) -> int:
    """The number of the innermost call that made an op."""
    trace = tracer.trace(what_if)
    known = {each.id: place for place, each in enumerate(trace.ops)}
    if op not in known:
        raise NotFoundError(f"op: unknown op {op}; {tracer.subject.name} has {len(known)} ops", field="op")
    asked = trace.ops[known[op]]
    forward = known[asked.twin] if asked.twin is not None and asked.twin in known else known[op]
    calls = {index: ops for index, ops in _run(tracer, what_if).calls.items() if forward in ops}
    if not calls:
        raise CheckError(
            f"op: {op} ({asked.name}) is not an op of a custom autograd.Function; torch's own gradients need no check",
            field="op",
        )
    return min(calls, key=lambda index: len(calls[index]))
