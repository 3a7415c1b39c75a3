"""The plan of a recording: at which call which statistics are taken. It makes a repetition of the program cheap.

A program that calls the same torch functions in the same order makes the same graph with other numbers, so a second
run takes the statistics alone, each at the call where the recording took it:

    record(…, plan=Plan())   ──▶  plan.steps: [(function, [what to take of its arguments and its output])]
    repeat(plan, program)    ──▶  the statistics of this run, row by row as the recording had them

A step is a torch function, a custom Function's `apply`, or a node that autograd's engine runs. A hook on each node gets
the gradients that it was given (its arguments) and those that it made (its output), unless nothing is taken at any node
of its name; a second hook runs before the node of a custom Function. The engine runs the nodes of equal graphs in the
same order, with those of leaves, where the gradients of several readers are added. A tensor that a call changes in
place is taken before and after the call; a tensor that it keeps for its backward alone (a mask, the mean of a
normalization) is read from its nodes.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from chainrule.errors import TraceError
from chainrule.stats import StatisticsSlab, StatisticsTable
from chainrule.stats.summary import DEAD_FRACTION
from chainrule.stopping import current_stop
from chainrule.trace import custom_functions
from chainrule.trace.entry_points import ENTRY_POINTS, BackwardCall
from chainrule.trace.nested import nested_tensors, saved_tensors
from chainrule.trace.units import summarize_units

Source = Literal["argument", "keyword", "output"]

Place = tuple[Source, tuple[Any, ...] | None]
"""The place of a tensor in a call: the indices or keywords that lead to it; None if it is the output."""

Way = tuple[Place | int, int]
"""How to reach a node: from a tensor by its `grad_fn`, or from the n-th node before it by one of its edges."""


@dataclass(slots=True)
class Step:
    """One call, and the rows of statistics that are taken there.

    In tuples, which the garbage collector stops tracking: there are tens of thousands of steps.
    """

    function: Callable[..., Any] | str  # the torch function or the custom Function; a node's name
    changes: bool = False  # whether it changes a tensor in place, by its name
    summaries: tuple[tuple[Source, Any, int], ...] = ()  # (*place, row)
    units: tuple[tuple[Source, Any, int, str], ...] = ()  # (*place, row, activation's name)
    before: tuple[tuple[Source, Any, int], ...] = ()  # `summaries` of the tensors that the call changes, before it
    nodes: tuple[Way, ...] = ()  # to the nodes of `saved`, each after the one that it starts from
    saved: tuple[tuple[int, int, int], ...] = ()  # (index in `nodes`, index among the node's saved tensors, row)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is taken after the call."""
        return not (self.summaries or self.units or self.saved)


class Plan:
    """Where a recording took its statistics."""

    def __init__(self) -> None:
        self.steps: list[Step] = []  # the calls, in order
        self.nodes = frozenset[str]()  # the names of the nodes among them
        self.graphs: list[tuple[str, ...]] = []  # of each backward pass, the names of its nodes (see `_nodes_of`)
        self.copies: dict[int, int] = {}  # row → the row that it was copied from, never a copy itself
        self.complete = True  # whether a repetition can take all statistics
        self.rows: dict[str, int] = {}  # of tensors, by id
        self.size = 0  # the number of rows
        self._taken: list[tuple[torch.Tensor, int, str | None]] = []
        self._before = 0  # the number of them taken before the call
        self._kept: list[tuple[torch.Tensor, Node, int]] = []

    def summarized(self, tensor: torch.Tensor, row: int, op_name: str | None = None) -> None:
        """The statistics of `tensor`, or as an output of `op_name` those of its units, were taken into `row`."""
        self._taken.append((tensor, row, op_name))

    def copied(self, source: int, row: int) -> None:
        """`row` was copied from `source`."""
        self.copies[row] = self.copies.get(source, source)

    def kept(self, tensor: torch.Tensor, node: Node, place: int) -> None:
        """`tensor`, whose statistics were taken, is at `place` among the saved tensors of `node`."""
        self._kept.append((tensor, node, place))

    def enters(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An entry point of autograd is about to be called; only a plain backward pass can be repeated."""
        call = _plain_backward(function, args, kwargs)
        if call is None:
            self.complete = False
        else:
            self.graphs.append(tuple(name for _, name in _nodes_of(call.roots)))

    def begin(self, function: Callable[..., Any] | str) -> None:
        """A call begins, or a node of autograd runs."""
        self._between_calls()
        self.steps.append(Step(function, _changes_in_place(function)))

    def call(self) -> None:
        """The call is about to run: all statistics taken so far are of values before it."""
        self._before = len(self._taken)

    def end(self, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        """The call is over: the tensors taken since it began are its arguments, outputs or saved tensors."""
        if self._taken:
            self._note(self.steps[-1], args, kwargs, output)
            self._taken.clear()
            self._kept.clear()
        self._before = 0

    def _note(self, step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        kept = []
        places = _places(args, kwargs, output)
        places_before = _places(args, kwargs, ()) if self._before else places
        for order, (tensor, row, op_name) in enumerate(self._taken):
            is_before = order < self._before
            place = (places_before if is_before else places).get(id(tensor))
            if place is None:
                kept += [(node, number, row) for saved, node, number in self._kept if saved is tensor]
                if op_name is not None or not kept or kept[-1][2] != row:
                    self.complete = False
            elif op_name is not None:
                step.units = (*step.units, (*place, row, op_name))
            elif is_before:
                step.before = (*step.before, (*place, row))
            else:
                step.summaries = (*step.summaries, (*place, row))
        if kept:
            ways = _ways([node for node, _, _ in kept], output)
            if ways is None:
                self.complete = False
            else:
                step.nodes, order_of = ways
                step.saved = tuple((order_of[node], number, row) for node, number, row in kept)

    def finish(self, rows: Mapping[str, int], size: int, failed: bool) -> None:
        """The recording is over: `rows[id]` of the slab's `size` rows belongs to the tensor `id`."""
        self._between_calls()
        # Nodes at which nothing is ever taken need no hook: in a recurrent net, every second one.
        self.nodes = frozenset(
            step.function for step in self.steps if isinstance(step.function, str) and not step.is_idle
        )
        self.steps = [step for step in self.steps if not isinstance(step.function, str) or step.function in self.nodes]
        self.rows, self.size = dict(rows), size
        self.complete = self.complete and not failed

    def _between_calls(self) -> None:
        # Taken outside of calls, as at the end of a pass: a repetition cannot.
        if self._taken:
            self.complete = False
            self._taken.clear()
            self._kept.clear()


def _places(args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> Mapping[int, Place]:
    """The place of every argument and output by `id()`; of several, an output's comes first, then the least nested."""
    found: dict[int, Place] = {}
    if isinstance(output, torch.Tensor):
        found[id(output)] = "output", None
    sources: tuple[tuple[Source, Any], ...] = ("output", output), ("argument", args), ("keyword", kwargs)
    for source, container in sources:
        above: tuple[Any, ...] = ()
        pending = [(container, above)] if isinstance(container, (list, tuple, dict)) else []
        for values, above in pending:
            for index, value in values.items() if isinstance(values, dict) else enumerate(values):
                if isinstance(value, torch.Tensor):
                    found.setdefault(id(value), (source, (*above, index)))
                elif isinstance(value, (list, tuple, dict)):
                    pending.append((value, (*above, index)))
    return found


def _changes_in_place(function: Callable[..., Any] | str) -> bool:
    name = getattr(function, "__name__", "")
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))


_OPERATORS = ("add", "and", "floordiv", "lshift", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor")
_IN_PLACE = frozenset({"__set__", "__setitem__", *(f"__i{name}__" for name in _OPERATORS)})


MAX_NODES = 10_000
"""The number of nodes that are searched for the saved tensors of one call."""


def _ways(wanted: Sequence[Node], output: Any) -> tuple[tuple[Way, ...], Mapping[Node, int]] | None:
    """The ways to the wanted nodes from a call's output, and each node's index among them; None if one is not found.

    Breadth first: the nodes that the call itself made are nearest to its output.
    """
    nodes: list[Node] = []
    ways: list[Way] = []
    order: dict[Node, int] = {}

    def meet(node: Node | None, way: Way) -> None:
        if node is not None and node not in order:
            order[node] = len(nodes)
            nodes.append(node)
            ways.append(way)

    places = _places((), {}, output)
    for tensor in nested_tensors((output,)):
        meet(tensor.grad_fn, (places[id(tensor)], 0))
    walked = 0
    while not all(node in order for node in wanted):
        if walked == min(len(nodes), MAX_NODES):
            return None
        for edge, (target, _) in enumerate(nodes[walked].next_functions):
            meet(target, (walked, edge))
        walked += 1
    needed: set[int] = set()
    for node in wanted:
        number: int | Place = order[node]
        while isinstance(number, int) and number not in needed:
            needed.add(number)
            number = ways[number][0]
    renumbered = {number: count for count, number in enumerate(sorted(needed))}
    kept = [(renumbered[way] if isinstance(way, int) else way, edge) for way, edge in map(ways.__getitem__, renumbered)]
    return tuple(kept), {node: renumbered[order[node]] for node in wanted}


@dataclass(frozen=True, slots=True)
class Known:
    """The statistics of the last run, and the ids of the tensors that have not changed since."""

    last: StatisticsTable
    tensors: Collection[str]


class _Repetition(TorchFunctionMode):
    """Takes the statistics of a plan, call by call."""

    def __init__(self, plan: Plan, slab: StatisticsSlab, known: Known | None) -> None:
        super().__init__()
        self.plan = plan
        self.slab = slab
        self.done = 0
        self.graphs = iter(plan.graphs)
        self.stop = current_stop()
        self.known = frozenset[int]()
        slab.moments[list(plan.copies), DEAD_FRACTION:] = math.nan
        if known is not None:
            places = [place for place, tensor in enumerate(known.last.tensors) if tensor in known.tensors]
            rows = [plan.rows[known.last.tensors[place]] for place in places]
            slab.moments[rows], slab.counts[rows] = known.last.moments[places], known.last.counts[places]
            slab.values.update(
                (plan.rows[tensor], values) for tensor, values in known.last.values.items() if tensor in known.tensors
            )
            self.known = frozenset(rows)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        step = self._next(func)
        if func in ENTRY_POINTS:
            self._run_backward(func, args, kwargs)
            return None
        if step.before:
            with torch._C.DisableTorchFunction():
                self._summarize(step.before, args, kwargs, ())
        if step.changes or step.before or "out" in kwargs or kwargs.get("inplace"):
            self.settle()
        output = func(*args, **kwargs)
        if not step.is_idle:
            with torch._C.DisableTorchFunction():
                self._take(step, args, kwargs, output)
        return output

    def settle(self) -> None:
        """Finish the statistics of all tensors so far, before one of them changes."""
        try:
            with torch._C.DisableTorchFunction():
                self.slab.settle()
        except RuntimeError as error:
            raise TraceError(str(error)) from None

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `function.apply`; its inputs may appear here for the first time."""
        step = self._next(function)
        with torch._C.DisableTorchFunction():
            self._take(step, args, kwargs, ())
        return run(*args, **kwargs)

    def _run_backward(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Run the engine with the mode on, as the observer does."""
        call = _plain_backward(func, args, kwargs)
        if call is None:
            raise TraceError(f"call {self.done} runs the backward pass with other arguments than the plan")
        nodes = list(_nodes_of(call.roots))
        graph = next(self.graphs, None)
        if graph is None or graph != tuple(name for _, name in nodes):
            raise TraceError(f"call {self.done} runs the backward pass of another graph than the plan's")
        of_leaves: list[RemovableHandle] = []
        for node, name in nodes:
            if name not in self.plan.nodes:
                continue
            # The hooks are gone with the nodes, but for those of leaves, which may be another pass's too.
            handle = node.register_hook(self._after_node(name))
            if name == "AccumulateGrad":
                of_leaves.append(handle)
            elif isinstance(node, torch.autograd.function.BackwardCFunction):
                node.register_prehook(self._before_node(name))
        edges = [get_gradient_edge(root) for root in call.roots]
        try:
            with self:
                call.run(edges, None)
        finally:
            for handle in of_leaves:
                handle.remove()

    def _around_node(self, name: str, grad_outputs: Sequence[Any], grad_inputs: Sequence[Any]) -> None:
        step = self._next(name)
        if not step.is_idle:
            with torch._C.DisableTorchFunction():
                self._take(step, grad_outputs, {}, grad_inputs)

    def _after_node(self, name: str) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        return lambda grad_inputs, grad_outputs: self._around_node(name, grad_outputs, grad_inputs)

    def _before_node(self, name: str) -> Callable[[Sequence[Any]], None]:
        return lambda grad_outputs: self._around_node(name, grad_outputs, ())

    def _next(self, function: Callable[..., Any] | str) -> Step:
        """The plan's step for this call."""
        if self.stop.error is not None:
            self.stop.check()
        steps, done = self.plan.steps, self.done
        # A property's getter is a new object at every call, equal to the last.
        if done == len(steps) or (steps[done].function is not function and steps[done].function != function):
            raise TraceError(f"call {done} is {function}, which differs from the plan")
        self.done = done + 1
        return steps[done]

    def _take(self, step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        slab = self.slab
        self._summarize(step.summaries, args, kwargs, output)
        if step.saved:
            self._take_saved(step, args, kwargs, output)
        for source, index, row, op_name in step.units:
            summarize_units(op_name, _at(source, index, args, kwargs, output), slab, row)

    def _summarize(
        self, wanted: Sequence[tuple[Source, Any, int]], args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        for source, index, row in wanted:
            if row not in self.known:
                self.slab.write(row, _at(source, index, args, kwargs, output))

    def _take_saved(self, step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> None:
        """Take the statistics of the tensors that the call saved."""
        nodes: list[Node] = []
        for origin, edge in step.nodes:
            node = (
                nodes[origin].next_functions[edge][0]
                if isinstance(origin, int)
                else _at(*origin, args, kwargs, output).grad_fn
            )
            if node is None:
                raise TraceError("the plan reads saved tensors of a node that does not exist")
            nodes.append(node)
        kept: dict[int, list[torch.Tensor]] = {}
        for number, place, row in step.saved:
            if number not in kept:
                kept[number] = saved_tensors(nodes[number])
            self.slab.write(row, kept[number][place])


def _plain_backward(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> BackwardCall | None:
    """The call of a backward pass that adds to the `.grad` of all leaves and makes no graph, else None."""
    call = None if func is torch.autograd.grad else BackwardCall.parse(func, args, kwargs)
    return call if call is not None and call.inputs is None and not call.create_graph else None


def _nodes_of(roots: Iterable[torch.Tensor]) -> Iterator[tuple[Node, str]]:
    """The nodes of a backward pass with their names, depth first: in the same order for equal graphs."""
    met = set[Node]()
    pending = [root.grad_fn for root in roots if root.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node in met:
            continue
        met.add(node)
        yield node, sys.intern(type(node).__name__)
        pending += [target for target, _ in node.next_functions if target is not None]


def _at(source: Source, index: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
    found: Any = output if source == "output" else args if source == "argument" else kwargs
    try:
        for each in index or ():
            found = found[each]
    except (LookupError, TypeError):
        found = None
    if not isinstance(found, torch.Tensor):
        raise TraceError(f"the plan takes statistics of {source} {index}, which is not a tensor")
    return found


def repeat(
    plan: Plan, program: Callable[[], None], known: Known | None = None, *, beside: bool = False
) -> StatisticsTable:
    """Run `program` and take its statistics at the calls of the plan: the numbers of a recording.

    Args:
        plan: of a recording of the same program.
        program: runs it once more.
        known: rows that need not be taken again.
        beside: take the statistics in a second thread, beside the program. Its tensors must not lose their memory.
            They may change by functions whose names end in `_`, by assignments, `out=` and `inplace=True`, but not by
            others, such as the buffers of a batch norm.

    Raises:
        TraceError: the program called other functions than the plan's, or the plan is not complete; or a tensor changed
            before its statistics were taken.
        ChainruleError: the work of this thread was asked to stop.
    """
    if not plan.complete:
        raise TraceError("the plan is not complete: no call gives some of the statistics of this recording")
    slab = StatisticsSlab(plan.size, beside=beside)
    repetition = _Repetition(plan, slab, known)
    thread = threading.get_ident()
    custom_functions.watch(thread, repetition.run_function)
    try:
        with repetition:
            program()
    finally:
        custom_functions.unwatch(thread)
    if repetition.done != len(plan.steps):
        raise TraceError(f"the program made {repetition.done} calls; the plan has {len(plan.steps)}")
    repetition.settle()
    return _table(plan, slab)


def _table(plan: Plan, slab: StatisticsSlab) -> StatisticsTable:
    """The rows of the plan's tensors. A copy has its source's, but for the columns that depend on the shape."""
    rows = list(plan.rows.values())
    sources = [plan.copies.get(row, row) for row in rows]
    moments, counts = slab.moments, slab.counts
    taken = moments[sources]
    copies = [place for place, row in enumerate(rows) if row in plan.copies]
    taken[copies, DEAD_FRACTION:] = moments[[rows[place] for place in copies], DEAD_FRACTION:]
    return StatisticsTable(tuple(plan.rows), taken, counts[sources], slab.values_of(plan.rows, rows))
