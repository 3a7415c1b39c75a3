"""The application: settings in, ASGI app out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chainrule import __version__
from chainrule.errors import ChainruleError, RequestError
from chainrule.page.opened import OpenDump
from chainrule.settings import Settings
from chainrule.web.answers import REVALIDATE, error_answer, from_http_exception, json_answer
from chainrule.web.api import api_router
from chainrule.web.compute import Compute, list_devices
from chainrule.web.foundations import foundations_router
from chainrule.web.guard import Guard
from chainrule.web.live import live_router
from chainrule.web.openapi import OPENAPI_VERSION
from chainrule.web.own_check import own_check_router
from chainrule.web.pages import pages_router
from chainrule.web.service import Service
from chainrule.web.static_files import OwnFiles


def create_app(
    settings: Settings | None = None, dump: OpenDump | None = None, check: dict[str, Any] | None = None
) -> FastAPI:
    """The whole server as one ASGI app.

    Args:
        settings: from the environment unless given.
        dump: a graph dump that the page shows first.
        check: a gradient check, as `chainrule.gradcheck.check_function` reports it, with a page of its own.
    """
    settings = settings or Settings()
    compute = Compute(list_devices(), settings.queue)
    service = Service(settings, compute, dump)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        compute.close()

    app = FastAPI(
        title="Chainrule",
        version=__version__,
        description="One forward and one backward pass of a neural net, recorded.",
        lifespan=lifespan,
        # Its documentation pages load from a CDN, and its description is served below like everything else.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.openapi_version = OPENAPI_VERSION

    @app.exception_handler(ChainruleError)
    async def on_our_error(request: Request, error: ChainruleError) -> Response:
        return error_answer(request.url.path, error)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        answer = error_answer(request.url.path, from_http_exception(request, error))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> Response:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return error_answer(request.url.path, RequestError(problems, status=422, code="invalid_request"))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return json_answer(app.openapi(), headers={"cache-control": REVALIDATE})

    app.include_router(pages_router(service))
    app.include_router(foundations_router(service))
    app.include_router(api_router(service))
    app.include_router(live_router(service))
    if check is not None:
        app.include_router(own_check_router(check))
    app.mount("/static", OwnFiles())
    app.add_middleware(Guard, settings=settings)
    return app
