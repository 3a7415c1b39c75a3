"""Connections over real sockets to a server with short timeouts."""

import asyncio
import contextlib
import errno
import json
import logging
import socket
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import h11
import pytest
from served import wait_for
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from chainrule.settings import Settings
from chainrule.web import connections
from chainrule.web.connections import MAX_LINGERING
from chainrule.web.guard import SECURITY_HEADERS, Guard
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import RequestLog, Templates
from chainrule.web.server import Server, ServerConfig
from chainrule.web.sessions import cookie_name
from chainrule.web.slow_clients import KERNEL_BYTES, SendWatch, unsent

PATIENCE = {"receive_seconds": 0.3, "send_seconds": 0.3}
LONG = 12.0
"""Longest wait for anything on a busy machine."""

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
GET_LARGE = GET.replace(b"/ ", b"/large ", 1)
GET_WAITS = GET.replace(b"/ ", b"/waits ", 1)
LARGE = bytes(range(256)) * (1 << 16)  # 16 MiB: more than a kernel keeps


class Application:
    def __init__(self):
        self.gone = threading.Event()
        self.began = threading.Event()
        self.release = threading.Event()
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

    async def listens(self, websocket):
        await websocket.accept()
        self.began.set()
        await websocket.receive()
        self.gone.set()

    async def breaks(self, _):
        raise RuntimeError("a secret of the inside")

    def app(self, settings):
        routes = [
            Route("/", self.plain, methods=["GET"]),
            Route("/large", self.large, methods=["GET"]),
            Route("/waits", self.waits, methods=["GET", "POST"]),
            Route("/late", self.late, methods=["POST"]),
            WebSocketRoute("/floods", self.floods),
            WebSocketRoute("/listens", self.listens),
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

    def answered(self, route, status):
        labels = {"method": "POST" if route != "other" else route, "route": route, "status": str(status)}
        return self.metrics.registry.get_sample_value("chainrule_http_requests_total", labels)

    @property
    def open_requests(self):
        return self.metrics.registry.get_sample_value("chainrule_http_open_requests")


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
        application.server = serve.server
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
    expected = {name: value.lower() for name, value in SECURITY_HEADERS.items()}
    expected |= {"content-type": "application/json", "connection": "close", "cache-control": "no-store"}
    assert headers | expected == headers
    assert headers["x-request-id"]
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


def test_a_body_that_is_late_is_answered_408_and_disconnects_its_route(start_app):
    application = start_app()
    with opened(application.port) as client:
        client.sendall(b"POST /waits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n")
        assert not drip(client, b"a" * 1000)
        error = check_error(rest(client), 408, "request_timeout")
    assert error["message"].startswith("the body")
    assert application.gone.wait(LONG)


def test_an_unread_body_that_is_late_closes_the_connection(start_app):
    with opened(start_app().port) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n")
        assert answer_of(client).startswith(b"HTTP/1.1 404")
        assert not drip(client, b"a" * 1000)
        assert rest(client) == b""


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


def test_a_client_that_sends_nothing_more_gets_its_answer(start_app, monkeypatch):
    monkeypatch.setattr(connections, "HALF_CLOSED_SECONDS", LONG)
    application, ended, end = start_app(), threading.Event(), connections.HttpConnection.eof_received

    def noted(self):
        waits = end(self)
        ended.set()
        return waits

    monkeypatch.setattr(connections.HttpConnection, "eof_received", noted)
    with opened(application.port) as client:
        client.sendall(b"POST /late HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
        assert application.began.wait(LONG)
        client.shutdown(socket.SHUT_WR)
        assert ended.wait(LONG)
        application.release.set()
        assert read(rest(client))[2] == {"answer": 42}
    application.began.clear()
    # One that has gone looks the same: its work goes on for a moment only.
    monkeypatch.setattr(connections, "HALF_CLOSED_SECONDS", 0.1)
    with opened(application.port) as client:
        client.sendall(GET_WAITS)
        assert application.began.wait(LONG)
    assert application.gone.wait(LONG)


CHUNKED = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\na\r\n"


@pytest.fixture
def turns(monkeypatch):
    """The number of parts of requests that a connection has parsed in each of its turns."""
    seen, parse, take_turn = [], connections.Requests.next_event, connections.HttpConnection.handle_events

    def counted(self):
        event = parse(self)
        seen[-1] += isinstance(event, h11.Data)
        return event

    def turn(self):
        seen.append(0)
        take_turn(self)

    monkeypatch.setattr(connections.Requests, "next_event", counted)
    monkeypatch.setattr(connections.HttpConnection, "handle_events", turn)
    return seen


def test_a_body_in_many_parts_is_parsed_some_at_a_time(start_app, turns):
    application = start_app(receive_seconds=60)
    with opened(application.port) as client:
        client.sendall(CHUNKED % b"/late" + CHUNK * 20_000 + b"0\r\n\r\n")
        assert application.began.wait(LONG)
        wait_for(lambda: sum(turns) == 20_000, LONG)
        application.release.set()
        assert read(answer_of(client))[2] == {"answer": 42}
    assert max(turns) <= connections.EVENTS_PER_TURN


def test_the_rest_of_an_answered_request_is_not_parsed(start_app, turns):
    with opened(start_app(receive_seconds=60).port) as client:
        client.sendall(CHUNKED % b"/nowhere" + CHUNK)
        assert answer_of(client).startswith(b"HTTP/1.1 404")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:  # until the server closes
                client.sendall(CHUNK * 1000)
    assert sum(turns) <= 2 * connections.EVENTS_PER_TURN


def test_messages_in_one_burst_are_parsed_some_at_a_time(start_app, monkeypatch):
    application, sizes, parse = start_app(), [], connections.Handshakes.receive_data

    def counted(self, data):
        sizes.append(len(data))
        parse(self, data)

    monkeypatch.setattr(connections.Handshakes, "receive_data", counted)
    with opened(application.port) as client:
        client.sendall(UPGRADE + KEY + b"\r\n")
        assert b"101" in client.recv(1 << 16)
        sizes.clear()
        client.sendall(b"\x81\x80\0\0\0\0" * 1000)
        assert application.gone.wait(LONG)
        rest(client)
    assert max(sizes) <= connections.BYTES_PER_TURN


# Malformed HTTP ------------------------------------------------------------------------------------------------------
BAD_CHUNK = b"POST /waits HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"


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
        b"POST /waits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + GET,
        BAD_CHUNK,
    ],
    ids=["words", "empty", "tls", "no host", "two hosts", "encoding", "large head", "two lengths", "chunk"],
)
def test_malformed_http_is_answered_with_a_json_error_and_logged_once(start_app, caplog, data):
    caplog.set_level(logging.INFO, "chainrule.web.request_log")
    application = start_app(receive_seconds=60)
    with opened(application.port) as client:
        client.sendall(data)
        check_error(rest(client), 400, "bad_request")
    route = "/waits" if data == BAD_CHUNK else "other"
    # The line is written after the answer is counted.
    wait_for(lambda: any(each.getMessage() == "request" for each in caplog.records))
    assert application.answered(route, 400) == application.rejected("bad_request") == 1
    (record,) = [each.fields for each in caplog.records if each.getMessage() == "request"]
    assert (record["status"], record["error"], record["client"]) == (400, "bad_request", "127.0.0.1")
    assert application.gone.is_set() == (data == BAD_CHUNK)


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
        client.sendall(GET_LARGE)
        wait_for(lambda: application.rejected("slow_reader") == 1)
        # Its place and its kernel buffer are free: fewer bytes arrive than were sent.
        wait_for(lambda: application.open_requests == 0)
        assert len(rest(client)) < len(LARGE) // 2


@pytest.mark.parametrize("target", ["/large", "/floods"])
def test_a_client_that_reads_too_slowly_is_cut_off(start_app, monkeypatch, target):
    monkeypatch.setattr("chainrule.web.slow_clients.MIN_BYTES_PER_SECOND", 1 << 22)
    application = start_app(send_seconds=1)
    with opened(application.port, receive_buffer=1 << 16) as client:
        client.sendall(GET_LARGE if target == "/large" else UPGRADE.replace(b"/listens", b"/floods") + KEY + b"\r\n")
        deadline = time.monotonic() + LONG
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 14):
                assert time.monotonic() < deadline, "it was not cut off"
                time.sleep(0.05)
    assert application.rejected("slow_reader") == 1
    assert target == "/large" or application.gone.wait(LONG)


def test_the_kernel_buffers_little_for_a_client_that_reads_nothing(start_app):
    application = start_app(send_seconds=600.0)
    with opened(application.port, receive_buffer=4096) as client:
        client.sendall(GET_LARGE)
        opened_here = application.server.config.open
        wait_for(lambda: [each for each in opened_here if each.transport.get_write_buffer_size()])
        (connection,) = opened_here
        in_kernel = unsent(connection.transport) - connection.transport.get_write_buffer_size()
        # Linux counts what it needs to keep a byte as well.
        assert 0 < in_kernel <= 2 * KERNEL_BYTES


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


# Too many connections -----------------------------------------------------------------------------------------------
def test_a_connection_too_many_replaces_the_oldest_idle_one(start_app):
    """Connections with an earlier answer are replaced last."""
    application = start_app(max_connections=4, receive_seconds=600.0)
    with contextlib.ExitStack() as stack:
        application.server.config.timeout_keep_alive = 600
        kept, busy, silent, dripping = (stack.enter_context(opened(application.port)) for _ in range(4))
        kept.sendall(GET)
        assert read(answer_of(kept))[0] == 200
        busy.sendall(GET_WAITS)
        dripping.sendall(GET[:20])
        assert application.began.wait(LONG)
        for closed in (silent, dripping):
            newer = stack.enter_context(opened(application.port))
            newer.sendall(GET_WAITS)
            assert rest(closed) == b""
        # `kept` may ask again or be replaced.
        wait_for(lambda: application.open_requests == 3)
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
        page.sendall(GET_WAITS)
        wait_for(lambda: application.open_requests == 1)
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
    others, now = [], [1000.0]
    loop = SimpleNamespace(time=lambda: now[0], default_exception_handler=others.append)
    server = Server(ServerConfig(Application().app(settings), settings))
    full = {"message": "accept", "exception": OSError(errno.EMFILE, "too many open files"), "socket": None}
    for at in (1000, 1059, 1060):
        now[0] = at
        server._on_trouble(loop, full)
    assert [record.getMessage() for record in caplog.records] == [
        "the server cannot accept connections: too many open files"
    ] * 2
    server._on_trouble(loop, {"message": "something else"})
    assert others == [{"message": "something else"}]


# The end --------------------------------------------------------------------------------------------------------------
def test_shutdown_closes_sockets_with_1012(start_app):
    application = start_app(send_seconds=60)
    with connect(f"ws://127.0.0.1:{application.port}/listens", ping_interval=None) as websocket:
        assert application.began.wait(LONG)
        application.server.should_exit = True
        with pytest.raises(ConnectionClosedError) as caught:
            websocket.recv(timeout=LONG)
        assert caught.value.rcvd.code == 1012
        assert application.shutdown_began.wait(LONG)


def test_slow_readers_do_not_delay_shutdown(start_app, serve):
    application = start_app(send_seconds=600.0, receive_seconds=600.0)
    with (
        opened(application.port, receive_buffer=4096) as page,
        opened(application.port, receive_buffer=4096) as live,
        opened(application.port) as half,
    ):
        page.sendall(GET_LARGE)
        half.sendall(GET[:20])
        live.sendall(UPGRADE.replace(b"/listens", b"/floods") + KEY + b"\r\n")
        assert application.began.wait(LONG)
        wait_for(lambda: application.open_requests == 1)
        serve.stop()


# Behind a proxy -------------------------------------------------------------------------------------------------------

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    ("trusted", "secure"),
    [(("127.0.0.0/8",), True), (("10.0.0.1", "*"), True), ((), False), (("10.0.0.0/8", "::1"), False)],
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
    assert headers["set-cookie"].startswith(f"{cookie_name('127.0.0.1')}=")
    assert ("; secure" in headers["set-cookie"]) is (secure and forwarded == "https")


# The parts ------------------------------------------------------------------------------------------------------------


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

    now, timers, cut = 0.0, [], []
    transport = SimpleNamespace(set_write_buffer_limits=lambda high: high, get_write_buffer_size=lambda: 1)
    loop = SimpleNamespace(time=lambda: now, call_later=lambda seconds, look: timers.append((now + seconds, look)))
    monkeypatch.setattr("chainrule.web.slow_clients.unsent", lambda _: next(left))
    monkeypatch.setattr("chainrule.web.slow_clients.LOOKS", 4)
    SendWatch(transport, loop, 4.0, lambda: cut.append(now)).start()
    while timers:
        now, look = timers.pop()
        look()
    assert cut == [end]
