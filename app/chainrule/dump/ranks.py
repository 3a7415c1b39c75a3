"""The dumps of all ranks of one step, joined: which replicas differ, and on which rank NaN began."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from chainrule.diagnose.faults import with_rule
from chainrule.dump.checks import read_json
from chainrule.dump.compression import unpacked
from chainrule.dump.opened import DumpFile, Stored
from chainrule.dump.wire import json_lines
from chainrule.errors import DumpError
from chainrule.stats import COLUMNS
from chainrule.trace.collectives import ranges
from chainrule.trace.graph import Fault, Source

NAME = re.compile(r"(?P<step>.+)\.rank(?P<rank>\d+)(?P<suffix>\.[^.].*)?")
"""The names of the files that `recording.save` writes for several ranks."""

SHARED = ("all_reduce", "broadcast")
"""Collectives whose result is the same on all ranks: reduced gradients of parameters, and synchronized buffers."""

MAX_RANKS = 2**20
"""A file of more ranks is no dump of Chainrule."""

COMPARED = tuple(name for name in COLUMNS if name not in ("dead_fraction", "saturation"))
TOLD = ("norm", "mean", "std", "min", "max")
"""Statistics that a message may show."""

TOLERANCE = 1e-9
"""Relative difference of statistics that processors of another kind compute from the same values, at most."""

REMEDY = (
    "Give all ranks the same parameters: load one checkpoint on every rank, or broadcast them. Look for code that "
    "changes parameters on some ranks only, and for random numbers that need a common seed."
)


@dataclass(frozen=True, slots=True)
class RankFile(DumpFile):
    """The dump of one rank, with the faults that all ranks have together."""

    faults: tuple[Fault, ...]
    compared: str  # the ranks that were compared

    def open(self) -> Stored:
        """The dump with the faults, to be sent. Raises DumpError, see `DumpFile.open`."""
        content = self.load()
        return Stored(BytesIO(content), len(content), blake2b(content, digest_size=16).hexdigest(), is_packed=False)

    def load(self) -> bytes:
        """The dump with the faults. Raises DumpError, see `DumpFile.open`."""
        with DumpFile.open(self).file as file:
            dump = read_json(unpacked(file.read()))
        replaced = {fault.kind for fault in self.faults}
        own = [fault for fault in dump.get("faults", []) if fault["kind"] not in replaced]
        environment = {**dump["environment"], "ranks_compared": self.compared}
        return b"".join(json_lines({**dump, "environment": environment, "faults": [*self.faults, *own]}))


@dataclass(frozen=True, slots=True)
class _Rank:
    """The facts of one dump that the join needs."""

    rank: int
    world: int
    processor: str
    graph: str
    places: Mapping[str, Mapping[str, Any]]  # name of a tensor → its place: the fields of a fault
    shared: Mapping[tuple[str, str], np.ndarray[Any, np.dtype[np.float64]]]  # (tensor, ranks) → statistics, in order
    fault: Mapping[str, Any] | None  # the first tensor that is not finite
    received: str | None  # the collective that made it, if one did


def are_ranks(paths: Sequence[Path]) -> bool:
    """Whether the names are those of the ranks of one step."""
    found = [each for path in paths if (each := NAME.fullmatch(path.name))]
    steps = {(each["step"], each["suffix"]) for each in found}
    return len(paths) == len(found) == len({each["rank"] for each in found}) > 1 == len(steps)


def join(files: Sequence[DumpFile]) -> tuple[list[RankFile], list[str]]:
    """The files of the ranks of one step with their common faults, by rank; and why other files are left out."""
    ranks: list[tuple[_Rank, DumpFile]] = []
    problems = []
    for file in files:
        try:
            ranks.append((_read(file), file))
        except DumpError as error:
            problems.append(f"{file.name}: {error.message}")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            problems.append(f"{file.name}: not a graph dump of schema chainrule.trace/1")
    ranks.sort(key=lambda each: each[0].rank)
    for (before, _), (rank, file) in pairwise(tuple(ranks)):
        if before.rank == rank.rank:
            problems.append(f"{file.name}: another file is of rank {rank.rank} too")
            ranks.remove((rank, file))
    found = [rank for rank, _ in ranks]
    common = [*_unequal(found), *_gaps(found)] if found else []
    spread = _spread(found)
    made = []
    for rank, file in ranks:
        faults = [*spread.get(rank.rank, ()), *(_placed(fault, rank) for fault in common)]
        made.append(RankFile(file.name, file.path, tuple(faults), ranges([each.rank for each in found])))
    return made, problems


def _read(file: DumpFile) -> _Rank:
    dump = read_json(unpacked(file.load()))
    environment, statistics = dump["environment"], dump["statistics"]
    named = NAME.fullmatch(file.path.name)
    rank, world = environment.get("rank", int(named["rank"]) if named else 0), environment.get("world_size", 0)
    if not isinstance(rank, int) or not isinstance(world, int) or not 0 <= world <= MAX_RANKS:
        raise TypeError("the rank and the number of ranks are integers")
    ops = {op["id"]: op for op in dump["ops"]}
    tensors = {tensor["id"]: tensor for tensor in dump["tensors"]}
    paths = {module["id"]: module["path"] for module in dump["modules"]}
    rows = {tensor: row for row, tensor in enumerate(statistics["tensor"])}
    columns = np.array([statistics[name] for name in COMPARED], np.float64)
    groups: dict[str, str] = {}  # tensor → the ranks that have the same
    for op in dump["ops"]:
        for each in op["outputs"] if op["name"] in SHARED and "ranks" in op["attributes"] else ():
            # Other tensors have no name of their own, and a rank may have more of them than another.
            of = tensors[each]["gradient_of"]
            if of is not None and tensors[of]["role"] == "parameter":
                groups[each] = groups[of] = op["attributes"]["ranks"]
            elif tensors[each]["role"] in ("buffer", "parameter"):
                groups[each] = op["attributes"]["ranks"]
    first = next((each for each in dump.get("faults", []) if each["kind"] == "first_nonfinite"), None)
    maker = ops[first["op"]] if first is not None and first["op"] is not None else None
    return _Rank(
        rank,
        world,
        environment.get("cpu_capability", ""),
        blake2b(orjson.dumps([(op["name"], op["phase"]) for op in dump["ops"]]), digest_size=16).hexdigest(),
        {each["name"]: _place(each, ops, paths) for each in reversed(dump["tensors"])},
        {
            (tensors[each]["name"], groups[each]): columns[:, rows[each]]
            for each in tensors
            if each in groups and each in rows
        },
        first,
        maker["name"] if maker is not None and "ranks" in maker["attributes"] else None,
    )


def _unequal(ranks: Sequence[_Rank]) -> list[Fault]:
    """The first tensor in which replicas differ."""
    differing: dict[tuple[str, str], list[_Rank]] = {}
    for key in dict.fromkeys(key for rank in ranks for key in rank.shared):
        having = [rank for rank in ranks if key in rank.shared]
        values = [rank.shared[key].tobytes() for rank in having]
        most = Counter(values).most_common(1)[0][0]  # the values of most ranks count as the right ones
        usual = having[values.index(most)]
        others = [
            rank
            for rank, value in zip(having, values, strict=True)
            if value != most and not _is_rounding(key, usual, rank)
        ]
        if others:
            differing[key] = [usual, *others]
    if not differing:
        return []
    key, (usual, *others) = next(iter(differing.items()))
    name, group = key
    a, b = usual.shared[key], others[0].shared[key]
    distances = {each: abs(a[at] - b[at]) / max(abs(a[at]), abs(b[at]), 1e-300) for at, each in _told()}
    worst = max(distances, key=lambda each: np.nan_to_num(distances[each], nan=-1))
    at = COMPARED.index(worst)
    message = (
        f"{name} should be equal on the ranks {group}, but differs on {_named(others)}: {worst} {b[at]:.9g} instead of "
        f"{a[at]:.9g}"
    )
    if len(differing) > 1:
        message += f". {len(differing) - 1} later tensors differ too"
    return [with_rule(Fault("replicas", message, tensor=name, remedy=REMEDY))]


def _told() -> Iterable[tuple[int, str]]:
    return ((COMPARED.index(name), name) for name in TOLD)


def _is_rounding(key: tuple[str, str], one: _Rank, other: _Rank) -> bool:
    """Whether processors of two kinds may have computed these statistics from the same values."""
    a, b = one.shared[key], other.shared[key]
    return one.processor != other.processor and np.allclose(a, b, rtol=TOLERANCE, atol=0, equal_nan=True)


def _gaps(ranks: Sequence[_Rank]) -> list[Fault]:
    """Ranks that are missing, and dumps that do not fit together."""
    world = Counter(rank.world for rank in ranks).most_common(1)[0][0]
    found = []
    if other := [rank for rank in ranks if rank.world != world]:
        message = f"{_named(other)}: the number of ranks is {other[0].world}, but {world} in the other files"
        found.append(Fault("replicas", message, level="unchecked"))
    if missing := sorted(set(range(world)) - {rank.rank for rank in ranks}):
        message = f"there is no file of {_named(missing)}: their tensors were not compared"
        found.append(Fault("replicas", message, level="unchecked"))
    graph = Counter(rank.graph for rank in ranks).most_common(1)[0][0]
    if other := [rank for rank in ranks if rank.graph != graph]:
        message = f"{_named(other)}: the graph is another one than on the other ranks; tensors are compared by name"
        found.append(Fault("replicas", message, level="note"))
    return found


def _spread(ranks: Sequence[_Rank]) -> Mapping[int, list[Fault]]:
    """For each rank, where NaN or Inf began and how it got there."""
    origins = [rank for rank in ranks if rank.fault is not None and rank.received is None]
    if not origins or len(ranks) < 2:
        return {}
    first = origins[0]
    assert first.fault is not None
    says = f"NaN or Inf begins on {_named(origins)}. {first.fault['message']}"
    ways: dict[str, list[_Rank]] = {}
    for rank in ranks:
        if rank.fault is not None and rank.received is not None:
            ways.setdefault(f"{rank.received} in {_name(rank, rank.fault['tensor'])}", []).append(rank)
    for way, there in ways.items():
        who = _named(there)
        says += f". {who[0].upper()}{who[1:]} {'receive' if len(there) > 1 else 'receives'} it by {way}"
    fault = Fault("first_nonfinite", says, remedy=first.fault["remedy"], rule=first.fault.get("rule"))
    at_origin = dataclasses.replace(fault, tensor=_name(first, first.fault["tensor"]))
    return {
        rank.rank: [
            _placed(at_origin, rank)
            if rank.fault is None
            else dataclasses.replace(
                _placed(dataclasses.replace(fault, tensor=_name(rank, rank.fault["tensor"])), rank),
                layers=tuple(rank.fault.get("layers", ())),
            )
        ]
        for rank in ranks
    }


def _name(rank: _Rank, tensor: str | None) -> str:
    return next((name for name, place in rank.places.items() if place["tensor"] == tensor), "")


def _place(tensor: Mapping[str, Any], ops: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """The place of a tensor in a fault: the op is the one that made it, or the first that reads it."""
    op = ops.get(tensor["producer"] or next(iter(tensor["consumers"]), ""))
    if op is None:
        return {"tensor": tensor["id"]}
    source = None if op["source"] is None else Source(**op["source"])
    return {"tensor": tensor["id"], "op": op["id"], "module": paths[op["module"]], "source": source}


def _placed(fault: Fault, rank: _Rank) -> Fault:
    """The fault at the place that a tensor of this name has on this rank."""
    return dataclasses.replace(fault, **rank.places.get(fault.tensor or "", {"tensor": None}))


def _named(ranks: Sequence[_Rank] | Sequence[int]) -> str:
    numbers = [each if isinstance(each, int) else each.rank for each in ranks]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"the ranks {ranges(numbers)}"
