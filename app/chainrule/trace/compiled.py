"""The level of a compiler: the ATen ops and fused kernels of the graphs that torch.compile made of a program.

A graph is called inside an autograd Function of torch's. What runs in it is recorded in the module, and with the line,
from which it was compiled. The ops between two graphs are recorded as at the level "op".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from chainrule.trace.aten import AtenLevel
from chainrule.trace.graph import Phase
from chainrule.trace.journal import NO_ROW, OpRow, TensorRow
from chainrule.trace.nested import nested_tensors

if TYPE_CHECKING:
    from chainrule.trace.observer import Observer

INSIDE = "inside of a fused kernel: no memory holds it"
"""Why a tensor has no statistics."""

Written = tuple[str, str]
"""An op as it was written: the path of its module, and its name."""


@dataclass(frozen=True, slots=True)
class Step:
    """An op inside of a fused kernel.

    Attributes:
        name: of the op; `source`: its line; `given`: its attributes.
        reads: of each value that it reads, its name, and the names of values of which it may be a view.
        makes: name, shape and dtype of the values that it makes for other steps or for memory.
    """

    name: str
    source: tuple[CodeType, int] | None
    given: Mapping[str, Any]
    reads: Sequence[Sequence[str]]
    makes: Sequence[tuple[str, tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of something that a compiled graph runs.

    Attributes:
        path: of the module from which it was compiled.
        source: its line.
        name: of a fused kernel.
        given: attributes for its op.
        results: of each of its outputs, the written op with the same output, and its number in the graph, if known.
        values: of each of its outputs, the name of the value in the graph, "" if unknown.
        steps: the ops in a fused kernel, if there are several.
    """

    path: str = ""
    source: tuple[CodeType, int] | None = None
    name: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[tuple[Written, int] | None] = ()
    values: Sequence[str] = ()
    steps: Sequence[Step] = ()


class CompiledLevel(AtenLevel):  # type: ignore[no-untyped-call]
    """Records what compiled graphs run in one thread, for an observer.

    Attributes:
        graphs: the number of calls of graphs.
    """

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self.is_entered = True
        self.graphs = 0
        self._results: dict[int, tuple[Written, int]] = {}
        self._written: Counter[Written] = Counter()  # in this pass, up to the present graph
        self._counted = 0  # ops of the journal
        self._phase: Phase = "forward"
        self._next: Callable[[str], Origin] = lambda _: Origin()
        self._origin = Origin()
        self._rows: dict[int, int] = {}  # address of a storage → the row of its newest tensor
        self._values: dict[str, int] = {}  # name of a value of the present graph → its row

    def run(
        self,
        graph: Callable[[list[Any]], Any],
        args: list[Any],
        names: Sequence[str],
        written: Mapping[Written, int],
        is_backward: bool,
        origin: Callable[[str], Origin],
    ) -> Any:
        """Run a compiled graph, which empties the list of its arguments. `names`: of the arguments.

        `written`: the ops that were compiled into it. `origin`: of an ATen op with this name, which is about to run.
        """
        self.graphs += 1
        self._phase, self._next = "backward" if is_backward else "forward", origin
        journal = self._journal
        with torch._C.DisableTorchFunction():
            node = torch._C._current_autograd_node() if is_backward else None
            running = None if node is None else self._observer._gradients.node_row(node)
            if running is not None:
                running.first_inner_op = len(journal.ops)
            self._count()
            self._values = {}
            for name, each in zip(names, args, strict=False):
                if isinstance(each, torch.Tensor):
                    self._values[name] = self._input(each)
                    self._set(each, self._values[name])
            with self:
                output = graph(args)
            for tensor in nested_tensors((output,)):
                row = self._find(tensor)
                if row != NO_ROW and journal.tensors[row].shape != tuple(tensor.shape):
                    row = self._viewed(tensor, row)
                if row != NO_ROW:
                    self._set(tensor, row)  # with the version that autograd has given it meanwhile
        self._counted = len(journal.ops)
        if not is_backward:
            self._written.update(written)
        return output

    @property
    def results(self) -> Mapping[int, tuple[Written, int]]:
        """Row of a tensor → the written op with the same output, and its number among those of this name."""
        self._count()
        return self._results

    def _count(self) -> None:
        """Count the ops since the last graph."""
        for op in self._journal.ops[self._counted :]:
            if op.phase == "forward":
                written = self._journal.modules[op.module].path, op.name
                self._results |= dict.fromkeys(op.outputs[:1], (written, self._written[written]))
                self._written[written] += 1
        self._counted = len(self._journal.ops)

    def allocated(self, tensor: torch.Tensor) -> None:
        """A graph has allocated memory, which may be that of an earlier tensor."""
        self._rows.pop(tensor.untyped_storage().data_ptr(), None)

    def kernel(
        self, run: Callable[[], Any], read: Sequence[torch.Tensor], written: Sequence[torch.Tensor], origin: Origin
    ) -> None:
        """Run a fused kernel, and record it as an op, or as a group of its steps."""
        journal = self._journal
        with torch.utils._python_dispatch._disable_current_modes():
            # Memory that a kernel only works in has no value before.
            given = [tensor for tensor in read if self._find(tensor) != NO_ROW or not _is_among(tensor, written)]
            rows = [self._input(tensor) for tensor in given]
            began = perf_counter()
            run()
            microseconds = (perf_counter() - began) * 1e6
            self._origin = origin
            phase, module, source = self._place()
            if origin.steps:
                made = self._fused(origin, rows, written, microseconds)
            else:
                about = dict(origin.given)
                op = journal.add_op(OpRow(origin.name, phase, module, about, rows, [], NO_ROW, source, microseconds))
                made = [journal.add_tensor(tensor, "intermediate", module, op) for tensor in written]
                journal.ops[op].outputs += made
            for tensor, row in zip(written, made, strict=True):
                self._set(tensor, row)
            self._note(made)

    def _fused(
        self, origin: Origin, read: list[int], written: Sequence[torch.Tensor], microseconds: float
    ) -> list[int]:
        """Record the steps of a fused kernel, and return the rows of what it has written."""
        journal = self._journal
        path = f"{origin.path}.{origin.name}" if origin.path else origin.name
        call = self._calls[path] = self._calls.get(path, -1) + 1
        self._module(origin.path)
        group = journal.module(f"{path}_{call}" if call else path, "fused kernel")
        stored = {name: place for place, name in enumerate(origin.values) if name}
        made = [NO_ROW] * len(written)
        values = dict(self._values)
        ops: list[OpRow] = []
        for step in origin.steps:
            inputs = [next((values[name] for name in names if name in values), NO_ROW) for names in step.reads]
            inputs = list(dict.fromkeys(row for row in inputs if row != NO_ROW))
            ops.append(OpRow(step.name, self._phase, group, dict(step.given), inputs, [], NO_ROW, step.source))
            op = journal.add_op(ops[-1])
            for name, shape, dtype in step.makes:
                if name in stored:
                    row = made[stored[name]] = journal.add_tensor(written[stored[name]], "intermediate", group, op)
                else:
                    row = len(journal.tensors)
                    journal.tensors.append(TensorRow("", "intermediate", shape, dtype, group, op, NO_ROW, note=INSIDE))
                values[name] = row
                ops[-1].outputs.append(row)
        known = {row for each in ops for row in each.inputs}
        ops[0].inputs += [row for row in read if row not in known]
        ops[-1].microseconds = microseconds
        for place, tensor in enumerate(written):
            if made[place] == NO_ROW:  # a part of the last step, such as the sums of a normalization
                made[place] = journal.add_tensor(tensor, "intermediate", group, len(journal.ops) - 1)
                ops[-1].outputs.append(made[place])
        return made

    def _place(self) -> tuple[Phase, int, tuple[CodeType, int] | None]:
        return self._phase, self._module(self._origin.path), self._origin.source

    def _module(self, path: str) -> int:
        if not path:
            return self._observer.root
        self._module(path.rpartition(".")[0])
        return self._journal.module(path, self._observer.owners.type.get(path, "container"))

    def _record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *place: Any) -> Any:  # noqa: ARG002 (known only now)
        self._origin = self._next(func._overloadpacket.__name__)
        output = super()._record(func, args, kwargs, *self._place())
        op = len(self._journal.ops) - 1
        self._journal.ops[op].attributes.update(self._origin.given)
        for row, reference in self._made:
            tensor = reference()
            if tensor is not None:
                self._set(tensor, row)
        self._made.clear()
        self._note(self._journal.ops[op].outputs)
        return output

    def _viewed(self, tensor: torch.Tensor, row: int) -> int:
        """The row of a tensor that a graph returns in another shape than it has written it."""
        journal = self._journal
        of = journal.tensors[row]
        source = journal.ops[of.producer].source if of.producer != NO_ROW else None
        given = {} if of.producer == NO_ROW else {"graph": journal.ops[of.producer].attributes.get("graph")}
        op = journal.add_op(OpRow("view", self._phase, of.module, given, [row], [], NO_ROW, source))
        same = row if math.prod(of.shape) == tensor.numel() else NO_ROW
        made = journal.add_tensor(tensor, of.role, of.module, op, "", same)
        journal.ops[op].outputs.append(made)
        return made

    def _note(self, rows: Sequence[int]) -> None:
        """Note what the outputs of the present op are in the graph, and in the program as it was written."""
        for row, result in zip(rows, self._origin.results, strict=False):
            if result is not None:
                written, number = result
                self._results[row] = written, self._written[written] + number
        self._values.update(zip(self._origin.values, rows, strict=False))

    def _set(self, tensor: torch.Tensor, row: int) -> None:
        self._journal.remember(tensor, row)
        if tensor.layout is torch.strided and tensor.numel():
            self._rows[tensor.untyped_storage().data_ptr()] = row

    def _find(self, tensor: torch.Tensor) -> int:
        """The row of a tensor, or of another one with the same memory."""
        row = self._journal.row_of(tensor)
        if row == NO_ROW and tensor.layout is torch.strided and tensor.numel():
            row = self._rows.get(tensor.untyped_storage().data_ptr(), NO_ROW)
        return row

    def _input(self, tensor: torch.Tensor) -> int:
        row = self._find(tensor)
        return self._observer._input_row(tensor) if row == NO_ROW else row


def _is_among(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is each for each in others)
