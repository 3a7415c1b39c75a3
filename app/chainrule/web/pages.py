"""The pages. They hold the data for the first picture; all numbers come over the API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from chainrule import __version__
from chainrule.build import check_program
from chainrule.errors import MissingExtraError, NotFoundError, SpecError
from chainrule.export.html import shell
from chainrule.page import assets
from chainrule.page.data import page_data
from chainrule.page.glossary import glossary
from chainrule.page.templating import render
from chainrule.spec import ModelSpec
from chainrule.spec.keys import SPEC_KEYS
from chainrule.user_model.what_if import WhatIf
from chainrule.web.answers import REVALIDATE, is_fresh, kept_answer, not_modified, query_of
from chainrule.web.api import dump_address
from chainrule.web.model import Model
from chainrule.web.service import Service


def pages_router(service: Service, model: Model | None = None) -> APIRouter:
    """`/`, `/guide`, `/docs`, third-party files, and `/standalone.html`, the page's template for saved files."""
    router = APIRouter(include_in_schema=False)
    opened = [{"name": dump.name, "url": dump_address(index)} for index, dump in enumerate(service.dumps)]
    first = opened[0] if opened else None
    # Read now: requests open no files.
    glossary()

    @router.get("/")
    async def explorer(request: Request) -> Response:
        error: dict[str, Any] | None = None
        status = 200
        spec: ModelSpec | WhatIf
        try:
            if model is not None:
                spec = model.own.read(query_of(request))
            else:
                spec = service.read(query_of(request))
                check_program(spec)
        except (SpecError, MissingExtraError) as problem:
            # The page opens all the same, on the default spec, and says what is wrong with the address.
            spec = ModelSpec() if model is None else model.own.read({})
            error, status = problem.body()["error"], problem.status
        data = page_data(
            spec,
            settings=service.settings,
            devices=tuple(service.compute.slots),
            keys=SPEC_KEYS if model is None else model.own.keys,
            error=error,
            dump=first,
            dumps=opened,
            model=None if model is None else model.page_data(),
            lessons=service.lessons if model is None and not opened else (),
        )
        page = render("explorer.html", version=__version__, page_data=data, error=error, standalone=False)
        return HTMLResponse(page, status, {"cache-control": "private, no-store"})

    @router.get("/standalone.html")
    async def standalone(request: Request) -> Response:
        answer = kept_answer(request, await run_in_threadpool(shell), "text/html")
        if answer.status_code == 200:
            # To be saved, not to be shown: the policy of this server lets no script run inside a page.
            answer.headers["content-disposition"] = 'attachment; filename="chainrule.html"'
        return answer

    @router.get("/guide")
    async def guide() -> Response:
        # The guide's links are relative to the folder.
        return RedirectResponse("/guide/")

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(render("docs.html", version=__version__), headers={"cache-control": REVALIDATE})

    @router.get("/static/vendor/{name:path}")
    async def vendor(request: Request, name: str) -> Response:
        path = assets.vendor().get(name)
        if path is None:
            raise NotFoundError(f"/static/vendor/{name[:80]}: file not found", limit=sorted(assets.vendor()))
        answer = FileResponse(path, headers={"cache-control": REVALIDATE}, stat_result=path.stat())
        tag = answer.headers["etag"]
        return not_modified(tag) if is_fresh(request.headers, tag) else answer

    return router
