"""The formats a trace is handed out in, one table for the command line and the HTTP API: same spec, same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from chainrule.export.dot import to_dot
from chainrule.export.model_explorer import to_model_explorer
from chainrule.export.pytorch import pytorch_script
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.wire import dump_trace


@dataclass(frozen=True, slots=True)
class Format:
    """How a trace is written: `name` as on the command line, the end of its address, its media type, its writer.

    `render` takes the spec, not the trace: a script that runs the net is written without running it here.
    """

    name: str
    suffix: str
    media_type: str
    doc: str
    render: Callable[[ModelSpec], bytes]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "json",
            ".json",
            "application/json",
            "The graph dump, schema `chainrule.trace/1`.",
            lambda spec: dump_trace(trace_spec(spec)),
        ),
        Format(
            "dot",
            ".dot",
            "text/vnd.graphviz; charset=utf-8",
            "The graph in Graphviz' language.",
            lambda spec: to_dot(trace_spec(spec)).encode(),
        ),
        Format(
            "model-explorer",
            ".model-explorer.json",
            "application/json",
            "The graph as Google's Model Explorer reads it.",
            lambda spec: orjson.dumps(to_model_explorer(trace_spec(spec))),
        ),
        Format(
            "pytorch",
            ".py",
            "text/x-python; charset=utf-8",
            "A script in plain PyTorch that draws the same net, runs it and prints every layer's figures.",
            lambda spec: pytorch_script(spec).encode(),
        ),
    )
}
