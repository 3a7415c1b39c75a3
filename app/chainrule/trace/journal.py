"""The recording while it is being made: rows of ops and tensors, and the row of each live tensor.

A live tensor is identified by its `id()` with a weak reference: no tensor is kept alive, and a reused id is noticed. A
tensor that an op changed in place is a new value with a new row.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import torch
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import is_functorch_wrapped_tensor as _is_functorch_wrapped_tensor
from torch._C._functorch import is_legacy_batchedtensor as _is_legacy_batchedtensor
from torch.utils._python_dispatch import _pop_mode, _push_mode

from chainrule.stats import SMALL, StatisticsSlab, unsupported
from chainrule.trace import native, ops
from chainrule.trace.graph import Phase
from chainrule.trace.plan import Plan
from chainrule.trace.units import summarize_units

NO_ROW = -1

_STRIDED = torch.strided
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def address(tensor: torch.Tensor) -> int | None:
    """The address of a tensor's elements; None for tensors without plain memory."""
    if tensor.layout is not _STRIDED or tensor.is_meta or tensor.is_nested:
        return None
    if _is_functorch_wrapped_tensor(tensor) or _is_legacy_batchedtensor(tensor):
        return None
    return tensor.data_ptr()


def version_of(tensor: torch.Tensor) -> int:
    """The count of writes to a tensor's memory; -1 for a tensor of inference mode, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


def grad_fn_of(tensor: torch.Tensor) -> Any:
    """The autograd node of a tensor; None for a leaf, and for a view made under no_grad whose base was written since.

    Autograd refuses to tell it of such a view, as `nn.Embedding(padding_idx=0)` makes one.
    """
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a DTensor that this rank holds; any other tensor itself."""
    local = None if type(tensor) in _PLAIN else getattr(tensor, "_local_tensor", None)
    return local if isinstance(local, torch.Tensor) else tensor


@contextmanager
def out_of_sight() -> Iterator[None]:
    """Switches the program's dispatch modes (a FLOP counter, a logger) off, for calls of the recorder."""
    modes = [_pop_mode() for _ in range(_len_torch_dispatch_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


@dataclass(slots=True)
class OpRow:
    """One op; tensors, modules and the twin are row numbers. `by_hand`: part of a backward without autograd."""

    name: str
    phase: Phase
    module: int
    attributes: dict[str, Any]
    inputs: list[int]
    outputs: list[int]
    twin: int = NO_ROW
    source: tuple[CodeType, int] | None = None
    microseconds: float = 0.0
    by_hand: bool = False


@dataclass(slots=True)
class TensorRow:
    """One tensor; `producer`, `module`, `gradient_of`, `share_of` and `statistics` are row numbers."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    module: int
    producer: int
    statistics: int
    gradient_of: int = NO_ROW
    share_of: int = NO_ROW
    note: str | None = None


@dataclass(slots=True)
class PassRow:
    """One outermost call of autograd, which made the tensor rows from `first` up to `end`.

    `root`: the row of its root, NO_ROW for several or one that is not known; `value`: of a root with one element.
    `reaches_parameters`: it adds to `.grad`, or `autograd.grad` was asked for parameters.
    """

    root: int
    value: float | None
    reaches_parameters: bool
    first: int
    end: int = NO_ROW


@dataclass(slots=True)
class ModuleRow:
    """One place in the hierarchy of modules."""

    path: str
    type: str


if native.observer is not None:
    OpRow = native.observer.OpRow  # type: ignore[misc]
    TensorRow = native.observer.TensorRow  # type: ignore[misc]


@native.compiled
class Journal(native.JournalCore):
    """Everything recorded so far. `saved`: (tensor, the op that keeps it)."""

    def __init__(self, on_tensor: Callable[[str, torch.Tensor], None] | None = None, plan: Plan | None = None) -> None:
        self.ops: list[OpRow] = []
        self.tensors: list[TensorRow] = []
        self.modules: list[ModuleRow] = []
        self.passes: list[PassRow] = []
        self.groups: set[int] = set()  # modules that are ops of the program, at level aten
        self.saved: dict[tuple[int, int], None] = {}
        self.slab = StatisticsSlab()
        self.on_tensor = on_tensor
        self.plan = plan
        # By id(): a live tensor, its row of `tensors`, and the version of its memory in this row.
        self._references: dict[int, weakref.ref[torch.Tensor]] = {}
        self._rows: dict[int, int] = {}
        self._versions: dict[int, int] = {}
        self._shapes: dict[torch.Size, tuple[int, ...]] = {}
        self._module_rows: dict[str, int] = {}
        self._last_change: dict[int, int] = {}

    def module(self, path: str, type_name: str) -> int:
        """The row of the module at `path`, made on first sight."""
        row = self._module_rows.get(path)
        if row is None:
            row = self._module_rows[path] = len(self.modules)
            self.modules.append(ModuleRow(path, type_name))
        return row

    def find(self, tensor: torch.Tensor) -> int:
        """The row of a live tensor, or NO_ROW if it has not been seen."""
        key = id(tensor)
        reference = self._references.get(key)
        if reference is None or reference() is not tensor:
            return NO_ROW
        version = self._versions[key]
        if version >= 0 and version != tensor._version:
            return self._changed_elsewhere(tensor, self._rows[key])
        return self._rows[key]

    def row_of(self, tensor: torch.Tensor) -> int:
        """`find`, also if the memory of the tensor has been changed since."""
        reference = self._references.get(id(tensor))
        return self._rows[id(tensor)] if reference is not None and reference() is tensor else NO_ROW

    def remember(self, tensor: torch.Tensor, row: int) -> None:
        """Set the row of a live tensor, and of the local part of a DTensor."""
        if (local := local_part(tensor)) is not tensor:
            self.remember(local, row)
        key = id(tensor)
        self._references[key] = weakref.ref(tensor)
        self._rows[key] = row
        self._versions[key] = version_of(tensor)

    def add_tensor(
        self,
        tensor: torch.Tensor,
        role: str,
        module: int,
        producer: int = NO_ROW,
        name: str = "",
        same_values_as: int = NO_ROW,
    ) -> int:
        """Record a new value with its statistics, copied from the row `same_values_as` where its elements are those.

        The statistics of a small tensor are computed again with its values, which may be in another order. The value of
        a DTensor is the part that this rank has.
        """
        tensor = local_part(tensor)
        note = None
        statistics = NO_ROW
        if same_values_as != NO_ROW and tensor.numel() > SMALL:
            source = self.tensors[same_values_as].statistics
            if source != NO_ROW:
                statistics = self.slab.copy(source)
                if self.plan is not None:
                    self.plan.copied(source, statistics)
        if statistics == NO_ROW:
            statistics, note = self._summarize(tensor)
        row = len(self.tensors)
        if self.on_tensor is not None:
            self.on_tensor(f"t{row}", tensor)
        shape: tuple[int, ...] = ()
        if note is None or not tensor.is_nested:
            size = tensor.shape
            # One tuple per shape spares the garbage collector the others: few shapes, many tensors.
            known = self._shapes.get(size)
            shape = known if known is not None else self._shapes.setdefault(size, tuple(size))
        self.tensors.append(
            TensorRow(name, role, shape, tensor.dtype, module, producer, statistics, NO_ROW, NO_ROW, note)
        )
        return row

    def _summarize(self, tensor: torch.Tensor) -> tuple[int, str | None]:
        """The row of a tensor's statistics, or NO_ROW and the reason."""
        statistics = self.slab.take_at_once(tensor)
        if statistics == NO_ROW:
            note = unsupported(tensor)
            if note is not None:
                return NO_ROW, note
            try:
                with out_of_sight():
                    statistics = self.slab.take(tensor)
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                # A tensor that torch cannot read this way must not break the program.
                return NO_ROW, f"no statistics: {str(error).splitlines()[0]}"
        if self.plan is not None:
            self.plan.summarized(tensor, statistics)
        return statistics, None

    def add_unit_statistics(self, op_name: str, tensor: torch.Tensor, row: int) -> None:
        """Record dead units or saturation, which need the live activation."""
        statistics = self.tensors[row].statistics
        if statistics == NO_ROW or not tensor.is_floating_point() or tensor.numel() == 0:
            return
        with out_of_sight():
            summarize_units(op_name, tensor, self.slab, statistics)
        if self.plan is not None:
            self.plan.summarized(tensor, statistics, op_name)

    def same_values(self, name: str, tensor: torch.Tensor, source: torch.Tensor, source_row: int) -> int:
        """`source_row` if `tensor`, made by op `name` from `source`, is a view of exactly the same elements."""
        if (
            name in ops.VIEWS
            and tensor.dtype == source.dtype
            and not tensor.is_nested
            and tensor.numel() == source.numel()
            and (start := address(tensor)) is not None
            and start == address(source)
        ):
            return source_row
        return NO_ROW

    def live_with(self, attribute: str) -> list[tuple[torch.Tensor, int]]:
        """The tensors that are still alive and were given this attribute, with their rows."""
        pairs = ((reference(), self._rows[key]) for key, reference in self._references.items())
        return [(tensor, row) for tensor, row in pairs if tensor is not None and attribute in tensor.__dict__]

    def changed_by(self, tensor: torch.Tensor, op: int) -> None:
        """`op` changed the memory of `tensor` in place: its other views have new values as well."""
        if address(tensor):  # not of an empty tensor, nor of a subclass without memory of its own
            self._last_change[tensor.untyped_storage().data_ptr()] = op

    def writer(self, tensor: torch.Tensor) -> int:
        """The op that last changed the memory of `tensor` in place, or NO_ROW."""
        return self._last_change.get(tensor.untyped_storage().data_ptr(), NO_ROW) if address(tensor) else NO_ROW

    def _changed_elsewhere(self, tensor: torch.Tensor, row_before: int) -> int:
        """A new row for a tensor whose memory was changed through another tensor since it was last seen."""
        before = self.tensors[row_before]
        producer = self.writer(tensor)
        row = self.add_tensor(tensor, before.role, before.module, producer, before.name)
        if producer != NO_ROW:
            self.ops[producer].outputs.append(row)
        self.remember(tensor, row)
        return row

    def reduced(self, share: int, row: int) -> None:
        """A collective made the tensor `row` of `share` and the tensors of other ranks; both may be gradients."""
        of = self.tensors[share].gradient_of
        if of != NO_ROW:
            self.tensors[share].gradient_of, self.tensors[share].share_of = NO_ROW, of
            self.tensors[row].role, self.tensors[row].gradient_of = "gradient", of

    def rows_with_statistics(self) -> dict[str, int]:
        """The slab's rows of the tensors with statistics, by id."""
        return {f"t{row}": tensor.statistics for row, tensor in enumerate(self.tensors) if tensor.statistics != NO_ROW}

    def add_op(self, row: OpRow) -> int:
        """Record an op and return its row."""
        self.ops.append(row)
        return len(self.ops) - 1
