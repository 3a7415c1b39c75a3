"""`/map` and `/api/v1/sweeps`: maps over specs. Worker processes of low priority compute them; sliders come first.

A sweep leaves nothing on the server: its answer is a stream of lines, and a client that lost it asks for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Generator, Mapping
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any
from weakref import WeakSet

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from chainrule import __version__
from chainrule.dump.json_values import json_value
from chainrule.errors import BusyError, ChainruleError, LimitError, RequestError, StoppedError, SweepError
from chainrule.page.templating import render
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.limits import check_limits
from chainrule.sweeps.axes import AXIS_KEYS
from chainrule.sweeps.conduct import Outcome, conduct, process_pool
from chainrule.sweeps.curves import curves_of
from chainrule.sweeps.measures import KINDS
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.sweep import FLOPS_PER_SECOND, Sweep, duration, read_sweep
from chainrule.sweeps.work import task_of
from chainrule.web.answers import query_of
from chainrule.web.api import read_json_object
from chainrule.web.openapi import add_route, spec_schema
from chainrule.web.service import Service

logger = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"

SWEEPS = 4
"""Maximum number of sweeps at a time; one more gets 503."""

TASK_SECONDS = 0.5

IDLE_SECONDS = 120.0
"""Worker processes end when there was no sweep for this time."""

DEFAULT_X = "scale=0.5:2:33"
DEFAULT_Y = "depth=2:50:25"

UNBUFFERED = {"x-accel-buffering": "no"}
"""A proxy passes each line on at once."""

NO_STORE = {"cache-control": "private, no-store"}


class Workers:
    """The worker processes that all sweeps share. They start with the first sweep."""

    def __init__(self, count: int) -> None:
        self.count = count
        # Weak: a stream whose client left before its first line never begins, and never ends.
        self._sweeps: WeakSet[_Lines] = WeakSet()
        self._pool: Executor | None = None
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        """Run a call in a worker; new workers replace those that died."""
        with self._lock:
            for _ in range(2):
                self._pool = self._pool or process_pool(self.count)
                try:
                    return self._pool.submit(function, *arguments)
                except BrokenProcessPool:
                    self._pool.shutdown(wait=False)
                    self._pool = None
        raise BrokenProcessPool("the workers died twice")

    def enter(self, sweep: _Lines) -> None:
        """Count a sweep. Raises BusyError if there are too many."""
        if len(self._sweeps) >= SWEEPS:
            raise BusyError(f"{SWEEPS} maps are computed already, the limit; try again", retry_after=5, limit=SWEEPS)
        self._sweeps.add(sweep)
        if self._timer is not None:
            self._timer.cancel()

    def leave(self, sweep: _Lines) -> None:
        """End a sweep that `enter` counted."""
        self._sweeps.discard(sweep)
        if not self._sweeps:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(IDLE_SECONDS, loop.run_in_executor, None, self.close)

    def close(self) -> None:
        """End the worker processes, each after its task."""
        with self._lock:
            if self._pool is not None:
                # Waits, so that nothing of the workers is left when the server's process ends.
                self._pool.shutdown(cancel_futures=True)
                self._pool = None


class _Lease(Executor):
    """The shared workers as the executor of one sweep, whose end does not end them."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        """See `Executor.submit`."""
        return self._workers.submit(fn, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing: `conduct` cancels its futures."""


def sweeps_router(service: Service) -> tuple[APIRouter, Workers]:
    """The page of maps and its API, and the workers."""
    router = APIRouter()
    workers = Workers(service.settings.sweep_workers)

    @router.get("/map", include_in_schema=False)
    async def page(request: Request) -> Response:
        data, status = await run_in_threadpool(map_page, service, query_of(request))
        text = render("map.html", version=__version__, page_data=data, error=data["error"])
        return HTMLResponse(text, status, headers=NO_STORE)

    async def post(request: Request) -> Response:
        body = await read_json_object(request, service)
        sweep, start = await run_in_threadpool(_read_body, service, body)
        lines = _Lines(service, workers, sweep, start)
        workers.enter(lines)
        return StreamingResponse(lines.stream(), headers=NO_STORE | UNBUFFERED, media_type=NDJSON)

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
        body={
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
        },
    )
    return router, workers


class _Lines:
    """The lines of one sweep."""

    def __init__(self, service: Service, workers: Workers, sweep: Sweep, start: int) -> None:
        self._service, self._workers, self._sweep, self._start = service, workers, sweep, start

    async def stream(self) -> AsyncIterator[bytes]:
        """All lines; ends the sweep when the client leaves."""
        sweep = self._sweep
        groups = await run_in_threadpool(_tasks, sweep)
        tasks = (task_of(number, group) for number, group in enumerate(groups) if number >= self._start)
        outcomes = conduct(tasks, lambda: _Lease(self._workers), self._workers.count + 1)
        waiting = _next(outcomes)
        try:
            yield _line(await run_in_threadpool(_plan, sweep, len(groups)))
            seconds = 0.0
            while (outcome := await asyncio.shield(waiting)) is not None:
                waiting = _next(outcomes)
                seconds += outcome.seconds
                yield _line(_outcome(outcome))
                if self._service.compute.closing:
                    raise StoppedError("shutdown")
            yield _line({"type": "done", "seconds": seconds})
        except ChainruleError as error:
            yield _line({"type": "error", **error.body()})
        finally:
            # A generator cannot be closed while a thread waits in it.
            waiting.add_done_callback(partial(self._end, outcomes))

    def _end(self, outcomes: Generator[Outcome, None, None], waiting: asyncio.Future[Outcome | None]) -> None:
        if not waiting.cancelled():
            waiting.exception()  # was told, or nobody is there
        outcomes.close()
        self._workers.leave(self)


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


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


def _read_body(service: Service, body: dict[str, Any]) -> tuple[Sweep, int]:
    """The sweep of a request, and its `start`."""
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
    return admit(service, service.read(spec), over, body.get("seeds", 1), measure), start


def admit(service: Service, spec: ModelSpec, over: list[str], seeds: Any, measure: str) -> Sweep:
    """A sweep within the server's limits.

    Raises:
        SpecError, SweepError: see `read_sweep`.
        LimitError: it takes more than the settings allow.
    """
    settings = service.settings
    if not settings.sweep_workers:
        raise LimitError("maps are switched off on this server (CHAINRULE_SWEEP_WORKERS)", limit=0)
    sweep = read_sweep(spec, over, seeds, measure)
    estimate = sweep.estimate()
    for amount, most, noun, name in (
        (estimate.cells, settings.max_sweep_cells, "cells", "MAX_SWEEP_CELLS"),
        (estimate.flops, settings.max_sweep_flops, "floating point operations", "MAX_SWEEP_FLOPS"),
    ):
        if amount > most:
            raise LimitError(
                f"over: {_amount(amount)} {noun}, about {duration(estimate.seconds)} on one core; at most "
                f"{_amount(most)} are allowed here (CHAINRULE_{name}). The command `chainrule sweep` has no such limit",
                field="over",
                limit=most,
            )
    for each in sweep.shapes.values():
        check_limits(each, settings)
    return sweep


def _amount(number: float) -> str:
    return f"{number:.3g}" if number >= 1e9 else f"{number:.0f}"


def map_page(service: Service, values: dict[str, str]) -> tuple[dict[str, Any], int]:
    """The data of the page for a query, and the status of the answer."""
    form: dict[str, Any] = {name: values.pop(name, None) for name in ("x", "y", "seeds", "measure")}
    spec, error, status = ModelSpec(), None, 200
    if form["x"] is None:
        form["x"], form["y"] = DEFAULT_X, DEFAULT_Y
    form["measure"] = form["measure"] or "gradient_ratio"
    seeds = form["seeds"] or "1"
    form["seeds"] = int(seeds) if seeds.isascii() and seeds.isdigit() else seeds
    try:
        spec = service.read(values)
        if form["y"] == DEFAULT_Y and len(set(spec.widths[1:-1])) != 1:
            form["y"] = RANGES["bias_std"] if spec.bias else RANGES["lr"]
        admit(service, spec, [text for text in (form["x"], form["y"]) if text], form["seeds"], form["measure"])
    except ChainruleError as problem:
        error, status = problem.body()["error"], problem.status
    data = {
        "version": __version__,
        "query": spec.query(),
        "spec": spec.as_dict(),
        "form": {**form, "seeds": form["seeds"] if isinstance(form["seeds"], int) else 1},
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
