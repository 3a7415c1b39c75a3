"""A user's model, traced again and again: each trace is a function of the subject, the seed and a what-if.

    what-if ─▶ the model's parameters ─▶ forward ─▶ loss ─▶ backward, recorded ─▶ Trace

The subject's model itself runs, and is put back after each pass (`parameters.State`). So functions and hooks that hold
the model need no copy, and no factory is called a second time: it may print, take seconds, or return another model.

The first trace is recorded in full; a further one of the same graph repeats it for its numbers (`trace.plan`). Whether
it is the same graph is looked at, not supposed: a mixture of experts may take another route with other weights. At the
level aten every trace is recorded in full.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from chainrule.diagnose.evidence import Evidence, names_of
from chainrule.diagnose.faults import with_faults, with_rule
from chainrule.diagnose.function_calls import Findings, FunctionCalls
from chainrule.errors import ChainruleError, ExploreError, MemoryLimitError, TraceError, message_of
from chainrule.memory import out_of_memory
from chainrule.run import NO_STATISTICS, TensorValues, environment, recorded_bytes, window_of
from chainrule.stats import COLUMNS
from chainrule.stopping import current_stop
from chainrule.trace import Failure, Fault, Known, Plan, Trace, loss_scope, record, repeat, sources, versions
from chainrule.trace.compiled import Written
from chainrule.trace.nested import named_tensors
from chainrule.trace.owners import TARGETS
from chainrule.user_model.code import is_interrupt, raised_at, shown_path
from chainrule.user_model.compiled import Compilation, compilation
from chainrule.user_model.copies import copied
from chainrule.user_model.parameters import State
from chainrule.user_model.program import Program
from chainrule.user_model.seeded import seeded
from chainrule.user_model.subject import Subject, scalar_loss
from chainrule.user_model.what_if import COMPILERS, WhatIf

logger = logging.getLogger(__name__)

_SIZE = COLUMNS.index("n")


class Tracer:
    """Traces a subject at one what-if after another. For one thread at a time.

    The model runs on copies of its inputs, with random numbers from `seed`. After a pass it is as before, its running
    statistics, for example.

    Attributes:
        subject: what is traced.
        seed: of the random numbers that a pass draws.
        compiles: whether the places are looked for where torch.compile would cut the graph.
        written: at the level of a compiler, id of a tensor of the last trace → the written op with this output,
            and its number among those of this name.
        recording: stands for the recording that the last trace repeats, or is; another object for each.
    """

    def __init__(self, subject: Subject, seed: int = 42, *, compiles: bool = False) -> None:
        """Take a subject; nothing is copied or run yet."""
        self.subject = subject
        self.seed = seed
        self.compiles = compiles
        self._compilation: Compilation | None = None
        self.written: Mapping[str, tuple[Written, int]] = {}
        self._programs: dict[str, Program] = {}
        self.forget()

    def forget(self) -> None:
        """Drop all copies and the recording: the next trace is recorded in full."""
        self.recording: object = None
        self._state: State | None = None
        self._recorded: _Recorded | None = None
        self._last: Traced | None = None
        self._findings = Findings()
        while self._programs:
            self._programs.popitem()[1].close()

    @property
    def kept_bytes(self) -> int:
        """The memory that it takes between two traces, in bytes; an upper bound."""
        kept = self._state.kept_bytes if self._state is not None else 0
        if self._recorded is not None:
            kept += self._recorded.kept_bytes
        if self._last is not None:
            statistics = self._last.trace.statistics
            kept += statistics.moments.nbytes + statistics.counts.nbytes
        return kept

    def trace(self, what_if: WhatIf = WhatIf()) -> Trace:  # noqa: B008 (immutable)
        """The trace of the subject at a what-if, with its faults. Raises: see `traced`."""
        return self.traced(what_if).judged

    def traced(self, what_if: WhatIf = WhatIf()) -> Traced:  # noqa: B008
        """The trace of the subject at a what-if; `Traced.judged` finds its faults.

        If the forward or the backward pass raises, the trace ends there, with the place and the error in `error`.

        Raises:
            ExploreError: there is no scalar loss, or the inputs cannot be copied.
            MemoryLimitError: memory ran out; the tracer forgets all.
            ChainruleError: the work of this thread was asked to stop.
        """
        if self._last is not None and self._last.what_if == what_if:
            return self._last
        if what_if.recording == "op" and self._recorded is not None and self._recorded.plan.complete:
            try:
                return self._again(what_if, self._recorded)
            except MemoryLimitError:
                raise
            except ChainruleError as error:
                if error is current_stop().error:
                    raise
                logger.info("%s is recorded again: %s", self.subject.name, error.message)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                # A recording shows the pass up to the error.
                logger.info("%s is recorded again: %s", self.subject.name, type(error).__name__)
        return self._record(what_if, Plan())

    def record(self, what_if: WhatIf = WhatIf(), on_tensor: Callable[[str, Tensor], None] | None = None) -> Trace:  # noqa: B008
        """The trace, recorded in full; `on_tensor` gets the id and the live tensor of each value, and must not keep it.

        Raises:
            ExploreError, MemoryLimitError, ChainruleError: see `trace`.
        """
        return self._record(what_if, on_tensor=on_tensor).judged

    @contextmanager
    def prepared(self, what_if: WhatIf = WhatIf()) -> Iterator[Pass]:  # noqa: B008
        """Change the model by the what-if and seed the random numbers; inside, the pass can run once.

        Raises:
            ExploreError: the inputs or the parameters cannot be copied.
            MemoryLimitError: there is no memory for the copies.
        """
        # The caller's thread may be in another mode. `seeded` lets in one thread at a time.
        with torch.inference_mode(False), torch.enable_grad(), seeded(self.seed):
            subject = self.subject
            with subject.telling("the inputs cannot be copied"):
                args, kwargs = copied((subject.args, dict(subject.kwargs)))
            with subject.telling("the parameters cannot be copied"):
                if self._state is None:
                    self._state = State(subject.model)
            state = self._state
            of_loss = list(subject.loss.parameters()) if isinstance(subject.loss, nn.Module) else []
            gradients = [each.grad for each in of_loss]
            try:
                state.change(what_if)
                for parameter in of_loss:
                    parameter.grad = None
                yield Pass(subject, args, kwargs, subject.model)
            finally:
                state.restore()
                for parameter, gradient in zip(of_loss, gradients, strict=True):
                    parameter.grad = gradient

    def values(self, what_if: WhatIf, name: str, rows: tuple[int, int], cols: tuple[int, int]) -> TensorValues:
        """Run it again and give a window of one tensor's values; see `run.tensor_values`.

        Raises:
            NotFoundError: no tensor has this name.
            SpecError: a window that is empty, negative or too large.
            ExploreError, MemoryLimitError, ChainruleError: see `trace`.
        """
        return window_of(self.trace(what_if), name, rows, cols, lambda on_tensor: self.record(what_if, on_tensor))

    # ---------------------------------------------------------------- recorded in full

    def _record(
        self, what_if: WhatIf, plan: Plan | None = None, on_tensor: Callable[[str, Tensor], None] | None = None
    ) -> Traced:
        evidence = Evidence()
        evidence.begins(self.subject.model, self.subject.optimizers, clears=True)
        # Without a plan the numbers alone are wanted.
        calls = None if plan is None else FunctionCalls(self._findings)
        began = time.perf_counter()
        failure: tuple[str | None, str] | None = None
        try:
            program = None
            if what_if.recording in COMPILERS:
                try:
                    program = self._compiled(what_if)
                except ExploreError:
                    eager = self._record(dataclasses.replace(what_if, recording="op"))
                    if eager.trace.error is None:
                        raise
                    return eager  # the model raises without the compiler too
            with self.prepared(what_if) as run:
                prepared_at = time.perf_counter()
                # Named here, since a hook may give other inputs to the model's forward.
                inputs = dict(named_tensors(run.args, run.kwargs))
                roles = {name: "target" if name in TARGETS else "input" for name in inputs}
                recording = record(
                    run.subject.model,
                    leaves=inputs,
                    roles=roles,
                    on_tensor=on_tensor,
                    on_function=None if calls is None else calls.begin,
                    witness=evidence,
                    plan=plan if what_if.recording == "op" else None,
                    level="aten" if what_if.recording == "aten" else "op",
                    runs_compiled=program is not None,
                )
                if program is not None:
                    run = dataclasses.replace(run, model=program.call)
                    program.level = recording.compiled
                try:
                    with _modules_noted() as modules, recording:
                        loss = run.forward()
                        recording.set_loss(loss)
                        run.backward(loss)
                except ChainruleError:
                    raise
                except BaseException as error:
                    if is_interrupt(error):
                        raise
                    failure = self._failure(error)
                finally:
                    if program is not None:
                        program.level = None
                if recording.compiled is not None:
                    self.written = {f"t{row}": of for row, of in recording.compiled.results.items()}
                route = modules, _with_gradients(run.subject.model)
                evidence.ended()
            if calls is not None:
                with seeded(self.seed):  # no other thread's pass draws meanwhile
                    evidence.functions = calls.faults(self.subject.model)
        except MemoryLimitError:
            self.forget()
            raise
        trace = recording.trace
        if failure is not None:
            op = trace.error.op if trace.error is not None else None
            trace = dataclasses.replace(trace, error=Failure(op, failure[1]))
        now = time.perf_counter()
        trace = dataclasses.replace(
            trace,
            environment=self._environment(what_if),
            timing={
                "build_ms": (prepared_at - began) * 1e3,
                **trace.timing,
                "total_ms": (now - began) * 1e3,
            },
        )
        if plan is not None:
            self.recording = object()
            # Without its statistics: the last trace has them.
            kept = dataclasses.replace(trace, statistics=NO_STATISTICS, faults=())
            self._recorded = _Recorded(
                kept, plan, evidence, route, frozenset(inputs), trace.statistics.moments[:, _SIZE].copy()
            )
        trace = self._with_cuts(_judged(trace, evidence))
        if program is not None and recording.compiled is not None and failure is None:
            notes = _missing(program.calls, recording.compiled.graphs)
            trace = dataclasses.replace(trace, faults=(*trace.faults, *notes))
        if failure is not None:
            trace = self._placed(trace, *failure)
        traced = Traced(what_if, trace, lambda trace: trace)
        if plan is not None:
            self._last = traced
        return traced

    def _compiled(self, what_if: WhatIf) -> Program:
        """The model as a program that has run once, so that nothing has to be compiled any more.

        Raises:
            ExploreError: the compiler fails, or an op of the model; or inductor is asked for a model on a GPU; or
                PyTorch is older than `FIRST_COMPILED`.
        """
        backend, device = what_if.recording, self.subject.device.type
        if versions.number_of(torch.__version__) < versions.FIRST_COMPILED:
            raise ExploreError(
                f"recording: {backend} needs PyTorch {'.'.join(map(str, versions.FIRST_COMPILED))} or newer; "
                f"this is {torch.__version__}",
                field="recording",
            )
        if backend == "inductor" and device != "cpu":
            raise ExploreError(
                f"recording: inductor needs a model on the CPU, {self.subject.name} is on {device}; choose aot_eager",
                field="recording",
            )
        program = self._programs.get(backend) or Program(self.subject.model, backend)
        program.calls = 0
        with (
            self.prepared(what_if) as run,
            program.compiling(),
            self.subject.telling(f"torch.compile with {backend} fails"),
        ):
            run = dataclasses.replace(run, model=program.call)
            run.backward(run.forward())
        self._programs[backend] = program
        return program

    def _failure(self, error: BaseException) -> tuple[str | None, str]:
        """The place of the error and its message. Raises MemoryLimitError if memory ran out."""
        if out_of_memory(error) is not None:
            raise self.subject.told(error, f"{self.subject.name} cannot be traced") from None
        return raised_at(error, self.subject.folder), f"{type(error).__name__}: {message_of(error)}"

    def _placed(self, trace: Trace, place: str | None, words: str) -> Trace:
        """The trace with the place in its error: the user's line, else the op's, else the factory's."""
        assert trace.error is not None, "something was raised"
        op = next((each for each in trace.ops if trace.error is not None and each.id == trace.error.op), None)
        said = words
        if place is None and op is not None:
            path = trace.module_by_id[op.module].path
            said = f"in {path}: {words}" if path else words
            if op.source is not None:
                file = (self.subject.folder or Path()) / op.source.file
                place = f"{shown_path(file) if file.is_file() else op.source.file}:{op.source.line}"
        place = place or self.subject.place
        said = f"{place}: {said}" if place else said
        faults = tuple(
            dataclasses.replace(each, message=said) if each.kind == "failed" and each.message == words else each
            for each in trace.faults
        )
        return dataclasses.replace(trace, error=dataclasses.replace(trace.error, message=said), faults=faults)

    # ---------------------------------------------------------------- repeated

    def _again(self, what_if: WhatIf, recorded: _Recorded) -> Traced:
        began = time.perf_counter()
        losses: list[Tensor] = []
        with self.prepared(what_if) as run:
            prepared_at = time.perf_counter()

            def program() -> None:
                losses.append(run.forward())
                run.backward(losses[0])

            known = None
            if self._last is not None and self._state is not None:
                parameters = self._state.same(self._last.what_if, what_if)
                known = Known(self._last.trace.statistics, recorded.unchanged(parameters))
            try:
                with _modules_noted() as modules:
                    statistics = repeat(recorded.plan, program, known)
            except Exception as error:
                if out_of_memory(error) is not None:
                    self.forget()
                    raise self.subject.told(error, self.subject.name) from None
                raise
            route = modules, _with_gradients(run.subject.model)
        if route != recorded.route or not np.array_equal(statistics.moments[:, _SIZE], recorded.sizes):
            raise TraceError("the pass ran other ops than the last one")
        loss = float(losses[0].detach())
        now = time.perf_counter()
        repeated = dataclasses.replace(
            recorded.trace,
            statistics=statistics,
            loss=loss,
            environment=self._environment(what_if),
            timing={
                "build_ms": (prepared_at - began) * 1e3,
                "record_ms": (now - prepared_at) * 1e3,
                "total_ms": (now - began) * 1e3,
            },
        )
        # It must not hold the tracer, with all its copies of the model.
        cuts, evidence = self._compilation, recorded.evidence
        self._last = Traced(what_if, repeated, lambda trace: _cut(_judged(trace, evidence), cuts))
        return self._last

    def _with_cuts(self, trace: Trace) -> Trace:
        """The trace with the cuts of torch.compile, which do not depend on the what-if."""
        if not self.compiles or trace.error is not None:
            return trace
        if self._compilation is None:
            with self.prepared(WhatIf()) as run, torch._C.DisableTorchFunction():
                self._compilation = compilation(
                    run.subject.model, run.args, run.kwargs, sources.model_folder(run.subject.model)
                )
        return _cut(trace, self._compilation)

    def _environment(self, what_if: WhatIf) -> Mapping[str, Any]:
        about = {"model": self.subject.name, "what_if": what_if.query(), "seed": self.seed}
        if self.subject.place and not Path(self.subject.place).is_absolute():
            about["factory"] = self.subject.place
        return {**environment(self.subject.device.type), **about, **names_of(self.subject.optimizers)}


def _missing(calls: int, recorded: int) -> Iterator[Fault]:
    """A note if fewer graphs ran in the recording than before, or none."""
    if not calls:
        message = "torch.compile made no graph of this pass: all of it ran without compilation"
    elif recorded < calls:
        message = f"{calls - recorded} of {calls} graphs did not fit this pass: torch.compile would compile them again"
    else:
        return
    yield with_rule(Fault("graph_break", message, level="note"))


def _cut(trace: Trace, cuts: Compilation | None) -> Trace:
    return trace if cuts is None else cuts.of(trace)


def _judged(trace: Trace, evidence: Evidence) -> Trace:
    """The trace with its faults; a missing backward pass is a fault."""
    found = with_faults(trace, evidence, goes_back=True)
    others = any(fault.kind != "wrong_backward" for fault in found.faults)
    if others or trace.error is not None or any(op.phase == "backward" for op in trace.ops):
        return found
    loss = next((tensor for tensor in trace.tensors if tensor.role == "loss"), None)
    fault = Fault(
        "no_gradient",
        "no parameter has a gradient: the loss does not require grad, so there is no backward pass",
        tensor=None if loss is None else loss.id,
        op=None if loss is None else loss.producer,
        remedy="The graph between the parameters and the loss is cut: look for detach(), .data, .item(), "
        "torch.no_grad(), or an op without a derivative, such as argmax or a comparison.",
    )
    return dataclasses.replace(found, faults=(with_rule(fault), *found.faults))


@dataclasses.dataclass(frozen=True)
class Traced:
    """The trace of a what-if. In a trace of a repeated pass, the faults are still to be found: by `judged`."""

    what_if: WhatIf
    trace: Trace
    judge: Callable[[Trace], Trace]

    @cached_property
    def judged(self) -> Trace:
        """The trace with its faults."""
        return self.judge(self.trace)


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """One forward and backward pass, ready to run on copies of the inputs."""

    subject: Subject
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    model: Callable[..., Any]

    def forward(self) -> Tensor:
        """Run the model and return its loss. Raises ExploreError if that is no scalar."""
        subject = self.subject
        lower = subject.autocast
        with contextlib.nullcontext() if lower is None else torch.autocast(subject.device.type, lower):
            output = self.model(*self.args, **self.kwargs)
            result = None
            if subject.loss is not None:
                with loss_scope(subject.loss):
                    result = subject.loss(output)
        with torch._C.DisableTorchFunction():  # looking at them is no op of the model
            return scalar_loss(subject, output, result)

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass from the loss of `forward`, if it requires grad."""
        with torch._C.DisableTorchFunction():
            leads_back = loss.requires_grad
        if leads_back:
            loss.backward()  # type: ignore[no-untyped-call]


@dataclasses.dataclass(frozen=True)
class _Recorded:
    """A recording that can be repeated: the trace without its statistics, and the route of the pass."""

    trace: Trace
    plan: Plan
    evidence: Evidence
    route: tuple[list[int], list[bool]]  # the modules that ran, and which parameters got a gradient
    inputs: frozenset[str]
    sizes: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def kept_bytes(self) -> int:
        return recorded_bytes(self.trace, self.plan) + self.sizes.nbytes

    @cached_property
    def leaves(self) -> tuple[tuple[str, str | None], ...]:
        """Ids of the inputs, which are the same in every pass, with None; ids and names of the parameters."""
        return tuple(
            (tensor.id, None if tensor.name in self.inputs else tensor.name)
            for tensor in self.trace.tensors
            if tensor.producer is None
            and tensor.gradient_of is None
            and (tensor.role == "parameter" or tensor.name in self.inputs)
        )

    def unchanged(self, parameters: frozenset[str]) -> frozenset[str]:
        """The ids of the leaves with the same values as in the pass before."""
        return frozenset(identifier for identifier, name in self.leaves if name is None or name in parameters)


@contextmanager
def _modules_noted() -> Iterator[list[int]]:
    """Inside, the ids of the modules that this thread runs are noted, in order.

    Two passes may call the same functions and still be different graphs, if another expert was chosen.
    """
    thread, found = threading.get_ident(), list[int]()

    def begins(module: nn.Module, _: Any) -> None:
        if threading.get_ident() == thread:
            found.append(id(module))

    handle = register_module_forward_pre_hook(begins)
    try:
        yield found
    finally:
        handle.remove()


def _with_gradients(model: nn.Module) -> list[bool]:
    """Whether each parameter has a gradient; `State.restore` removes them."""
    return [parameter.grad is not None for parameter in model.parameters()]
