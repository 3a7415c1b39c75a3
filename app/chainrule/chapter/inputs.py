"""What a page can be asked: named texts, as in a query string, each read by a rule of its own.

`read_inputs(inputs, {"m": "5", "k": "784"})` gives `{"m": 5, "k": 784, "n": 10}`: what is not given is at its default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from chainrule.errors import InputError

MAX_TEXT = 2000
"""Characters of one value; more are refused unread."""

MAX_NUMEL = 256
"""Elements of a tensor that is typed."""

Kind = Literal["text", "number", "choice", "flag"]


@dataclass(frozen=True, slots=True)
class Input:
    """One thing a page can be asked.

    Attributes:
        name: its key in the query string.
        default: the text that stands for it when it is not given; must itself read well.
        label: what its control is called.
        doc: what it means, in one sentence.
        read: text → value; raises ValueError with the reason where there is one to say.
        allowed: what it takes, in words.
        kind: how a form shows it.
        choices: all it takes, where that is a list.
        minimum: of a number.
        maximum: of a number.
    """

    name: str
    default: str
    label: str
    doc: str
    read: Callable[[str], Any]
    allowed: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def parse(self, text: str) -> Any:
        """The value of a text.

        Raises:
            InputError: it is not one; names the input, the text and what is allowed.
        """
        reason = ""
        if len(text) <= MAX_TEXT:
            try:
                return self.read(text)
            except ValueError as error:
                reason = f" ({error})" if str(error) else ""
        else:
            reason = f" (at most {MAX_TEXT} characters are read)"
        limit: Any = list(self.choices) or None
        if limit is None and self.minimum is not None:
            limit = {"minimum": self.minimum, "maximum": self.maximum}
        raise InputError(f"{self.name}: {_shown(text)} is not {self.allowed}{reason}", field=self.name, limit=limit)


def read_inputs(inputs: Sequence[Input], given: Mapping[str, str]) -> dict[str, Any]:
    """Every input's value by its name, from texts; what is not given is at its default.

    Raises:
        InputError: a name that is none of them, or a text that does not read as its input.
    """
    names = [each.name for each in inputs]
    for name in given:
        if name not in names:
            field = name if len(name) <= 40 else name[:39] + "…"
            raise InputError(
                f"{field}: not an input of this page, which are {', '.join(names) or 'none'}", field=field, limit=names
            )
    return {each.name: each.parse(given.get(each.name, each.default)) for each in inputs}


# ---------------------------------------------------------------------------------------------------------- the kinds


def integer(name: str, default: int, label: str, doc: str, *, minimum: int, maximum: int) -> Input:
    """An integer from `minimum` to `maximum`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,20}", text.strip()) or not minimum <= int(text) <= maximum:
            raise ValueError
        return int(text)

    allowed = f"an integer from {minimum} to {maximum}"
    return Input(name, str(default), label, doc, read, allowed, "number", minimum=minimum, maximum=maximum)


def number(name: str, default: str, label: str, doc: str, *, minimum: float, maximum: float) -> Input:
    """A finite number from `minimum` to `maximum`; `default` as it is to be written."""

    def read(text: str) -> float:
        value = read_number(text)
        if not minimum <= value <= maximum:  # NaN is not
            raise ValueError
        return value

    allowed = f"a number from {minimum:g} to {maximum:g}"
    return Input(name, default, label, doc, read, allowed, "number", minimum=minimum, maximum=maximum)


def choice(name: str, default: str, label: str, doc: str, *, choices: Sequence[str]) -> Input:
    """One of a few words."""
    words = tuple(choices)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Input(name, default, label, doc, read, f"one of {', '.join(words)}", "choice", choices=words)


def flag(name: str, default: bool, label: str, doc: str) -> Input:
    """True or false."""

    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError
        return text == "true"

    return Input(name, "true" if default else "false", label, doc, read, "true or false", "flag")


def text(name: str, default: str, label: str, doc: str, *, read: Callable[[str], Any], allowed: str) -> Input:
    """A text with a reader of its own, which raises ValueError for what it does not take."""
    return Input(name, default, label, doc, read, allowed)


def tensor(
    name: str,
    default: str,
    label: str,
    doc: str,
    *,
    max_numel: int = MAX_NUMEL,
    dims: tuple[int, ...] | None = None,
) -> Input:
    """A small tensor, typed out: `10,6,4`, rows set apart by semicolons, or nested brackets; see `read_tensor`.

    Args:
        name: see `Input`.
        default: see `Input`.
        label: see `Input`.
        doc: see `Input`.
        max_numel: elements it may have.
        dims: numbers of dimensions it may have; any by default.
    """

    def read(given: str) -> Tensor:
        value = read_tensor(given, max_numel=max_numel)
        if dims is not None and value.dim() not in dims:
            raise ValueError(f"it has {value.dim()} {'dimension' if value.dim() == 1 else 'dimensions'}")
        return value

    kinds: dict[tuple[int, ...], str] = {
        (0,): "a number",
        (1,): "a vector such as 1,2,3",
        (2,): "a matrix such as 1,2,3;4,5,6",
    }
    what = kinds.get(dims or (), "a tensor such as 1,2,3 or 1,2;3,4 or [[1,2],[3,4]]")
    return text(name, default, label, doc, read=read, allowed=f"{what}, of at most {max_numel} numbers")


# -------------------------------------------------------------------------------------------------------- the readers

_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}


def read_number(given: str) -> float:
    """A decimal number, or nan, inf, -inf. Raises ValueError with what was found in its place."""
    word = given.strip().replace("−", "-")
    if _DECIMAL.fullmatch(word):
        value = float(word)
        if math.isinf(value):
            raise ValueError(f"{_shown(given)} is too large for a float64; infinity is written inf")
        return value
    if word.lower() in _NON_FINITE:
        return _NON_FINITE[word.lower()]
    raise ValueError(f"{_shown(given)} is no number" if word else "a number is missing")


def read_shape(given: str, *, max_dims: int = 8) -> tuple[int, ...]:
    """`3,1,5` as a shape; `()` or nothing is a scalar's. Raises ValueError."""
    words = given.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
    if not words:
        return ()
    sizes = words.split(",")
    if len(sizes) > max_dims:
        raise ValueError(f"it has {len(sizes)} dimensions, at most {max_dims} are read")
    for size in sizes:
        if not re.fullmatch(r"\s*[0-9]{1,10}\s*", size):
            raise ValueError(f"{_shown(size)} is no size")
    return tuple(int(size) for size in sizes)


def read_shapes(given: str, *, max_dims: int = 8, max_count: int = 8) -> tuple[tuple[int, ...], ...]:
    """`3,2,5;3,5,4` as shapes. Raises ValueError."""
    parts = given.split(";")
    if len(parts) > max_count:
        raise ValueError(f"{len(parts)} shapes, at most {max_count} are read")
    return tuple(read_shape(part, max_dims=max_dims) for part in parts)


def read_tensor(given: str, *, max_numel: int = MAX_NUMEL) -> Tensor:
    """A tensor as it is typed: `10,6,4`; `1,2;3,4`, a row per part; `[[1,2],[3,4]]` of any depth; `5`, a scalar.

    Returns:
        A float32 tensor.

    Raises:
        ValueError: something in it is no number, its rows differ in length, or it has more than max_numel elements.
    """
    if given.count(",") + given.count(";") + 1 > max_numel:
        raise ValueError(f"more than {max_numel} numbers")
    words = given.strip()
    values = _nested(words) if words.startswith("[") else _rows(words)
    made = torch.tensor(values, dtype=torch.float64)
    rounded = made.float()
    if (rounded.isinf() & made.isfinite()).any():
        raise ValueError("a number is too large for float32; infinity is written inf")
    return rounded


def _rows(words: str) -> Any:
    if ";" in words:
        rows = [[read_number(each) for each in row.split(",")] for row in words.removesuffix(";").split(";")]
        for index, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise ValueError(f"row {index} has {len(row)} numbers, row 0 has {len(rows[0])}")
        return rows
    if "," in words:
        return [read_number(each) for each in words.removesuffix(",").split(",")]
    return read_number(words)


def _nested(words: str) -> Any:
    """Brackets within brackets, read without recursion; a comma may follow a list's last element, as in Python."""
    root: list[Any] = []
    open_lists = [root]
    # Of every depth, how long its lists are and whether they hold lists: a tensor's are all alike.
    forms: dict[int, tuple[int, bool]] = {}
    before = ","
    for token in (each.strip() for each in re.findall(r"\[|\]|,|[^\[\],]+", words)):
        if not token:
            continue
        starts = token not in ("]", ",")
        if starts and before not in (",", "["):
            raise ValueError(f"a comma is missing before {_shown(token)}")
        if token == "," and (before in (",", "[") or len(open_lists) == 1):
            raise ValueError("a comma too many")
        before = token
        if token == "[":
            if len(open_lists) > 8:
                raise ValueError("more than 8 dimensions")
            made: list[Any] = []
            open_lists[-1].append(made)
            open_lists.append(made)
        elif token == "]":
            closed = open_lists.pop()
            depth = len(open_lists)
            if depth == 0:
                raise ValueError("a ] too many")
            if len({isinstance(each, list) for each in closed}) > 1:
                raise ValueError("numbers and brackets side by side")
            form = (len(closed), any(isinstance(each, list) for each in closed))
            if forms.setdefault(depth, form) != form:
                raise ValueError(f"rows of {forms[depth][0]} and of {len(closed)} elements, or of different depths")
        elif token != ",":
            open_lists[-1].append(read_number(token))
    if len(open_lists) > 1:
        raise ValueError("a ] is missing")
    if len(root) != 1:
        raise ValueError("more than one tensor")
    return root[0]


def _shown(given: str) -> str:
    quoted = repr(given[:60])
    return quoted if len(given) <= 60 else quoted[:-1] + "…" + quoted[0]
