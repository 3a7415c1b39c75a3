"""Chainrule: run a neural net's forward and backward pass, record all of it, and look at it.

From Python:

    chainrule.trace_spec(ModelSpec(seed=1))              a spec's trace
    chainrule.trace_model(model, x, loss=loss_function)  anybody's model
    with chainrule.record(model) as recording: …         any code; then recording.trace
    recording.save("step1000.json")                      and chainrule.save(trace, path): a dump, picture, page or table
    trace.report()                                       its faults as text, JSON or annotations of GitHub Actions
    chainrule.dataframe(trace)                           its statistics for pandas
    chainrule.load(Path("dump.json"))                    a graph dump, read back
    with chainrule.watch(model, optimizer, keep="a.run"): …   a training, kept with its statistics and events
    chainrule.runs("runs")                               trainings that were kept: their steps, rows and events
    chainrule.sweep("widths=100x51", ["scale=0.5:2:64"])  one measure of many nets
    chainrule.explore(model, x, loss=loss_function)      the explorer on anybody's model
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from chainrule.dump.wire import load as load
    from chainrule.export.table import dataframe as dataframe
    from chainrule.history import runs as runs
    from chainrule.recording import record as record
    from chainrule.recording import save as save
    from chainrule.recording import trace_model as trace_model
    from chainrule.run import trace_spec as trace_spec
    from chainrule.spec import ModelSpec as ModelSpec
    from chainrule.sweeps.run import sweep as sweep
    from chainrule.trace import Trace as Trace
    from chainrule.watching.watch import watch as watch
    from chainrule.web.view import explore as explore

_HOMES = {
    "ModelSpec": "chainrule.spec",
    "Trace": "chainrule.trace",
    "dataframe": "chainrule.export.table",
    "explore": "chainrule.web.view",
    "load": "chainrule.dump.wire",
    "record": "chainrule.recording",
    "runs": "chainrule.history",
    "save": "chainrule.recording",
    "sweep": "chainrule.sweeps.run",
    "trace_model": "chainrule.recording",
    "trace_spec": "chainrule.run",
    "watch": "chainrule.watching.watch",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and `chainrule --help` needs none of it.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
