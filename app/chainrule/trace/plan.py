"""The plan of a recording: at which call which statistics are taken. With it, the same program is repeated cheaply.

A program that calls the same torch functions in the same order makes the same graph. Of its second run only the
numbers are new, so nothing but the statistics is taken, each at the call where the recording took it:

    record(…, plan=Plan())   ──▶  plan.steps: [(function, [what to take of its arguments and its output])]
    repeat(plan, program)    ──▶  the statistics of this run, row by row as the recording had them

A step is a torch function, a custom Function's `apply`, or a node that autograd's engine runs: a hook on every node
tells what gradients it was given (its arguments) and which it made (its output), and before a custom Function's node
another what it is given. The engine runs the nodes of equal graphs in one order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from chainrule.errors import TraceError
from chainrule.stats import StatisticsSlab, StatisticsTable
from chainrule.trace import custom_functions
from chainrule.trace.entry_points import ENTRY_POINTS, BackwardCall
from chainrule.trace.units import summarize_units

Source = Literal["argument", "keyword", "output"]


@dataclass(slots=True)
class Step:
    """One call, and the rows of statistics that are taken there.

    Attributes:
        function: the torch function or the custom Function that is called; of a node of autograd its name.
        summaries: where a tensor is, and its row.
        units: the same, and which activation it is.
        copies: from row, to row.
    """

    function: Callable[..., Any] | str
    summaries: list[tuple[Source, Any, int]] = field(default_factory=list)
    units: list[tuple[Source, Any, int, str]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


class Plan:
    """Where a recording took its statistics. `complete` says whether all of it can be done again that way."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.complete = True
        self.rows: dict[str, int] = {}
        self.size = 0
        self._taken: list[tuple[torch.Tensor, int, str | None]] = []

    # ---------------------------------------------------------------- what the journal tells

    def summarized(self, tensor: torch.Tensor, row: int) -> None:
        """The statistics of `tensor` were taken into `row`."""
        self._taken.append((tensor, row, None))

    def units_summarized(self, op_name: str, tensor: torch.Tensor, row: int) -> None:
        """The dead units or the saturation of `tensor`, put out by `op_name`, were taken into `row`."""
        self._taken.append((tensor, row, op_name))

    def copied(self, source: int, row: int) -> None:
        """`row` was copied from `source`."""
        if self.steps:
            self.steps[-1].copies.append((source, row))
        else:
            self.complete = False

    # ---------------------------------------------------------------- what the observer tells

    def enters(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """One of autograd's entry points is about to be called: only the plain backward pass is one to repeat."""
        if _plain_backward(function, args, kwargs) is None:
            self.complete = False

    def begin(self, function: Callable[..., Any] | str) -> None:
        """A call begins, or a node of autograd runs."""
        self._between_calls()
        self.steps.append(Step(function))

    def end(self, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        """The call is over: what was taken since it began is one of its arguments or what it gave."""
        step = self.steps[-1]
        for tensor, row, op_name in self._taken:
            place = _place(tensor, args, kwargs, output)
            if place is None or _changes_in_place(args, output):
                self.complete = False
            elif op_name is None:
                step.summaries.append((*place, row))
            else:
                step.units.append((*place, row, op_name))
        self._taken.clear()

    def finish(self, rows: Mapping[str, int], size: int, failed: bool) -> None:
        """The recording is over: of the slab's `size` rows, `rows[id]` belongs to the tensor with this id."""
        self._between_calls()
        self.rows, self.size = dict(rows), size
        self.complete = self.complete and not failed

    def _between_calls(self) -> None:
        # Taken when a pass or the recording ends, say: no call will show it again.
        if self._taken:
            self.complete = False
            self._taken.clear()


def _place(
    tensor: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
) -> tuple[Source, Any] | None:
    if tensor is output:
        return "output", None
    if isinstance(output, (tuple, list)):
        for index, part in enumerate(output):
            if part is tensor:
                return "output", index
    for index, value in enumerate(args):
        if value is tensor:
            return "argument", index
    for name, value in kwargs.items():
        if value is tensor:
            return "keyword", name
    return None


def _changes_in_place(args: Sequence[Any], output: Any) -> bool:
    return any(value is output for value in args)


@dataclass(frozen=True, slots=True)
class Known:
    """What the last run has told already: its statistics, and the ids of the tensors that hold what they held then."""

    last: StatisticsTable
    tensors: Collection[str]


class _Repetition(TorchFunctionMode):
    """Takes the statistics of a plan, call by call."""

    def __init__(self, plan: Plan, slab: StatisticsSlab, known: Known | None) -> None:
        super().__init__()
        self.plan = plan
        self.slab = slab
        self.done = 0
        self.known = frozenset[int]()
        if known is not None:
            places = [place for place, tensor in enumerate(known.last.tensors) if tensor in known.tensors]
            rows = [plan.rows[known.last.tensors[place]] for place in places]
            slab.moments[rows], slab.counts[rows] = known.last.moments[places], known.last.counts[places]
            self.known = frozenset(rows)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        step = self._next(func)
        if func in ENTRY_POINTS:
            self._run_backward(func, args, kwargs)
            return None
        output = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._take(step, args, kwargs, output)
        return output

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `function.apply`, whose inputs may be seen here for the first time."""
        step = self._next(function)
        with torch._C.DisableTorchFunction():
            self._take(step, args, kwargs, ())
        return run(*args, **kwargs)

    def _run_backward(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Run the engine as the observer does, with the mode on."""
        call = _plain_backward(func, args, kwargs)
        if call is None:
            raise TraceError(f"call {self.done} goes back another way than the plan's")
        hooked = set[Node]()
        pending = [root.grad_fn for root in call.roots if root.grad_fn is not None]
        while pending:
            node = pending.pop()
            name = type(node).__name__
            if node in hooked or name == "AccumulateGrad":
                continue
            hooked.add(node)
            # The hooks are gone with the nodes.
            node.register_hook(self._after_node(name))
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                node.register_prehook(self._before_node(name))
            pending += [target for target, _ in node.next_functions if target is not None]
        edges = [get_gradient_edge(root) for root in call.roots]
        with self:
            call.run(edges, None)

    def _after_node(self, name: str) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def hook(grad_inputs: Sequence[Any], grad_outputs: Sequence[Any]) -> None:
            step = self._next(name)
            with torch._C.DisableTorchFunction():
                self._take(step, grad_outputs, {}, grad_inputs)

        return hook

    def _before_node(self, name: str) -> Callable[[Sequence[Any]], None]:
        def hook(grad_outputs: Sequence[Any]) -> None:
            step = self._next(name)
            with torch._C.DisableTorchFunction():
                self._take(step, grad_outputs, {}, ())

        return hook

    def _next(self, function: Callable[..., Any] | str) -> Step:
        """The step that this is, by the plan."""
        steps, done = self.plan.steps, self.done
        # A property's getter is another object at every call, equal to the last.
        if done == len(steps) or (steps[done].function is not function and steps[done].function != function):
            raise TraceError(f"call {done} is of {function}, which the plan does not say")
        self.done = done + 1
        return steps[done]

    def _take(self, step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        slab = self.slab
        for source, index, row in step.summaries:
            if row not in self.known:
                slab.write(row, _at(source, index, args, kwargs, output))
        for origin, row in step.copies:
            slab.write_copy(origin, row)
        for source, index, row, op_name in step.units:
            summarize_units(op_name, _at(source, index, args, kwargs, output), slab, row)


def _plain_backward(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> BackwardCall | None:
    """The call of a backward pass that collects gradients in the leaves and makes no graph of its own, else None."""
    call = None if func is torch.autograd.grad else BackwardCall.parse(func, args, kwargs)
    return call if call is not None and call.inputs is None and not call.create_graph else None


def _at(source: Source, index: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
    try:
        if source == "output":
            found = output if index is None else output[index]
        else:
            found = args[index] if source == "argument" else kwargs[index]
    except LookupError:
        found = None
    if not isinstance(found, torch.Tensor):
        raise TraceError(f"there is no tensor at {source} {index}, of which the plan takes statistics")
    return found


def repeat(plan: Plan, program: Callable[[], None], known: Known | None = None) -> StatisticsTable:
    """Run `program` and take its statistics as the plan says; the numbers are those that a recording would take.

    Args:
        plan: of a recording of the same program.
        program: runs it once more.
        known: rows that need not be taken again, by the caller's word.

    Raises:
        TraceError: it called other functions than the plan's, so that its numbers would be put in the wrong places; or
            the plan is not complete.
    """
    if not plan.complete:
        raise TraceError("this recording took statistics that no call shows again")
    slab = StatisticsSlab(plan.size)
    repetition = _Repetition(plan, slab, known)
    thread = threading.get_ident()
    custom_functions.active.add(thread, repetition)
    try:
        with repetition:
            program()
    finally:
        custom_functions.active.remove(thread)
    if repetition.done != len(plan.steps):
        raise TraceError(f"{repetition.done} calls, where the plan has {len(plan.steps)}")
    return slab.table(list(plan.rows), list(plan.rows.values()))
