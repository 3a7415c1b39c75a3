"""The forward and backward pass of a trace as one graph, with the lookups of the diagnosis."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from chainrule.diagnose.steps import Step, steps_of
from chainrule.trace.graph import Fault, FaultKind, Op, Tensor, Trace


class Passes:
    """A trace as a graph; places are indices into `trace.ops`."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ops: Sequence[Op] = tuple(trace.ops)
        self.tensors: Mapping[str, Tensor] = trace.tensor_by_id
        self._found: dict[object, tuple[Fault, ...]] = {}

    def again(self, trace: Trace) -> Passes:
        """The passes of a trace with the same graph and other numbers; keeps all lookups."""
        other = copy.copy(self)
        other.trace = trace
        return other

    def once(self, find: Callable[..., tuple[Fault, ...]], *args: Any) -> tuple[Fault, ...]:
        """`find(self, *args)`, computed once for all traces of this graph: for faults that do not depend on numbers."""
        if find not in self._found:
            self._found[find] = find(self, *args)
        return self._found[find]

    def op(self, identifier: str) -> Op:
        """The op with this id."""
        return self.ops[self.place[identifier]]

    def maker(self, tensor: str | None) -> Op | None:
        """The op that made a tensor, if it is known."""
        producer = None if tensor is None else self.tensors[tensor].producer
        return None if producer is None else self.op(producer)

    def forward_readers(self, tensor: str) -> list[Op]:
        """The forward ops that read a tensor."""
        readers = map(self.op, self.tensors[tensor].consumers)
        return [op for op in readers if op.phase == "forward"]

    def fault(
        self, kind: FaultKind, message: str, op: Op | None, tensor: str | None = None, remedy: str | None = None
    ) -> Fault:
        """A fault at an op, with the op's source line, or the line of its forward op."""
        if op is None:
            return Fault(kind, message, tensor=tensor, remedy=remedy)
        source = self.op(op.twin).source if op.source is None and op.twin is not None else op.source
        return Fault(kind, message, self.trace.module_by_id[op.module].path, op.id, tensor, source, remedy)

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Op id → place."""
        return {op.id: place for place, op in enumerate(self.ops)}

    @cached_property
    def forward(self) -> Sequence[Op]:
        """The forward ops, in order."""
        return tuple(op for op in self.ops if op.phase == "forward")

    @cached_property
    def parameters(self) -> Mapping[str, Sequence[str]]:
        """Name of a parameter → the ids of its values: an optimizer step gives it a new id."""
        found: dict[str, list[str]] = {}
        for tensor in self.trace.tensors:
            if tensor.role == "parameter":
                found.setdefault(tensor.name, []).append(tensor.id)
        return found

    @cached_property
    def reached(self) -> frozenset[str]:
        """The tensors that have a gradient."""
        return frozenset(tensor.gradient_of for tensor in self.tensors.values() if tensor.gradient_of is not None)

    @cached_property
    def has_backward(self) -> bool:
        """Whether a backward pass has begun."""
        return any(op.phase == "backward" for op in self.ops)

    @cached_property
    def twins(self) -> Mapping[str, int]:
        """Forward op → place of its first backward op."""
        found: dict[str, int] = {}
        for place, op in enumerate(self.ops):
            if op.twin is not None:
                found.setdefault(op.twin, place)
        return found

    @cached_property
    def keepers(self) -> Mapping[str, Sequence[Op]]:
        """Tensor → the ops that keep it for their backward."""
        found: dict[str, list[Op]] = {}
        for saved in self.trace.saved:
            found.setdefault(saved.tensor, []).append(self.op(saved.op))
        return found

    @cached_property
    def savers(self) -> frozenset[str]:
        """The ops that keep something for their backward."""
        return frozenset(each.op for each in self.trace.saved)

    @cached_property
    def sent_back(self) -> Mapping[str, Sequence[str]]:
        """Forward op → the gradients that its backward ops make."""
        found: dict[str, list[str]] = {}
        for op in self.ops:
            if op.twin is not None:
                found.setdefault(op.twin, []).extend(op.outputs)
        return found

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The forward ops as steps of the signal's path."""
        return steps_of(self.trace.modules, self.tensors, self.forward)

    @cached_property
    def leads_to_gradient(self) -> frozenset[str]:
        """The tensors whose values flow into a tensor with a gradient; if no tensor has one, into the loss.

        If the backward pass could not begin, the loss is the output of the last op.
        """
        found = set(self.reached) or {each.id for each in self.tensors.values() if each.role == "loss"}
        found = found or {each for op in self.forward[-1:] for each in op.outputs}
        for op in reversed(self.forward):
            if not reads_only_the_shape(op) and any(output in found for output in op.outputs):
                found.update(op.inputs)
        return frozenset(found)


def at_line(op: Op) -> str:
    """The source line of an op, to append to its name in a message."""
    return "" if op.source is None else f" ({op.source.file}:{op.source.line})"


def reads_only_the_shape(op: Op) -> bool:
    """Whether the values that an op reads do not matter."""
    return op.name.endswith("_like") or op.name.startswith("new_")
