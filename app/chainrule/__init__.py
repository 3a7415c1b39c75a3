"""Chainrule: run a neural net's forward and backward pass, record all of it, and look at it.

The package in the order data flows:

    spec.py, programs.py   what to run: a small flat set of values
    foundations/           the textbook: layers, their backward passes, initialization
    build/                 spec → model
    trace/                 the recorder: modules, ops and tensors of both passes
    stats/                 exact statistics of every tensor
    theory/, profile.py    what should be seen, beside what is, layer by layer
    run.py                 `trace_spec`: the spine that joins them
    recording.py           `record` and `trace_model` of any model, and `save`
    wire.py, export/       trace ↔ graph dump; DOT and Model Explorer
    cost.py, limits.py     what a spec would take, and whether that is allowed
    explore/               a model of one's own: run from its file, copied, changed and traced
    settings.py            how a server is configured
    web/, main.py          HTTP, WebSocket and the page
    __main__.py            the command `chainrule`

From Python:

    chainrule.trace_spec(ModelSpec(seed=1))              a spec's trace
    chainrule.trace_model(model, x, loss=loss_function)  anybody's model
    with chainrule.record(model) as recording: …         any code; then recording.trace
    recording.save("step1000.json")                      and chainrule.save(trace, path): a dump, picture, page or table
    chainrule.dataframe(trace)                           its statistics for pandas
    chainrule.load(Path("dump.json"))                    a graph dump, read back
    chainrule.explore(model, x, loss=loss_function)      the explorer on anybody's model
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "ModelSpec",
    "Trace",
    "__version__",
    "dataframe",
    "explore",
    "load",
    "record",
    "save",
    "trace_model",
    "trace_spec",
]

if TYPE_CHECKING:
    from chainrule.explore.view import explore
    from chainrule.export.table import dataframe
    from chainrule.recording import record, save, trace_model
    from chainrule.run import trace_spec
    from chainrule.spec import ModelSpec
    from chainrule.trace import Trace
    from chainrule.wire import load

_HOMES = {
    "ModelSpec": "chainrule.spec",
    "Trace": "chainrule.trace",
    "dataframe": "chainrule.export.table",
    "load": "chainrule.wire",
    "record": "chainrule.recording",
    "save": "chainrule.recording",
    "trace_model": "chainrule.recording",
    "trace_spec": "chainrule.run",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: whoever asks for `chainrule --help` should not wait for it.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "explore":
        import importlib

        # A package that can be called: once something of it is imported, this name is the package anyhow.
        return importlib.import_module("chainrule.explore")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
