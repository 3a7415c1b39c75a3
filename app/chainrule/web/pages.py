"""The pages a person looks at. What they compute comes over the API; a page itself is data for the first picture."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from chainrule import __version__
from chainrule.errors import NotFoundError, SpecError
from chainrule.spec import ModelSpec
from chainrule.web import assets
from chainrule.web.answers import REVALIDATE, is_fresh, not_modified
from chainrule.web.service import Service, keys_list, limits_dict, presets_list, rules_dict
from chainrule.web.templating import render


def pages_router(service: Service) -> APIRouter:
    """`/`, `/docs` and the third-party files they load."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def explorer(request: Request) -> Response:
        error: dict[str, Any] | None = None
        status = 200
        try:
            spec, _ = service.read_request(request)
        except SpecError as problem:
            # The page opens all the same, on the default spec, and says what is wrong with the address.
            spec, error, status = ModelSpec(), problem.body()["error"], problem.status
        page = render("explorer.html", version=__version__, page_data=page_data(service, spec, error), error=error)
        return HTMLResponse(page, status, {"cache-control": "private, no-store"})

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(render("docs.html", version=__version__), headers={"cache-control": REVALIDATE})

    @router.get("/static/vendor/{name:path}")
    async def vendor(request: Request, name: str) -> Response:
        path = assets.vendor().get(name)
        if path is None:
            raise NotFoundError(f"/static/vendor/{name[:80]}: there is no such file", limit=sorted(assets.vendor()))
        answer = FileResponse(path, headers={"cache-control": REVALIDATE}, stat_result=path.stat())
        tag = answer.headers["etag"]
        return not_modified(tag) if is_fresh(request.headers, tag) else answer

    return router


def page_data(service: Service, spec: ModelSpec, error: dict[str, Any] | None) -> dict[str, Any]:
    """What the explorer knows before it has asked for anything."""
    return {
        "version": __version__,
        "spec": spec.as_dict(),
        "query": spec.query(),
        "defaults": ModelSpec().as_dict(),
        "keys": keys_list(),
        "presets": presets_list(),
        "limits": limits_dict(service.settings),
        "devices": list(service.compute.device_names),
        "rules": rules_dict(),
        "needs_token": service.settings.token is not None,
        "error": error,
    }
