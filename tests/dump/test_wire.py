"""Trace ↔ dump: the published schema, the round trip, the frames, and the errors of bad dumps."""

import dataclasses
import json
import math
import os
import struct

import jsonschema
import numpy as np
import pytest
import torch
from bad_dumps import BAD, EVIL_NAMES, NO_DUMPS, bad, with_evil_names
from torch import nn
from trace_rules import assert_same_table

from chainrule.dump.json_values import json_value
from chainrule.dump.wire import LINE_ITEMS, dump_json, dump_topology, dump_trace, frame, json_number, load, trace_schema
from chainrule.errors import MAX_NAME, DumpError
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


def record_nothing():
    with record() as recording:
        pass
    return recording.trace


# tests/trace/test_values.py dumps and reads every kind of program.
KINDS = {
    "default": lambda: trace_spec(ModelSpec()),
    "exploding": lambda: trace_spec(ModelSpec.parse({"preset": "deep-exploding"})),
    "failed": lambda: trace_model(nn.Linear(3, 2), torch.ones(1, 4)),
    "empty": record_nothing,
    "without statistics": lambda: trace_model(torch.add, torch.ones(2, dtype=torch.complex64), 1),
    "empty tensor": lambda: trace_model(torch.relu, torch.ones(0, 3)),
}


@pytest.mark.smoke
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_dump_follows_the_published_schema_and_comes_back(make):
    made = make()
    dumped = dump_trace(made)
    validator().validate(json.loads(dumped))
    again = load(dumped)
    assert dump_trace(again) == dumped
    for part in ("ops", "tensors", "modules", "saved", "layers", "sources", "error"):
        assert getattr(again, part) == getattr(made, part), part
    assert_same_table(again.statistics, made.statistics)


def test_a_dump_from_before_there_were_sources_faults_and_values_is_read(body):
    del body["sources"], body["faults"], body["values"]
    validator().validate(body)
    again = load(json.dumps(body))
    assert (again.sources, again.faults, again.statistics.values) == ({}, (), {})


def test_the_values_in_a_dump_are_torchs():
    def program(x):
        y = x.t() * torch.tensor([[0.1], [math.inf]])
        return x.new_zeros(17).sum() + torch.stack([y - y, y > 0]).sum()

    seen = {}
    with record(on_tensor=lambda name, tensor: seen.setdefault(name, tensor.detach().clone())) as recording:
        program(torch.arange(4.0).reshape(2, 2))
    values = json.loads(dump_trace(recording.trace))["values"]
    assert values == {
        name: json_value(tensor.flatten().tolist()) for name, tensor in seen.items() if tensor.numel() <= 16
    }
    assert any("NaN" in each and 0 in each for each in values.values())
    assert {len(each) for each in values.values()} == {1, 2, 4, 8}


IN_SCHEMA = (
    "a missing part, a surplus part, a wrong phase, an unknown role, a text in a column, other bins, "
    "a loss that is no number, another schema"
)


@pytest.mark.parametrize("name", IN_SCHEMA.split(", "))
def test_the_published_schema_refuses_bad_dumps(name, body):
    assert validator().is_valid(body)
    bad(name, body)
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


def test_each_line_of_a_dump_is_a_part_of_its_own():
    with record(nn.Linear(1, 1)) as recording:
        x = torch.ones(1, requires_grad=True)
        for _ in range(1200):
            x = x + 1
        x.backward()
    content = dump_trace(recording.trace)
    body = json.loads(content)
    assert len(body["ops"]) > 2 * LINE_ITEMS
    for line in content.decode().split("\n"):
        part = line.removesuffix(",")
        if part in ("{", "[", "}", "]") or part.endswith((":{", ":[")):
            assert line == part or part in ("}", "]")
        elif part.startswith('"') and part.partition(":")[1] and part.split(":")[0].count('"') == 2:
            (value,) = json.loads(f"{{{part}}}").values()
            assert not isinstance(value, list) or len(value) <= LINE_ITEMS
        else:
            assert len(json.loads(f"[{part}]")) <= LINE_ITEMS
    assert dump_trace(load(content)) == dump_trace(load(json.dumps(body))) == content


def test_the_topology_is_the_dump_without_its_numbers(trace, body):
    topology = json.loads(dump_json(dump_topology(trace)))
    names = ("schema", "modules", "ops", "tensors", "saved", "layers", "sources")
    assert set(topology) == {*names, "statistics", "op_us"}
    for name in names:
        assert topology[name] == body[name]
    assert topology["op_us"] == body["timing"]["op_us"]
    assert dump_topology(dataclasses.replace(trace, timing={}))["op_us"] is None
    assert topology["statistics"] == {"tensor": body["statistics"]["tensor"]}
    other = trace_spec(spec(seed=7))
    assert dump_topology(other) | {"op_us": None} == dump_topology(trace) | {"op_us": None}
    assert other.loss != trace.loss


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
    if name == "negative flops":
        says = "Input should be greater than or equal to 0, not -1"
        assert error.value.message == f"not a graph dump of schema chainrule.trace/1: {where}: {says}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((content, "") for content in NO_DUMPS),
        (b"\xff\xfe", "this is not JSON: .* UTF-8"),
        ('{\n  "schema": 1,\n  "ops" [\n]}', "this is not JSON: .*: line 3 column 9 "),
        ('{"loss": 1e400}', "this is not JSON: .*: line 1 column 10 "),
        ('{"spec":' + "[" * 200_000, "this is not JSON: depth limit exceeded: line 1 "),
    ],
    ids=lambda text: str(text)[:20],
)
def test_a_text_that_is_no_dump_is_refused_with_its_place(content, says):
    with pytest.raises(DumpError, match=rf"^not a graph dump of schema chainrule\.trace/1: .*{says}") as error:
        load(content)
    assert error.value.status == 422


def test_a_cycle_is_listed_in_order(body):
    bad("a cycle of ops", body)
    with pytest.raises(DumpError, match='a cycle: "n0" → "n1" → "n2" → "n0"'):
        load(json.dumps(body))


def test_a_long_cycle_needs_no_recursion_and_names_a_few(body):
    module = body["modules"][0]
    body["modules"] = [module | {"id": f"m{row}", "parent": f"m{(row + 1) % 3000}"} for row in range(3000)]
    with pytest.raises(DumpError, match="3000 in all") as error:
        load(json.dumps(body))
    assert len(error.value.message) < 200


def test_hostile_names_are_names(body):
    with_evil_names(body)
    again = load(json.dumps(body))
    assert [tensor.id for tensor in again.tensors[: len(EVIL_NAMES)]] == list(EVIL_NAMES)
    assert json.loads(dump_trace(again)) == body


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
    values = np.frombuffer(encoded, "<f8", rows * (floats - 8), offset).reshape(floats - 8, rows).T
    offset += values.nbytes
    for name in ("n", "nan", "posinf", "neginf"):
        columns[name] = np.frombuffer(encoded, "<u4", rows, offset)
        offset += 4 * rows
    histogram = np.frombuffer(encoded, "<u4", rows * bins, offset).reshape(rows, bins)
    assert offset + 4 * rows * bins == len(encoded)
    assert (magic, counts) == (b"CRF1", 4)
    return seq, topology, bins, loss, milliseconds, flags, columns, values, histogram


@pytest.mark.smoke
@pytest.mark.parametrize("preset", [{}, {"preset": "deep-exploding"}, SMALL], ids=["default", "exploding", "small"])
def test_a_frame_is_the_table(preset):
    made = trace_spec(ModelSpec.parse(preset))
    seq, topology, bins, loss, milliseconds, flags, columns, values, histogram = decode(frame(made, 12, 3, 4.5))
    assert (seq, topology, bins, milliseconds, flags) == (12, 3, BINS, 4.5, 0)
    assert loss == made.loss or (math.isnan(loss) and math.isnan(made.loss))
    assert len(columns["n"]) == len(made.statistics)
    for row, tensor in enumerate(made.statistics):
        summary = made.statistics[tensor]
        for name, column in columns.items():
            expected = getattr(summary, name)
            assert column[row] == expected or (expected is None and math.isnan(column[row]))
        assert histogram[row].tolist() == list(summary.counts)
        known = made.statistics.values.get(tensor, ())
        np.testing.assert_array_equal(values[row], [*known, *[math.nan] * (values.shape[1] - len(known))])
    assert values.shape[1] == max(
        summary.n for summary in map(made.statistics.__getitem__, made.statistics) if summary.n <= 16
    )


def test_the_flags_of_a_frame(trace):
    assert decode(frame(dataclasses.replace(trace, loss=None), 1, 1, 0.0))[5] == 1
    assert math.isnan(decode(frame(dataclasses.replace(trace, loss=None), 1, 1, 0.0))[3])
    failed = trace_model(nn.Linear(3, 2), torch.ones(1, 4))
    assert decode(frame(failed, 1, 1, 0.0))[5] == 1 | 2
    exploded = dataclasses.replace(trace, loss=math.nan)
    assert decode(frame(exploded, 1, 1, 0.0))[5] == 0


def test_frames_at_the_bounds():
    *_, columns, values, histogram = decode(frame(record_nothing(), 2**32 - 1, 1, 0.0))
    assert (len(columns["n"]), values.size, histogram.shape) == (0, 0, (0, BINS))
    # float32 would turn 1e50 into Inf.
    *_, columns, values, _ = decode(
        frame(trace_model(torch.relu, torch.tensor([1e50], dtype=torch.float64)), 1, 1, 0.0)
    )
    assert columns["max"].max() == values.max() == 1e50


@pytest.mark.parametrize(("number", "written"), [(2**63, 2.0**63), (-(2**64), -(2.0**64)), (10**400, "inf")])
def test_a_whole_number_beyond_64_bits_is_written_as_a_float(number, written):
    """PyTorch refuses larger ones, and the failed op is recorded."""
    made = trace_model(lambda x: x * number, torch.ones(2, dtype=torch.float64))
    assert load(dump_trace(made)).ops[0].attributes == {"other": written}


def test_long_names_and_names_with_lone_surrogates_are_written_and_read():
    model = nn.Sequential()
    inner = model
    for _ in range(60):
        inner.add_module("layer_with_a_long_name_" * 8, nn.Sequential())
        (inner,) = inner.children()
    inner.add_module("a\ud800b", nn.Linear(3, 2))
    made = trace_model(model, torch.ones(1, 3))
    read = load(dump_trace(made))
    assert read.modules[-1].path.endswith("_name_.a?b")
    assert max(len(each.path) for each in read.modules) == MAX_NAME
    assert [each.name for each in read.tensors] == [each.name for each in made.tensors]
    assert {each.name[-9:] for each in read.tensors if each.role == "parameter"} == {"?b.weight", "_.a?b.bias"[-9:]}


def test_a_file_name_that_is_not_utf_8_is_written(tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.py")
    file.write_text("def program(x):\n    x = x + 1\n    raise ValueError(__file__)\n")
    module = {"__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), module)
    dump = load(dump_trace(trace_model(module["program"], torch.ones(2))))
    assert dump.ops[0].source.file == "caf?.py"
    assert dump.error.message.endswith("caf?.py")
