"""Connections over real sockets to a server with short timeouts."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest
from served import wait_for
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from chainrule.settings import Settings
from chainrule.web.connections import MAX_LINGERING, SocketConnection
from chainrule.web.guard import SECURITY_HEADERS, Guard, cookie_name
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import RequestLog, Templates
from chainrule.web.server import Server, ServerConfig
from chainrule.web.slow_clients import KERNEL_BYTES, SendWatch, unsent

PATIENCE = {"receive_seconds": 0.3, "send_seconds": 0.3}
LONG = 12.0
"""Longest wait for anything on a busy machine."""

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = bytes(range(256)) * (1 << 16)  # 16 MiB: more than a kernel keeps


class Application:
    def __init__(self):
        self.gone = threading.Event()
        self.began = threading.Event()
        self.release = threading.Event()
        self.body = b""
        self.metrics = Metrics()
        self.shutdown_began = threading.Event()
        compute = SimpleNamespace(begin_shutdown=self.shutdown_began.set)
        self.service = SimpleNamespace(metrics=self.metrics, compute=compute)

    async def plain(self, _):
        return JSONResponse({"answer": 42})

    async def large(self, _):
        return Response(LARGE)

    async def waits(self, request):
        """Reads no body; returns when its client has gone."""
        self.began.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()
        return Response()

    async def reads(self, request):
        self.began.set()
        self.body = await request.body()
        return JSONResponse({"bytes": len(self.body)})

    async def late(self, _):
        """Answers once `release` is set, without reading the body."""
        self.began.set()
        await asyncio.to_thread(self.release.wait, LONG)
        return JSONResponse({"answer": 42})

    async def floods(self, websocket):
        await websocket.accept()
        self.began.set()
        try:
            while True:
                await websocket.send_bytes(LARGE)
        finally:
            self.gone.set()

    async def sends_one(self, websocket):
        await websocket.accept()
        await websocket.send_bytes(LARGE)
        await websocket.receive_text()

    async def listens(self, websocket):
        await websocket.accept()
        self.began.set()
        await websocket.receive()
        self.gone.set()

    async def counts(self, websocket):
        """Counts messages, and answers `how many?`."""
        await websocket.accept()
        heard = 0
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                break
            heard += 1
            if message["text"] == "how many?":
                await websocket.send_text(str(heard))
        self.gone.set()

    async def breaks(self, _):
        raise RuntimeError("a secret of the inside")

    def app(self, settings):
        routes = [
            Route("/", self.plain, methods=["GET"]),
            Route("/large", self.large, methods=["GET"]),
            Route("/waits", self.waits, methods=["GET", "POST"]),
            Route("/reads", self.reads, methods=["POST"]),
            Route("/late", self.late, methods=["POST", "GET"]),
            WebSocketRoute("/floods", self.floods),
            WebSocketRoute("/one", self.sends_one),
            WebSocketRoute("/listens", self.listens),
            WebSocketRoute("/counts", self.counts),
            WebSocketRoute("/breaks", self.breaks),
        ]
        app = Starlette(
            routes=routes,
            middleware=[
                Middleware(RequestLog, metrics=self.metrics, templates=Templates(routes)),
                Middleware(Guard, settings=settings, metrics=self.metrics),
            ],
        )
        app.state.service = self.service
        return app

    def rejected(self, code):
        return self.metrics.registry.get_sample_value("chainrule_rejected_total", {"code": code}) or 0


@pytest.fixture
def start_app(serve, settings, monkeypatch):
    """A function that serves an application with short timeouts."""
    monkeypatch.setattr("chainrule.web.connections.LEEWAY_SECONDS", 0.1)
    monkeypatch.setattr("chainrule.web.connections.LINGER_SECONDS", 0.1)
    application = Application()

    def start(**changes):
        changed = PATIENCE | changes
        address = serve(application.app(settings.model_copy(update=changed)), **changed)
        application.port = int(address.rpartition(":")[2])
        return application

    return start


@contextlib.contextmanager
def opened(port, *, receive_buffer=None):
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(LONG)
    with client:
        client.connect(("127.0.0.1", port))
        yield client


def rest(client):
    """Receive until the server closes."""
    client.settimeout(LONG)
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def answer_of(client):
    """Receive one answer; the connection stays open."""
    client.settimeout(LONG)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += client.recv(1 << 16) or pytest.fail(f"closed after {answer!r}")
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0]) if b"content-length" in head.lower() else 0
    while len(body) < length:
        body += client.recv(length - len(body)) or pytest.fail(f"closed within {answer!r}")
    return head + b"\r\n\r\n" + body


def drip(client, data, seconds=0.05):
    """Send byte by byte until the server answers or closes; whether all was sent."""
    for byte in data:
        try:
            client.sendall(bytes([byte]))
        except (BrokenPipeError, ConnectionResetError):
            return False
        client.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            client.recv(1, socket.MSG_PEEK)  # something to read: an answer, or the end
            return False
    return True


def read(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body) if body else None


def check_error(answer, status, code):
    """Check a whole answer: status, code and headers of an error; returns the error."""
    got, headers, body = read(answer)
    assert (got, body["error"]["code"]) == (status, code)
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"]
    assert headers["cache-control"] == "no-store"
    for name, value in SECURITY_HEADERS.items():
        assert headers[name] == value.lower()
    return body["error"]


# Requests that do not arrive ------------------------------------------------------------------------------------------
def test_a_silent_connection_is_closed_without_an_answer(start_app):
    with opened(start_app().port) as client:
        assert rest(client) == b""


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_request_head_that_is_late_is_answered_408(start_app, earlier):
    application = start_app()
    with opened(application.port) as client:
        for _ in range(earlier):
            client.sendall(GET)
            assert answer_of(client).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        assert not drip(client, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"a" * 2000)
        error = check_error(rest(client), 408, "request_timeout")
    assert "CHAINRULE_RECEIVE_SECONDS" in error["message"]
    assert error["limit"] == 0.3
    assert time.monotonic() - start >= 0.3
    assert application.rejected("request_timeout") == 1


def test_each_request_of_a_connection_has_the_full_time_to_arrive(start_app):
    with opened(start_app(receive_seconds=1).port) as client:
        start = time.monotonic()
        while time.monotonic() - start < 1.2:
            client.sendall(GET[:20])
            time.sleep(0.2)
            client.sendall(GET[20:])
            assert answer_of(client).startswith(b"HTTP/1.1 200")


def test_a_body_that_is_late_is_answered_408(start_app):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(b"POST /reads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
        assert not drip(client, b"a" * 1000)
        error = check_error(rest(client), 408, "request_timeout")
    assert error["message"].startswith("the body")
    assert application.body == b""


@pytest.mark.parametrize("target", ["/nowhere", "/"])
def test_an_unread_body_that_is_late_closes_the_connection(start_app, target):
    with opened(start_app().port) as client:
        client.sendall(f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n".encode())
        assert answer_of(client).startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
        assert not drip(client, b"a" * 1000)
        assert rest(client) == b""


def test_a_late_body_disconnects_the_route_that_computes(start_app):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(b"POST /waits HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n")
        check_error(rest(client), 408, "request_timeout")
    assert application.gone.wait(LONG)


def test_a_late_answer_is_sent_whole(start_app):
    """`receive_seconds` limits the arrival of a request, not its computation."""
    application = start_app()
    with opened(application.port) as client:
        client.sendall(b"POST /late HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
        assert application.began.wait(LONG)
        client.settimeout(0.6)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(LONG)
        application.release.set()
        assert read(answer_of(client))[2] == {"answer": 42}


def test_a_body_may_end_after_its_answer(start_app):
    with opened(start_app().port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\nab")
        assert answer_of(client).startswith(b"HTTP/1.1 405")
        client.sendall(b"cd" + GET)
        assert answer_of(client).startswith(b"HTTP/1.1 200")
        client.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\nab")
        assert answer_of(client).startswith(b"HTTP/1.1 405")
        # After the end of the body no other request comes.
        client.sendall(b"cd")
        assert rest(client) == b""


# Malformed HTTP ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nTransfer-Encoding: nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /reads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + GET,
    ],
    ids=["words", "empty", "tls", "no host", "two hosts", "encoding", "large head", "two lengths"],
)
def test_malformed_http_is_answered_with_a_json_error(start_app, data):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(data)
        check_error(rest(client), 400, "bad_request")
    assert application.rejected("bad_request") == 1


def test_a_malformed_chunk_ends_the_request(start_app):
    application = start_app(receive_seconds=60)
    with opened(application.port) as client:
        client.sendall(b"POST /waits HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert application.began.wait(LONG)
        client.sendall(b"nonsense\r\n")
        check_error(rest(client), 400, "bad_request")
    assert application.gone.wait(LONG)


UPGRADE = (
    b"GET /listens HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
)
KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (UPGRADE + b"\r\n", 400),
        (UPGRADE.replace(b"13", b"12") + KEY + b"\r\n", 400),
        (UPGRADE + KEY + b"Cookie: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (UPGRADE + KEY + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n", 431),
        (UPGRADE.replace(b"/listens", b"/" + b"a" * 9000) + KEY + b"\r\n", 414),
    ],
    ids=["no key", "version", "long line", "many lines", "long address"],
)
def test_a_bad_handshake_is_answered_with_a_json_error(start_app, head, status):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(head)
        check_error(rest(client), status, "bad_handshake")
    assert application.rejected("bad_handshake") == 1


def test_a_crash_in_a_handshake_hides_its_message(start_app):
    with opened(start_app().port) as client:
        client.sendall(UPGRADE.replace(b"/listens", b"/breaks") + KEY + b"\r\n")
        answer = rest(client)
    assert read(answer)[0] == 500
    assert read(answer)[2]["error"]["code"] == "internal"
    assert b"secret" not in answer


# Slow readers ---------------------------------------------------------------------------------------------------------
def test_a_client_that_reads_nothing_is_cut_off_and_holds_no_memory(start_app):
    application = start_app()
    with opened(application.port, receive_buffer=4096) as client:
        client.sendall(GET.replace(b"/ ", b"/large "))
        wait_for(lambda: application.rejected("slow_reader") == 1)
        # Its place and its kernel buffer are free: fewer bytes arrive than were sent.
        wait_for(lambda: sample(application, "chainrule_http_open_requests") == 0)
        assert len(rest(client)) < len(LARGE) // 2


@pytest.mark.long
@pytest.mark.parametrize(
    "head",
    [GET.replace(b"/ ", b"/large "), UPGRADE.replace(b"/listens", b"/one") + KEY + b"\r\n"],
    ids=["http", "live"],
)
def test_a_slow_reader_that_makes_progress_gets_everything(start_app, head):
    """It takes several times `send_seconds`, in shorter steps; the ping of a socket waits behind the message."""
    application = start_app(send_seconds=1)
    with opened(application.port, receive_buffer=1 << 16) as client:
        client.sendall(head)
        start, taken = time.monotonic(), bytearray()
        while time.monotonic() - start < 4:
            taken += client.recv(1 << 15)
            time.sleep(0.05)
        assert len(taken) < len(LARGE) // 3, "the client was to be slow"
        client.settimeout(LONG)
        while LARGE[-1000:] not in taken[-3000:]:
            taken += client.recv(1 << 16) or pytest.fail("it was cut off")
    assert application.rejected("slow_reader") == 0


@pytest.mark.parametrize("target", ["/large", "/floods"])
def test_a_client_that_reads_too_slowly_is_cut_off(start_app, monkeypatch, target):
    monkeypatch.setattr("chainrule.web.slow_clients.MIN_BYTES_PER_SECOND", 1 << 22)
    application = start_app(send_seconds=1)
    with opened(application.port, receive_buffer=1 << 16) as client:
        client.sendall(
            UPGRADE.replace(b"/listens", target.encode()) + KEY + b"\r\n"
            if target == "/floods"
            else GET.replace(b"/ ", target.encode() + b" ")
        )
        deadline = time.monotonic() + LONG
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 14):
                assert time.monotonic() < deadline, "it was not cut off"
                time.sleep(0.05)
    assert application.rejected("slow_reader") == 1
    assert target == "/large" or application.gone.wait(LONG)


def test_the_kernel_buffers_little_for_a_client_that_reads_nothing(settings):
    application = Application()
    with (
        running(application, settings) as server,
        opened(application.port, receive_buffer=4096) as client,
    ):
        client.sendall(GET.replace(b"/ ", b"/large "))
        wait_for(lambda: [each for each in server.config.open if each.transport.get_write_buffer_size()])
        (connection,) = server.config.open
        # Linux counts what it needs to keep a byte as well.
        assert unsent(connection.transport) - connection.transport.get_write_buffer_size() <= 2 * KERNEL_BYTES


@pytest.mark.parametrize("kind", ["pings", "requests"])
def test_a_client_that_reads_no_answer_is_not_read_from(start_app, kind):
    application = start_app(send_seconds=600.0, receive_seconds=600.0)
    with opened(application.port, receive_buffer=4096) as client:
        if kind == "pings":
            client.sendall(UPGRADE + KEY + b"\r\n")
            assert application.began.wait(LONG)
            data = (b"\x89\xfd\0\0\0\0" + b"x" * 125) * 1000
        else:
            data = GET * 1000
        client.settimeout(0.7)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 48 << 20:
                sent += client.send(data[sent % len(data) :])
        assert sent < 48 << 20


def test_unread_small_answers_cut_the_client_off(start_app):
    """The answers stay below uvicorn's write limits."""
    application = start_app()
    with opened(application.port, receive_buffer=4096) as client:
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
            while True:
                client.sendall(GET * 100)
        wait_for(lambda: application.rejected("slow_reader") == 1)


def test_many_unanswered_messages_are_read_together(start_app, monkeypatch):
    """200 single messages need fewer reads; an answer restores immediate reads."""
    readings = []
    received = SocketConnection.data_received
    monkeypatch.setattr(
        SocketConnection, "data_received", lambda self, data: received(self, readings.append(1) or data)
    )
    application = start_app(send_seconds=60)  # no ping, whose answer would be a reading too
    with connect(f"ws://127.0.0.1:{application.port}/counts", ping_interval=None) as websocket:
        for more in (1, 2):
            for _ in range(99):
                websocket.send("a wish")
                time.sleep(0.002)
            websocket.send("how many?")
            assert websocket.recv(timeout=LONG) == str(100 * more)
        assert len(readings) < 100
        readings.clear()
        for more in range(1, 21):
            websocket.send("how many?")
            assert websocket.recv(timeout=LONG) == str(200 + more)
        assert len(readings) == 20, "who waits for each answer is read at once"
        for _ in range(10):
            websocket.send("a wish")
    # It leaves while messages are collected.
    assert application.gone.wait(LONG)


def test_a_socket_without_pongs_is_closed(start_app):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(UPGRADE + KEY + b"\r\n")
        assert application.began.wait(LONG)
        # It reads and sends no pong.
        answer = rest(client)
    assert application.gone.wait(LONG)
    assert answer.endswith(
        struct.pack("!BBH", 0x88, 2 + len(b"keepalive ping timeout"), 1011) + b"keepalive ping timeout"
    )


@pytest.mark.long
def test_a_socket_with_pongs_stays_open(start_app):
    application = start_app(send_seconds=1)
    with connect(f"ws://127.0.0.1:{application.port}/listens", ping_interval=None) as websocket:
        with pytest.raises(TimeoutError):
            websocket.recv(timeout=5)
        assert not application.gone.is_set()


# Too many connections -----------------------------------------------------------------------------------------------
def test_a_connection_too_many_replaces_the_oldest_idle_one(settings):
    """Connections with an earlier answer are replaced last."""
    application = Application()
    changes = {"max_connections": 4, "receive_seconds": 600.0, "shutdown_seconds": 1}
    with running(application, settings.model_copy(update=changes)) as server, contextlib.ExitStack() as stack:
        server.config.timeout_keep_alive = 600
        kept, busy, silent, dripping = (stack.enter_context(opened(application.port)) for _ in range(4))
        kept.sendall(GET)
        assert read(answer_of(kept))[0] == 200
        busy.sendall(GET.replace(b"/ ", b"/waits "))
        dripping.sendall(GET[:20])
        assert application.began.wait(LONG)
        for closed in (silent, dripping):
            newer = stack.enter_context(opened(application.port))
            newer.sendall(GET.replace(b"/ ", b"/waits "))
            assert rest(closed) == b""
        # `kept` may ask again or be replaced.
        wait_for(lambda: sample(application, "chainrule_http_open_requests") == 3)
        newest = stack.enter_context(opened(application.port))
        newest.sendall(GET)
        assert read(answer_of(newest))[0] == 200
        assert rest(kept) == b""
        assert not application.gone.is_set()
    assert application.rejected("crowded_out") == 3
    assert application.rejected("busy") == 0


def test_a_connection_too_many_is_answered_503_when_none_is_idle(start_app):
    application = start_app(max_connections=2, receive_seconds=60, send_seconds=60)
    with (
        opened(application.port) as page,
        connect(f"ws://127.0.0.1:{application.port}/listens", ping_interval=None) as live,
    ):
        assert application.began.wait(LONG)
        page.sendall(GET.replace(b"/ ", b"/waits "))
        wait_for(lambda: sample(application, "chainrule_http_open_requests") == 1)
        with contextlib.ExitStack() as stack:
            more = [stack.enter_context(opened(application.port)) for _ in range(MAX_LINGERING + 10)]
            answers = [answer for each in more if (answer := rest(each))]
        for answer in answers:
            error = check_error(answer, 503, "busy")
            assert read(answer)[1]["retry-after"] == "1"
        assert "CHAINRULE_MAX_CONNECTIONS" in error["message"]
        assert error["limit"] == 2
        assert application.rejected("busy") == len(more)
        live.close()
        wait_for(application.gone.is_set)
    # Its place is free again.
    with opened(application.port) as client:
        client.sendall(GET)
        assert read(answer_of(client))[0] == 200


@pytest.mark.long
def test_more_idle_connections_than_file_descriptors_stop_no_request():
    environment = {**os.environ, "CHAINRULE_RECEIVE_SECONDS": "600", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        ["sh", "-c", 'ulimit -n 256; exec "$0" -m chainrule serve --port 0', sys.executable],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        address = server.stdout.readline().split()[-1]
        port = int(address.rstrip("/").rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            for number in range(1, 401):
                stack.enter_context(opened(port))
                if number % 100 == 0:
                    assert httpx.get(f"{address}healthz", timeout=30).status_code == 200
    finally:
        server.terminate()
        _, said = server.communicate(timeout=30)
    assert len(said.splitlines()) < 20, said


@pytest.mark.parametrize(("hard", "allowed"), [(400, 300), (200, 200)])
def test_the_descriptor_limit_is_raised_as_far_as_allowed(hard, allowed):
    code = (
        "import resource; from chainrule.web.serve import raise_descriptor_limit as more\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard})); more(300); more(50)\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(allowed), str(hard)]


def test_failed_accepts_are_logged_once_a_minute(settings, caplog):
    class Loop:
        now = 1000.0

        def time(self):
            return self.now

        def default_exception_handler(self, context):
            others.append(context)

    others, loop = [], Loop()
    server = Server(ServerConfig(Application().app(settings), settings))
    full = {"message": "accept", "exception": OSError(errno.EMFILE, "too many open files"), "socket": None}
    for _ in range(100):
        server._on_trouble(loop, full)
    assert [record.getMessage() for record in caplog.records] == ["no connection can be accepted: too many open files"]
    loop.now += 60
    server._on_trouble(loop, full)
    assert len(caplog.records) == 2
    server._on_trouble(loop, {"message": "something else"})
    assert others == [{"message": "something else"}]


# The end --------------------------------------------------------------------------------------------------------------
def test_shutdown_closes_sockets_with_1012(settings):
    application = Application()
    with (
        running(application, settings) as server,
        connect(f"ws://127.0.0.1:{application.port}/listens", ping_interval=None) as websocket,
    ):
        assert application.began.wait(LONG)
        server.should_exit = True
        with pytest.raises(ConnectionClosedError) as caught:
            websocket.recv(timeout=LONG)
        assert caught.value.rcvd.code == 1012
        assert application.shutdown_began.wait(LONG)


def test_slow_readers_do_not_delay_shutdown(settings):
    application = Application()
    patient = {"send_seconds": 600.0, "receive_seconds": 600.0, "shutdown_seconds": 1}
    with (
        running(application, settings.model_copy(update=patient)) as server,
        opened(application.port, receive_buffer=4096) as page,
        opened(application.port, receive_buffer=4096) as live,
        opened(application.port) as half,
    ):
        page.sendall(GET.replace(b"/ ", b"/large "))
        half.sendall(GET[:20])
        live.sendall(UPGRADE.replace(b"/listens", b"/floods") + KEY + b"\r\n")
        assert application.began.wait(LONG)
        wait_for(lambda: sample(application, "chainrule_http_open_requests") == 1)
        start = time.monotonic()
        server.should_exit = True
        server.thread.join(LONG)
        assert not server.thread.is_alive()
        assert time.monotonic() - start < 10


# Behind a proxy -------------------------------------------------------------------------------------------------------

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    ("trusted", "secure"),
    [
        (("127.0.0.0/8",), True),
        (("10.0.0.1", "*"), True),
        ((), False),
        (("10.0.0.0/8", "::1"), False),
    ],
)
@pytest.mark.parametrize("forwarded", ["https", "nonsense", None])
def test_the_forwarded_scheme_is_read_from_trusted_proxies_only(start_app, trusted, secure, forwarded, monkeypatch):
    # Uvicorn's variable, which the setting replaces.
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    application = start_app(trusted_proxies=trusted, token=Settings(token=TOKEN).token)
    given = b"" if forwarded is None else f"X-Forwarded-Proto: {forwarded}\r\n".encode()
    with opened(application.port) as client:
        client.sendall(b"GET /?token=" + TOKEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + given + b"\r\n")
        status, headers, _ = read(answer_of(client))
    assert status == 303
    assert headers["set-cookie"].startswith(cookie_name(TOKEN))
    assert ("; secure" in headers["set-cookie"]) is (secure and forwarded == "https")


# The parts ------------------------------------------------------------------------------------------------------------
def test_bytes_in_the_kernel_count_as_unsent():
    class Transport:
        def get_write_buffer_size(self):
            return 0

        def get_extra_info(self, name):
            return {"socket": sender}[name]

    with socket.socket() as listener, socket.socket() as sender:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            sender.sendall(bytes(200_000))
            assert unsent(Transport()) > 100_000
            taken = 0
            while taken < 200_000:
                taken += len(receiver.recv(1 << 16))
            wait_for(lambda: unsent(Transport()) == 0)


@pytest.mark.parametrize(
    ("left", "end"),
    [
        # At least 4 KiB are taken in any four seconds but the last: a byte less. Added bytes do not count.
        ([20000, 19000, 18000, 16000, 15904, 14900, 13900, 11904, 8000, 90000, 89900, 89809], 11.0),
        ([9000, 9000, 9000, 9000, 9000], 4.0),
        # A byte now and then.
        ([9000, 8999, 8998, 8997, 8996], 4.0),
    ],
)
def test_only_progress_extends_the_time_to_read(monkeypatch, left, end):
    left = iter(left)

    class Transport:
        def set_write_buffer_limits(self, high):
            assert high == 0

        def get_write_buffer_size(self):
            return 1

    class Loop:
        def __init__(self):
            self.now, self.timers = 0.0, []

        def time(self):
            return self.now

        def call_later(self, seconds, look):
            self.timers.append((self.now + seconds, look))
            return self

        def cancel(self):
            self.timers.clear()

    monkeypatch.setattr("chainrule.web.slow_clients.unsent", lambda _: next(left))
    cut, loop = [], Loop()
    sending = SendWatch(Transport(), loop, 4.0, lambda: cut.append(loop.now))
    monkeypatch.setattr("chainrule.web.slow_clients.LOOKS", 4)
    sending.start()
    while loop.timers:
        loop.now, look = loop.timers.pop()
        look()
    assert cut == [end]


def sample(application, name):
    return application.metrics.registry.get_sample_value(name)


@contextlib.contextmanager
def running(application, settings):
    """A server in a thread, which the test can stop."""
    listener = socket.create_server(("127.0.0.1", 0))
    application.port = listener.getsockname()[1]
    server = Server(ServerConfig(application.app(settings), settings))
    server.thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    server.thread.start()
    try:
        wait_for(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        server.thread.join(LONG)
        assert not server.thread.is_alive()
