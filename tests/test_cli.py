"""The command line: in a process, or in this one where a process shows no more."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from command import ENVIRONMENT, chainrule, command_line, serving
from typer.testing import CliRunner

from chainrule import __version__
from chainrule.__main__ import commands
from chainrule.export.model_explorer import NODE_STATISTICS
from chainrule.spec import ModelSpec
from chainrule.spec.presets import PRESETS


def called(*arguments, text=True, **environment):
    ours = {name: None for name in os.environ if name.startswith("CHAINRULE_")}
    result = CliRunner().invoke(commands, arguments, env=ours | environment, catch_exceptions=False)
    stdout, stderr = (result.stdout, result.stderr) if text else (result.stdout_bytes, result.stderr_bytes)
    return subprocess.CompletedProcess(arguments, result.exit_code, stdout, stderr)


def refused(*arguments, status=2, **environment):
    """The one error line of a command."""
    done = called(*arguments, **environment)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("chainrule: ")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr.strip().removeprefix("chainrule: ")


def page_data(link):
    page = httpx.get(link, follow_redirects=True).text
    return json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dumps") / "net.json"
    assert called("trace", "?widths=5,4,1", "-o", str(path)).returncode == 0
    return path


@pytest.mark.smoke
def test_help_names_every_command_and_comes_before_torch():
    done = chainrule("--help", fresh=True)
    assert done.returncode == 0
    for command in ("serve", "check", "open", "compare", "trace", "presets", "gradcheck", "build-extension", "version"):
        assert command in done.stdout
    code = "import sys, chainrule.__main__; print(sorted({'torch', 'fastapi', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_presets_are_listed_with_their_addresses():
    assert called("version").stdout == f"{__version__}\n"
    lines = called("presets").stdout.splitlines()
    assert len(lines) == 3 * len(PRESETS)
    for preset, first, second, third in zip(PRESETS, lines[::3], lines[1::3], lines[2::3], strict=True):
        assert first.split()[0] == preset.name
        assert preset.theory in second
        query = third.strip().replace("the default spec", "")
        assert ModelSpec.from_query(query) == ModelSpec.parse({"preset": preset.name})


@pytest.mark.parametrize("form", ["json", "dot", "model-explorer"])
def test_trace_writes_the_bytes_of_the_http_answer(server_url, form):
    query = "widths=20,10,1&seed=3"
    done = (chainrule if form == "json" else called)("trace", query, "--format", form, text=False)
    assert done.returncode == 0, done.stderr
    answer = httpx.get(
        f"{server_url}/api/v1/trace.{form if form != 'model-explorer' else 'model-explorer.json'}?{query}"
    )
    timing = re.compile(rb'"timing":\{[^}]*\}')
    assert timing.sub(b"", done.stdout) == timing.sub(b"", answer.content)
    assert bool(timing.search(done.stdout)) == (form == "json")


@pytest.mark.long
def test_a_picture_needs_the_extra_and_says_so(tmp_path):
    done = called("trace", "widths=5,4,1", "--format", "svg", "--with", "level=all")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<svg ")
    (tmp_path / "py_mini_racer.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = chainrule("trace", "widths=5,4,1", "--format", "svg", fresh=True, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "chainrule: drawing without a browser needs an optional dependency: pip install 'chainrule[render]'\n"
    )


NODE_DATA = ("trace", "widths=5,4,1", "--format", "node-data")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["trace", "scale=x"], ["scale: 'x'", "0.0001"]),
        (["trace", "widht=3"], ["did you mean 'widths'?"]),
        (["trace", "widths=100x66"], ["65 layers", "CHAINRULE_MAX_DEPTH"]),
        ([*NODE_DATA, "--with", "statistic=median"], ["statistic: 'median' is not one of std, mean,"]),
        ([*NODE_DATA, "--with", "level=all"], ["level: unknown key; the keys of the format node-data are statistic"]),
        ([*NODE_DATA, "--with", "statistic"], ["--with statistic: expected KEY=VALUE"]),
        ([*NODE_DATA, "--node-data"], ["--node-data needs --format model-explorer"]),
        (
            ["open", "bad.json", "--port", "0"],
            ["bad.json: not a graph dump of schema chainrule.trace/1: this is not JS"],
        ),
        (["open", "large.json"], ["large.json: the dump has more than 1024 MiB; larger dumps cannot be opened"]),
        (["runs", "bad.json"], ["bad.json: not a folder; give the folder that contains the runs"]),
        (["open", "none.json"], ["none.json: No such file or directory"]),
    ],
)
def test_a_mistake_is_one_line(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("nonsense")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(2**30 + 1)
    said = refused(*arguments)
    assert [part for part in parts if part not in said] == []


def test_settings_come_from_the_environment():
    done = called("trace", "widths=2x101", "--format", "dot", CHAINRULE_MAX_DEPTH="100")
    assert (done.returncode, done.stdout[:7]) == (0, "digraph")
    assert "CHAINRULE_TRUSTED_PROXIES" in refused("serve", CHAINRULE_TRUSTED_PROXIES="10.0.0.0/8, proxy.example")


def test_options_of_a_format_are_given_by_name():
    done = called(*NODE_DATA, "--with", "statistic=flops")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"]["results"]["n0"]["value"] > 0


def test_a_model_explorer_graph_comes_with_a_file_per_statistic(tmp_path):
    folder = tmp_path / "made" / "here"
    done = called("trace", "widths=5,4,1", "--format", "model-explorer", "--node-data", "-o", str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    graph = json.loads((folder / "graph.json").read_text())["graphs"][0]
    nodes = {node["id"] for node in graph["nodes"]}
    for name in NODE_STATISTICS:
        data = json.loads((folder / f"{name}.node-data.json").read_text())
        assert data.keys() == {graph["id"]}
        assert data[graph["id"]]["results"].keys() <= nodes
    assert len(list(folder.iterdir())) == len(NODE_STATISTICS) + 1


def test_a_closed_pipe_is_no_error():
    command = f"{shlex.join(map(str, command_line(['trace', 'preset=deep-relu'])))} | head -c 20"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.stdout == '{\n"schema":"chainrul'
    assert done.stderr == ""


def test_an_address_that_cannot_be_listened_on_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", "--port", str(port), status=1)
    assert said == f"port {port} on 127.0.0.1 is in use; choose another with --port or CHAINRULE_PORT"
    assert refused("serve", "--host", "192.0.2.1", status=1).startswith("cannot listen on 192.0.2.1 port 8000: ")


def test_loopback_needs_no_token_and_ctrl_c_prints_nothing():
    with serving() as (process, link):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", link)
        # The answers from before PyTorch was imported have ended.
        with httpx.Client(headers={"connection": "close"}) as client:
            assert {client.get(link).status_code for _ in range(50)} == {200}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (out, err) == ("", "")
        assert process.returncode == 130


def test_a_public_server_makes_a_token_and_prints_its_link():
    with serving("--host", "0.0.0.0") as (process, link):
        url = httpx.URL(link)
        token = url.params["token"]
        assert len(token) >= 32
        assert url.host == "127.0.0.1"
        base = f"http://127.0.0.1:{url.port}"
        assert httpx.get(f"{base}/api/v1/presets.json").status_code == 401
        assert httpx.get(f"{base}/healthz").status_code == 200
        authorized = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/api/v1/presets.json", headers=authorized).status_code == 200
        with httpx.Client(follow_redirects=True) as browser:
            page = browser.get(link)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert browser.get(f"{base}/api/v1/presets.json").status_code == 200
        process.terminate()
        out, _ = process.communicate(timeout=30)
        assert out == ""


def test_insecure_serves_dumps_in_order_without_bad_ones(dump, tmp_path):
    for step in (1000, 200):
        (tmp_path / f"step{step}.json").write_bytes(dump.read_bytes())
    (tmp_path / "step300.json").write_text("nonsense")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    options = "--host", "0.0.0.0", "--insecure", "--no-browser"
    with serving(*paths, *options, command="open") as (process, link):
        assert "token" not in link
        assert [each["name"] for each in page_data(link)["dumps"]] == ["step200.json", "step1000.json"]
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert err.startswith(f"chainrule: {tmp_path / 'step300.json'}: not a graph dump of schema chainrule.trace/1: ")
    assert len(err.splitlines()) == 1


def test_open_serves_the_dump_and_opens_a_browser_if_there_is_one(dump, tmp_path):
    browser, visited = tmp_path / "browser", tmp_path / "visited"
    os.mkfifo(visited)
    browser.write_text(f'#!/bin/sh\necho "$1" > {visited}\n')
    browser.chmod(0o755)
    with serving(str(dump), command="open", BROWSER=str(browser)) as (_, link):
        # Under a host name of its own, where the system knows such names.
        assert re.sub(r"chainrule-[0-9a-f]{8}\.localhost", "127.0.0.1", visited.read_text().strip()) == link
        data = page_data(link)
        assert data["dump"] == {"name": "net.json", "url": "/api/v1/dump.json"}
        served, token = link.partition("?token=")[::2]
        address = f"{served.rstrip('/')}{data['dump']['url']}"
        assert httpx.get(address).status_code == 401, "another user of the machine"
        assert httpx.get(address, headers={"authorization": f"Bearer {token}"}).content == dump.read_bytes()
    with serving(str(dump), command="open", BROWSER="/nowhere", PATH="", DISPLAY="") as (process, link):
        assert httpx.get(link, follow_redirects=True).status_code == 200
        process.terminate()
        assert process.communicate(timeout=30) == ("", "")


def test_compare_opens_the_second_with_the_first_pinned(dump, tmp_path):
    others = [tmp_path / "aaa.json", tmp_path / "bbb.json"]
    for other in others:
        other.write_bytes(dump.read_bytes())
    with serving(str(dump), *map(str, others), "--no-browser", command="compare") as (process, link):
        page, _, view = link.partition("#")
        assert view == "a=dump:0&colour=difference&dump=1"
        data = page_data(page)
        assert [each["name"] for each in data["dumps"]] == ["net.json", "aaa.json", "bbb.json"]
        process.terminate()
        assert process.communicate(timeout=30) == ("", "")


def test_without_dumps_no_server_starts(dump, tmp_path):
    missing = tmp_path / "none.json"
    done = called("compare", str(dump), str(missing), "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == f"chainrule: {missing}: No such file or directory"
    assert "compare needs every dump, but could not open all of them" in second
    done = called("open", str(missing), str(missing), "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [first, first]


LONG_SPEC = {"widths": "1024x65", "batch": 1024, "last_activation": True}
UNLIMITED = {
    "CHAINRULE_MAX_FLOPS": str(10**15),
    "CHAINRULE_MAX_MEMORY_BYTES": str(10**11),
    "CHAINRULE_DEADLINE_SECONDS": "3600",
    "CHAINRULE_LIVE_DEADLINE_SECONDS": "3600",
    "CHAINRULE_SEND_SECONDS": "3600",
}


def computing(link):
    text = httpx.get(f"{link}metrics").text
    return re.search(r'^chainrule_device_busy\{device="cpu"\} 1', text, re.MULTILINE) is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_the_process_ends_while_it_computes(number):
    with (
        serving(CHAINRULE_SHUTDOWN_SECONDS="1", **UNLIMITED) as (process, link),
        ThreadPoolExecutor() as threads,
    ):
        answer = threads.submit(httpx.post, f"{link}api/v1/trace", json=LONG_SPEC, timeout=60)
        while not computing(link):
            pass
        process.send_signal(number)
        process.wait(timeout=60)
        try:
            told = answer.result(timeout=20)
        except httpx.TransportError:
            pass  # the process had to end before the computation could be stopped
        else:
            assert (told.status_code, told.json()["error"]["code"]) == (503, "stopped")


def test_a_thread_that_does_not_stop_ends_with_the_process():
    """Python would wait for a thread in the middle of an op."""
    code = (
        "import threading, time; from chainrule.web.serve import end_after; "
        "threading.Thread(target=end_after, args=(0.2, 143, True), daemon=True).start(); "
        "threading.Thread(target=time.sleep, args=(600,)).start()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_a_request_in_progress_is_finished_at_shutdown():
    with serving() as (process, link):
        with httpx.stream("GET", f"{link}api/v1/trace.json?preset=deep-relu", timeout=20) as answer:
            process.terminate()
            answer.read()
        assert answer.status_code == 200
        assert json.loads(answer.content)["spec"]["widths"] == "100x51"
        process.communicate(timeout=30)
