"""The autograd graph of what is recorded: which node belongs to which op, and which gradient flows along which edge.

One hook on every node tells, when it has run, the gradients it was given and those it made. A gradient is recorded when
it is made; where several meet, the engine's sum is recorded as an op `accumulate` when it arrives.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node
from torch.utils.hooks import RemovableHandle

from chainrule.trace.journal import NO_ROW, Journal, OpRow, address, dtype_name
from chainrule.trace.nested import nested_tensors

_KEY = "chainrule"


@dataclass(eq=False, slots=True)
class NodeRow:
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
    edges: list[tuple[NodeRow, int] | None] = field(default_factory=list)
    tensors: dict[int, int] = field(default_factory=dict)
    shares: dict[int, list[tuple[int, weakref.ref[torch.Tensor]]]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    first_inner_op: int = NO_ROW


@dataclass(eq=False, slots=True)
class _Leaf:
    """A leaf that collects gradients in `.grad`: the row of what stands there, and how to tell that it still does."""

    tensor: weakref.ref[torch.Tensor]
    row: int
    gradient: int = NO_ROW
    state: tuple[int, int] | None = None


class GradientFlow:
    """Follows the backward pass through the autograd graph and writes its ops and gradients into the journal."""

    def __init__(self, journal: Journal, leaf_row: Callable[[torch.Tensor], int]) -> None:
        """Take the journal, and who finds or makes the row of a leaf tensor."""
        self._journal = journal
        self._leaf_row = leaf_row
        self._session = object()
        self._running = True
        self._handles: list[RemovableHandle] = []
        self._mark = 0.0
        self._leaves: dict[int, _Leaf] = {}

    def start_clock(self) -> None:
        """The engine starts now: the first node's duration counts from here."""
        self._mark = time.perf_counter()

    def finish(self) -> None:
        """Remove every hook."""
        self._running = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        del self._leaf_row  # it leads back to the observer, and a circle would keep the model alive

    # ---------------------------------------------------------------- nodes

    def mark_outside(self, tensor: torch.Tensor, row: int) -> None:
        """`tensor` was computed before the recording: walks over the autograd graph end at its node."""
        node = tensor.grad_fn
        if node is not None and self.node_row(node) is None:
            outside = NodeRow(self._session, leaf=True)
            outside.tensors[tensor.output_nr] = row
            _metadata(node)[_KEY] = outside

    def own(
        self,
        op: int,
        module: int,
        results: Sequence[tuple[torch.Tensor, int]],
        inputs: Sequence[torch.Tensor],
        input_rows: Sequence[int],
    ) -> None:
        """Make the nodes behind an op's results its own, hook them, and write down what they save."""
        nodes: list[Node] = []
        for tensor, row in results:
            if tensor.grad_fn is not None:
                self._adopt(tensor.grad_fn, op, module, nodes)
                node_row = self.node_row(tensor.grad_fn)
                if node_row is not None:
                    node_row.tensors[tensor.output_nr] = row
        # Saved tensors that go through hooks are never read: that can run the forward again.
        if nodes and torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
            for node in nodes:
                self._record_saved(node, op, inputs, input_rows, results)

    def node_row(self, node: Node) -> NodeRow | None:
        """What is known of a node; None for one that this recording has not met."""
        row: NodeRow | None = _metadata(node).get(_KEY)
        return row if row is not None and row.session is self._session else None

    def row_of_output(self, tensor: torch.Tensor) -> int:
        """The row of a value that autograd hands out as another tensor object, NO_ROW if it is none that is known.

        A custom Function that has saved its own output gets it back that way: the same output of the same node.
        """
        node = tensor.grad_fn
        row = None if node is None else self.node_row(node)
        return NO_ROW if row is None else row.tensors.get(tensor.output_nr, NO_ROW)

    def _adopt(self, top: Node, op: int, module: int, adopted: list[Node]) -> None:
        """Make the nodes of an op its own: from an output's grad_fn down to nodes that are owned already."""
        if self.node_row(top) is not None:
            return
        pending = [(top, self._add_node(top, op, module))]
        while pending:
            node, row = pending.pop()
            adopted.append(node)
            self._handles.append(node.register_hook(self._after_node(row)))
            if row.custom:
                self._handles.append(node.register_prehook(self._before_node(row)))
            for target, number in node.next_functions:
                if target is None:
                    row.edges.append(None)
                    continue
                target_row = self.node_row(target)
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

    def _add_node(self, node: Node, op: int, module: int) -> NodeRow:
        custom = isinstance(node, torch.autograd.function.BackwardCFunction)
        row = NodeRow(self._session, op, module, type(node).__name__, custom=custom)
        _metadata(node)[_KEY] = row
        return row

    def _add_leaf_node(self, node: Node) -> NodeRow:
        row = NodeRow(self._session, leaf=True)
        leaf: torch.Tensor = node.variable  # type: ignore[attr-defined]
        row.tensors[0] = self._leaf_row(leaf)
        self._leaves.setdefault(row.tensors[0], _Leaf(weakref.ref(leaf), row.tensors[0]))
        _metadata(node)[_KEY] = row
        return row

    def _record_saved(
        self,
        node: Node,
        op: int,
        inputs: Sequence[torch.Tensor],
        input_rows: Sequence[int],
        results: Sequence[tuple[torch.Tensor, int]],
    ) -> None:
        """Write down what a node keeps for its backward; a tensor nobody has seen is made by the op for that alone."""
        journal = self._journal
        for tensor in _saved_tensors(node):
            row = journal.find(tensor)
            if row == NO_ROW:
                # An output is saved as another tensor object on the same memory, and so is a view of an input.
                for candidate, candidate_row in (*results, *zip(inputs, input_rows, strict=True)):
                    if _same_memory(tensor, candidate):
                        row = candidate_row
                        break
            if row == NO_ROW:
                if not tensor.is_nested and tensor.dim() == 0:
                    continue  # a Python number, as autograd keeps it
                module = journal.ops[op].module
                row = journal.add_tensor(tensor, role="saved", module=module, producer=op)
                journal.ops[op].outputs.append(row)
                journal.remember(tensor, row)
            journal.save(row, op)

    # ---------------------------------------------------------------- gradients

    def captured(self, edge: GradientEdge, gradient: torch.Tensor | None) -> None:
        """`autograd.grad` returned the gradient of an edge whose node it did not run."""
        row = self.node_row(edge.node)
        if row is not None and gradient is not None and edge.output_nr in row.shares:
            self._arrive(row, edge.output_nr, gradient)

    def pass_ended(self, first_row: int) -> None:
        """A backward pass has added to `.grad`: where a gradient of an earlier pass stood, their sum is recorded.

        Args:
            first_row: the first tensor row of this pass.
        """
        journal = self._journal
        made: dict[int, int] = {}
        for row in range(first_row, len(journal.tensors)):
            made[journal.tensors[row].gradient_of] = row
        for leaf in self._leaves.values():
            tensor = leaf.tensor()
            gradient = made.get(leaf.row, NO_ROW)
            if tensor is None or gradient == NO_ROW:
                continue
            summed, before = tensor.grad, leaf.gradient
            state = _state(summed)
            if before != NO_ROW and leaf.state is not None and summed is not None and state != leaf.state:
                shares = (before, gradient)
                for share in shares:
                    journal.tensors[share].gradient_of = NO_ROW
                    journal.tensors[share].share_of = leaf.row
                producer = journal.tensors[gradient].producer
                twin = journal.ops[producer].twin if producer != NO_ROW else NO_ROW
                module = journal.tensors[gradient].module
                op = journal.add_op(OpRow("accumulate", "backward", module, {}, list(shares), [], twin))
                gradient = journal.add_tensor(summed, role="gradient", module=module, producer=op)
                journal.tensors[gradient].gradient_of = leaf.row
                journal.ops[op].outputs.append(gradient)
            leaf.gradient, leaf.state = gradient, state

    def pass_begins(self) -> None:
        """Forget the gradients that no longer stand in `.grad` as a pass has left them: they are not added to."""
        for leaf in self._leaves.values():
            tensor = leaf.tensor()
            if leaf.state is not None and (tensor is None or _state(tensor.grad) != leaf.state):
                leaf.gradient, leaf.state = NO_ROW, None

    def _after_node(self, row: NodeRow) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
            if self._running:
                with torch._C.DisableTorchFunction():
                    self._node_ran(row, grad_inputs, grad_outputs)

        return hook

    def _before_node(self, row: NodeRow) -> Callable[[Sequence[Any]], None]:
        def hook(grad_outputs: Sequence[Any]) -> None:
            if self._running:
                with torch._C.DisableTorchFunction():
                    for number, gradient in enumerate(grad_outputs):
                        if gradient is not None:
                            row.arrived[number] = self._arrive(row, number, gradient)
                    row.first_inner_op = NO_ROW

        return hook

    def _after_leaf(self, row: NodeRow) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:  # noqa: ARG001 (torch's signature)
            if self._running:
                with torch._C.DisableTorchFunction():
                    for number, gradient in enumerate(grad_outputs):
                        if gradient is not None:
                            self._arrive(row, number, gradient)

        return hook

    def _node_ran(self, row: NodeRow, grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
        """A node has turned the gradients of its op's outputs into those of its inputs."""
        journal = self._journal
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
            if gradient.grad_fn is not None:
                # create_graph: what autograd adds to the graph here belongs to this node's op, not to whoever reads it.
                self._adopt(gradient.grad_fn, row.op, row.module, [])
                made = self.node_row(gradient.grad_fn)
                if made is not None:
                    made.tensors[gradient.output_nr] = gradient_row
        row.first_inner_op = NO_ROW
        self._mark = time.perf_counter()

    def _arrive(self, row: NodeRow, number: int, gradient: torch.Tensor) -> int:
        """The gradient of a node's `number`-th output is complete: the row of it, made from the shares sent so far."""
        journal = self._journal
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
                    elif first.dtype != dtype_name(gradient.dtype):
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


def _state(gradient: torch.Tensor | None) -> tuple[int, int] | None:
    """Where a gradient lies, and how often its memory was written to; None where that cannot be told."""
    if gradient is None or gradient.is_inference():
        return None
    start = address(gradient)
    return None if start is None else (start, gradient._version)


def _metadata(node: Node) -> dict[str, Any]:
    """A node's own dict. torch declares it as a method, and it is a property."""
    return node.metadata  # type: ignore[return-value]


_saved_names: dict[type, tuple[str, ...]] = {}


def _saved_tensors(node: Node) -> list[torch.Tensor]:
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return nested_tensors(node.saved_tensors)
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
    return nested_tensors([getattr(node, name) for name in names])


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    start = address(a)
    return start is not None and start == address(b) and a.numel() == b.numel() > 0 and a.dtype == b.dtype
