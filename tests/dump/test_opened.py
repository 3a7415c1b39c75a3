import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from chainrule.dump import compression, opened
from chainrule.dump.opened import DumpFile, OpenDump, in_order, is_small, names_of
from chainrule.dump.wire import dump_trace, load
from chainrule.errors import DumpError
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec


@pytest.fixture(scope="module")
def dump():
    return dump_trace(trace_spec(ModelSpec.from_query("widths=5,4,1&batch=3")))


def test_a_dump_keeps_its_bytes_and_their_digest(tmp_path, dump):
    path = tmp_path / "net.json"
    path.write_bytes(b"\xef\xbb\xbf" + dump)
    read = OpenDump.read(path)
    assert (read.name, read.content) == ("net.json", b"\xef\xbb\xbf" + dump)
    assert OpenDump.check("other", dump).digest != read.digest
    assert OpenDump.check("other", dump).digest == OpenDump.check("net.json", dump).digest


@pytest.mark.parametrize("open_file", [OpenDump.read, DumpFile.glance])
def test_a_file_too_large_is_never_read(tmp_path, dump, monkeypatch, open_file):
    path = tmp_path / "large.json"
    path.write_bytes(dump)
    monkeypatch.setattr(compression, "MAX_BYTES", len(dump))
    assert open_file(path).load() == dump
    file = DumpFile.glance(path)
    path.write_bytes(dump + bytes(2**20))
    monkeypatch.setattr(compression, "MAX_BYTES", 2**20)
    monkeypatch.setattr(opened.Path, "read_bytes", lambda _: pytest.fail("it was read"))
    for refused in (lambda: open_file(path), file.load):
        with pytest.raises(DumpError, match="the dump has more than 1 MiB; larger dumps cannot be opened") as error:
            refused()
        assert error.value.limit == 2**20
    path.unlink()
    with pytest.raises(DumpError, match=r"large\.json: No such file"):
        file.load()


def test_a_file_that_is_no_dump_is_not_opened(tmp_path, dump):
    body = json.loads(dump)
    body["ops"][0]["inputs"][0] = "t999"
    with pytest.raises(DumpError) as error:
        OpenDump.check("bad.json", json.dumps(body).encode())
    assert error.value.field == "ops[0].inputs[0]"
    with pytest.raises(FileNotFoundError):
        OpenDump.read(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "begins", [lambda dump: dump, lambda dump: b"\xef\xbb\xbf \n" + dump, lambda dump: dump.replace(b":", b" : ", 1)]
)
def test_a_glance_does_not_read_the_whole_file(tmp_path, dump, monkeypatch, begins):
    path = tmp_path / "step1.json"
    path.write_bytes(begins(dump))
    monkeypatch.setattr(opened, "parse_dump", lambda _: pytest.fail("it was read to the end"))
    assert DumpFile.glance(path) == DumpFile("step1.json", path)
    assert DumpFile.glance(path, "a/step1.json").name == "a/step1.json"


def test_a_file_with_another_beginning_is_read_to_its_end(tmp_path, dump):
    path = tmp_path / "step1.json"
    body = json.loads(dump)
    path.write_text(json.dumps({"loss": body.pop("loss"), **body}))
    assert DumpFile.glance(path).load() == path.read_bytes()
    for text in ("", "nonsense", json.dumps({**body, "schema": "chainrule.trace/2"})):
        path.write_text(text)
        with pytest.raises(DumpError, match=r"not a graph dump of schema chainrule\.trace/1"):
            DumpFile.glance(path)


def test_a_compressed_dump_is_a_dump(tmp_path, dump, monkeypatch):
    path = tmp_path / "step1.json.gz"
    path.write_bytes(gzip.compress(dump))
    assert dump_trace(load(path)) == dump
    assert OpenDump.read(path).load() == path.read_bytes()
    monkeypatch.setattr(opened, "parse_dump", lambda _: pytest.fail("it was read to the end"))
    assert DumpFile.glance(path) == DumpFile("step1.json.gz", path)


@pytest.mark.parametrize("spoil", [lambda packed: packed[:100], lambda packed: packed[:50] + bytes(50) + packed[100:]])
def test_damaged_compressed_data_are_an_error(dump, spoil):
    with pytest.raises(DumpError, match="the compressed data are damaged"):
        load(spoil(gzip.compress(dump)))


def test_compressed_data_without_a_dump_are_no_dump(tmp_path):
    path = tmp_path / "step1.json.gz"
    for content in (gzip.compress(b"nonsense"), compression.MAGIC, compression.MAGIC + b"nonsense"):
        path.write_bytes(content)
        for open_file in (OpenDump.read, DumpFile.glance):
            with pytest.raises(DumpError):
                open_file(path)


def test_a_small_file_that_grows_to_a_large_dump_is_refused(monkeypatch):
    monkeypatch.setattr(compression, "MAX_BYTES", 2**20)
    packed = gzip.compress(bytes(2**26))
    tracemalloc.start()
    try:
        with pytest.raises(DumpError, match="more than 1 MiB"):
            load(packed)
        # It is not decompressed to its end.
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_file_of_eight_mebibytes_is_small(tmp_path):
    path = tmp_path / "step1.json"
    for size, is_it in ((2**23, True), (2**23 + 1, False)):
        with path.open("wb") as file:
            file.truncate(size)
        assert is_small(path) is is_it


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["step1000", "step200", "step9"], ["step9", "step200", "step1000"]),
        (["run2/step10", "run2/step9", "run10/step1"], ["run2/step9", "run2/step10", "run10/step1"]),
        (["step10", "step9", "best"], ["step10", "step9", "best"]),  # other names keep their order
    ],
)
def test_files_stand_in_the_order_of_their_numbers(given, ordered):
    assert in_order([Path(f"{name}.json") for name in given]) == [Path(f"{name}.json") for name in ordered]


def test_files_of_one_name_are_distinguished_by_their_folders():
    assert names_of([Path("a/x.json"), Path("b/y.json")]) == ["x.json", "y.json"]
    assert names_of([Path("/runs/a/x.json"), Path("/runs/b/x.json")]) == ["a/x.json", "b/x.json"]
    assert names_of([Path("a/1/x.json"), Path("b/1/x.json"), Path("z.json")]) == ["a/1/x.json", "b/1/x.json", "z.json"]
    # The same file twice has one name.
    assert names_of([Path("a/x.json"), Path("a/x.json")]) == ["x.json", "x.json"]
