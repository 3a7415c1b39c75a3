"""Who may talk to it, by the bytes on the wire: Host, Origin, and paths that try to leave the folder."""

import http.client
import json
import re
import socket
from itertools import product

import pytest

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}

SECURITY = ("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy")


@pytest.fixture(scope="module")
def server(serve):
    with serve(allowed_hosts="class.example") as server:
        yield server


def send(port, target, method="GET", body=b"", **headers):
    """Status, headers and body of a request exactly as it is given, no header added; None leaves one out."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, fields, b"" if answer.status == 101 else answer.read()


HOSTS = {
    "127.0.0.1:{port}": True,
    "localhost:{port}": True,
    "LOCALHOST:{port}": True,
    "[::1]:{port}": True,
    "class.example": True,
    "evil.example": False,
    "evil.example:{port}": False,
    "127.0.0.1.evil.example": False,
    "localhost.evil.example": False,
    "xclass.example": False,
    "class.example.evil.example": False,
    "class.example@evil.example": False,
    "evil.example#class.example": False,
    "evil.example/class.example": False,
    "10.0.0.1": False,
    "0x7f.1": False,
    "": False,
    None: False,
}

ORIGINS = {
    "http://{host}": True,
    "https://{host}": True,
    None: True,
    "null": False,
    "": False,
    "http://evil.example": False,
    "http://{host}.evil.example": False,
    "http://evil.example/{host}": False,
    "http://{host}@evil.example": False,
    "http://evil.example@{host}": False,
    "http://{host}/": False,
    "http://127.0.0.1:1": False,
    "http://127.0.0.1": False,
    "file://{host}": False,
    "//{host}": False,
    "{host}": False,
}


@pytest.mark.parametrize("kind", ["page", "api", "socket", "post"])
def test_hosts_and_origins(server, figure, kind):
    wrong, cases = [], 0
    for (host, host_ok), (origin, origin_ok) in product(HOSTS.items(), ORIGINS.items()):
        host = None if host is None else host.format(port=server.port)
        # An origin is held to the host that was asked.
        origin = None if origin is None else origin.format(host=host or "127.0.0.1")
        headers = {"Host": host, "Origin": origin}
        if kind == "socket":
            status, fields, _ = send(server.port, "/api/v1/live", **headers, **HANDSHAKE)
            allowed = host_ok and origin_ok
            expected = {101} if allowed else {400, 403}
        elif kind == "post":
            body = b'{"widths": "3,2,1", "batch": 2}'
            content = {"Content-Type": "application/json", "Content-Length": len(body)}
            status, fields, _ = send(server.port, "/api/v1/trace", "POST", body, **headers, **content)
            allowed = host_ok and origin_ok
            expected = {200} if allowed else {400, 403}
        else:
            # Reading is the browser's to keep from other origins: it gets no header that would allow it.
            status, fields, _ = send(server.port, "/" if kind == "page" else "/api/v1/presets.json", **headers)
            expected = {200} if host_ok else {400}
        cases += 1
        missing = [name for name in SECURITY if name not in fields and status != 101]
        if status not in expected or "access-control-allow-origin" in fields or missing:
            wrong.append((host, origin, status, missing))
    figure(f"Host × Origin, {kind}: cases", cases)
    figure(f"Host × Origin, {kind}: wrongly answered", len(wrong), "", "== 0")
    assert not wrong


STEPS = ["..", "%2e%2e", ".%2e", "%252e%252e", "..%5c", "..%2f", "..%c0%af", "....//", "..;", "%00..", ".%00."]

TARGETS = ["etc/passwd", "pyproject.toml", "app/chainrule/settings.py", "templates/index.html", "proc/self/environ"]

STARTS = ["/static/", "/static/~0000000000000000/", "/static/core/", "/", "//", "/foundations/", "/static%2f"]


def test_no_path_leaves_the_folder(server, figure):
    secrets = [
        re.compile(pattern) for pattern in (rb"root:.*:0:0:", rb"\[build-system\]", rb"class Settings", rb"PATH=")
    ]
    wrong, paths = [], set()
    for start, step, target, depth in product(STARTS, STEPS, TARGETS, (1, 3, 9)):
        paths.add(start + f"{step}/" * depth + target)
    paths |= {"/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/C:/windows/win.ini", "/static/\\\\host\\share"}
    paths |= {f"/static/{'a/' * 4000}x", "/static/%", "/static/%zz", "/static/con", "/static/.", "/static/.."}
    for path in sorted(paths):
        status, fields, body = send(server.port, path, Host=f"127.0.0.1:{server.port}", Connection="close")
        # Some come out at what is there for everybody, such as the page: 200 is no fault by itself.
        if status >= 500 or any(secret.search(body) for secret in secrets):
            wrong.append((path, status))
        elif status >= 400 and b"<html" not in body:
            assert json.loads(body)["error"]["code"], path
            assert all(name in fields for name in SECURITY), path
    figure("paths that try to leave the folder", len(paths), "", ">= 1000")
    figure("of them, any that did", len(wrong), "", "== 0")
    assert not wrong
