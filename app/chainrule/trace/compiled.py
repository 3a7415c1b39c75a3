"""The level of a compiler: the ATen ops and fused kernels of the graphs that torch.compile made of a program.

A graph is called inside an autograd Function of torch's. Its ops are recorded in the module from which they were
compiled, with its line. The ops between two graphs are recorded as at the level "op".
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
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.multiprocessing.reductions import StorageWeakRef

from chainrule.trace.aten import AtenLevel, written_by
from chainrule.trace.graph import Phase
from chainrule.trace.journal import NO_ROW, OpRow, TensorRow
from chainrule.trace.nested import nested_tensors

if TYPE_CHECKING:
    from chainrule.trace.observer import Observer

INSIDE = "inside of a fused kernel: no memory holds it"
"""Why a tensor has no statistics."""

HERE = "@"
"""The path of the module that runs when a graph is called; `@.linear` is a part of it."""

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
        path: of the module from which it was compiled; one graph may run for several modules, see HERE.
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
        self._here = ""  # the path of the module that runs
        self._next: Callable[[str], Origin] = lambda _: Origin()
        self._origin = Origin()
        self._memory: dict[int, _Memory] = {}  # by the address of its storage
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
            module = self._observer._current_module(None) if running is None else running.module
            self._here = journal.modules[module].path
            self._count()
            self._values = {}
            for name, each in zip(names, args, strict=False):
                if isinstance(each, torch.Tensor):
                    self._values[name] = self._input(each)
                    self._set(each, self._values[name], is_new=False)
            with self:
                output = graph(args)
            for tensor in nested_tensors((output,)):
                if (row := self.find(tensor)) != NO_ROW:
                    journal.remember(tensor, row)  # with the version that autograd has given it meanwhile
        self._counted = len(journal.ops)
        if not is_backward:
            for (path, name), count in written.items():
                self._written[self._path(path), name] += count
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

    def kernel(
        self, run: Callable[[], Any], read: Sequence[torch.Tensor], written: Sequence[torch.Tensor], origin: Origin
    ) -> None:
        """Run a fused kernel, and record it as an op, or as a group of its steps."""
        journal = self._journal
        with torch.utils._python_dispatch._disable_current_modes():
            rows = [self._input(tensor) for tensor in read if self._has_value(tensor, written)]
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
        outer = self._path(origin.path)
        path = f"{outer}.{origin.name}" if outer else origin.name
        call = self._calls[path] = self._calls.get(path, -1) + 1
        self._module(outer)
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
        return self._phase, self._module(self._path(self._origin.path)), self._origin.source

    def _path(self, path: str) -> str:
        """The path of a module of the graph that runs."""
        if path == HERE:
            return self._here
        return path.replace(HERE, self._here, 1).lstrip(".") if path.startswith(f"{HERE}.") else path

    def _module(self, path: str) -> int:
        if not path:
            return self._observer.root
        self._module(path.rpartition(".")[0])
        return self._journal.module(path, self._observer.owners.type.get(path, "container"))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """As at level "aten"; an op that torch runs with a state of its generator is that op."""
        if func not in (run_and_save_rng_state, run_with_rng_state):
            return super().__torch_dispatch__(func, types, args, kwargs)
        given = {} if kwargs is None else kwargs
        place = next(place for place, each in enumerate(args) if isinstance(each, torch._ops.OpOverload))
        with torch._C.DisableTorchFunction():
            return self._record(args[place], args[place + 1 :], given, run=lambda: func(*args, **given))

    def _record(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *place: Any,  # noqa: ARG002 (known only now)
        run: Callable[[], Any] | None = None,
    ) -> Any:
        self._origin = self._next(func._overloadpacket.__name__)
        before = {id(tensor): self._journal.row_of(tensor) for tensor in written_by(func, args, kwargs)}
        output = super()._record(func, args, kwargs, *self._place(), run=run)
        op = len(self._journal.ops) - 1
        self._journal.ops[op].attributes.update(self._origin.given)
        for row, reference in self._made:
            tensor = reference()
            if tensor is not None:
                self._set(tensor, row)
                if (changed := self._results.pop(before.get(id(tensor), NO_ROW), None)) is not None:
                    self._results[row] = changed
        self._made.clear()
        self._note(self._journal.ops[op].outputs)
        return output

    def _note(self, rows: Sequence[int]) -> None:
        """Note what the outputs of the present op are in the graph, and in the program as it was written."""
        for row, result in zip(rows, self._origin.results, strict=False):
            if result is not None:
                (path, name), number = result
                written = self._path(path), name
                self._results[row] = written, self._written[written] + number
        self._values.update(zip(self._origin.values, rows, strict=False))

    def _set(self, tensor: torch.Tensor, row: int, *, is_new: bool = True) -> None:
        """The memory of a tensor has the values of a row; `is_new`: they have just been written."""
        self._journal.remember(tensor, row)
        if tensor.layout is torch.strided and tensor.numel():
            storage = tensor.untyped_storage()
            memory = self._memory.get(storage._cdata)
            is_whole = tensor.numel() * tensor.element_size() == storage.nbytes()
            if memory is None or memory.is_free or (is_whole and is_new):
                memory = self._memory[storage._cdata] = _Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
            if is_new and not is_whole:
                memory.keep_below(tensor.numel())
            memory.rows[_part_of(tensor)] = row

    def find(self, tensor: torch.Tensor) -> int:
        """The row of a tensor, also of a view of memory that has a row, or several; the view is an op then."""
        row = self._journal.row_of(tensor)
        if row != NO_ROW or tensor.layout is not torch.strided or not tensor.numel():
            return row
        memory = self._memory.get(tensor.untyped_storage()._cdata)
        if memory is None or memory.is_free:
            return NO_ROW
        journal, part = self._journal, _part_of(tensor)
        rows = memory.rows_for(part)
        first = journal.tensors[rows[0]]
        row = rows[0]
        if len(rows) > 1 or first.shape not in (part[1], part[1][::-1]):
            maker = None if first.producer == NO_ROW else journal.ops[first.producer]
            given = {} if maker is None else {key: each for key, each in maker.attributes.items() if key == "graph"}
            name = "view" if len(rows) == 1 else "cat"
            source = None if maker is None else maker.source
            op = journal.add_op(OpRow(name, self._phase, first.module, given, rows, [], NO_ROW, source))
            row = memory.rows[part] = journal.add_tensor(tensor, first.role, first.module, op)
            journal.ops[op].outputs.append(row)
        journal.remember(tensor, row)
        return row

    def _input(self, tensor: torch.Tensor) -> int:
        row = self.find(tensor)
        return self._observer._input_row(tensor) if row == NO_ROW else row

    def _has_value(self, tensor: torch.Tensor, written: Sequence[torch.Tensor]) -> bool:
        """Whether memory that a kernel reads had a value before: it may only work in it."""
        own = tensor.untyped_storage()._cdata
        memory = self._memory.get(own)
        is_other = all(own != each.untyped_storage()._cdata for each in written)
        return is_other or (memory is not None and not memory.is_free)


_Part = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A part of a memory: offset, shape, strides."""


@dataclass(slots=True)
class _Memory:
    """The rows of the parts of a memory. `below`: the rows of larger parts that were written over in part."""

    storage: StorageWeakRef
    rows: dict[_Part, int] = field(default_factory=dict)
    below: list[int] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        """Whether the memory is free, so that its address may be that of another."""
        return bool(self.storage.expired())  # type: ignore[no-untyped-call]

    def keep_below(self, size: int) -> None:
        """A part of this size is about to be written: larger ones do not have their values any more."""
        for part in [each for each in self.rows if math.prod(each[1]) > size]:
            self.below.append(self.rows.pop(part))

    def rows_for(self, part: _Part) -> list[int]:
        """The row that holds the values of a part; several if it consists of several parts."""
        if part in self.rows:
            return [self.rows[part]]
        size = math.prod(part[1])
        holding = [each for each in self.rows if math.prod(each[1]) >= size and each[0] <= part[0]]
        if holding:
            return [self.rows[max(holding, key=lambda each: (each[0], -math.prod(each[1])))]]
        return [*self.below, *self.rows.values()]


def _part_of(tensor: torch.Tensor) -> _Part:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
