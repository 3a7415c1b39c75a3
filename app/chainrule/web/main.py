"""The application: settings in, ASGI app out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chainrule import __version__
from chainrule.dump.opened import DumpFile, OpenDump
from chainrule.errors import BusyError, ChainruleError
from chainrule.lessons import LESSONS, read_lessons
from chainrule.run import trace_spec
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.web.answers import REVALIDATE, error_answer, from_http_exception, json_answer
from chainrule.web.api import api_router
from chainrule.web.compute import Compute, list_devices
from chainrule.web.foundations import foundations_router, gradcheck_router
from chainrule.web.guard import Guard
from chainrule.web.live import live_router
from chainrule.web.logs import configure_logging
from chainrule.web.metrics import Metrics
from chainrule.web.model import Model, model_router
from chainrule.web.openapi import OPENAPI_VERSION
from chainrule.web.pages import pages_router
from chainrule.web.probes import probes_router
from chainrule.web.request_log import RequestLog, Templates, log_error
from chainrule.web.runs import runs_router
from chainrule.web.server import Server, ServerConfig
from chainrule.web.service import Service
from chainrule.web.static_files import GuideFiles, OwnFiles
from chainrule.web.sweeps import sweeps_router

if TYPE_CHECKING:
    from chainrule.trace import Trace
    from chainrule.user_model.model import UserModel

__all__ = ["Server", "ServerConfig", "configure_logging", "create_app"]


def create_app(
    settings: Settings | None = None,
    dump: OpenDump | Sequence[OpenDump | DumpFile] | None = None,
    check: dict[str, Any] | None = None,
    own: UserModel | None = None,
    runs: Path | None = None,
    first_pass: Callable[[Trace | ChainruleError | None], None] | None = None,
) -> FastAPI:
    """The whole server as one ASGI app.

    Its page shows a graph `dump` first, or several, such as the steps of a training; the report of a gradient `check`,
    see `gradcheck.command.check_function`, has its own page; `own`, a user's model, takes the place of specs;
    `runs` is a folder, whose runs have their own page. `first_pass` gets the first trace of `own`, or the error if
    `own` cannot be traced, or None after an error in Chainrule itself.
    """
    settings = settings or Settings()
    metrics = Metrics()
    compute = Compute(
        list_devices(),
        settings.queue,
        metrics,
        max_kept_bytes=settings.max_kept_bytes,
        shutdown_seconds=settings.shutdown_seconds,
    )
    dumps = (dump,) if isinstance(dump, OpenDump) else tuple(dump or ())
    folder = Path(settings.lessons) if settings.lessons else LESSONS
    lessons = [asdict(lesson) for lesson in read_lessons(folder)]
    service = Service(settings, compute, metrics, dumps, lessons)
    model = None if own is None else Model(service, own)
    maps, workers = sweeps_router(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if model is None:
            for name, slot in compute.slots.items():
                await slot.warm_up(partial(trace_spec, ModelSpec(device=name)))
            yield
            await asyncio.gather(compute.close(), run_in_threadpool(workers.close))
            return
        # Nobody waits for it before the page is there: it may take as long as the model does.
        first_picture = asyncio.create_task(model.warm_up(first_pass or (lambda _: None)))
        yield
        await asyncio.gather(compute.close(), run_in_threadpool(workers.close))
        first_picture.cancel()
        with suppress(asyncio.CancelledError):
            await first_picture

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
    app.state.service = service
    app.state.model = model

    def answer_error(request: Request, error: ChainruleError) -> Response:
        log_error(error)
        if error.status < 500 or isinstance(error, BusyError):
            service.metrics.rejected.labels(error.code).inc()
        return error_answer(request.url.path, request.headers.get("accept", ""), error)

    @app.exception_handler(ChainruleError)
    async def on_our_error(request: Request, error: ChainruleError) -> Response:
        return answer_error(request, error)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        answer = answer_error(request, from_http_exception(request, error))
        answer.headers.update(error.headers or {})
        return answer

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return json_answer(app.openapi(), headers={"cache-control": REVALIDATE})

    # The chapter reads its defaults; a model's own code may have made another device torch's default.
    with torch.device("cpu"):
        routers = [
            pages_router(service, model),
            foundations_router(service),
            api_router(service),
            probes_router(service),
            live_router(service),
            maps,
        ]
    if check is not None:
        routers.append(gradcheck_router(check))
    if runs is not None:
        routers.append(runs_router(service, runs))
    if model is not None:
        routers.append(model_router(service, model))
    for router in routers:
        app.include_router(router)
    app.mount("/static", OwnFiles())
    app.mount("/guide", GuideFiles())
    app.add_middleware(Guard, settings=settings, metrics=service.metrics)
    # Added last, it stands outside the guard: what that refuses has an id and a record too.
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    app.add_middleware(RequestLog, metrics=service.metrics, templates=Templates(routes))
    return app
