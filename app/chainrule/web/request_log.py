"""One log record and one count per request, under an id that the client gets. The outermost ASGI layer.

    X-Request-ID (the client's, or a new one) ─▶ header of the answer, every log record of the request in any thread

A record holds the method, the path and the spec's hash. It never holds a query string, a body, a socket's message or a
header but the id: they may be private.
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
"""Ids that are accepted from a client or a proxy; any other is replaced."""

CLIENT_GONE = 499
"""Status recorded when the client left before its answer, as nginx has it."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

OTHER = "other"
"""Label for names that a client made up, so that clients cannot create series."""

MAX_PATH = 200

REFUSED = "refused"
"""Key in a scope's state: the error that the connection answered instead of the application."""


@dataclass(slots=True)
class Note:
    """Facts about a request, collected while it is answered."""

    id: str
    error: str = ""
    status: int = 0
    bytes: int = 0
    gone: bool = False
    code: int | None = None
    messages: int = 0
    pictures: int = 0
    coalesced: int = 0

    def received(self, message: Message) -> None:
        """Note what the client sent."""
        kind = message["type"]
        if kind == "http.disconnect":
            self.gone = self.gone or not self.status
        elif kind == "websocket.receive":
            self.messages += 1
        elif kind == "websocket.disconnect" and self.code is None:
            self.code = message.get("code", 1005)

    def sends(self, message: Message) -> None:
        """Note what is about to be sent."""
        kind = message["type"]
        if kind.endswith("response.start"):
            self.status = message["status"]
        elif kind.endswith("response.body"):
            self.bytes += len(message.get("body", b""))
        elif kind == "websocket.close":
            self.code = message.get("code", 1000) if self.code is None else self.code
            # A handshake refused without an answer is a 403.
            self.status = self.status or 403
        if kind.endswith("response.start") or kind == "websocket.accept":
            MutableHeaders(raw=message.setdefault("headers", []))[HEADER] = self.id


_note: ContextVar[Note | None] = ContextVar("note", default=None)
_spec: ContextVar[ModelSpec | None] = ContextVar("spec", default=None)
"""Per task, not per request: a live socket reads one spec while it computes another."""


def request_id() -> str:
    """The id of the request that this task or thread works for; empty without one."""
    note = _note.get()
    return "" if note is None else note.id


def note_spec(spec: ModelSpec) -> None:
    """Add the spec's hash to all later log records of this task."""
    _spec.set(spec)


def noted_spec() -> ModelSpec | None:
    """The spec that this task or thread noted."""
    return _spec.get()


def note_error(error: ChainruleError) -> None:
    """Add the error's code to the request's record."""
    note = _note.get()
    if note is not None:
        note.error = error.code


def note_coalesced() -> None:
    """Count a socket's message that a newer one replaced before its turn."""
    note = _note.get()
    if note is not None:
        note.coalesced += 1


def spec_hash(spec: ModelSpec) -> str:
    """Twelve hexadecimal digits that tell specs apart without revealing them."""
    return blake2b(spec.query().encode()).hexdigest()[:12]


def log_error(error: ChainruleError) -> None:
    """Log an error that is answered 5xx: with its stack where it is a fault, in one line where it was planned."""
    if error.status in (500, 507):
        logger.error("%s: %s", error.code, error.message, exc_info=error)
    elif error.status >= 500:
        logger.log(logging.WARNING if error.status == 504 else logging.INFO, "%s: %s", error.code, error.message)


def record_refusal(metrics: Metrics | None, error: ChainruleError, client: str, sent: int) -> str:
    """Count and log an answer to an incomplete request, which no application made; returns its id."""
    if metrics is not None:
        metrics.requests.labels(OTHER, OTHER, str(error.status)).inc()
    with _noting(Note(secrets.token_hex(8))) as note:
        fields = {"status": error.status, "bytes": sent, "client": client, "error": error.code}
        logger.info("%s", "request", extra={"fields": fields})
    return note.id


class Templates:
    """The templates of an application's routes, such as `/static/{path}`."""

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
    """Gives each request its id, logs it and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, templates: Templates) -> None:
        self.app = app
        self.metrics = metrics
        self.templates = templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            with self.metrics.open_requests.track_inprogress():
                await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_noted() -> Message:
            message = await receive()
            note.received(message)
            return message

        async def send_noted(message: Message) -> None:
            note.sends(message)
            await send(message)
            if message["type"] == "websocket.accept":
                note.status = 101
                self._count(scope, 101)
                self._log("socket open", scope, start, note)
            note.pictures += message["type"] == "websocket.send" and message.get("bytes") is not None

        start = time.perf_counter()
        with _noting(Note(name_request(scope))) as note:
            try:
                await self.app(scope, receive_noted, send_noted)
            except BaseException:
                note.error = note.error or "incomplete"
                raise
            finally:
                if note.status == 101:
                    counts = {name: getattr(note, name) for name in ("messages", "pictures", "coalesced")}
                    code = 1006 if note.code is None else note.code
                    self._log("socket closed", scope, start, note, code=code, **counts)
                else:
                    refused: ChainruleError | None = scope["state"].get(REFUSED)
                    if refused is not None and (scope["type"] == "http" or not note.status):
                        note.status, note.error = refused.status, refused.code
                    elif note.gone:
                        note.status = CLIENT_GONE
                    status = note.status or CLIENT_GONE
                    self._count(scope, status)
                    self._log("request", scope, start, note, status=status, bytes=note.bytes)

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
            "path": scope["path"][:MAX_PATH],
            **more,
            "client": client[0] if client else "",
            "ms": round((time.perf_counter() - start) * 1e3, 1),
        }
        if person := scope.get("state", {}).get("person"):
            fields["person"] = person
        if note.error:
            fields["error"] = note.error
        logger.info("%s", event, extra={"fields": fields})


def name_request(scope: MutableMapping[str, Any]) -> str:
    """The id of a request, made at the first call."""
    state: dict[str, Any] = scope.setdefault("state", {})
    if "request_id" not in state:
        given = Headers(raw=list(scope["headers"])).get(HEADER, "")
        state["request_id"] = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    name: str = state["request_id"]
    return name


@contextmanager
def _noting(note: Note) -> Iterator[Note]:
    """Make the note known to every task and thread of a request."""
    before = _note.get(), _spec.get()
    _note.set(note)
    _spec.set(None)
    try:
        yield note
    finally:
        # Without tokens: a request given up at shutdown may be closed from another context.
        _note.set(before[0])
        _spec.set(before[1])
