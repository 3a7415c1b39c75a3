"""How answers are made: JSON by orjson, weak entity tags, and the one error shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from chainrule import __version__
from chainrule.dump.opened import Stored
from chainrule.errors import BusyError, ChainruleError, NotFoundError, RequestError
from chainrule.page.templating import render
from chainrule.spec.model_spec import read_query
from chainrule.web.request_log import note_error

JSON = "application/json"
GZIP = "application/gzip"

REVALIDATE = "private, no-cache"
"""Cache-Control of answers that may be kept but must be revalidated by their entity tag."""

PIECE = 2**20
"""Number of bytes of a dump that are sent at a time."""

UNREAD = (408, 413)
"""Statuses after which the rest of a body may still arrive, unread."""


def json_answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    return Response(orjson.dumps(value), status, headers, JSON)


def error_answer(path: str, accept: str, error: ChainruleError) -> Response:
    """The answer for an error: a page at a page's address or for a browser's visit, else JSON in the one shape."""
    note_error(error)
    headers = {"cache-control": "no-store"}
    if isinstance(error, BusyError):
        headers["retry-after"] = str(error.retry_after)
    if error.status in UNREAD:
        headers["connection"] = "close"
    if error.status == 401:
        headers["www-authenticate"] = 'Bearer realm="chainrule"'
    if is_page(path) or is_visit(path, accept):
        page = render("error.html", status=error.status, error=error.body()["error"], version=__version__)
        return HTMLResponse(page, error.status, headers)
    return json_answer(error.body(), status=error.status, headers=headers)


def is_page(path: str) -> bool:
    """Whether a path is a page for people."""
    return path == "/" or ((path == "/foundations" or path.startswith("/foundations/")) and not path.endswith(".json"))


def is_visit(path: str, accept: str) -> bool:
    """Whether a browser visits an address that is no program's; `accept` is the request's header."""
    return "text/html" in accept and not path.startswith("/api/") and not path.endswith(".json")


def from_http_exception(request: Request, exception: HTTPException) -> ChainruleError:
    """The framework's own exceptions (no such route, wrong method) as a `ChainruleError`."""
    path = request.url.path
    if exception.status_code == 404:
        return no_such_address(path)
    if exception.status_code == 405:
        allowed = (exception.headers or {}).get("Allow")
        return RequestError(
            f"{_shortened(path)}: {request.method} is not allowed", status=405, code="method_not_allowed", limit=allowed
        )
    return RequestError(exception.detail, status=exception.status_code)


def no_such_address(path: str) -> ChainruleError:
    """The error for a path that no route has."""
    return NotFoundError(f"{_shortened(path)}: address not found")


def entity_tag(*parts: str) -> str:
    """A weak entity tag. The parts are everything that the answer depends upon."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return f'W/"{digest.hexdigest()}"'


def is_fresh(headers: Headers, tag: str) -> bool:
    """Whether `If-None-Match` names the tag, compared weakly (RFC 9110, section 13.1.2)."""
    asked = headers.get("if-none-match")
    if asked is None:
        return False
    tags = {each.strip().removeprefix("W/") for each in asked.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags


def not_modified(tag: str) -> Response:
    """304, with the headers the full answer would have had."""
    return Response(status_code=304, headers={"etag": tag, "cache-control": REVALIDATE})


def tagged(body: bytes | str, tag: str, media_type: str = JSON) -> Response:
    """An answer that clients keep under an entity tag."""
    return Response(body, 200, {"etag": tag, "cache-control": REVALIDATE}, media_type)


def kept_answer(request: Request, body: bytes | str, media_type: str = JSON) -> Response:
    """An answer that stays the same while the server runs; 304 if the client has it."""
    tag = entity_tag(body if isinstance(body, str) else body.decode())
    return not_modified(tag) if is_fresh(request.headers, tag) else tagged(body, tag, media_type)


def sent(stored: Stored, tag: str) -> Response:
    """An open dump as it is, piece by piece."""
    headers = {"etag": tag, "cache-control": REVALIDATE, "content-length": str(stored.size)}

    def pieces() -> Iterator[bytes]:
        with stored.file as file:
            while piece := file.read(PIECE):
                yield piece

    return StreamingResponse(pieces(), 200, headers, GZIP if stored.is_packed else JSON)


def query_of(request: Request) -> dict[str, str]:
    """The keys and values of a query string. Raises SpecError, see `read_query`."""
    return read_query(request.scope["query_string"].decode("latin-1"))


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
