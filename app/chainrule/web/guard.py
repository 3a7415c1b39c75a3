"""Who may use the server, and the headers of every answer. An ASGI layer around the application.

A request must pass the checks of Host, origin, token and number of open requests, in this order. Every answer, even a
refusal or a 500, has the same security headers; a 500 reveals nothing about the error.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections import Counter
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import BusyError, ChainruleError, RequestError
from chainrule.settings import OWN_HOST, Settings, is_loopback
from chainrule.web.answers import error_answer, no_such_address
from chainrule.web.metrics import Metrics
from chainrule.web.people import people_of
from chainrule.web.request_log import request_id
from chainrule.web.sessions import SECONDS, cookie_name, new_session, surplus

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes need no known host name, token or free place: orchestrators ask them."""

PAGE_FILES = "/static/"
"""Public files that cost no computing: cross-origin-resource-policy decides whether another site may show them."""

HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[(?P<address>[0-9a-f]*:[0-9a-f:.]*)\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
"""A Host header in lower case: a name, an IPv4 address or an IPv6 address in brackets, with or without a port."""

LARGE_BODY = 1 << 16
"""Larger answers count as open until the client has taken them."""

SECURITY_HEADERS = {
    # Plotly writes style attributes, hence 'unsafe-inline' there: the one exception.
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'; object-src 'none'; "
        "worker-src 'self'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}


class InternalError(ChainruleError):
    """The answer to an unexpected exception: the request id to look up, and no details."""

    code = "internal"

    def __init__(self) -> None:
        name = request_id()
        where = f" under request id {name}" if name else ""
        super().__init__(f"internal error; the server's log has the details{where}")


class Guard:
    """Admits or refuses, adds headers, answers HEAD like GET, turns a crash into a plain 500."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.people = people_of(settings)
        # Requests ("http") and sockets ("websocket") that are open now, without probes.
        self.open = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse one request, or pass it to the application."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        started = False
        accepted = False
        is_over = False
        token: str | None = None  # of a socket's owner
        head = scope.get("method") == "HEAD"

        async def send_guarded(message: Message) -> None:
            nonlocal started, accepted
            if is_over or (message["type"] == "websocket.send" and await end_of_admission()):
                return
            if message["type"] == "websocket.close" and not started:
                # No route accepted the WebSocket; a plain refusal would not say why.
                started = True
                await self._refuse(scope, no_such_address(scope["path"]))(scope, receive, send_guarded)
                return
            started = True
            if message["type"] == "websocket.accept" and not accepted:
                accepted = True
                self.metrics.sockets.inc()
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            if message["type"] == "http.response.body":
                if head:
                    message = {**message, "body": b""}
                elif len(message.get("body", b"")) > LARGE_BODY and not message.get("more_body", False):
                    # Uvicorn buffers any message and makes only the next one wait: with a second message the request
                    # stays open, and counted, until the client has taken the answer.
                    await send({**message, "more_body": True})
                    message = {"type": "http.response.body", "body": b""}
            await send(message)

        async def end_of_admission() -> bool:
            """Whether the owner of a socket is no longer admitted; it is closed then."""
            nonlocal is_over
            if token is not None and not is_over and self.people.name_of(token) is None:
                is_over = True
                await send({"type": "websocket.close", "code": 1008, "reason": "the token does not admit any more"})
            return is_over

        async def receive_admitted() -> Message:
            message = await receive()
            return {"type": "websocket.disconnect", "code": 1008} if await end_of_admission() else message

        counted = False
        try:
            answer = self.refusal(scope)
            if scope["type"] == "websocket":
                token = scope.get("state", {}).get("token")
            if answer is not None:
                await answer(scope, receive, send_guarded)
                return
            counted = scope["path"] not in OPEN_PATHS
            self.open[scope["type"]] += counted
            # Routes know GET alone; its headers are HEAD's headers.
            await self.app({**scope, "method": "GET"} if head else scope, receive_admitted, send_guarded)
        except ClientDisconnect:
            # The client left before its body had arrived.
            pass
        except Exception:
            logger.exception("%s %s failed", scope.get("method", "WEBSOCKET"), scope["path"])
            if not started:
                await error_answer(scope["path"], Headers(scope=scope).get("accept", ""), InternalError())(
                    scope, receive, send_guarded
                )
            elif scope["type"] == "http":
                # Half an answer must not look complete: the server closes the connection.
                raise
        finally:
            self.open[scope["type"]] -= counted
            if accepted:
                self.metrics.sockets.dec()

    def refusal(self, scope: Scope) -> Response | None:
        """The answer that refuses a request, or admits the browser of a link with a token; None to let it pass."""
        if scope["path"] in OPEN_PATHS:
            return None
        headers = Headers(scope=scope)
        try:
            self._check_site(scope, headers)
            answer = self._token_answer(scope, headers)
            if answer is None:
                self._check_places(scope)
            return answer
        except ChainruleError as error:
            return self._refuse(scope, error)

    def _check_site(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if not host_allowed(host, self.settings):
            raise RequestError(
                f"Host: {host[:80]!r} is not an allowed host name; set CHAINRULE_ALLOWED_HOSTS to add names",
                code="host_not_allowed",
            )
        # Another site's page cannot read answers, but could make the server compute them without end.
        if embedded_elsewhere(headers) and scope["type"] == "http" and not scope["path"].startswith(PAGE_FILES):
            raise RequestError(
                f"Sec-Fetch-Site: a page of another site requested {scope['path'][:80]!r}; "
                "other sites may only link to it",
                status=403,
                code="origin_not_allowed",
            )
        # Browsers keep other sites from reading answers, but not from WebSockets and writing.
        if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"):
            secure = scope["scheme"] in ("https", "wss")
            for origin in headers.getlist("origin"):
                if not same_origin(origin, host, secure=secure):
                    raise RequestError(
                        f"Origin: {origin[:80]!r} is not this server", status=403, code="origin_not_allowed"
                    )

    def _refuse(self, scope: Scope, error: ChainruleError) -> Response:
        self.metrics.rejected.labels(code=error.code).inc()
        return error_answer(scope["path"], Headers(scope=scope).get("accept", ""), error)

    def _check_places(self, scope: Scope) -> None:
        settings, number = self.settings, self.open[scope["type"]]
        is_socket = scope["type"] == "websocket"
        what, limit = ("sockets", settings.max_sockets) if is_socket else ("requests", settings.max_requests)
        if number >= limit:
            message = f"{number} {what} are open; at most {limit} are allowed (CHAINRULE_MAX_{what.upper()})"
            raise BusyError(message, limit=limit)

    def _token_answer(self, scope: Scope, headers: Headers) -> Response | None:
        given, query = split_token(scope["query_string"])
        by_link = given is not None and scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        of_link = self.people.token_of(given or "") if by_link else None
        token = of_link or self._admitted(headers)
        if token is None and self.people.needs_token:
            raise RequestError(
                "a token is needed: open the complete link that you got or that the server printed, or send it as "
                "`Authorization: Bearer`",
                status=401,
                code="unauthorized",
            )
        if token is not None:
            scope.setdefault("state", {}).update(token=token, person=self.people.name_of(token))
        if not by_link:
            return None
        # Addresses are shown, sent on and written down: a token, even an old one, must not stay in them.
        # Two leading slashes would name another host.
        target = "/" + quote(scope["path"].lstrip("/")) + (f"?{query}" if query else "")
        answer = RedirectResponse(target, 303, {"cache-control": "no-store"})
        if of_link is not None:
            own = cookie_name(headers["host"])
            for name in surplus(cookie_parser(headers.get("cookie", "")), own):
                answer.delete_cookie(name)
            answer.set_cookie(
                own,
                new_session(of_link),
                path="/",
                httponly=True,
                # Not strict: browsers send no strict cookie when a link in a mail or chat leads here, nor on this
                # redirect. A lax cookie comes from another site only with visits, which change nothing; POST and
                # WebSockets are checked by Origin above.
                samesite="lax",
                secure=scope["scheme"] == "https",
                # On loopback it ends with the browser: the view ends before.
                max_age=None if self.settings.is_loopback else SECONDS,
            )
        return answer

    def _admitted(self, headers: Headers) -> str | None:
        """The token that a program sent, or that signed a browser's session, if it admits."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (token := self.people.token_of(credentials.strip())) is not None:
            return token
        # Starlette's parser is lenient: another program's odd cookie on this host must not lock anybody out.
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")))
        return None if cookie is None else self.people.token_of_session(cookie)


def host_allowed(host: str, settings: Settings) -> bool:
    """Whether the Host header names this server.

    An attacker can point a name at this machine (DNS rebinding), but not an address: names must be known. Beyond
    loopback any address is accepted.
    """
    match = HOST.fullmatch(host.lower())
    if match is None or int(match["port"] or 0) > 65_535:
        return False
    name = match["address"] or match["name"]
    if match["address"] and not _is_address(name):
        return False
    allowed = settings.allowed_hosts
    if is_loopback(name) or name in (OWN_HOST, settings.host.lower()) or name in allowed or "*" in allowed:
        return True
    return not settings.is_loopback and _is_address(name)


def embedded_elsewhere(headers: Headers) -> bool:
    """Whether a page of another origin loads this as a picture, a script or a frame; following a link is not that.

    Browsers send these headers over TLS and on loopback; elsewhere they do not send the cookie either.
    """
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    # A frame is navigated too: it is never shown (see `frame-ancestors`), but would be computed.
    visits = headers.get("sec-fetch-mode") == "navigate"
    return not (visits and headers.get("sec-fetch-dest", "document") == "document")


def same_origin(origin: str, host: str, *, secure: bool = False) -> bool:
    """Whether an Origin header names the host that was asked; `null` and other schemes never do.

    Without TLS (`secure`) both schemes match: a proxy may have removed it.
    """
    scheme, mark, authority = origin.partition("://")
    schemes = ("https",) if secure else ("http", "https")
    return mark == "://" and scheme in schemes and bool(host) and authority.lower() == host.lower()


def split_token(query: bytes) -> tuple[str | None, str]:
    """The `token` of a query string, and the unchanged rest."""
    given: str | None = None
    rest = []
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if name == "token":
            given = value
        else:
            rest.append(part)
    return given, "&".join(rest)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
