"""A dump from a file: read only if it is not too large, shown only if it is one."""

import json

import pytest

from chainrule.errors import DumpError
from chainrule.page import opened
from chainrule.page.opened import MOST_BYTES, OpenDump
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.wire import dump_trace


@pytest.fixture(scope="module")
def dump():
    return dump_trace(trace_spec(ModelSpec.from_query("widths=5,4,1&batch=3")))


def test_a_dump_keeps_its_bytes_and_is_known_by_them(tmp_path, dump):
    path = tmp_path / "net.json"
    path.write_bytes(b"\xef\xbb\xbf" + dump)
    read = OpenDump.read(path)
    assert (read.name, read.content) == ("net.json", b"\xef\xbb\xbf" + dump)
    assert OpenDump.check("other", dump).digest != read.digest
    assert OpenDump.check("other", dump).digest == OpenDump.check("net.json", dump).digest


def test_a_file_too_large_is_never_read(tmp_path, monkeypatch):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(200 * 2**20)
    monkeypatch.setattr(opened.Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(DumpError, match="the file has 200 MiB; at most 128 MiB are opened") as error:
        OpenDump.read(path)
    assert error.value.limit == MOST_BYTES


def test_what_is_no_dump_is_not_opened(tmp_path, dump):
    body = json.loads(dump)
    body["ops"][0]["inputs"][0] = "t999"
    with pytest.raises(DumpError) as error:
        OpenDump.check("bad.json", json.dumps(body).encode())
    assert error.value.field == "ops[0].inputs[0]"
    with pytest.raises(FileNotFoundError):
        OpenDump.read(tmp_path / "nowhere.json")
