"""What the schema of a dump cannot say: ids that lead nowhere, things that depend on themselves, columns of one length.

The page reads dumps too, by the same rules: `static/core/dump.js`. One list of bad dumps tests both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from chainrule.errors import DumpError
from chainrule.stats import BINS, COLUMNS

if TYPE_CHECKING:
    from chainrule.wire import StatisticsDump, TraceDump

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


def _shown(identifier: str) -> str:
    """An id as a message quotes it: short, whatever it is."""
    text = identifier if len(identifier) <= 55 else f"{identifier[:55]}…"
    return f'"{text}"'


def _fail(where: str, says: str) -> None:
    raise DumpError(f"{where}: {says}", field=where)
