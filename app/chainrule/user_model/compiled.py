"""The places where torch.compile would cut the graph of a user's model, and its reasons to compile it again."""

from __future__ import annotations

import dataclasses
import linecache
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
from chainrule.trace.privacy import masked
from chainrule.trace.sources import relative_file

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')

REASONS = {
    "generic_jump": (
        "the branch depends on the values of a tensor",
        "Use torch.where or torch.cond, or take the branch outside of the model.",
    ),
    "call_function": ("torch.compile does not trace this function", None),
}
"""Dynamo's short reasons in words, and what to do."""


PASSES = 3
"""Passes with the same inputs. A reason to compile again in the last one holds in every pass."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """The number of graphs that torch.compile makes of a forward pass, the cuts between them, and recompilations."""

    graphs: int
    found: tuple[Fault, ...]

    def of(self, trace: Trace) -> Trace:
        """The trace with these findings at its ops: at the first op of the same line, if there is one."""
        first: dict[tuple[str, int], Op] = {}
        for op in trace.ops:
            if op.phase == "forward" and op.source is not None:
                first.setdefault((op.source.file, op.source.line), op)
        paths = {module.id: module.path for module in trace.modules}
        found = []
        for each in self.found:
            at = first.get((each.source.file, each.source.line)) if each.source is not None else None
            if at is not None:
                each = dataclasses.replace(each, op=at.id, module=paths[at.module], source=at.source)
            found.append(each)
        environment = {**trace.environment, "compiled_graphs": self.graphs}
        return dataclasses.replace(trace, faults=(*trace.faults, *found), environment=environment)


def compilation(
    model: nn.Module | Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], folder: str | None
) -> Compilation:
    """Let torch.compile trace forward passes of the model, which runs it. `folder`: of the model's files.

    If torch.compile cannot trace the model, this is the only finding.
    """
    eager = getattr(model, "_orig_mod", model)
    noise = logging.getLogger("torch._dynamo")
    level = noise.level
    noise.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            explained = torch._dynamo.explain(eager)(*args, **kwargs)
            again = _recompilations(eager, args, kwargs)
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
    cuts = (_cut(each, count, folder) for each in explained.break_reasons)
    return Compilation(count, (*cuts, *(_recompilation(each, folder) for each in again)))


def _recompilations(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The records of torch.compile about what it compiles in the last pass."""
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, backend="eager")
    for _ in range(PASSES):
        torch._dynamo.utils.clear_compilation_metrics()
        compiled(*args, **kwargs)
    found: list[Any] = torch._dynamo.utils.get_compilation_metrics()
    return [each for each in found if each.recompile_reason]


def _recompilation(record: Any, folder: str | None) -> Fault:
    reason = str(record.recompile_reason)
    guard = re.sub(r"^\d+/\d+: ", "", reason.partition("\n")[0]).partition(" # ")[0].strip()
    frames = _FRAME.findall(reason)
    file, line, function = frames[-1] if frames else (record.co_filename, record.co_firstlineno, record.co_name)
    text = masked(linecache.getline(file, int(line)).strip())
    message = (
        f"torch.compile compiles {record.co_name} again in every pass, also with the same inputs, because `{guard}` "
        "holds only once. After a few times it gives up and runs this function without compilation"
    )
    source = Source(relative_file(file, folder), int(line), text, function)
    remedy = "Keep a number that changes in each pass in a tensor, such as a buffer, or outside of the model."
    return with_rule(Fault("recompilation", message, source=source, remedy=remedy, level="note"))


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
        source = Source(relative_file(frame.filename, folder), frame.lineno or 0, masked(frame.line or ""), frame.name)
    made = "one graph" if graphs == 1 else f"{graphs} graphs"
    message = f"torch.compile cuts its graph here: {why}. It makes {made} of the forward pass"
    return with_rule(Fault("graph_break", message, source=source, remedy=remedy, level="note"))
