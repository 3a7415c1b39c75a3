"""`Key` declares a named value that a user may give: from it come its reading, errors, OpenAPI schema and control."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

from chainrule.errors import ChainruleError, SpecError

Kind = Literal["int", "float", "bool", "flag", "choice", "widths", "text"]


@dataclass(frozen=True, slots=True)
class Key:
    """A named value, given as text (query string, command line) or as JSON.

    Attributes:
        default: None for a value that is computed, or required.
        kind: `flag` is a bool that is always a text; `text` is read by `reader`, or has to match `pattern`.
        doc: its meaning, in a sentence.
        minimum, maximum: bounds of a number, or of each of the `widths`.
        lengths: the least and the greatest number of widths.
        label: the name of its control.
        words: the allowed values in words; needed for `text` only.
        pattern: a regular expression that matches all of its texts.
        max_length: of a text, in characters.
        reader: turns a text into a value before its kind is checked; raises ValueError, with a reason if it has one.
        error: the error that `read` raises.
        bound: the `limit` of that error, if the key has neither choices nor a minimum.
    """

    name: str
    default: int | float | bool | str | None
    kind: Kind
    doc: str
    choices: tuple[str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    lengths: tuple[int, int] = (1, 1)
    label: str = ""
    words: str = ""
    pattern: str = ""
    max_length: int | None = None
    reader: Callable[[str], Any] | None = None
    required: bool = False
    error: Callable[..., ChainruleError] = SpecError
    bound: Any = None

    def read(self, value: object) -> Any:
        """The value of a text or of a JSON value.

        Raises:
            ChainruleError: `error`; it names the key, the value and what is allowed.
        """
        try:
            if isinstance(value, str):
                if self.max_length is not None and len(value) > self.max_length:
                    raise ValueError(f"at most {self.max_length} characters are allowed")
                if self.reader is not None:
                    value = self.reader(value)
            return _READERS[self.kind](self, value)
        except ValueError as problem:
            reason = f"; {problem}" if str(problem) else ""
            message = f"{self.name}: {shown(value)} is not {self.allowed}{reason}"
            raise self.error(message, field=self.name, limit=self.limit) from None

    @property
    def limit(self) -> Any:
        """The allowed values, for programs: the choices, or the bounds."""
        if self.choices:
            return list(self.choices)
        return self.bound if self.minimum is None else {"minimum": self.minimum, "maximum": self.maximum}

    @property
    def allowed(self) -> str:
        """The allowed values in words: `a number from 0.0001 to 10000`."""
        if self.words:
            return self.words
        if self.kind in ("bool", "flag"):
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join(choice or "nothing" for choice in self.choices) if self.choices else ""
        between = f"from {number_text(self.minimum or 0)} to {number_text(self.maximum or 0)}"
        if self.kind != "widths":
            return f"{'an integer' if self.kind == 'int' else 'a number'} {between}"
        least, most = self.lengths
        if most == 1:
            return f"one integer {between}"
        if least == most:
            return f"{least} integers {between} separated by a comma"
        return f"{least} to {most} integers {between} separated by commas, where 100x3 stands for 100,100,100"

    @property
    def description(self) -> str:
        """Its meaning and the allowed values, in sentences."""
        return f"{self.doc} {self.allowed[0].upper()}{self.allowed[1:]}." if self.allowed else self.doc

    def holds(self, value: int | float) -> bool:
        """Whether a number is in range; NaN never is."""
        return (self.minimum is None or self.minimum <= value) and (self.maximum is None or value <= self.maximum)

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema, as OpenAPI 3.0 has it."""
        schema: dict[str, Any] = {"type": _SCHEMA_TYPES.get(self.kind, "string")}
        if self.kind == "widths":
            schema["pattern"] = r"^[0-9]+(x[0-9]+)?(,[0-9]+(x[0-9]+)?)*$"
        elif self.kind == "text":
            bounds = {"minLength": 1 if self.required else None, "maxLength": self.max_length}
            schema |= {name: value for name, value in bounds.items() if value is not None}
            if self.pattern:
                schema["pattern"] = f"^({self.pattern})$"
        elif self.minimum is not None:
            schema |= {"minimum": self.minimum, "maximum": self.maximum}
        elif self.kind == "flag":
            schema["enum"] = ["true", "false"]
        elif self.choices:
            schema["enum"] = list(self.choices)
        if self.default is not None:
            schema["default"] = self.read(self.default) if self.kind in ("int", "float") else self.default
        return schema


_SCHEMA_TYPES = {"int": "integer", "float": "number", "bool": "boolean"}


def read_keys(
    keys: Sequence[Key], given: Mapping[str, object], owner: str, error: Callable[..., ChainruleError] = SpecError
) -> dict[str, Any]:
    """Every key's value by its name: given, or its default, or None.

    Raises:
        ChainruleError: a value is malformed, or a required one is missing; `error` for a name that is not a key of the
            `owner`.
    """
    names = [key.name for key in keys]
    for name in given:
        if name not in names:
            raise error(**unknown_key(name, names, owner))
    values = {}
    for key in keys:
        value = given.get(key.name, key.default)
        if key.required and value in (None, ""):
            raise key.error(f"{key.name}: missing; expected {key.allowed}", field=key.name)
        values[key.name] = None if value is None else key.read(value)
    return values


def unknown_key(name: str, names: Iterable[str], owner: str) -> dict[str, Any]:
    """Arguments of the error for a name that is not one of the owner's keys."""
    field, known = name if len(name) <= 40 else name[:39] + "…", list(names)
    near = closest(name, known)
    keys = f"the keys of {owner} are {', '.join(known)}" if known else f"{owner} has no keys"
    message = f"{field}: unknown key; {keys}{near and f'; {near}'}"
    return {"message": message, "field": field, "limit": known or None}


def shown(value: object) -> str:
    """A value for an error message, shortened."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of more than 77 digits"
    text = repr(value[:80]) if isinstance(value, str | list | tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[0]


def closest(name: str, names: list[str]) -> str:
    """`did you mean 'x'?`, or "" if no name is near. A long name is cut, since the comparison takes time."""
    near = difflib.get_close_matches(name[:40], names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def _read_int(key: Key, value: object) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not key.holds(number):
        raise ValueError
    return number


_DECIMAL = re.compile(r"-?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")


def _read_float(key: Key, value: object) -> float:
    number = float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    # The range also refuses NaN, and an integer too large for a float before it is converted.
    if isinstance(number, bool) or not isinstance(number, int | float) or not key.holds(number):
        raise ValueError
    # Adding 0.0 turns -0.0 into 0.0, so that equal specs have equal queries.
    return float(number) + 0.0


def _read_bool(_: Key, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


def _read_choice(key: Key, value: object) -> str:
    # The choices of some keys are known only later, such as the groups of a user's model.
    if isinstance(value, str) and (value in key.choices or not key.choices):
        return value
    raise ValueError(closest(value, list(key.choices)) if isinstance(value, str) else "")


_RUN = re.compile(r"([0-9]{1,10})(?:x([0-9]{1,10}))?")


def _read_widths(key: Key, value: object) -> tuple[int, ...]:
    """`100,50x2,1`, or a list of integers. A run is counted before it is expanded: `100x999999999` costs nothing."""
    widths: list[int] = []
    least, most = key.lengths
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, str):
        # No more than `most` parts can be right.
        for part in value.split(",", most):
            run = _RUN.fullmatch(part)
            if run is None:
                raise ValueError(f"{shown(part)} is neither a width nor a repetition")
            width, count = int(run[1]), int(run[2] or 1)
            if count < 1 or len(widths) + count > most:
                raise ValueError
            widths.extend([width] * count)
    elif isinstance(value, list | tuple) and len(value) <= most:
        for width in value:
            if isinstance(width, bool) or not isinstance(width, int):
                raise ValueError(f"{shown(width)} is not an integer")
            widths.append(width)
    else:
        raise ValueError
    for width in widths:
        if not key.holds(width):
            raise ValueError(f"{width} is out of range")
    if len(widths) < least:
        raise ValueError(f"at least {least} are needed")
    return tuple(widths)


def _read_text(key: Key, value: object) -> Any:
    if key.reader is None and not (isinstance(value, str) and re.fullmatch(key.pattern or ".*", value)):
        raise ValueError
    return value


_READERS: Mapping[Kind, Callable[[Key, object], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "flag": _read_bool,
    "choice": _read_choice,
    "widths": _read_widths,
    "text": _read_text,
}


def widths_text(widths: tuple[int, ...]) -> str:
    """Widths as a query string has them, runs compressed: `(100, 100, 1)` is `100x2,1`."""
    runs = ((width, sum(1 for _ in run)) for width, run in groupby(widths))
    return ",".join(f"{width}x{count}" if count > 1 else str(width) for width, count in runs)


def number_text(value: int | float) -> str:
    """The shortest decimal text of a number, as JavaScript's `String(value)` writes it: the page's links are equal."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f")
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def value_text(value: object) -> str:
    """A value as the query string has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return widths_text(value)
    return number_text(value) if isinstance(value, int | float) else str(value)
