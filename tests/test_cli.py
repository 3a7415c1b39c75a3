"""The command line, as a user calls it: in a process of its own, or in this one where a second start shows no more."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from chainrule import __version__
from chainrule.__main__ import commands
from chainrule.export.node_data import NODE_STATISTICS
from chainrule.presets import PRESETS
from chainrule.spec import ModelSpec

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}


def chainrule(*arguments, text=True, **environment):
    return subprocess.run(
        [sys.executable, "-m", "chainrule", *arguments],
        capture_output=True,
        text=text,
        timeout=60,
        env=ENVIRONMENT | environment,
    )


def called(*arguments, text=True, **environment):
    """The same within this process, which has torch already."""
    ours = {name: None for name in os.environ if name.startswith("CHAINRULE_")}
    result = CliRunner().invoke(commands, arguments, env=ours | environment, catch_exceptions=False)
    stdout, stderr = (result.stdout, result.stderr) if text else (result.stdout_bytes, result.stderr_bytes)
    return subprocess.CompletedProcess(arguments, result.exit_code, stdout, stderr)


@contextmanager
def serving(*arguments, command="serve", **environment):
    """A server on a free port; gives its process and the link it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chainrule", command, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | environment | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        line = process.stdout.readline()
        link = re.search(r"http://\S+", line)
        assert link, line + (process.stderr.read() if process.poll() is not None else "")
        yield process, link[0]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """A graph dump in a file."""
    path = tmp_path_factory.mktemp("dumps") / "net.json"
    assert chainrule("trace", "widths=5,4,1", "-o", str(path)).returncode == 0
    return path


@pytest.fixture(scope="module")
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.smoke
def test_help_names_every_command_and_comes_before_torch():
    done = chainrule("--help")
    assert done.returncode == 0
    for command in ("serve", "open", "trace", "presets", "gradcheck", "build-extension", "version"):
        assert command in done.stdout
    code = "import sys, chainrule.__main__; print(sorted({'torch', 'fastapi', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_version():
    assert chainrule("version").stdout == f"{__version__}\n"


def test_presets_are_listed_with_addresses_that_are_theirs():
    lines = chainrule("presets").stdout.splitlines()
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


def test_a_picture_needs_the_extra_and_says_so(tmp_path):
    done = called("trace", "widths=5,4,1", "--format", "svg", "--with", "level=all")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<svg ")
    (tmp_path / "py_mini_racer.py").write_text("raise ImportError('not installed')\n")
    done = chainrule("trace", "widths=5,4,1", "--format", "svg", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "chainrule: drawing without a browser needs an optional dependency: pip install 'chainrule[render]'\n"
    )


def test_options_of_a_format_are_given_by_name():
    done = called("trace", "widths=5,4,1", "--format", "node-data", "--with", "statistic=flops")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"]["results"]["n0"]["value"] > 0
    for arguments, says in (
        (["--with", "statistic=median"], "statistic: 'median' is not one of std, mean,"),
        (["--with", "level=all"], "level: not an option of node-data, which are: statistic"),
        (["--with", "statistic"], "--with statistic: what is wanted is KEY=VALUE"),
        (["--node-data"], "--node-data goes with --format model-explorer"),
    ):
        done = called("trace", "widths=5,4,1", "--format", "node-data", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1


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


def test_trace_writes_a_file(tmp_path):
    file = tmp_path / "dump.json"
    done = called("trace", "?widths=5,1", "-o", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(file.read_text())["spec"]["widths"] == "5,1"
    done = called("trace", "widths=5,1", "-o", str(tmp_path / "no" / "dump.json"))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"chainrule: {tmp_path / 'no' / 'dump.json'}: No such file or directory"]


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m chainrule trace preset=deep-relu | head -c 20"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert done.stdout == '{"schema":"chainrule'
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("scale=x", ["scale: 'x'", "0.0001"]),
        ("widht=3", ["did you mean 'widths'?"]),
        ("widths=100x66", ["65 layers", "CHAINRULE_MAX_DEPTH"]),
    ],
)
def test_a_bad_spec_is_one_line(query, parts):
    done = chainrule("trace", query)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("chainrule: ")
    for part in parts:
        assert part in lines[0]


def test_a_limit_can_be_raised():
    done = called("trace", "widths=2x101", "--format", "dot", CHAINRULE_MAX_DEPTH="100")
    assert done.returncode == 0
    assert done.stdout.startswith("digraph")


def test_a_bad_setting_is_one_line():
    done = chainrule("serve", CHAINRULE_PORT="http")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "CHAINRULE_PORT" in done.stderr


def test_a_port_in_use_is_one_clear_line(taken_port):
    done = chainrule("serve", "--port", str(taken_port))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"chainrule: port {taken_port} on 127.0.0.1 is in use; choose another with --port or CHAINRULE_PORT"
    ]


def test_an_address_that_is_not_this_machines():
    done = chainrule("serve", "--host", "192.0.2.1")
    assert done.returncode == 1
    assert done.stderr.startswith("chainrule: cannot listen on 192.0.2.1 port 8000: ")
    assert len(done.stderr.splitlines()) == 1


def test_on_loopback_there_is_no_token_and_ctrl_c_ends_it_quietly():
    with serving() as (process, link):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", link)
        assert httpx.get(link).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
        assert (out, err) == ("", "")
        assert process.returncode == 130


def test_beyond_loopback_a_token_is_made_and_printed_last():
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
        out, _ = process.communicate(timeout=10)
        assert out == ""


def test_a_token_of_ones_own():
    with serving("--host", "0.0.0.0", CHAINRULE_TOKEN="correct-horse-battery") as (_, link):
        assert link.endswith("/?token=correct-horse-battery")


def test_insecure_is_asked_for_by_name():
    with serving("--host", "0.0.0.0", "--insecure") as (_, link):
        assert "token" not in link
        assert httpx.get(f"{link}api/v1/presets.json").status_code == 200


def test_open_serves_a_page_with_the_dump(dump):
    with serving(str(dump), "--no-browser", command="open") as (process, link):
        page = httpx.get(link).text
        data = json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.DOTALL)[1])
        assert data["dump"] == {"name": "net.json", "url": "/api/v1/dump.json"}
        answer = httpx.get(f"{link.rstrip('/')}{data['dump']['url']}")
        assert answer.content == dump.read_bytes()
        assert answer.headers["content-type"] == "application/json"
        process.terminate()
        assert process.communicate(timeout=10) == ("", "")


def test_open_opens_a_browser_with_the_link_and_minds_not_having_one(dump, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path}/visited.part && mv {tmp_path}/visited.part {tmp_path}/visited\n'
    )
    browser.chmod(0o755)
    with serving(str(dump), command="open", BROWSER=str(browser)) as (_, link):
        deadline = time.monotonic() + 20
        while not (tmp_path / "visited").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / "visited").read_text().strip() == link
    with serving(str(dump), command="open", BROWSER="/nowhere", PATH="", DISPLAY="") as (process, link):
        assert httpx.get(link).status_code == 200
        process.terminate()
        assert process.communicate(timeout=10) == ("", "")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda body: body["ops"][1]["inputs"].append("t999"), 'the tensor "t999" does not exist'),
        (
            lambda body: body.update(schema="chainrule.trace/9"),
            "not a graph dump of schema chainrule.trace/1: schema: ",
        ),
        (None, "not a graph dump of schema chainrule.trace/1: this is not JSON: line 1, column 1: "),
    ],
)
def test_a_bad_dump_is_one_line_and_no_server(dump, tmp_path, spoil, says):
    path = tmp_path / "bad.json"
    body = json.loads(dump.read_text())
    if spoil is not None:
        spoil(body)
    path.write_text(json.dumps(body) if spoil is not None else "nonsense")
    done = called("open", str(path), "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"chainrule: {path}: ")
    assert says in done.stderr


def test_a_file_too_large_or_not_there_is_one_line(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(200 * 2**20)
    done = called("open", str(path))
    assert done.returncode == 2
    assert done.stderr == f"chainrule: {path}: the file has 200 MiB; at most 128 MiB are opened\n"
    done = called("open", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert done.stderr == f"chainrule: {tmp_path / 'none.json'}: No such file or directory\n"


def test_a_request_in_progress_is_finished_at_shutdown():
    with serving() as (process, link):
        with httpx.stream("GET", f"{link}api/v1/trace.json?preset=deep-relu", timeout=20) as answer:
            process.terminate()
            answer.read()
        assert answer.status_code == 200
        assert json.loads(answer.content)["spec"]["widths"] == "100x51"
        process.communicate(timeout=10)
