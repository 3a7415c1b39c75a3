"""The observer: sees every op of a forward and backward pass and writes it into the journal.

    torch function mode            every user-level op, forward and in hand-written backwards, with its line and owner
    global module hooks            the nn.Module that is running
    _SingleLevelFunction.apply     begin and end of a custom autograd.Function
    Node.register_hook             every gradient, on its edge of the autograd graph, when its node has run

The program's results do not change: values are read inside the hooks and not kept, no random numbers are drawn, and the
program's modes do not see the observer's calls. torch runs `Tensor.backward`, `autograd.backward` and `autograd.grad`
with the mode switched off, so they are entered again through gradient edges, with the mode on: the ops of a custom
Function's backward are seen as well.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn
from torch._C import (
    DisableTorchFunction,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from chainrule.stats import SMALL
from chainrule.stopping import current_stop
from chainrule.trace import collectives, custom_functions, native, nested, ops, sources
from chainrule.trace.aten import AtenLevel, Group
from chainrule.trace.by_hand import GradientAttributes
from chainrule.trace.compiled import CompiledLevel
from chainrule.trace.entry_points import ENTRY_POINTS, BackwardCall
from chainrule.trace.gradients import GradientFlow, Leaf
from chainrule.trace.graph import Phase
from chainrule.trace.journal import (
    NO_ROW,
    Journal,
    OpRow,
    PassRow,
    address,
    grad_fn_of,
    local_part,
    out_of_sight,
    version_of,
)
from chainrule.trace.modes import remove_mode
from chainrule.trace.nested import nested_tensors
from chainrule.trace.owners import Owners
from chainrule.trace.scope import current_scopes

_NOT_YET_TENSORS = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
_MAX_CALLERS = 64

if native.observer is not None:
    native.observer.use(
        small=SMALL,
        views=ops.VIEWS,
        rectifiers=ops.RECTIFIERS,
        leaf=Leaf,
        attributes=ops.attributes,
        saved_tensors=nested.saved_tensors,
        is_user_file=sources.is_user_file,
        scopes=current_scopes.get,
        kinds=ops.kinds,
        saved_names=nested.saved_names,
        entry_points=ENTRY_POINTS,
    )


class Witness(Protocol):
    """Looks on while a pass is recorded; it must keep no tensor, and change nothing.

    Attributes:
        follows: the kinds of modules of which it wants to know the first call.
    """

    follows: tuple[type[nn.Module], ...]

    def watch(self, identifier: str, tensor: torch.Tensor) -> None:
        """A value is recorded under this id."""

    def module_begins(self, path: str, given: str) -> None:
        """A module that it follows runs for the first time; `given` is the id of its argument, if that is recorded."""

    def backward_begins(self) -> None:
        """An outermost backward pass that adds to `.grad` is about to begin."""

    def backward_ended(self) -> None:
        """That pass has ended, or has raised."""


@native.compiled
class Observer(native.ObserverCore, TorchFunctionMode):
    """Watches one thread from `start()` to `stop()` and keeps the journal. Use through `record` or `trace_model`."""

    def __init__(
        self, model: object, activations: Mapping[str, str], journal: Journal, witness: Witness | None = None
    ) -> None:
        super().__init__()
        self.journal = journal
        self.witness = witness
        self.activations = dict(activations)
        self.owners = Owners(model)
        self.root = self.journal.module("", self.owners.root_type)
        self.loss_row = NO_ROW
        self.loss: float | None = None
        self.aten: AtenLevel | None = None
        self.compiled: CompiledLevel | None = None
        self._synchronizing: tuple[DistributedDataParallel, int] | None = None  # it is about to broadcast its buffers
        self._has_loss = False  # it was set by `set_loss`
        self._failure: tuple[int, BaseException] | None = None
        self._activations_seen: set[int] = set()
        self._stop = current_stop()
        self._gradients = GradientFlow(self.journal, self._input_row, self._stop)
        self._attributes = GradientAttributes(self.journal)
        self._collectives = collectives.Collectives(self.journal, self._input_row, self._place)
        self._thread = threading.get_ident()
        self._running = False
        self._handles: list[RemovableHandle] = []
        # Each module with the number of open scopes, which shows later whether one was entered inside of it.
        self._stack: list[tuple[int, int, nn.Module | None]] = []
        self._module_rows: dict[int, int] = {}
        self._function_calls: dict[str, int] = {}
        self.function_paths: set[str] = set()  # of the modules that are calls of custom Functions
        self.on_function: custom_functions.OnFunction | None = None
        self._backward_depth = 0
        self._creates_graph = False
        self._outer_frames: frozenset[int] = frozenset()
        self._held_frames: Sequence[FrameType] = ()

    def start(self, frames: Sequence[FrameType]) -> None:
        """Begin to watch the calling thread; walks over frames end at any of `frames`.

        Raises:
            TraceError: this thread is being recorded already.
        """
        if native.observer is not None:
            native.observer.release()
        self._thread = threading.get_ident()
        custom_functions.watch(self._thread, self.run_function, runs_compiled=self.compiled is not None)
        self._collectives.start(self._thread)
        # While the frames are held, their ids are not reused.
        self._held_frames = frames
        self._outer_frames = frozenset(map(id, frames))
        self._handles.append(register_module_forward_pre_hook(self._module_begins))
        self._handles.append(register_module_forward_hook(self._module_ends, always_call=True))
        self._running = True
        self.__enter__()  # type: ignore[no-untyped-call]
        if self.aten is not None:
            self._gradients.has_inner_ops = True
            self.aten.enter()

    def stop(self) -> None:
        """Stop watching and remove every hook."""
        if self.aten is not None:
            self.aten.leave()
        remove_mode(self, _len_torch_function_stack, _pop_torch_function_stack, _push_on_torch_function_stack)
        self._running = False
        self._held_frames = ()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        custom_functions.unwatch(self._thread)
        self._collectives.stop()
        self._gradients.finish()
        self._attributes.finish()
        self._name_sharded_gradients()
        self.owners.release()
        scalars = [each for each in self.journal.passes if each.value is not None]
        if not self._has_loss and scalars:
            last = next((each for each in reversed(scalars) if each.reaches_parameters), scalars[-1])
            self.loss_row, self.loss = last.root, last.value
        if self.loss_row != NO_ROW:
            self.journal.tensors[self.loss_row].role = "loss"

    def _name_sharded_gradients(self) -> None:
        """FSDP writes the shards of gradients into `.grad` by ops of its own."""
        if not self.owners.sharded:
            return
        shards = {each.name: row for row, each in enumerate(self.journal.tensors)}
        with DisableTorchFunction():
            for path, reference in self.owners.sharded:
                parameter = reference()
                gradient = None if parameter is None else parameter.grad
                row = NO_ROW if gradient is None else self.journal.find(local_part(gradient))
                if row != NO_ROW:
                    made = self.journal.tensors[row]
                    made.name, made.role = f"{path}.g shard", "gradient"
                    made.gradient_of = shards.get(f"{path} shard", NO_ROW)

    def _module_begins(self, module: nn.Module, args: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        row = self._module_rows.get(id(module))
        if row is None:
            path = self.owners.path_of(module)
            is_first = not self._module_rows
            row = self._module_rows[id(module)] = self.journal.module(path, type(module).__name__)
            if row == self.root or is_first:
                # A global hook gets no keywords; they are a variable of torch's function that calls it.
                keywords = sys._getframe(1).f_locals.get("kwargs", {})
                self.owners.name_inputs(args, keywords)
            if self.witness is not None and isinstance(module, self.witness.follows) and args:
                with DisableTorchFunction():
                    given = self.journal.find(args[0]) if isinstance(args[0], torch.Tensor) else NO_ROW
                self.witness.module_begins(path, f"t{given}")
        if self._synchronizing is not None:
            outer, place = self._synchronizing
            self._synchronizing = None
            self._collectives.synchronized(outer, place)
        if isinstance(module, DistributedDataParallel) and module.will_sync_module_buffers():  # type: ignore[no-untyped-call]
            self._synchronizing = module, row  # before the module inside begins
        self._stack.append((row, len(current_scopes.get()), module))

    def _module_ends(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002 (torch's signature)
        if threading.get_ident() == self._thread and self._stack:
            row, _, _ = self._stack.pop()
            if (
                isinstance(module, DistributedDataParallel)
                and torch.is_grad_enabled()
                and module.require_backward_grad_sync
            ):
                self._gradients.replicated[module] = row  # as DDP, which prepares its reducer here

    def _current_module(self, frame: FrameType | None) -> int:
        """The running module: the innermost nn.Module, custom Function or scope, else the owner of a method."""
        scopes = current_scopes.get()
        row, scopes_then, _ = self._stack[-1] if self._stack else (NO_ROW, 0, None)
        if len(scopes) > scopes_then:
            return self.journal.module(*scopes[-1])
        if row != NO_ROW:
            return row
        for _ in range(_MAX_CALLERS):
            if frame is None or id(frame) in self._outer_frames:
                break
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                path = self.owners.path.get(id(frame.f_locals.get("self")))
                if path:
                    return self.journal.module(path, self.owners.type[path])
            frame = frame.f_back
        return self.root

    def _runs_backward_by_hand(self, frame: FrameType | None) -> bool:
        for _ in range(_MAX_CALLERS):
            if frame is None or id(frame) in self._outer_frames:
                return False
            if sources.is_backward_code(frame.f_code):
                return True
            frame = frame.f_back
        return False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op for the program and record it."""
        kwargs = kwargs or {}
        if not self._running:
            return func(*args, **kwargs)
        if self._stop.error is not None:
            self._stop.check()
        plan = self.journal.plan
        if plan is None:
            return self._run_op(func, args, kwargs)
        if func in ENTRY_POINTS:
            plan.enters(func, args, kwargs)
        plan.begin(func)
        output = self._run_op(func, args, kwargs)
        plan.end(args, kwargs, output)
        return output

    def _run_op(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in ENTRY_POINTS:
            return self._run_backward(func, args, kwargs)
        kind = ops.kind_of(func)
        if kind.silent:
            return func(*args, **kwargs)
        if kind.name == "grad":
            return self._read_gradient(func, args, kwargs)

        journal = self.journal
        inputs = nested_tensors(args)
        may_change = kind.may_change
        if kwargs:
            inputs += nested_tensors(tuple(kwargs.values()))
            may_change = _may_change(kind, kwargs)
        input_rows: list[int] = []
        versions: list[int] = []
        with DisableTorchFunction():
            for tensor in inputs:
                if type(tensor) in _NOT_YET_TENSORS:
                    break
                versions.append(version_of(tensor))
            else:
                for tensor in inputs:
                    row = journal.find(tensor)
                    # Here an input that the call changes in place still has its old value.
                    input_rows.append(self._add_leaf(tensor) if row == NO_ROW and may_change else row)
        if len(input_rows) < len(inputs):
            return func(*args, **kwargs)
        if journal.plan is not None:
            journal.plan.call()
        if self.aten is not None:
            frame = sources.user_frame(sys._getframe(2))
            source = (frame.f_code, frame.f_lineno) if frame is not None else None
            self.aten.begin(kind.name, *self._place(frame), source)
        began = perf_counter()
        try:
            output = func(*args, **kwargs)
            if kind.is_collective:
                with out_of_sight():
                    collectives.wait(output)
        except Exception as error:
            if self.aten is not None:
                self.aten.end(())
            self._failed(error, kind, args, kwargs, inputs)
            raise
        microseconds = (perf_counter() - began) * 1e6
        self._record_results(kind, args, kwargs, inputs, input_rows, versions, output, microseconds)
        return output

    def _record_results(
        self,
        kind: ops.Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[torch.Tensor],
        input_rows: list[int],
        versions: list[int],
        output: Any,
        microseconds: float,
    ) -> None:
        """Record what an op has made and changed; `versions` are those of its inputs before."""
        journal = self.journal
        returned = [output] if type(output) is torch.Tensor else nested_tensors((output,))
        group = None if self.aten is None else self.aten.end((*inputs, *returned))
        with DisableTorchFunction():
            results = []
            for tensor in returned:
                if _position(tensor, inputs) == NO_ROW and journal.find(tensor) == NO_ROW:
                    results.append(tensor)
            for tensor, version in zip(inputs, versions, strict=True):
                if (version >= 0 and tensor._version != version) or (
                    # Inference tensors have no versions: an in-place op changed the inputs that it returns.
                    version < 0 and _may_change(kind, kwargs) and _position(tensor, returned) != NO_ROW
                ):
                    results.append(tensor)
            if kind.normalizes:
                results += _running_statistics(args, kwargs)
            if group is not None:
                results = self._unseen(group, returned, results, inputs, input_rows)
            if results:
                if NO_ROW in input_rows:
                    for position, row in enumerate(input_rows):
                        if row == NO_ROW:
                            input_rows[position] = self._input_row(inputs[position])
                self._record_op(kind, args, kwargs, inputs, input_rows, results, microseconds)

    def _unseen(
        self,
        group: Group,
        returned: list[torch.Tensor],
        results: list[torch.Tensor],
        inputs: list[torch.Tensor],
        input_rows: list[int],
    ) -> list[torch.Tensor]:
        """The results of an op that no ATen op made; the others get their nodes of the autograd graph."""
        journal = self.journal
        rows = [journal.find(tensor) for tensor in returned]
        made = [
            (tensor, row)
            for tensor, row in zip(returned, rows, strict=True)
            if row != NO_ROW and journal.tensors[row].producer >= group.first
        ]
        if made:
            known = [
                self._input_row(tensor) if row == NO_ROW else row
                for tensor, row in zip(inputs, input_rows, strict=True)
            ]
            last = len(journal.ops) - 1
            with out_of_sight():
                own = self._gradients.own
                own(last, group.module, [each for each, _ in made], [row for _, row in made], inputs, known)
        return [
            tensor
            for tensor in results
            if (row := journal.row_of(tensor)) == NO_ROW or journal.tensors[row].producer < group.first
        ]

    def _input_row(self, tensor: torch.Tensor) -> int:
        row = self.journal.find(tensor)
        return self._add_leaf(tensor) if row == NO_ROW else row

    def _add_leaf(self, tensor: torch.Tensor) -> int:
        """A tensor made outside the recording: a parameter, a buffer, an input, a target, or a constant."""
        if self.compiled is not None and (same := self.compiled.find(tensor)) != NO_ROW:
            return same
        node = grad_fn_of(tensor)
        known = None if node is None else self._gradients.node_row(node)
        if known is not None and tensor.output_nr in known.tensors:
            # A custom Function gets its own saved output as another tensor object.
            same = known.tensors[tensor.output_nr]
            self.journal.remember(tensor, same)
            return same
        described = self.owners.describe(tensor) or self._put_into_a_module(tensor)
        if described is not None:
            name, role = described
        elif tensor.requires_grad:
            name, role = "", "parameter" if node is None else "input"
        else:
            name, role = "", "constant" if self._stack or not self.journal.ops or tensor.dim() == 0 else "target"
        is_gathered = bool(self.owners.sharded) and isinstance(tensor, nn.Parameter)
        writer = self.journal.writer(tensor) if is_gathered else NO_ROW
        row = self.journal.add_tensor(tensor, role, self.root, writer, name)
        if writer != NO_ROW:
            self.journal.ops[writer].outputs.append(row)
        self.journal.remember(tensor, row)
        if node is not None:
            self._gradients.mark_outside(node, tensor.output_nr, row)
        return row

    def _put_into_a_module(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """Name and role of a parameter that a running module got after the start: a lazy one, or a gathered one."""
        for row, _, module in reversed(self._stack) if isinstance(tensor, nn.Parameter) else ():
            for name, parameter in module._parameters.items() if module is not None else ():
                if parameter is tensor:
                    path = self.journal.modules[row].path
                    return f"{path}.{name}" if path else name, "parameter"
        return None

    def _record_op(
        self,
        kind: ops.Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[torch.Tensor],
        input_rows: list[int],
        results: list[torch.Tensor],
        microseconds: float,
    ) -> None:
        journal = self.journal
        frame = sources.user_frame(sys._getframe(2))
        given = collectives.describe(args, kwargs) if kind.is_collective else ops.attributes(kind, args, kwargs)
        phase, module = self._place(frame)
        by_hand = False
        in_graph = False
        for tensor in results:
            in_graph = in_graph or tensor.requires_grad
        if phase == "backward":
            if self._recomputes():
                given["recomputed"] = True
        elif not in_graph and self._runs_backward_by_hand(frame):
            phase = "backward"
            by_hand = True
        if self.activations and phase == "forward":
            self._look_at_activations(module, inputs, input_rows)
        source = (frame.f_code, frame.f_lineno) if frame is not None else None
        outputs: list[int] = []
        op = journal.add_op(
            OpRow(kind.name, phase, module, given, input_rows, outputs, NO_ROW, source, microseconds, by_hand)
        )

        has_units = kind.has_units and journal.modules[module].path not in self.activations
        for tensor in results:
            same = NO_ROW
            role, name = kind.role, ""
            position = _position(tensor, inputs)
            if position != NO_ROW:
                journal.changed_by(tensor, op)
                before = journal.tensors[input_rows[position]]
                if before.role in ("buffer", "parameter"):
                    role, name = before.role, before.name
            elif inputs:
                same = journal.same_values(kind.name, tensor, inputs[0], input_rows[0])
            row = journal.add_tensor(tensor, role, module, op, name, same)
            if has_units:
                journal.add_unit_statistics(kind.name, tensor, row)
            outputs.append(row)
            journal.remember(tensor, row)
            if not self._backward_depth and not tensor.requires_grad:
                # Not in autograd's backward: a gradient that is held could not become `.grad` without a copy.
                self._attributes.watch(tensor)
        if in_graph:
            self._gradients.own(op, module, results, outputs, inputs, input_rows)

    def _look_at_activations(self, module: int, inputs: list[torch.Tensor], input_rows: list[int]) -> None:
        """Take the unit statistics of an activation made by several ops, when another module reads the result."""
        journal = self.journal
        for tensor, row in zip(inputs, input_rows, strict=True):
            producer = journal.tensors[row].producer
            if producer == NO_ROW or journal.ops[producer].module == module:
                continue
            path = journal.modules[journal.ops[producer].module].path
            name = self.activations.get(path)
            if name is not None and row not in self._activations_seen:
                self._activations_seen.add(row)
                journal.tensors[row].role = "activation"
                journal.add_unit_statistics(name, tensor, row)

    def _place(self, frame: FrameType | None) -> tuple[Phase, int]:
        """The current phase and module."""
        if self.owners.sharded and (group := collectives.sharding_group(sys._getframe(1))) is not None:
            return "backward" if self._backward_depth else "forward", self.journal.module(*group)
        if not self._backward_depth:
            return "forward", self._current_module(frame)
        node = torch._C._current_autograd_node()
        running = self._gradients.node_row(node) if node is not None else None
        if running is None or self._recomputes():
            return "backward", self._current_module(frame)
        if running.first_inner_op == NO_ROW:
            running.first_inner_op = len(self.journal.ops)
        return "backward", running.module

    def _recomputes(self) -> bool:
        """Whether an op of the backward pass is a forward op run again: only checkpoints build a graph there."""
        return self._backward_depth > 0 and torch.is_grad_enabled() and not self._creates_graph

    def _read_gradient(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Reading `.grad` is no op; the result is the gradient of its tensor."""
        gradient = func(*args, **kwargs)
        if isinstance(gradient, torch.Tensor):
            with DisableTorchFunction():
                row = self.journal.find(args[0])
                name = self.journal.tensors[row].name if row != NO_ROW else ""
                self._gradients.read(gradient, row)
                self.owners.name_tensor(gradient, f"{name}.grad" if name else "", "gradient")
        return gradient

    def failed_op(self, error: BaseException | None) -> int:
        """The op that raised this error, or NO_ROW if none did."""
        while self._failure is not None and error is not None:
            if self._failure[1] is error:
                return self._failure[0]
            error = error.__cause__ or error.__context__
        return NO_ROW

    def _failed(
        self,
        error: Exception,
        kind: ops.Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[torch.Tensor],
    ) -> None:
        """Record an op that raised an error."""
        with DisableTorchFunction():
            input_rows = [self._input_row(tensor) for tensor in inputs]
            frame = sources.user_frame(sys._getframe(1))
            phase, module = self._place(frame)
        given = ops.attributes(kind, args, kwargs)
        source = (frame.f_code, frame.f_lineno) if frame is not None else None
        if type(error).__name__ == "_StopRecomputationError":
            # No failure: torch's checkpoint leaves the forward this way after it has recomputed enough.
            given["recomputed"] = True
        op = self.journal.add_op(OpRow(kind.name, phase, module, given, input_rows, [], source=source))
        if "recomputed" not in given:
            self._failure = (op, error)

    def _record_broken_backward(self, error: Exception, depth: int) -> None:
        """Record the backward of a custom Function that raised outside of any op, or whose gradients torch refused."""
        if self.failed_op(error) != NO_ROW or self._stop.error is not None:
            return
        source = None
        traceback = error.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            if sources.user_frame(frame) is frame:
                source = frame.f_code, traceback.tb_lineno
            traceback = traceback.tb_next
        with DisableTorchFunction():
            op = self._gradients.broke_off(depth, source)
        if op != NO_ROW:
            self._failure = (op, error)

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `function.apply` as a module, whose ops are those of its forward and its backward."""
        self._stop.check()
        journal = self.journal
        with DisableTorchFunction():
            frame = sources.user_frame(sys._getframe(2))
            parent = self._current_module(frame)
            module = parent
            is_compiled = self.compiled is not None and function.__name__ == "CompiledFunction"
            if journal.modules[parent].type != function.__name__ and not is_compiled:
                path = journal.modules[parent].path
                path = f"{path}.{function.__name__}" if path else function.__name__
                calls = self._function_calls[path] = self._function_calls.get(path, -1) + 1
                path = f"{path}_{calls}" if calls else path
                self.function_paths.add(path)
                module = journal.module(path, function.__name__)
            inputs = nested_tensors(args)
            if journal.plan is not None:
                journal.plan.begin(function)
            input_rows = [self._input_row(tensor) for tensor in inputs]
            if journal.plan is not None:
                journal.plan.end(args, kwargs, ())
            has_returned = None
            if self.on_function is not None:
                with out_of_sight():
                    has_returned = self.on_function(function, (*args, *kwargs.values()))
        first_op = len(journal.ops)
        self._stack.append((module, len(current_scopes.get()), None))
        began = perf_counter()
        try:
            output = run(*args, **kwargs)
        finally:
            self._stack.pop()
        microseconds = (perf_counter() - began) * 1e6
        results = nested_tensors((output,))
        with DisableTorchFunction():
            op = len(journal.ops) - 1 if len(journal.ops) > first_op else NO_ROW
            source = (frame.f_code, frame.f_lineno) if frame is not None else None
            for tensor in results:
                local = local_part(tensor)
                if local is not tensor and (row := journal.find(local)) not in (NO_ROW, *input_rows):
                    journal.remember(tensor, row)  # the DTensor of a local result
            unseen = [tensor for tensor in results if (row := journal.find(tensor)) == NO_ROW or row in input_rows]
            if unseen:
                # Not made by a torch op: numpy, an extension, or an input handed through.
                phase: Phase = "backward" if self._backward_depth else "forward"
                made = OpRow(function.__name__, phase, module, {}, input_rows, [], NO_ROW, source, microseconds)
                op = journal.add_op(made)
                for tensor in unseen:
                    row = journal.add_tensor(tensor, "intermediate", module, op)
                    journal.ops[op].outputs.append(row)
                    journal.remember(tensor, row)
            rows = [journal.find(tensor) for tensor in results]
            self._gradients.own(op, module, results, rows, inputs, input_rows)
            if is_compiled:
                # The gradient that arrives at an output has no part from readers in the graph.
                read = {row for each in journal.ops[first_op:] for row in each.inputs}
                self._gradients.disown([tensor for tensor, row in zip(results, rows, strict=True) if row in read])
            if has_returned is not None:
                last = None if op == NO_ROW else f"n{op}"
                path = journal.modules[module].path
                has_returned(custom_functions.Applied(last, path, source, microseconds / 1e6))
        return output

    def _run_backward(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the engine with the mode on, so that ops inside a custom Function's backward are seen."""
        call = BackwardCall.parse(func, args, kwargs)
        outermost = self._backward_depth == 0
        created_graph = self._creates_graph
        self._creates_graph = call.create_graph if call is not None else False
        collects = outermost and func is not torch.autograd.grad
        if outermost:
            with DisableTorchFunction():
                self._pass_begins(call, collects)
                if collects and self.witness is not None:
                    self.witness.backward_begins()
        self._backward_depth += 1
        depth = len(self._gradients.inside)
        self._gradients.mark = perf_counter()
        try:
            if call is None:
                return func(*args, **kwargs)
            edges = [get_gradient_edge(root) for root in call.roots]
            targets = None if call.inputs is None else [get_gradient_edge(tensor) for tensor in call.inputs]
            with self:
                if func is not torch.autograd.grad:
                    call.run(edges, targets)
                    return None
                gradients = torch.autograd.grad(
                    edges,
                    targets or (),
                    call.gradients,
                    call.retain_graph,
                    call.create_graph,
                    allow_unused=call.allow_unused,
                )
            with DisableTorchFunction():
                for edge, gradient in zip(targets or (), gradients, strict=True):
                    self._gradients.captured(edge, gradient)
            return gradients
        except Exception as error:
            self._record_broken_backward(error, depth)
            raise
        finally:
            self._backward_depth -= 1
            self._creates_graph = created_graph
            if outermost:
                with DisableTorchFunction():
                    if collects:
                        self._gradients.pass_ended()
                        if self.witness is not None:
                            self.witness.backward_ended()
                    self.journal.passes[-1].end = len(self.journal.tensors)

    def _pass_begins(self, call: BackwardCall | None, collects: bool) -> None:
        """Note an outermost call of autograd; a `call` that could not be read counts as one that reaches parameters."""
        journal = self.journal
        root, value = NO_ROW, None
        if call is not None and len(call.roots) == 1:
            root, value = journal.find(call.roots[0]), _scalar(call.roots[0])
        asked = () if call is None or call.inputs is None else call.inputs
        rows = [journal.find(tensor) for tensor in asked]
        reaches = (
            collects or call is None or any(row != NO_ROW and journal.tensors[row].role == "parameter" for row in rows)
        )
        journal.passes.append(PassRow(root, value, reaches, len(journal.tensors)))
        self._gradients.pass_begins(collects)

    def set_loss(self, loss: torch.Tensor) -> None:
        """Set the tensor that is the loss, and its value if it has one element; no call of autograd changes it."""
        self._has_loss = True
        self.loss_row, self.loss = self.journal.find(loss), _scalar(loss)


def _scalar(tensor: torch.Tensor) -> float | None:
    """The value of a real tensor with one element, else None."""
    if address(tensor) is None or tensor.numel() != 1 or tensor.is_complex():
        return None
    with out_of_sight():
        return float(tensor.detach())


def _may_change(kind: ops.Kind, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call may write into its arguments."""
    return kind.may_change or "out" in kwargs or "inplace" in kwargs


def _position(tensor: torch.Tensor, among: Sequence[torch.Tensor]) -> int:
    """The index of this tensor object, or NO_ROW."""
    for position, other in enumerate(among):
        if other is tensor:
            return position
    return NO_ROW


def _running_statistics(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The buffers that a normalization updated, which gives them no new version."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if not given.get("training", given.get("use_input_stats", False)):
        return []
    buffers = (given.get("running_mean"), given.get("running_var"))
    return [buffer for buffer in buffers if isinstance(buffer, torch.Tensor)]
