"""The axes of a sweep: a key, and the values that it takes.

    scale=0.5:2:64      64 values from 0.5 to 2, at equal distances
    lr=log:1e-3:1:32    32 values, each the same factor larger than the one before
    activation=tanh,relu

`depth` and `width` are axes too: the number of layers, and the width of the hidden layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.spec.keys import keys_of
from chainrule.spec.programs import DEFAULT, MAX_SIZE, PROGRAMS
from chainrule.spec.values import Key, shown, unknown_key, value_text

SHAPE_KEYS: Mapping[str, Key] = {
    "depth": Key(
        "depth",
        None,
        "int",
        "The number of layers.",
        minimum=1,
        maximum=PROGRAMS[DEFAULT].widths[1] - 1,
        error=SweepError,
    ),
    "width": Key(
        "width", None, "int", "The width of each hidden layer.", minimum=1, maximum=MAX_SIZE, error=SweepError
    ),
}
"""The axes that change the widths."""

_NO_AXES = ("program", "widths", "seed", "device")

AXIS_KEYS: Mapping[str, Key] = {
    **{name: key for name, key in keys_of(DEFAULT).items() if name not in _NO_AXES},
    **SHAPE_KEYS,
}
"""Every key that an axis can have."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key and its values; `over` is its text, `is_log` whether each value is a factor larger than the one before."""

    key: str
    values: tuple[Any, ...] = field(repr=False)
    over: str
    is_log: bool = False


def read_axis(over: str, keys: Mapping[str, Key] = AXIS_KEYS, owner: str = "an axis") -> Axis:
    """An axis from its text. It has as many values as `count_values` says: check that first.

    Raises:
        SweepError: the key is no axis, or the text is malformed or has a value that the key does not allow.
    """
    name, equals, text = over.partition("=")
    if not name:
        raise _malformed(over, "it has no key")
    if name not in keys:
        said = unknown_key(name, keys, owner)["message"].partition("; did you mean")
        hints = {"seed": "; give the number of seeds instead", "widths": "; use depth or width"}
        hint = hints.get(name, "") if keys is AXIS_KEYS else ""
        raise SweepError(f"over: {said[0]}" + (hint or "".join(said[1:])), field="over", limit=list(keys))
    if not equals or not text:
        raise _malformed(over, "it has no values")
    key = keys[name]
    parts = text.split(":")
    is_log = parts[0] == "log"
    if is_log:
        del parts[0]
    if len(parts) == 1 and not is_log:
        values = [key.read(each) for each in text.split(",")]
    elif len(parts) == 3 and key.kind in ("int", "float"):
        values = _spaced(key, over, parts, is_log)
    else:
        raise _malformed(over, f"{name} takes {key.allowed}")
    return Axis(name, tuple(dict.fromkeys(values)), over, is_log)


def read_axes(over: Sequence[str], keys: Mapping[str, Key] = AXIS_KEYS, owner: str = "an axis") -> list[Axis]:
    """All axes. Raises SweepError as `read_axis` does, and for a key that is given twice."""
    axes = [read_axis(text, keys, owner) for text in over]
    names = [axis.key for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise SweepError(f"over: {name} is given twice; give each axis once", field="over")
    return axes


def count_values(over: str) -> int:
    """The number of values in the text of an axis, as far as it can be read."""
    count = over.rpartition(":")[2]
    return int(count[:20]) if count.isascii() and count.isdigit() else over.count(",") + 1


def _spaced(key: Key, over: str, parts: list[str], is_log: bool) -> list[Any]:
    first, last = (key.read(each) for each in parts[:2])
    if not parts[2].isascii() or not parts[2].isdigit() or int(parts[2][:20]) < 1:
        raise _malformed(over, f"COUNT is {shown(parts[2])}; it must be an integer of at least 1")
    count = int(parts[2][:20])
    if is_log and not (first > 0 and last > 0):
        raise _malformed(over, "FROM and TO of a log axis must be above 0")
    steps = [0.0] if count == 1 else [step / (count - 1) for step in range(count)]
    if is_log:
        low, high = math.log(first), math.log(last)
        values = [math.exp(low + (high - low) * step) for step in steps]
    else:
        values = [first + (last - first) * step for step in steps]
    values[0] = first
    if count > 1:
        values[-1] = last
    return [round(value) for value in values] if key.kind == "int" else values


def with_axis(spec: ModelSpec, axis: str, value: Any) -> ModelSpec:
    """The spec with this value on an axis.

    Raises:
        SpecError: the value contradicts another key.
        SweepError: the net has no hidden layer, or hidden layers of different widths.
    """
    return spec.replace(**spec_change(spec, axis, value))


def spec_change(spec: ModelSpec, axis: str, value: Any) -> dict[str, Any]:
    """The key of the spec that an axis changes, and its new value; see `with_axis`."""
    if axis not in SHAPE_KEYS:
        return {axis: value}
    first, *hidden, last = spec.widths
    if len(set(hidden)) > 1 or (not hidden and (axis == "width" or value > 1)):
        raise SweepError(
            f"{axis}: needs hidden layers of one width; the widths are {value_text(spec.widths)}",
            field="widths",
        )
    if axis == "width":
        return {"widths": (first, *[value] * len(hidden), last)}
    return {"widths": (first, *hidden[:1] * (value - 1), last)}


def _malformed(over: str, why: str) -> SweepError:
    return SweepError(
        f"over: {shown(over)} is not KEY=FROM:TO:COUNT, KEY=log:FROM:TO:COUNT or KEY=VALUE,VALUE,…; {why}", field="over"
    )
