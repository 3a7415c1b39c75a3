"""A server's open dumps: their addresses, tags, theory and late reading."""

import gzip
import json
import re

import pytest
import torch
from torch import nn

from chainrule.diagnose.profile import theory
from chainrule.dump.opened import DumpFile, OpenDump
from chainrule.dump.wire import dump_json, dump_trace, load, theory_dump
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace import trace_model
from chainrule.web.answers import PIECE
from chainrule.web.main import create_app


def content(seed):
    return dump_trace(trace_spec(ModelSpec.from_query(f"widths=3,2,1&batch=2&seed={seed}")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for seed in (1, 2):
        (folder / f"step{seed}.json").write_bytes(content(seed))
    return folder


@pytest.fixture
def client(open_client, settings, folder):
    dumps = [DumpFile.glance(folder / f"step{seed}.json") for seed in (1, 2)]
    return open_client(create_app(settings, dumps))


def data_of(answer):
    return json.loads(re.search(r'id="page-data">(.*?)</script>', answer.text, re.DOTALL)[1])


def test_the_page_data_lists_every_dump(client, folder):
    data = data_of(client.get("/"))
    assert data["dumps"] == [
        {"name": "step1.json", "url": "/api/v1/dump.json"},
        {"name": "step2.json", "url": "/api/v1/dump.json?index=1"},
    ]
    assert data["dump"] == data["dumps"][0]
    for each in data["dumps"]:
        assert client.get(each["url"]).content == (folder / each["name"]).read_bytes()
    assert client.get("/api/v1/dump.json?index=0").content == (folder / "step1.json").read_bytes()


def test_one_dump_is_a_list_of_one_and_none_is_empty(open_client, settings):
    one = data_of(open_client(create_app(settings, OpenDump.check("<i>net</i>.json", content(1)))).get("/"))
    assert one["dumps"] == [{"name": "<i>net</i>.json", "url": "/api/v1/dump.json"}]
    assert one["rules"]["expected"].keys() == one["local_rules"]["expected"].keys()
    assert one["rules"]["expected"] != one["local_rules"]["expected"]
    none = data_of(open_client(create_app(settings)).get("/"))
    assert (none["dump"], none["dumps"]) == (None, [])


def test_each_dump_has_its_tag(client):
    first, second = (client.get(f"/api/v1/dump.json?index={index}") for index in (0, 1))
    assert first.headers["etag"] != second.headers["etag"]
    again = client.get("/api/v1/dump.json?index=1", headers={"if-none-match": second.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/api/v1/dump.json?index=0", headers={"if-none-match": second.headers["etag"]})
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("index", "status"), [("2", 404), ("999999", 404), ("-1", 422), ("x", 422), ("1e2", 422), ("", 422)]
)
def test_a_bad_index_is_refused(client, index, status):
    answer = client.get(f"/api/v1/dump.json?index={index}")
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["field"] == "index"
    assert error["message"].startswith("index: ")
    if status == 404:
        assert error["limit"] == 1


def test_a_file_is_read_on_request(open_client, settings, tmp_path):
    path = tmp_path / "step1.json"
    path.write_bytes(content(1))
    client = open_client(create_app(settings, [DumpFile.glance(path), DumpFile.glance(path)]))
    path.write_bytes(content(2))
    assert client.get("/api/v1/dump.json?index=1").content == path.read_bytes()
    path.unlink()
    answer = client.get("/api/v1/dump.json?index=1")
    assert answer.status_code == 422
    assert answer.json()["error"] == {"code": "invalid_dump", "message": "step1.json: No such file or directory"}


def test_a_compressed_file_is_sent_as_it_is(open_client, settings, tmp_path):
    path = tmp_path / "step1.json.gz"
    plain = content(1)
    path.write_bytes(gzip.compress(plain))
    client = open_client(create_app(settings, [DumpFile.glance(path)]))
    answer = client.get("/api/v1/dump.json")
    assert answer.content == path.read_bytes()
    assert answer.headers["content-type"] == "application/gzip"
    assert "content-encoding" not in answer.headers
    told = client.get("/api/v1/dump.json?what=theory").json()
    assert told == json.loads(dump_json(theory_dump(theory(load(plain)))))


def test_a_large_dump_is_sent_in_pieces(open_client, settings, tmp_path):
    path = tmp_path / "step1.json"
    path.write_bytes(content(1) + b" " * 3 * PIECE)
    client = open_client(create_app(settings, [DumpFile.glance(path)]))
    answer = client.get("/api/v1/dump.json")
    assert (answer.content, answer.headers["content-length"]) == (path.read_bytes(), str(path.stat().st_size))
    tag = {"if-none-match": answer.headers["etag"]}
    assert client.get("/api/v1/dump.json", headers=tag).status_code == 304
    path.write_bytes(content(2))
    assert client.get("/api/v1/dump.json", headers=tag).content == path.read_bytes()


def test_theory_of_a_dump_equals_theory_of_its_trace(open_client, settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    trace = trace_model(model, torch.randn(9, 8), loss=lambda out: out.square().mean())
    client = open_client(create_app(settings, OpenDump.check("own.json", dump_trace(trace))))
    answer = client.get("/api/v1/dump.json?what=theory")
    told = answer.json()
    assert told == json.loads(dump_json(theory_dump(theory(trace))))
    assert [layer.get("reason") for layer in told["layers"]] == [
        None,
        "LayerNorm: theory does not cover this layer",
        None,
    ]
    assert set(told["layers"][0]["expected"]) >= {"preactivation_std", "activation_std"}
    assert answer.headers["etag"] != client.get("/api/v1/dump.json").headers["etag"]
    known = {"if-none-match": answer.headers["etag"]}
    assert client.get("/api/v1/dump.json?what=theory", headers=known).status_code == 304
    error = client.get("/api/v1/dump.json?what=profile").json()["error"]
    assert error["field"] == "what"
    assert "is not dump or theory" in error["message"]
