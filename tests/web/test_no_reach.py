"""Nothing that a client sends reaches the file system, the network, another program or an unpickler.

An audit hook sees it while every route is asked for whatever paths, addresses and code look like.
"""

import json
import mimetypes
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Addresses, paths, programs and pickles.
HOSTILE = [
    "/etc/passwd",
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "file:///etc/passwd",
    "http://127.0.0.1:1/",
    "//127.0.0.1:1/x",
    "\\\\127.0.0.1\\share",
    "/dev/zero",
    "\0",
    "$(touch {marker})",
    "`touch {marker}`",
    ";touch {marker};",
    "__import__('os').system('touch {marker}')",
    "{{{{7*7}}}}",
    "\x80\x04\x95",
    "~",
    ".",
    "",
]

# Runs in a process of its own: an audit hook stays for good, and so does the limit that lets no file grow.
SCRIPT = """
import asyncio, json, resource, sys
from urllib.parse import quote

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
hostile, times = json.loads(sys.argv[1]), int(sys.argv[2])
import httpx
import torch
from chainrule.settings import Settings
from chainrule.spec.programs import PROGRAMS
from chainrule.web.main import create_app

torch.set_num_threads(1)
recording, seen = False, []
WATCHED = ("open", "socket.", "subprocess.", "os.", "shutil.", "pickle.", "ctypes.dlopen", "urllib.", "http.")
HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")
HEADERS = ("authorization", "cookie", "origin", "referer", "x-forwarded-for", "x-request-id")

def hook(event, arguments):
    if recording and event.startswith(WATCHED) and event not in HARMLESS:
        seen.append([event, *map(str, arguments)])

sys.addaudithook(hook)
app = create_app(Settings(deadline_seconds=3600, live_deadline_seconds=3600))

async def live(*messages):
    left = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": each} for each in messages)]
    done = asyncio.Event()
    async def receive():
        if left:
            return left.pop(0)
        await done.wait()
        return {"type": "websocket.disconnect", "code": 1000}
    async def send(message):
        if '"seq":1' in message.get("text", ""):
            done.set()
    scope = {"type": "websocket", "path": "/api/v1/live", "raw_path": b"/api/v1/live", "query_string": b"",
             "headers": [(b"host", b"127.0.0.1")], "scheme": "ws", "subprotocols": [], "server": None,
             "client": None, "root_path": "", "state": {}, "extensions": {"websocket.http.response": {}}}
    await app(scope, receive, send)

async def main():
    global recording
    statuses = {}
    transport = httpx.ASGITransport(app)
    async with (app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client):

        async def ask(method, path, **options):
            statuses[len(statuses), path] = (await client.request(method, path, **options)).status_code

        # The first picture starts the process that draws all of them.
        await ask("GET", "/api/v1/trace.svg", params={"widths": "3,1"})
        recording = True
        described = app.openapi()["paths"]
        gets = [(path, item["get"].get("parameters", [])) for path, item in described.items() if "get" in item]
        for path in ["/", "/docs", "/standalone.html", "/foundations", "/static/docs.js", *(path for path, _ in gets)]:
            await ask("GET", path.replace("{", "").replace("}", ""))
        for program in PROGRAMS:
            await ask("GET", "/api/v1/trace.json", params={"program": program})
        await ask("POST", "/api/v1/trace", json={"widths": "3,1"})
        at = 0
        for turn, value in enumerate(hostile):
            for path, parameters in gets:
                target = path
                for each in parameters:
                    if each["in"] == "path":
                        target = target.replace("{" + each["name"] + "}", quote(value, safe=""))
                for name in [each["name"] for each in parameters if each["in"] == "query"] or ["x"]:
                    at += 1
                    # Each parameter takes `times` of the values in turn.
                    if (at + turn) % len(hostile) < times:
                        await ask("GET", target, params={name: value})
            for prefix in ("/static/", "/static/vendor/", "/foundations/", "/api/v1/", "/"):
                await ask("GET", prefix + quote(value, safe=""))
            for name in ("widths", "program", "device", "preset", "init", "style", value):
                await ask("POST", "/api/v1/trace", json={name: value})
            await ask("POST", "/api/v1/trace", content=value.encode("utf-8", "replace"))
            for name in HEADERS:
                header = [(name.encode(), value.encode("latin-1", "replace"))]
                await ask("GET", "/api/v1/presets.json", headers=header)
            await live(json.dumps({"seq": 0, "spec": {"widths": value}}),
                       json.dumps({"seq": 1, "spec": {"device": value}}), value)
        recording = False
    bad = [path for path, status in statuses.items() if status == 500]
    print(json.dumps({"asked": len(statuses), "bad": bad, "seen": seen}))

asyncio.run(main())
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [1, pytest.param(len(HOSTILE), marks=pytest.mark.long)])
def test_no_request_opens_writes_starts_or_calls_anything(tmp_path, times):
    marker = tmp_path / "marker"
    hostile = [value.replace("{marker}", str(marker)) for value in (HOSTILE if times > 1 else HOSTILE[::3])]
    done = subprocess.run(
        [sys.executable, "-B", "-c", SCRIPT, json.dumps(hostile), str(times)],  # -B: no cache of bytecode
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(ROOT / "app"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["asked"] > (500 if times > 1 else 100)
    assert told["bad"] == []
    assert not marker.exists()
    assert list(tmp_path.iterdir()) == []
    assert len(told["seen"]) > 100, "pictures read the page's scripts"
    assert [event for event in told["seen"] if not is_harmless(*event)] == []


READ_FROM = [
    *(ROOT / name for name in ("app/chainrule", "static", "templates")),
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
]

READ = {"/proc/self/stat", "/proc/self/limits", *mimetypes.knownfiles}
"""Files about the process, for `/metrics`, and the system's media types."""


def is_harmless(event, *arguments):
    """Whether a server may raise this audit event while it answers."""
    if event == "socket.__new__":
        return True  # V8's event loop wakes itself through a pair of sockets; nothing is connected, bound or looked up
    if event == "ctypes.dlopen":
        return is_own(arguments[0])  # V8, when the first picture is drawn
    if event != "open":
        return False
    path, _, flags = arguments
    if int(flags) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
        return False
    return path in READ or is_own(path)


def is_own(path):
    return path in sys.path or any(Path(path).resolve().is_relative_to(folder.resolve()) for folder in READ_FROM)
