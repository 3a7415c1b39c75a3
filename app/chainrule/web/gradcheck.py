"""The page of the gradient check that `chainrule gradcheck --open` made: there is one, and it takes no input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from chainrule.chapter.pages import PAGES
from chainrule.page.templating import render
from chainrule.web.answers import JSON

NO_STORE = {"cache-control": "private, no-store"}


def gradcheck_router(report: Mapping[str, Any]) -> APIRouter:
    """`/gradcheck` and `/gradcheck.json`."""
    router = APIRouter(include_in_schema=False)
    body = orjson.dumps(report)

    @router.get("/gradcheck")
    async def page(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        return HTMLResponse(
            render("foundations/gradcheck_report.html", pages=PAGES, current=None, report=report), headers=NO_STORE
        )

    @router.get("/gradcheck.json")
    async def answer(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        return Response(body, 200, NO_STORE, JSON)

    return router
