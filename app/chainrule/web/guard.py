"""Who may talk to the server, and what every answer carries. One ASGI layer around everything else.

A request passes Host, Origin and token, in this order, or is answered at once. Whatever is answered, by a route, by a
refusal or because something broke, leaves with the same security headers, and a broken route says nothing of its
insides.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.errors import ChainruleError, RequestError
from chainrule.settings import Settings, is_loopback
from chainrule.web.answers import error_answer, json_answer, no_such_address

logger = logging.getLogger(__name__)

COOKIE = "chainrule_token"

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes come from the machinery around the server, under any host name and without a token."""

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
    """What a client is told of an exception that nobody expected: nothing."""

    code = "internal"

    def __init__(self) -> None:
        super().__init__("something broke while answering; the server's log says what")


class Guard:
    """The outermost layer: admits or refuses, adds headers, answers HEAD like GET, turns a crash into a plain 500."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.token = settings.token.get_secret_value() if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        started = False
        head = scope.get("method") == "HEAD"

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "websocket.close" and not started:
                # No route took the WebSocket: a plain refusal would not say why.
                started = True
                await _answer(_error(scope["path"], no_such_address(scope["path"])), scope, receive, send_guarded)
                return
            started = True
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            if head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            answer = self.refusal(scope)
            if answer is not None:
                await _answer(answer, scope, receive, send_guarded)
                return
            # Routes know GET alone; its headers are HEAD's headers.
            await self.app({**scope, "method": "GET"} if head else scope, receive, send_guarded)
        except Exception:
            logger.exception("%s %s failed", scope.get("method", "WEBSOCKET"), scope["path"])
            if not started:
                await _answer(_error(scope["path"], InternalError()), scope, receive, send_guarded)
            elif scope["type"] == "http":
                # Half an answer must not look like a whole one: the server closes the connection.
                raise

    def refusal(self, scope: Scope) -> Response | None:
        """The answer that keeps a request out or, on a visit by link, moves the token from address to cookie."""
        path = scope["path"]
        if path in OPEN_PATHS:
            return None
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not host_allowed(host, self.settings):
            return _error(
                path,
                RequestError(
                    f"Host: {host[:80]!r} is not a name of this server; CHAINRULE_ALLOWED_HOSTS adds names",
                    code="host_not_allowed",
                ),
            )
        origin = headers.get("origin")
        # Reading from elsewhere is the browser's to prevent; WebSockets and writing are not.
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if changes and origin is not None and not same_origin(origin, host):
            return _error(
                path,
                RequestError(f"Origin: {origin[:80]!r} is not this server", status=403, code="origin_not_allowed"),
            )
        return self._token_answer(scope, headers)

    def _token_answer(self, scope: Scope, headers: Headers) -> Response | None:
        given, query = split_token(scope["query_string"])
        by_link = given is not None and scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if by_link and (self.token is None or _same(given or "", self.token)):
            # Two slashes in front would name another host.
            target = "/" + quote(scope["path"].lstrip("/")) + (f"?{query}" if query else "")
            answer = RedirectResponse(target, 303, {"cache-control": "no-store"})
            if self.token is not None:
                answer.set_cookie(
                    COOKIE,
                    self.token,
                    path="/",
                    httponly=True,
                    samesite="strict",
                    secure=scope["scheme"] == "https",
                    max_age=30 * 86_400,
                )
            return answer
        if self.token is None or _admitted(headers, self.token):
            return None
        return _error(
            scope["path"],
            RequestError(
                "a token is needed: open the complete link that the server printed, or send it as "
                "`Authorization: Bearer`",
                status=401,
                code="unauthorized",
            ),
        )


def host_allowed(host: str, settings: Settings) -> bool:
    """Whether the Host header names this server.

    A page elsewhere can point a name of its own at this machine (DNS rebinding) but cannot make up an address: names
    must be known, and addresses are only looked at where nobody but this machine listens.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if not name or any(mark in host for mark in "/?#@\\ "):
        return False
    allowed = settings.allowed_hosts
    if is_loopback(name) or name == settings.host.lower() or name in allowed or "*" in allowed:
        return True
    return not settings.is_loopback and _is_address(name)


def same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the host that was asked; `null` and other schemes never do."""
    scheme, mark, authority = origin.partition("://")
    return mark == "://" and scheme in ("http", "https") and bool(host) and authority.lower() == host.lower()


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


def _admitted(headers: Headers, token: str) -> bool:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and _same(credentials.strip(), token):
        return True
    # By starlette's parser, as browsers write cookies: another program's odd cookie on this host must lock nobody out.
    cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    return cookie is not None and _same(cookie, token)


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
