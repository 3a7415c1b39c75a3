"""A step of any training, recorded and saved.

    with chainrule.record(model) as recording:
        loss = loss_function(model(x), y)
        loss.backward()
    recording.save("step1000.json")

A trace of `trace/` is completed here with its environment and its faults, which need the model's parameters too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import nn

from chainrule import trace as tracing
from chainrule.diagnose.faults import Evidence, evidence_of, with_faults
from chainrule.diagnose.function_calls import FunctionCalls
from chainrule.run import environment
from chainrule.trace import Trace

OnTensor = Callable[[str, torch.Tensor], None]


class record(tracing.record):  # noqa: N801 (used as a statement, like torch.no_grad)
    """Record everything torch computes inside the `with` block; then `trace` holds it, and `save` writes it to a file.

    For any code: a step of a training loop, a model with a backward written by hand, plain functions. The results are
    the same as without recording, bit for bit. An exception goes through; `trace` then holds the pass so far, and the
    op at fault. In the callbacks of a trainer, `start()` and `stop()` replace the block.

    Args: see `chainrule.trace.record`; the first is the model, whose structure names the modules.
    """

    def _begin(self, frames: Sequence[FrameType]) -> Self:
        self._evidence = Evidence()
        self._calls = FunctionCalls()
        self._observer.on_function = self._calls.begin
        journal = self._observer.journal
        journal.on_tensor = _both(self._evidence.watch, journal.on_tensor)
        return super()._begin(frames)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._complete: Trace | None = None
        # Only now, when lazy parameters have their shapes.
        self._evidence.parameters = evidence_of(self._model).parameters
        self._device = _device(self._model)

    @property
    def trace(self) -> Trace:
        """The finished trace, with its faults and where it was made."""
        recorded = super().trace
        if self._complete is None:
            self._evidence.functions = self._calls.faults(self._model)
            self._complete = _completed(recorded, self._evidence, self._device)
        return self._complete

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the trace, in the format that the file's suffix says; see `save`."""
        return save(self.trace, path)


def trace_model(
    model: Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    backward: Callable[[], None] | None = None,
) -> Trace:
    """Record `model(*inputs, **kwargs)`, then `loss` of its output, then the backward pass.

    As any backward pass does, it adds to the `.grad` of the model's parameters. Arguments, result and errors: see
    `chainrule.trace.trace_model`.
    """
    evidence, calls = Evidence(), FunctionCalls()
    trace = tracing.trace_model(
        model,
        *inputs,
        kwargs=kwargs,
        loss=loss,
        backward=backward,
        on_tensor=evidence.watch,
        on_function=calls.begin,
    )
    evidence.parameters = evidence_of(model).parameters
    evidence.functions = calls.faults(model)
    return _completed(trace, evidence, _device(model))


def save(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a trace to a file: .json .dot .svg .html .csv or .model-explorer.json, as the file's suffix says.

    Missing folders are made.

    Returns:
        The file.

    Raises:
        RequestError: another suffix.
        MissingExtraError: .svg, and the extra `render` is not installed.
        RenderError, MemoryLimitError: .svg or .html, which cannot be drawn.
        OSError: the file cannot be written.
    """
    # Imports the page, which .html and .svg need: only to save, not to record.
    from chainrule.export.formats import format_of

    path = Path(path)
    form = format_of(path)
    values = {"name": f"{path.stem}.json"} if form.name == "html" else {}
    assert form.write is not None, "no format of a trace is of a spec alone"
    written = form.write(trace, {**form.read({}), **values})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written)
    return path


def _both(watch: OnTensor, own: OnTensor | None) -> OnTensor:
    if own is None:
        return watch

    def on_tensor(identifier: str, tensor: torch.Tensor) -> None:
        watch(identifier, tensor)
        own(identifier, tensor)

    return on_tensor


def _completed(trace: Trace, evidence: Evidence, device: str) -> Trace:
    return with_faults(dataclasses.replace(trace, environment=environment(device)), evidence)


def _device(model: object) -> str:
    """The device of a model's first parameter."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return "cpu" if first is None else first.device.type
