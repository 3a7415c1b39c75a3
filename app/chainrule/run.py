"""The spine: spec → model → recorded pass → trace. A trace is a pure function of its spec."""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import chainrule
from chainrule.build import BuiltModel, RescaledNet, Training, build_model, rescales
from chainrule.diagnose.faults import Evidence, with_faults
from chainrule.dump.json_values import json_value
from chainrule.errors import NotFoundError, SpecError, TraceError
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM
from chainrule.spec.limits import check_device
from chainrule.stats import BINS, COLUMNS, StatisticsTable, instruction_set
from chainrule.trace import Known, Layer, Plan, Trace, record, repeat

logger = logging.getLogger(__name__)

MAX_VALUES = 64
"""Rows and columns in a window of a tensor's values."""

MAX_IN_WINDOW = 16 * MAX_VALUES**2
"""Values in a window with all its further dimensions."""


def trace_spec(
    spec: ModelSpec,
    plan: Plan | None = None,
    build: Callable[[ModelSpec], BuiltModel] | None = None,
    evidence: Evidence | None = None,
) -> Trace:
    """Build the model of a spec, run and record its forward and backward pass.

    Args:
        spec: the model.
        plan: filled in for a repetition of the recording, by `Retracer`.
        build: another function than `build_model` that makes the same model.
        evidence: keeps what the faults of further passes of this graph look up.

    Raises:
        SpecError: the spec's device is not on this machine.
    """
    began = time.perf_counter()
    check_device(spec, available_devices())
    built = (build or build_model)(spec)
    built_at = time.perf_counter()
    trace = _run(built, spec, plan=plan)
    trace = dataclasses.replace(
        trace,
        layers=_layers(built, trace),
        spec=spec.as_dict(),
        environment=environment(spec.device),
        timing={
            "build_ms": (built_at - began) * 1e3,
            **trace.timing,
            "total_ms": (time.perf_counter() - began) * 1e3,
        },
    )
    return with_faults(trace, evidence)


class Retracer:
    """Traces spec after spec, as `trace_spec` does, and faster: only the first trace of each graph is recorded in full.

    Scale, seed, scheme and the biases' std change numbers alone, so a further trace of the same graph is the same
    program with other tensors, and only its statistics are taken. A new scale alone changes neither the draws, which
    are kept and multiplied in place, nor x, y and the biases, which keep the statistics of the last trace. One graph is
    kept at a time: its net (see `RescaledNet`) or its training, its plan, the first trace and the last statistics.

    Args:
        finds_faults: whether further traces of a graph have their faults; `judged` finds them later.

    Attributes:
        training: of the last spec, if it has a data set or a step other than 0.
        recording: an object that is the same for a recording and its repetitions.
    """

    def __init__(self, *, finds_faults: bool = True) -> None:
        self._finds_faults = finds_faults
        self._net = RescaledNet()
        self.training: Training | None = None
        self.forget()

    def forget(self) -> None:
        """Drop the kept graph: the next trace is recorded in full."""
        self._net.forget()
        self.training = None
        self.recording: object = None
        self._graph: ModelSpec | None = None
        self._plan = Plan()
        self._evidence = Evidence()
        self._trace: Trace | None = None
        self._last: tuple[ModelSpec, StatisticsTable] | None = None
        self._unscaled: frozenset[str] = frozenset()
        self._recorded_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """The memory kept between two traces; an upper estimate for all but tensors and statistics."""
        statistics = 0
        if self._last is not None:
            table = self._last[1]
            statistics = table.moments.nbytes + table.counts.nbytes + 400 * len(table.values)
        trained = 0 if self.training is None else self.training.kept_bytes
        return self._net.kept_bytes + trained + self._recorded_bytes + statistics

    def trace(self, spec: ModelSpec) -> Trace:
        """The trace of a spec: `trace_spec`'s, but for `timing`.

        Raises:
            SpecError: the spec's device is not on this machine.
        """
        graph = spec.replace(**{name: value for name, value in _NUMBERS_ONLY.items() if name in spec.keys})
        if self._trace is not None and graph == self._graph and self._plan.complete:
            try:
                return self._again(spec, self._trace)
            except TraceError as error:
                logger.warning("%s is recorded again: %s", spec.query(), error)
        plan = Plan()
        self._evidence = Evidence()
        trace = trace_spec(spec, plan, self._build, self._evidence)
        self.recording = object()
        # Without its statistics: those of the last trace are enough.
        self._graph, self._plan, self._trace = graph, plan, dataclasses.replace(trace, statistics=NO_STATISTICS)
        self._recorded_bytes = recorded_bytes(trace, plan)
        self._last = spec, trace.statistics
        biases = (layer.bias for layer in trace.layers if layer.bias is not None)
        named = trace.tensor_by_name
        self._unscaled = frozenset((*biases, *(named[name].id for name in ("x", "y") if name in named)))
        return trace

    def _build(self, spec: ModelSpec) -> BuiltModel:
        """The model of a spec; a trained one goes on from where the last trace of its training was."""
        if not spec.is_net:
            self.training = None
            return self._net.build(spec)
        if self.training is None or self.training.spec != spec.replace(step=0):
            if not spec.step and spec.data == RANDOM:
                self.training = None
                return self._net.build(spec)
            self._net.forget()
            self.training = Training(spec)
        return self.training.go_to(spec.step)

    def _again(self, spec: ModelSpec, first: Trace) -> Trace:
        began = time.perf_counter()
        built = self._build(spec)
        built_at = time.perf_counter()
        losses: list[torch.Tensor] = []

        def program() -> None:
            losses.append(built.forward())
            built.backward(losses[0])

        known = None
        if self._last is not None and rescales(self._last[0], spec):
            known = Known(self._last[1], self._unscaled)
        try:
            statistics = repeat(self._plan, program, known, beside=PROCESSORS > 1)
            if self.training is not None:
                self.training.keep_pass(losses[0])
        finally:
            built.clear_gradients()  # the leaves are kept, and with them their gradients would be
        self._last = spec, statistics
        loss = float(losses[0].detach())
        now = time.perf_counter()
        repeated = dataclasses.replace(
            first,
            statistics=statistics,
            faults=(),
            loss=loss,
            spec=spec.as_dict(),
            timing={
                "build_ms": (built_at - began) * 1e3,
                "record_ms": (now - built_at) * 1e3,
                "total_ms": (now - began) * 1e3,
            },
        )
        return with_faults(repeated, self._evidence) if self._finds_faults else repeated

    def judged(self, trace: Trace) -> Trace:
        """The last trace, with its faults."""
        return with_faults(trace, self._evidence)


_NUMBERS_ONLY: Mapping[str, Any] = {
    "scale": 1.0,
    "seed": 0,
    "init": "standard_normal",
    "bias_std": 0.0,
    "optimizer": "sgd",
    "lr": 0.0,
    "weight_decay": 0.0,
    "parametrization": "standard",
    "step": 0,
}
"""The keys of a spec that do not change the graph, each with the value that stands for all."""

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The number of processors that this process may use."""

NO_STATISTICS = StatisticsTable((), np.empty((0, len(COLUMNS))), np.empty((0, BINS), np.uint32))


def recorded_bytes(trace: Trace, plan: Plan) -> int:
    """An upper estimate of the memory of a plan and a trace without statistics.

    The factors are measured; `tests/web/test_compute_memory.py` compares them with Python's allocations.
    """
    return (
        40_000
        + 3000 * len(trace.modules)
        + 1000 * len(trace.ops)
        + 1000 * len(trace.tensors)
        + 150 * len(trace.saved)
        + 400 * len(plan.steps)
    )


def _run(
    built: BuiltModel,
    spec: ModelSpec,
    on_tensor: Callable[[str, torch.Tensor], None] | None = None,
    plan: Plan | None = None,
) -> Trace:
    activated = {layer.activation for layer in built.layers if layer.activation != layer.preactivation}
    recording = record(
        built.root,
        leaves=built.leaves,
        roles=built.roles,
        outputs=built.outputs,
        activations={path: spec.activation for path, name in built.outputs.items() if name in activated},
        on_tensor=on_tensor,
        plan=plan,
        find_layers=False,
    )
    try:
        with recording:
            loss = built.forward()
            recording.set_loss(loss)
            built.backward(loss)
    finally:
        built.clear_gradients()  # the next pass may have the same leaves, see `Retracer`
    return recording.trace


def _layers(built: BuiltModel, trace: Trace) -> tuple[Layer, ...]:
    ids = {name: tensor.id for name, tensor in trace.tensor_by_name.items()}

    def gradient(name: str | None) -> str | None:
        return None if name is None else ids.get(f"{name}.g")

    return tuple(
        Layer(
            index=layer.index,
            name=layer.name,
            preactivation=ids.get(layer.preactivation),
            activation=ids.get(layer.activation),
            gradient=gradient(layer.activation),
            weight=ids.get(layer.weight),
            weight_gradient=gradient(layer.weight),
            bias=None if layer.bias is None else ids.get(layer.bias),
            bias_gradient=gradient(layer.bias),
        )
        for layer in built.layers
    )


# -------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class TensorValues:
    """A window of a tensor's values: rows `rows[0]:rows[1]` of the first dimension, columns of the second."""

    name: str
    id: str
    shape: tuple[int, ...]
    dtype: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    values: list[Any]


def tensor_values(
    spec: ModelSpec, name: str, rows: tuple[int, int] = (0, 5), cols: tuple[int, int] = (0, 5)
) -> TensorValues:
    """Run a spec again and return a window of one tensor's values, as the chapter prints `x[0:5,0:5]`.

    Args:
        spec: the model.
        name: the tensor's name in the trace, `l2` or `w1.g`.
        rows: start and stop along dimension 0, cut to the shape.
        cols: start and stop along dimension 1, if there is one.

    Raises:
        NotFoundError: no tensor has this name.
        SpecError: the window is empty, negative or larger than MAX_VALUES; the device is absent.
    """
    _check_window(rows, cols)
    check_device(spec, available_devices())
    return window_of(trace_spec(spec), name, rows, cols, lambda copy_window: _run(build_model(spec), spec, copy_window))


def window_of(
    trace: Trace,
    name: str,
    rows: tuple[int, int],
    cols: tuple[int, int],
    run_again: Callable[[Callable[[str, torch.Tensor], None]], object],
) -> TensorValues:
    """A window of one tensor's values, see `tensor_values`.

    `run_again` repeats the program of the trace, with its argument as `record`'s `on_tensor`.

    Raises:
        NotFoundError: no tensor has this name, or it has no values to show.
        SpecError: the window is empty, negative or larger than MAX_VALUES.
    """
    _check_window(rows, cols)
    wanted = trace.tensor_by_name.get(name)
    if wanted is None:
        raise NotFoundError(f"name: unknown tensor {name!r}", field="name")
    found: list[torch.Tensor] = []

    def copy_window(tensor_id: str, tensor: torch.Tensor) -> None:
        if tensor_id == wanted.id:
            window = tensor.detach()
            if window.dim() >= 1:
                window = window[slice(*rows)]
            if window.dim() >= 2:
                window = window[:, slice(*cols)]
            if window.numel() > MAX_IN_WINDOW:
                raise SpecError(
                    f"rows: this window of {name} has {window.numel()} values; at most {MAX_IN_WINDOW} are allowed; "
                    "request fewer rows or columns",
                    field="rows",
                    limit=MAX_IN_WINDOW,
                )
            found.append(window.to("cpu", torch.float64, copy=True))

    run_again(copy_window)
    if not found:
        raise NotFoundError(f"name: the tensor {name!r} has no values to show", field="name")
    return TensorValues(name, wanted.id, wanted.shape, wanted.dtype, rows, cols, json_value(found[0]))


def _check_window(rows: tuple[int, int], cols: tuple[int, int]) -> None:
    for field, (start, stop) in (("rows", rows), ("cols", cols)):
        if not 0 <= start < stop or stop - start > MAX_VALUES:
            raise SpecError(
                f"{field}: {start}:{stop} is not a range of 1 to {MAX_VALUES} indices that starts at 0 or later",
                field=field,
                limit=MAX_VALUES,
            )


# -------------------------------------------------------------------- where it runs


@lru_cache(maxsize=1)
def available_devices() -> tuple[str, ...]:
    """The devices a spec may name on this machine."""
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def environment(device: str = "cpu") -> Mapping[str, Any]:
    """The environment that a trace's numbers depend on: versions, device, threads, instruction sets.

    `cpu_capability` is that of PyTorch's code, `kernel` that of the statistics'.
    """
    return {**_environment(device), "threads": torch.get_num_threads()}


@lru_cache(maxsize=8)
def _environment(device: str) -> Mapping[str, Any]:
    return {
        "chainrule": chainrule.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device,
        "device_name": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "kernel": instruction_set(),
        "platform": sys.platform,
    }
