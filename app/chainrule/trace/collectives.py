"""Collectives: the calls between the ranks of a distributed run, caught for the threads that are being recorded.

    torch.distributed, FSDP, pipelines    call methods of ProcessGroup, which are replaced during a recording
    DTensor                               calls functional collectives, which are torch ops
    DDP                                   calls its collectives from C++: `buckets` tells which gradients it reduced

A collective is an op with the attributes `group` and `ranks`. The tensors that it writes are recorded when its `wait`
returns: a recording that waits earlier could stop all ranks, if a rank has to send something first. Only functional
collectives are waited for at once, because DTensor reads their results next.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from chainrule.trace import sources
from chainrule.trace.graph import Phase
from chainrule.trace.journal import NO_ROW, Journal, OpRow
from chainrule.trace.nested import nested_tensors

METHODS: Mapping[str, tuple[str, int | None, int | None]] = {
    **dict.fromkeys(("allreduce", "allreduce_coalesced"), ("all_reduce", 0, 0)),
    "broadcast": ("broadcast", 0, 0),
    "reduce": ("reduce", 0, 0),
    **dict.fromkeys(
        "allgather allgather_coalesced _allgather_base allgather_into_tensor_coalesced all_gather_single "
        "all_gather_single_coalesced".split(),
        ("all_gather", 0, 1),
    ),
    **dict.fromkeys(
        "reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced reduce_scatter_single "
        "reduce_scatter_single_coalesced".split(),
        ("reduce_scatter", 0, 1),
    ),
    **dict.fromkeys(("alltoall", "alltoall_base", "all_to_all_single"), ("all_to_all", 0, 1)),
    "gather": ("gather", 0, 1),
    "scatter": ("scatter", 0, 1),
    "send": ("send", None, 0),
    **dict.fromkeys(("recv", "recv_anysource"), ("recv", 0, None)),
    "barrier": ("barrier", None, None),
}
"""Method of ProcessGroup → name of the collective, and the arguments that it writes and reads. torch 2.13 has several
names for one collective; a method that this torch lacks is left out."""

_watchers: dict[int, Collectives] = {}
_lock = threading.Lock()
_originals: list[tuple[type, str, Any]] = []


@dataclass(eq=False, slots=True)
class _Pending:
    """A collective that nobody has waited for yet."""

    op: int
    work: Any
    began: float
    written: list[weakref.ref[torch.Tensor]]
    before: dict[int, int]  # id of a written tensor → its row before


class Collectives:
    """Records the collectives of one thread, from `start` to `stop`."""

    def __init__(
        self,
        journal: Journal,
        input_row: Callable[[torch.Tensor], int],
        place: Callable[[FrameType | None], tuple[Phase, int]],
    ) -> None:
        """Take the journal, a function that finds or makes the row of a tensor, and one that tells phase and module."""
        self._journal = journal
        self._input_row = input_row
        self._place = place
        self._pending: list[_Pending] = []
        self._thread = 0

    def start(self, thread: int) -> None:
        """Begin, if this process is a rank."""
        if not is_distributed():
            return
        with _lock:
            if not _watchers:
                _replace_methods()
            self._thread = thread
            _watchers[thread] = self

    def stop(self) -> None:
        """End."""
        if _watchers.get(self._thread) is not self:
            return
        with _lock:
            del _watchers[self._thread]
            if not _watchers:
                for owner, name, original in _originals:
                    setattr(owner, name, original)
                _originals.clear()
        # The tensors of the others may not be written yet.
        self._finish([each for each in self._pending if each.work is not None and each.work.is_completed()])

    def synchronized(self, module: DistributedDataParallel, row: int) -> None:
        """DDP has just broadcast the buffers of one rank to the others, from C++."""
        journal = self._journal
        with torch._C.DisableTorchFunction():
            before = [self._input_row(buffer) for buffer in module.modules_buffers]
            op = journal.add_op(OpRow("broadcast", "forward", row, _of_group(module.process_group), before, []))
            for buffer, given in zip(module.modules_buffers, before, strict=True):
                self._record_output(op, buffer, given)

    def call(self, method: str, run: Callable[..., Any], group: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """Run a method of a process group and record it."""
        name, written_place, read_place = METHODS[method]
        read, written = (
            [] if place is None else nested_tensors(args[place : place + 1]) for place in (read_place, written_place)
        )
        frame = sources.user_frame(sys._getframe(2))
        journal = self._journal
        with torch._C.DisableTorchFunction():
            inputs = [self._input_row(tensor) for tensor in read]
            phase, module = self._place(frame)
            given = _of_group(group) | _of_options(name, group, args)
        began = perf_counter()
        work = run(group, *args, **kwargs)
        source = (frame.f_code, frame.f_lineno) if frame is not None else None
        op = journal.add_op(OpRow(name, phase, module, given, inputs, [], NO_ROW, source))
        before = {id(tensor): row for tensor, row in zip(read, inputs, strict=True)}
        self._pending.append(_Pending(op, work, began, [weakref.ref(each) for each in written], before))
        return work

    def coalesced(self, work: Any) -> None:
        """The collectives that were called without a result have this one together."""
        for each in self._pending:
            each.work = each.work or work

    def waited(self, work: Any) -> None:
        """`work` is done, as far as the calling thread or stream can see."""
        self._finish([each for each in self._pending if each.work is work])

    def _finish(self, done: Sequence[_Pending]) -> None:
        self._pending = [each for each in self._pending if each not in done]
        now = perf_counter()
        with torch._C.DisableTorchFunction():
            for each in done:
                self._journal.ops[each.op].microseconds = (now - each.began) * 1e6
                for reference in each.written:
                    if (tensor := reference()) is not None:
                        self._record_output(each.op, tensor, each.before.get(id(tensor), NO_ROW))

    def _record_output(self, op: int, tensor: torch.Tensor, before: int) -> None:
        journal = self._journal
        role, name = "intermediate", ""
        if before != NO_ROW and journal.tensors[before].role in ("buffer", "parameter"):
            role, name = journal.tensors[before].role, journal.tensors[before].name
        row = journal.add_tensor(tensor, role, journal.ops[op].module, op, name)
        journal.ops[op].outputs.append(row)
        journal.remember(tensor, row)
        journal.changed_by(tensor, op)
        if before != NO_ROW:
            journal.reduced(before, row)


def is_distributed() -> bool:
    """Whether this process is a rank of several."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def rank_environment(model: object) -> dict[str, Any]:
    """Rank, number of ranks, and the device mesh of a model with DTensors; empty if this process is no rank."""
    if not is_distributed():
        return {}
    distributed = torch.distributed
    found: dict[str, Any] = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    for parameter in model.parameters() if isinstance(model, nn.Module) else ():
        if (mesh := getattr(parameter, "device_mesh", None)) is not None:
            names = mesh.mesh_dim_names or [str(place) for place in range(mesh.ndim)]
            return {**found, "mesh": dict(zip(names, mesh.shape, strict=True))}
    return found


def describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a functional collective: its last text is the name of the group."""
    texts = [each for each in (*args, *kwargs.values()) if isinstance(each, str)]
    group = torch._C._distributed_c10d._resolve_process_group(texts[-1])  # type: ignore[arg-type]
    return _of_group(group) | ({"reduce": texts[0]} if len(texts) > 1 else {})


def wait(output: Any) -> None:
    """Wait for the result of a functional collective; a second wait returns at once."""
    for tensor in nested_tensors((output,)):
        torch.ops._c10d_functional.wait_tensor(tensor)


SHARDING = frozenset(("unshard", "wait_for_unshard", "post_backward", "finalize_backward"))
"""Methods of FSDP's FSDPParamGroup that gather parameters or scatter gradients."""

MAX_CALLERS = 16


def sharding_group(frame: FrameType | None) -> tuple[str, str] | None:
    """Path and kind of a group, if FSDP is gathering the parameters of a module, or scattering their gradients."""
    for _ in range(MAX_CALLERS):
        if frame is None:
            break
        if frame.f_code.co_name in SHARDING and frame.f_code.co_filename.endswith("_fsdp_param_group.py"):
            path = getattr(frame.f_locals.get("self"), "_module_fqn", None)
            return f"{path}.FSDP" if path else "FSDP", "FSDP"
        frame = frame.f_back
    return None


def buckets(module: DistributedDataParallel) -> tuple[str, dict[str, Any], list[list[nn.Parameter]]]:
    """Name and attributes of the op by which DDP reduces gradients, and the parameters of each bucket."""
    if getattr(module, "_comm_hooks", ()):  # such a hook may do anything
        return "comm_hook", _of_group(module.process_group), [list(module.parameters())]
    return "all_reduce", {**_of_group(module.process_group), "reduce": "avg"}, _buckets(module)


def _buckets(module: DistributedDataParallel) -> list[list[nn.Parameter]]:
    """As DDP logs them; all parameters in one if they were frozen or unfrozen since DDP was made.

    The reducer itself tells its buckets only with a copy of all gradients. The log is one pass late after a change.
    """
    ignored = module.parameters_to_ignore
    parameters = [each for name, each in module.module.named_parameters() if each.requires_grad and name not in ignored]
    logged: Mapping[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    rebuilt = logged.get("rebuilt_per_bucket_param_indices")
    sizes = [
        int(size) for size in str(logged.get("rebuilt_bucket_sizes" if rebuilt else "bucket_sizes", "0")).split(",")
    ]
    if rebuilt:
        indices = [[int(index) for index in bucket.split()] for bucket in rebuilt.split(",")]
        if max(map(max, indices)) < len(parameters):
            found = [[parameters[index] for index in bucket] for bucket in indices]
            if sizes == [sum(each.nbytes for each in bucket) for bucket in found]:
                return found
        return [list(module.parameters())]
    left = iter(parameters)  # in the first passes the last bucket has the first parameters
    found = [_taken(left, size) for size in sizes[:0:-1]]
    return [list(left), *reversed(found)]


def _taken(left: Iterator[nn.Parameter], size: int) -> list[nn.Parameter]:
    """The next parameters, until they have this many bytes."""
    found: list[nn.Parameter] = []
    while sum(each.nbytes for each in found) < size and (each := next(left, None)) is not None:
        found.append(each)
    return found


def _of_group(group: Any) -> dict[str, Any]:
    ranks = torch.distributed.get_process_group_ranks(group)
    return {"group": group.group_desc or group.group_name, "ranks": ranges(ranks)}


def ranges(ranks: Sequence[int]) -> str:
    """Ranks as text: `0-3, 6`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _of_options(name: str, group: Any, args: Sequence[Any]) -> dict[str, Any]:
    """The reduction of a collective, or the rank at the other end."""
    if name in ("send", "recv") and len(args) > 2:
        return {"peer": torch.distributed.get_global_rank(group, args[1])}
    for reduction in (getattr(each, "reduceOp", each) for each in args):
        if isinstance(reduction, torch.distributed.ReduceOp):
            kinds: Mapping[str, Any] = torch.distributed.ReduceOp.RedOpType.__members__
            return {"reduce": next((name.lower() for name, kind in kinds.items() if reduction == kind), "other")}
    return {}


def _replace_methods() -> None:
    from torch.distributed import ProcessGroup, Work

    def observed(method: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            watcher = _watchers.get(threading.get_ident())
            return run(group, *args, **kwargs) if watcher is None else watcher.call(method, run, group, args, kwargs)

        return call

    def told(run: Callable[..., Any], tell: Callable[[Collectives, Any, Any], None]) -> Callable[..., Any]:
        def call(subject: Any, *args: Any, **kwargs: Any) -> Any:
            result = run(subject, *args, **kwargs)
            watcher = _watchers.get(threading.get_ident())
            if watcher is not None:
                tell(watcher, subject, result)
            return result

        return call

    made = {name: observed(name, getattr(ProcessGroup, name)) for name in METHODS if hasattr(ProcessGroup, name)}
    ended = told(ProcessGroup._end_coalescing, lambda watcher, _, work: watcher.coalesced(work))
    waits = told(Work.wait, lambda watcher, work, _: watcher.waited(work))
    replaced = [(ProcessGroup, name, call) for name, call in made.items()]
    for owner, name, call in (*replaced, (ProcessGroup, "_end_coalescing", ended), (Work, "wait", waits)):
        _originals.append((owner, name, vars(owner)[name]))  # what `getattr` gives would not bind
        setattr(owner, name, call)
