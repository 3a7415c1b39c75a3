"""Log records of requests: enough to find one again, nothing private, never more than one line."""

import asyncio
import io
import json
import logging
import re
import signal
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest
from command import serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from chainrule.errors import DeadlineError, MemoryLimitError, TraceError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.web import api
from chainrule.web.logs import MAX_REPEATED, STRUCK_OUT, WINDOW_SECONDS, Repetition, configure_logging, keep
from chainrule.web.main import create_app
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import REQUEST_ID, RequestLog, Templates, note_coalesced, spec_hash

TOKEN = "correct-horse-battery"
FORMATS = ["text", "json"]
LEVELS = ("critical", "error", "warning", "info", "debug")
SPEC = ModelSpec(widths="9,5,1", seed=3)
QUERY = "widths=9,5,1&seed=3"


class Written:
    def __init__(self, log_format):
        self.stream = io.StringIO()
        self.log_format = log_format

    @property
    def text(self):
        return self.stream.getvalue()

    @property
    def lines(self):
        return self.text.splitlines()

    @property
    def records(self):
        if self.log_format == "json":
            return [json.loads(line) for line in self.lines]
        return [read_line(line) for line in self.lines if not line.startswith("    ")]

    def of(self, event):
        return [record for record in self.records if record["event"] == event]


def read_line(line):
    level, _, rest = line.partition(" ")
    fields = list(re.finditer(r' (\w+)=("(?:[^"\\]|\\.)*"|\S*)', rest))
    event = rest[: fields[0].start()] if fields else rest
    return {"level": level, "event": event} | {field[1]: field[2] for field in fields}


@pytest.fixture
def log(settings):
    """Configure logging as the server does; restored at the end."""
    names = [None, "chainrule", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(each.level, each.handlers[:], each.propagate) for each in loggers]

    def start(log_format="json", log_level="debug", token=None):
        written = Written(log_format)
        changes = {"log_format": log_format, "log_level": log_level, "token": token and Settings(token=token).token}
        configure_logging(settings.model_copy(update=changes), written.stream)
        return written

    yield start
    logging.captureWarnings(False)
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate


# One record a request ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("log_format", FORMATS)
def test_a_request_is_one_record_with_these_fields(log, client, log_format):
    written = log(log_format, "info")
    answer = client.get(f"/api/v1/trace.json?{QUERY}", headers={"x-request-id": "mine-1.2_3"})
    (record,) = written.records
    assert answer.headers["x-request-id"] == record["request_id"] == "mine-1.2_3"
    assert (record["level"], record["event"]) == ("info", "request")
    assert (record["method"], record["route"], record["path"]) == ("GET", "/api/v1/trace.json", "/api/v1/trace.json")
    assert int(record["status"]) == 200
    assert int(record["bytes"]) == len(answer.content)
    assert record["client"] == "127.0.0.1"
    assert record["spec"] == spec_hash(SPEC)
    assert float(record["ms"]) > 0
    assert "error" not in record
    if log_format == "json":
        assert record["logger"] == "chainrule.web.request_log"
        age = datetime.now(UTC) - datetime.fromisoformat(record["time"])
        assert timedelta() <= age < timedelta(minutes=10)


def test_the_spec_hash_ignores_spelling(log, client):
    written = log()
    for query in (QUERY, "seed=3&widths=9%2C5%2C1&scale=1.0", "seed=4&widths=9,5,1"):
        client.get(f"/api/v1/trace.json?{query}")
    client.request("POST", "/api/v1/trace", json={"widths": [9, 5, 1], "seed": 3})
    hashes = [record["spec"] for record in written.of("request")]
    assert hashes[0] == hashes[1] == hashes[3] == spec_hash(SPEC) != hashes[2]
    assert all(re.fullmatch(r"[0-9a-f]{12}", each) for each in hashes)


# Request ids ---------------------------------------------------------------------------------------------------------
def test_a_malformed_request_id_is_replaced(shared_client):
    for given in ("", " ", "a" * 65, "a b", "ä", 'a"b', "a,b", "a/b", "a\tb", "${jndi:x}", "a;b"):
        name = shared_client.get("/healthz", headers={"x-request-id": given.encode()}).headers["x-request-id"]
        assert name != given
        assert REQUEST_ID.fullmatch(name)


def test_every_answer_has_one_new_request_id(shared_client):
    answers = [
        *map(shared_client.get, ("/healthz", "/", "/?token=x", "/nowhere", "/static/explorer.js")),
        shared_client.get("/api/v1/trace.json?scale=x"),
        shared_client.get("/healthz", headers={"host": "elsewhere.example"}),
        shared_client.request("DELETE", "/healthz"),
        shared_client.request("HEAD", "/"),
    ]
    names = [answer.headers.get_list("x-request-id") for answer in answers]
    assert all(len(each) == 1 for each in names)
    assert len({each[0] for each in names}) == len(answers)


def test_sockets_and_refused_handshakes_have_a_request_id(serve, settings):
    address = serve(create_app(settings))
    with connect(f"ws://{address}/api/v1/live", additional_headers={"x-request-id": "socket-1"}) as socket:
        assert socket.response.headers.get_all("x-request-id") == ["socket-1"]
    for path in ("/api/v1/live", "/nowhere"):
        headers = {"x-request-id": "socket-2", "origin": "http://elsewhere.example"}
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://{address}{path}", additional_headers=headers):
            pass
        assert refused.value.response.headers.get_all("x-request-id") == ["socket-2"]


# Threads and tasks ---------------------------------------------------------------------------------------------------
async def test_records_of_compute_threads_have_request_id_and_spec(log, client, monkeypatch):
    written = log()

    def work(spec):
        logging.getLogger("chainrule.test").warning("computing in %s", threading.current_thread().name)
        return spec.query().encode()

    monkeypatch.setattr(api, "_profile_bytes", work)
    ask = client.client.get
    answers = await asyncio.gather(
        *(ask(f"/api/v1/profile.json?seed={n}", headers={"x-request-id": f"request-{n}"}) for n in range(6))
    )
    assert [answer.status_code for answer in answers] == [200] * 6
    records = [record for record in written.records if record["event"].startswith("computing")]
    assert {record["event"].rpartition("_")[0] for record in records} == {"computing in compute-cpu"}
    expected = {f"request-{n}": spec_hash(ModelSpec(seed=n)) for n in range(6)}
    assert {record["request_id"]: record["spec"] for record in records} == expected
    assert {record["request_id"]: record["spec"] for record in written.of("request")} == expected


# Errors --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "event", "level"),
    [
        (RuntimeError("a secret of the inside"), "", "error"),
        (TraceError("nothing was recorded"), "trace_failed: nothing was recorded", "error"),
        (MemoryLimitError("the host ran out of memory"), "out_of_memory: the host ran out of memory", "error"),
        (DeadlineError("that takes longer than 10 s"), "deadline_exceeded: that takes longer than 10 s", "warning"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("log_format", FORMATS)
def test_a_5xx_error_is_logged_once_under_the_request_id_of_the_answer(
    log, client, monkeypatch, log_format, error, event, level
):
    written = log(log_format, "warning")

    def work(_):
        raise error

    monkeypatch.setattr(api, "_profile_bytes", work)
    # Answers and refusals are not logged.
    for path in (f"/api/v1/trace.json?{QUERY}", "/api/v1/trace.json?widths=0", "/nowhere", "/readyz"):
        client.get(path)
    answer = client.get(f"/api/v1/profile.json?{QUERY}")
    name = answer.headers["x-request-id"]
    assert answer.status_code == getattr(error, "status", 500)
    (record,) = written.records
    assert record["event"].startswith(event)
    assert (record["level"], record["request_id"], record["spec"]) == (level, name, spec_hash(SPEC))
    stack = record.get("exception", "") if log_format == "json" else written.text
    assert ("in work" in stack) == (level == "error")
    if not event:
        message = answer.json()["error"]["message"]
        assert message == f"internal error; the server's log has the details under request id {name}"
        assert written.text.count("RuntimeError: a secret of the inside") == 1


def test_a_crash_within_an_answer_is_logged_once(log, serve, settings):
    """Over a socket, where uvicorn would log the exception again."""
    from starlette.responses import StreamingResponse

    async def half():
        yield b"half"
        raise RuntimeError("a secret of the inside")

    app = create_app(settings)
    app.add_api_route("/half", lambda: StreamingResponse(half()), include_in_schema=False)
    address = serve(app)
    written = log("json")
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
        httpx.get(f"http://{address}/half", timeout=20, headers={"x-request-id": "half-1"})
    failed = [record for record in written.records if "exception" in record]
    assert [record["request_id"] for record in failed] == ["half-1"]


# Never written ---------------------------------------------------------------------------------------------

SECRETS = (
    *(TOKEN, "wrong-token-in-a-link", "wrong-bearer-token", "wrong-cookie"),
    *(f"evil-{name}" for name in ("agent", "referer", "query", "value", "body", "message", "host", "origin", "id")),
)


@pytest.mark.parametrize("log_format", ["json", pytest.param("text", marks=pytest.mark.long)])
def test_nothing_private_is_logged(log_format):
    """In a real server, so that uvicorn and websockets log too."""
    settings = {"CHAINRULE_TOKEN": TOKEN, "CHAINRULE_LOG_LEVEL": "debug", "CHAINRULE_LOG_FORMAT": log_format}
    with serving(**settings) as (process, link):
        send_secrets(link.partition("/?")[0])
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=30)
    written = Written(log_format)
    written.stream.write(text)
    for secret in (*SECRETS, STRUCK_OUT):
        assert secret not in text
    assert {record["level"] for record in written.records} <= set(LEVELS)
    paths = {record["path"] for record in written.of("request")}
    assert {"/", "/api/v1/trace.json", "/api/v1/trace", "/api/v1/live"} <= paths
    (opened,), (closed,) = written.of("socket open"), written.of("socket closed")
    assert opened["request_id"] == closed["request_id"] == "socket-1"
    assert (int(closed["messages"]), int(closed["pictures"]), int(closed["code"])) == (2, 1, 1000)


def send_secrets(address):
    """Put a secret into everything that a client can send."""
    authorized = {"authorization": f"Bearer {TOKEN}"}

    def check(answer):
        """No answer repeats the token."""
        answer.read()
        assert TOKEN not in answer.text + answer.headers.get("location", "")

    with httpx.Client(base_url=address, timeout=30, event_hooks={"response": [check]}) as http:
        visited = http.get(f"/?token={TOKEN}&evil-query=evil-value")
        assert visited.status_code == 303
        assert http.get("/", headers={"referer": "http://evil-referer.example/"}).status_code == 200
        http.get(f"/api/v1/trace.json?token={TOKEN}&scale=x")
        http.cookies.clear()
        assert http.get("/?token=wrong-token-in-a-link").status_code == 401
        assert http.get("/", headers={"authorization": "Bearer wrong-bearer-token"}).status_code == 401
        assert http.get("/", headers={"cookie": "chainrule=wrong-cookie"}).status_code == 401
        assert (
            http.get("/healthz", headers={"user-agent": "evil-agent", "x-request-id": "evil-id x"}).status_code == 200
        )
        for query in ("scale=evil-value", "evil-query=1", "widths=9,5,1&seed=3", "program=evil-value"):
            http.get(f"/api/v1/trace.json?{query}", headers=authorized)
        http.get("/", headers={"host": "evil-host.example"})
        http.post("/api/v1/trace", content=b"evil-body", headers=authorized)
        http.post("/api/v1/trace", json={"scale": "evil-body"}, headers=authorized)
        http.post("/api/v1/trace", json={}, headers=authorized | {"origin": "http://evil-origin.example"})
        http.get("/nowhere%0Aerror%20forged%20request_id=x%0D%0A%7B%22level%22:%22error%22%7D", headers=authorized)
    live = address.replace("http", "ws") + "/api/v1/live"
    with connect(live, additional_headers=authorized | {"x-request-id": "socket-1"}) as socket:
        socket.send(json.dumps({"seq": 0, "spec": {"widths": "9,5,1"}}))
        assert json.loads(socket.recv())["type"] == "topology"
        assert isinstance(socket.recv(), bytes)
        assert json.loads(socket.recv())["type"] == "theory"
        socket.send("evil-message")
        assert json.loads(socket.recv())["type"] == "error"
    for query in ("?token=wrong-token-in-a-link", f"?token={TOKEN}", "?evil-query=evil-value"):
        with pytest.raises(InvalidStatus), connect(live + query):
            pass


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_token_in_a_message_is_struck_out(log, log_format):
    written = log(log_format, token=TOKEN)
    logger = logging.getLogger("chainrule.test")
    logger.error("it is %s", TOKEN, extra={"fields": {"more": f"a {TOKEN} b"}})
    try:
        raise ValueError(TOKEN)
    except ValueError:
        logger.exception("and raised")
    assert TOKEN not in written.text
    assert written.text.count(STRUCK_OUT) >= 3
    assert len(written.records) == 2


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x1c", "\x85", "\u2028"], ids=ascii)
def test_line_ends_and_quotes_in_a_message_or_a_path_forge_no_record(log, client, log_format, end):
    written = log(log_format)
    logger = logging.getLogger("chainrule.test")
    evil = f'x{end}error forged request_id=forged "level":"forged"{end}\x1b[31m'
    logger.warning("said %s", evil, extra={"fields": {"path": evil}})
    try:
        raise ValueError(evil)
    except ValueError:
        logger.exception("raised")
    client.get(f"/{quote(evil)}")
    assert [record["level"] for record in written.records] == ["warning", "error", "info"]
    assert written.records[2]["request_id"] != "forged"
    assert "\x1b" not in written.lines[-1]
    if log_format == "json":
        assert not any("request_id" in record for record in written.records[:2])
        assert written.records[0]["path"] == evil
        assert f"ValueError: {evil}" in written.records[1]["exception"]
    else:
        assert len([line for line in written.lines if line.startswith(LEVELS)]) == 3
        assert "\\" in written.lines[0]


@pytest.mark.parametrize("log_format", FORMATS)
def test_lone_surrogates_and_odd_values_are_logged(log, log_format):
    written = log(log_format)
    fields = {"half": "\udcff\ud800", "long": 2**70, "thing": object, "none": None, "yes": True, "share": 0.5}
    logging.getLogger("chainrule.test").warning("half a character: \udc80", extra={"fields": fields})
    (record,) = written.records
    assert set(fields) < set(record)
    assert int(record["long"]) == 2**70
    written.text.encode()


def test_connection_records_of_uvicorn_are_dropped(log):
    written = log("text", "debug")
    address = "/api/v1/live?token=x"
    logger = logging.getLogger("uvicorn.error")
    assert not logger.isEnabledFor(logging.DEBUG)
    path, text = "/lib/uvicorn/protocols/websockets/x.py", '%s - "WebSocket %s"'
    said = logging.LogRecord(logger.name, logging.INFO, path, 1, text, ("", address), None)
    assert not keep(said)
    logger.info("Shutting down")
    assert written.text == "info Shutting down\n"


# Sockets -------------------------------------------------------------------------------------------------------------
ACCEPT = {"type": "websocket.accept", "headers": []}
PICTURE = {"type": "websocket.send", "bytes": b"frame"}
TOPOLOGY = {"type": "websocket.send", "text": "topology"}


def received(code, messages=0):
    """The messages of a client until it leaves."""
    incoming = [{"type": "websocket.receive", "text": "spec"}] * messages
    return [{"type": "websocket.connect"}, *incoming, {"type": "websocket.disconnect", "code": code}]


@pytest.mark.parametrize(
    ("incoming", "sent", "expected"),
    [
        (received(1001, 4), [ACCEPT, TOPOLOGY, PICTURE, note_coalesced, PICTURE], (4, 2, 1, 1001)),
        (received(1006), [ACCEPT, {"type": "websocket.close", "code": 1012}], (0, 0, 0, 1012)),
        (received(1006), [{"type": "websocket.close", "code": 1000}], None),
    ],
    ids=["open", "closed by the server", "refused"],
)
def test_a_socket_is_two_records_and_a_refused_one_is_one(log, incoming, sent, expected):
    async def app(_, receive, send):
        for message in sent:
            if callable(message):
                message()
            else:
                await send(dict(message))
        while (await receive())["type"] != "websocket.disconnect":
            pass

    coming = iter(incoming)

    async def receive():
        return next(coming)

    async def send(_):
        pass

    written = log()
    headers = [(b"x-request-id", b"socket-3")]
    scope = {"type": "websocket", "path": "/live", "query_string": b"token=x", "headers": headers}
    asyncio.run(RequestLog(app, Metrics(), Templates([]))(scope | {"client": ("192.0.2.7", 1)}, receive, send))
    for record in written.records:
        assert (record["request_id"], record["client"], record["path"]) == ("socket-3", "192.0.2.7", "/live")
    if expected is None:
        (record,) = written.records
        assert (record["event"], record["status"]) == ("request", 403)
    else:
        opened, closed = written.records
        assert (opened["event"], closed["event"]) == ("socket open", "socket closed")
        assert tuple(closed[name] for name in ("messages", "pictures", "coalesced", "code")) == expected


def test_warnings_that_repeat_are_counted_instead_of_written():
    repetition = Repetition()

    def written(seconds, line=1, name="uvicorn.error", level=logging.WARNING):
        record = logging.LogRecord(name, level, "here.py", line, "bad request %d", (7,), None)
        record.created = seconds
        return record.getMessage() if repetition.filter(record) else None

    assert [written(0.0) for _ in range(MAX_REPEATED + 5)] == ["bad request 7"] * MAX_REPEATED + [None] * 5
    # Others are written, requests and lower levels always.
    assert written(1.0, line=2) == "bad request 7"
    assert all(written(1.0, name="chainrule.web.request_log", level=logging.ERROR) for _ in range(MAX_REPEATED + 1))
    assert all(written(1.0, level=logging.INFO) for _ in range(MAX_REPEATED + 1))
    assert written(WINDOW_SECONDS - 1) is None
    assert written(WINDOW_SECONDS) == "bad request 7 (6 more before it)"
    assert written(WINDOW_SECONDS) == "bad request 7"
    assert written(2 * WINDOW_SECONDS) == "bad request 7"
