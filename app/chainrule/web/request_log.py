"""What happened to each request, in one record, under an id that the client is told. The outermost ASGI layer.

    X-Request-ID (theirs, or a new one) ─▶ answer's header, every log record of the request, in whatever thread

A record names the method, the path and the hash of the spec. Never what may be private: no query string, no body, no
message of a socket, no header but the id.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import ChainruleError
from chainrule.web.metrics import Metrics

if TYPE_CHECKING:
    from chainrule.spec import ModelSpec

logger = logging.getLogger(__name__)

HEADER = "x-request-id"

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Ids that are taken over from a client or a proxy; any other is replaced."""

CLIENT_GONE = 499
"""Status in the record of a request whose client left before it was answered, as nginx has it."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

OTHER = "other"
"""Label of whatever a client made up itself, so that clients cannot make up series."""

LONGEST_PATH = 200

REFUSED = "refused"
"""Key in the state of a request's scope: the error that the connection answered in the application's place."""


@dataclass(slots=True)
class Note:
    """What becomes known of a request while it is answered."""

    id: str
    error: str = ""
    coalesced: int = 0


_note: ContextVar[Note | None] = ContextVar("note", default=None)
_spec: ContextVar[ModelSpec | None] = ContextVar("spec", default=None)
"""Of the task, not of the request: a live socket reads one spec while it computes another."""


def request_id() -> str:
    """The id of the request that this task or thread works for; empty where there is none."""
    note = _note.get()
    return "" if note is None else note.id


def note_spec(spec: ModelSpec) -> None:
    """Let what this task logs from now on carry the spec's hash."""
    _spec.set(spec)


def noted_spec() -> ModelSpec | None:
    """The spec that this task or thread works on, if it said so."""
    return _spec.get()


def note_error(error: ChainruleError) -> None:
    """Let the request's record carry the error's code."""
    note = _note.get()
    if note is not None:
        note.error = error.code


def note_coalesced() -> None:
    """Count a message of this socket that a newer one replaced before its turn."""
    note = _note.get()
    if note is not None:
        note.coalesced += 1


def spec_hash(spec: ModelSpec) -> str:
    """Twelve hexadecimal digits that tell specs apart in a log and give nothing of them away."""
    return blake2b(spec.query().encode()).hexdigest()[:12]


def log_error(error: ChainruleError) -> None:
    """Log an error that is answered 5xx, once: with its stack where it is a fault, in one line where it was planned."""
    if error.status in (500, 507):
        logger.error("%s: %s", error.code, error.message, exc_info=error)
    elif error.status >= 500:
        logger.log(logging.WARNING if error.status == 504 else logging.INFO, "%s: %s", error.code, error.message)


def record_refusal(metrics: Metrics | None, error: ChainruleError, client: str, sent: int) -> str:
    """Count and log an answer that no application made, to what was no whole request; the id it goes under."""
    note = Note(secrets.token_hex(8))
    if metrics is not None:
        metrics.requests.labels(OTHER, OTHER, str(error.status)).inc()
    before = _note.get()
    _note.set(note)
    try:
        fields = {"status": error.status, "bytes": sent, "client": client, "error": error.code}
        logger.info("%s", "request", extra={"fields": fields})
    finally:
        _note.set(before)
    return note.id


class Templates:
    """The templates of an application's routes, such as `/static/{path}`: no more than it has routes."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._literal = set[str]()
        self._patterns = list[tuple[re.Pattern[str], str]]()
        for route in routes:
            if isinstance(route, Mount):
                self._patterns.append((route.path_regex, f"{route.path}/{{path}}"))
            elif isinstance(route, Route | WebSocketRoute):
                if route.param_convertors:
                    self._patterns.append((route.path_regex, route.path))
                else:
                    self._literal.add(route.path)

    def of(self, path: str) -> str:
        """The template of the route that a path leads to."""
        if path in self._literal:
            return path
        return next((template for pattern, template in self._patterns if pattern.match(path)), OTHER)


class RequestLog:
    """Gives each request its id, writes its record and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, templates: Templates) -> None:
        self.app = app
        self.metrics = metrics
        self.templates = templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and say so."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = sent = 0
        gone = False

        async def receive_watched() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or (message["type"] == "http.disconnect" and not status)
            return message

        async def send_noted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                _name(message, note.id)
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        start = time.perf_counter()
        with _noting(scope) as note, self.metrics.open_requests.track_inprogress():
            try:
                await self.app(scope, receive_watched, send_noted)
            except BaseException:
                note.error = note.error or "incomplete"
                raise
            finally:
                known = _refused(scope, note) or (CLIENT_GONE if gone or not status else status)
                self._count(scope, known)
                self._log("request", scope, start, note, status=known, bytes=sent)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = sent = messages = pictures = 0
        code: int | None = None

        async def receive_counted() -> Message:
            nonlocal messages, code
            message = await receive()
            if message["type"] == "websocket.receive":
                messages += 1
            elif message["type"] == "websocket.disconnect" and code is None:
                code = message.get("code", 1005)
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status, sent, pictures, code
            kind = message["type"]
            if kind == "websocket.accept":
                _name(message, note.id)
                await send(message)
                status = 101
                self._count(scope, status)
                self._log("socket open", scope, start, note)
                return
            if kind == "websocket.http.response.start":
                status = message["status"]
                _name(message, note.id)
            elif kind == "websocket.http.response.body":
                sent += len(message.get("body", b""))
            elif kind == "websocket.close":
                code = message.get("code", 1000) if code is None else code
                # Without an answer of its own a refused handshake is a 403.
                status = status or 403
            await send(message)
            if kind == "websocket.send":
                pictures += message.get("bytes") is not None

        start = time.perf_counter()
        with _noting(scope) as note:
            try:
                await self.app(scope, receive_counted, send_counted)
            except BaseException:
                note.error = note.error or "incomplete"
                raise
            finally:
                if status == 101:
                    self._log(
                        "socket closed",
                        scope,
                        start,
                        note,
                        code=1006 if code is None else code,
                        messages=messages,
                        pictures=pictures,
                        coalesced=note.coalesced,
                    )
                else:
                    known = status or _refused(scope, note) or CLIENT_GONE
                    self._count(scope, known)
                    self._log("request", scope, start, note, status=known, bytes=sent)

    def _count(self, scope: Scope, status: int) -> None:
        method = scope.get("method", "GET")
        route = self.templates.of(scope["path"])
        self.metrics.requests.labels(method if method in METHODS else OTHER, route, str(status)).inc()

    def _log(self, event: str, scope: Scope, start: float, note: Note, **more: int) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        client = scope.get("client")
        fields: dict[str, object] = {
            "method": scope.get("method", "GET"),
            "route": self.templates.of(scope["path"]),
            "path": scope["path"][:LONGEST_PATH],
            **more,
            "client": client[0] if client else "",
            "ms": round((time.perf_counter() - start) * 1e3, 1),
        }
        if note.error:
            fields["error"] = note.error
        logger.info("%s", event, extra={"fields": fields})


def name_request(scope: MutableMapping[str, Any]) -> str:
    """The id of a request, which it is given when it is first asked for."""
    state: dict[str, Any] = scope.setdefault("state", {})
    if "request_id" not in state:
        given = Headers(raw=list(scope["headers"])).get(HEADER, "")
        state["request_id"] = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    name: str = state["request_id"]
    return name


def _refused(scope: Scope, note: Note) -> int:
    """Status of the answer that the connection gave in the application's place; 0 where it gave none."""
    error: ChainruleError | None = scope["state"].get(REFUSED)
    if error is None:
        return 0
    note.error = error.code
    return error.status


@contextmanager
def _noting(scope: Scope) -> Iterator[Note]:
    """A note for the time of a request, where every task and thread of it finds it."""
    note = Note(name_request(scope))
    before = _note.get(), _spec.get()
    _note.set(note)
    _spec.set(None)
    try:
        yield note
    finally:
        # Not by a token: a request that is given up at shutdown may be closed from another context.
        _note.set(before[0])
        _spec.set(before[1])


def _name(message: Message, name: str) -> None:
    """Put the request's id among the headers of an answer."""
    MutableHeaders(raw=message.setdefault("headers", []))[HEADER] = name
