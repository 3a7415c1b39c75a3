"""The formats a trace is handed out in, one table for the command line and the HTTP API: same spec, same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from chainrule.export.dot import to_dot
from chainrule.export.model_explorer import to_model_explorer
from chainrule.trace.graph import Trace
from chainrule.wire import dump_trace


@dataclass(frozen=True, slots=True)
class Format:
    """How a trace is written: `name` as on the command line, the end of its address, its media type, its writer."""

    name: str
    suffix: str
    media_type: str
    doc: str
    render: Callable[[Trace], bytes]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("json", ".json", "application/json", "The graph dump, schema `chainrule.trace/1`.", dump_trace),
        Format(
            "dot",
            ".dot",
            "text/vnd.graphviz; charset=utf-8",
            "The graph in Graphviz' language.",
            lambda trace: to_dot(trace).encode(),
        ),
        Format(
            "model-explorer",
            ".model-explorer.json",
            "application/json",
            "The graph as Google's Model Explorer reads it.",
            lambda trace: orjson.dumps(to_model_explorer(trace)),
        ),
    )
}
