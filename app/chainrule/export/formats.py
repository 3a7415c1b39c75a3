"""The formats of a trace: one table for the command line and the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import orjson

from chainrule.dump.wire import dump_trace
from chainrule.errors import RequestError
from chainrule.export.dot import to_dot
from chainrule.export.html import to_html
from chainrule.export.model_explorer import NODE_STATISTICS, to_model_explorer, to_node_data
from chainrule.export.options import invalid_parameter, option
from chainrule.export.pytorch import pytorch_script
from chainrule.export.svg import VIEW_OPTIONS, as_wishes, to_svg
from chainrule.export.table import to_csv
from chainrule.run import trace_spec
from chainrule.saving import write_file
from chainrule.spec import ModelSpec
from chainrule.spec.values import Key, read_keys
from chainrule.trace.graph import Trace

Values = Mapping[str, str]
"""Every option of a format with its value."""


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a trace.

    Attributes:
        name: on the command line.
        file: in the address.
        of_spec: writes from the spec alone, without a trace; set if `write` is not.
        attachment: the name under which a browser saves the file instead of showing it.
    """

    name: str
    file: str
    media_type: str
    doc: str
    write: Callable[[Trace, Values], bytes] | None = None
    options: tuple[Key, ...] = ()
    attachment: str | None = None
    of_spec: Callable[[ModelSpec], bytes] | None = None

    def render(self, spec: ModelSpec, values: Values) -> bytes:
        """A spec's trace in this format."""
        if self.write is not None:
            return self.write(trace_spec(spec), values)
        assert self.of_spec is not None, "a format has `write` or `of_spec`"
        return self.of_spec(spec)

    def read(self, given: Mapping[str, str]) -> Values:
        """Every option's value; the default of those not given. Raises RequestError."""
        return read_keys(self.options, given, f"the format {self.name}", invalid_parameter)


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "json",
            "trace.json",
            "application/json",
            "The graph dump, schema `chainrule.trace/1`.",
            lambda trace, _: dump_trace(trace),
        ),
        Format(
            "dot",
            "trace.dot",
            "text/vnd.graphviz; charset=utf-8",
            "The graph in the language of Graphviz.",
            lambda trace, _: to_dot(trace).encode(),
        ),
        Format(
            "svg",
            "trace.svg",
            "image/svg+xml",
            "The page's picture of the graph; needs the extra `render` on the server.",
            lambda trace, values: to_svg(trace, **as_wishes(values)).encode(),
            VIEW_OPTIONS,
        ),
        Format(
            "html",
            "trace.html",
            "text/html; charset=utf-8",
            "The explorer with the trace in it: one file that opens without a server.",
            lambda trace, values: to_html(trace, **values).encode(),
            (
                option(
                    "view",
                    "",
                    "The first view, as in the fragment of the page's address.",
                    pattern=r"[^\x00-\x1f]{0,2000}",
                    words="a fragment such as level=all&select=l2",
                ),
            ),
            attachment="chainrule.html",
        ),
        Format(
            "model-explorer",
            "trace.model-explorer.json",
            "application/json",
            "The graph in the format of Google's Model Explorer.",
            lambda trace, _: orjson.dumps(to_model_explorer(trace)),
        ),
        Format(
            "node-data",
            "node-data.json",
            "application/json",
            "One statistic of every node of the Model Explorer graph, as its node data.",
            lambda trace, values: orjson.dumps(to_node_data(trace, values["statistic"])),
            (
                option(
                    "statistic",
                    "std",
                    "; ".join(f"{name}: {doc[:-1]}" for name, doc in NODE_STATISTICS.items()) + ".",
                    choices=tuple(NODE_STATISTICS),
                ),
            ),
        ),
        Format(
            "pytorch",
            "trace.py",
            "text/x-python; charset=utf-8",
            "A script in plain PyTorch that draws the same net, runs it and prints the statistics of every layer.",
            of_spec=lambda spec: pytorch_script(spec).encode(),
        ),
    )
}

TRACE_FORMATS: Mapping[str, Format] = {
    **{name: FORMATS[name] for name in ("json", "dot", "svg", "html")},
    "csv": Format(
        "csv",
        "trace.csv",
        "text/csv; charset=utf-8",
        "The statistics, a row per tensor.",
        lambda trace, _: to_csv(trace).encode(),
    ),
    "model-explorer": FORMATS["model-explorer"],
}
"""The formats of any trace, recorded from a spec or not."""


def format_of(path: PurePath) -> Format:
    """The format of a file, by its suffix. Raises RequestError."""
    suffixes = {form.file.removeprefix("trace"): form for form in TRACE_FORMATS.values()}
    suffixes |= {f"{suffix}.gz": form for suffix, form in suffixes.items() if suffix.endswith(".json")}
    fitting = [suffix for suffix in suffixes if path.name.endswith(suffix)]
    if not fitting:
        raise RequestError(
            f"{path.name[-80:]}: unknown suffix; expected one of {', '.join(suffixes)}",
            status=422,
            code="unknown_format",
            field="path",
            limit=list(suffixes),
        )
    return suffixes[max(fitting, key=len)]


def write_model_explorer(spec: ModelSpec, folder: Path) -> list[Path]:
    """Write the Model Explorer graph of a run, and a file of node data per statistic, into a folder. Raises OSError."""
    trace = trace_spec(spec)
    contents = {"graph.json": to_model_explorer(trace)}
    contents |= {f"{name}.node-data.json": to_node_data(trace, name) for name in NODE_STATISTICS}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_file(folder / name, [orjson.dumps(content)])
    return [folder / name for name in contents]
