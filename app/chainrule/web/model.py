"""`/api/v1/model`: the explorer's API and live socket for a user's own model, if the server was given one.

    what-if ──▶ Tracer ──▶ Trace ──▶ graph dump, DOT, SVG, HTML, Model Explorer, profile
              (one, in the device's thread)  └──▶ frames of the live socket, and of each reload a word

A what-if takes the place of a spec: it is read from query strings and messages, and an answer is a function of it and
of the model's version.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import torch
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from chainrule.diagnose.profile import profile
from chainrule.dump.wire import dump_profile
from chainrule.errors import ChainruleError, RequestError, StoppedError
from chainrule.export.formats import FORMATS, TRACE_FORMATS, Format, Values
from chainrule.trace import Trace
from chainrule.user_model.parameters import tied_names
from chainrule.user_model.what_if import WhatIf
from chainrule.web.answers import JSON, query_of
from chainrule.web.api import Range, TraceApi, read_json_object
from chainrule.web.live import LiveSession, Source
from chainrule.web.openapi import add_route, parameter
from chainrule.web.service import Service

if TYPE_CHECKING:
    from chainrule.user_model.model import UserModel
    from chainrule.user_model.tracer import Traced, Tracer

logger = logging.getLogger(__name__)

BASE = "/api/v1/model"
"""Prefix of the routes."""

ERRORS = (401, 422, 501, 503, 507)
"""Error statuses of every route that traces the model."""


def model_router(service: Service, model: Model) -> APIRouter:
    """`/api/v1/model`."""
    router = APIRouter()
    what_if = [*map(parameter, model.own.keys)]
    traces = TraceApi(
        service,
        base=BASE,
        prefix="model_",
        of=" of the user's model",
        example="head.weight",
        read=lambda values, _: model.own.read(values),
        # Another process may serve another model at this address.
        state=lambda _: f"{model.process} {model.own.version}",
        write=model.write,
        write_profile=lambda what_if: dump_profile(profile(model.trace_now(what_if))),
        write_window=model.write_window,
        # Users decide how long their own model may take.
        seconds=math.inf,
    )
    forms = [each for each in {**FORMATS, **TRACE_FORMATS}.values() if each.write is not None]
    traces.add_routes(router, forms, what_if, tag="model", errors=ERRORS)

    async def gradcheck(request: Request) -> Response:
        spec = model.own.read(query_of(request))
        body = await read_json_object(request, service)
        op = body.get("op")
        if body.keys() != {"op"} or not isinstance(op, str):
            raise RequestError('expected {"op": "n12"}, the id of an op', status=422, field="op")
        report = await service.run(request, spec.device, partial(_check_bytes, model, spec, op), math.inf)
        return Response(report, 200, {"cache-control": "no-store"}, JSON)

    add_route(
        router,
        f"{BASE}/gradcheck",
        gradcheck,
        "Gradient check of a custom Function",
        "Compares the gradients of the Function at a node with finite differences, on a float64 copy of its inputs.",
        methods=["POST"],
        tag="model",
        errors=(400, 404, 408, 413, 415, *ERRORS),
        parameters=what_if,
        body={
            "type": "object",
            "required": ["op"],
            "additionalProperties": False,
            "properties": {"op": {"type": "string", "description": "The op's id in the graph dump, such as n12."}},
        },
    )

    @router.websocket(f"{BASE}/live")
    async def live(websocket: WebSocket) -> None:
        await websocket.accept()
        await LiveSession(websocket, service, model.source()).serve()

    return router


class SocketTracer:
    """One socket's view of the model's tracer: this socket's last picture, and its recording."""

    kept_bytes = 0

    def __init__(self, trace: Callable[[WhatIf], tuple[Traced, object]]) -> None:
        self._trace = trace
        self._last: Traced | None = None
        self.recording: object = None

    def trace(self, what_if: WhatIf, /) -> Trace:
        """The trace of a what-if; `judged` may still have to find its faults. Raises: see `Model.traced_now`."""
        self._last = None
        self._last, self.recording = self._trace(what_if)
        return self._last.trace

    def judged(self, trace: Trace, /) -> Trace:
        """The last trace, with its faults; only once, since it may hold an old version of the model until then."""
        last, self._last = self._last, None
        return trace if last is None or last.trace is not trace else last.judged

    def aside(self, _seq: int, /) -> None:
        """Nothing: a what-if has no training."""

    def forget(self) -> None:
        """Drop the last picture; the model keeps the rest of the memory."""
        self._last = None


class Model:
    """The user's model on this server, and its one traced copy for all requests and sockets.

    `kept_bytes` is 0, so that the limit never frees the copy; it is freed when memory runs out.
    """

    kept_bytes = 0

    def __init__(self, service: Service, own: UserModel) -> None:
        self.own = own
        self.service = service
        self.forget()
        self.process = secrets.token_hex(8)
        # Torch has one per thread; the user's choice applies in the device's thread too.
        self._default_device = torch.get_default_device()

    def forget(self) -> None:
        """Free the copy; in the device's thread."""
        self._version = -1
        self.tracer: Tracer | None = None

    @contextmanager
    def tracing(self) -> Iterator[Tracer]:
        """Give the caller the tracer of the model's present version for the block; in the device's thread."""
        default = self._default_device
        with (
            self.service.compute.kept.using(self),
            contextlib.nullcontext() if default == torch.get_default_device() else default,
        ):
            version = self.own.version
            if self.tracer is None or version != self._version:
                # Free the old copy first: two may not fit.
                self.forget()
                self.tracer, self._version = self.own.tracer(), version
            yield self.tracer

    def traced_now(self, what_if: WhatIf) -> tuple[Traced, object]:
        """The trace of a what-if, and its recording (see `Retracer.recording`); in the device's thread.

        Raises:
            ExploreError: the model cannot be run.
            SpecError: it has no such group.
        """
        with self.tracing() as tracer:
            return tracer.traced(what_if), tracer.recording

    def trace_now(self, what_if: WhatIf) -> Trace:
        """The trace of a what-if, with its faults; in the device's thread. Raises: see `traced_now`."""
        return self.traced_now(what_if)[0].judged

    def write(self, form: Format, values: Values, what_if: WhatIf) -> bytes:
        """The trace of a what-if in a format that has `write`; in the device's thread."""
        assert form.write is not None, "other methods have no route"
        return form.write(self.trace_now(what_if), values)

    def write_window(self, what_if: WhatIf, name: str, rows: Range, cols: Range) -> bytes:
        """Some of a tensor's values as JSON; in the device's thread."""
        with self.tracing() as tracer:
            return orjson.dumps(tracer.values(what_if, name, rows, cols))

    async def trace(self, what_if: WhatIf) -> Trace:
        """The trace of a what-if, in its turn.

        Raises:
            ChainruleError: see `trace_now` and `ComputeSlot.run`.
        """
        return await self.service.compute.slots[what_if.device].run(partial(self.trace_now, what_if))

    async def warm_up(self, tell: Callable[[Trace | ChainruleError | None], None]) -> None:
        """Compute the first picture before a page asks for it, and tell its trace; see `create_app`."""
        outcome: Trace | ChainruleError | None = None
        try:
            outcome = await self.trace(self.own.read({}))
        except StoppedError:
            logger.debug("the server ended before its first picture")
            return
        except ChainruleError as error:
            logger.info("no first picture: %s", error.message)
            outcome = error
        except Exception:
            logger.exception("the first picture failed")
        tell(outcome)

    def source(self) -> Source[WhatIf]:
        """The subject of its live sockets."""
        return Source(
            read=self.own.read,
            tracer=lambda: SocketTracer(self.traced_now),
            note=lambda _: None,
            deadline_seconds=math.inf,
            listen=self.own.listen,
            news=self.news,
            has_news=lambda: self.own.version > 1 or self.own.problem is not None,
        )

    def news(self) -> str:
        """The message after a reload: `{"type": "model", "version", "groups", "tied", "error"}`."""
        return orjson.dumps({"type": "model", **self.state()}).decode()

    def state(self) -> dict[str, Any]:
        """The model's version, its groups and tied parameters, and the error of a newer version."""
        problem = self.own.problem
        return {
            "version": self.own.version,
            "groups": list(self.own.groups),
            "tied": tied_names(self.own.subject.model),
            "error": None if problem is None else problem.body()["error"],
        }

    def page_data(self) -> dict[str, Any]:
        """The model's part of the page's data."""
        return {"name": self.own.name, "base": BASE, "seed": self.own.seed, **self.state()}


def _check_bytes(model: Model, what_if: WhatIf, op: str) -> bytes:
    from chainrule.gradcheck.node import check_node

    with model.tracing():
        return orjson.dumps(check_node(model.own, what_if, op))
