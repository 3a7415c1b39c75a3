"""The inputs of the chapter's pages: keys whose values are typed, as a query string has them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import InputError
from chainrule.spec.values import Key, shown

MAX_TEXT = 2000
"""Characters of one value; more are refused unread."""

MAX_NUMEL = 256
"""Elements of a tensor that is typed."""

MAX_DIMS = 8

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

_NOUNS: dict[tuple[int, ...], str] = {
    (0,): "a number",
    (1,): "a vector such as 1,2,3",
    (2,): "a matrix such as 1,2,3;4,5,6",
}

_input = partial(Key, error=InputError, max_length=MAX_TEXT)


def integer(name: str, default: int, doc: str, minimum: int, maximum: int) -> Key:
    """An integer from `minimum` to `maximum`."""
    return _input(name, str(default), "int", doc, label=name, minimum=minimum, maximum=maximum, reader=str.strip)


def seed_input(doc: str) -> Key:
    """The seed of a page's draws."""
    return integer("seed", 42, doc, 0, 2**31 - 1)


def number(name: str, default: str, doc: str, minimum: float, maximum: float) -> Key:
    """A finite number from `minimum` to `maximum`."""
    return _input(name, default, "float", doc, label=name, minimum=minimum, maximum=maximum, reader=read_number)


def choice(name: str, default: str, doc: str, choices: Sequence[str], *, label: str = "") -> Key:
    """One of a few words."""
    return _input(name, default, "choice", doc, label=label or name, choices=tuple(choices))


def flag(name: str, default: bool, doc: str, *, label: str = "") -> Key:
    """True or false."""
    return _input(name, str(default).lower(), "flag", doc, label=label or name)


def text(
    name: str, default: str, doc: str, read: Callable[[str], Any], allowed: str, pattern: str = "", *, label: str = ""
) -> Key:
    """A text that `read` turns into its value."""
    return _input(name, default, "text", doc, label=label or name, words=allowed, pattern=pattern, reader=read)


def tensor(name: str, default: str, doc: str, max_numel: int, *, dims: tuple[int, ...] = (), label: str = "") -> Key:
    """A small tensor, as `read_tensor` reads it; `dims` lists the allowed numbers of dimensions."""

    def read(given: str) -> Tensor:
        value = read_tensor(given, max_numel=max_numel)
        if dims and value.dim() not in dims:
            raise ValueError(f"it has {value.dim()} {'dimension' if value.dim() == 1 else 'dimensions'}")
        return value

    noun = _NOUNS.get(dims, "a tensor such as 1,2,3 or 1,2;3,4 or [[1,2],[3,4]]")
    allowed = f"{noun}, of at most {max_numel} numbers"
    return text(name, default, doc, read, allowed, tensor_pattern(*dims), label=label)


def tensor_pattern(*dims: int) -> str:
    """A pattern that matches every typed tensor, or every one with these numbers of dimensions."""
    return "|".join(form for dim, form in _TENSORS if not dims or dim in dims)


def read_number(given: str) -> float:
    """A decimal number, or nan, inf, -inf. Raises ValueError."""
    if not re.fullmatch(NUMBER, given):
        raise ValueError(f"{shown(given)} is not a number" if given.strip() else "a number is missing")
    value = float(given.replace("−", "-"))
    if math.isinf(value) and "inf" not in given.lower():
        raise ValueError(f"{shown(given)} is too large for a float64; infinity is written inf")
    return value


def read_shape(given: str) -> tuple[int, ...]:
    """`3,1,5` as a shape; `()` or an empty text for a scalar. Raises ValueError."""
    words = given.strip().removeprefix("(").removesuffix(")").strip().removesuffix(",")
    sizes = words.split(",") if words else []
    if len(sizes) > MAX_DIMS:
        raise ValueError(f"it has {len(sizes)} dimensions, at most {MAX_DIMS} are allowed")
    for size in sizes:
        if not re.fullmatch(r"\s*[0-9]{1,10}\s*", size):
            raise ValueError(f"{shown(size)} is not a size")
    return tuple(map(int, sizes))


def read_shapes(given: str, max_count: int) -> tuple[tuple[int, ...], ...]:
    """`3,2,5;3,5,4` as shapes. Raises ValueError."""
    parts = given.split(";")
    if len(parts) > max_count:
        raise ValueError(f"{len(parts)} shapes, at most {max_count} are allowed")
    return tuple(map(read_shape, parts))


def read_tensor(given: str, *, max_numel: int = MAX_NUMEL) -> Tensor:
    """A float32 tensor from `10,6,4`, from `1,2;3,4` (rows), from `[[1,2],[3,4]]` (any depth) or from `5` (a scalar).

    Raises:
        ValueError: something in it is no number, its rows differ in length, or it has more than max_numel elements.
    """
    if given.count(",") + given.count(";") + 1 > max_numel:
        raise ValueError(f"more than {max_numel} numbers")
    words = given.strip()
    values = _nested(words) if words.startswith("[") else _rows(words)
    try:
        made = torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError):
        raise ValueError("its rows differ in length or depth") from None
    rounded = made.float()
    if (rounded.isinf() & made.isfinite()).any():
        raise ValueError("a number is too large for float32; infinity is written inf")
    return rounded


def _rows(words: str) -> Any:
    if ";" in words:
        return [[read_number(each) for each in row.split(",")] for row in words.removesuffix(";").split(";")]
    if "," in words:
        return [read_number(each) for each in words.removesuffix(",").split(",")]
    return read_number(words)


def _nested(words: str) -> Any:
    """Nested brackets, which are JSON once the numbers are; a comma may follow a list's last element."""
    if max(accumulate((each == "[") - (each == "]") for each in words)) > MAX_DIMS:
        raise ValueError(f"more than {MAX_DIMS} dimensions")
    numbers = re.sub(r"[^\[\],]+", lambda part: json.dumps(read_number(part[0])) if part[0].strip() else "", words)
    try:
        return json.loads(re.sub(r"(?<!\[),\]", "]", numbers))
    except json.JSONDecodeError:
        raise ValueError("its brackets and commas do not match") from None
