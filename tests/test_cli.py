"""The command line, as a user calls it: in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from chainrule import __version__
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


@contextmanager
def serving(*arguments, **environment):
    """A server on a free port; gives its process and the link it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chainrule", "serve", "--port", "0", *arguments],
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
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.smoke
def test_help_names_every_command_and_comes_before_torch():
    done = chainrule("--help")
    assert done.returncode == 0
    for command in ("serve", "trace", "presets", "version"):
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
    done = chainrule("trace", query, "--format", form, text=False)
    assert done.returncode == 0, done.stderr
    answer = httpx.get(
        f"{server_url}/api/v1/trace.{form if form != 'model-explorer' else 'model-explorer.json'}?{query}"
    )
    timing = re.compile(rb'"timing":\{[^}]*\}')
    assert timing.sub(b"", done.stdout) == timing.sub(b"", answer.content)
    assert bool(timing.search(done.stdout)) == (form == "json")


def test_trace_writes_a_file(tmp_path):
    file = tmp_path / "dump.json"
    done = chainrule("trace", "?widths=5,1", "-o", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(file.read_text())["spec"]["widths"] == "5,1"
    done = chainrule("trace", "widths=5,1", "-o", str(tmp_path / "no" / "dump.json"))
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
    done = chainrule("trace", "widths=2x101", "--format", "dot", CHAINRULE_MAX_DEPTH="100")
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


def test_a_request_in_progress_is_finished_at_shutdown():
    with serving() as (process, link):
        with httpx.stream("GET", f"{link}api/v1/trace.json?preset=deep-relu", timeout=20) as answer:
            process.terminate()
            answer.read()
        assert answer.status_code == 200
        assert json.loads(answer.content)["spec"]["widths"] == "100x51"
        process.communicate(timeout=10)
