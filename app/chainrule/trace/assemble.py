"""From the journal to the trace: names, twins, consumers and ids, once everything has been seen."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np
import torch

from chainrule.errors import MAX_NAME, plain_name
from chainrule.memory import without_collection
from chainrule.trace import native, ops
from chainrule.trace.flops import backward_flops, flops
from chainrule.trace.graph import Failure, Module, Op, Saved, Source, Tensor, Trace
from chainrule.trace.journal import NO_ROW, Journal, OpRow, TensorRow, dtype_name, out_of_sight
from chainrule.trace.records import Records
from chainrule.trace.sources import describe_source, snippets


@without_collection()
def assemble(
    journal: Journal,
    *,
    outputs: Mapping[str, str],
    model_folder: str | None,
    loss_row: int,
    loss: float | None,
    failure: Failure | None,
    milliseconds: float,
) -> Trace:
    """The finished trace of a journal. `outputs` names the outputs of modules: {"layers.0": "l1"}."""
    _name_outputs(journal, outputs)
    _find_preactivations(journal)
    _find_twins(journal)
    _find_kept_by_hand(journal)
    of_other_passes = _of_other_passes(journal, loss_row)
    _name_tensors(journal, of_other_passes)
    named: list[OpRow | TensorRow] = [*journal.tensors, *journal.ops]
    for each in named:
        if len(each.name) > MAX_NAME or not each.name.isascii():
            each.name = plain_name(each.name)
    for row in of_other_passes:
        journal.tensors[row].gradient_of = NO_ROW
    modules, module_ids = _modules(journal)

    op_ids = [f"n{row}" for row in range(len(journal.ops))]
    tensor_ids = [f"t{row}" for row in range(len(journal.tensors))]
    consumers: list[list[str]] = [[] for _ in journal.tensors]
    for op_id, op in zip(op_ids, journal.ops, strict=True):
        for row in op.inputs:
            of_tensor = consumers[row]
            if not of_tensor or of_tensor[-1] is not op_id:
                of_tensor.append(op_id)
    places = dict.fromkeys(op.source for op in journal.ops if op.source is not None)
    sources = {place: describe_source(*place, model_folder) for place in places}
    with_statistics = [
        (name, row)
        for name, tensor in zip(tensor_ids, journal.tensors, strict=True)
        if (row := tensor.statistics) != NO_ROW
    ]
    with out_of_sight():  # fetches the statistics from the device
        statistics = journal.slab.table([name for name, _ in with_statistics], [row for _, row in with_statistics])

    return Trace(
        modules=modules,
        ops=Records(Op, _op_fields(journal.ops, op_ids, tensor_ids, module_ids, _costs(journal), sources)),
        tensors=Records(
            Tensor,
            _tensor_fields(
                journal.tensors,
                tensor_ids,
                op_ids,
                module_ids,
                consumers,
                {dtype: dtype_name(dtype) for dtype in {tensor.dtype for tensor in journal.tensors}},
            ),
        ),
        saved=Records(Saved, [{"tensor": tensor_ids[tensor], "op": op_ids[op]} for tensor, op in journal.saved]),
        statistics=statistics,
        loss=loss,
        error=failure,
        sources=snippets(sources, model_folder),
        timing={"record_ms": milliseconds, "op_us": np.round([op.microseconds for op in journal.ops], 1).tolist()},
    )


def _op_fields(
    ops: list[OpRow],
    op_ids: list[str],
    tensor_ids: list[str],
    module_ids: dict[int, str],
    costs: list[tuple[int, int]],
    sources: dict[tuple[CodeType, int], Source],
) -> list[dict[str, Any]]:
    return [
        {
            "id": op_id,
            "name": op.name,
            "phase": op.phase,
            "module": module_ids[op.module],
            "attributes": op.attributes,
            "inputs": tuple([tensor_ids[row] for row in op.inputs]),
            "outputs": tuple([tensor_ids[row] for row in op.outputs]),
            "twin": None if op.twin == NO_ROW else op_ids[op.twin],
            "flops": work,
            "bytes": moved_bytes,
            "source": None if op.source is None else sources[op.source],
        }
        for op_id, op, (work, moved_bytes) in zip(op_ids, ops, costs, strict=True)
    ]


def _tensor_fields(
    tensors: list[TensorRow],
    tensor_ids: list[str],
    op_ids: list[str],
    module_ids: dict[int, str],
    consumers: list[list[str]],
    dtypes: dict[torch.dtype, str],
) -> list[dict[str, Any]]:
    return [
        {
            "id": tensor_id,
            "name": tensor.name,
            "role": tensor.role,
            "shape": tensor.shape,
            "dtype": dtypes[tensor.dtype],
            "module": module_ids[tensor.module],
            "producer": None if tensor.producer == NO_ROW else op_ids[tensor.producer],
            "consumers": tuple(of_tensor),
            "gradient_of": None if tensor.gradient_of == NO_ROW else tensor_ids[tensor.gradient_of],
            "note": tensor.note,
        }
        for tensor_id, tensor, of_tensor in zip(tensor_ids, tensors, consumers, strict=True)
    ]


if native.observer is not None:
    _op_fields, _tensor_fields = native.observer.op_fields, native.observer.tensor_fields


def _name_outputs(journal: Journal, outputs: Mapping[str, str]) -> None:
    """Give the last forward output of each module in `outputs` (or of a module inside it, or an op) its name."""
    if not outputs:
        return
    last: dict[str, int] = {}
    for op in journal.ops:
        if op.phase == "forward" and op.outputs:
            path = journal.modules[op.module].path
            path = f"{path}.{op.name}" if path else ""
            while path and path not in outputs:
                path = path.rpartition(".")[0]
            if path in outputs:
                last[path] = op.outputs[0]
    for path, row in last.items():
        journal.tensors[row].name = outputs[path]


def _of_other_passes(journal: Journal, loss_row: int) -> frozenset[int]:
    """The gradients of tensors that have another one: that of the loss, else of the last backward pass that has one.

    A pass that only made values, as du/dt in a physics-informed net, comes last, and gives parameters no gradient.
    """
    if len(journal.passes) == 1 and journal.passes[0].reaches_parameters:
        return frozenset()
    tensors = journal.tensors
    found: list[tuple[int, int, int]] = []  # (gradient, its tensor, its pass), the passes in ascending order of rank
    passes = sorted(
        journal.passes, key=lambda each: (each.root == loss_row != NO_ROW, each.reaches_parameters, each.first)
    )
    for rank, each in enumerate(passes):
        for row in range(each.first, each.end):
            of = tensors[row].gradient_of
            if of != NO_ROW:
                is_lost = tensors[of].role == "parameter" and not each.reaches_parameters
                found.append((row, of, NO_ROW if is_lost else rank))
    best = {of: rank for _, of, rank in found if rank != NO_ROW}
    return frozenset(row for row, of, rank in found if best.get(of) != rank)


def _name_tensors(journal: Journal, of_other_passes: Collection[int]) -> None:
    """A gradient is named after its tensor (`l1.g`), another op output after its module and op (`layers.0.add`)."""
    used: dict[str, int] = {}
    gradients = []
    for row, tensor in enumerate(journal.tensors):
        if tensor.gradient_of != NO_ROW or tensor.share_of != NO_ROW:
            gradients.append((tensor.gradient_of == NO_ROW, row))
        elif not tensor.name:
            name = tensor.role
            if tensor.producer != NO_ROW:
                op = journal.ops[tensor.producer]
                path = journal.modules[op.module].path
                name = f"{path}.{op.name}" if path else op.name
            count = used[name] = used.get(name, -1) + 1
            tensor.name = f"{name}_{count}" if count else name
    unnumbered: set[str] = set()
    for is_share, row in sorted(gradients):  # shares can be of gradients
        tensor = journal.tensors[row]
        of = tensor.share_of if is_share else tensor.gradient_of
        base = journal.tensors[of].name + (".g share" if is_share else ".g")
        if is_share or row in of_other_passes or base in unnumbered:
            # Two passes make two gradients of one tensor, and a tensor changed in place has the name of the one before.
            count = used[base] = used.get(base, 0 if is_share else 1) + 1
            tensor.name = f"{base} {count}"
        else:
            unnumbered.add(base)
            tensor.name = base


def _find_preactivations(journal: Journal) -> None:
    """In a layer written as product plus bias, the preactivation is the sum, not the product."""
    for op in journal.ops:
        if op.phase == "forward" and op.name in ("add", "add_") and op.outputs:
            for row in op.inputs:
                product = journal.tensors[row]
                if product.role == "preactivation" and product.producer != NO_ROW:
                    maker = journal.ops[product.producer]
                    if maker.module == op.module and maker.name in ("matmul", "mm", "bmm"):
                        product.role = "intermediate"
                        journal.tensors[op.outputs[0]].role = "preactivation"


def _find_twins(journal: Journal) -> None:
    """Pair the backward ops that no autograd node has paired: hand-written ones, and those inside a custom Function.

    Within one module: an op that makes the gradient of a tensor belongs to the forward op that reads the tensor, or a
    view of it; an op on the way there shares the twin of the op that reads its output; any other belongs to the
    module's first op.
    """
    _pair_recomputed(journal)
    first = {op.module: row for row, op in _backwards(journal) if op.phase == "forward"}
    if any(op.twin == NO_ROW and op.phase == "backward" for op in journal.ops):
        _pair_by_what_they_read(journal, first)
    for op in journal.ops:
        if op.phase == "forward" or op.twin == NO_ROW:
            continue
        repeats = journal.ops[op.twin].attributes.get("recomputed", False)
        if repeats:
            # The backward of a recomputed op is the backward of the op that it repeats.
            op.twin = journal.ops[op.twin].twin
        if op.twin != NO_ROW and (repeats or not (op.module in first or op.module in journal.groups)):
            op.module = journal.ops[op.twin].module


def _backwards(journal: Journal) -> Iterable[tuple[int, OpRow]]:
    return zip(reversed(range(len(journal.ops))), reversed(journal.ops), strict=True)


def _pair_by_what_they_read(journal: Journal, first: Mapping[int, int]) -> None:
    readers: dict[tuple[int, int], int] = {}
    for row, op in _backwards(journal):
        if op.phase == "forward":
            for tensor in op.inputs:
                # The reader of a view reads the tensor: `x @ w.t()` reads w.
                through = readers.get((op.module, op.outputs[0]), row) if op.name in ops.VIEWS and op.outputs else row
                readers[op.module, tensor] = through
    working_for: dict[int, int] = {}
    for row, op in _backwards(journal):
        if op.phase == "forward" or "graph" in op.attributes:  # an op of a compiled graph has no twin
            continue
        if op.twin == NO_ROW:
            op.twin = _twin(journal, op, readers, working_for, first)
        for tensor in op.inputs:
            working_for[tensor] = row


def _pair_recomputed(journal: Journal) -> None:
    """Pair a recomputed op with the forward op that it repeats: same name, same line (else same module), in order.

    The tensors that it saves belong to that op.
    """
    if not any("recomputed" in op.attributes for op in journal.ops):
        return
    by_line: dict[tuple[object, ...], list[int]] = {}
    by_module: dict[tuple[object, ...], list[int]] = {}
    repeats: dict[int, int] = {}
    for row, op in enumerate(journal.ops):
        line, place = (op.name, op.source), (op.name, op.module)
        if op.phase == "forward":
            by_line.setdefault(line, []).append(row)
            by_module.setdefault(place, []).append(row)
        elif op.attributes.get("recomputed"):
            candidates = by_line.get(line) or by_module.get(place)
            if not candidates:
                continue
            op.twin = repeats[row] = candidates[0]
            original = journal.ops[op.twin]
            by_line[original.name, original.source].remove(op.twin)
            by_module[original.name, original.module].remove(op.twin)
            op.module = original.module
            for output in op.outputs:
                journal.tensors[output].module = op.module
    journal.saved = {(tensor, repeats.get(op, op)): None for tensor, op in journal.saved}


def _twin(
    journal: Journal,
    op: OpRow,
    readers: Mapping[tuple[int, int], int],
    working_for: Mapping[int, int],
    first: Mapping[int, int],
) -> int:
    for output in op.outputs:
        tensor = journal.tensors[output]
        for target in (tensor.gradient_of, tensor.share_of):
            reader = readers.get((op.module, target), NO_ROW)
            if reader != NO_ROW:
                return reader
    for output in op.outputs:
        row = working_for.get(output, NO_ROW)
        if row != NO_ROW and journal.ops[row].module == op.module:
            return journal.ops[row].twin
    own = first.get(op.module, NO_ROW)
    if own == NO_ROW:
        # A module without forward ops (torch's checkpoint): the op that reads its output lies in another one.
        for output in op.outputs:
            row = working_for.get(output, NO_ROW)
            if row != NO_ROW:
                return journal.ops[row].twin
    return own


def _find_kept_by_hand(journal: Journal) -> None:
    """Tensors of the forward pass that a backward written by hand reads were saved for it, by the layer."""
    for op in journal.ops:
        if op.by_hand and op.twin != NO_ROW:
            for row in op.inputs:
                tensor = journal.tensors[row]
                made_forward = tensor.producer == NO_ROW or journal.ops[tensor.producer].phase == "forward"
                if made_forward and tensor.role != "gradient":
                    journal.saved[row, op.twin] = None


def _modules(journal: Journal) -> tuple[tuple[Module, ...], dict[int, str]]:
    """All modules with their ancestors, ids in order of first use, every parent before its children."""
    rows = {module.path: row for row, module in enumerate(journal.modules)}
    ids: dict[str, str] = {}
    modules: list[Module] = []
    for module in journal.modules:
        missing: list[str] = []
        path: str | None = module.path
        while path is not None and path not in ids:
            missing.append(path)
            path = path.rpartition(".")[0] if path else None
        for path in reversed(missing):
            parent = ids[path.rpartition(".")[0]] if path else None
            ids[path] = f"m{len(modules)}"
            type_name = journal.modules[rows[path]].type if path in rows else "container"
            modules.append(Module(ids[path], plain_name(path), plain_name(type_name), parent))
    return tuple(modules), {row: ids[path] for path, row in rows.items()}


def _costs(journal: Journal) -> list[tuple[int, int]]:
    """Floating-point operations and bytes of every op."""
    shapes = [tensor.shape for tensor in journal.tensors]
    sizes = [_bytes(shape, tensor.dtype) for shape, tensor in zip(shapes, journal.tensors, strict=True)]
    saved = {row for row, tensor in enumerate(journal.tensors) if tensor.role == "saved"}
    costs: list[tuple[int, int]] = []
    for op in journal.ops:
        name, inputs, outputs, twin = op.name, op.inputs, op.outputs, op.twin
        read = tuple([shapes[row] for row in inputs])
        made = tuple([shapes[row] for row in outputs if row not in saved])
        if twin != NO_ROW and op.phase == "backward" and op.source is None and "Backward" in name:
            work = _backward_flops(name, journal.ops[twin].name, costs[twin][0], read, made)
        else:
            work = flops(name, read, made, op.attributes) if op.attributes else _flops(name, read, made)
        moved = 0 if name in ops.VIEWS else sum([sizes[row] for row in (*inputs, *outputs)])
        costs.append((work, moved))
    return costs


@lru_cache(4096)
def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


# Few shapes, many ops.
_flops, _backward_flops = lru_cache(4096)(flops), lru_cache(4096)(backward_flops)
