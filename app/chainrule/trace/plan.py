"""The plan of a recording: at which call which statistics are taken. With it, the same program is repeated cheaply.

A program that calls the same torch functions in the same order makes the same graph. Of its second run only the
numbers are new, so nothing but the statistics is taken, each at the call where the recording took it:

    record(…, plan=Plan())   ──▶  plan.steps: [(function, [what to take of its arguments and its output])]
    repeat(plan, program)    ──▶  the statistics of this run, row by row as the recording had them

Only programs with a backward pass written by hand are repeated: what autograd's engine makes passes by no call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from chainrule.errors import TraceError
from chainrule.stats import StatisticsSlab, StatisticsTable
from chainrule.trace.units import summarize_units

Source = Literal["argument", "keyword", "output"]


@dataclass(slots=True)
class Step:
    """One call of a torch function, and the rows of statistics that are taken there."""

    function: Callable[..., Any]
    summaries: list[tuple[Source, Any, int]] = field(default_factory=list)  # where the tensor is, and its row
    units: list[tuple[Source, Any, int, str]] = field(default_factory=list)  # the same, and the activation
    copies: list[tuple[int, int]] = field(default_factory=list)  # from row, to row


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

    def begin(self, function: Callable[..., Any]) -> None:
        """A call begins."""
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
        # Taken in a hook of the engine, or when a recording ends: no call will show it again.
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


class _Repetition(TorchFunctionMode):
    """Takes the statistics of a plan, call by call."""

    def __init__(self, plan: Plan, slab: StatisticsSlab) -> None:
        super().__init__()
        self.plan = plan
        self.slab = slab
        self.done = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if self.done == len(self.plan.steps) or self.plan.steps[self.done].function != func:
            raise TraceError(f"call {self.done} is of {func}, which the plan does not say")
        step = self.plan.steps[self.done]
        self.done += 1
        slab = self.slab
        for source, index, row in step.summaries:
            slab.write(row, _at(source, index, args, kwargs, output))
        for origin, row in step.copies:
            slab.write_copy(origin, row)
        for source, index, row, op_name in step.units:
            summarize_units(op_name, _at(source, index, args, kwargs, output), slab, row)
        return output


def _at(source: Source, index: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
    if source == "output":
        found = output if index is None else output[index]
    else:
        found = args[index] if source == "argument" else kwargs[index]
    assert isinstance(found, torch.Tensor)
    return found


def repeat(plan: Plan, program: Callable[[], None]) -> StatisticsTable:
    """Run `program` and take its statistics as the plan says; the numbers are those that a recording would take.

    Raises:
        TraceError: it called other functions than the plan's, so that its numbers would be put in the wrong places; or
            the plan is not complete.
    """
    if not plan.complete:
        raise TraceError("this recording took statistics that no call shows again")
    slab = StatisticsSlab(plan.size)
    repetition = _Repetition(plan, slab)
    with repetition:
        program()
    if repetition.done != len(plan.steps):
        raise TraceError(f"{repetition.done} calls, where the plan has {len(plan.steps)}")
    return slab.table(list(plan.rows), list(plan.rows.values()))
