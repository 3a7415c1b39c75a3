"""The training of a spec, written into a run."""

from __future__ import annotations

import dataclasses
import math
import os
import time

import numpy as np
import numpy.typing as npt
import torch

from chainrule.build import Training
from chainrule.dump.wire import dump_trace
from chainrule.errors import SpecError
from chainrule.history import RunWriter
from chainrule.run import Retracer, environment
from chainrule.spec import ModelSpec
from chainrule.stats import BINS, COLUMNS, summarize
from chainrule.trace import Trace
from chainrule.training.events import TrainingEvents
from chainrule.training.wire import PARTS
from chainrule.watching.events import Event

HISTOGRAMS = 10
"""Every HISTOGRAMS-th recorded step has histograms."""


def keep_training(spec: ModelSpec, path: str | os.PathLike[str], every: int = 10) -> None:
    """Train a spec's net to its step, and write the run into a new file.

    Every step has its loss and the norm of all gradients. The last step and each `every`-th step have the statistics of
    each layer: of PARTS, and of the weight's update by the optimizer. The run has the events, and the traces of the
    step with the first NaN or Inf and of the step before it.

    Raises:
        SpecError: the spec's program is not a net, or its device is not available.
        RunError: the file exists, or cannot be written.
    """
    if not spec.is_net:
        raise SpecError(f"program: {spec.program!r} cannot be trained; only mlp can", field="program", limit=["mlp"])
    retracer, training = Retracer(), Training(spec)
    retracer.training = training
    events = TrainingEvents(training)
    good: int | None = None  # the last recorded step without NaN and Inf
    with RunWriter(path, COLUMNS, spec=spec.as_dict(), environment=environment(spec.device)) as run:
        for step in range(spec.step + 1):
            began = time.perf_counter()
            is_last = step == spec.step
            rows = _Rows() if step % every == 0 or is_last else None
            found: list[Event] = []
            if rows is not None:
                trace = retracer.trace(spec.replace(step=step))
                rows.add_trace(trace)
                found += events.dead_units(step, trace)
            if is_last:
                loss = gradient_norm = math.nan if trace.loss is None else trace.loss
                run.add_step(step, loss, spec.lr)
                found += events.of_pass(step, loss)
            else:
                weights = [training.model.leaves[layer.weight] for layer in training.model.layers]
                before = [] if rows is None else [weight.detach().clone() for weight in weights]
                training.go_to(step + 1)
                if rows is not None:
                    rows.add_updates(training, before)
                loss, gradient_norm = training.rows[step, :2].tolist()
                run.add_step(step, loss, spec.lr, time.perf_counter() - began, gradient_norm)
                found += events.between(step, step + 1)
            for event in found:
                if event.kind == "nonfinite":
                    event = _located(event, run, retracer, spec.replace(step=step))
                run.add_event(*(step, event.kind, event.text, event.op), node=event.node, batch=step, good_step=good)
            if rows is not None:
                has_histograms = step % (every * HISTOGRAMS) == 0 or is_last
                counts = np.array(rows.counts) if has_histograms else None
                run.add_rows(step, rows.tensors, np.array(rows.moments), counts)
                good = step if math.isfinite(loss + gradient_norm) else good


def _located(event: Event, run: RunWriter, retracer: Retracer, spec: ModelSpec) -> Event:
    """The event of the first NaN or Inf with its op, if the trace has it.

    Writes the traces of this step and of the step before.
    """
    for step in range(max(spec.step - 1, 0), spec.step + 1):
        trace = retracer.trace(spec.replace(step=step))
        run.add_trace(step, dump_trace(trace))
    fault = next((each for each in trace.faults if each.kind == "first_nonfinite"), None)
    if fault is None:
        return event
    return dataclasses.replace(event, text=fault.message, op=fault.module, node=fault.op)


class _Rows:
    """The statistics of one step."""

    def __init__(self) -> None:
        self.tensors: list[tuple[str, str]] = []
        self.moments: list[npt.NDArray[np.float64]] = []
        self.counts: list[npt.NDArray[np.uint32]] = []

    def add_trace(self, trace: Trace) -> None:
        table = trace.statistics
        for layer in trace.layers:
            for part in PARTS:
                place = table.row_of.get(getattr(layer, part) or "")
                if place is not None:
                    self._add(layer.name, part, table.moments[place], table.counts[place])

    def add_updates(self, training: Training, before: list[torch.Tensor]) -> None:
        """Add the statistics of the change of each weight."""
        for layer, weight in zip(training.model.layers, before, strict=True):
            moments, counts = np.empty(len(COLUMNS)), np.empty(BINS, np.uint32)
            summarize(training.model.leaves[layer.weight].detach() - weight, moments, counts)
            self._add(layer.name, "update", moments, counts)

    def _add(self, layer: str, part: str, moments: npt.NDArray[np.float64], counts: npt.NDArray[np.uint32]) -> None:
        self.tensors.append((layer, part))
        self.moments.append(moments)
        self.counts.append(counts)
