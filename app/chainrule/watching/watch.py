"""Watches a training loop.

    with chainrule.watch(model, optimizer, every=10, keep="runs/first.run") as watch:
        for x, y in batches:
            optimizer.zero_grad()
            loss = loss_function(model(x), y)
            loss.backward()
            watch.loss(loss)
            optimizer.step()

A Trainer of Lightning or transformers can replace the model and the optimizer. Then the watch begins with its training.

A step begins after one optimizer step and ends with the next one. In a recorded step, hooks take statistics of the
outputs of leaf modules, of their gradients, and of the parameters, their gradients and their updates. Other steps have
no hook in the model, except one on a parameter, which detects gradients that were not set to zero. No hook changes a
number. No tensor is kept, except a copy of the parameters during the optimizer's step.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsIndex

import torch
from torch import nn
from torch.optim import Optimizer

from chainrule.dump.wire import dump_trace
from chainrule.errors import WatchError, in_words
from chainrule.history import RunWriter
from chainrule.history.reader import SUFFIX
from chainrule.notebook import in_notebook
from chainrule.recording import record
from chainrule.run import environment
from chainrule.stats import COLUMNS
from chainrule.trace import Trace
from chainrule.trace.collectives import is_distributed
from chainrule.trace.journal import local_part
from chainrule.watching import trainers
from chainrule.watching.events import HARMLESS, Detector, Event
from chainrule.watching.live import LiveOutput
from chainrule.watching.statistics import Members, StepStatistics

ACTIONS = ("record", "warn", "stop")

HISTOGRAMS = 100
"""Minimum number of steps between two recorded steps with histograms."""

MAX_TRACES = 20
"""Maximum number of events whose step is run again in full."""


_Buffers = list[tuple[nn.Module, str, torch.Tensor, torch.Tensor]]


class watch:  # noqa: N801 (used as a statement, like torch.no_grad)
    """Watch a training loop: write losses and statistics into a run, and report steps that go wrong as events.

    Args:
        model: the nn.Module that is trained; or a Trainer of Lightning or transformers, before its training.
        optimizer: the optimizer of the model; each call of its `step` ends a step. Leave it out for a Trainer.
        every: record the statistics of every `every`-th step.
        keep: the new file of the run; with several ranks, each rank writes its own file. None writes no file.
        on: the reaction to an event. `record` writes it and records the next step too. `warn` does the same and warns.
            `stop` raises WatchError before the optimizer changes a parameter; after it, if the update is the event.
            With several ranks, all of them stop at the event of one: each step has a small all_reduce. Then each rank
            must watch.
        callback: a function that is called with each event.
        scaler: the torch.amp.GradScaler of the training, if any. The gradients of outputs are divided by its scale, and
            each step that it skips is an event.

    Attributes:
        events: the events so far.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it and the allowed values.
        RunError: the file exists, or cannot be written.
    """

    def __init__(
        self,
        model: nn.Module | Any,
        optimizer: Optimizer | None = None,
        *,
        every: int = 10,
        keep: str | os.PathLike[str] | None = None,
        on: str = "record",
        callback: Callable[[Event], None] | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        has_own = trainers.is_trainer(model)
        if not isinstance(model, nn.Module) and not has_own:
            wanted = "a torch.nn.Module, or a Trainer of Lightning or transformers"
            raise TypeError(f"model: expected {wanted}, got a value of type {type(model).__name__}")
        if has_own and optimizer is not None:
            raise TypeError("optimizer: watch finds the optimizer of a Trainer; leave this argument out")
        if not has_own and not isinstance(optimizer, Optimizer):
            found = type(optimizer).__name__
            raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got a value of type {found}")
        if not isinstance(every, SupportsIndex) or every.__index__() < 1:
            raise ValueError(f"every: {every!r} is not an integer of at least 1")
        if on not in ACTIONS:
            raise ValueError(f"on: {on!r} is not one of {', '.join(ACTIONS)}")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function, got a value of type {type(callback).__name__}")
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise TypeError(f"scaler: expected a torch.amp.GradScaler, got a value of type {type(scaler).__name__}")
        if keep is not None and not isinstance(keep, str | os.PathLike):
            raise TypeError(f"keep: expected the path of a new file, got a value of type {type(keep).__name__}")
        if keep is not None and Path(keep).suffix != SUFFIX:
            raise ValueError(f"keep: {os.fspath(keep)!r} does not end with {SUFFIX}, as the runs of a folder do")
        self._given, self._every, self._on = (model, optimizer), operator.index(every), on
        self._keep, self._callback, self._scaler = keep, callback, scaler
        self.events: list[Event] = []
        self._detector = Detector()
        self._has_begun = False
        self._step = 0
        self._good: int | None = None  # the last recorded step before this one without NaN and Inf
        self._loss: float | None = None
        self._losses: list[float] = []  # of this step, until it is written
        self._has_loss = False  # any step
        self._records_next = False
        self._pass: StepStatistics | None = None
        self._run: RunWriter | None = None
        self._live: LiveOutput | None = None
        self._handles: list[Any] = []
        self._detach: Callable[[], None] = lambda: None
        self._mark: tuple[int, int] | None = None  # a parameter's last gradient, see _mark_of
        self._has_gradient = False  # in this step
        self._is_stale = self._was_stale = False  # in this step, and in the step before
        self._has_stepped = False
        self._traces = 0  # number of events whose step was run again
        self._compared: int | None = None  # the step whose trace is kept for comparison

    def __enter__(self) -> Self:
        if self._has_begun:
            raise WatchError("a watch watches one training; make another one for the next")
        self._has_begun = True
        model, optimizer = self._given
        if optimizer is None:
            self._detach = trainers.attach(model, self)
        else:
            self.start(model, optimizer)
        return self

    def start(self, model: nn.Module, optimizer: Optimizer, scaler: torch.amp.GradScaler | None = None) -> None:
        """Begin the first step. A Trainer calls this; if it trains a second time, the step numbers continue."""
        self._group = getattr(model, "process_group", None)  # of DDP; else all ranks
        self._model, self._optimizer = trainers.bare_model(model), trainers.bare_optimizer(optimizer)
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        trained = next((each for each in parameters if each.requires_grad and not nn.parameter.is_lazy(each)), None)
        if trained is None:
            rule = "requires a gradient and has values; lazy modules get theirs in a first pass before the watch"
            raise ValueError(f"optimizer: none of its parameters {rule}")
        self._trained = trained
        self._calls_closure = _calls_closure(self._optimizer)
        self._members = Members(self._model)
        own = getattr(optimizer, "scaler", None)  # accelerate's
        self._scaler = self._scaler or scaler or (own if isinstance(own, torch.amp.GradScaler) else None)
        if self._keep is not None and self._run is None:
            path, rank, world = Path(self._keep), 0, 1
            if is_distributed():
                rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
            if world > 1:
                path = path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
            first = next(self._model.parameters(), None)
            about = environment("cpu" if first is None else first.device.type)
            self._run = RunWriter(path, COLUMNS, model=str(self._model), environment=about, rank=rank, world=world)
        if self._live is None and in_notebook():
            self._live = LiveOutput(Path(self._keep).stem if self._keep else type(self._model).__name__, self.events)
        self._end_hooks()
        self._handles = [
            self._optimizer.register_step_pre_hook(self._before_update),
            self._optimizer.register_step_post_hook(self._after_update),
        ]
        self._handles.append(self._trained.register_post_accumulate_grad_hook(self._after_gradient))
        if self._scaler is not None:
            self._update_scale = self._scaler.update
            self._scaler.update = self._after_scaler  # type: ignore[method-assign]
        self._begin()

    def _end_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        if self._scaler is not None and self._handles:
            del self._scaler.update
        self._handles = []
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._detach()
            self._end_open_step(has_error=error is not None)
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"chainrule.watch could not judge the step: {in_words(failure)}")
        finally:
            self._end_hooks()
            for kept in (self._run, self._live):
                if kept is not None:
                    kept.close("complete" if error is None else in_words(error))

    def _end_open_step(self, *, has_error: bool) -> None:
        """Write the step in which the loop ends, if its forward or backward pass shows what went wrong."""
        if self._losses or (has_error and self._pass is not None and self._pass.keys):
            found = self._judge(is_whole=False)
            if found or not math.isfinite(self._loss or 0):
                self._write()

    def loss(self, loss: torch.Tensor | float, batch: int | None = None) -> None:
        """Give the loss of this step, before the optimizer's step. Several calls in one step give the mean.

        `batch` is the index of the batch. The events of the step contain it.
        """
        if self._step == 1 and not self._has_loss and not self._has_gradient:
            late = "watch.loss: the first step ended without a loss. Call watch.loss before optimizer.step()"
            warnings.warn(f"{late}; a loss that is given after it counts for the next step", stacklevel=2)
        self._has_loss = True
        self._batch = self._step if batch is None else batch
        told = float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss)
        self._losses.append(told)
        self._loss = sum(self._losses) / len(self._losses)

    def step(self, closure: Callable[[], torch.Tensor], batch: int | None = None) -> torch.Tensor:
        """Make one training step. If it has an event, run it again under `chainrule.record`.

        `closure` sets the gradients to zero, runs forward and backward on one batch and returns the loss. Then this
        method calls the optimizer's step. Before the second run, the buffers and the generators of random numbers are
        set back to their state before the first. The run keeps the traces of at most MAX_TRACES events. For comparison,
        it also keeps the trace of an earlier step: the last one with histograms and without NaN and Inf. With several
        ranks, the event of one is run again on all, so each of them must call this method.
        """
        if self._scaler is not None or self._calls_closure:
            instead = "optimizer.step(closure)" if self._calls_closure else "scaler.step(optimizer)"
            raise TypeError(f"watch.step calls optimizer.step(); this training needs {instead} in a plain loop")
        before = self._buffers(), self._rng_states()
        loss = closure()
        self.loss(loss, batch)
        was_replayed = False

        def replay() -> Trace:
            nonlocal was_replayed
            was_replayed = True
            after = self._buffers(), self._rng_states()
            parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
            gradients = [(each, each.grad, each.grad.clone()) for each in parameters if each.grad is not None]
            _restore(*before)
            with record(self._model, optimizer=self._optimizer) as recording:
                closure()
            _restore(*after)
            # A compiled model rounds otherwise than its recording.
            for parameter, gradient, kept in gradients:
                parameter.grad = gradient.copy_(kept)
            if self._run is not None:
                self._run.add_trace(self._step, dump_trace(recording.trace))
            return recording.trace

        found = self._judge(self._gradient_norm(), replay if self._traces < MAX_TRACES else None)
        if was_replayed:
            self._traces += 1
            self._compared = None  # this trace stays in the run
        elif self._has_histograms and self._rank_with(bool(found) or not self._is_good) is None:
            replay()
            if self._run is not None and self._compared is not None:
                self._run.remove_trace(self._compared)
            self._compared = self._step
        self._optimizer.step()
        return loss

    def _buffers(self) -> _Buffers:
        """Module, name, buffer and its values, of each buffer."""
        return [
            (module, name, buffer, buffer.clone())
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def _rng_states(self) -> dict[str, torch.Tensor]:
        """Device → the state of torch's generator, for the host and the model's device."""
        states = {"cpu": torch.get_rng_state()}
        device = self._trained.device
        if device.type != "cpu":
            states[str(device)] = torch.get_device_module(device).get_rng_state(device)
        return states

    def _gradient_norm(self, known: Mapping[str, float] | None = None) -> float:
        """The L2 norm of all gradients. `known`: parameter → the norm of its gradient, as far as it is known."""
        known = known or {}
        gradients = self._gradients(but=known)
        # The squares of halves overflow.
        wide = [each.float() if each.dtype == torch.float16 else each for each in gradients]
        norm = math.hypot(*known.values(), *_read(torch._foreach_norm(wide)) if wide else ())
        if math.isinf(norm):  # or so do those of large floats
            norm = math.hypot(*known.values(), *_read([torch.linalg.vector_norm(each.double()) for each in wide]))
        return norm

    def _has_finite_gradients(self) -> bool:
        gradients = [each for each in self._gradients() if each.numel()]
        return not gradients or all(map(math.isfinite, _read(torch._foreach_norm(gradients, math.inf))))

    def _gradients(self, but: Collection[str] = ()) -> list[torch.Tensor]:
        """The gradients of the parameters, without those of some names; of sparse ones the values."""
        parameters = self._members.parameters
        given = [local_part(each.grad) for name, each in parameters if each.grad is not None and name not in but]
        return [each.coalesce().values() if each.is_sparse else each for each in given]

    def _begin(self) -> None:
        """Begin a step."""
        self._began = time.perf_counter()
        self._loss = None
        self._losses = []
        self._judged: list[Event] | None = None
        self._norm: float | None = None
        self._is_good = False
        self._batch = self._step
        self._states = self._rng_states()
        if self._step % self._every == 0 or self._records_next:
            self._records_next = False
            self._pass = StepStatistics(self._members, has_histograms=self._has_histograms)

    @property
    def _has_histograms(self) -> bool:
        return self._step % (-(-HISTOGRAMS // self._every) * self._every) == 0

    def _judge(
        self, norm: float | None = None, replay: Callable[[], Trace] | None = None, *, is_whole: bool = True
    ) -> list[Event]:
        """The events of the step's forward and backward pass. A second call returns the same events.

        If there are events, `replay` runs the step again.
        """
        if self._judged is not None:
            return self._judged
        step, taken = self._step, self._pass
        found, place = [], None
        if self._is_stale and not self._was_stale:
            text = "the gradients were not set to zero: this backward pass added to the gradients of the previous step"
            found.append(Event(step, "stale_gradients", text, self._name_of(self._trained)))
        if taken is not None:
            place = self._end_pass(taken, self._scale, is_whole=is_whole)
            if norm is None and is_whole:
                norm = self._gradient_norm(taken.norms("weight_gradient"))
        is_bad = any(each is not None and not math.isfinite(each) for each in (self._loss, norm))
        # A fused optimizer skips a step with NaN or Inf itself.
        is_fused = getattr(self._optimizer, "grad_scale", None) is not None
        if self._on == "stop" and is_whole and taken is None and norm is None and not is_fused:
            is_bad = is_bad or not self._has_finite_gradients()
        if place is None and is_bad:
            is_gradient = self._loss is None or math.isfinite(self._loss)
            what = "a gradient contains" if is_gradient else "the loss is"
            why = "the statistics of this step were not recorded" if taken is None else "it has no statistics"
            place = f"{what} NaN or Inf; {why}", None
        if place is not None:
            self._is_good = False
            good = (
                "no earlier step is known to be good" if self._good is None else f"the last good step is {self._good}"
            )
            found += self._detector.nonfinite(step, f"{place[0]}; {good}", place[1])
        if self._loss is not None:
            found += self._detector.loss(step, self._loss)
        outputs = None if taken is None else math.hypot(*taken.norms("gradient").values())
        found += self._detector.gradient_norm(step, norm, outputs)
        if taken is not None:
            for layer, fraction in taken.dead_fractions():
                found += self._detector.dead_fraction(step, layer, fraction)
        self._norm = norm
        self._judged = found
        try:
            if replay is not None and self._rank_with(bool(found)) is not None:
                fault = next((each for each in replay().faults if each.kind == "first_nonfinite"), None)
                if fault is not None:
                    found = [
                        dataclasses.replace(each, text=f"{each.text}; {fault.message}", node=fault.op)
                        if each.kind == "nonfinite"
                        else each
                        for each in found
                    ]
        finally:  # the closure may fail in its second run
            self._tell(found)
        return found

    def _end_pass(self, taken: StepStatistics, scale: float, *, is_whole: bool = True) -> tuple[str, str | None] | None:
        """Take the parameters. Returns the place of the first NaN or Inf, as `StepStatistics.first_nonfinite`.

        A step that is not whole may not have reached its backward pass, the clipping, or the unscaling.
        """
        taken.end(scale)
        if is_whole:
            taken.take_parameters(self._optimizer)
        elif self._scaler is not None:
            taken.forget_gradients()
        place = taken.first_nonfinite(self._loss)
        self._is_good = place is None
        return place

    def _name_of(self, parameter: torch.Tensor) -> str | None:
        return next((name for name, each in self._members.parameters if each is parameter), None)

    def _tell(self, found: list[Event]) -> None:
        for event in found:
            told = dataclasses.replace(event, batch=self._batch, good_step=self._good, rng_states=self._states)
            self.events.append(told)
            self._records_next = True
            if self._run is not None:
                self._run.add_event(
                    *(told.step, told.kind, told.text, told.op),
                    node=told.node,
                    batch=told.batch,
                    good_step=told.good_step,
                    rng={device: state.numpy(force=True).tobytes() for device, state in told.rng_states.items()},
                )
            if self._callback is not None:
                self._callback(told)
            if self._on == "warn" and told.kind not in HARMLESS:
                warnings.warn(f"step {told.step}: {told.text}", stacklevel=2)

    def _before_update(self, _: Optimizer, given: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        closure = options.get("closure", given[1] if len(given) > 1 else None)
        if not callable(closure):
            self._end_backward()
            return None

        @functools.wraps(closure)
        def watched() -> Any:
            loss = closure()
            if self._judged is None:
                if self._loss is None and isinstance(loss, (torch.Tensor, float)):
                    self.loss(loss)
                self._end_backward()
            return loss

        if "closure" in options:
            return given, {**options, "closure": watched}
        return (given[0], watched, *given[2:]), options

    def _end_backward(self) -> None:
        """Judge the forward and backward pass, before the optimizer changes a parameter."""
        found = self._judge()
        if self._on == "stop" and (rank := self._rank_with(bool(found))) is not None:
            self._write()
            raise WatchError(f"step {self._step}: {found[0].text if found else f'rank {rank} has an event'}")

    def _rank_with(self, has_event: bool) -> int | None:
        """A rank that has an event, the same on all ranks, since a rank that acts alone would stop the others."""
        if not is_distributed():
            return 0 if has_event else None
        own = torch.distributed.get_rank() + 1 if has_event else 0
        highest = torch.tensor(own, device=self._trained.device)
        torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX, group=self._group)
        return int(highest) - 1 if highest else None

    def _after_update(self, *_: Any) -> None:
        taken = self._pass
        if taken is not None:
            taken.take_updates()
        updates, weights = (None, {}) if taken is None else (taken.norms("update"), taken.norms("weight"))
        found = self._detector.update(self._step, self._lr, updates, weights)
        self._tell(found)
        self._mark, self._has_gradient = _mark_of(self._trained), False
        self._was_stale, self._is_stale, self._has_stepped = self._is_stale, False, True
        step = self._step
        self._end_step()
        if self._on == "stop" and (rank := self._rank_with(bool(found))) is not None:
            raise WatchError(f"step {step}: {found[0].text if found else f'rank {rank} has an event'}")

    def _end_step(self) -> None:
        self._write()
        if self._is_good:
            self._good = self._step
        self._step += 1
        self._begin()

    def _after_gradient(self, parameter: torch.Tensor) -> None:
        """Detect that the first gradient after a step was added to the gradient of that step.

        A gradient that was set to zero since then begins anew, also if another loss has added to it before: the loss of
        a generator adds to the gradients of its discriminator.
        """
        mark, self._mark = self._mark, _mark_of(parameter)
        # A gradient that was set to zero in place has changed twice.
        is_sum = mark is not None and self._mark == (mark[0], mark[1] + 1)
        self._is_stale = is_sum and (self._is_stale or not self._has_gradient)
        self._has_gradient = True

    def _after_scaler(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Update the scaler's scale. If the scaler skipped the optimizer's step, this ends the step."""
        scale = 1.0 if self._pass is None else self._scale
        self._update_scale(new_scale)
        if new_scale is None and not self._has_stepped:
            assert self._scaler is not None
            taken = self._pass
            place = None if taken is None else self._end_pass(taken, scale)
            text, op = place or ("a gradient contains NaN or Inf; the statistics of this step were not recorded", None)
            text += f". The GradScaler skips this step and lowers its scale to {self._scaler.get_scale():g}"
            self._tell([Event(self._step, "overflow", text, op)])
            self._end_step()
        if new_scale is None:
            self._has_stepped = False

    @property
    def _scale(self) -> float:
        """The divisor of the gradients of outputs."""
        return 1.0 if self._scaler is None else self._scaler.get_scale()

    @property
    def _lr(self) -> float:
        """The highest of the groups; 0 if the optimizer has none."""
        return max(float(group.get("lr", 0)) for group in self._optimizer.param_groups)

    def _write(self) -> None:
        """Write the step into the run, and show it."""
        taken, self._pass, self._losses = self._pass, None, []
        figures = self._step, self._loss, self._lr, time.perf_counter() - self._began, self._norm
        if self._run is not None:
            self._run.add_step(*figures)
            if taken is not None:
                self._run.add_rows(self._step, taken.keys, taken.moments, taken.histograms)
        if self._live is not None:
            self._live.summary.add_step(*figures)
            if taken is not None:
                self._live.summary.add_rows(self._step, taken.norms("weight"), taken.norms("update"))
            self._live.refresh()


def _read(numbers: Sequence[torch.Tensor]) -> list[float]:
    """Numbers on devices, by one copy to the host."""
    device = numbers[0].device
    found: list[float] = torch.stack([each.to(device, torch.float64) for each in numbers]).tolist()
    return found


@torch.no_grad()
def _restore(buffers: _Buffers, states: Mapping[str, torch.Tensor]) -> None:
    """Set buffers and generators back. A module may have put another tensor in the place of a buffer."""
    for module, name, buffer, kept in buffers:
        buffer.copy_(kept)
        module._buffers[name] = buffer
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(device).set_rng_state(state, device)


def _calls_closure(optimizer: Optimizer) -> bool:
    """Whether the optimizer runs forward and backward itself, as LBFGS does."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _mark_of(parameter: torch.Tensor) -> tuple[int, int] | None:
    """The address and the version of the parameter's gradient; None if it has none, or a sparse one."""
    gradient = parameter.grad
    if gradient is None or gradient.layout != torch.strided:
        return None
    return gradient.data_ptr(), gradient._version
