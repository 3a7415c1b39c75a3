"""The full check of a dump, with messages that name the place: its JSON, its form, and what the schema cannot say.

The schema cannot say that ids exist, that ops and tensors agree, that nothing depends on itself, and that columns have
one length. `tests/shared/bad_dumps.py` lists a bad dump for each check.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import orjson

from chainrule.errors import DumpError
from chainrule.stats import BINS, COLUMNS, SMALL
from chainrule.trace.graph import Layer

if TYPE_CHECKING:
    from chainrule.dump.wire import PrecisionErrorsDump, StatisticsDump, TraceDump

MAX_NAMED = 8
"""A message names at most this many members of a cycle."""

MAX_DEPTH = 100
"""Maximum depth of free-form values, so that readers may walk them by recursion."""

REFERENCES: Mapping[str, Mapping[str, str]] = {
    "modules": {"parent": "module"},
    "ops": {"module": "module", "inputs": "tensor", "outputs": "tensor", "twin": "op"},
    "tensors": {"module": "module", "producer": "op", "consumers": "op", "gradient_of": "tensor"},
    "saved": {"tensor": "tensor", "op": "op"},
    "layers": {field.name: "tensor" for field in fields(Layer) if field.name not in ("index", "name")},
    "faults": {"op": "op", "tensor": "tensor"},
}
"""The fields that hold ids, part by part, and the kind of part that each refers to."""


def check_dump(dump: TraceDump) -> None:
    """Check what the schema leaves open.

    Raises:
        DumpError: says what is wrong; `field` is the path of the place, such as `ops[12].inputs[0]`.
    """
    _check_depth(dump)
    modules, ops, tensors = (_index(kind, getattr(dump, kind)) for kind in ("modules", "ops", "tensors"))
    known = {"module": modules, "op": ops, "tensor": tensors}
    for kind, references in REFERENCES.items():
        parts = getattr(dump, kind)
        for name, noun in references.items():
            _check_references(kind, parts, name, noun, known[noun])
    if dump.error is not None and dump.error.op is not None:
        _check_id("op", ops, "error.op", dump.error.op)
    _check_statistics(dump.statistics, tensors)
    for name, values in dump.values.items():
        _check_id("tensor", tensors, f"values.{name}", name)
        shape = dump.tensors[tensors[name]].shape
        if len(values) > SMALL or len(values) != math.prod(shape):
            _fail(
                f"values.{name}",
                f"{len(values)} values for a tensor of shape {shape}; expected one per element, at most {SMALL}",
            )

    if dump.precision is not None:
        _check_precision(dump.precision, tensors)
    producers = [None if tensor.producer is None else ops[tensor.producer] for tensor in dump.tensors]
    makers = ([producers[tensors[name]] for name in op.inputs] for op in dump.ops)
    _check_circles("ops", dump.ops, "depends on its own output", makers)
    for kind, name, index, says in (
        ("modules", "parent", modules, "is inside itself"),
        ("ops", "twin", ops, "is its own twin"),
        ("tensors", "gradient_of", tensors, "is its own gradient"),
    ):
        parts = getattr(dump, kind)
        _check_circles(kind, parts, says, ([index.get(getattr(part, name))] for part in parts))
    _check_agreement(dump, ops, tensors)


def _check_agreement(dump: TraceDump, ops: Mapping[str, int], tensors: Mapping[str, int]) -> None:
    """Check that ops and tensors name each other, and that only backward ops have twins."""
    maker: dict[str, int] = {}
    reads: list[set[str]] = []
    readers = [set(tensor.consumers) for tensor in dump.tensors]
    for row, op in enumerate(dump.ops):
        for place, name in enumerate(op.outputs):
            if name in maker:
                where = f"ops[{row}].outputs[{place}]"
                _fail(where, f"the tensor {shown_json(name)} is already an output of ops[{maker[name]}]")
            maker[name] = row
            producer = dump.tensors[tensors[name]].producer
            if producer != op.id:
                where = f"ops[{row}].outputs[{place}]"
                names = "no producer" if producer is None else f"{shown_json(producer)} as its producer"
                _fail(where, f"the tensor {shown_json(name)} names {names}")
        for place, name in enumerate(op.inputs):
            if op.id not in readers[tensors[name]]:
                _fail(
                    f"ops[{row}].inputs[{place}]",
                    f"the tensor {shown_json(name)} does not have this op among its consumers",
                )
        reads.append(set(op.inputs))
        # Code that is itself differentiated has backward ops whose twins are backward ops.
        if op.twin is not None and op.phase == "forward":
            _fail(f"ops[{row}].twin", "only a backward op has a twin")
    for row, tensor in enumerate(dump.tensors):
        if tensor.producer is not None and tensor.id not in maker:
            _fail(
                f"tensors[{row}].producer",
                f"the op {shown_json(tensor.producer)} does not have this tensor among its outputs",
            )
        for place, name in enumerate(tensor.consumers):
            if tensor.id not in reads[ops[name]]:
                _fail(
                    f"tensors[{row}].consumers[{place}]",
                    f"the op {shown_json(name)} does not have this tensor among its inputs",
                )


def _index(kind: str, parts: Sequence[Any]) -> dict[str, int]:
    index: dict[str, int] = {}
    for row, part in enumerate(parts):
        if part.id in index:
            _fail(f"{kind}[{row}].id", f"the id {shown_json(part.id)} already belongs to {kind}[{index[part.id]}]")
        index[part.id] = row
    return index


def _check_references(kind: str, parts: Sequence[Any], name: str, noun: str, known: Mapping[str, int]) -> None:
    """Check that the ids in a field of all parts exist: one id, a list of ids, or none."""
    for row, part in enumerate(parts):
        value = getattr(part, name)
        if value is None or (value in known if isinstance(value, str) else known.keys() >= set(value)):
            continue
        for place, identifier in enumerate([value] if isinstance(value, str) else value):
            where = f"{kind}[{row}].{name}" if isinstance(value, str) else f"{kind}[{row}].{name}[{place}]"
            _check_id(noun, known, where, identifier)


def _check_id(noun: str, known: Mapping[str, int], where: str, value: str) -> None:
    if value not in known:
        _fail(where, f"the {noun} {shown_json(value)} does not exist")


def _check_circles(kind: str, parts: Sequence[Any], says: str, needs: Iterable[Iterable[int | None]]) -> None:
    """Check that no part depends on itself; `needs` has for each part the rows of those before it."""
    rows = {row: found for row, ids in enumerate(needs) if (found := [each for each in ids if each is not None])}
    # In the order of execution, nothing depends on what comes later.
    if all(max(found) < row for row, found in rows.items()):
        return
    try:
        TopologicalSorter(rows).prepare()
    except CycleError as error:
        circle = error.args[1][:-1]
    else:
        return
    first = circle.index(min(circle))
    names = [shown_json(parts[row].id) for row in (circle[first:] + circle[:first])[:MAX_NAMED]]
    more = f" → … ({len(circle)} in all)" if len(circle) > MAX_NAMED else ""
    path = f"a cycle: {' → '.join(names)}{more} → {names[0]}"
    _fail(f"{kind}[{circle[first]}]", path if len(circle) > 1 else f"{names[0]} {says}")


def _check_statistics(statistics: StatisticsDump, tensors: Mapping[str, int]) -> None:
    seen: set[str] = set()
    for row, identifier in enumerate(statistics.tensor):
        if identifier not in tensors:
            _check_id("tensor", tensors, f"statistics.tensor[{row}]", identifier)
        if identifier in seen:
            _fail(f"statistics.tensor[{row}]", f"the tensor {shown_json(identifier)} has two rows")
        seen.add(identifier)
    rows = len(statistics.tensor)
    histogram = statistics.histogram
    lengths = {name: len(getattr(statistics, name)) for name in COLUMNS}
    lengths |= {f"histogram.{name}": len(getattr(histogram, name)) for name in ("low", "high", "counts")}
    for name, length in lengths.items():
        if length != rows:
            _fail(f"statistics.{name}", f"{length} entries; expected one for each of the {rows} tensors")
    for row, counts in enumerate(histogram.counts):
        if len(counts) != BINS:
            _fail(f"statistics.histogram.counts[{row}]", f"{len(counts)} bins; expected {BINS}")


def _check_precision(precision: PrecisionErrorsDump, tensors: Mapping[str, int]) -> None:
    for place, name in enumerate(precision.tensor):
        _check_id("tensor", tensors, f"precision.tensor[{place}]", name)
    for name in ("error", "expected"):
        length = len(getattr(precision, name))
        if length != len(precision.tensor):
            _fail(
                f"precision.{name}", f"{length} entries; expected one for each of the {len(precision.tensor)} tensors"
            )
    for name, (differing, of) in precision.differing.items():
        _check_id("tensor", tensors, f"precision.differing.{name}", name)
        if differing > of:
            _fail(f"precision.differing.{name}", f"{differing} of {of} elements differ; expected at most {of}")


def shown_json(value: object) -> str:
    """A value as messages quote it, shortened."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _fail(where: str, says: str) -> None:
    raise DumpError(f"{where}: {says}", field=where)


def read_json(content: bytes | str) -> Any:
    """Parse JSON.

    Raises:
        DumpError: it is not JSON, has a number beyond float64's, or is nested too deeply; says where.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DumpError(f"this is not JSON: {error}") from None


def _check_depth(dump: TraceDump) -> None:
    free = [(name, getattr(dump, name)) for name in ("spec", "environment", "timing")]
    free += [(f"ops[{row}].attributes", op.attributes) for row, op in enumerate(dump.ops)]
    for where, value in free:
        if _is_deeper(value, MAX_DEPTH):
            _fail(where, f"nested more than {MAX_DEPTH} levels deep")


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels < 0 or any(_is_deeper(part, levels - 1) for part in parts)
