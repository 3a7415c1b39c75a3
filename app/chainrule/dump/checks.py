"""What is wrong with a dump, in words.

Where its text is no JSON, where it is not of the schema's form, and what the schema cannot say: ids that lead nowhere
or contradict one another, things that depend on themselves, columns of one length.

The page reads dumps too, by the same rules: `static/core/dump/dump.js`. One list of bad dumps tests both.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from chainrule.errors import DumpError
from chainrule.stats import BINS, COLUMNS

if TYPE_CHECKING:
    from chainrule.dump.wire import StatisticsDump, TraceDump

LAYER_TENSORS = (
    "preactivation",
    "activation",
    "gradient",
    "weight",
    "weight_gradient",
    "bias",
    "bias_gradient",
)

MOST_NAMED = 8
"""So many members of a circle are named."""


DEEPEST = 100
"""Free-form values go no deeper than this: whoever walks them may do so by recursion."""

FREE_FORM = ("spec", "environment", "timing")


class Identified(Protocol):
    """What has an id."""

    @property
    def id(self) -> str: ...  # noqa: D102


def check_dump(dump: TraceDump) -> None:
    """Check what the schema leaves open.

    Raises:
        DumpError: says what is wrong; `field` is the path of the place, such as `ops[12].inputs[0]`.
    """
    modules = _index("modules", dump.modules)
    ops = _index("ops", dump.ops)
    tensors = _index("tensors", dump.tensors)
    for row, module in enumerate(dump.modules):
        _check("module", modules, f"modules[{row}].parent", module.parent)
    for row, op in enumerate(dump.ops):
        _check("module", modules, f"ops[{row}].module", op.module)
        _check_all("tensor", tensors, f"ops[{row}].inputs", op.inputs)
        _check_all("tensor", tensors, f"ops[{row}].outputs", op.outputs)
        _check("op", ops, f"ops[{row}].twin", op.twin)
    for row, tensor in enumerate(dump.tensors):
        _check("module", modules, f"tensors[{row}].module", tensor.module)
        _check("op", ops, f"tensors[{row}].producer", tensor.producer)
        _check_all("op", ops, f"tensors[{row}].consumers", tensor.consumers)
        _check("tensor", tensors, f"tensors[{row}].gradient_of", tensor.gradient_of)
    for row, saved in enumerate(dump.saved):
        _check("tensor", tensors, f"saved[{row}].tensor", saved.tensor)
        _check("op", ops, f"saved[{row}].op", saved.op)
    for row, layer in enumerate(dump.layers):
        for name in LAYER_TENSORS:
            _check("tensor", tensors, f"layers[{row}].{name}", getattr(layer, name))
    for row, fault in enumerate(dump.faults):
        _check("op", ops, f"faults[{row}].op", fault.op)
        _check("tensor", tensors, f"faults[{row}].tensor", fault.tensor)
    if dump.error is not None:
        _check("op", ops, "error.op", dump.error.op)
    _check_statistics(dump.statistics, tensors)

    producers = [None if tensor.producer is None else ops[tensor.producer] for tensor in dump.tensors]
    made = [[producers[tensors[name]] for name in op.inputs] for op in dump.ops]
    _check_circles("ops", dump.ops, made.__getitem__, "needs what it makes itself")
    _check_circles(
        "modules", dump.modules, lambda row: _place(modules, dump.modules[row].parent), "stands inside itself"
    )
    _check_circles("ops", dump.ops, lambda row: _place(ops, dump.ops[row].twin), "is its own twin")
    _check_circles(
        "tensors", dump.tensors, lambda row: _place(tensors, dump.tensors[row].gradient_of), "is its own gradient"
    )
    _check_agreement(dump, ops, tensors)


def _check_agreement(dump: TraceDump, ops: Mapping[str, int], tensors: Mapping[str, int]) -> None:
    """Ops and tensors say the same of one another, and forward ops are the backward of nothing."""
    maker: dict[str, int] = {}
    reads: list[set[str]] = []
    readers = [set(tensor.consumers) for tensor in dump.tensors]
    for row, op in enumerate(dump.ops):
        for place, name in enumerate(op.outputs):
            where = f"ops[{row}].outputs[{place}]"
            if name in maker:
                _fail(where, f"the tensor {_shown(name)} is an output of ops[{maker[name]}] already")
            maker[name] = row
            producer = dump.tensors[tensors[name]].producer
            if producer != op.id:
                names = "no producer" if producer is None else f"{_shown(producer)} as its producer"
                _fail(where, f"the tensor {_shown(name)} names {names}")
        for place, name in enumerate(op.inputs):
            if op.id not in readers[tensors[name]]:
                _fail(
                    f"ops[{row}].inputs[{place}]",
                    f"the tensor {_shown(name)} does not name this op as one that reads it",
                )
        reads.append(set(op.inputs))
        # That of a backward op may be one too: of code that was differentiated itself.
        if op.twin is not None and op.phase == "forward":
            _fail(f"ops[{row}].twin", "only a backward op has a twin")
    for row, tensor in enumerate(dump.tensors):
        if tensor.producer is not None and tensor.id not in maker:
            _fail(f"tensors[{row}].producer", f"the op {_shown(tensor.producer)} does not have it among its outputs")
        for place, name in enumerate(tensor.consumers):
            if tensor.id not in reads[ops[name]]:
                _fail(f"tensors[{row}].consumers[{place}]", f"the op {_shown(name)} does not have it among its inputs")


def find_circle(count: int, before: Callable[[int], Iterable[int | None]]) -> list[int]:
    """The members of one circle, each followed by the next and the last by the first; empty where there is none.

    Args:
        count: how many things there are.
        before: the things that a thing follows; None stands for nothing.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waits_for = [0] * count
    for thing in range(count):
        for earlier in before(thing):
            if earlier is not None:
                after[earlier].append(thing)
                waits_for[thing] += 1
    ready = [thing for thing in range(count) if not waits_for[thing]]
    sorted_things = 0
    while ready:
        sorted_things += 1
        for following in after[ready.pop()]:
            waits_for[following] -= 1
            if not waits_for[following]:
                ready.append(following)
    if sorted_things == count:
        return []
    # Everything that still waits follows something that still waits: going back long enough comes round.
    thing = next(thing for thing in range(count) if waits_for[thing])
    visited: dict[int, int] = {}
    while thing not in visited:
        visited[thing] = len(visited)
        thing = next(earlier for earlier in before(thing) if earlier is not None and waits_for[earlier])
    circle = list(visited)[visited[thing] :][::-1]
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]


def _place(index: Mapping[str, int], identifier: str | None) -> tuple[int, ...]:
    return () if identifier is None else (index[identifier],)


def _index(kind: str, parts: Sequence[Identified]) -> dict[str, int]:
    index: dict[str, int] = {}
    for row, part in enumerate(parts):
        if part.id in index:
            _fail(f"{kind}[{row}].id", f"the id {_shown(part.id)} is that of {kind}[{index[part.id]}] already")
        index[part.id] = row
    return index


def _check_all(noun: str, known: Mapping[str, int], where: str, identifiers: Sequence[str]) -> None:
    for place, identifier in enumerate(identifiers):
        if identifier not in known:
            _check(noun, known, f"{where}[{place}]", identifier)


def _check(noun: str, known: Mapping[str, int], where: str, identifier: str | None) -> None:
    if identifier is not None and identifier not in known:
        _fail(where, f"the {noun} {_shown(identifier)} does not exist")


def _check_circles(
    kind: str, parts: Sequence[Identified], before: Callable[[int], Iterable[int | None]], says: str
) -> None:
    circle = find_circle(len(parts), before)
    if not circle:
        return
    names = [_shown(parts[row].id) for row in circle[:MOST_NAMED]]
    more = f" → … ({len(circle)} in all)" if len(circle) > MOST_NAMED else ""
    path = f"a cycle: {' → '.join(names)}{more} → {names[0]}"
    _fail(f"{kind}[{circle[0]}]", path if len(circle) > 1 else f"{names[0]} {says}")


def _check_statistics(statistics: StatisticsDump, tensors: Mapping[str, int]) -> None:
    seen: set[str] = set()
    for row, identifier in enumerate(statistics.tensor):
        _check("tensor", tensors, f"statistics.tensor[{row}]", identifier)
        if identifier in seen:
            _fail(f"statistics.tensor[{row}]", f"the tensor {_shown(identifier)} has two rows")
        seen.add(identifier)
    rows = len(statistics.tensor)
    histogram = statistics.histogram
    lengths = {name: len(getattr(statistics, name)) for name in COLUMNS}
    lengths |= {f"histogram.{name}": len(getattr(histogram, name)) for name in ("low", "high", "counts")}
    for name, length in lengths.items():
        if length != rows:
            _fail(f"statistics.{name}", f"{length} entries, not one for each of the {rows} tensors")
    for row, counts in enumerate(histogram.counts):
        if len(counts) != BINS:
            _fail(f"statistics.histogram.counts[{row}]", f"{len(counts)} bins, not {BINS}")


def _shown(value: object) -> str:
    """A value as a message quotes it: short, whatever it is."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _fail(where: str, says: str) -> None:
    raise DumpError(f"{where}: {says}" if where else says, field=where or None)


# -------------------------------------------------------------------- text


def read_json(content: bytes | str) -> Any:
    """What a text of JSON holds, numbers finite and free-form values of some depth at most.

    Raises:
        DumpError: it is not JSON, or has a number beyond float64's or a value nested too deeply; says where.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError as undecodable:
            _fail("", f"this is not JSON: byte {undecodable.start + 1} is not part of a text in UTF-8")
        if (problem := json_problem(text)) is not None:
            _fail("", f"this is not JSON: {problem}")
        # Proper JSON that is refused all the same: what is too large for it, or too deep.
        try:
            _check_finite(json.loads(text))
        except RecursionError:
            _fail("", f"what stands here is more than {DEEPEST} levels deep")
        raise DumpError(f"this is not JSON: {error}") from None


def _check_finite(value: object) -> None:
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        where, part = pending.pop()
        if isinstance(part, float) and not math.isfinite(part):
            _fail(where.lstrip("."), "the number is too large")
        elif isinstance(part, dict):
            pending += [(f"{where}.{key}", inner) for key, inner in part.items()]
        elif isinstance(part, list):
            pending += [(f"{where}[{place}]", inner) for place, inner in enumerate(part)]


_BLANK = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_SCALAR = re.compile(_STRING.pattern + r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_SEEN = 12


def json_problem(text: str) -> str | None:
    """Where and why a text is not JSON, None for one that is: as `static/core/dump/json-problem.js` says it."""
    at = 0

    def take(token: re.Pattern[str]) -> bool:
        nonlocal at
        match = token.match(text, at)
        at = match.end() if match else at
        return match is not None

    def take_letter(letter: str) -> bool:
        nonlocal at
        take(_BLANK)
        found = text.startswith(letter, at)
        at += found
        return found

    def problem(expected: str) -> str:
        take(_BLANK)
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        there = f"there is {_shown(text[at : at + _SEEN])}" if at < len(text) else "the text ends"
        return f"line {line}, column {column}: {expected} should stand there, but {there}"

    def key() -> str | None:
        take(_BLANK)
        if not take(_STRING):
            return problem("a key in double quotes")
        return None if take_letter(":") else problem("a colon")

    closing: list[str] = []
    wants_value = True
    while True:
        if wants_value:
            if take_letter("{"):
                if not take_letter("}"):
                    closing.append("}")
                    if (missing := key()) is not None:
                        return missing
                    continue
            elif take_letter("["):
                if not take_letter("]"):
                    closing.append("]")
                    continue
            elif not take(_SCALAR):
                return problem("a value")
            wants_value = False
        if not closing:
            take(_BLANK)
            return None if at == len(text) else problem("the end")
        if take_letter(closing[-1]):
            closing.pop()
            continue
        if not take_letter(","):
            return problem(f"a comma or {closing[-1]}")
        if closing[-1] == "}" and (missing := key()) is not None:
            return missing
        wants_value = True


# -------------------------------------------------------------------- form


def check_free_form(value: Any) -> None:
    """Check that what may be anything does not go too deep, in a value that may not be a dump at all.

    Raises:
        DumpError: it does; says where.
    """
    if not isinstance(value, dict):
        return
    places = [(name, value.get(name)) for name in FREE_FORM]
    ops = value.get("ops")
    if isinstance(ops, list):
        places += [
            (f"ops[{row}].attributes", op.get("attributes")) for row, op in enumerate(ops) if isinstance(op, dict)
        ]
    for where, free in places:
        level = [free]
        depth = 0
        while level := [
            inner
            for part in level
            if isinstance(part, (dict, list))
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, (dict, list))
        ]:
            depth += 1
            if depth > DEEPEST:
                _fail(where, f"what stands here is more than {DEEPEST} levels deep")


def fault_in_words(schema: str, place: str, kind: str, context: Mapping[str, Any], found: object) -> str:
    """What is wrong with a value, as the page says it too.

    Args:
        schema: the one that is read.
        place: path of the value, empty for the whole.
        kind: the validator's name of the fault.
        context: what the validator tells of it.
        found: the value.
    """
    if not place:
        return f"{_shown(found)} instead of an object"
    if place == "schema":
        there = "there is none" if kind == "missing" else f"it is {_shown(found)}"
        return f'graph dumps of schema "{schema}" are read here, but {there}'
    if place == "loss" and kind != "missing":
        return f'{_shown(found)} is neither a number, "NaN", "Infinity", "-Infinity" nor null'
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a field of the schema"
    if kind == "literal_error":
        return f"{_shown(found)} is none of {str(context.get('expected')).replace(' or ', ', ').replace(chr(39), '')}"
    if kind == "greater_than_equal":
        return f"{_shown(found)} is not an integer from {context.get('ge')} on"
    if kind == "less_than":
        return f"{_shown(found)} is not below {context.get('lt')}"
    expected = next((words for start, words in _EXPECTED.items() if kind.startswith(start)), None)
    return f"{_shown(found)} is not {expected}" if expected else f"{_shown(found)} does not fit: {kind}"


_EXPECTED = {
    "string": "text",
    "int": "an integer",
    "float": "a number",
    "finite_number": "a finite number",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
}
