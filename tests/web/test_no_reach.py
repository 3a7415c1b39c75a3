"""Nothing that a client sends reaches the file system, the network, another program or an unpickler.

Two views of it: what the source could do at all, and what the interpreter did while every route was asked for whatever
paths, addresses and code look like.
"""

import ast
import json
import mimetypes
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "app" / "chainrule"

# The standard library's modules that reach out, and the modules that import them: of the command line, or for what no
# client chooses.
BUILDS = {"foundations.linear_extension.build"}
MODULES = {
    **{
        name: set()
        for name in "pickle marshal shelve dill cloudpickle joblib runpy code multiprocessing ssl urllib.request "
        "http.client ftplib smtplib requests httpx aiohttp".split()
    },
    "socket": {"__main__", "web.view", "web.slow_clients", "web.server"},  # listen; set a connection's options
    "subprocess": BUILDS,
    "tempfile": {*BUILDS, "page.bundles"},  # bundles are made while the package is built
    "shutil": BUILDS,
    "webbrowser": {"__main__", "web.view"},
}

CALLS = {
    **{name: set() for name in ("__import__", "system", "popen", "execv", "execve", "execvp", "fork")},
    "eval": {"export.svg"},  # of the page's own script, in V8
    "exec": {"user_model.code"},  # the file that `chainrule explore` was given
    "compile": {"user_model.code"},
    # web.main: Compute.open(); dump.opened: a file that `chainrule open` was given; web.view: a browser
    "open": {*BUILDS, "__main__", "web.main", "dump.opened", "web.view"},
    "load": {
        *("foundations.linear_extension.build", "foundations.linear_extension.library"),
        *("gradcheck.command", "__main__"),  # a file of the user's, named on the command line
        "web.api",  # OpenDump.load(): a dump that `chainrule open` was given, by its number
    },
    "write_text": {*BUILDS, "page.bundles"},
    "write_bytes": {"__main__", "export.formats", "recording"},  # `chainrule trace --node-data`; `save`
    "unlink": BUILDS,
    "mkdir": {*BUILDS, "export.formats", "page.bundles", "recording"},
    "rmtree": BUILDS,
}
"""By the last part of a call's name."""

HARMLESS = {"re.compile", "torch.compile"}


def reaches(source):
    """Names in MODULES and CALLS that a source uses."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            dotted = ast.unparse(node.func)
            if dotted not in HARMLESS and dotted.rpartition(".")[2] in CALLS:
                found.add(dotted.rpartition(".")[2])
        for name in names:
            found |= {module for module in MODULES if name == module or name.startswith(f"{module}.")}
    return found


def test_only_listed_modules_can_reach_out():
    found = {name: set() for name in MODULES | CALLS}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for name in reaches(path.read_text(encoding="utf-8")):
            found[name].add(module)
    allowed = MODULES | CALLS
    assert {name: modules - allowed[name] for name, modules in found.items() if modules - allowed[name]} == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f():\n    import pickle", "pickle"),
        ("from urllib.request import urlopen", "urllib.request"),
        ("from urllib import request", "urllib.request"),
        ("torch.load(path)", "load"),
        ("eval(query)", "eval"),
        ("os.system('ls')", "system"),
        ("open(path)", "open"),
        ("Path(name).write_bytes(body)", "write_bytes"),
    ],
)
def test_a_reach_is_seen(source, name):
    assert reaches(source) == {name}


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

# Runs in a process of its own: an audit hook stays for good.
SCRIPT = """
import asyncio, json, os, sys
from urllib.parse import quote

hostile, times = json.loads(sys.argv[1]), int(sys.argv[2])
import httpx
import torch
from chainrule.web.main import create_app
from chainrule.settings import Settings

torch.set_num_threads(1)
recording, seen = False, []
WATCHED = ("open", "socket.", "subprocess.", "os.", "shutil.", "pickle.", "ctypes.dlopen", "urllib.", "http.")
HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.fwalk")

def hook(event, arguments):
    if recording and event.startswith(WATCHED) and event not in HARMLESS:
        seen.append([event, *map(str, arguments)])

sys.addaudithook(hook)

app = create_app(Settings(deadline_seconds=3600, live_deadline_seconds=3600))

async def http(client, method, path, **options):
    answer = await client.request(method, path, **options)
    return answer.status_code

async def live(messages):
    sent, left = [], [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": m} for m in messages)]
    done = asyncio.Event()
    async def receive():
        if left:
            return left.pop(0)
        await done.wait()
        return {"type": "websocket.disconnect", "code": 1000}
    async def send(message):
        sent.append(message)
        if '"seq":1' in message.get("text", ""):
            done.set()
    scope = {"type": "websocket", "path": "/api/v1/live", "raw_path": b"/api/v1/live", "query_string": b"",
             "headers": [(b"host", b"127.0.0.1")], "scheme": "ws", "subprotocols": [], "server": None,
             "client": None, "root_path": "", "state": {}, "extensions": {"websocket.http.response": {}}}
    await app(scope, receive, send)
    return sent

async def main():
    global recording
    statuses = {}
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            described = app.openapi()["paths"]
            gets = [(path, item["get"].get("parameters", [])) for path, item in described.items() if "get" in item]
            async def everything():
                for path in ["/", "/docs", "/foundations", "/metrics", "/static/docs.js", *(path for path, _ in gets)]:
                    path = path.replace("{", "").replace("}", "")
                    statuses[path] = await http(client, "GET", path)
                await http(client, "POST", "/api/v1/trace", json={"widths": "3,1"})
            recording = True
            await everything()
            at = 0
            for turn, value in enumerate(hostile):
                for path, parameters in gets:
                    target = path
                    for each in parameters:
                        if each["in"] == "path":
                            target = target.replace("{" + each["name"] + "}", quote(value, safe=""))
                    names = [each["name"] for each in parameters if each["in"] == "query"]
                    for name in names or ["x"]:
                        at += 1
                        # Each parameter takes `times` of the values in turn.
                        if (at + turn) % len(hostile) < times:
                            statuses[path, name, value] = await http(client, "GET", target, params={name: value})
                    for prefix in ("/static/", "/static/vendor/", "/foundations/", "/api/v1/", "/"):
                        await http(client, "GET", prefix + quote(value, safe=""))
                for name in ("widths", "program", "device", "preset", "init", "style", value):
                    statuses["POST", name, value] = await http(client, "POST", "/api/v1/trace", json={name: value})
                await http(client, "POST", "/api/v1/trace", content=value.encode("utf-8", "replace"))
                for name in ("authorization", "cookie", "origin", "referer", "x-forwarded-for", "x-request-id"):
                    header = [(name.encode(), value.encode("latin-1", "replace"))]
                    await http(client, "GET", "/api/v1/presets.json", headers=header)
                await live([json.dumps({"seq": 0, "spec": {"widths": value}}),
                            json.dumps({"seq": 1, "spec": {"device": value}}), value])
            recording = False
    bad = {str(key): status for key, status in statuses.items() if status == 500}
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
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["asked"] > (500 if times > 1 else 100)
    assert told["bad"] == {}
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


@pytest.mark.parametrize(
    ("event", "harmless"),
    [
        (("open", str(ROOT / "static" / "docs.js"), "r", str(os.O_RDONLY)), True),
        (("open", str(ROOT / "static" / "docs.js"), "w", str(os.O_WRONLY)), False),
        (("open", str(ROOT / "static" / ".." / "pyproject.toml"), "r", "0"), False),
        (("open", "/etc/passwd", "r", "0"), False),
        (("socket.connect", "<socket>", "('127.0.0.1', 1)"), False),
        (("socket.getaddrinfo", "x", "1"), False),
        (("subprocess.Popen", "ls"), False),
        (("os.remove", "x"), False),
        (("pickle.find_class", "os", "system"), False),
    ],
)
def test_harmless_events(event, harmless):
    assert is_harmless(*event) is harmless
