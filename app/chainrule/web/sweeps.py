"""`/map` and `/api/v1/sweeps`: maps over specs. Worker processes of low priority compute them; sliders come first.

A sweep leaves nothing on the server: its answer is a stream of lines, and a client that lost it asks for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from chainrule import __version__
from chainrule.dump.json_values import json_value
from chainrule.errors import BusyError, ChainruleError, LimitError, RequestError, StoppedError, SweepError
from chainrule.history.export import write_parquet
from chainrule.page.templating import render
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.limits import check_limits
from chainrule.sweeps.axes import AXIS_KEYS
from chainrule.sweeps.conduct import Outcome, conduct
from chainrule.sweeps.curves import curves_of
from chainrule.sweeps.measures import KINDS
from chainrule.sweeps.pool import OwnPool, WorkerPool
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.run import SweepResult, writer_of
from chainrule.sweeps.sweep import FLOPS_PER_SECOND, Sweep, duration, read_sweep
from chainrule.sweeps.work import task_of
from chainrule.web.answers import query_of
from chainrule.web.api import read_json_object
from chainrule.web.openapi import add_route, spec_schema
from chainrule.web.service import Service

NDJSON = "application/x-ndjson"

PARQUET = "application/vnd.apache.parquet"

SWEEPS = 4
"""Maximum number of sweeps at a time; one more gets 503."""

TASK_SECONDS = 0.5

NICENESS = 10
"""The priority of sliders is higher."""

IDLE_SECONDS = 120.0
"""Worker processes end when there was no sweep for this time."""

DEFAULT_X = "scale=0.5:2:33"
DEFAULT_Y = "depth=2:50:25"

UNBUFFERED = {"x-accel-buffering": "no"}
"""A proxy passes each line on at once."""

MAX_SERVER_SHAPES = 2000
"""Maximum number of shapes of nets in a map of the server."""

UNLIMITED = ". The command `chainrule sweep` has no such limit"

NO_STORE = {"cache-control": "private, no-store"}


class Workers:
    """The worker processes that all sweeps share. They start with the first sweep, and end after some idle time."""

    def __init__(self, count: int) -> None:
        self.pool = WorkerPool(count, NICENESS)
        self.reading = asyncio.Semaphore(1)  # checking a large sweep takes a core
        # Weak: a stream whose client left before its first line never begins, and never ends.
        self._sweeps: WeakSet[_Lines] = WeakSet()
        self._timer: asyncio.TimerHandle | None = None

    def check_room(self) -> None:
        """Raise BusyError if there are too many sweeps."""
        if len(self._sweeps) >= SWEEPS:
            raise BusyError(f"{SWEEPS} maps are computed already, the limit; try again", retry_after=5, limit=SWEEPS)

    def enter(self, sweep: _Lines) -> None:
        """Count a sweep. Raises BusyError if there are too many."""
        self.check_room()
        self._sweeps.add(sweep)
        if self._timer is None:
            self._end_later()

    def leave(self, sweep: _Lines) -> None:
        """End a sweep that `enter` counted."""
        self._sweeps.discard(sweep)

    def close(self) -> None:
        """End the worker processes; their tasks stop."""
        self.pool.close()

    def _end_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_SECONDS, self._end_if_idle, loop)

    def _end_if_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._sweeps:
            self._end_later()
        else:
            loop.run_in_executor(None, self.close)


def sweeps_router(service: Service) -> tuple[APIRouter, Workers]:
    """The page of maps and its API, and the workers."""
    router = APIRouter()
    workers = Workers(service.settings.sweep_workers)

    @router.get("/map", include_in_schema=False)
    async def page(request: Request) -> Response:
        data, status = await run_in_threadpool(map_page, service, query_of(request))
        text = render("map.html", version=__version__, page_data=data, error=data["error"])
        return HTMLResponse(text, status, headers=NO_STORE)

    async def lines_of(request: Request) -> _Lines:
        body = await read_json_object(request, service)
        workers.check_room()
        async with workers.reading:
            sweep, groups, start = await run_in_threadpool(_read_body, service, body)
        lines = _Lines(service, workers, sweep, groups, start)
        workers.enter(lines)
        return lines

    async def post(request: Request) -> Response:
        lines = await lines_of(request)
        return StreamingResponse(lines.stream(), headers=NO_STORE | UNBUFFERED, media_type=NDJSON)

    async def post_parquet(request: Request) -> Response:
        writer_of("map.parquet")
        lines = await lines_of(request)
        headers = NO_STORE | {"content-disposition": 'attachment; filename="map.parquet"'}
        return StreamingResponse(lines.parquet(), headers=headers, media_type=PARQUET)

    schema = {
        "type": "object",
        "required": ["over"],
        "additionalProperties": False,
        "properties": {
            "spec": spec_schema(),
            "over": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
                "description": "Axes: `KEY=FROM:TO:COUNT`, `KEY=log:FROM:TO:COUNT` or `KEY=VALUE,VALUE`. Keys: "
                + ", ".join(AXIS_KEYS),
            },
            "seeds": {"type": "integer", "minimum": 1, "default": 1},
            "measure": {
                "type": "string",
                "default": "gradient_ratio",
                "description": "; ".join(f"`{name}`: {kind.doc}" for name, kind in KINDS.items()),
            },
            "start": {"type": "integer", "minimum": 0, "default": 0, "description": "Tasks that have arrived."},
        },
    }
    add_route(
        router,
        "/api/v1/sweeps",
        post,
        "Measure many nets",
        "A map of a spec over axes. The answer is a stream of JSON lines: `plan` with the axes and theory's curves, "
        "then `cells` with the values of some cells, from coarse to fine, or `failed` with the reason, and `done` at "
        "the end. Cells count seeds first, then the first axis, then the second. If the stream breaks, `start` skips "
        "the tasks that have arrived. The server stops when the client closes the connection.",
        methods=["POST"],
        tag="sweeps",
        errors=(400, 401, 408, 413, 415, 422, 503),
        media_type=NDJSON,
        body=schema,
    )
    add_route(
        router,
        "/api/v1/sweeps.parquet",
        post_parquet,
        "The table of many nets",
        "The same sweep as a Parquet file, when all its cells are computed; needs the extra `parquet` on the server.",
        methods=["POST"],
        tag="sweeps",
        errors=(400, 401, 408, 413, 415, 422, 501, 503),
        media_type=PARQUET,
        body=schema,
    )
    return router, workers


class _Lines:
    """The lines of one sweep."""

    def __init__(self, service: Service, workers: Workers, sweep: Sweep, groups: list[Any], start: int) -> None:
        self._service, self._workers, self._sweep = service, workers, sweep
        self._groups, self._start = groups, start
        self._executor: Executor | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        """All lines; ends the sweep when the client leaves."""
        with self._running() as outcomes:
            try:
                yield _line(await run_in_threadpool(_plan, self._sweep, len(self._groups)))
                seconds = 0.0
                async for outcome in outcomes:
                    seconds += outcome.seconds
                    yield _line(_outcome(outcome))
                yield _line({"type": "done", "seconds": seconds})
            except ChainruleError as error:
                yield _line({"type": "error", **error.body()})

    async def parquet(self) -> AsyncIterator[bytes]:
        """The table of the whole sweep; ends the sweep when the client leaves."""
        values = np.full(self._sweep.cells, np.nan)
        with self._running() as outcomes:
            async for outcome in outcomes:
                if outcome.values is not None:
                    values[outcome.cells] = outcome.values
        yield await run_in_threadpool(_parquet, self._sweep, values)

    @contextmanager
    def _running(self) -> Iterator[AsyncIterator[Outcome]]:
        """Runs the sweep inside the block; gives its outcomes in the order of their tasks."""
        groups = self._groups
        tasks = (task_of(number, groups[number]) for number in range(self._start, len(groups)))
        outcomes = conduct(tasks, self._workers_of, 2 * self._workers.pool.workers)
        waiting = _next(outcomes)

        async def in_order() -> AsyncIterator[Outcome]:
            nonlocal waiting
            order = _InOrder(groups, self._start)
            while (outcome := await asyncio.shield(waiting)) is not None:
                waiting = _next(outcomes)
                for ready in order.add(outcome):
                    yield ready
                if self._service.compute.closing:
                    raise StoppedError("shutdown")

        try:
            yield in_order()
        finally:
            if self._executor is not None:
                asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
            # A generator cannot be closed while a thread waits in it.
            waiting.add_done_callback(partial(self._end, outcomes))

    def _workers_of(self) -> Executor:
        """The shared workers; after one of them has died, a worker of its own, which only its tasks can kill."""
        self._executor = self._workers.pool.lease() if self._executor is None else OwnPool(1, NICENESS)
        return self._executor

    def _end(self, outcomes: Generator[Outcome, None, None], waiting: asyncio.Future[Outcome | None]) -> None:
        if not waiting.cancelled():
            waiting.exception()  # was told, or nobody is there
        outcomes.close()
        self._workers.leave(self)


class _InOrder:
    """Holds outcomes back until all cells of the tasks before have theirs, so that `start` has a meaning."""

    def __init__(self, groups: list[Any], start: int) -> None:
        self._left = [sum(len(stack) for stack in group) for group in groups]
        self._next = start
        self._held: dict[int, list[Outcome]] = {}

    def add(self, outcome: Outcome) -> Iterator[Outcome]:
        """The outcomes whose turn it is now."""
        self._held.setdefault(outcome.number, []).append(outcome)
        self._left[outcome.number] -= len(outcome.cells)
        while self._next < len(self._left) and not self._left[self._next]:
            yield from self._held.pop(self._next)
            self._next += 1


def _next(outcomes: Generator[Outcome, None, None]) -> asyncio.Future[Outcome | None]:
    return asyncio.ensure_future(run_in_threadpool(next, outcomes, None))


def _tasks(sweep: Sweep) -> list[Any]:
    """Tasks of about TASK_SECONDS, the same for every request, so that `start` means the same."""
    groups: list[Any] = []
    total = 0.0
    for stack in sweep.stacks:
        # The first tasks are short: the map has a coarse picture soon.
        if not groups or total >= FLOPS_PER_SECOND * TASK_SECONDS * min(1.0, len(groups) / 8):
            groups.append([])
            total = 0.0
        groups[-1].append(stack)
        total += stack.flops
    return groups


def _plan(sweep: Sweep, tasks: int) -> dict[str, Any]:
    kind = sweep.measure.kind
    return {
        "type": "plan",
        "schema": "chainrule.sweep/1",
        "query": sweep.spec.query(),
        "spec": sweep.spec.as_dict(),
        "axes": [
            {"key": axis.key, "over": axis.over, "log": axis.is_log, "values": list(axis.values)} for axis in sweep.axes
        ],
        "seeds": list(sweep.seeds),
        "measure": {
            **measure_entry(sweep.measure.text.partition(":")[0]),
            "name": sweep.measure.text,
            "log": kind.is_log,
        },
        "cells": sweep.cells,
        "tasks": tasks,
        "curves": [{"name": each.name, "doc": each.doc, "points": each.points} for each in curves_of(sweep)],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    cells = outcome.cells.tolist()
    if outcome.values is None:
        return {"type": "failed", "task": outcome.number, "cells": cells, "message": outcome.failure}
    values = json_value(outcome.values.tolist())
    return {"type": "cells", "task": outcome.number, "cells": cells, "values": values, "seconds": outcome.seconds}


def _parquet(sweep: Sweep, values: npt.NDArray[np.float64]) -> bytes:
    # In memory: the server writes no file.
    file = BytesIO()
    write_parquet(SweepResult(sweep, values, {}).columns, file)
    return file.getvalue()


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


def _read_body(service: Service, body: dict[str, Any]) -> tuple[Sweep, list[Any], int]:
    """The sweep of a request, its stacks in tasks, and its `start`."""
    allowed = ("spec", "over", "seeds", "measure", "start")
    for name in body:
        if name not in allowed:
            raise RequestError(
                f"{name[:40]}: unknown key; the keys are {', '.join(allowed)}",
                status=422,
                field=name[:40],
                limit=allowed,
            )
    spec, over, start = body.get("spec", {}), body.get("over"), body.get("start", 0)
    if not isinstance(spec, dict):
        raise SweepError("spec: not an object with the keys of a spec", field="spec")
    if not isinstance(over, list) or not all(isinstance(text, str) for text in over) or len(over) > 2:
        raise SweepError("over: not a list of one or two axes, such as scale=0.5:2:33", field="over")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise SweepError("start: not an integer of at least 0", field="start")
    measure = body.get("measure", "gradient_ratio")
    if not isinstance(measure, str):
        raise SweepError("measure: not a text", field="measure")
    sweep = admit(service, service.read(spec), over, body.get("seeds", 1), measure)
    groups = _tasks(sweep)
    if start > len(groups):
        raise SweepError(
            f"start: {start} is above {len(groups)}, the number of tasks", field="start", limit=len(groups)
        )
    return sweep, groups, start


def admit(service: Service, spec: ModelSpec, over: list[str], seeds: Any, measure: str) -> Sweep:
    """A sweep within the server's limits.

    Raises:
        SpecError, SweepError: see `read_sweep`.
        LimitError: it takes more than the settings allow.
    """
    settings = service.settings
    if not settings.sweep_workers:
        raise LimitError("maps are switched off on this server (CHAINRULE_SWEEP_WORKERS)", limit=0)
    try:
        sweep = read_sweep(spec, over, seeds, measure, max_cells=settings.max_sweep_cells, max_shapes=MAX_SERVER_SHAPES)
    except LimitError as error:
        if error.limit == settings.max_sweep_cells:
            message = f"{error.message} here (CHAINRULE_MAX_SWEEP_CELLS){UNLIMITED}"
            raise LimitError(message, field="over", limit=error.limit) from None
        raise
    estimate = sweep.estimate()
    if estimate.flops > settings.max_sweep_flops:
        raise LimitError(
            f"over: {estimate.flops:.3g} floating point operations, about {duration(estimate.seconds)} on one core; at "
            f"most {settings.max_sweep_flops:.3g} are allowed here (CHAINRULE_MAX_SWEEP_FLOPS){UNLIMITED}",
            field="over",
            limit=settings.max_sweep_flops,
        )
    for each in sweep.shapes.values():
        check_limits(each, settings)
    return sweep


def map_page(service: Service, values: dict[str, str]) -> tuple[dict[str, Any], int]:
    """The data of the page for a query, and the status of the answer. The axes are checked when the page posts them."""
    form: dict[str, Any] = {name: values.pop(name, None) for name in ("x", "y", "seeds", "measure")}
    spec, error, status = ModelSpec(), None, 200
    try:
        spec = service.read(values)
    except ChainruleError as problem:
        error, status = problem.body()["error"], problem.status
    if form["x"] is None:
        has_depth = len(set(spec.widths[1:-1])) == 1
        form["x"], form["y"] = DEFAULT_X, DEFAULT_Y if has_depth else RANGES["bias_std" if spec.bias else "lr"]
    form["measure"] = form["measure"] or "gradient_ratio"
    seeds = form["seeds"] or "1"
    form["seeds"] = int(seeds) if seeds.isascii() and seeds.isdigit() and len(seeds) < 9 else 1
    data = {
        "version": __version__,
        "query": spec.query(),
        "spec": spec.as_dict(),
        "form": form,
        "axes": axis_entries(service.settings),
        "measures": [measure_entry(name) for name in KINDS],
        "presets": [
            {"name": each.name, "title": each.title, "text": each.text, "query": each.query} for each in MAP_PRESETS
        ],
        "limits": {"cells": service.settings.max_sweep_cells},
        "error": error,
    }
    return data, status


RANGES = {
    "scale": DEFAULT_X,
    "bias_std": "bias_std=0:1:21",
    "lr": "lr=log:0.001:10:24",
    "weight_decay": "weight_decay=log:0.0001:1:13",
    "depth": DEFAULT_Y,
    "width": "width=log:8:256:11",
    "batch": "batch=log:8:512:7",
    "step": "step=0:100:11",
    "data": "data=moons,circles,spirals,xor",
}
"""The values of an axis that the page proposes; all choices for other keys."""


def axis_entries(settings: Settings) -> list[dict[str, Any]]:
    """Every axis, for the page."""
    most = {"depth": settings.max_depth, "width": settings.max_width, "batch": settings.max_batch}
    return [
        {
            "name": key.name,
            "doc": key.doc,
            "kind": key.kind,
            "minimum": key.minimum,
            "maximum": most.get(key.name, key.maximum),
            "over": RANGES.get(key.name) or f"{key.name}={','.join(key.choices or ('false', 'true'))}",
        }
        for key in AXIS_KEYS.values()
    ]


def measure_entry(name: str) -> dict[str, Any]:
    """A measure, for the page."""
    kind = KINDS[name]
    return {
        "name": name,
        "title": kind.title,
        "doc": kind.doc,
        "argument": kind.argument,
        "log": kind.is_log,
        "trains": kind.trains,
    }
