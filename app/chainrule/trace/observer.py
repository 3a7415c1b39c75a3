"""The observer: sees every op of a forward and backward pass and writes it into the journal.

    torch function mode            every user-level op, forward and in hand-written backwards, with its line and owner
    global module hooks            which nn.Module is running
    _SingleLevelFunction.apply     where a custom autograd.Function begins and ends
    Node.register_hook             every gradient, on its edge of the autograd graph, when its node has run

What it sees it does not alter: it reads values inside the hooks and keeps none of them, draws no random numbers, and
takes its own calls out of the modes of the program it watches. `Tensor.backward`, `autograd.backward` and
`autograd.grad` run with the mode switched off by torch; they are entered again through gradient edges, which torch
lets pass, so that the ops of a custom Function's backward are seen as well.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.autograd.function import _SingleLevelFunction
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from chainrule.errors import TraceError
from chainrule.trace import ops, sources
from chainrule.trace.graph import Phase
from chainrule.trace.journal import NO_ROW, Journal, OpRow
from chainrule.trace.owners import Owners
from chainrule.trace.scope import current_scopes

ENTRY_POINTS = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_IGNORED = frozenset(("__set__", "__delete__", "requires_grad_", "retain_grad", "register_hook"))
_KEY = "chainrule"
_CHANGES_ITS_INPUT = frozenset(("batch_norm", "instance_norm", "embedding", "embedding_bag"))
_MOST_CALLERS = 64


@dataclass(eq=False, slots=True)
class _NodeRow:
    """What is known of one autograd node. Lives in the node's own metadata, so it dies with the node.

    `tensors` and `shares` go by output number: the forward tensor whose gradient arrives there, and the gradients that
    have arrived for it so far. `edges[k]` is where the k-th gradient that this node makes goes.
    """

    session: object
    op: int = NO_ROW
    module: int = 0
    name: str = ""
    leaf: bool = False
    custom: bool = False
    uses: int = 0
    edges: list[tuple[_NodeRow, int] | None] = field(default_factory=list)
    tensors: dict[int, int] = field(default_factory=dict)
    shares: dict[int, list[tuple[int, weakref.ref[torch.Tensor]]]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    first_inner_op: int = NO_ROW


class Observer(TorchFunctionMode):
    """Watches one thread from `start()` to `stop()` and keeps the journal. Use through `record` or `trace_model`."""

    def __init__(self, model: object = None, activations: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.journal = Journal()
        self.activations = dict(activations or {})
        self.owners = Owners(model)
        self.root = self.journal.module("", self.owners.root_type)
        self.loss_row = NO_ROW
        self.loss: float | None = None
        self.failed_op = NO_ROW
        self._session = object()
        self._thread = threading.get_ident()
        self._running = False
        self._handles: list[RemovableHandle] = []
        self._stack: list[tuple[int, int]] = []
        self._module_rows: dict[int, int] = {}
        self._function_calls: dict[str, int] = {}
        self._backward_depth = 0
        self._creates_graph = False
        self._mark = 0.0
        self._watched: list[torch.Tensor] = []
        self._watch_limit = 16
        self._base_frame = 0

    # ---------------------------------------------------------------- start and stop

    def start(self, frame: FrameType | None) -> None:
        """Begin to watch the calling thread; `frame` is the outermost one that belongs to the recording.

        Raises:
            TraceError: this thread is being recorded already.
        """
        _active.add(self._thread, self)
        self._base_frame = id(frame)
        self._handles.append(register_module_forward_pre_hook(self._module_begins))
        self._handles.append(register_module_forward_hook(self._module_ends, always_call=True))
        self._running = True
        self._mark = time.perf_counter()
        self.__enter__()

    def stop(self) -> None:
        """Stop watching: every hook is removed, whatever happened."""
        self.__exit__(None, None, None)
        self._running = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        _active.remove(self._thread)
        self._sweep_watched(everything=True)
        for tensor, row in self.journal.live():
            self._link_gradient_attribute(tensor, row)

    # ---------------------------------------------------------------- modules

    def _enter_module(self, row: int) -> None:
        # How many scopes are open tells later whether one was entered inside this module.
        self._stack.append((row, len(current_scopes.get())))

    def _module_begins(self, module: nn.Module, args: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        row = self._module_rows.get(id(module))
        if row is None:
            path = self.owners.path_of(module)
            row = self._module_rows[id(module)] = self.journal.module(path, type(module).__name__)
            if row == self.root:
                for position, tensor in enumerate(_tensors(args)):
                    self.owners.name_tensor(tensor, f"input_{position}" if position else "input", "input")
        self._enter_module(row)

    def _module_ends(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002 (torch's signature)
        if threading.get_ident() == self._thread and self._stack:
            self._stack.pop()

    def _current_module(self, frame: FrameType | None) -> int:
        """The module that runs: the innermost of nn.Modules, custom Functions and scopes, else the method's owner."""
        scopes = current_scopes.get()
        row, scopes_then = self._stack[-1] if self._stack else (NO_ROW, 0)
        if len(scopes) > scopes_then:
            return self.journal.module(*scopes[-1])
        if row != NO_ROW:
            return row
        for _ in range(_MOST_CALLERS):
            if frame is None or id(frame) == self._base_frame:
                break
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                path = self.owners.path.get(id(frame.f_locals.get("self")))
                if path:
                    return self.journal.module(path, self.owners.type[path])
            frame = frame.f_back
        return self.root

    def _runs_backward_by_hand(self, frame: FrameType | None) -> bool:
        for _ in range(_MOST_CALLERS):
            if frame is None or id(frame) == self._base_frame:
                return False
            if sources.is_backward_code(frame.f_code):
                return True
            frame = frame.f_back
        return False

    # ---------------------------------------------------------------- ops

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op for the program and write down what it read and made."""
        kwargs = kwargs or {}
        if not self._running:
            return func(*args, **kwargs)
        if func in ENTRY_POINTS:
            return self._run_backward(func, args, kwargs)
        name = ops.op_name(func)
        if name in _IGNORED:
            return func(*args, **kwargs)

        inputs = _tensors(args)
        if kwargs:
            inputs += _tensors(tuple(kwargs.values()))
        versions = [-1 if tensor.is_inference() else tensor._version for tensor in inputs]
        with torch._C.DisableTorchFunction():
            # Before the call: an input that the call changes in place still has its old value here.
            may_change = name.endswith("_") or name in _CHANGES_ITS_INPUT or "out" in kwargs
            input_rows = [self._input_row(tensor, may_change) for tensor in inputs]
        began = time.perf_counter()
        try:
            output = func(*args, **kwargs)
        except Exception:
            with torch._C.DisableTorchFunction():
                input_rows = [self._input_row(tensor, True) for tensor in inputs]
                self._record_failure(name, func, args, kwargs, input_rows)
            raise
        microseconds = (time.perf_counter() - began) * 1e6
        changed = [
            tensor
            for tensor, version in zip(inputs, versions, strict=True)
            if version >= 0 and tensor._version != version
        ]
        made = [tensor for tensor in _tensors((output,)) if not any(tensor is known for known in inputs)]
        if made or changed:
            with torch._C.DisableTorchFunction():
                results = [tensor for tensor in made if self.journal.find(tensor) == NO_ROW] + changed
                if results:
                    input_rows = [
                        self._input_row(tensor, True) if row == NO_ROW else row
                        for tensor, row in zip(inputs, input_rows, strict=True)
                    ]
                    self._record_op(name, func, args, kwargs, inputs, input_rows, results, microseconds)
        return output

    def _input_row(self, tensor: torch.Tensor, add: bool) -> int:
        row = self.journal.find(tensor)
        return self._add_leaf(tensor) if row == NO_ROW and add else row

    def _add_leaf(self, tensor: torch.Tensor) -> int:
        """A tensor made outside the recording: a parameter, a buffer, an input, a target, or a constant."""
        described = self.owners.describe(tensor)
        if described is not None:
            name, role = described
        elif tensor.requires_grad:
            name, role = "", "parameter" if tensor.is_leaf else "input"
        elif self._stack or not self.journal.ops or tensor.dim() == 0:
            name, role = "", "constant"
        else:
            name, role = "", "target"
        row = self.journal.add_tensor(tensor, role=role, module=self.root, name=name)
        self.journal.remember(tensor, row)
        node = tensor.grad_fn
        if node is not None and self._node_row(node) is None:
            # Its history is not ours: walks over the autograd graph end here.
            outside = _NodeRow(self._session, leaf=True)
            outside.tensors[tensor.output_nr] = row
            node.metadata[_KEY] = outside
        return row

    def _record_op(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        inputs: list[torch.Tensor],
        input_rows: list[int],
        results: list[torch.Tensor],
        microseconds: float,
    ) -> None:
        journal = self.journal
        frame = sources.user_frame(sys._getframe(2))
        given = ops.attributes(name, func, args, kwargs)
        phase: Phase = "forward"
        by_hand = False
        module = NO_ROW
        if self._backward_depth:
            phase = "backward"
            node = torch._C._current_autograd_node()
            running = self._node_row(node) if node is not None else None
            if torch.is_grad_enabled() and not self._creates_graph:
                given["recomputed"] = True
            elif running is not None:
                module = running.module
                if running.first_inner_op == NO_ROW:
                    running.first_inner_op = len(journal.ops)
        elif not any(tensor.requires_grad for tensor in results) and self._runs_backward_by_hand(frame):
            phase = "backward"
            by_hand = True
        if module == NO_ROW:
            module = self._current_module(frame)
        source = (frame.f_code, frame.f_lineno) if frame is not None else None
        op = journal.add_op(OpRow(name, phase, module, given, input_rows, [], source=source, microseconds=microseconds))

        outputs = journal.ops[op].outputs
        role = "activation" if name in ops.ACTIVATIONS else "preactivation" if name in ops.LINEAR else "intermediate"
        has_units = name in ops.UNIT_STATISTICS and journal.modules[module].path not in self.activations
        nodes: list[Node] = []
        for tensor in results:
            same = NO_ROW
            its_role = role
            position = next((index for index, known in enumerate(inputs) if known is tensor), None)
            if position is not None:
                journal.changed_by(tensor, op)
                if journal.tensors[input_rows[position]].role in ("buffer", "parameter"):
                    its_role = journal.tensors[input_rows[position]].role
            elif inputs:
                same = journal.same_values(name, tensor, inputs[0], input_rows[0])
            row = journal.add_tensor(tensor, role=its_role, module=module, producer=op, same_values_as=same)
            if has_units:
                journal.add_unit_statistics(name, tensor, row)
            outputs.append(row)
            journal.remember(tensor, row)
            if tensor.grad_fn is not None:
                self._adopt(tensor.grad_fn, op, module, nodes)
                node_row = self._node_row(tensor.grad_fn)
                if node_row is not None:
                    node_row.tensors[tensor.output_nr] = row
            elif not tensor.requires_grad:
                self._watch(tensor)
        if nodes and not _saved_tensors_are_hooked():
            for node in nodes:
                self._record_saved(node, op, inputs, input_rows, results)

    def _look_at_activations(self, module: int, inputs: list[torch.Tensor], input_rows: list[int]) -> None:
        """Take the unit statistics of an activation that several ops made, now that another module reads the result."""
        journal = self.journal
        for tensor, row in zip(inputs, input_rows, strict=True):
            producer = journal.tensors[row].producer
            if producer == NO_ROW or journal.ops[producer].module == module:
                continue
            path = journal.modules[journal.ops[producer].module].path
            name = self.activations.get(path)
            if name is not None and journal.tensors[row].role != "activation":
                journal.tensors[row].role = "activation"
                journal.add_unit_statistics(name, tensor, row)

    def _record_failure(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        input_rows: list[int],
    ) -> None:
        frame = sources.user_frame(sys._getframe(2))
        self.failed_op = self.journal.add_op(
            OpRow(
                name,
                "backward" if self._backward_depth else "forward",
                self._current_module(frame),
                ops.attributes(name, func, args, kwargs),
                input_rows,
                [],
                source=(frame.f_code, frame.f_lineno) if frame is not None else None,
            )
        )

    # ---------------------------------------------------------------- custom Functions

    def _run_function(self, cls: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `cls.apply`: a module of its own, whose ops are those that its forward and its backward call."""
        journal = self.journal
        with torch._C.DisableTorchFunction():
            frame = sources.user_frame(sys._getframe(2))
            parent = self._current_module(frame)
            module = parent
            if journal.modules[parent].type != cls.__name__:
                path = journal.modules[parent].path
                path = f"{path}.{cls.__name__}" if path else cls.__name__
                calls = self._function_calls[path] = self._function_calls.get(path, -1) + 1
                module = journal.module(f"{path}_{calls}" if calls else path, cls.__name__)
            inputs = _tensors(args)
            input_rows = [self._input_row(tensor, True) for tensor in inputs]
        first_op = len(journal.ops)
        self._enter_module(module)
        began = time.perf_counter()
        try:
            output = run(*args, **kwargs)
        finally:
            self._stack.pop()
        microseconds = (time.perf_counter() - began) * 1e6
        results = _tensors((output,))
        with torch._C.DisableTorchFunction():
            op = len(journal.ops) - 1 if len(journal.ops) > first_op else NO_ROW
            unseen = [tensor for tensor in results if (row := journal.find(tensor)) == NO_ROW or row in input_rows]
            if unseen:
                # Made by something that is no torch op: numpy, an extension, or an input handed through.
                source = (frame.f_code, frame.f_lineno) if frame is not None else None
                op = journal.add_op(
                    OpRow(cls.__name__, "forward", module, {}, input_rows, [], source=source, microseconds=microseconds)
                )
                for tensor in unseen:
                    row = journal.add_tensor(tensor, role="intermediate", module=module, producer=op)
                    journal.ops[op].outputs.append(row)
                    journal.remember(tensor, row)
            nodes: list[Node] = []
            for tensor in results:
                if tensor.grad_fn is not None:
                    self._adopt(tensor.grad_fn, op, module, nodes)
                    node_row = self._node_row(tensor.grad_fn)
                    if node_row is not None:
                        node_row.tensors[tensor.output_nr] = journal.find(tensor)
            for node in nodes:
                node_row = self._node_row(node)
                if node_row is not None and node_row.custom:
                    self._handles.append(node.register_prehook(self._before_node(node_row)))
                if not _saved_tensors_are_hooked():
                    self._record_saved(node, op, inputs, input_rows, results)
        return output

    # ---------------------------------------------------------------- the autograd graph

    def _node_row(self, node: Node) -> _NodeRow | None:
        row = node.metadata.get(_KEY)
        return row if row is not None and row.session is self._session else None

    def _adopt(self, top: Node, op: int, module: int, adopted: list[Node]) -> None:
        """Make the nodes of an op its own: from an output's grad_fn down to nodes that are owned already."""
        if self._node_row(top) is not None:
            return
        pending = [(top, self._add_node(top, op, module))]
        while pending:
            node, row = pending.pop()
            adopted.append(node)
            self._handles.append(node.register_hook(self._after_node(row)))
            for target, number in node.next_functions:
                if target is None:
                    row.edges.append(None)
                    continue
                target_row = self._node_row(target)
                if target_row is None:
                    if type(target).__name__ == "AccumulateGrad":
                        target_row = self._add_leaf_node(target)
                    else:
                        target_row = self._add_node(target, op, module)
                        pending.append((target, target_row))
                target_row.uses += 1
                if target_row.leaf and target_row.uses == 2:
                    # Several gradients meet here; their sum is known once the engine has added them.
                    self._handles.append(target.register_hook(self._after_leaf(target_row)))
                row.edges.append((target_row, number))

    def _add_node(self, node: Node, op: int, module: int) -> _NodeRow:
        custom = isinstance(node, torch.autograd.function.BackwardCFunction)
        row = _NodeRow(self._session, op, module, type(node).__name__, custom=custom)
        node.metadata[_KEY] = row
        return row

    def _add_leaf_node(self, node: Node) -> _NodeRow:
        row = _NodeRow(self._session, leaf=True)
        row.tensors[0] = self._input_row(node.variable, True)  # type: ignore[attr-defined]
        node.metadata[_KEY] = row
        return row

    def _record_saved(
        self,
        node: Node,
        op: int,
        inputs: list[torch.Tensor],
        input_rows: list[int],
        results: list[torch.Tensor],
    ) -> None:
        """Write down what a node keeps for its backward; a tensor nobody has seen is made by the op for that alone."""
        journal = self.journal
        for tensor in _saved_tensors(node):
            row = journal.find(tensor)
            if row == NO_ROW:
                # An output is saved as another tensor object on the same memory, and so is a view of an input.
                candidates = [
                    *((result, journal.find(result)) for result in results),
                    *zip(inputs, input_rows, strict=True),
                ]
                for candidate, candidate_row in candidates:
                    if _same_memory(tensor, candidate):
                        row = candidate_row
                        break
            if row == NO_ROW:
                module = journal.ops[op].module
                row = journal.add_tensor(tensor, role="saved", module=module, producer=op)
                journal.ops[op].outputs.append(row)
                journal.remember(tensor, row)
            journal.save(row, op)

    # ---------------------------------------------------------------- gradients

    def _after_node(self, row: _NodeRow) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
            if self._running:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    self._node_ran(row, grad_inputs, grad_outputs)

        return hook

    def _before_node(self, row: _NodeRow) -> Callable[[Sequence[Any]], None]:
        def hook(grad_outputs: Sequence[Any]) -> None:
            if self._running:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    for number, gradient in enumerate(grad_outputs):
                        if gradient is not None:
                            row.arrived[number] = self._arrive(row, number, gradient)
                    row.first_inner_op = NO_ROW

        return hook

    def _after_leaf(self, row: _NodeRow) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:  # noqa: ARG001 (torch's signature)
            if self._running:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    for number, gradient in enumerate(grad_outputs):
                        if gradient is not None:
                            self._arrive(row, number, gradient)

        return hook

    def _node_ran(self, row: _NodeRow, grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
        """A node has turned the gradients of its op's outputs into those of its inputs."""
        journal = self.journal
        microseconds = (time.perf_counter() - self._mark) * 1e6
        input_rows = []
        first = None
        for number, gradient in enumerate(grad_outputs):
            if gradient is not None:
                arrived = row.arrived.pop(number, NO_ROW)
                input_rows.append(arrived if arrived != NO_ROW else self._arrive(row, number, gradient))
                if first is None:
                    first = gradient
        op = NO_ROW
        taken: set[int] = set()
        for edge, gradient in zip(row.edges, grad_inputs, strict=False):
            if gradient is None or edge is None:
                continue
            target, number = edge
            gradient_row = NO_ROW
            if row.first_inner_op != NO_ROW:
                gradient_row = journal.find(gradient)
                if gradient_row in taken or (
                    gradient_row != NO_ROW and journal.tensors[gradient_row].producer < row.first_inner_op
                ):
                    gradient_row = NO_ROW
            if gradient_row == NO_ROW:
                if op == NO_ROW:
                    op = journal.add_op(
                        OpRow(row.name, "backward", row.module, {}, input_rows, [], row.op, microseconds=microseconds)
                    )
                same = NO_ROW
                if gradient is first:
                    same = input_rows[0]
                elif first is not None:
                    same = journal.same_values(row.name, gradient, first, input_rows[0])
                gradient_row = journal.add_tensor(
                    gradient, role="gradient", module=row.module, producer=op, same_values_as=same
                )
                journal.ops[op].outputs.append(gradient_row)
                journal.remember(gradient, gradient_row)
            taken.add(gradient_row)
            journal.tensors[gradient_row].role = "gradient"
            journal.tensors[gradient_row].share_of = target.tensors.get(number, NO_ROW)
            if target.leaf and target.uses == 1:
                journal.tensors[gradient_row].gradient_of = target.tensors.get(number, NO_ROW)
            else:
                target.shares.setdefault(number, []).append((gradient_row, weakref.ref(gradient)))
        row.first_inner_op = NO_ROW
        self._mark = time.perf_counter()

    def _arrive(self, row: _NodeRow, number: int, gradient: torch.Tensor) -> int:
        """The gradient of a node's `number`-th output is complete: the row of it, made from the shares sent so far."""
        journal = self.journal
        shares = row.shares.pop(number, [])
        forward = row.tensors.get(number, NO_ROW)
        if len(shares) == 1 and shares[0][1]() is gradient:
            gradient_row = shares[0][0]
        else:
            producer = NO_ROW
            if shares:
                first = journal.tensors[shares[0][0]]
                name = "accumulate"
                if len(shares) == 1:
                    name = "tensor_hook"
                    if first.shape != tuple(gradient.shape):
                        name = "sum_to_size"
                    elif first.dtype != str(gradient.dtype).removeprefix("torch."):
                        name = "to"
                twin = row.op if row.op != NO_ROW else journal.ops[first.producer].twin
                module = row.module if not row.leaf else first.module
                inputs = [share for share, _ in shares]
                producer = journal.add_op(OpRow(name, "backward", module, {}, inputs, [], twin))
            module = row.module if not row.leaf or producer == NO_ROW else journal.ops[producer].module
            gradient_row = journal.add_tensor(gradient, role="gradient", module=module, producer=producer)
            if producer != NO_ROW:
                journal.ops[producer].outputs.append(gradient_row)
            journal.remember(gradient, gradient_row)
        journal.tensors[gradient_row].gradient_of = forward
        return gradient_row

    # ---------------------------------------------------------------- the entry points of backward

    def _run_backward(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the engine with the mode on, so that ops inside a custom Function's backward are seen."""
        call = _BackwardCall.parse(func, args, kwargs)
        outermost = self._backward_depth == 0
        if call is not None and outermost and len(call.roots) == 1 and self.loss_row == NO_ROW:
            with torch._C.DisableTorchFunction():
                self.set_loss(call.roots[0])
        created_graph = self._creates_graph
        self._creates_graph = call.create_graph if call is not None else False
        self._backward_depth += 1
        self._mark = time.perf_counter()
        try:
            if call is None:
                return func(*args, **kwargs)
            edges = [get_gradient_edge(root) for root in call.roots]
            targets = None if call.inputs is None else [get_gradient_edge(tensor) for tensor in call.inputs]
            with self:
                if func is not torch.autograd.grad:
                    torch.autograd.backward(edges, call.gradients, call.retain_graph, call.create_graph, inputs=targets)
                    return None
                gradients = torch.autograd.grad(
                    edges,
                    targets,
                    call.gradients,
                    call.retain_graph,
                    call.create_graph,
                    allow_unused=call.allow_unused,
                )
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for edge, gradient in zip(targets or (), gradients, strict=True):
                    row = self._node_row(edge.node)
                    if row is not None and gradient is not None and edge.output_nr in row.shares:
                        self._arrive(row, edge.output_nr, gradient)
            return gradients
        finally:
            self._backward_depth -= 1
            self._creates_graph = created_graph

    def set_loss(self, loss: torch.Tensor) -> None:
        """Say which tensor is the loss: its role, and its value if it has one element."""
        self.loss_row = self.journal.find(loss)
        if self.loss_row != NO_ROW:
            self.journal.tensors[self.loss_row].role = "loss"
        if loss.numel() == 1 and not loss.is_meta and not loss.is_complex():
            self.loss = float(loss.detach())

    # ---------------------------------------------------------------- gradients kept by hand

    def _watch(self, tensor: torch.Tensor) -> None:
        """Hold a tensor outside autograd until its owner lets go of it: only then is its `.g` final.

        Layers written by hand keep a gradient as an attribute of the tensor. Dropped tensors are found by their
        reference count, each time that twice as many are held as were left after the last look.
        """
        self._watched.append(tensor)
        if len(self._watched) >= self._watch_limit:
            self._sweep_watched()

    def _sweep_watched(self, everything: bool = False) -> None:
        kept = []
        while self._watched:
            tensor = self._watched.pop()
            # One reference is this variable's, one the argument's.
            if not everything and sys.getrefcount(tensor) > 2:
                kept.append(tensor)
            else:
                self._link_gradient_attribute(tensor, self.journal.find(tensor))
        kept.reverse()
        self._watched = kept
        self._watch_limit = max(16, 2 * len(kept))

    def _link_gradient_attribute(self, tensor: torch.Tensor, row: int) -> None:
        gradient = tensor.__dict__.get("g")
        if row == NO_ROW or not isinstance(gradient, torch.Tensor):
            return
        gradient_row = self.journal.find(gradient)
        if gradient_row not in (NO_ROW, row):
            self.journal.tensors[gradient_row].role = "gradient"
            self.journal.tensors[gradient_row].gradient_of = row


@dataclass(frozen=True, slots=True)
class _BackwardCall:
    """The arguments of the three entry points, brought to one form."""

    roots: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor, ...]
    retain_graph: bool | None
    create_graph: bool
    inputs: tuple[torch.Tensor, ...] | None
    allow_unused: bool | None

    @classmethod
    def parse(cls, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _BackwardCall | None:
        """None for a call of another form (batched gradients, say) or one that torch refuses: it goes through as is."""
        names = _PARAMETERS[func]
        if len(args) > len(names) or not set(kwargs) <= set(names):
            return None
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if any(given.get(name) for name in ("is_grads_batched", "materialize_grads")):
            return None
        roots = _as_tensors(given["roots"] if "roots" in given else given.get(names[0]))
        inputs = _as_tensors(given.get("inputs"))
        gradients = given.get(names[1] if func is not torch.autograd.grad else "grad_outputs")
        if (
            not roots
            or any(not root.requires_grad for root in roots)
            or (given.get("inputs") is not None and not inputs)
        ):
            return None
        if inputs is not None and any(not tensor.requires_grad for tensor in inputs):
            return None
        listed = (
            list(gradients)
            if isinstance(gradients, (list, tuple))
            else [gradients] * (1 if gradients is not None else len(roots))
        )
        if len(listed) != len(roots):
            return None
        complete = []
        for root, gradient in zip(roots, listed, strict=True):
            if gradient is None and (root.numel() != 1 or not root.is_floating_point()):
                return None
            complete.append(
                torch.ones_like(root, memory_format=torch.preserve_format) if gradient is None else gradient
            )
        return cls(
            roots,
            tuple(complete),
            given.get("retain_graph"),
            bool(given.get("create_graph")),
            inputs,
            given.get("allow_unused"),
        )


_PARAMETERS: Mapping[Any, tuple[str, ...]] = {
    torch.Tensor.backward: ("self", "gradient", "retain_graph", "create_graph", "inputs"),
    torch.autograd.backward: ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"),
    torch.autograd.grad: (
        "outputs",
        "inputs",
        "grad_outputs",
        "retain_graph",
        "create_graph",
        "only_inputs",
        "allow_unused",
        "is_grads_batched",
        "materialize_grads",
    ),
}


def _as_tensors(value: Any) -> tuple[torch.Tensor, ...] | None:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, torch.Tensor) for part in value):
        return tuple(value)
    return None


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among `values`, those inside lists, tuples and dicts included, in order."""
    found: list[torch.Tensor] = []
    pending = list(reversed(values))
    while pending:
        value = pending.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            pending.extend(reversed(list(value.values())))
    return found


# -------------------------------------------------------------------- saved tensors

_saved_names: dict[type, tuple[str, ...]] = {}


def _saved_tensors_are_hooked() -> bool:
    """Whether saved tensors go through hooks: then they are never read, as that can run the forward again."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _saved_tensors(node: Node) -> list[torch.Tensor]:
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return _tensors(node.saved_tensors)
    names = _saved_names.get(type(node))
    if names is None:
        names = tuple(name for name in dir(type(node)) if name.startswith("_saved_"))
        kept = []
        for name in names:
            value = getattr(node, name)
            plain = isinstance(value, (bool, int, float, str, torch.dtype, torch.device, torch.layout))
            if not plain and not (isinstance(value, tuple) and value and isinstance(value[0], (int, bool))):
                kept.append(name)
        names = _saved_names[type(node)] = tuple(kept)
    return _tensors([getattr(node, name) for name in names])


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.layout == torch.strided == b.layout
        and a.numel() == b.numel() > 0
        and a.dtype == b.dtype
        and not a.is_meta
        and a.data_ptr() == b.data_ptr()
    )


# -------------------------------------------------------------------- custom Functions, process-wide


class _Active:
    """The observers that run, by thread. While there is one, `Function.apply` asks here; other threads pass through.

    `apply` is caught below `Function`, where `super().apply` looks it up, so that an alias made earlier
    (`linear = LinearFunction.apply`) is seen as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observers: dict[int, Observer] = {}

    def add(self, thread: int, observer: Observer) -> None:
        with self._lock:
            if thread in self._observers:
                raise TraceError("this thread is being recorded already: recordings do not nest")
            if not self._observers:
                _SingleLevelFunction.apply = classmethod(_observed_apply)
            self._observers[thread] = observer

    def remove(self, thread: int) -> None:
        with self._lock:
            del self._observers[thread]
            if not self._observers:
                del _SingleLevelFunction.apply

    def get(self, thread: int) -> Observer | None:
        return self._observers.get(thread)


def _observed_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    run = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
    observer = _active.get(threading.get_ident())
    if observer is None or not observer._running:
        return run(*args, **kwargs)
    return observer._run_function(cls, run, args, kwargs)


_active = _Active()
