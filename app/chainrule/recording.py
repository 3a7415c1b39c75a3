"""A step of any training, recorded and saved.

    with chainrule.record(model, optimizer=optimizer) as recording:
        loss = loss_function(model(x), y)
        loss.backward()
    recording.save("step1000.json")

A trace of `trace/` is completed here with its environment and its faults, which need the model and its optimizer too.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.optim import Optimizer

from chainrule import trace as tracing
from chainrule.diagnose.evidence import Evidence, names_of, optimizers_of
from chainrule.diagnose.faults import with_faults
from chainrule.diagnose.function_calls import FunctionCalls
from chainrule.dump.wire import dump_pieces
from chainrule.errors import ChainruleError
from chainrule.run import environment
from chainrule.saving import write_file
from chainrule.trace import Trace
from chainrule.trace.collectives import rank_environment


class record(tracing.record):  # noqa: N801 (used as a statement, like torch.no_grad)
    """Record everything torch computes inside the `with` block; then `trace` holds it, and `save` writes it to a file.

    For any code: a step of a training loop, a model with a backward written by hand, plain functions. The results are
    the same as without recording, bit for bit. An exception goes through; `trace` then holds the pass so far, and the
    op at fault. In the callbacks of a trainer, `start()` and `stop()` replace the block.

    Args:
        model: the nn.Module or object whose structure names the modules; None for plain functions.
        optimizer: the optimizer of this step, or a list of them. The block is then one optimization step: with its last
            `zero_grad()` before or inside of it, and all batches whose gradients it adds up. With an
            optimizer, faults of the training are reported too, such as a parameter that no optimizer holds.
        options: see `chainrule.trace.record`.

    Raises:
        TypeError: `optimizer` is something else.
    """

    def __init__(
        self, model: object = None, *, optimizer: Optimizer | Sequence[Optimizer] | None = None, **options: Any
    ) -> None:
        self._optimizers = optimizers_of(optimizer)
        self._evidence = Evidence()
        self._calls = FunctionCalls()
        super().__init__(model, witness=self._evidence, on_function=self._calls.begin, **options)

    def _begin(self, frames: Sequence[FrameType]) -> Self:
        self._evidence.begins(self._model, self._optimizers)
        self._ranks = rank_environment(self._model)
        return super()._begin(frames)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._complete: Trace | None = None
        self._evidence.ended()
        device = _device(self._model)  # only now, when lazy parameters have one
        self._environment = {**environment(device), **self._ranks, **names_of(self._optimizers)}

    @property
    def trace(self) -> Trace:
        """The finished trace, with its faults and where it was made."""
        recorded = super().trace
        if self._complete is None:
            self._evidence.functions = self._calls.faults(self._model)
            self._complete = with_faults(dataclasses.replace(recorded, environment=self._environment), self._evidence)
        return self._complete

    def save(self, path: str | os.PathLike[str], *, strict: bool = False) -> Path | None:
        """Save the trace, in the format that the file's suffix says; see `save`.

        Each of several ranks writes its own file: `step.json` becomes `step.rank0.json`, `step.rank1.json` and so on.
        """
        trace, path = self.trace, Path(path)
        own = f".rank{self._ranks.get('rank')}"
        if self._ranks.get("world_size", 1) > 1 and own not in path.suffixes:
            stem, dot, suffix = path.name.partition(".")
            path = path.with_name(f"{stem}{own}{dot}{suffix}")
        return _save(trace, path, strict)


def trace_model(
    model: Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    backward: Callable[[], None] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> Trace:
    """Record `model(*inputs, **kwargs)`, then `loss` of its output, then the backward pass.

    As any backward pass does, it adds to the `.grad` of the model's parameters. `optimizer`: see `record`. The other
    arguments, result and errors: see `chainrule.trace.trace_model`.
    """
    recording = record(model, optimizer=optimizer)
    return tracing.trace_model(model, *inputs, kwargs=kwargs, loss=loss, backward=backward, recording=recording)


def save(trace: Trace, path: str | os.PathLike[str], *, strict: bool = False) -> Path | None:
    """Write a trace to a file, in the format of its suffix.

    The suffixes are .json, .json.gz (compressed: a tenth of the size), .dot, .svg, .html, .csv and
    .model-explorer.json.

    Missing folders are made. The file is written whole or not at all: after a failure the earlier file is still there.
    A failure is a warning, the first of each kind, so that it does not end a training.

    Args:
        trace: the trace.
        path: the file.
        strict: raise instead of warning.

    Returns:
        The file; None if it was not written.

    Raises:
        RequestError: with `strict`, another suffix.
        MissingExtraError: with `strict`, .svg, and the extra `render` is not installed.
        RenderError, MemoryLimitError: with `strict`, .svg or .html, which cannot be drawn.
        OSError: with `strict`, the file cannot be written.
    """
    return _save(trace, path, strict)


def _save(trace: Trace, path: str | os.PathLike[str], strict: bool) -> Path | None:
    """`save`, called by a function that the user calls."""
    # Imports the page, which .html and .svg need: only to save, not to record.
    from chainrule.export.formats import format_of

    path = Path(path)
    try:
        form = format_of(path)
        values = {"name": f"{path.stem}.json"} if form.name == "html" else {}
        assert form.write is not None, "each suffix of save has a format that writes a trace"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A large dump is not made as a whole.
        pieces = dump_pieces(trace) if form.name == "json" else [form.write(trace, {**form.read({}), **values})]
        write_file(path, pieces)
    except (OSError, ChainruleError, MemoryError, ValueError) as error:
        if strict:
            raise
        kind = type(error), getattr(error, "errno", None)
        if kind not in _told:
            _told.add(kind)
            reason = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
            warnings.warn(f"{path} was not saved: {reason}. There is no warning of more such files", stacklevel=3)
        return None
    return path


_told: set[tuple[type[BaseException], int | None]] = set()
"""The kinds of failed saves that were told: the error, and its number."""


def _device(model: object) -> str:
    """The device of a model's first parameter."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return "cpu" if first is None else first.device.type
