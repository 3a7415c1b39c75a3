"""`record` and `trace_model`: record one forward and backward pass of anything that computes with torch.

with record(model) as recording:          trace = trace_model(model, x, loss=lambda out: F.mse_loss(out, y))
    loss = F.mse_loss(model(x), y)
    loss.backward()
recording.trace
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_stack
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import nn

from chainrule.errors import TraceError, message_of
from chainrule.stopping import current_stop
from chainrule.trace.assemble import assemble
from chainrule.trace.aten import AtenLevel
from chainrule.trace.compiled import CompiledLevel
from chainrule.trace.custom_functions import OnFunction
from chainrule.trace.graph import Failure, Trace
from chainrule.trace.journal import Journal
from chainrule.trace.layers import find_layers
from chainrule.trace.nested import named_tensors
from chainrule.trace.observer import Observer, Witness
from chainrule.trace.owners import TARGETS
from chainrule.trace.plan import Plan
from chainrule.trace.privacy import SOURCES, with_sources
from chainrule.trace.scope import loss_scope
from chainrule.trace.sources import model_folder

LEVELS = ("op", "aten")

OnTensor = Callable[[str, torch.Tensor], None]


class record:  # noqa: N801 (used as a statement, like torch.no_grad)
    """Record everything torch computes inside the `with` block; afterwards `trace` holds it.

    Works for any nn.Module or callable, with autograd or with a backward written by hand. The results are the same as
    without recording, bit for bit. An exception goes through; `trace` then holds the pass so far, and the op at fault.
    Only the entering thread is recorded. Work that can be stopped (`stopping`) stops between two ops.

    Args:
        model: the nn.Module or object whose structure names the modules; None for plain functions.
        leaves: names of tensors that exist already, `{"x": x, "y": y}`.
        roles: their roles, `{"a": "input"}`; by default x is the input, y the target, any other a parameter.
        outputs: names of the outputs of modules, `{"layers.0": "l1"}`, or of ops, `{"SinCos.sin": "sines"}`.
        activations: modules that are activations written as several ops, `{"layers.1": "gelu"}`.
        on_tensor: called with the id and the live tensor whenever a value is recorded; it must not keep the tensor.
        witness: looks on; see `observer.Witness`.
        on_function: called with a custom Function and its live arguments before each call; see `OnFunction`.
        plan: filled in for a repetition of the recording.
        find_layers: look for the model's layers at the end.
        level: "op", or "aten": the ops of PyTorch's dispatcher inside each op, which takes more time.
        sources: how much source code the trace holds: "none", "line" of each op, or "context", also three lines before
            and after it. Texts that look like secrets are masked.
        runs_compiled: graphs of torch.compile run, and are recorded if they tell `compiled`; else the pass is eager.

    Raises:
        ValueError: another level, or other sources.
        TraceError: this thread is being recorded already, this recording has been made, or `trace` is read before the
            block has ended.
    """

    def __init__(
        self,
        model: object = None,
        *,
        leaves: Mapping[str, torch.Tensor] | None = None,
        roles: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        activations: Mapping[str, str] | None = None,
        on_tensor: OnTensor | None = None,
        on_function: OnFunction | None = None,
        witness: Witness | None = None,
        plan: Plan | None = None,
        find_layers: bool = True,
        level: str = "op",
        sources: str = "context",
        runs_compiled: bool = False,
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"level: {level!r} is not one of {', '.join(LEVELS)}")
        if sources not in SOURCES:
            raise ValueError(f"sources: {sources!r} is not one of {', '.join(SOURCES)}")
        self._model = model
        self._sources = sources
        self._finds_layers = find_layers
        self._outputs = dict(outputs or {})
        if witness is not None:
            on_tensor = witness.watch if on_tensor is None else _both(witness.watch, on_tensor)
        self._observer = Observer(model, activations or {}, Journal(on_tensor=on_tensor, plan=plan), witness)
        self._observer.on_function = on_function
        if level == "aten":
            self._observer.aten = AtenLevel(self._observer)
        self.compiled = CompiledLevel(self._observer) if runs_compiled else None
        self._observer.compiled = self.compiled
        self._trace: Trace | None = None
        self._began = 0.0
        for name, tensor in (leaves or {}).items():
            role = {"x": "input", "y": "target", **(roles or {})}.get(name, "parameter")
            self._observer.owners.rename_tensor(tensor, name, role)

    def __enter__(self) -> Self:
        return self._begin([sys._getframe(1)])

    def start(self) -> Self:
        """Begin without a block, as in a callback that returns before the pass. `stop` ends it, in the same thread.

        Raises:
            TraceError: as the block does.
        """
        return self._begin([frame for frame, _ in walk_stack(sys._getframe(1))])

    def stop(self, error: BaseException | None = None) -> Self:
        """End the recording that `start` began, with the error that ended the pass, if any. A second call does nothing.

        Raises:
            TraceError: it has not begun.
        """
        if not self._began:
            raise TraceError("start the recording before you stop it: call `start()` or use a `with` block")
        if self._trace is None:
            self.__exit__(None if error is None else type(error), error, None)
        return self

    def _begin(self, frames: Sequence[FrameType]) -> Self:
        if self._began:
            raise TraceError("a recording runs only once; call `record(...)` for another")
        self._observer.start(frames)
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        observer = self._observer
        observer.stop()
        failure = None
        if error is not None:
            op = observer.failed_op(error)
            failure = Failure(None if op < 0 else f"n{op}", f"{type(error).__name__}: {message_of(error)}")
        journal = observer.journal
        if journal.plan is not None:
            journal.plan.finish(journal.rows_with_statistics(), journal.slab.rows, failed=error is not None)
        self._trace = assemble(
            journal,
            outputs=self._outputs,
            model_folder=model_folder(self._model),
            loss_row=observer.loss_row,
            loss=observer.loss,
            failure=failure,
            milliseconds=(time.perf_counter() - self._began) * 1e3,
        )
        if self._finds_layers:
            layers = find_layers(self._trace, observer.function_paths)
            self._trace = dataclasses.replace(self._trace, layers=layers)
        self._trace = with_sources(self._trace, self._sources)

    def set_loss(self, loss: torch.Tensor) -> None:
        """Set the tensor that is the loss, where no autograd backward starts from it."""
        with torch._C.DisableTorchFunction():
            self._observer.set_loss(loss)

    @property
    def trace(self) -> Trace:
        """The finished trace."""
        if self._trace is None:
            raise TraceError("the trace is complete only when the `with record(...)` block has ended")
        return self._trace


def _both(first: OnTensor, second: OnTensor) -> OnTensor:
    def on_tensor(identifier: str, tensor: torch.Tensor) -> None:
        first(identifier, tensor)
        second(identifier, tensor)

    return on_tensor


def trace_model(
    model: Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    backward: Callable[[], None] | None = None,
    recording: record | None = None,
) -> Trace:
    """Record `model(*inputs, **kwargs)`, then `loss` of its output, then the backward pass.

    As any backward pass does, it adds to the `.grad` of the model's parameters.

    Args:
        model: an nn.Module, or any callable that computes with torch.
        *inputs: its positional arguments.
        kwargs: its keyword arguments.
        loss: a scalar from the model's output; by default the output itself, if scalar, or its `loss` (transformers).
        backward: a backward pass written by hand, called instead of autograd's; by default the `backward` method of a
            model that is no nn.Module.
        recording: of the model, not begun; by default `record(model)`.

    Returns:
        The trace; if a pass raised, as far as it went, with `error` set. Without a scalar to start from (or with
        nothing that requires a gradient) there is no backward phase.

    Raises:
        ChainruleError: the work of this thread was asked to stop.
    """
    kwargs = kwargs or {}
    recording = recording or record(model)
    for name, tensor in named_tensors(inputs, kwargs):
        recording._observer.owners.rename_tensor(tensor, name, "target" if name in TARGETS else "input")
    if backward is None and not isinstance(model, nn.Module):
        backward = getattr(model, "backward", None)
    try:
        with recording:
            result = model(*inputs, **kwargs)
            if loss is not None:
                with loss_scope(loss):
                    result = loss(result)
            elif not isinstance(result, torch.Tensor):
                result = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
            if isinstance(result, torch.Tensor) and result.numel() == 1:
                recording.set_loss(result)
                if result.requires_grad:
                    result.backward()  # type: ignore[no-untyped-call]
                elif backward is not None:
                    backward()
    except Exception as error:
        if recording._trace is None or recording._trace.error is None or error is current_stop().error:
            raise
    return recording.trace
