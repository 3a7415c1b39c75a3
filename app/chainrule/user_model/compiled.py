"""The places where torch.compile would cut the graph of a user's model."""

from __future__ import annotations

import dataclasses
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from chainrule.diagnose.faults import with_rule
from chainrule.trace import Fault, Op, Source, Trace
from chainrule.trace.sources import relative_file

REASONS = {
    "generic_jump": (
        "the branch depends on the values of a tensor",
        "Use torch.where or torch.cond, or take the branch outside of the model.",
    ),
    "call_function": ("torch.compile does not trace this function", None),
}
"""Dynamo's short reasons in words, and what to do."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """The number of graphs that torch.compile makes of a forward pass, and the cuts between them."""

    graphs: int
    cuts: tuple[Fault, ...]

    def of(self, trace: Trace) -> Trace:
        """The trace with these findings at its ops: at the first op of the same line, if there is one."""
        first: dict[tuple[str, int], Op] = {}
        for op in trace.ops:
            if op.phase == "forward" and op.source is not None:
                first.setdefault((op.source.file, op.source.line), op)
        paths = {module.id: module.path for module in trace.modules}
        found = []
        for cut in self.cuts:
            at = first.get((cut.source.file, cut.source.line)) if cut.source is not None else None
            if at is not None:
                cut = dataclasses.replace(cut, op=at.id, module=paths[at.module], source=at.source)
            found.append(cut)
        environment = {**trace.environment, "compiled_graphs": self.graphs}
        return dataclasses.replace(trace, faults=(*trace.faults, *found), environment=environment)


def compilation(
    model: nn.Module | Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], folder: str | None
) -> Compilation:
    """Let torch.compile trace a forward pass of the model, which runs it. `folder`: of the model's files.

    If torch.compile cannot trace the model, this is the only finding.
    """
    eager = getattr(model, "_orig_mod", model)
    noise = logging.getLogger("torch._dynamo")
    level = noise.level
    noise.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            explained = torch._dynamo.explain(eager)(*args, **kwargs)
        if not explained.graph_count:
            raise RuntimeError("it makes no graph of the forward pass, which then runs without compilation")
    except Exception as error:
        says = str(error).strip().partition("\n")[0]
        failure = Fault("graph_break", f"torch.compile fails: {says}", level="unchecked")
        return Compilation(0, (failure,))
    finally:
        noise.setLevel(level)
        torch._dynamo.reset()
    count = explained.graph_count
    return Compilation(count, tuple(_cut(each, count, folder) for each in explained.break_reasons))


def _cut(found: Any, graphs: int, folder: str | None) -> Fault:
    short = found.reason.split()[0] if found.reason else ""
    why, remedy = REASONS.get(short, (None, None))
    if why is None:
        explained = re.search(r"Explanation: *(.+)", found.reason)
        why = (explained[1] if explained else found.reason.partition("\n")[0]).strip().rstrip(".")
    if remedy is None and (hint := re.search(r"Hint: *(.+)", found.reason)):
        remedy = hint[1].strip()
    frame = next(iter(reversed(found.user_stack or [])), None)
    source = None
    if frame is not None:
        source = Source(relative_file(frame.filename, folder), frame.lineno or 0, frame.line or "", frame.name)
    made = "one graph" if graphs == 1 else f"{graphs} graphs"
    message = f"torch.compile cuts its graph here: {why}. It makes {made} of the forward pass"
    return with_rule(Fault("graph_break", message, source=source, remedy=remedy, level="note"))
