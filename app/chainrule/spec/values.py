"""How the values of a spec's keys are read, from strings and from JSON alike, and what is said of one that is wrong."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from chainrule.errors import SpecError
from chainrule.spec.keys import Kind, SpecKey


def read_value(key: SpecKey, value: object) -> Any:
    """The value of a key: a number, a truth value, a word, or the widths as integers.

    Raises:
        SpecError: it is not one that the key takes; names the key, the value and what is allowed.
    """
    return READERS[key.kind](key, value)


def shown(value: object) -> str:
    """A value as an error message quotes it: short, whatever was sent."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of more than 77 digits"
    text = repr(value[:80]) if isinstance(value, str | list | tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[0]


def bad_value(key: SpecKey, value: object, *, because: str = "") -> SpecError:
    """The error for a value that a key does not take: key, value and what is allowed."""
    limit: object = list(key.choices) or None
    if limit is None and key.minimum is not None:
        limit = {"minimum": key.minimum, "maximum": key.maximum}
    reason = f" ({because})" if because else ""
    return SpecError(f"{key.name}: {shown(value)} is not {key.allowed}{reason}", field=key.name, limit=limit)


def closest(name: str, names: list[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no name is near. The cut keeps a very long name from costing time."""
    near = difflib.get_close_matches(name[:40], names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _read_int(key: SpecKey, value: object) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not key.holds(number):
        raise bad_value(key, value)
    return number


_DECIMAL = re.compile(r"-?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")


def _read_float(key: SpecKey, value: object) -> float:
    number = float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    # The range also refuses NaN, and an integer too large for a float before it is converted.
    if isinstance(number, bool) or not isinstance(number, int | float) or not key.holds(number):
        raise bad_value(key, value)
    # Adding 0.0 turns -0.0 into 0.0, so that equal specs have equal queries.
    return float(number) + 0.0


def _read_bool(key: SpecKey, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise bad_value(key, value)


def _read_choice(key: SpecKey, value: object) -> str:
    if isinstance(value, str) and value in key.choices:
        return value
    error = bad_value(key, value)
    if isinstance(value, str):
        near = closest(value, list(key.choices))
        error = SpecError(error.message + near, field=error.field, limit=error.limit)
    raise error


_RUN = re.compile(r"([0-9]{1,10})(?:x([0-9]{1,10}))?")


def _read_widths(key: SpecKey, value: object) -> tuple[int, ...]:
    """`100,50x2,1`, or a list of integers. Runs are counted before they are made: `100x999999999` costs nothing."""
    widths: list[int] = []
    least, most = key.lengths
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, str):
        # At most this many parts can be right, so no more than that are cut.
        for part in value.split(",", most):
            run = _RUN.fullmatch(part)
            if run is None:
                raise bad_value(key, value, because=f"{shown(part)} is neither a width nor a repetition")
            width, count = int(run[1]), int(run[2] or 1)
            if count < 1 or len(widths) + count > most:
                raise bad_value(key, value)
            widths.extend([width] * count)
    elif isinstance(value, list | tuple) and len(value) <= most:
        for width in value:
            if isinstance(width, bool) or not isinstance(width, int):
                raise bad_value(key, value, because=f"{shown(width)} is not an integer")
            widths.append(width)
    else:
        raise bad_value(key, value)
    for width in widths:
        if not key.holds(width):
            raise bad_value(key, value, because=f"{width} is out of range")
    if len(widths) < least:
        raise bad_value(key, value, because=f"{least} are needed")
    return tuple(widths)


READERS: Mapping[Kind, Callable[[SpecKey, object], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "choice": _read_choice,
    "widths": _read_widths,
}
