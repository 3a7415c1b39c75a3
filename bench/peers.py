"""Other tools that draw or record what a model computes, each used as its authors mean it to be.

None does all that a trace holds, so each says what it does. They are all given the model, input and loss that we are,
and are asked for what they make, not for a picture of it: where Graphviz would have to draw, its text is where it ends.
Their packages are the extra `bench`; none of them is imported before its candidate is prepared. They have no types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from models import Case

Run = Callable[[], object]


@dataclass(frozen=True)
class Peer:
    """`prepare` imports the tool, and gives what is one use of it; `covers` says what that makes."""

    package: str
    covers: str
    prepare: Callable[[Case], Run]

    def version(self) -> str | None:
        """The installed version, or None."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


def torchlens(which: Case) -> Run:
    """`trace` with gradients saved, then `log_backward`, as its guide to backward capture has it."""
    lens: Any = import_module("torchlens")
    options: Any = import_module("torchlens.options")

    def run() -> Any:
        which.model.zero_grad(set_to_none=True)
        trace = lens.trace(which.model, which.x, capture=options.CaptureOptions(save_grads=True))
        trace.log_backward(which.loss(trace[trace.output_layers[0]].out))
        return trace

    return run


def torchlens_statistics(which: Case) -> Run:
    """The same, then its statistics of every value and gradient that it kept, and its export to Model Explorer."""
    record = torchlens(which)
    stats: Any = import_module("torchlens.stats")
    export: Any = import_module("torchlens.export")
    target = Path(tempfile.mkdtemp()) / "trace.json"  # in the parent's folder, see turns.py

    def run() -> None:
        trace: Any = record()
        for op in trace.layer_list:
            stats.tensor_stats(op.out)
            if op.has_grad:
                stats.tensor_stats(op.grad)
        for parameter in which.model.parameters():
            stats.tensor_stats(parameter.detach())
            stats.tensor_stats(parameter.grad)
        export.model_explorer(trace, target)

    return run


def torchview(which: Case) -> Run:
    """`draw_graph`, with nested modules expanded; it runs the forward pass itself."""
    view: Any = import_module("torchview")
    return lambda: view.draw_graph(
        which.model, input_data=which.x, mode="train", device="cpu", depth=100, expand_nested=True
    )


def torchviz(which: Case) -> Run:
    """`make_dot` of the loss with all that it can show, then the backward pass, whose graph it has drawn."""
    viz: Any = import_module("torchviz")

    def run() -> None:
        which.model.zero_grad(set_to_none=True)
        loss = which.loss(which.model(which.x))
        viz.make_dot(loss, params=dict(which.model.named_parameters()), show_attrs=True, show_saved=True)
        loss.backward()  # type: ignore[no-untyped-call]

    return run


def torchvista(which: Case) -> Run:
    """`trace_model`, which shows a page in a notebook: here it makes the page, and nobody shows it."""
    vista: Any = import_module("torchvista")
    return lambda: vista.trace_model(which.model, (which.x,))


def torchexplorer(which: Case) -> Run:
    """`watch` as it is set up by default, but of every step instead of each 500th, and without a server."""
    explorer: Any = import_module("torchexplorer")
    explorer.watch(which.model, log_freq=1, backend="none", verbose=False)
    return which.bare


PEERS = {
    "torchlens": Peer(
        "torchlens", "both graphs; every activation and gradient kept; no statistics, no JSON", torchlens
    ),
    "torchlens_statistics": Peer(
        "torchlens",
        "the same, with its statistics of all that it kept (exact, 10 bins) and Model Explorer JSON",
        torchlens_statistics,
    ),
    "torchview": Peer(
        "torchview",
        "forward pass without autograd, its graph as Graphviz text; no backward pass, no values",
        torchview,
    ),
    "torchviz": Peer(
        "torchviz",
        "forward and backward pass; graph of the backward pass as Graphviz text, with show_attrs and show_saved (off by"
        " default); no values",
        torchviz,
    ),
    "torchvista": Peer(
        "torchvista",
        "forward pass without autograd, its graph in an HTML page; no backward pass, no values",
        torchvista,
    ),
    "torchexplorer": Peer(
        "torchexplorer",
        "a steady step, its graph of the modules made before: 30 bins from 1000 sampled values of what modules take and"
        " give, of parameters and their gradients, and of the norms of other gradients; no JSON",
        torchexplorer,
    ),
}
"""By the name of the row."""
