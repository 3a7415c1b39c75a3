"""The inputs of the chapter's pages: keys whose values are typed, as a query string has them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import InputError
from chainrule.spec.values import Key, shown

MAX_TEXT = 2000
"""Characters of one value; more are refused unread."""

MAX_NUMEL = 256
"""Elements of a tensor that is typed."""

Input = partial(Key, error=InputError)

NUMBER = (
    r"\s*([+\-−]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+\-−]?[0-9]{1,4})?"
    r"|[nN][aA][nN]|[+\-−]?[iI][nN][fF])\s*"
)
"""Matches every text that `read_number` takes, and some that it refuses. So do the patterns below."""

SHAPE = r"\s*\(?\s*([0-9]{1,10}\s*(,\s*[0-9]{1,10}\s*){0,7})?,?\s*\)?\s*"

_TENSORS = (
    (0, NUMBER),
    (1, rf"{NUMBER}((,{NUMBER})+,?|,)\s*"),
    (2, rf"{NUMBER}(,{NUMBER})*((;{NUMBER}(,{NUMBER})*)+;?|;)\s*"),
    (1, r"\s*\[[\s0-9.,+\-−eEaAnNiIfF\[\]]*\]\s*"),
    (2, r"\s*\[\s*\[[\s0-9.,+\-−eEaAnNiIfF\[\]]*\]\s*"),
)
"""The forms of a typed tensor, each with its number of dimensions."""


def integer(name: str, default: int, label: str, doc: str, *, minimum: int, maximum: int) -> Key:
    """An integer from `minimum` to `maximum`."""
    return Input(
        name,
        str(default),
        "int",
        doc,
        label=label,
        minimum=minimum,
        maximum=maximum,
        max_length=MAX_TEXT,
        reader=str.strip,
    )


def number(name: str, default: str, label: str, doc: str, *, minimum: float, maximum: float) -> Key:
    """A finite number from `minimum` to `maximum`."""
    return Input(
        name,
        default,
        "float",
        doc,
        label=label,
        minimum=minimum,
        maximum=maximum,
        max_length=MAX_TEXT,
        reader=read_number,
    )


def choice(name: str, default: str, label: str, doc: str, *, choices: Sequence[str]) -> Key:
    """One of a few words."""
    return Input(name, default, "choice", doc, label=label, choices=tuple(choices))


def flag(name: str, default: bool, label: str, doc: str) -> Key:
    """True or false."""
    return Input(name, "true" if default else "false", "flag", doc, label=label)


def text(
    name: str, default: str, label: str, doc: str, *, read: Callable[[str], Any], allowed: str, pattern: str = ""
) -> Key:
    """A text that `read` turns into its value."""
    return Input(
        name, default, "text", doc, label=label, words=allowed, pattern=pattern, max_length=MAX_TEXT, reader=read
    )


def tensor(
    name: str, default: str, label: str, doc: str, *, max_numel: int = MAX_NUMEL, dims: tuple[int, ...] = ()
) -> Key:
    """A small tensor, as `read_tensor` reads it; `dims` lists the allowed numbers of dimensions."""

    def read(given: str) -> Tensor:
        value = read_tensor(given, max_numel=max_numel)
        if dims and value.dim() not in dims:
            raise ValueError(f"it has {value.dim()} {'dimension' if value.dim() == 1 else 'dimensions'}")
        return value

    nouns: dict[tuple[int, ...], str] = {
        (0,): "a number",
        (1,): "a vector such as 1,2,3",
        (2,): "a matrix such as 1,2,3;4,5,6",
    }
    noun = nouns.get(dims, "a tensor such as 1,2,3 or 1,2;3,4 or [[1,2],[3,4]]")
    allowed = f"{noun}, of at most {max_numel} numbers"
    return text(name, default, label, doc, read=read, allowed=allowed, pattern=tensor_pattern(*dims))


def tensor_pattern(*dims: int) -> str:
    """A pattern that matches every typed tensor, or every one with these numbers of dimensions."""
    return "|".join(form for dim, form in _TENSORS if not dims or dim in dims)


_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}


def read_number(given: str) -> float:
    """A decimal number, or nan, inf, -inf. Raises ValueError."""
    word = given.strip().replace("−", "-")
    if _DECIMAL.fullmatch(word):
        value = float(word)
        if math.isinf(value):
            raise ValueError(f"{shown(given)} is too large for a float64; infinity is written inf")
        return value
    if word.lower() in _NON_FINITE:
        return _NON_FINITE[word.lower()]
    raise ValueError(f"{shown(given)} is no number" if word else "a number is missing")


def read_shape(given: str, *, max_dims: int = 8) -> tuple[int, ...]:
    """`3,1,5` as a shape; `()` or an empty text for a scalar. Raises ValueError."""
    words = given.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
    if not words:
        return ()
    sizes = words.split(",")
    if len(sizes) > max_dims:
        raise ValueError(f"it has {len(sizes)} dimensions, at most {max_dims} are read")
    for size in sizes:
        if not re.fullmatch(r"\s*[0-9]{1,10}\s*", size):
            raise ValueError(f"{shown(size)} is no size")
    return tuple(int(size) for size in sizes)


def read_shapes(given: str, *, max_dims: int = 8, max_count: int = 8) -> tuple[tuple[int, ...], ...]:
    """`3,2,5;3,5,4` as shapes. Raises ValueError."""
    parts = given.split(";")
    if len(parts) > max_count:
        raise ValueError(f"{len(parts)} shapes, at most {max_count} are read")
    return tuple(read_shape(part, max_dims=max_dims) for part in parts)


def read_tensor(given: str, *, max_numel: int = MAX_NUMEL) -> Tensor:
    """A float32 tensor from `10,6,4`, from `1,2;3,4` (rows), from `[[1,2],[3,4]]` (any depth) or from `5` (a scalar).

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
    """Nested brackets, read without recursion; a comma may follow a list's last element, as in Python."""
    root: list[Any] = []
    open_lists = [root]
    # Per depth, the length of its lists and whether they hold lists: in a tensor all are alike.
    forms: dict[int, tuple[int, bool]] = {}
    before = ","
    for token in (each.strip() for each in re.findall(r"\[|\]|,|[^\[\],]+", words)):
        if not token:
            continue
        starts = token not in ("]", ",")
        if starts and before not in (",", "["):
            raise ValueError(f"a comma is missing before {shown(token)}")
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
