"""Trace ↔ dump: the published schema, the round trip, the frames, and the errors of bad dumps."""

import dataclasses
import json
import math
import struct

import jsonschema
import numpy as np
import pytest
import torch
from bad_dumps import BAD, EVIL_NAMES, NO_DUMPS, TOO_LARGE, bad, too_large, with_evil_names
from torch import nn

from chainrule.dump.wire import dump_json, dump_topology, dump_trace, frame, json_number, load, trace_schema
from chainrule.errors import DumpError
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.stats import BINS
from chainrule.trace import record, trace_model

SMALL = {"widths": "5,4,3", "batch": 6}


def spec(**options):
    return ModelSpec.parse({**SMALL, **options})


@pytest.fixture(scope="module")
def trace():
    return trace_spec(spec())


@pytest.fixture
def body(trace):
    return json.loads(dump_trace(trace))


def validator():
    schema = trace_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def traces_of_all_kinds():
    for style in ("functions", "classes", "layer_function", "autograd_function", "module"):
        yield style, lambda style=style: trace_spec(spec(style=style))
    yield "default", lambda: trace_spec(ModelSpec())
    yield "cross entropy", lambda: trace_spec(spec(loss="cross_entropy"))
    yield "exploding", lambda: trace_spec(ModelSpec.parse({"preset": "deep-exploding"}))
    yield "model", lambda: trace_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), torch.randn(1, 1, 5, 5))
    yield "failed", lambda: trace_model(nn.Linear(3, 2), torch.ones(1, 4))
    yield "empty", lambda: record_nothing()
    yield "differentiated twice", lambda: differentiate_twice()
    yield "two losses", lambda: lose_twice()
    yield "recurrent", lambda: trace_model(nn.LSTM(3, 4), torch.randn(5, 2, 3), loss=lambda out: out[0].sum())
    yield "without statistics", lambda: trace_model(torch.add, torch.ones(2, dtype=torch.complex64), 1)
    yield "empty tensor", lambda: trace_model(torch.relu, torch.ones(0, 3))


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def differentiate_twice():
    x = torch.randn(4, requires_grad=True)
    with record() as recording:
        (gradient,) = torch.autograd.grad(Squared.apply(x).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()
    return recording.trace


def lose_twice():
    layer = nn.Linear(3, 2)
    with record(layer) as recording:
        for _ in range(2):
            layer(torch.randn(4, 3)).sum().backward()
    return recording.trace


def record_nothing():
    with record() as recording:
        pass
    return recording.trace


KINDS = list(traces_of_all_kinds())


@pytest.mark.smoke
@pytest.mark.parametrize("make", [make for _, make in KINDS], ids=[name for name, _ in KINDS])
def test_every_dump_follows_the_published_schema_and_comes_back(make):
    made = make()
    dumped = dump_trace(made)
    validator().validate(json.loads(dumped))
    again = load(dumped)
    assert dump_trace(again) == dumped
    for part in ("ops", "tensors", "modules", "saved", "layers", "sources", "error"):
        assert getattr(again, part) == getattr(made, part), part
    assert np.array_equal(again.statistics.moments, made.statistics.moments, equal_nan=True)
    assert np.array_equal(again.statistics.counts, made.statistics.counts)


def test_a_dump_from_before_there_were_sources_is_read(body):
    del body["sources"]
    validator().validate(body)
    assert load(json.dumps(body)).sources == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.pop("ops"),
        lambda body: body.update(surplus=1),
        lambda body: body["ops"][0].update(phase="sideways"),
        lambda body: body["tensors"][0].update(role="villain"),
        lambda body: body["statistics"]["n"].__setitem__(0, "many"),
        lambda body: body["statistics"]["histogram"].update(bins=32),
        lambda body: body.update(loss="nan"),
        lambda body: body.update(schema="chainrule.trace/2"),
    ],
)
def test_the_schema_refuses_bad_dumps(spoil, body):
    assert validator().is_valid(body)
    spoil(body)
    assert not validator().is_valid(body)


def test_the_numbers_in_the_dump_are_the_tables(trace, body):
    columns = body["statistics"]
    for row, tensor in enumerate(columns["tensor"]):
        summary = trace.statistics[tensor]
        for name in ("n", "mean", "std", "min", "max", "norm", "zero_fraction", "nan", "dead_fraction"):
            assert columns[name][row] == getattr(summary, name)
        assert columns["histogram"]["low"][row] == summary.min
        assert columns["histogram"]["high"][row] == summary.max
        assert columns["histogram"]["counts"][row] == list(summary.counts)
        assert sum(summary.counts) == summary.n
    assert all(isinstance(value, int) for value in columns["n"])


def without_timing(made):
    body = json.loads(dump_trace(made))
    body.pop("timing")
    return json.dumps(body)


@pytest.mark.smoke
@pytest.mark.parametrize("style", ["layer_function", "autograd_function", "module"])
def test_two_dumps_of_one_spec_differ_in_timing_alone(style):
    first, second = trace_spec(spec(style=style)), trace_spec(spec(style=style))
    assert without_timing(first) == without_timing(second)
    assert dump_trace(dataclasses.replace(first, timing={})) == dump_trace(dataclasses.replace(second, timing={}))


def test_another_seed_differs(trace):
    other = trace_spec(spec(seed=7))
    assert without_timing(other) != without_timing(trace)
    assert dump_topology(other) | {"op_us": None} == dump_topology(trace) | {"op_us": None}
    assert other.loss != trace.loss


def test_the_topology_is_the_dump_without_its_numbers(trace, body):
    topology = json.loads(dump_json(dump_topology(trace)))
    names = ("schema", "modules", "ops", "tensors", "saved", "layers", "sources")
    assert set(topology) == {*names, "statistics", "op_us"}
    for name in names:
        assert topology[name] == body[name]
    assert topology["op_us"] == body["timing"]["op_us"]
    assert dump_topology(dataclasses.replace(trace, timing={}))["op_us"] is None
    assert topology["statistics"] == {"tensor": body["statistics"]["tensor"]}


@pytest.mark.parametrize(
    ("value", "written"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1.5, 1.5), (0.0, 0.0), (None, None)],
)
def test_a_loss_that_is_no_json_number(trace, value, written):
    assert json_number(value) == written
    dumped = dump_trace(dataclasses.replace(trace, loss=value))
    assert json.loads(dumped)["loss"] == written
    validator().validate(json.loads(dumped))
    again = load(dumped).loss
    assert again == value or (math.isnan(value) and math.isnan(again))
    assert dump_trace(load(dumped)) == dumped


def test_a_dump_holds_no_nan_literal():
    dumped = dump_trace(trace_spec(ModelSpec.parse({"preset": "deep-exploding"})))

    def refuse(constant):
        pytest.fail(f"{constant} is not JSON")

    body = json.loads(dumped, parse_constant=refuse)
    assert body["loss"] == "NaN"
    row = body["statistics"]["tensor"].index(next(t["id"] for t in body["tensors"] if t["name"] == "out"))
    assert body["statistics"]["mean"][row] is None
    assert body["statistics"]["nan"][row] == body["statistics"]["n"][row]


def test_load_takes_bytes_text_and_a_file(trace, tmp_path):
    dumped = dump_trace(trace)
    path = tmp_path / "dump.json"
    path.write_bytes(dumped)
    for form in (dumped, dumped.decode(), path):
        assert dump_trace(load(form)) == dumped
    with pytest.raises(OSError, match="nowhere"):
        load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_dump_is_refused_and_the_place_named(name, body):
    where = bad(name, body)
    with pytest.raises(DumpError) as error:
        load(json.dumps(body))
    assert error.value.field == where
    assert where in error.value.message
    if name.startswith("a dangling"):
        assert "999" in error.value.message


@pytest.mark.parametrize("where", TOO_LARGE)
def test_a_number_that_no_float_holds_is_refused_and_the_place_named(where, body):
    with pytest.raises(DumpError, match="the number is too large") as error:
        load(too_large(where, body))
    assert error.value.field == where


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "another schema",
            'schema: graph dumps of schema "chainrule.trace/1" are read here, but it is "chainrule.trace/2"',
        ),
        ("no schema", 'schema: graph dumps of schema "chainrule.trace/1" are read here, but there is none'),
        ("a missing field", "ops[2].name: is missing"),
        ("a surplus field", "modules[0].colour: is not a field of the schema"),
        ("a list that is none", "ops: an object is not a list"),
        ("an op that is none", "ops[1]: null is not an object"),
        ("a wrong type", 'tensors[1].shape: "big" is not a list'),
        ("a wrong type in a list", "tensors[1].shape[0]: 1.5 is not an integer"),
        ("an input that is no text", "ops[0].inputs[0]: 7 is not text"),
        ("a wrong phase", 'ops[0].phase: "up" is none of forward, backward'),
        ("negative flops", "ops[0].flops: -1 is not an integer from 0 on"),
        ("a loss that is no number", 'loss: "nan" is neither a number, "NaN", "Infinity", "-Infinity" nor null'),
        ("a text in a column", 'statistics.n[0]: "many" is not an integer'),
    ],
)
def test_the_message_of_a_bad_dump(name, says, body):
    bad(name, body)
    with pytest.raises(DumpError) as error:
        load(json.dumps(body))
    assert error.value.message == f"not a graph dump of schema chainrule.trace/1: {says}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "this is not JSON: .*: line 1 column 1 "),
        ('{"loss": NaN}', "this is not JSON: .*: line 1 column 10 "),
        ('{\n  "schema": 1,\n  "ops" [\n]}', "this is not JSON: .*: line 3 column 9 "),
        ('{"a": 1,}', "this is not JSON: .*: line 1 column 8 "),
        ("{} x", "this is not JSON: .*: line 1 column 4 "),
        (b"\xff\xfe", "this is not JSON: .* UTF-8"),
        ('{"spec":' + "[" * 200_000, "what stands here is more than 100 levels deep"),
    ],
)
def test_a_text_that_is_not_json_is_refused_with_its_place(text, says):
    with pytest.raises(DumpError, match=rf"not a graph dump of schema chainrule\.trace/1: {says}"):
        load(text)


def test_a_cycle_is_listed_in_order(body):
    bad("a cycle of ops", body)
    with pytest.raises(DumpError, match='a cycle: "n0" → "n1" → "n2" → "n0"'):
        load(json.dumps(body))


def test_a_long_cycle_needs_no_recursion_and_names_a_few(body):
    op, tensor = body["ops"][0], body["tensors"][0]
    count = 3_000
    body |= {
        "ops": [op | {"id": f"n{i}", "inputs": [f"t{(i - 1) % count}"], "outputs": [f"t{i}"]} for i in range(count)],
        "tensors": [tensor | {"id": f"t{i}", "producer": f"n{i}", "consumers": []} for i in range(count)],
        "saved": [],
        "layers": [],
        "statistics": {name: [] for name in body["statistics"]}
        | {"histogram": {"bins": 64, "low": [], "high": [], "counts": []}},
    }
    with pytest.raises(DumpError) as error:
        load(json.dumps(body))
    assert "3000 in all" in error.value.message
    assert len(error.value.message) < 200


def test_hostile_names_are_names(body):
    with_evil_names(body)
    again = load(json.dumps(body))
    assert [tensor.id for tensor in again.tensors[: len(EVIL_NAMES)]] == list(EVIL_NAMES)
    assert json.loads(dump_trace(again)) == body


@pytest.mark.parametrize("content", [*NO_DUMPS, b"\xff\xfe", b"\x00"])
def test_a_file_that_is_no_dump_is_refused(content):
    with pytest.raises(DumpError) as error:
        load(content)
    assert "chainrule.trace/1" in error.value.message
    assert error.value.status == 422


def decode(encoded):
    """A frame as its reader decodes it, from the protocol's own description."""
    magic, seq, topology, rows, bins, floats = struct.unpack_from("<4sIIIII", encoded, 0)
    loss, milliseconds = struct.unpack_from("<dd", encoded, 24)
    flags, counts = struct.unpack_from("<II", encoded, 40)
    offset = 48
    columns = {}
    for name in ("mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"):
        columns[name] = np.frombuffer(encoded, "<f8", rows, offset)
        offset += 8 * rows
    for name in ("n", "nan", "posinf", "neginf"):
        columns[name] = np.frombuffer(encoded, "<u4", rows, offset)
        offset += 4 * rows
    histogram = np.frombuffer(encoded, "<u4", rows * bins, offset).reshape(rows, bins)
    assert offset + 4 * rows * bins == len(encoded)
    assert (magic, floats, counts) == (b"CRF1", 8, 4)
    return seq, topology, bins, loss, milliseconds, flags, columns, histogram


@pytest.mark.smoke
@pytest.mark.parametrize("preset", [{}, {"preset": "deep-exploding"}, SMALL], ids=["default", "exploding", "small"])
def test_a_frame_is_the_table(preset):
    made = trace_spec(ModelSpec.parse(preset))
    seq, topology, bins, loss, milliseconds, flags, columns, histogram = decode(frame(made, 12, 3, 4.5))
    assert (seq, topology, bins, milliseconds, flags) == (12, 3, BINS, 4.5, 0)
    assert loss == made.loss or (math.isnan(loss) and math.isnan(made.loss))
    assert len(columns["n"]) == len(made.statistics)
    for row, tensor in enumerate(made.statistics):
        summary = made.statistics[tensor]
        for name, column in columns.items():
            expected = getattr(summary, name)
            assert column[row] == expected or (expected is None and math.isnan(column[row]))
        assert histogram[row].tolist() == list(summary.counts)


def test_the_flags_of_a_frame(trace):
    assert decode(frame(dataclasses.replace(trace, loss=None), 1, 1, 0.0))[5] == 1
    assert math.isnan(decode(frame(dataclasses.replace(trace, loss=None), 1, 1, 0.0))[3])
    failed = trace_model(nn.Linear(3, 2), torch.ones(1, 4))
    assert decode(frame(failed, 1, 1, 0.0))[5] == 1 | 2
    exploded = dataclasses.replace(trace, loss=math.nan)
    assert decode(frame(exploded, 1, 1, 0.0))[5] == 0


def test_a_frame_of_an_empty_trace():
    made = record_nothing()
    *_, columns, histogram = decode(frame(made, 2**32 - 1, 1, 0.0))
    assert len(columns["n"]) == 0
    assert histogram.shape == (0, BINS)


def test_float64_reaches_the_reader_whole():
    """float32 would turn 1e50 into Inf."""
    values = trace_model(torch.relu, torch.tensor([1e50, 2e50], dtype=torch.float64))
    *_, columns, _ = decode(frame(values, 1, 1, 0.0))
    assert columns["max"].max() == 2e50
