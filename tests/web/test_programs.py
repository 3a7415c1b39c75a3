"""Programs over HTTP and the live socket: every format, every route, and what is refused."""

import json
from html import unescape

import orjson
import pytest
from websockets.sync.client import connect

from chainrule.export.formats import FORMATS
from chainrule.foundations.linear_extension.library import target_path
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.programs import PROGRAMS
from chainrule.web.main import create_app

PYTHON = [name for name in PROGRAMS if name != "linear_cpp"]
CONSTRUCTS = [name for name in PYTHON if name != "mlp"]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=() if name == "matmul" else pytest.mark.long) for name in CONSTRUCTS]
)
def test_every_program_has_every_format(client, program, form):
    answer = client.get(f"/api/v1/{form.file}?program={program}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == form.media_type
    names = ("loss", "a" if program == "matmul" else "x")
    assert form.name == "node-data" or all(name in answer.text for name in names)


@pytest.mark.parametrize("program", CONSTRUCTS)
def test_a_profile_without_layers_has_all_keys(client, program):
    net = client.get("/api/v1/profile.json").json()
    answer = client.get(f"/api/v1/profile.json?program={program}").json()
    assert list(answer) == list(net)
    assert answer["layers"] == []
    assert answer["advice"] is None
    assert answer["spec"]["program"] == program


def test_openapi_names_the_programs_that_use_a_key(client):
    document = client.get("/openapi.json").json()
    parameters = {each["name"]: each for each in document["paths"]["/api/v1/trace.json"]["get"]["parameters"]}
    assert parameters["program"]["schema"]["enum"] == list(PROGRAMS)
    assert parameters["rung"]["description"].endswith("Used by matmul.")
    assert "matmul 3,2" in parameters["widths"]["description"]


@pytest.mark.usefixtures("no_linear_extension")
def test_linear_cpp_without_the_extension_is_a_501(client):
    for address in ("/api/v1/trace.json", "/api/v1/profile.json", "/api/v1/trace.dot", "/"):
        answer = client.get(f"{address}?program=linear_cpp")
        assert answer.status_code == 501
        assert "chainrule build-extension" in answer.text
    # Source code needs no extension.
    assert client.get("/api/v1/trace.py?program=linear_cpp").status_code == 200


@pytest.mark.usefixtures("no_linear_extension")
def test_a_broken_extension_hides_its_path(client, tmp_path):
    path = target_path(cuda=False)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no library")
    for address in ("/api/v1/trace.json", "/api/v1/profile.json", "/foundations/extension.json", "/"):
        answer = client.get(address if "extension" in address else f"{address}?program=linear_cpp")
        assert "the C++ extension does not load: run" in unescape(answer.text)
        assert str(tmp_path) not in answer.text


def test_a_socket_can_change_programs(settings, serve):
    address = serve(create_app(settings))
    with connect(f"ws://{address}/api/v1/live", compression=None) as socket:
        for seq, program in enumerate([*PYTHON, "exp", "mlp"], start=1):
            socket.send(json.dumps({"seq": seq, "spec": ModelSpec(program=program).as_dict()}))
            topology = None
            while isinstance(message := socket.recv(timeout=20), str):
                topology = orjson.loads(message).get("trace", topology)
            expected = trace_spec(ModelSpec(program=program))
            assert topology is not None
            assert [each["name"] for each in topology["tensors"]] == [tensor.name for tensor in expected.tensors]
        socket.send(json.dumps({"seq": 99, "spec": {"program": "exp", "scale": 2}}))
        while not isinstance(message := socket.recv(timeout=20), str) or "error" not in orjson.loads(message):
            pass
        assert orjson.loads(message)["error"]["field"] == "scale"
