"""The level below: the ATen ops inside each op, seen by a dispatch mode.

At this level an op of the user's program is a group, with the path of its module and its own name, and the recorded ops
are those that PyTorch's dispatcher runs in it, forward and backward. Autograd's own ops are left out: it copies
gradients into `.grad`, and adds the gradients of several readers, which the recorder notes as `accumulate`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DisableTorchFunction, _current_autograd_node, _len_torch_dispatch_stack
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from chainrule.trace import collectives, native, ops
from chainrule.trace.graph import Phase
from chainrule.trace.journal import NO_ROW, OpRow, address
from chainrule.trace.modes import remove_mode
from chainrule.trace.nested import nested_tensors

if TYPE_CHECKING:
    from chainrule.trace.observer import Observer

TRACED = frozenset(("FakeTensor", "FunctionalTensor"))
"""Tensors with which torch traces a program."""

LEFT_OUT = frozenset(("c10d", "profiler"))
"""Namespaces of ops that are recorded elsewhere, or compute nothing."""


@dataclass(slots=True)
class Group:
    """An op of the program while it runs: its phase, its module row, its line, and the number of ops before it."""

    phase: Phase
    module: int
    source: tuple[CodeType, int] | None
    first: int


class AtenLevel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ATen ops of one thread for an observer."""

    supports_higher_order_operators = True  # they run, and are not recorded

    def __init__(self, observer: Observer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._observer = observer
        self._journal = observer.journal
        self._groups: list[Group] = []
        self._calls: dict[str, int] = {}
        self.is_entered = False
        self._made: list[tuple[int, weakref.ref[torch.Tensor]]] = []  # the tensors of this group, with their rows

    def enter(self) -> None:
        """Begin."""
        self.is_entered = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """End. Modes that were entered later stay; in another thread, only the recording ends."""
        self.is_entered = False
        remove_mode(self, _len_torch_dispatch_stack, _pop_mode, _push_mode)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled during a recording, and torch's wrapper takes time

    def begin(self, name: str, phase: Phase, module: int, source: tuple[CodeType, int] | None) -> None:
        """An op of the program begins, in a module."""
        path = self._journal.modules[module].path
        path = f"{path}.{name}" if path else name
        call = self._calls[path] = self._calls.get(path, -1) + 1
        row = self._journal.module(f"{path}_{call}" if call else path, name)
        self._journal.groups.add(row)
        self._groups.append(Group(phase, row, source, len(self._journal.ops)))

    def end(self, tensors: Sequence[torch.Tensor]) -> Group:
        """It has ended; `tensors` are its arguments and its results, of which some may be other objects than inside."""
        group = self._groups.pop()
        journal = self._journal
        with DisableTorchFunction():
            made = [(row, tensor) for row, reference in self._made if (tensor := reference()) is not None]
            if other := [tensor for tensor in tensors if journal.row_of(tensor) == NO_ROW]:
                places = {_place_of(tensor): row for row, tensor in made}
                for tensor in other:
                    if (row := places.get(_place_of(tensor), NO_ROW)) != NO_ROW:
                        journal.remember(tensor, row)
            for row, tensor in made:
                if journal.row_of(tensor) == row:
                    journal.remember(tensor, row)  # with the version that autograd has given it meanwhile
        self._made.clear()
        return group

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one op for the program and record it."""
        kwargs = kwargs or {}
        if types:
            if any(hasattr(each, "_op_dispatcher") for each in types):
                return NotImplemented  # a DTensor: its ops on local tensors follow
            if any(each.__name__ in TRACED for each in types):
                return func(*args, **kwargs)
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        with DisableTorchFunction():  # this call is no op of the program
            place = self._place() if self.is_entered and not _is_left_out(func) else None
            return func(*args, **kwargs) if place is None else self._record(func, args, kwargs, *place)

    def _place(self) -> tuple[Phase, int, tuple[CodeType, int] | None] | None:
        """Phase, module and line of what runs now; None for what autograd does itself."""
        node = _current_autograd_node()
        if node is not None:
            running = self._observer._gradients.node_row(node)
            if running is not None and not self._groups:
                if running.leaf or running.has_run:
                    return None  # autograd copies a gradient, or adds several
                if running.first_inner_op == NO_ROW:
                    running.first_inner_op = len(self._journal.ops)
                return "backward", running.module, None
        if not self._groups:
            return None
        group = self._groups[-1]
        return group.phase, group.module, group.source

    def _input(self, tensor: torch.Tensor) -> int:
        row = self._journal.row_of(tensor)
        return self._observer._input_row(tensor) if row == NO_ROW else row

    def _record(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        phase: Phase,
        module: int,
        source: tuple[CodeType, int] | None,
        run: Callable[[], Any] | None = None,
    ) -> Any:
        """Run an op, or what runs it, and record it."""
        journal, kind = self._journal, _kind_of(func)
        if run is None and native.observer is not None and _is_functional(func):
            return self._observer.run_functional(kind, func, args, kwargs, phase, module, source, self._made)
        written = written_by(func, args, kwargs)
        inputs = nested_tensors((*args, *kwargs.values()))
        if outs := _outs(func):
            given = [kwargs[name] for name in outs if name in kwargs]
            inputs = [each for each in inputs if not any(each is out for out in given)]
        rows = [self._input(tensor) for tensor in inputs]
        began = perf_counter()
        output = func(*args, **kwargs) if run is None else run()
        microseconds = (perf_counter() - began) * 1e6
        if kind.is_collective:
            collectives.wait(output)
        results = nested_tensors((output,))
        if run is not None and len(results) > 1:
            results.append(results.pop(0))  # the state of the generator
        results += [each for each in written if not any(each is other for other in results)]
        outputs: list[int] = []
        about = collectives.describe(args, kwargs) if kind.is_collective else ops.attributes(kind, args, kwargs)
        op = journal.add_op(OpRow(kind.name, phase, module, about, rows, outputs, NO_ROW, source, microseconds))
        for tensor in results:
            place = next((at for at, each in enumerate(inputs) if each is tensor), NO_ROW)
            if place != NO_ROW and not any(tensor is each for each in written):
                continue  # an input that is handed through
            before = journal.tensors[rows[place]] if place != NO_ROW else None
            is_kept = before is not None and before.role in ("buffer", "parameter")
            role, name = (before.role, before.name) if before is not None and is_kept else (kind.role, "")
            same = journal.same_values(kind.name, tensor, inputs[0], rows[0]) if before is None and inputs else NO_ROW
            row = journal.add_tensor(tensor, role, module, op, name, same)
            self._made.append((row, weakref.ref(tensor)))
            if kind.has_units and phase == "forward":
                journal.add_unit_statistics(kind.name, tensor, row)
            outputs.append(row)
            journal.remember(tensor, row)
            if place != NO_ROW:
                journal.changed_by(tensor, op)
        return output


def _place_of(tensor: torch.Tensor) -> tuple[int | None, tuple[int, ...]]:
    return address(tensor), tuple(tensor.shape)


@cache
def _kind_of(func: Any) -> ops.Kind:
    return ops.kind_of(func.overloadpacket)


@cache
def _outs(func: Any) -> tuple[str, ...]:
    """The names of the arguments that an op only writes."""
    return tuple(each.name for each in func._schema.arguments if each.is_out)


@cache
def _is_left_out(func: Any) -> bool:
    return func.namespace in LEFT_OUT


@cache
def _is_functional(func: Any) -> bool:
    """Whether an op only computes: it writes into no argument, and reads no other rank's tensors."""
    return not (func._schema.is_mutable or _kind_of(func).is_collective)


def written_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The arguments that an op writes, as its schema says."""
    if not func._schema.is_mutable:
        return []
    named = zip(func._schema.arguments, args, strict=False)
    found = [value for argument, value in named if argument.is_write]
    found += [kwargs[each.name] for each in func._schema.arguments if each.is_write and each.name in kwargs]
    return nested_tensors(found)
