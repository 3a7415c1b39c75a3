"""Trace ↔ dump: the one JSON form of a trace, its published schema, and the binary frames of the live path.

`dump_trace` writes columns straight from the statistics table; `TraceDump` is the form of a dump: it publishes the
schema and validates what is loaded. Numbers that JSON cannot hold (a loss or a value of NaN or ±Infinity) are the
strings "NaN", "Infinity" and "-Infinity"; a missing statistic is null.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chainrule.diagnose.profile import LayerProfile, Profile, Theory
from chainrule.diagnose.profile import LayerTheory as LayerVerdict
from chainrule.diagnose.rules import LOCAL_RULES, RULES
from chainrule.dump.checks import check_dump, read_json, shown_json
from chainrule.dump.compression import unpacked
from chainrule.dump.json_values import Number, json_number, json_value
from chainrule.errors import MAX_NAME, DumpError
from chainrule.memory import without_collection
from chainrule.stats import BINS, COLUMNS, COUNT_COLUMNS, SMALL, StatisticsTable, Summary
from chainrule.stats.summary import FloatArray
from chainrule.theory.mean_field import FixedPoint, LayerTheory, Moments
from chainrule.trace import graph
from chainrule.trace.graph import Fault, FaultKind, Level, Role, Trace
from chainrule.trace.privacy import private_trace
from chainrule.trace.records import Records

SCHEMA = "chainrule.trace/1"
PROFILE_SCHEMA = "chainrule.profile/1"
THEORY_SCHEMA = "chainrule.theory/1"

LINE_ITEMS = 1000
"""Maximum number of list items in a line of a dump."""

FRAME_MAGIC = b"CRF1"
FRAME_HEADER = struct.Struct("<4sIIIIIddII")
FRAME_FLOATS = ("mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation")
FRAME_COUNTS = COUNT_COLUMNS
FLAG_NO_LOSS = 1
FLAG_ERROR = 2


# -------------------------------------------------------------------- the published form


Count = Annotated[int, Field(ge=0, lt=2**32)]
"""How many elements: a uint32, as in the binary frames."""

LARGEST = 2**63 - 513
"""The largest whole number that is below 2⁶³ also as a float64, in which JavaScript reads it."""

Integer = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Size = Annotated[int, Field(ge=0, le=LARGEST)]
Line = Annotated[int, Field(ge=1, le=LARGEST)]

Name = Annotated[str, Field(max_length=MAX_NAME)]
"""A name or an id. Exports repeat names, so a longer one could make them too large for any reader."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SourceDump(_Part):
    """The line of code behind an op; `file` is relative."""

    file: Name
    line: Integer
    text: str
    function: Name


class SnippetDump(_Part):
    """Consecutive lines of a source file, joined by line breaks; `line` is the number of the first."""

    line: Line
    text: str


class ModuleDump(_Part):
    """A place in the model's hierarchy."""

    id: Name
    path: Name
    type: Name
    parent: str | None


class OpDump(_Part):
    """One call. `twin` is the forward op that a backward op belongs to; `flops` and `bytes` are what it cost."""

    id: Name
    name: Name
    phase: Literal["forward", "backward"]
    module: str
    attributes: dict[str, Any]
    inputs: list[str]
    outputs: list[str]
    twin: str | None
    flops: Size
    bytes: Size
    source: SourceDump | None


class TensorDump(_Part):
    """One value. `gradient_of` is the tensor for which this is the gradient of the loss; see `trace.graph.Tensor`."""

    id: Name
    name: Name
    role: Role
    shape: list[Size]
    dtype: Name
    module: str
    producer: str | None
    consumers: list[str]
    gradient_of: str | None
    note: str | None


class SavedDump(_Part):
    """`op` keeps `tensor` for its backward.

    For a custom Function, `op` is the last op of its forward. For a layer written by hand, `op` is the twin of the
    backward op that reads the tensor.
    """

    tensor: str
    op: str


class HistogramDump(_Part):
    """Equally wide bins over [low, high] of each row's finite values; the last bin is closed."""

    bins: Literal[64]
    low: list[float | None]
    high: list[float | None]
    counts: list[list[Count]]


class StatisticsDump(_Part):
    """One entry per tensor that has statistics, in columns; entry i belongs to the tensor with id `tensor[i]`.

    Moments are over the finite values (null where there are none), std is the population's, norm is L2. `n` counts all
    elements. `dead_fraction` (units not above zero for the whole batch) and `saturation` are null where they do not
    apply.
    """

    tensor: list[str]
    n: list[Count]
    mean: list[float | None]
    std: list[float | None]
    min: list[float | None]
    max: list[float | None]
    norm: list[float | None]
    zero_fraction: list[float]
    nan: list[Count]
    posinf: list[Count]
    neginf: list[Count]
    dead_fraction: list[float | None]
    saturation: list[float | None]
    histogram: HistogramDump


class LayerDump(_Part):
    """The ids of one layer's tensors, null if absent; `gradient` is the gradient of the activation."""

    index: Integer
    name: Name
    preactivation: str | None
    activation: str | None
    gradient: str | None
    weight: str | None
    weight_gradient: str | None
    bias: str | None
    bias_gradient: str | None


class FailureDump(_Part):
    """Where a pass broke: the op that raised, if it is known, and what was said."""

    op: str | None
    message: str


class FaultDump(_Part):
    """One finding about the pass: what, why, where, and what would mend it; null where that is not known.

    `module` is a path; the module need not have run. `layers`: the indices of the layers that it makes unhealthy.
    `rule`: the criterion and its source. `level`: a note is most likely on purpose, unchecked is what could not be
    checked.
    """

    kind: FaultKind
    message: str
    module: Name | None
    op: str | None
    tensor: str | None
    source: SourceDump | None
    remedy: str | None
    level: Level = "fault"
    layers: list[Integer] = []
    rule: str | None = None


class PrecisionErrorsDump(_Part):
    """The errors of a pass in the precision `name`, beside the same pass in another; `chainrule compare --as`.

    The run in `of` is measured against the run in `against`, the more precise one. Entry i of the columns belongs to
    the tensor with id `tensor[i]`: its relative error in the norm (of probabilities, the root mean square over the
    elements), and the error that rounding predicts. `differing`: tensor of integers or bools → the number of elements
    that differ, and of compared elements.
    """

    name: str
    of: str
    against: str
    tensor: list[str]
    error: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    expected: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    differing: dict[str, Annotated[list[Count], Field(min_length=2, max_length=2)]] = {}


class TraceDump(_Part):
    """One forward and backward pass, recorded: modules, ops of both phases, tensors and their statistics."""

    schema_: Literal["chainrule.trace/1"] = Field(alias="schema")
    spec: dict[str, Any] | None
    environment: dict[str, Any]
    loss: Number | None
    modules: list[ModuleDump] = Field(min_length=1, description="The first is the whole model.")
    ops: list[OpDump]
    tensors: list[TensorDump]
    saved: list[SavedDump]
    layers: list[LayerDump]
    faults: list[FaultDump] = Field(
        default=[], description="The faults of the pass, the most urgent first; empty if the pass was not checked."
    )
    sources: dict[str, list[SnippetDump]] = Field(
        default={}, description="File → the source lines of its ops, with the lines around them."
    )
    statistics: StatisticsDump
    values: dict[str, list[Number]] = Field(
        default={},
        description=f"Tensor → its values with the last index fastest, for tensors with at most {SMALL} elements.",
    )
    error: FailureDump | None
    timing: dict[str, Any]
    precision: PrecisionErrorsDump | None = None


def trace_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a graph dump."""
    schema = TraceDump.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}


# -------------------------------------------------------------------- trace → dump


def dump_trace(trace: Trace) -> bytes:
    """The graph dump: JSON of schema `chainrule.trace/1`. Equal traces give equal bytes, but for `timing`."""
    return b"".join(dump_pieces(trace))


def dump_pieces(trace: Trace) -> Iterator[bytes]:
    """The graph dump in pieces, so that a large one is written without a second copy in memory.

    Each line is a part of its own: a member of an object, or at most LINE_ITEMS items of a list. So a reader can read a
    dump line by line. Messages and the environment are written without secrets and without this machine's folders.
    """
    trace = private_trace(trace)
    return json_lines(
        {
            "schema": SCHEMA,
            "spec": trace.spec,
            "environment": trace.environment,
            "loss": json_number(trace.loss),
            **_structure(trace),
            "faults": trace.faults,
            "statistics": _statistics(trace.statistics),
            "values": json_value({tensor: values.tolist() for tensor, values in trace.statistics.values.items()}),
            "error": trace.error,
            "timing": trace.timing,
            **({} if trace.precision is None else {"precision": trace.precision}),
        }
    )


def json_lines(value: Any) -> Iterator[bytes]:
    """JSON with a line for each member of a dict, and for each LINE_ITEMS items of a longer list."""
    if isinstance(value, dict) and value:
        start = b"{\n"
        for name, member in value.items():
            key = start + orjson.dumps(name) + b":"
            start = b",\n"
            if isinstance(member, dict) or (isinstance(member, _LISTS) and len(member) > LINE_ITEMS):
                yield key
                yield from json_lines(member)
            else:
                yield key + orjson.dumps(member, option=orjson.OPT_SERIALIZE_NUMPY)
        yield b"\n}"
    elif isinstance(value, _LISTS) and len(value) > LINE_ITEMS:
        for first in range(0, len(value), LINE_ITEMS):
            items = orjson.dumps(value[first : first + LINE_ITEMS], option=orjson.OPT_SERIALIZE_NUMPY)
            yield (b",\n" if first else b"[\n") + items[1:-1]
        yield b"\n]"
    else:
        yield orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


_LISTS = (list, tuple, np.ndarray)


def dump_topology(trace: Trace) -> dict[str, Any]:
    """The part of a dump that all traces of one graph shape share: the dump without its numbers.

    An exception is `op_us`, the durations of this trace's ops in µs, or null: readers of frames treat them as a
    property of the graph, like FLOPs. `error` is there only if the recording failed.
    """
    return {
        "schema": SCHEMA,
        **_structure(trace),
        "statistics": {"tensor": trace.statistics.tensors},
        "op_us": trace.timing.get("op_us"),
        **({} if trace.error is None else {"error": trace.error}),
    }


def _structure(trace: Trace) -> dict[str, Any]:
    # orjson writes dataclasses field by field, in order.
    return {
        "modules": trace.modules,
        "ops": _fields(trace.ops),
        "tensors": _fields(trace.tensors),
        "saved": _fields(trace.saved),
        "layers": trace.layers,
        "sources": trace.sources,
    }


def _fields(objects: Sequence[object]) -> Sequence[object]:
    """The raw fields of objects that have not been created yet, which orjson writes faster, or the objects."""
    return objects.fields if isinstance(objects, Records) else objects


def _statistics(table: StatisticsTable) -> dict[str, Any]:
    columns = dict(zip(COLUMNS, np.ascontiguousarray(table.moments.T), strict=True))
    body: dict[str, Any] = {"tensor": table.tensors}
    for name in COLUMNS:
        body[name] = columns[name].astype(np.int64) if name in COUNT_COLUMNS else columns[name]
    body["histogram"] = {
        "bins": BINS,
        "low": columns["min"],
        "high": columns["max"],
        "counts": np.ascontiguousarray(table.counts),
    }
    return body


def frame(trace: Trace, seq: int, topology: int, compute_ms: float) -> bytes:
    """The numbers of a trace as one little-endian binary frame, for a reader of its topology.

    Header (48 bytes): magic "CRF1", uint32 seq, topology, rows, bins, number of float columns; float64 loss,
    compute_ms; uint32 flags (1: no loss, 2: the pass broke), number of count columns. Then the float64 columns
    FRAME_FLOATS (NaN: no value), a float64 column for each value of the largest tensor whose values are known, the
    uint32 columns FRAME_COUNTS, and the uint32 histogram, rows × bins.
    """
    table = trace.statistics
    values = _value_columns(table)
    flags = (FLAG_NO_LOSS if trace.loss is None else 0) | (FLAG_ERROR if trace.error is not None else 0)
    header = FRAME_HEADER.pack(
        FRAME_MAGIC,
        seq & 0xFFFFFFFF,
        topology,
        len(table),
        BINS,
        len(FRAME_FLOATS) + len(values),
        math.nan if trace.loss is None else trace.loss,
        compute_ms,
        flags,
        len(FRAME_COUNTS),
    )
    columns = table.moments.T
    floats = np.ascontiguousarray(columns[[COLUMNS.index(name) for name in FRAME_FLOATS]], "<f8")
    counts = np.ascontiguousarray(columns[[COLUMNS.index(name) for name in FRAME_COUNTS]]).astype("<u4")
    histograms = table.counts.astype("<u4", copy=False)
    return b"".join((header, floats.tobytes(), values.tobytes(), counts.tobytes(), histograms.tobytes()))


def _value_columns(table: StatisticsTable) -> FloatArray:
    """Column i: value i of each tensor; NaN where it has none."""
    columns = np.full((max(map(len, table.values.values()), default=0), len(table)), math.nan, "<f8")
    for tensor, values in table.values.items():
        columns[: len(values), table.row_of[tensor]] = values
    return columns


def summary_dump(summary: Summary | None) -> dict[str, Any] | None:
    """One tensor's statistics as an object with the names of the dump's columns."""
    if summary is None:
        return None
    body: dict[str, Any] = {name: getattr(summary, name) for name in COLUMNS}
    body["histogram"] = {"bins": BINS, "low": summary.min, "high": summary.max, "counts": summary.counts}
    return body


def dump_profile(profile: Profile) -> bytes:
    """The profile: JSON of schema `chainrule.profile/1`."""
    body = {
        "schema": PROFILE_SCHEMA,
        "spec": profile.spec,
        "loss": json_number(profile.loss),
        "first_inf_layer": profile.first_inf_layer,
        "first_nan_layer": profile.first_nan_layer,
        "input": summary_dump(profile.input),
        "advice": profile.advice,
        "layers": [_layer_profile(layer) for layer in profile.layers],
        "rules": LOCAL_RULES if profile.spec is None else RULES,
    }
    return dump_json(body)


def _layer_profile(layer: LayerProfile) -> dict[str, Any]:
    body = _layer_dump(layer)
    return body | {name: summary_dump(value) for name, value in body.items() if isinstance(value, Summary)}


def theory_dump(theory: Theory) -> dict[str, Any]:
    """A `Theory` as JSON."""
    return _fields_of(theory) | {"layers": [_layer_dump(layer) for layer in theory.layers]}


def _layer_dump(layer: LayerProfile | LayerVerdict) -> dict[str, Any]:
    """The fields of a layer, without an empty `reason`."""
    body = _fields_of(layer)
    if body["reason"] is None:
        del body["reason"]
    return body


def _fields_of(part: Any) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


def theory_message(theory: Theory, seq: int, faults: Sequence[Fault] = ()) -> str:
    """The `Theory` and the faults of frame `seq`, as the live path sends them."""
    return orjson.dumps({"type": "theory", "seq": seq, "theory": theory_dump(theory), "faults": faults}).decode()


def dump_layer_theory(theory: LayerTheory) -> bytes:
    """Mean-field theory of one kind of layer: JSON of schema `chainrule.theory/1`.

    `fixed_point` may be null; a depth scale without limit is "Infinity".
    """
    body = {"schema": THEORY_SCHEMA, **_fields_of(theory), "at_q1": _numbers(theory.at_q1)}
    if theory.fixed_point is not None:
        body["fixed_point"] = _numbers(theory.fixed_point)
    return dump_json(body)


def _numbers(figures: Moments | FixedPoint) -> dict[str, Number]:
    return {name: json_number(math.inf if value is None else value) for name, value in _fields_of(figures).items()}


def dump_json(body: Mapping[str, Any]) -> bytes:
    """Any answer of the API as JSON."""
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


# -------------------------------------------------------------------- dump → trace


@without_collection()
def load(dump: bytes | str | Path) -> Trace:
    """Read a graph dump: its bytes, its text, or the file at a `Path`; the bytes may be compressed by gzip.

    Raises:
        DumpError: not JSON, not of schema `chainrule.trace/1`, or with ids that lead nowhere or in a circle; says what
            and where.
        OSError: the file cannot be read.
    """
    content = dump.read_bytes() if isinstance(dump, Path) else dump
    return _trace(parse_dump(content))


@without_collection()
def parse_dump(content: bytes | str) -> TraceDump:
    """Read a graph dump and check all of it, as `load` does.

    Raises:
        DumpError: see `load`.
    """
    # Some editors write a byte order mark at the begin of a file.
    content = content.removeprefix("\ufeff") if isinstance(content, str) else unpacked(content)
    try:
        parsed = TraceDump.model_validate(read_json(content))
    except DumpError as error:
        raise DumpError(f"not a graph dump of schema {SCHEMA}: {error.message}", field=error.field) from None
    except ValidationError as error:
        # Another schema explains everything else that is found.
        found = error.errors(include_url=False)
        first = next((each for each in found if each["loc"] == ("schema",)), found[0])
        # Below a number stand the names of its two forms.
        place = _path(first["loc"][: {"loss": 1, "values": 3}.get(str(first["loc"][0]) if first["loc"] else "")])
        says = first["msg"] if first["type"] == "missing" else f"{first['msg']}, not {shown_json(first['input'])}"
        raise DumpError(
            f"not a graph dump of schema {SCHEMA}: {place or 'the document'}: {says}", field=place or None
        ) from None
    check_dump(parsed)
    return parsed


def _path(loc: tuple[int | str, ...]) -> str:
    """A place as a path: `ops[12].inputs[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _made(value: Any) -> Any:
    """A part of a dump as the dataclass of the same fields, an `OpDump` as an `Op`, and lists as tuples."""
    if isinstance(value, list):
        if not value or not isinstance(value[0], _Part):
            return tuple(value)
        kind = _kind_of(value[0])
        if not hasattr(kind, "__slots__"):
            return Records(kind, [_made_fields(part) for part in value])
        return tuple(map(_made, value))
    return _kind_of(value)(**_made_fields(value)) if isinstance(value, _Part) else value


def _kind_of(part: _Part) -> Any:
    return getattr(graph, type(part).__name__.removesuffix("Dump"))


def _made_fields(part: _Part) -> dict[str, Any]:
    """The fields for the dataclass of a part. They are the part's own: it is not used any more."""
    fields = part.__dict__
    for name, field in fields.items():
        if isinstance(field, (list, _Part)):
            fields[name] = _made(field)
    return fields


def _trace(dump: TraceDump) -> Trace:
    statistics = dump.statistics
    columns = [[math.nan if value is None else value for value in getattr(statistics, name)] for name in COLUMNS]
    rows = len(statistics.tensor)
    return Trace(
        modules=_made(dump.modules),
        ops=_made(dump.ops),
        tensors=_made(dump.tensors),
        saved=_made(dump.saved),
        statistics=StatisticsTable(
            tuple(statistics.tensor),
            np.array(columns, np.float64).reshape(len(COLUMNS), rows).T.copy(),
            np.array(statistics.histogram.counts, np.uint32).reshape(rows, BINS),
            {tensor: np.array(values, np.float64) for tensor, values in dump.values.items()},
        ),
        loss=None if dump.loss is None else float(dump.loss),
        error=_made(dump.error),
        layers=_made(dump.layers),
        faults=_made(dump.faults),
        sources={file: _made(parts) for file, parts in dump.sources.items()},
        spec=dump.spec,
        environment=dump.environment,
        timing=dump.timing,
        precision=_precision(dump.precision),
    )


def _precision(dump: PrecisionErrorsDump | None) -> graph.PrecisionErrors | None:
    differing = {} if dump is None else {each: (count, of) for each, (count, of) in dump.differing.items()}
    return None if dump is None else dataclasses.replace(_made(dump), differing=differing)
