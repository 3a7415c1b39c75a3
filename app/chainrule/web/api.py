"""The HTTP API. A GET of a spec is a pure function of its address: it has an entity tag, and a known one costs nothing.

Routes read their input from the raw request, through the same table as everything else, so that there is one way to be
wrong and one shape to be told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chainrule.diagnose.profile import profile, theory
from chainrule.dump.wire import dump_json, dump_layer_theory, dump_profile, load, theory_dump, trace_schema
from chainrule.errors import NotFoundError, RequestError, StoppedError
from chainrule.export.formats import FORMATS, Format
from chainrule.page.data import presets_list
from chainrule.run import environment, tensor_values, trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.model_spec import read_query
from chainrule.spec.values import read_keys
from chainrule.theory.mean_field import layer_theory
from chainrule.web.answers import JSON, REVALIDATE, entity_tag, is_fresh, not_modified
from chainrule.web.openapi import (
    COMPUTE_ERRORS,
    SPEC_ERRORS,
    described,
    parameter,
    spec_parameters,
    spec_schema,
)
from chainrule.web.parameters import DUMP_INDEX, DUMP_PART, ITS_THEORY, window_keys
from chainrule.web.service import Service
from chainrule.web.theory import THEORY_KEYS, LayerKind, read_layer_kind

Handler = Callable[[Request], Awaitable[Response]]


def api_router(service: Service) -> APIRouter:
    """`/api/v1`."""
    router = APIRouter()
    api = Api(service)
    spec = spec_parameters()
    for form in FORMATS.values():
        router.add_api_route(
            f"/api/v1/{form.file}",
            api.trace(form),
            name=f"trace_{form.name}",
            **described(
                f"Trace as {form.name}",
                form.doc,
                tag="trace",
                errors=SPEC_ERRORS,
                media_type=form.media_type,
                parameters=[*map(parameter, form.options), *spec],
            ),
        )
    router.add_api_route(
        "/api/v1/trace",
        api.post_trace,
        methods=["POST"],
        **described(
            "Trace from a JSON body",
            "The same graph dump as `trace.json`.",
            tag="trace",
            errors=(400, 408, 413, 415, *SPEC_ERRORS),
            body=spec_schema(),
        ),
    )
    router.add_api_route(
        "/api/v1/profile.json",
        api.profile,
        **described(
            "Profile",
            "Statistics per layer, with what theory expects of each; schema `chainrule.profile/1`.",
            tag="trace",
            errors=SPEC_ERRORS,
            parameters=spec,
        ),
    )
    router.add_api_route(
        "/api/v1/theory.json",
        api.theory,
        **described(
            "Theory of one kind of layer",
            "Mean-field figures: moments of the activation at q = 1, and the stable fixed point of variance q and "
            'correlation c, null where the signal finds no rest; depth scales in layers, "Infinity" without limit. '
            "Schema `chainrule.theory/1`.",
            tag="trace",
            errors=(401, 422, *COMPUTE_ERRORS),
            parameters=[*map(parameter, THEORY_KEYS)],
        ),
    )
    router.add_api_route(
        "/api/v1/tensor.json",
        api.tensor,
        **described(
            "Values of one tensor",
            "A rectangle of a tensor's values.",
            tag="trace",
            errors=(400, 404, *SPEC_ERRORS),
            parameters=[*map(parameter, window_keys("l2")), *spec],
        ),
    )
    router.add_api_route(
        "/api/v1/dump.json",
        api.dump,
        **described(
            "A dump that the server was opened with",
            "What `chainrule open` was given; 404 where it was given nothing, or not so many.",
            tag="trace",
            errors=(401, 404, 422),
            parameters=[parameter(DUMP_INDEX), parameter(DUMP_PART)],
        ),
    )
    for path, handler, summary, doc in (
        ("/api/v1/presets.json", api.presets, "Presets", "The chapter's experiments as specs."),
        ("/api/v1/devices.json", api.devices, "Devices", "The devices a spec can name on this server."),
        ("/api/v1/schema/trace.json", api.schema, "Schema", "The JSON Schema that every graph dump follows."),
    ):
        router.add_api_route(path, handler, **described(summary, doc, tag="catalogue", errors=(401,)))
    return router


class Api:
    """The handlers, and what they share."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def trace(self, form: Format) -> Handler:
        """GET of a trace in a format."""
        headers = (
            {} if form.attachment is None else {"content-disposition": f'attachment; filename="{form.attachment}"'}
        )

        async def handler(request: Request) -> Response:
            spec, own = self.service.read_request(
                request, also=[option.name for option in form.options], form=form.name
            )
            values = form.read(own)

            def work(spec: ModelSpec) -> bytes:
                return form.render(spec, values)

            answer = await self._computed(request, spec, work, form.media_type, own=repr(values) if values else "")
            answer.headers.update(headers)
            return answer

        return handler

    async def post_trace(self, request: Request) -> Response:
        """POST /api/v1/trace."""
        if request.scope["query_string"]:
            raise RequestError("a posted spec stands in the body, not in the address")
        settings = self.service.settings
        spec = self.service.read(await read_json_object(request, settings.max_body_bytes, settings.receive_seconds))
        body = await self.service.run(request, spec.device, lambda: FORMATS["json"].render(spec, {}))
        return Response(body, 200, {"cache-control": "no-store"}, JSON)

    async def profile(self, request: Request) -> Response:
        """GET /api/v1/profile.json."""
        spec, _ = self.service.read_request(request)
        return await self._computed(request, spec, _profile_bytes)

    async def theory(self, request: Request) -> Response:
        """GET /api/v1/theory.json."""
        kind = read_layer_kind(read_query(request.scope["query_string"].decode("latin-1")))
        tag = entity_tag(request.scope["path"], kind.canonical, repr(environment()))
        if is_fresh(request.headers, tag):
            return not_modified(tag)
        body = await self.service.run(request, "cpu", partial(_theory_bytes, kind))
        return Response(body, 200, {"etag": tag, "cache-control": REVALIDATE}, JSON)

    async def tensor(self, request: Request) -> Response:
        """GET /api/v1/tensor.json."""
        spec, own = self.service.read_request(request, also=("name", "rows", "cols"))
        name, rows, cols = read_keys(window_keys("l2"), own, "tensor.json").values()
        return await self._computed(
            request, spec, partial(_tensor_bytes, name, rows, cols), own=f"{name} {rows} {cols}"
        )

    async def dump(self, request: Request) -> Response:
        """GET /api/v1/dump.json."""
        dumps = self.service.dumps
        if not dumps:
            raise NotFoundError("no dump is open here; `chainrule open dump.json` opens one")
        index, what = (key.read(request.query_params.get(key.name, key.default)) for key in (DUMP_INDEX, DUMP_PART))
        if index >= len(dumps):
            raise NotFoundError(f"index: {index}: there is no such dump", field="index", limit=len(dumps) - 1)
        content, digest = await run_in_threadpool(dumps[index].load)
        tag = entity_tag(f"{digest} {what}" if what == ITS_THEORY else digest)
        if is_fresh(request.headers, tag):
            return not_modified(tag)
        if what == ITS_THEORY:
            content = await self.service.run(request, "cpu", partial(_dump_theory_bytes, content))
        return Response(content, 200, {"etag": tag, "cache-control": REVALIDATE}, JSON)

    async def presets(self, request: Request) -> Response:
        """GET /api/v1/presets.json."""
        return _constant(request, self._presets)

    async def devices(self, request: Request) -> Response:
        """GET /api/v1/devices.json."""
        return _constant(request, self._devices)

    async def schema(self, request: Request) -> Response:
        """GET /api/v1/schema/trace.json."""
        return _constant(request, self._schema)

    @cached_property
    def _presets(self) -> bytes:
        return orjson.dumps({"presets": presets_list()})

    @cached_property
    def _devices(self) -> bytes:
        devices = [{"name": each.name, "description": each.description} for each in self.service.compute.devices]
        return orjson.dumps({"devices": devices})

    @cached_property
    def _schema(self) -> bytes:
        return orjson.dumps(trace_schema())

    async def _computed(
        self,
        request: Request,
        spec: ModelSpec,
        work: Callable[[ModelSpec], bytes],
        media_type: str = JSON,
        own: str = "",
    ) -> Response:
        """The answer of `work` for a spec and the route's `own` values; 304 if the client has it."""
        tag = entity_tag(request.scope["path"], spec.query(), own, repr(environment(spec.device)))
        if is_fresh(request.headers, tag):
            return not_modified(tag)
        body = await self.service.run(request, spec.device, partial(work, spec))
        return Response(body, 200, {"etag": tag, "cache-control": REVALIDATE}, media_type)


def dump_address(index: int) -> str:
    """The address of the dump with this index."""
    return "/api/v1/dump.json" if index == 0 else f"/api/v1/dump.json?index={index}"


async def read_json_object(request: Request, max_bytes: int, seconds: float) -> dict[str, Any]:
    """A request's body, read no further than it may be long, and no longer than it may take to arrive.

    Raises:
        RequestError: it does not say it is JSON (415), is too large (413), does not arrive (408), is not JSON (400) or
            no object (422).
        StoppedError: the client has gone.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise RequestError(
            f"Content-Type: {media_type[:80]!r} is not {JSON}", status=415, code="unsupported_media_type", limit=JSON
        )
    body = bytearray()
    too_large = RequestError(
        f"the body is larger than {max_bytes} bytes (CHAINRULE_MAX_BODY_BYTES)",
        status=413,
        code="body_too_large",
        limit=max_bytes,
    )
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
        raise too_large
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise RequestError(
            f"the body has not arrived within {seconds:g} seconds (CHAINRULE_RECEIVE_SECONDS)",
            status=408,
            code="request_timeout",
            limit=seconds,
        ) from None
    except ClientDisconnect:
        raise StoppedError("disconnected") from None
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}", code="malformed_json") from None
    if not isinstance(value, dict):
        raise RequestError("the body is JSON but not an object of the spec's keys", status=422, code="invalid_body")
    return value


def _constant(request: Request, body: bytes) -> Response:
    """An answer that stays the same while the server runs."""
    tag = entity_tag(body.decode())
    if is_fresh(request.headers, tag):
        return not_modified(tag)
    return Response(body, 200, {"etag": tag, "cache-control": REVALIDATE}, JSON)


# The functions below run in a device's thread.


def _profile_bytes(spec: ModelSpec) -> bytes:
    return dump_profile(profile(trace_spec(spec)))


def _dump_theory_bytes(content: bytes) -> bytes:
    return dump_json(theory_dump(theory(load(content))))


def _theory_bytes(kind: LayerKind) -> bytes:
    return dump_layer_theory(layer_theory(kind.activation, kind.weight_variance, kind.bias_variance))


def _tensor_bytes(name: str, rows: tuple[int, int], cols: tuple[int, int], spec: ModelSpec) -> bytes:
    return orjson.dumps(tensor_values(spec, name, rows, cols))
