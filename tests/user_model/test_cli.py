"""`chainrule explore`: errors in one line, and a server on loopback behind a token."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from command import ENVIRONMENT, chainrule, serving
from source_lines import line_of
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

USER_MODELS = Path(__file__).parents[1] / "shared" / "user_models"


def refused(*arguments, status=2):
    """The one error line, without the command's name."""
    answer = chainrule("explore", "--no-browser", *arguments)
    assert answer.returncode == status, answer.stderr
    assert answer.stdout.count("\n") == ("starts at http://127.0.0.1:" in answer.stdout)
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("chainrule: ")
    return answer.stderr.strip().removeprefix("chainrule: ")


@contextmanager
def exploring(*arguments, folder=USER_MODELS, **options):
    """A server: a client with its token, and its process."""
    with serving("--no-browser", *arguments, command="explore", folder=folder, **options) as (process, link):
        address, _, token = link.partition("?token=")
        with httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            yield client, process


def dump_of(client, query=""):
    return client.get(f"api/v1/model/trace.json{query}").raise_for_status().json()


def test_errors_are_one_line_with_the_place(tmp_path, monkeypatch):
    monkeypatch.chdir(USER_MODELS)
    assert refused("nothing_here.py:make") == "nothing_here.py: file not found"
    line = line_of(USER_MODELS / "nonsense.py", "def no_scalar")
    said = refused("nonsense.py:no_scalar")
    assert said.startswith(f"nonsense.py:{line}: no scalar loss: the model returns a tensor of shape (4, 2); give (")
    assert refused("nonsense.py:frozen").startswith("nonsense.py:")
    assert refused("nonsense.py:inputs_on_meta").endswith("or both with --device cpu")
    assert "ran out of memory" in refused("nonsense.py:out_of_memory", status=1)
    assert refused("deep_mlp.py:make", "--device", "gpu").startswith("device: gpu is not available")
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\nimport (\n")
    assert refused(f"{broken}:make") == f"{broken}:2: the import failed: SyntaxError: invalid syntax"


def test_a_model_is_served_on_loopback_behind_a_token():
    with exploring("blocks.py:make", "--seed", "7") as (client, process):
        address = urlsplit(str(client.base_url))
        assert address.hostname == "127.0.0.1"
        assert httpx.get(f"http://{address.netloc}/").status_code == 401
        assert httpx.get(f"http://{address.netloc}/api/v1/model/trace.json").status_code == 401
        with pytest.raises(InvalidStatus), connect(f"ws://{address.netloc}/api/v1/model/live"):
            pass
        assert "blocks.py:make" in client.get("/").raise_for_status().text
        first, scaled = dump_of(client), dump_of(client, "?scale=1.5&group=head")
        assert first["environment"]["seed"] == 7
        assert scaled["environment"]["what_if"] == "scale=1.5&group=head"
        assert first["loss"] != scaled["loss"]
        assert client.get("api/v1/model/trace.json?group=tail").status_code == 422
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT


def test_a_file_runs_beside_files_named_like_libraries(tmp_path):
    for library in ("torch", "html", "queue", "uvicorn", "watchfiles"):
        (tmp_path / f"{library}.py").write_text("raise ImportError('not the library')\n")
    parsing = "import argparse\nparser = argparse.ArgumentParser()\nparser.parse_args()\n"
    (tmp_path / "net.py").write_text(parsing + MODEL.format(width=5))
    with exploring(f"{tmp_path}/net.py:make", "--watch", fresh=True) as (client, _):
        assert "0.weight" in {tensor["name"] for tensor in dump_of(client)["tensors"]}


def test_a_port_in_use_is_refused_before_the_file_runs(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("raise SystemExit('it has run')\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(f"{file}:make", "--port", str(port), status=1).startswith(f"port {port} on 127.0.0.1 is in use")
    assert refused(f"{file}:make") == f"{file}:1: the import failed: SystemExit: it has run"


def test_a_failing_pass_is_reported_and_served_with_the_settings_of_the_environment():
    settings = {"CHAINRULE_THREADS": "1", "CHAINRULE_TOKEN": "a-token-of-mine"}
    with exploring("breaks.py:make_wrong_shape", **settings) as (client, process):
        assert client.headers["authorization"] == "Bearer a-token-of-mine"
        dump = dump_of(client)
        assert dump["environment"]["threads"] == 1
        assert dump["error"]["op"] is not None
        assert dump["error"]["message"].startswith("breaks.py:")
        process.terminate()
        assert "chainrule: breaks.py:" in process.communicate(timeout=30)[1]


@pytest.mark.long
def test_torch_keeps_its_default_threads():
    """The machine is the user's; a server of specs takes one thread."""
    code = "import torch; print(torch.get_num_threads())"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=ENVIRONMENT)
    with exploring("blocks.py:make") as (client, _):
        assert dump_of(client)["environment"]["threads"] == int(alone.stdout)


MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(3, {width}), nn.Tanh(), nn.Linear({width}, 1)), torch.randn(4, 3), torch.mean
"""


def test_a_watched_file_is_traced_again_and_announced(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(MODEL.format(width=5))
    with exploring("net.py:make", "--watch", folder=tmp_path) as (client, _):

        def shapes():
            return {tensor["name"]: tensor["shape"] for tensor in dump_of(client)["tensors"]}

        assert shapes()["0.weight"] == [5, 3]
        address = f"ws://{urlsplit(str(client.base_url)).netloc}/api/v1/model/live"
        headers = {"authorization": client.headers["authorization"]}
        with connect(address, additional_headers=headers) as live:
            file.write_text(MODEL.format(width=6))
            news = json.loads(live.recv(timeout=60))
            assert news == {"type": "model", "version": 2, "groups": ["0", "2"], "tied": {}, "error": None}
            assert shapes()["0.weight"] == [6, 3]
            file.write_text("def make(:")
            news = json.loads(live.recv(timeout=60))
            assert (news["type"], news["version"]) == ("model", 2)
            assert news["error"]["message"].startswith("net.py:1: the import failed: SyntaxError")
            assert shapes()["0.weight"] == [6, 3]
