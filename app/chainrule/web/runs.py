"""`/runs` and `/api/v1/runs`: the runs of a folder, if the server was given one. Files are read in threads."""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from chainrule import __version__
from chainrule.diagnose.profile import theory
from chainrule.dump.json_values import json_value
from chainrule.dump.wire import dump_json, load, theory_dump
from chainrule.errors import NotFoundError, SpecError
from chainrule.export.options import invalid_parameter
from chainrule.history.board import MAX_EVENTS, Board, steps_after, table_after
from chainrule.page.data import page_data
from chainrule.page.templating import render
from chainrule.spec import ModelSpec
from chainrule.spec.values import Key, read_keys
from chainrule.web.answers import entity_tag, is_fresh, kept_answer, not_modified, query_of, tagged
from chainrule.web.openapi import COMPUTE_ERRORS, add_route, parameter
from chainrule.web.parameters import DUMP_PART, ITS_THEORY
from chainrule.web.service import Service

BASE = "/api/v1/runs"

ERRORS = (401, 404, 422)

MODEL_LENGTH = 200
"""Characters of a model's description in the list."""

NO_STORE = {"cache-control": "private, no-store"}


def _read_step(text: str) -> int:
    if re.fullmatch(r"-1|[0-9]{1,15}", text) is None:
        raise ValueError
    return int(text)


_text = partial(Key, kind="text", error=invalid_parameter)
RUN = _text("run", None, doc="Name of the run.", words="the name of a run of the folder", required=True)
AFTER = _text("after", "-1", doc="The answer has the steps after this one.", words="a step, or -1", reader=_read_step)
PART = _text("part", None, doc="A part of layers, such as activation.", words="a part of the run", required=True)
STATISTIC = _text("statistic", None, doc="A statistic, such as std.", words="a statistic of the run", required=True)
STEP = _text("step", None, doc="A step with a trace.", words="a step", required=True, reader=_read_step)


def runs_router(service: Service, folder: Path) -> APIRouter:
    """The page of all runs of a folder, its data, and the explorer on a run's traces."""
    router = APIRouter()
    board = Board(folder)

    @router.get("/runs", include_in_schema=False)
    async def page() -> Response:
        text = render("runs.html", version=__version__, folder=str(folder), page_data={"base": BASE})
        return HTMLResponse(text, headers=NO_STORE)

    @router.get("/runs/graph/{name}", include_in_schema=False)
    async def graphs(name: str) -> Response:
        steps = await run_in_threadpool(lambda: board.find(name).trace_steps)
        if not steps:
            raise NotFoundError(f"the run {name[:80]!r} has no graph: it was trained without a closure")
        dumps = [
            {"name": f"{name}, step {step}", "url": f"{BASE}/trace.json?{urlencode({'run': name, 'step': step})}"}
            for step in steps
        ]
        devices = tuple(service.compute.slots)
        data = page_data(ModelSpec(), settings=service.settings, devices=devices, dump=dumps[0], dumps=dumps)
        text = render(
            "explorer.html", version=__version__, page_data=data | {"runs": True}, error=None, standalone=False
        )
        return HTMLResponse(text, headers=NO_STORE)

    async def listing(request: Request) -> Response:
        read_keys((), query_of(request), "runs.json", invalid_parameter)
        runs = await run_in_threadpool(board.listing)
        return _answer(request, {"folder": str(folder), "runs": [_described(run) for run in runs]})

    async def steps(request: Request) -> Response:
        name, after = read_keys((RUN, AFTER), query_of(request), "steps.json", invalid_parameter).values()

        def read() -> dict[str, Any]:
            run = board.find(name)
            events = run.event_columns()
            return {
                "run": name,
                "started": run.started,
                "steps": steps_after(run, after),
                "events": {column: values[:MAX_EVENTS] for column, values in events.items()},
                "more_events": max(0, len(events["step"]) - MAX_EVENTS),
                "traces": run.trace_steps,
                "parts": list(run.parts),
                "statistics": run.columns,
            }

        return _answer(request, await run_in_threadpool(read))

    async def rows(request: Request) -> Response:
        values = read_keys((RUN, PART, STATISTIC, AFTER), query_of(request), "rows.json", invalid_parameter)
        name, part, statistic, after = values.values()

        def read() -> dict[str, Any]:
            steps, layers, figures = table_after(board.find(name), part, statistic, after)
            return {**values, "layers": layers, "steps": steps, "values": figures}

        return _answer(request, await run_in_threadpool(read))

    async def trace(request: Request) -> Response:
        name, step, what = read_keys(
            (RUN, STEP, DUMP_PART), query_of(request), "trace.json", invalid_parameter
        ).values()

        def read() -> tuple[bytes, str]:
            run = board.find(name)
            if step not in run.trace_steps:
                steps = ", ".join(map(str, run.trace_steps)) or "none"
                raise NotFoundError(
                    f"step: step {step} has no trace; the steps with a trace are {steps}",
                    field="step",
                    limit=run.trace_steps,
                )
            content = run.trace(step)
            return content, blake2b(content, digest_size=16).hexdigest()

        content, digest = await run_in_threadpool(read)
        tag = entity_tag(digest, what)
        if what == ITS_THEORY:
            return await service.answer(request, tag, "cpu", lambda: dump_json(theory_dump(theory(load(content)))))
        return not_modified(tag) if is_fresh(request.headers, tag) else tagged(content, tag)

    for path, handler, keys, errors, summary, doc in (
        (
            ".json",
            listing,
            (),
            (401, 422),
            "Runs of the folder",
            "Every run with its spec or its model, its last step and its state.",
        ),
        (
            "/steps.json",
            steps,
            (RUN, AFTER),
            ERRORS,
            "Steps of a run",
            "At most 2000 steps, including the extreme values; the first 500 events; the steps with a trace.",
        ),
        (
            "/rows.json",
            rows,
            (RUN, PART, STATISTIC, AFTER),
            ERRORS,
            "Layers of a run",
            "A statistic of a part: `values` has a list per step with a figure per layer, null where it is not known. "
            "A moment of a tensor with NaN or Inf is NaN or Infinity. `ratio` of the part `update` is the norm of the "
            "update ÷ the norm of the weight.",
        ),
        (
            "/trace.json",
            trace,
            (RUN, STEP, DUMP_PART),
            (*ERRORS, *COMPUTE_ERRORS),
            "Trace of a step",
            "The graph dump of a step, or its theory.",
        ),
    ):
        name = f"runs_{handler.__name__}"
        add_route(
            router,
            f"{BASE}{path}",
            handler,
            summary,
            f"Only with `chainrule runs`. {doc}",
            name=name,
            tag="runs",
            errors=errors,
            parameters=[parameter(key) for key in keys],
        )
    return router


def _answer(request: Request, body: dict[str, Any]) -> Response:
    return kept_answer(request, orjson.dumps(json_value(body)))


def _described(run: dict[str, Any]) -> dict[str, Any]:
    """An entry of the list: the spec as a query string, the model in one line."""
    query, model = None, run["model"]
    if run["spec"] is not None:
        try:
            query = ModelSpec.parse(run["spec"]).query()
        except SpecError:  # of a later version
            model = "a net of the lab; this version of Chainrule cannot read its spec"
    if model is not None:
        model = " ".join(model[: 4 * MODEL_LENGTH].split())[:MODEL_LENGTH]
    return {**run, "spec": query, "model": model}
