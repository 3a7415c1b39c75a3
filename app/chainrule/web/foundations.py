"""The chapter's pages, `/foundations/NAME`, and their JSON twins, `/foundations/NAME.json`.

A page is a form, its prose and its sources; what it computes it asks of its twin, so that both say the same. Nothing
that is typed is evaluated: every input is read by a rule of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from torch import Tensor

from chainrule.chapter.broadcasting import Operand
from chainrule.chapter.index import DOCUMENTS, SECTIONS, sections_of
from chainrule.chapter.inputs import MAX_TEXT, Input
from chainrule.chapter.listings import read_listing
from chainrule.chapter.page import Page
from chainrule.chapter.pages import PAGES
from chainrule.errors import ChainruleError
from chainrule.page.templating import render
from chainrule.run import environment
from chainrule.spec.model_spec import read_query
from chainrule.web.answers import JSON, REVALIDATE, entity_tag, is_fresh, not_modified
from chainrule.web.openapi import (
    COMPUTE_ERRORS,
    choice_parameter,
    described,
    integer_parameter,
    number_parameter,
    text_parameter,
)
from chainrule.web.service import Service

NO_STORE = {"cache-control": "no-store"}


def foundations_router(service: Service) -> APIRouter:
    """`/foundations`, the index, and every page of the chapter with its twin."""
    router = APIRouter()

    async def index(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        page = render("foundations/index.html", pages=PAGES, documents=DOCUMENTS, index_sections=SECTIONS, current=None)
        return HTMLResponse(page, headers={"cache-control": REVALIDATE})

    async def index_json(request: Request) -> Response:
        body = orjson.dumps(index_answer())
        tag = entity_tag(body.decode())
        if is_fresh(request.headers, tag):
            return not_modified(tag)
        return Response(body, 200, {"etag": tag, "cache-control": REVALIDATE}, JSON)

    for path in ("/foundations", "/foundations/"):
        router.add_api_route(path, index, include_in_schema=False)
    router.add_api_route(
        "/foundations.json",
        index_json,
        name="foundations_index",
        **described(
            "The chapter's pages",
            "Every page with its title and the sections of the source documents it makes runnable, and every section "
            "with its pages, source files and tests.",
            tag="foundations",
            errors=(401,),
        ),
    )
    for page in PAGES.values():
        router.add_api_route(page.path, _page_handler(page), include_in_schema=False)
        router.add_api_route(
            f"{page.path}.json",
            _answer_handler(service, page),
            name=f"foundations_{page.name}",
            **described(
                page.title,
                page.lead,
                tag="foundations",
                errors=(401, 422, *COMPUTE_ERRORS),
                parameters=[_parameter(each) for each in page.inputs],
            ),
        )
    return router


def index_answer() -> dict[str, Any]:
    """What `/foundations.json` says."""
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
                "tests": list(section.tests),
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
            values = read_query(request.scope["query_string"].decode("latin-1"))
            page.read(values)
        except ChainruleError as problem:
            # The page opens with what was typed still in its place, and says what is wrong with it.
            error, status = problem.body()["error"], problem.status
        names = list(PAGES)
        place = names.index(page.name)
        body = render(
            f"foundations/{page.name}.html",
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
        given = read_query(request.scope["query_string"].decode("latin-1"))
        values = page.read(given)
        canonical = [f"{each.name}={given.get(each.name, each.default)}" for each in page.inputs]
        tag = entity_tag(request.scope["path"], *canonical, repr(environment()))
        if not page.timed and is_fresh(request.headers, tag):
            return not_modified(tag)
        body = await service.run(request, "cpu", lambda: orjson.dumps(page.answer(values)))
        headers = NO_STORE if page.timed else {"etag": tag, "cache-control": REVALIDATE}
        return Response(body, 200, headers, JSON)

    return handler


def page_data(page: Page) -> dict[str, Any]:
    """What a page's script knows before it has asked for anything."""
    return {
        "name": page.name,
        "answer": f"{page.path}.json",
        "inputs": [{"name": each.name, "default": each.default, "kind": each.kind} for each in page.inputs],
    }


_NUMBER = (
    r"\s*([+\-−]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+\-−]?[0-9]{1,4})?"
    r"|[nN][aA][nN]|[+\-−]?[iI][nN][fF])\s*"
)
_SHAPE = r"\s*\(?\s*([0-9]{1,10}\s*(,\s*[0-9]{1,10}\s*){0,7})?,?\s*\)?\s*"
_TENSORS = {
    "1": _NUMBER,
    "1,2": rf"{_NUMBER}((,{_NUMBER})+,?|,)\s*",
    "1;2": rf"{_NUMBER}(,{_NUMBER})*((;{_NUMBER}(,{_NUMBER})*)+;?|;)\s*",
    "[1]": r"\s*\[[\s0-9.,+\-−eEaAnNiIfF\[\]]*\]\s*",
    "[[1]]": r"\s*\[\s*\[[\s0-9.,+\-−eEaAnNiIfF\[\]]*\]\s*",
}
"""How a tensor can be typed: one of each form, and what all of it look like."""


def _parameter(each: Input) -> dict[str, Any]:
    """An input as a query parameter."""
    description = f"{each.doc} {each.allowed[0].upper()}{each.allowed[1:]}."
    if each.kind == "choice":
        return choice_parameter(each.name, description, each.choices, each.default)
    if each.kind == "flag":
        return choice_parameter(each.name, description, ("true", "false"), each.default)
    value = each.read(each.default)
    if each.minimum is not None and each.maximum is not None:
        if isinstance(value, int):
            return integer_parameter(each.name, description, minimum=each.minimum, maximum=each.maximum, default=value)
        return number_parameter(
            each.name, description, minimum=each.minimum, maximum=each.maximum, default=float(each.default)
        )
    return text_parameter(
        each.name, description, pattern=_pattern(each, value), max_length=MAX_TEXT, default=each.default
    )


def _pattern(each: Input, value: Any) -> str | None:
    """What all texts that an input reads look like, by what its default is read as; None for free text.

    More is refused than a pattern can say: rows of different lengths, shapes that do not fit each other.
    """
    match value:
        case Tensor():
            return _whole(*(form for example, form in _TENSORS.items() if _reads(each, example)))
        case Operand():
            return _whole(*_TENSORS.values(), _SHAPE)
        case float():
            return _whole(_NUMBER)
        case list():
            return _whole(rf"\s*\[?{_NUMBER}(,{_NUMBER})*,?\]?\s*")
        case (tuple(), *_):
            return _whole(rf"{_SHAPE}(;{_SHAPE})*")
        case (str(), *_):
            name = rf"\s*({'|'.join(map(re.escape, each.default.split(',')))})\s*"
            return _whole(rf"{name}(,{name})*")
    return None


def _reads(each: Input, example: str) -> bool:
    try:
        each.read(example)
    except ValueError:
        return False
    return True


def _whole(*forms: str) -> str:
    return f"^({'|'.join(forms)})$"
