"""Chainrule: run a neural net's forward and backward pass, record all of it, and look at it.

The package in the order data flows:

    spec.py, programs.py   what to run: a small flat set of values
    foundations/           the textbook: layers, their backward passes, initialization
    build/                 spec → model
    trace/                 the recorder: modules, ops and tensors of both passes
    stats/                 exact statistics of every tensor
    theory/, profile.py    what should be seen, beside what is, layer by layer
    run.py                 `trace_spec`: the spine that joins them
    wire.py, export/       trace ↔ graph dump; DOT and Model Explorer
    limits.py, settings.py what a server computes, and how it is configured
    web/, main.py          HTTP, WebSocket and the page
    __main__.py            the command `chainrule`

From Python:

    chainrule.trace_spec(ModelSpec(seed=1))              a spec's trace
    chainrule.trace_model(model, x, loss=loss_function)  anybody's model
    with chainrule.record(model) as recording: …         any code; then recording.trace
    chainrule.load(Path("dump.json"))                    a graph dump, read back
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["ModelSpec", "Trace", "__version__", "load", "record", "trace_model", "trace_spec"]

if TYPE_CHECKING:
    from chainrule.run import trace_spec
    from chainrule.spec import ModelSpec
    from chainrule.trace import Trace, record, trace_model
    from chainrule.wire import load

_HOMES = {
    "ModelSpec": "chainrule.spec",
    "Trace": "chainrule.trace",
    "load": "chainrule.wire",
    "record": "chainrule.trace",
    "trace_model": "chainrule.trace",
    "trace_spec": "chainrule.run",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: whoever asks for `chainrule --help` should not wait for it.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
