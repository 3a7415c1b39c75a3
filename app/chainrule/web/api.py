"""The HTTP API. A GET of a spec is a pure function of its address: it has an entity tag, and a known one costs nothing.

Routes read their input from the raw request, through the same table as everything else, so that there is one way to be
wrong and one shape to be told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chainrule.diagnose.profile import profile, theory
from chainrule.dump.opened import DumpFile, OpenDump
from chainrule.dump.wire import dump_json, dump_layer_theory, dump_profile, load, theory_dump, trace_schema
from chainrule.errors import NotFoundError, RequestError, SpecError, StoppedError
from chainrule.export.formats import FORMATS, Format, Values
from chainrule.export.options import invalid_parameter
from chainrule.page.data import presets_list
from chainrule.run import environment, tensor_values, trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.values import read_keys
from chainrule.theory.mean_field import layer_theory, moments
from chainrule.training.wire import dump_data, dump_run
from chainrule.web.answers import JSON, entity_tag, is_fresh, kept_answer, not_modified, query_of, sent
from chainrule.web.live_messages import SpecT
from chainrule.web.openapi import COMPUTE_ERRORS, SPEC_ERRORS, add_route, parameter, spec_parameters, spec_schema
from chainrule.web.parameters import DATA_KEYS, DUMP_INDEX, DUMP_PART, ITS_THEORY, THEORY_KEYS, window_keys
from chainrule.web.service import Service

THEORY_SECONDS = 60.0
"""Maximum time to read a dump and to compute its theory: a dump of 100,000 ops takes a quarter of it."""

Handler = Callable[[Request], Awaitable[Response]]
Range = tuple[int, int]


def api_router(service: Service) -> APIRouter:
    """`/api/v1`."""
    router = APIRouter()
    api = Api(service)
    traces = TraceApi(
        service,
        base="/api/v1",
        prefix="",
        of="",
        example="l2",
        read=service.read,
        state=lambda spec: repr(environment(spec.device)),
        write=lambda form, values, spec: form.render(spec, values),
        write_profile=lambda spec: _profile_bytes(spec),
        write_window=lambda *window: orjson.dumps(tensor_values(*window)),
    )
    traces.add_routes(router, FORMATS.values(), spec_parameters(), tag="trace", errors=SPEC_ERRORS)
    add_route(
        router,
        "/api/v1/trace",
        api.post_trace,
        "Trace from a JSON body",
        "The same graph dump as `trace.json`.",
        methods=["POST"],
        tag="trace",
        errors=(400, 408, 413, 415, *SPEC_ERRORS),
        body=spec_schema(),
    )
    add_route(
        router,
        "/api/v1/run.json",
        api.run,
        "Training up to a step",
        "Every update from step 0 to the spec's step (loss, norm of the gradients, norms of each layer's weight), the "
        "scores on the batch and on held-out samples, and statistics per layer of about 200 steps; schema "
        "`chainrule.training/1`.",
        tag="trace",
        errors=SPEC_ERRORS,
        parameters=spec_parameters(),
    )
    add_route(
        router,
        "/api/v1/data.json",
        api.data,
        "A data set",
        "The samples of a spec's `data` and `seed`: features with mean 0 and standard deviation 1, and classes.",
        tag="trace",
        errors=(401, 422, 501, *COMPUTE_ERRORS),
        parameters=[*map(parameter, DATA_KEYS)],
    )
    add_route(
        router,
        "/api/v1/theory.json",
        api.theory,
        "Theory of one kind of layer",
        "Mean-field theory: moments of the activation at q = 1, and the stable fixed point of variance q and "
        'correlation c, null without a fixed point; depth scales in layers, "Infinity" if there is no limit. '
        "Schema `chainrule.theory/1`.",
        tag="trace",
        errors=(401, 422, *COMPUTE_ERRORS),
        parameters=[*map(parameter, THEORY_KEYS)],
    )
    add_route(
        router,
        "/api/v1/dump.json",
        api.dump,
        "A dump from the command line",
        "A dump from the arguments of `chainrule open`, compressed if the file is; 404 if it does not exist.",
        tag="trace",
        errors=(401, 404, 422),
        parameters=[parameter(DUMP_INDEX), parameter(DUMP_PART)],
    )
    devices = [each._asdict() for each in service.compute.devices]
    for path, name, body, doc in (
        ("presets", "presets", lambda: {"presets": presets_list()}, "The chapter's experiments as specs."),
        ("devices", "devices", lambda: {"devices": devices}, "The devices of this server."),
        (
            "lessons",
            "lessons",
            lambda: {"lessons": service.lessons},
            "The lessons: steps with a view, a question, answers, a condition and an explanation.",
        ),
        ("schema/trace", "schema", trace_schema, "The JSON Schema that every graph dump follows."),
    ):
        handler = _kept(body)
        add_route(router, f"/api/v1/{path}.json", handler, name.title(), doc, name=name, tag="catalogue", errors=(401,))
    return router


@dataclass(frozen=True)
class TraceApi(Generic[SpecT]):
    """The routes that trace: specs here, what-ifs of the user's model in `model.py`.

    Attributes:
        service: the server's.
        base: prefix of the routes.
        prefix: of the routes' names.
        of: the subject, for summaries.
        example: the name of a tensor.
        read: makes a spec from a query for the format of this name; raises SpecError.
        state: names everything but the address that determines an answer.
        write, write_profile, write_window: the answer; called in the device's thread.
        seconds: how long a request may wait and compute; None: CHAINRULE_DEADLINE_SECONDS.
    """

    service: Service
    base: str
    prefix: str
    of: str
    example: str
    read: Callable[[Mapping[str, str], str], SpecT]
    state: Callable[[SpecT], str]
    write: Callable[[Format, Values, SpecT], bytes]
    write_profile: Callable[[SpecT], bytes]
    write_window: Callable[[SpecT, str, Range, Range], bytes]
    seconds: float | None = None

    def add_routes(
        self,
        router: APIRouter,
        forms: Iterable[Format],
        keys: list[dict[str, Any]],
        *,
        tag: str,
        errors: tuple[int, ...],
    ) -> None:
        """Add a route for each format, and those of the profile and of a tensor's values; `keys` are a spec's."""
        for form in forms:
            add_route(
                router,
                f"{self.base}/{form.file}",
                self.trace(form),
                f"Trace{self.of} as {form.name}",
                form.doc,
                name=f"{self.prefix}trace_{form.name}",
                tag=tag,
                errors=errors,
                media_type=form.media_type,
                parameters=[*map(parameter, form.options), *keys],
            )
        add_route(
            router,
            f"{self.base}/profile.json",
            self.profile,
            f"Profile{self.of}",
            "Statistics per layer with the values that theory predicts; schema `chainrule.profile/1`.",
            tag=tag,
            errors=errors,
            parameters=keys,
        )
        add_route(
            router,
            f"{self.base}/tensor.json",
            self.tensor,
            f"Values of one tensor{self.of}",
            "A rectangle of a tensor's values.",
            tag=tag,
            errors=(400, 404, *errors),
            parameters=[*map(parameter, window_keys(self.example)), *keys],
        )

    def trace(self, form: Format) -> Handler:
        """GET of a trace in a format."""
        headers = (
            {} if form.attachment is None else {"content-disposition": f'attachment; filename="{form.attachment}"'}
        )

        async def handler(request: Request) -> Response:
            spec, own = self._read(request, {option.name for option in form.options}, form.name)
            values = form.read(own)
            answer = await self._computed(
                request, spec, partial(self.write, form, values), repr(values), form.media_type
            )
            answer.headers.update(headers)
            return answer

        return handler

    async def profile(self, request: Request) -> Response:
        """GET of profile.json."""
        spec, _ = self._read(request)
        return await self._computed(request, spec, self.write_profile)

    async def tensor(self, request: Request) -> Response:
        """GET of tensor.json."""
        spec, own = self._read(request, {"name", "rows", "cols"})
        window = read_keys(window_keys(self.example), own, "tensor.json")
        return await self._computed(request, spec, lambda spec: self.write_window(spec, *window.values()), repr(window))

    def _read(self, request: Request, also: Iterable[str] = (), form: str = "json") -> tuple[SpecT, dict[str, str]]:
        """The spec in a query string, and the values of the route's own keys `also`."""
        values = query_of(request)
        own = {name: values.pop(name) for name in also if name in values}
        return self.read(values, form), own

    async def _computed(
        self, request: Request, spec: SpecT, work: Callable[[SpecT], bytes], own: str = "", media_type: str = JSON
    ) -> Response:
        """The answer of `work` for a spec and the route's `own` values; 304 if the client has it."""
        tag = entity_tag(request.scope["path"], spec.query(), own, self.state(spec))
        return await self.service.answer(request, tag, spec.device, partial(work, spec), media_type, self.seconds)


class Api:
    """The other handlers."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def post_trace(self, request: Request) -> Response:
        """POST /api/v1/trace."""
        if request.scope["query_string"]:
            raise RequestError("put the spec in the body, not in the query string")
        spec = self.service.read(await read_json_object(request, self.service))
        body = await self.service.run(request, spec.device, lambda: FORMATS["json"].render(spec, {}))
        return Response(body, 200, {"cache-control": "no-store"}, JSON)

    async def theory(self, request: Request) -> Response:
        """GET /api/v1/theory.json."""
        kind = read_keys(THEORY_KEYS, query_of(request), "theory.json", invalid_parameter)
        if kind["weight_variance"] is None:
            kind["weight_variance"] = 1 / moments(kind["activation"]).second_moment
        tag = entity_tag(request.scope["path"], repr(kind), repr(environment()))
        return await self.service.answer(request, tag, "cpu", lambda: dump_layer_theory(layer_theory(*kind.values())))

    async def run(self, request: Request) -> Response:
        """GET /api/v1/run.json."""
        spec = self.service.read(query_of(request))
        if not spec.is_net:
            raise SpecError(
                f"program: {spec.program!r} cannot be trained; only mlp can", field="program", limit=["mlp"]
            )
        tag = entity_tag(request.scope["path"], spec.query(), repr(environment(spec.device)))
        return await self.service.answer(request, tag, spec.device, partial(dump_run, spec))

    async def data(self, request: Request) -> Response:
        """GET /api/v1/data.json."""
        values = read_keys(DATA_KEYS, query_of(request), "data.json", invalid_parameter)
        tag = entity_tag(request.scope["path"], repr(values))
        return await self.service.answer(request, tag, "cpu", lambda: dump_data(values["data"], values["seed"]))

    async def dump(self, request: Request) -> Response:
        """GET /api/v1/dump.json."""
        dumps = self.service.dumps
        if not dumps:
            raise NotFoundError("no dump is open; open one with `chainrule open dump.json`")
        index, what = (key.read(request.query_params.get(key.name, key.default)) for key in (DUMP_INDEX, DUMP_PART))
        if index >= len(dumps):
            raise NotFoundError(
                f"index: {index} is too large; the last open dump has index {len(dumps) - 1}",
                field="index",
                limit=len(dumps) - 1,
            )
        dump = dumps[index]
        stored = await run_in_threadpool(dump.open)
        tag = entity_tag(stored.tag, what)
        if what == ITS_THEORY:
            stored.file.close()
            told = partial(_theory_of, dump)
            return await self.service.answer(request, tag, "cpu", told, seconds=THEORY_SECONDS)
        if is_fresh(request.headers, tag):
            stored.file.close()
            return not_modified(tag)
        return sent(stored, tag)


def _kept(body: Callable[[], dict[str, Any]]) -> Handler:
    """GET of an answer that stays the same while the server runs; it is made at the first request."""
    made = cache(lambda: orjson.dumps(body()))

    async def handler(request: Request) -> Response:
        return kept_answer(request, made())

    return handler


def _theory_of(dump: OpenDump | DumpFile) -> bytes:
    return dump_json(theory_dump(theory(load(dump.load()))))


def _profile_bytes(spec: ModelSpec) -> bytes:
    return dump_profile(profile(trace_spec(spec)))


def dump_address(index: int) -> str:
    """The address of the dump with this index."""
    return "/api/v1/dump.json" if index == 0 else f"/api/v1/dump.json?index={index}"


async def read_json_object(request: Request, service: Service) -> dict[str, Any]:
    """A request's body, read no further than it may be long, and no longer than it may take to arrive.

    Raises:
        RequestError: it does not say it is JSON (415), is too large (413), does not arrive (408), is not JSON (400) or
            no object (422).
        StoppedError: the client has gone.
    """
    max_bytes, seconds = service.settings.max_body_bytes, service.settings.receive_seconds
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
        raise RequestError(
            "the body is JSON, but not an object with the keys of a spec", status=422, code="invalid_body"
        )
    return value
