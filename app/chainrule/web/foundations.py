"""The chapter's pages, `/foundations/NAME`, and their JSON twins, `/foundations/NAME.json`.

A page is a form, its prose and its sources, and shows the answer of its JSON twin. Inputs are never evaluated as code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from chainrule.chapter.index import DOCUMENTS, SECTIONS, sections_of
from chainrule.chapter.listings import read_listing
from chainrule.chapter.page import Page
from chainrule.chapter.pages import PAGES
from chainrule.errors import ChainruleError
from chainrule.page.templating import render
from chainrule.run import environment
from chainrule.web.answers import JSON, REVALIDATE, entity_tag, kept_answer, query_of
from chainrule.web.openapi import COMPUTE_ERRORS, add_route, parameter
from chainrule.web.service import Service


def foundations_router(service: Service) -> APIRouter:
    """`/foundations`, the index, and every page of the chapter with its twin."""
    router = APIRouter()

    async def index(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        page = render("foundations/index.html", pages=PAGES, documents=DOCUMENTS, index_sections=SECTIONS, current=None)
        return HTMLResponse(page, headers={"cache-control": REVALIDATE})

    async def index_json(request: Request) -> Response:
        return kept_answer(request, orjson.dumps(index_answer()))

    for path in ("/foundations", "/foundations/"):
        router.add_api_route(path, index, include_in_schema=False)
    add_route(
        router,
        "/foundations.json",
        index_json,
        "The chapter's pages",
        "Every page with its title and the sections of the source documents it makes runnable, and every section "
        "with its pages and source files.",
        name="foundations_index",
        tag="foundations",
        errors=(401,),
    )
    for page in PAGES.values():
        router.add_api_route(page.path, _page_handler(page), include_in_schema=False)
        add_route(
            router,
            f"{page.path}.json",
            _answer_handler(service, page),
            page.title,
            page.lead,
            name=f"foundations_{page.name}",
            tag="foundations",
            errors=(401, 422, *COMPUTE_ERRORS),
            parameters=[parameter(each) for each in page.inputs],
        )
    return router


def index_answer() -> dict[str, Any]:
    """The body of `/foundations.json`."""
    return {
        "pages": [
            {"path": page.path, "title": page.title, "seed": page.seed, "inputs": [each.name for each in page.inputs]}
            for page in PAGES.values()
        ],
        "sections": [
            {
                "document": section.document,
                "title": section.title,
                "constructs": list(section.constructs),
                "pages": [PAGES[name].path for name in section.pages],
                "sources": list(section.sources),
            }
            for section in SECTIONS
        ],
    }


def _page_handler(page: Page) -> Any:
    async def handler(request: Request) -> Response:
        values: Mapping[str, str] = {}
        error: dict[str, Any] | None = None
        status = 200
        try:
            values = query_of(request)
            page.read(values)
        except ChainruleError as problem:
            # The page opens with the given values in their controls, and shows the error.
            error, status = problem.body()["error"], problem.status
        names = list(PAGES)
        place = names.index(page.name)
        body = render(
            "foundations/base.html",
            pages=PAGES,
            current=page,
            inputs={each.name: each for each in page.inputs},
            values={each.name: values.get(each.name, each.default) for each in page.inputs},
            listings={each.name: read_listing(each, page.listings) for each in page.listings},
            sections=sections_of(page.name),
            error=error,
            page_data=page_data(page),
            before=PAGES[names[place - 1]] if place else None,
            after=PAGES[names[place + 1]] if place + 1 < len(names) else None,
        )
        return HTMLResponse(body, status, {"cache-control": "private, no-store"})

    return handler


def _answer_handler(service: Service, page: Page) -> Any:
    async def handler(request: Request) -> Response:
        given = query_of(request)
        values = page.read(given)
        canonical = [f"{each.name}={given.get(each.name, each.default)}" for each in page.inputs]
        tag = entity_tag(request.scope["path"], *canonical, repr(environment()))

        def work() -> bytes:
            return orjson.dumps(page.answer(values))

        if page.timed:
            return Response(await service.run(request, "cpu", work), 200, {"cache-control": "no-store"}, JSON)
        return await service.answer(request, tag, "cpu", work)

    return handler


def page_data(page: Page) -> dict[str, Any]:
    """The JSON in a page, with which its script starts."""
    return {
        "name": page.name,
        "answer": f"{page.path}.json",
        "inputs": [{"name": each.name, "default": each.default} for each in page.inputs],
    }


def gradcheck_router(report: Mapping[str, Any]) -> APIRouter:
    """`/gradcheck` and `/gradcheck.json`: the check that `chainrule gradcheck --open` made."""
    router = APIRouter(include_in_schema=False)
    headers = {"cache-control": "private, no-store"}

    @router.get("/gradcheck")
    async def page() -> Response:
        text = render("foundations/gradcheck_report.html", pages=PAGES, current=None, report=report)
        return HTMLResponse(text, headers=headers)

    @router.get("/gradcheck.json")
    async def answer() -> Response:
        return Response(orjson.dumps(report), 200, headers, JSON)

    return router
