"""Who may talk to the server, and what every answer carries. One ASGI layer around everything else.

A request passes Host, where it comes from, and token, in this order, and finds a place, or is answered at once.
Whatever is answered, by a route, by a refusal or because something broke, leaves with the same security headers, and a
broken route says nothing of its insides.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from hashlib import blake2b
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import BusyError, ChainruleError, RequestError
from chainrule.settings import Settings, is_loopback
from chainrule.web.answers import error_answer, json_answer, no_such_address
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import request_id

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes come from the machinery around the server, under any host name, without a token and however busy it is."""

PAGE_FILES = "/static/"
"""What is nobody's secret and computes nothing: whether another site may show it says cross-origin-resource-policy."""

HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[(?P<address>[0-9a-f]*:[0-9a-f:.]*)\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
"""A Host header in lower case: a name or an IPv4 address as it is, an IPv6 address in brackets, and a port or none."""

LARGE_BODY = 1 << 16
"""An answer that is larger is not over before the client has taken it."""

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
    """What a client is told of an exception that nobody expected: where to look, and nothing of it."""

    code = "internal"

    def __init__(self) -> None:
        name = request_id()
        where = f" under request id {name}" if name else ""
        super().__init__(f"something broke while answering; the server's log says what{where}")


class Guard:
    """The outermost layer: admits or refuses, adds headers, answers HEAD like GET, turns a crash into a plain 500."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.token = settings.token.get_secret_value() if settings.token else None
        self.cookie = cookie_name(self.token or "")
        # What is open now, probes left out.
        self.requests = 0
        self.sockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        started = False
        accepted = False
        head = scope.get("method") == "HEAD"

        async def send_guarded(message: Message) -> None:
            nonlocal started, accepted
            if message["type"] == "websocket.close" and not started:
                # No route took the WebSocket: a plain refusal would not say why.
                started = True
                await _answer(self._refuse(scope, no_such_address(scope["path"])), scope, receive, send_guarded)
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
                    # The server takes in whatever it is given, and asks for patience with the message after it: as long
                    # as the client has not taken the answer, the request is open and counted.
                    await send({**message, "more_body": True})
                    message = {"type": "http.response.body", "body": b""}
            await send(message)

        counted = False
        try:
            answer = self.refusal(scope)
            if answer is not None:
                await _answer(answer, scope, receive, send_guarded)
                return
            counted = self._count(scope, 1)
            # Routes know GET alone; its headers are HEAD's headers.
            await self.app({**scope, "method": "GET"} if head else scope, receive, send_guarded)
        except ClientDisconnect:
            # Gone before its body was there: nobody to answer, and nothing is broken.
            pass
        except Exception:
            logger.exception("%s %s failed", scope.get("method", "WEBSOCKET"), scope["path"])
            if not started:
                await _answer(_error(scope["path"], InternalError()), scope, receive, send_guarded)
            elif scope["type"] == "http":
                # Half an answer must not look like a whole one: the server closes the connection.
                raise
        finally:
            if counted:
                self._count(scope, -1)
            if accepted:
                self.metrics.sockets.dec()

    def refusal(self, scope: Scope) -> Response | None:
        """The answer that keeps a request out or, on a visit by link, moves the token from address to cookie."""
        if scope["path"] in OPEN_PATHS:
            return None
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not host_allowed(host, self.settings):
            return self._refuse(
                scope,
                RequestError(
                    f"Host: {host[:80]!r} is not a name of this server; CHAINRULE_ALLOWED_HOSTS adds names",
                    code="host_not_allowed",
                ),
            )
        # Another site's page cannot read an answer, but have it computed, again and again.
        if embedded_elsewhere(headers) and scope["type"] == "http" and not scope["path"].startswith(PAGE_FILES):
            return self._refuse(
                scope,
                RequestError(
                    f"Sec-Fetch-Site: a page of another site asks for {scope['path'][:80]!r}; it may only lead to it",
                    status=403,
                    code="origin_not_allowed",
                ),
            )
        # Reading from elsewhere is the browser's to prevent; WebSockets and writing are not.
        if scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"):
            secure = scope["scheme"] in ("https", "wss")
            for origin in headers.getlist("origin"):
                if not same_origin(origin, host, secure=secure):
                    return self._refuse(
                        scope,
                        RequestError(
                            f"Origin: {origin[:80]!r} is not this server", status=403, code="origin_not_allowed"
                        ),
                    )
        return self._token_answer(scope, headers) or self._busy_answer(scope)

    def _refuse(self, scope: Scope, error: ChainruleError) -> Response:
        self.metrics.rejected.labels(code=error.code).inc()
        return _error(scope["path"], error)

    def _busy_answer(self, scope: Scope) -> Response | None:
        if scope["type"] == "websocket":
            what, number, limit = "sockets", self.sockets, self.settings.max_sockets
        else:
            what, number, limit = "requests", self.requests, self.settings.max_requests
        if number < limit:
            return None
        message = f"{number} {what} are open, at most {limit} may be (CHAINRULE_MAX_{what.upper()})"
        return self._refuse(scope, BusyError(message, limit=limit))

    def _count(self, scope: Scope, change: int) -> bool:
        """Take a place among what is open, or give it back; whether it takes one."""
        if scope["path"] in OPEN_PATHS:
            return False
        if scope["type"] == "websocket":
            self.sockets += change
        else:
            self.requests += change
        return True

    def _token_answer(self, scope: Scope, headers: Headers) -> Response | None:
        given, query = split_token(scope["query_string"])
        by_link = given is not None and scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        with_token = by_link and self.token is not None and _same(given or "", self.token)
        if not with_token and self.token is not None and not self._admitted(headers, self.token):
            return self._refuse_token(scope)
        if not by_link:
            return None
        # Whoever is admitted leaves the token behind, an old one too: an address is shown, sent on and written down.
        # Two slashes in front would name another host.
        target = "/" + quote(scope["path"].lstrip("/")) + (f"?{query}" if query else "")
        answer = RedirectResponse(target, 303, {"cache-control": "no-store"})
        if with_token:
            answer.set_cookie(
                self.cookie,
                self.token or "",
                path="/",
                httponly=True,
                # Not strict: a link in a mail, a course or a chat leads here from another site, and a strict cookie
                # stays behind, on this redirect and with every link to a view. What a lax one goes along with from
                # elsewhere is a visit, which changes nothing; POST and WebSockets are held to their Origin above.
                samesite="lax",
                secure=scope["scheme"] == "https",
                max_age=30 * 86_400,
            )
        return answer

    def _refuse_token(self, scope: Scope) -> Response:
        return self._refuse(
            scope,
            RequestError(
                "a token is needed: open the complete link that the server printed, or send it as "
                "`Authorization: Bearer`",
                status=401,
                code="unauthorized",
            ),
        )

    def _admitted(self, headers: Headers, token: str) -> bool:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(credentials.strip(), token):
            return True
        # By starlette's parser, as browsers write cookies: another program's odd cookie on this host must lock nobody
        # out.
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie)
        return cookie is not None and _same(cookie, token)


def cookie_name(token: str) -> str:
    """The name of the cookie that holds a token.

    Cookies know a host and not a port. Servers with tokens of their own on one host keep out of each other's way, and
    replicas with the same token share it.
    """
    return f"chainrule_{blake2b(token.encode()).hexdigest()[:8]}"


def host_allowed(host: str, settings: Settings) -> bool:
    """Whether the Host header names this server.

    A page elsewhere can point a name of its own at this machine (DNS rebinding) but cannot make up an address: names
    must be known, and addresses are only looked at where nobody but this machine listens.
    """
    match = HOST.fullmatch(host.lower())
    if match is None or int(match["port"] or 0) > 65_535:
        return False
    name = match["address"] or match["name"]
    if match["address"] and not _is_address(name):
        return False
    allowed = settings.allowed_hosts
    if is_loopback(name) or name == settings.host.lower() or name in allowed or "*" in allowed:
        return True
    return not settings.is_loopback and _is_address(name)


def embedded_elsewhere(headers: Headers) -> bool:
    """Whether a page of another origin loads this as a part of itself: a picture, a script, a frame.

    A visit by a link is none, wherever the link stands. Browsers say so to servers by TLS and on loopback; what is no
    browser says nothing, and elsewhere the cookie stays behind.
    """
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    # A frame is navigated too. It could not be shown (see `frame-ancestors`), but what it asks for would be computed.
    visits = headers.get("sec-fetch-mode") == "navigate"
    return not (visits and headers.get("sec-fetch-dest", "document") == "document")


def same_origin(origin: str, host: str, *, secure: bool = False) -> bool:
    """Whether an Origin header names the host that was asked; `null` and other schemes never do.

    Args:
        origin: the header.
        host: the Host header.
        secure: whether the request is known to have come by TLS. Otherwise a proxy may have taken that away, and either
            scheme is as good.
    """
    scheme, mark, authority = origin.partition("://")
    schemes = ("https",) if secure else ("http", "https")
    return mark == "://" and scheme in schemes and bool(host) and authority.lower() == host.lower()


def split_token(query: bytes) -> tuple[str | None, str]:
    """The `token` of a query string and the rest of it, untouched."""
    given: str | None = None
    rest = []
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if name == "token":
            given = value
        else:
            rest.append(part)
    return given, "&".join(rest)


def _same(given: str, token: str) -> bool:
    """Compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _error(path: str, error: ChainruleError) -> Response:
    """An error as an answer; should even the error page be broken, as JSON."""
    try:
        return error_answer(path, error)
    except Exception:
        logger.exception("the error page failed")
        return json_answer(error.body(), status=error.status)


async def _answer(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a whole answer, to a WebSocket's handshake too."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        return
    await answer(scope, receive, send)
