"""The autograd graph of a recording: the op of each node, and the gradient on each edge.

A hook on every node gets, after the node has run, the gradients it was given and those it made. A gradient is recorded
when it is made; where several meet, the engine's sum is recorded as an op `accumulate` when it arrives.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch.autograd.graph import GradientEdge
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from chainrule.stopping import Stop
from chainrule.trace import collectives, native
from chainrule.trace.journal import NO_ROW, Journal, OpRow, address, grad_fn_of, out_of_sight, version_of
from chainrule.trace.nested import saved_tensors
from chainrule.trace.saved_hooks import top_hooks

logger = logging.getLogger(__name__)

Node = Any
"""An autograd node. torch.autograd.graph.Node declares its attribute `metadata` as a method."""


_Share = tuple[int, weakref.ref[torch.Tensor]]
"""A gradient that has arrived at a node: its row and the tensor."""


@dataclass(eq=False, slots=True)
class NodeRow:
    """A recorded autograd node, and the hook that it calls; kept in the node's metadata.

    `tensors` and `shares` are by output number: the forward tensor, and the gradients that have arrived for it so far.
    The k-th gradient that this node makes goes to output `numbers[k]` of `targets[k]`. `arrived`: the gradients that a
    custom Function was called with, by output number.
    """

    flow: GradientFlow
    op: int
    module: int
    name: str
    custom: bool
    leaf: bool
    uses: int = 0
    first_inner_op: int = NO_ROW
    tensors: dict[int, int] = field(default_factory=dict)
    shares: dict[int, list[_Share]] = field(default_factory=dict)
    targets: Sequence[NodeRow | None] = ()
    numbers: Sequence[int] = ()
    arrived: dict[int, int] | None = None
    has_run: bool = False  # since its gradients arrived

    def __call__(self, grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
        """The node has run."""
        self.flow.node_called(self, grad_inputs, grad_outputs)


if native.observer is not None:
    NodeRow = native.observer.NodeRow  # type: ignore[misc]


@dataclass(eq=False, slots=True)
class Leaf:
    """A leaf that collects gradients in `.grad`: the row of that gradient, and its state to notice a change."""

    tensor: weakref.ref[torch.Tensor]
    row: int
    gradient: int = NO_ROW
    state: tuple[int, int] | None = None


@native.compiled
class GradientFlow(native.FlowCore):
    """Follows the backward pass through the autograd graph and writes its ops and gradients into the journal."""

    def __init__(self, journal: Journal, leaf_row: Callable[[torch.Tensor], int], stop: Stop) -> None:
        """Take the journal, a function that finds or makes the row of a leaf, and the recording's stop."""
        self._journal = journal
        self.plan = journal.plan
        self._leaf_row = leaf_row
        self.running = True
        # The engine may call the hooks in another thread, where `current_stop` differs.
        self.stop = stop
        self._handles: list[RemovableHandle] = []
        self.mark = 0.0  # when the engine started, or the last node had run
        self._leaves: dict[int, Leaf] = {}
        self._first_row = 0  # of the tensors of this pass
        # Custom Functions whose backward has begun and not ended, the innermost last.
        self.inside: list[NodeRow] = []
        self.has_inner_ops = False  # the ops inside each node are recorded, and not the node
        self.replicated: dict[DistributedDataParallel, int] = {}  # DDP modules that will reduce, with their rows

    def finish(self) -> None:
        """Remove every hook."""
        self.running = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.inside.clear()
        # Nodes that live on must not keep the recording alive.
        del self._leaf_row, self._journal, self.plan

    def mark_outside(self, node: Node, number: int, row: int) -> None:
        """`row` is output `number` of a node from before the recording: walks over the autograd graph end there."""
        if self.node_row(node) is None:
            outside = NodeRow(self, NO_ROW, 0, "", custom=False, leaf=True)
            outside.tensors[number] = row
            node.metadata[self] = outside

    def own(
        self,
        op: int,
        module: int,
        results: Sequence[torch.Tensor],
        result_rows: Sequence[int],
        inputs: Sequence[torch.Tensor],
        input_rows: Sequence[int],
    ) -> None:
        """Assign the new nodes behind an op's results to it, hook them, and record the tensors that they save."""
        nodes: list[Node] = []
        for tensor, row in zip(results, result_rows, strict=True):
            node: Node = grad_fn_of(tensor)
            if node is not None:
                known: NodeRow | None = node.metadata.get(self)
                if known is None:
                    known = self._adopt(node, op, module, nodes)
                known.tensors[tensor.output_nr] = row
        # Saved tensors with hooks are not read, because that can run the forward again.
        if nodes and top_hooks(False) is None:
            candidates = (*results, *inputs)
            rows = (*result_rows, *input_rows)
            with out_of_sight():  # reading a saved output is a torch call
                for node in nodes:
                    self._record_saved(node, op, candidates, rows)

    def disown(self, tensors: Sequence[torch.Tensor]) -> None:
        """The gradients that arrive for these outputs of an op are not those of the tensors."""
        for tensor in tensors:
            row = None if (node := grad_fn_of(tensor)) is None else self.node_row(node)
            if row is not None:
                row.tensors.pop(tensor.output_nr, None)

    def node_row(self, node: Node) -> NodeRow | None:
        """The row of a node; None for a node that this recording has not met."""
        row: NodeRow | None = node.metadata.get(self)
        return row

    def _adopt(self, top: Node, op: int, module: int, adopted: list[Node]) -> NodeRow:
        """Assign nodes to an op: from an output's new grad_fn down to nodes of other ops."""
        handles = self._handles
        # Every leaf is a step of a plan, because a repetition learns too late which leaves are read again.
        watched_from = 2 if self.plan is None else 1
        top_row = self._add_node(top, op, module)
        pending = [(top, top_row)]
        while pending:
            node, row = pending.pop()
            adopted.append(node)
            handles.append(node.register_hook(row))
            if row.custom or self.has_inner_ops:
                handles.append(node.register_prehook(self._before_node(row)))
            targets: list[NodeRow | None] = []
            numbers: list[int] = []
            for target, number in node.next_functions:
                numbers.append(number)
                if target is None:
                    targets.append(None)
                    continue
                target_row: NodeRow | None = target.metadata.get(self)
                if target_row is None:
                    if type(target).__name__ == "AccumulateGrad":
                        target_row = self._add_leaf_node(target)
                    else:
                        target_row = self._add_node(target, op, module)
                        pending.append((target, target_row))
                target_row.uses += 1
                if target_row.leaf and target_row.uses == watched_from:
                    # Several gradients may meet here; after this node the engine has added them.
                    handles.append(target.register_hook(self._after_leaf(target_row, type(target).__name__)))
                targets.append(target_row)
            row.targets = targets
            row.numbers = numbers
        return top_row

    def _add_node(self, node: Node, op: int, module: int) -> NodeRow:
        kind = type(node)
        row = NodeRow(
            self, op, module, kind.__name__, issubclass(kind, torch.autograd.function.BackwardCFunction), False
        )
        node.metadata[self] = row
        return row

    def _add_leaf_node(self, node: Node) -> NodeRow:
        row = NodeRow(self, NO_ROW, 0, "", custom=False, leaf=True)
        leaf: torch.Tensor = node.variable
        tensor = row.tensors[0] = self._leaf_row(leaf)
        if tensor not in self._leaves:
            self._leaves[tensor] = Leaf(weakref.ref(leaf), tensor)
        node.metadata[self] = row
        return row

    def _record_saved(
        self, node: Node, op: int, candidates: Sequence[torch.Tensor], candidate_rows: Sequence[int]
    ) -> None:
        """Record the tensors that a node of `op` saves; an unknown one is an output made for that alone.

        `candidates` are the op's results and inputs, `candidate_rows` their rows.
        """
        journal = self._journal
        for place, tensor in enumerate(saved_tensors(node)):
            row = journal.find(tensor)
            if row == NO_ROW:
                # An output is saved as another tensor object on the same memory, and so is a view of an input.
                start = address(tensor)
                if start is not None and (size := tensor.numel()):
                    dtype = tensor.dtype
                    for candidate, candidate_row in zip(candidates, candidate_rows, strict=True):
                        if start == address(candidate) and size == candidate.numel() and dtype == candidate.dtype:
                            row = candidate_row
                            break
            if row == NO_ROW:
                if not tensor.is_nested and tensor.dim() == 0:
                    continue  # a Python number, as autograd keeps it
                module = journal.ops[op].module
                row = journal.add_tensor(tensor, "saved", module, op)
                journal.ops[op].outputs.append(row)
                journal.remember(tensor, row)
                if journal.plan is not None:
                    journal.plan.kept(tensor, node, place)
            journal.saved[row, op] = None

    def captured(self, edge: GradientEdge, gradient: torch.Tensor | None) -> None:
        """`autograd.grad` returned the gradient of an edge, whose node it did not run."""
        row = self.node_row(edge.node)
        if row is not None and gradient is not None and self._of_this_pass(row.shares.get(edge.output_nr, ())):
            self._arrive(row, edge.output_nr, gradient)

    def pass_ended(self) -> None:
        """A pass that adds to `.grad` is over: record its sums with the gradients that were there."""
        journal = self._journal
        made: dict[int, int] = {}
        for row in range(self._first_row, len(journal.tensors)):
            made[journal.tensors[row].gradient_of] = row
        try:
            reductions = self._reductions(made)
        except Exception:  # of DDP's inner parts, which must not break the program
            logger.debug("the reductions of DDP are unknown", exc_info=True)
            reductions = {}
        for leaf in self._leaves.values():
            tensor = leaf.tensor()
            gradient = made.get(leaf.row, NO_ROW)
            if tensor is None or gradient == NO_ROW:
                continue
            summed, before = tensor.grad, leaf.gradient
            state = _state(summed)
            if leaf.row in reductions and summed is not None:
                op = reductions[leaf.row]
                local = [gradient] if before == NO_ROW else [before, gradient]
                gradient = journal.add_tensor(summed, "gradient", journal.ops[op].module, op)
                journal.ops[op].inputs += local
                journal.ops[op].outputs.append(gradient)
                for share in local:
                    journal.tensors[share].gradient_of = leaf.row
                    journal.reduced(share, gradient)
                journal.remember(summed, gradient)
            elif before != NO_ROW and leaf.state is not None and summed is not None and state != leaf.state:
                shares = (before, gradient)
                for share in shares:
                    journal.tensors[share].gradient_of = NO_ROW
                    journal.tensors[share].share_of = leaf.row
                producer = journal.tensors[gradient].producer
                twin = journal.ops[producer].twin if producer != NO_ROW else NO_ROW
                module = journal.tensors[gradient].module
                op = journal.add_op(OpRow("accumulate", "backward", module, {}, list(shares), [], twin))
                gradient = journal.add_tensor(summed, "gradient", module, op)
                journal.tensors[gradient].gradient_of = leaf.row
                journal.ops[op].outputs.append(gradient)
            leaf.gradient, leaf.state = gradient, state

    def _reductions(self, made: Mapping[int, int]) -> dict[int, int]:
        """The row of each parameter whose gradient DDP reduced → the op, one for each bucket.

        `made`: the row of each leaf that has a gradient of this pass → that gradient.

        DDP reduces while the backward pass runs. The last op has the time that the pass waited for it in the end.
        """
        found: dict[int, int] = {}
        for module, module_row in tuple(self.replicated.items()):
            name, given, buckets = collectives.buckets(module)
            for bucket in buckets:
                rows = [row for row in map(self._journal.find, bucket) if row in self._leaves and row in made]
                if rows:
                    op = self._journal.add_op(OpRow(name, "backward", module_row, dict(given), [], []))
                    found |= dict.fromkeys(rows, op)
                    self.replicated.pop(module, None)
        if found:
            self._journal.ops[op].microseconds = (perf_counter() - self.mark) * 1e6
        return found

    def read(self, gradient: torch.Tensor, leaf: int) -> None:
        """The program reads `.grad` of a leaf: autograd may have put another object there, with the same memory."""
        journal = self._journal
        known = self._leaves.get(leaf)
        if known is None or journal.find(gradient) != NO_ROW:
            return
        row = known.gradient if _state(gradient) == known.state else NO_ROW
        if known.state is None and version_of(gradient) == 0:  # in the pass that made it
            made = reversed(range(self._first_row, len(journal.tensors)))
            row = next((each for each in made if journal.tensors[each].gradient_of == leaf), NO_ROW)
        if row != NO_ROW and journal.tensors[row].shape == tuple(gradient.shape):
            journal.remember(gradient, row)

    def pass_begins(self, collects: bool) -> None:
        """A pass begins; if it `collects`, forget gradients in `.grad` that were removed or changed since the last."""
        self._first_row = len(self._journal.tensors)
        for leaf in self._leaves.values() if collects else ():
            tensor = leaf.tensor()
            if leaf.state is not None and (tensor is None or _state(tensor.grad) != leaf.state):
                leaf.gradient, leaf.state = NO_ROW, None

    def _before_node(self, row: NodeRow) -> Callable[[Sequence[Any]], None]:
        def hook(grad_outputs: Sequence[Any]) -> None:
            if self.running:
                self.stop.check()
                plan = self.plan
                if plan is not None:
                    plan.begin(row.name)
                with DisableTorchFunction():
                    arrived: dict[int, int] = {}
                    for number, gradient in enumerate(grad_outputs):
                        if gradient is not None:
                            arrived[number] = self._arrive(row, number, gradient)
                            # The engine may have given another node the same object: here it is this node's own.
                            self._journal.remember(gradient, arrived[number])
                    row.arrived = arrived
                    row.first_inner_op = NO_ROW
                    row.has_run = False
                self.inside.append(row)
                if plan is not None:
                    plan.end(grad_outputs, {}, ())

        return hook

    def _after_leaf(self, row: NodeRow, name: str) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:  # noqa: ARG001 (torch's signature)
            if self.running:
                plan = self.plan
                if plan is not None:
                    plan.begin(name)
                if row.uses > 1:
                    with DisableTorchFunction():
                        for number, gradient in enumerate(grad_outputs):
                            if gradient is not None:
                                self._arrive(row, number, gradient)
                if plan is not None:
                    plan.end(grad_outputs, {}, ())

        return hook

    def node_called(self, row: NodeRow, grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
        """A node has run."""
        if self.running:
            if self.stop.error is not None:
                self.stop.check()
            plan = self.plan
            if plan is not None:
                plan.begin(row.name)
            with DisableTorchFunction():
                self.node_ran(row, grad_inputs, grad_outputs)
            if plan is not None:
                plan.end(grad_outputs, {}, grad_inputs)

    def node_ran(self, row: NodeRow, grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
        """Record the gradients of a node that has run: those of its op's outputs, and those that it made."""
        journal = self._journal
        microseconds = (perf_counter() - self.mark) * 1e6
        arrived, row.arrived = row.arrived, None
        if (row.custom or self.has_inner_ops) and row in self.inside:
            # Also over is any backward that raised inside of this one and was caught.
            del self.inside[self.inside.index(row) :]
        input_rows: list[int] = []
        first = None
        for number, gradient in enumerate(grad_outputs):
            if gradient is not None:
                known = NO_ROW if arrived is None else arrived.get(number, NO_ROW)
                input_rows.append(known if known != NO_ROW else self._arrive(row, number, gradient))
                if first is None:
                    first = gradient
        tensors = journal.tensors
        outputs: list[int] | None = None
        op = NO_ROW
        taken: list[int] = []
        for target, number, gradient in zip(row.targets, row.numbers, grad_inputs, strict=False):
            if gradient is None or target is None:
                continue
            gradient_row = NO_ROW
            if row.first_inner_op != NO_ROW:
                gradient_row = journal.find(gradient)
                if gradient_row in taken or (
                    gradient_row != NO_ROW and tensors[gradient_row].producer < row.first_inner_op
                ):
                    gradient_row = NO_ROW
            if gradient_row == NO_ROW:
                if outputs is None:
                    outputs = []
                    op = journal.add_op(
                        OpRow(row.name, "backward", row.module, {}, input_rows, outputs, row.op, None, microseconds)
                    )
                same = NO_ROW
                if gradient is first:
                    same = input_rows[0]
                elif first is not None:
                    same = journal.same_values(row.name, gradient, first, input_rows[0])
                gradient_row = journal.add_tensor(gradient, "gradient", row.module, op, "", same)
                outputs.append(gradient_row)
                journal.remember(gradient, gradient_row)
            taken.append(gradient_row)
            recorded = tensors[gradient_row]
            recorded.role = "gradient"
            recorded.share_of = target.tensors.get(number, NO_ROW)
            if target.leaf and target.uses == 1:
                recorded.gradient_of = recorded.share_of
            else:
                share = (gradient_row, weakref.ref(gradient))
                shares = target.shares.get(number)
                if shares is None:
                    target.shares[number] = [share]
                else:
                    shares.append(share)
            made = gradient.grad_fn
            if made is not None:
                # create_graph: nodes that autograd adds here belong to this node's op, not to a later reader.
                made_row = self.node_row(made)
                if made_row is None:
                    made_row = self._adopt(made, row.op, row.module, [])
                made_row.tensors[gradient.output_nr] = gradient_row
        row.first_inner_op = NO_ROW
        row.has_run = True
        self.mark = perf_counter()

    def broke_off(self, depth: int, source: tuple[CodeType, int] | None) -> int:
        """Record the backward of the custom Function that raised at `source`, as an op without outputs.

        `depth` is the length of `inside` when the engine started. Returns the op's row; NO_ROW if no Function raised.
        """
        if len(self.inside) <= depth:
            return NO_ROW
        row = self.inside[-1]
        del self.inside[depth:]
        arrived, row.arrived = row.arrived or {}, None
        return self._journal.add_op(
            OpRow(row.name, "backward", row.module, {}, list(arrived.values()), [], row.op, source)
        )

    def _arrive(self, row: NodeRow, number: int, gradient: torch.Tensor) -> int:
        """The gradient of a node's `number`-th output is complete: return its row."""
        journal = self._journal
        shares: Sequence[_Share] = row.shares.pop(number, ())
        if shares and shares[0][0] < self._first_row:
            shares = self._of_this_pass(shares)
        if len(shares) == 1 and shares[0][1]() is gradient:
            gradient_row = shares[0][0]
        else:
            gradient_row = self._add_arrived(row, shares, gradient)
        journal.tensors[gradient_row].gradient_of = row.tensors.get(number, NO_ROW)
        return gradient_row

    def _of_this_pass(self, shares: Sequence[_Share]) -> Sequence[_Share]:
        """The shares of a gradient without those that an earlier pass made and nothing read."""
        return [share for share in shares if share[0] >= self._first_row]

    def _add_arrived(self, row: NodeRow, shares: Sequence[_Share], gradient: torch.Tensor) -> int:
        """Record a gradient that no node made: a sum of shares, or a share changed by a hook or the engine."""
        journal = self._journal
        producer = NO_ROW
        if not shares and (known := journal.find(gradient)) != NO_ROW:
            made = journal.tensors[known].producer
            if made != NO_ROW and "ranks" in journal.ops[made].attributes:
                return known  # received from the next stage of a pipeline
        if shares:
            first = journal.tensors[shares[0][0]]
            name = "accumulate"
            if len(shares) == 1:
                name = "tensor_hook"
                if first.shape != tuple(gradient.shape):
                    name = "sum_to_size"
                elif first.dtype != gradient.dtype:
                    name = "to"
            twin = row.op if row.op != NO_ROW else journal.ops[first.producer].twin
            module = row.module if not row.leaf else first.module
            inputs = [share for share, _ in shares]
            producer = journal.add_op(OpRow(name, "backward", module, {}, inputs, [], twin))
        module = row.module if not row.leaf or producer == NO_ROW else journal.ops[producer].module
        gradient_row = journal.add_tensor(gradient, "gradient", module, producer)
        if producer != NO_ROW:
            journal.ops[producer].outputs.append(gradient_row)
        journal.remember(gradient, gradient_row)
        return gradient_row


def _state(gradient: torch.Tensor | None) -> tuple[int, int] | None:
    """The address of a gradient and its count of writes; None where they are unknown."""
    if gradient is None or gradient.is_inference():
        return None
    start = address(gradient)
    return None if start is None else (start, gradient._version)
