"""The server writes nothing, whatever it is asked: it runs where every file and folder is read-only."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from starlette.routing import Mount, WebSocketRoute
from websockets.sync.client import connect

from chainrule.chapter.pages import PAGES
from chainrule.export.formats import FORMATS
from chainrule.settings import Settings
from chainrule.spec.programs import PROGRAMS
from chainrule.web.main import create_app

ROOT = Path(__file__).parents[1]
WATCHED = Path(__file__).parent / "shared" / "watched.py"

ADDRESSES = [
    *("/", "/docs", "/standalone.html", "/openapi.json", "/healthz", "/readyz", "/metrics"),
    *("/foundations", "/foundations/", "/foundations.json"),
    *(f"{page.path}{twin}" for page in PAGES.values() for twin in ("", ".json")),
    *("/static/explorer.js", "/static/core/dom.js", "/static/icon.svg"),
    "/static/vendor/plotly.min.js",
    *(f"/api/v1/trace.json?program={name}" for name in PROGRAMS),
    "/api/v1/profile.json?preset=deep-relu",
    *("/api/v1/trace.dot", "/api/v1/trace.svg?level=all", "/api/v1/trace.html", "/api/v1/trace.py"),
    *("/api/v1/trace.model-explorer.json", "/api/v1/node-data.json?statistic=norm"),
    *("/api/v1/theory.json", "/api/v1/tensor.json?name=l2"),
    *("/api/v1/presets.json", "/api/v1/devices.json", "/api/v1/schema/trace.json"),
]
"""Addresses answered 200."""

REFUSED = [
    # address, status
    ("/api/v1/dump.json", 404),
    ("/nowhere", 404),
    ("/static/../pyproject.toml", 404),
    ("/api/v1/trace.json?scale=x", 422),
    ("/api/v1/trace.json?widths=100x999", 422),
    ("/api/v1/trace.svg?level=most", 422),
]


def flat(routes):
    """Every route, those of included routers too."""
    for route in routes:
        if hasattr(route, "path"):
            yield route
        else:
            yield from flat(route.original_router.routes)


def test_every_route_is_asked_below():
    asked = {address.partition("?")[0] for address in [*ADDRESSES, *(address for address, _ in REFUSED)]}
    for route in flat(create_app(Settings()).routes):
        if isinstance(route, (Mount, WebSocketRoute)) or route.methods == {"POST"}:
            assert route.path in ("/static", "/api/v1/live", "/api/v1/trace")
        else:
            assert route.path.replace("{name:path}", "plotly.min.js") in asked
    assert {"json", "dot", "svg", "html", "model-explorer", "node-data", "pytorch"} == set(FORMATS)


class Watched:
    """A module that runs watched, from `with` to the end of the block: its output, and the changes it tries."""

    def __init__(self, folder, *command, **environment):
        self.lines, self.changes = [], []
        reading, writing = os.pipe()
        given = {name: value for name, value in os.environ.items() if not name.startswith(("CHAINRULE_", "COV_"))}
        self.process = subprocess.Popen(
            [sys.executable, str(WATCHED), str(writing), *command],
            cwd=folder,
            env=given | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            text=True,
        )
        os.close(writing)
        self._said = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(os.fdopen(reading), self.changes)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, file, into):
        with file:
            for line in file:
                with self._said:
                    into.append(line.rstrip("\n"))
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def wait_for(self, pattern):
        """The match in the first line of output that has one."""
        found = []

        def seen():
            found[:] = [match for line in self.lines if (match := re.search(pattern, line))]
            return found or not self._readers[0].is_alive()

        with self._said:
            assert self._said.wait_for(seen, 60)
        assert found, self.lines
        return found[0]

    def end(self):
        """Wait until it has ended and all it said is read; its exit status."""
        status = self.process.wait(20)
        for reader in self._readers:
            reader.join(10)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def test_a_change_is_noticed(tmp_path):
    # Otherwise the test below could not fail.
    (tmp_path / "changing.py").write_text(
        "import contextlib, os, pathlib, subprocess, tempfile\n"
        "def attempt(action, *given):\n"
        "    with contextlib.suppress(OSError):\n"
        "        action(*given)\n"
        "open('/dev/null', 'w').close()\n"
        "attempt(open, 'made', 'w')\n"
        "attempt(open, 'made', 'a')\n"
        "attempt(pathlib.Path('touched').touch)\n"
        "attempt(os.mkdir, 'folder')\n"
        "attempt(os.rename, 'made', 'moved')\n"
        "attempt(os.remove, 'moved')\n"
        "attempt(tempfile.mkstemp)\n"
        "attempt(subprocess.Popen, ['true'])\n"
        "file = open(os.open('bytes', os.O_WRONLY | os.O_CREAT), 'w')\n"
        "file.write('x')\n"
        "attempt(file.flush)\n"
        "print('written', os.path.getsize('bytes'), flush=True)\n"
        "os._exit(0)\n"
    )
    with Watched(tmp_path, "changing", PYTHONPATH=str(tmp_path)) as watched:
        assert watched.end() == 0
    changes = "\n".join(watched.changes)
    for expected in (
        "open 'made' w",
        "open 'made' a",
        "'touched'",
        "os.mkdir 'folder'",
        "os.rename 'made'",
        "os.remove 'moved'",
        "tmp",
        "subprocess.Popen 'true'",
        "open 'bytes'",
    ):
        assert expected in changes
    assert "/dev/null" not in changes
    assert watched.lines == ["written 0"], "not one byte can be written, by whatever means"


def snapshot(folder):
    """Paths and change times of a folder, without the locks of other tests."""
    return {str(path): path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")] if path.suffix != ".lock"}


@pytest.mark.long
def test_serving_writes_nothing(tmp_path, extension_cache):
    empty = tmp_path / "empty"
    empty.mkdir()
    before = [snapshot(folder) for folder in (empty, extension_cache)]
    environment = {
        "HOME": str(tmp_path / "nowhere"),
        "TMPDIR": str(empty),
        "XDG_CACHE_HOME": str(extension_cache),
        "CHAINRULE_LOG_LEVEL": "info",
        "CHAINRULE_LOG_FORMAT": "json",
    }
    with Watched(empty, "chainrule", "serve", "--port", "0", **environment) as server:
        address = server.wait_for(r"is at http://([\d.:]+)")[1]
        with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
            ask_everything(client)
        look_live(f"ws://{address}/api/v1/live")
        server.process.terminate()
        assert server.end() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert server.changes == []
    assert [snapshot(folder) for folder in (empty, extension_cache)] == before
    assert not (tmp_path / "nowhere").exists()


def ask_everything(client):
    """Every route, as it is answered and as it is refused."""
    for address in ADDRESSES:
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text[:300])
    for address, status in REFUSED:
        assert client.get(address).status_code == status, address
    assert client.post("/api/v1/trace", json={"seed": 9}).status_code == 200
    assert client.post("/api/v1/trace", json={"seed": "x"}).status_code == 422
    # More than a server keeps in memory of a form or a file that is uploaded; none is taken here.
    assert client.post("/api/v1/trace", content=b" " * (2 << 20)).status_code in (413, 415)
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400


def look_live(address):
    """A picture of every program over the live socket, and one that cannot be."""
    with connect(address, max_size=None) as socket:
        for seq, program in enumerate([*PROGRAMS, "none"], 1):
            socket.send(json.dumps({"seq": seq, "spec": {"program": program}}))
            # A frame is binary; what comes instead of one is an error.
            while isinstance(message := socket.recv(60), str) and json.loads(message)["type"] != "error":
                pass
            assert isinstance(message, str) == (program == "none"), message[:300]
