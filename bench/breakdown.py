"""The time of a trace by parts: differences between passes that each do one thing more.

bare        the forward and backward pass
hooks       the same under empty ones: a torch function mode, hooks of modules, and one of every node of autograd's
            graph. Without them this way of recording sees nothing; with them it costs at least this much
recorder    `trace_model` with the statistics left out, less the hooks and the assembling: writing down
            the calls
assembling  ids, names and twins, when the pass has ended
statistics  `trace_model` less `trace_model` without them
JSON        `dump_trace` of a finished trace

`together` is the whole trace measured at once: the parts add up to it, but for the noise.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.autograd.graph import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from chainrule.dump.wire import dump_trace
from chainrule.stats import StatisticsSlab, native
from chainrule.trace import recorder
from chainrule.trace.assemble import assemble
from models import Case, case
from timing import interleave, now
from worker import full_trace, record

PARTS = ("bare", "hooks", "recorder", "assembling", "statistics", "JSON")


class _EmptyMode(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def under_empty_hooks(which: Case) -> None:
    """The forward and backward pass with all the hooks that a recording needs, and nothing in them."""
    which.model.zero_grad(set_to_none=True)
    handles = [
        register_module_forward_pre_hook(lambda *_: None),
        register_module_forward_hook(lambda *_: None, always_call=True),
    ]
    with _EmptyMode():
        loss = which.loss(which.model(which.x))
    for handle in handles:
        handle.remove()
    _hook_nodes(loss.grad_fn)
    loss.backward()  # type: ignore[no-untyped-call]


def _hook_nodes(root: Node | None) -> None:
    seen, pending = {root}, [root]
    while pending:
        node = pending.pop()
        if node is None:
            continue
        node.register_hook(lambda *_: None)
        for target, _ in node.next_functions:
            # Leaves need no hook: their gradient is what the node before them makes.
            if target is not None and target not in seen and type(target).__name__ != "AccumulateGrad":
                seen.add(target)
                pending.append(target)


@contextmanager
def without_statistics() -> Iterator[None]:
    """Rows of statistics are given out, and nobody writes into them."""
    names = ("take", "take_at_once", "write_dead_fraction", "write_saturation")
    real = {name: getattr(StatisticsSlab, name) for name in names}
    stubs = dict.fromkeys(("take", "take_at_once"), lambda slab, _tensor: slab._reserve()[0])
    for name in names:
        setattr(StatisticsSlab, name, stubs.get(name, lambda *_: None))
    try:
        with mock.patch.object(native, "kernel", None):  # else C writes into the rows
            yield
    finally:
        for name, method in real.items():
            setattr(StatisticsSlab, name, method)


def breakdown(name: str, seconds: float) -> dict[str, float]:
    """Milliseconds of CPU time of every part, and of all of them measured together."""
    which = case(name)
    assembling: list[float] = []

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = now()
        trace = assemble(*args, **kwargs)
        assembling.append(now() - began)
        return trace

    def blind() -> None:
        with without_statistics():
            record(which)

    finished = record(which)
    candidates: dict[str, Callable[[], object]] = {
        "bare": which.bare,
        "hooks": lambda: under_empty_hooks(which),
        "blind": blind,
        "record": lambda: record(which),
        "JSON": lambda: dump_trace(finished),
        "together": lambda: full_trace(which),
    }
    # As in worker.py.
    gc.collect()
    gc.freeze()
    with mock.patch.object(recorder, "assemble", timed):
        times = interleave(candidates, dict.fromkeys(candidates, 10 if name == "M2" else 1), seconds)
    in_assemble = statistics.median(assembling)
    parts = {
        "bare": statistics.median(times["bare"]),
        "hooks": _difference(times, "hooks", "bare"),
        "recorder": _difference(times, "blind", "hooks") - in_assemble,
        "assembling": in_assemble,
        "statistics": _difference(times, "record", "blind"),
        "JSON": statistics.median(times["JSON"]),
        "together": statistics.median(times["together"]),
    }
    return {part: seconds * 1e3 for part, seconds in parts.items()}


def _difference(times: dict[str, list[float]], more: str, less: str) -> float:
    return statistics.median(a - b for a, b in zip(times[more], times[less], strict=True))


def print_breakdown(names: list[str], seconds: float) -> None:
    """A table of a row for each part, in ms and as a share of the bare pass."""
    figures = {name: breakdown(name, seconds) for name in names}
    print(f"{'CPU ms, × bare pass':22}" + "".join(f"{name:>18}" for name in names))
    for part in (*PARTS, "sum", "together"):
        cells = []
        for of_model in figures.values():
            milliseconds = sum(of_model[each] for each in PARTS) if part == "sum" else of_model[part]
            cells.append(f"{milliseconds:>10.2f}{milliseconds / of_model['bare']:>7.2f}×")
        print(f"{part:22}" + "".join(cells))
