"""The findings of a pass as a report: text for a terminal, JSON, and GitHub's annotations.

The most urgent finding comes first: faults, then notes, then checks that were not made.
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chainrule.trace.graph import Fault, FaultKind, Level, Trace

SCHEMA = "chainrule.report/1"

WORDS: Mapping[FaultKind, str] = {
    "failed": "failed",
    "in_place": "in place",
    "first_nonfinite": "not finite",
    "wrong_backward": "wrong gradient",
    "unregistered": "not registered",
    "detach": "cut",
    "no_gradient": "no gradient",
    "no_optimizer": "not optimized",
    "leftover_gradient": "old gradient",
    "eval_mode": "eval mode",
    "untied": "not tied",
    "broadcast": "broadcast",
    "softmax": "softmax",
    "exploding": "exploding",
    "vanishing": "vanishing",
    "gradient_drop": "gradient falls",
    "dead": "dead",
    "saturated": "saturated",
    "starts_at_zero": "starts at zero",
    "replicas": "replicas differ",
    "graph_break": "graph break",
    "recompilation": "recompilation",
    "precision": "precision",
}
"""The word for each kind of fault, also on the page (`static/core/lab/faults.js`)."""

NEED_BACKWARD: tuple[FaultKind, ...] = (
    "wrong_backward",
    "detach",
    "no_gradient",
    "no_optimizer",
    "leftover_gradient",
    "eval_mode",
    "untied",
    "broadcast",
    "softmax",
    "exploding",
    "vanishing",
    "gradient_drop",
    "starts_at_zero",
)
NEED_MODEL: tuple[FaultKind, ...] = ("unregistered", "detach", "no_gradient")
NEED_OPTIMIZER: tuple[FaultKind, ...] = ("no_optimizer", "leftover_gradient", "eval_mode")

ON_REQUEST: Mapping[FaultKind, str] = {
    "replicas": "ranks_compared",
    "graph_break": "compiled_graphs",
    "recompilation": "compiled_graphs",
}
"""Checks that are made only on request, and the key of the environment that says that one was made."""

LEVELS: Mapping[Level, tuple[str, str]] = {
    "fault": ("FAULT", "error"),
    "note": ("NOTE", "notice"),
    "unchecked": ("NOT CHECKED", "warning"),
}
"""Level → its name in a text, and GitHub's command for it; the most urgent first."""

WIDTH = 100
"""Columns of a text."""

MAX_LENGTH = 2000
"""Characters of a message in a report, because an exception may quote a whole tensor."""


class NotMade(NamedTuple):
    """Checks that were not made, and why."""

    kinds: tuple[FaultKind, ...]
    why: str


def checks_not_made(trace: Trace) -> list[NotMade]:
    """The checks that the pass does not allow, in groups with one reason each."""
    environment, found = trace.environment, {fault.kind for fault in trace.faults}
    if not found and not environment:
        return [NotMade(_checks(trace), "this trace was not checked for faults.")]
    groups = []
    if trace.error is not None:
        groups.append(NotMade(NEED_BACKWARD, "these checks need a complete backward pass, but the pass failed."))
    elif not any(op.phase == "backward" for op in trace.ops):
        groups.append(NotMade(NEED_BACKWARD, "these checks need a backward pass, but there was none."))
    if trace.spec is not None:
        groups.append(NotMade((*NEED_MODEL, *NEED_OPTIMIZER), "these checks need a model of your own, not a spec."))
    elif _root(trace) == "function":  # a recording without a model
        groups.append(NotMade(NEED_MODEL, "these checks need the model. Give it to the recording."))
    if "optimizer" not in environment and trace.spec is None:
        is_made = ":" in environment.get("model", "")
        how = "Return (model, inputs, loss_fn, optimizer)." if is_made else "Give optimizer=optimizer."
        groups.append(NotMade(NEED_OPTIMIZER, f"these checks need the optimizer. {how}"))
    if environment.get("world_size", 1) > 1 and "ranks_compared" not in environment:
        why = "this check needs the dumps of all ranks. Give all files to `chainrule check` or `chainrule open`."
        groups.append(NotMade(("replicas",), why))
    left = []
    for kinds, why in groups:
        kinds = tuple(kind for kind in kinds if kind not in found)
        found.update(kinds)
        if kinds:
            left.append(NotMade(kinds, why))
    return left


def checks_made(trace: Trace) -> list[FaultKind]:
    """The kinds of faults that were checked everywhere in the pass."""
    missing = {kind for group in checks_not_made(trace) for kind in group.kinds}
    missing |= {fault.kind for fault in trace.faults if fault.level == "unchecked"}
    return [kind for kind in _checks(trace) if kind not in missing]


def _checks(trace: Trace) -> tuple[FaultKind, ...]:
    """The kinds that a check may find, also on request."""
    asked = {kind for kind, key in ON_REQUEST.items() if key in trace.environment}
    if trace.precision is not None:
        asked.add("precision")
    return tuple(kind for kind in WORDS if kind in asked or kind not in (*ON_REQUEST, "precision"))


def findings(trace: Trace) -> list[Fault]:
    """The faults by level. Each text is one line of bounded length, without control characters."""

    def told(fault: Fault) -> Fault:
        rule, remedy = (text and _line(text) for text in (fault.rule, fault.remedy))
        return dataclasses.replace(fault, message=_line(fault.message), rule=rule, remedy=remedy)

    return [told(fault) for level in LEVELS for fault in trace.faults if fault.level == level]


def report_text(trace: Trace) -> str:
    """The report for a terminal, in lines of at most `WIDTH` columns, except for long words."""
    return "\n".join([*_wrapped(_summary(trace), hanging=4), *_text_of(trace)])


def _text_of(trace: Trace) -> Iterator[str]:
    """The lines after the summary, with an empty one before each paragraph."""
    for fault in findings(trace):
        yield ""
        yield from _wrapped(f"{LEVELS[fault.level][0]}  {WORDS[fault.kind]}{_place(fault)}")
        if fault.source is not None and fault.source.text:
            yield "    " + _line(fault.source.text, WIDTH - 4)
        yield from _wrapped(fault.message, "    ")
        for name, text in (("rule: ", fault.rule), ("fix:  ", fault.remedy)):
            if text:
                yield from _wrapped(name + text, "    ", 6)
    for kinds, why in checks_not_made(trace):
        yield ""
        yield from _wrapped(f"NOT CHECKED FOR  {_words(kinds)}: {why}", hanging=4)
    made = checks_made(trace)
    if made and not trace.has_faults:
        yield ""
        yield from _wrapped(f"CHECKED FOR  {_words(made)}.", hanging=4)


def report_json(trace: Trace) -> str:
    """The report as JSON of the schema `chainrule.report/1`, in ASCII; `docs/report.schema.json` describes it."""
    parameters, elements = _parameters(trace)
    report = {
        "schema": SCHEMA,
        "model": _name(trace),
        "passed": not trace.has_faults,
        "broke_off": trace.error is not None,
        # "NaN", "Infinity" or "-Infinity" for values that JSON cannot represent.
        "loss": trace.loss if trace.loss is None or math.isfinite(trace.loss) else json.dumps(trace.loss),
        "counts": {
            **_counts(trace),
            "layers": len(trace.layers),
            "ops": len(trace.ops),
            "tensors": len(trace.tensors),
            "parameters": parameters,
            "parameter_elements": elements,
        },
        "findings": [{**dataclasses.asdict(fault), "word": WORDS[fault.kind]} for fault in findings(trace)],
        "checked": checks_made(trace),
        "not_checked": [group._asdict() for group in checks_not_made(trace)],
    }
    return json.dumps(report, indent=2)


def report_github(trace: Trace) -> str:
    """The summary, then each finding as a command that GitHub Actions reads from a step's output: an annotation.

    An annotation names its file relative to the current directory, if the file is inside it: a file that this process
    ran, or for a dump the file that the dump names. A finding without a line, for example of layers in an
    nn.Sequential, is at the factory.
    """
    lines = [_summary(trace)]
    for fault in findings(trace):
        texts = [fault.message, fault.rule and f"rule: {fault.rule}", fault.remedy and f"fix: {fault.remedy}"]
        message = "\n".join(text for text in texts if text)
        title = f"Chainrule: {WORDS[fault.kind]}{_place(fault)}"
        lines.append(_command(LEVELS[fault.level][1], {**_file_of(fault, trace), "title": title}, message))
    for kinds, why in checks_not_made(trace):
        lines.append(_command("warning", {"title": "Chainrule: not checked"}, f"{_words(kinds)}: {why}"))
    return "\n".join(lines)


FORMATS: Mapping[str, Callable[[Trace], str]] = {"text": report_text, "json": report_json, "github": report_github}


def _command(name: str, properties: Mapping[str, object], message: str) -> str:
    """A workflow command, escaped as in GitHub's own toolkit (`packages/core/src/command.ts`)."""

    def escaped(text: object) -> str:
        return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    given = ",".join(
        f"{key}={escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()
    )
    return f"::{name} {given}::{escaped(message)}"


def _file_of(fault: Fault, trace: Trace) -> dict[str, object]:
    """The properties `file` and `line` of a fault's annotation; empty if its file is unknown."""
    from chainrule.trace.privacy import masked

    source, here = fault.source, Path.cwd()
    if source is None:
        # The message of a pass that failed may begin with the place.
        made_at = f"{trace.environment.get('factory', '')}: "
        place = re.match(r"(.+?):(\d+): ", fault.message) or re.match(r"(.+?):(\d+): ", made_at)
        return {"file": place[1], "line": int(place[2])} if place and (here / place[1]).is_file() else {}
    modules = [vars(each).get("__file__") for each in sys.modules.copy().values() if isinstance(each, ModuleType)]
    for file in (*(Path(each) for each in modules if isinstance(each, str)), here / source.file):
        # A source names its file relative to the model's folder, so the text of the line identifies the file.
        if (
            file.is_relative_to(here)
            and file.as_posix().endswith(f"/{source.file}")
            and masked(linecache.getline(str(file), source.line).strip()) == source.text
        ):
            return {"file": file.relative_to(here).as_posix(), "line": source.line}
    return {}


def _summary(trace: Trace) -> str:
    """The first line: the number of findings, the loss, the size of the model."""
    counts, (parameters, elements) = _counts(trace), _parameters(trace)
    checks = f"no fault in {_counted(counts['checked'], 'check')}"
    found = [
        "the pass failed" if trace.error is not None else "",
        _counted(counts["faults"], "fault") if counts["faults"] else checks,
        _counted(counts["notes"], "note") if counts["notes"] else "",
        f"{_counted(counts['not_checked'], 'check')} not made" if counts["not_checked"] else "",
    ]
    loss = "no loss" if trace.loss is None else f"loss {trace.loss:.3g}"
    sizes = f"{_counted(len(trace.layers), 'layer')}, {_counted(parameters, 'parameter')} of {elements:,} elements"
    return f"{_name(trace)}: {', '.join(filter(None, found))} · {loss} · {sizes}"


def _counts(trace: Trace) -> dict[str, int]:
    levels = [fault.level for fault in trace.faults]
    return {
        "faults": levels.count("fault"),
        "notes": levels.count("note"),
        "checked": len(checks_made(trace)),
        "not_checked": levels.count("unchecked") + sum(len(group.kinds) for group in checks_not_made(trace)),
    }


def _parameters(trace: Trace) -> tuple[int, int]:
    """The number of parameters that the pass used, and of their elements."""
    sizes = [math.prod(tensor.shape) for tensor in trace.tensors if tensor.role == "parameter"]
    return len(sizes), sum(sizes)


def short_repr(trace: Trace) -> str:
    """Three lines: the recording, its faults, and how to see more."""
    loss = "no loss" if trace.loss is None else f"loss {trace.loss:.3g}"
    sizes = f"{_counted(len(trace.layers), 'layer')}, {_counted(len(trace.ops), 'op')}"
    found = [f"{WORDS[fault.kind]}{_place(fault)}" for fault in findings(trace) if fault.level == "fault"]
    faults = f"{_counted(len(found), 'fault')}: {', '.join(found)}" if found else "no faults"
    if not checks_made(trace):
        faults = "not checked for faults"
    elif left := _counts(trace)["not_checked"]:
        faults += f", {_counted(left, 'check')} not made"
    return "\n".join(
        (
            _line(f"Trace of {_name(trace)}: {sizes}, {_counted(len(trace.tensors), 'tensor')}, {loss}", WIDTH),
            _line(faults, WIDTH),
            'report() explains the faults; chainrule.save(trace, "net.html") draws the graph',
        )
    )


def _name(trace: Trace) -> str:
    """The user's name of the model: `net.py:factory`, or its class."""
    return _line(str(trace.environment.get("model") or _root(trace)), 60)


def _root(trace: Trace) -> str:
    return trace.modules[0].type if trace.modules else "function"


def _place(fault: Fault) -> str:
    """` in encoder (net.py:31)`; empty for a fault without a place."""
    module = f" in {_line(fault.module, 60)}" if fault.module else ""
    return module if fault.source is None else f"{module} ({fault.source.file}:{fault.source.line})"


def _words(kinds: tuple[FaultKind, ...] | list[FaultKind]) -> str:
    return ", ".join(WORDS[kind] for kind in kinds)


def _counted(count: int, word: str) -> str:
    """`1 layer`, `1,200 layers`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _line(text: str, length: int = MAX_LENGTH) -> str:
    """A text as one line without control characters and repeated spaces, cut at a length."""
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _wrapped(text: str, indent: str = "", hanging: int = 0) -> list[str]:
    more = indent + " " * hanging
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )
