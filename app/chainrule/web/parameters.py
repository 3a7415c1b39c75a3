"""The parameters of single routes: `dump.json`, `tensor.json` and `theory.json`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from chainrule.errors import RequestError
from chainrule.export.options import invalid_parameter
from chainrule.run import MAX_VALUES
from chainrule.spec.data import DATA_SETS
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.values import Key

DEFAULT_RANGE = "0:5"
"""The default rows and columns of `tensor.json`: the chapter's `x[0:5, 0:5]`."""

WHOLE_DUMP, ITS_THEORY = "dump", "theory"
_unreadable = partial(RequestError, status=422)


def _read_index(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,6}", text) is None:
        raise ValueError
    return int(text)


def _read_part(text: str) -> str:
    if text not in (WHOLE_DUMP, ITS_THEORY):
        raise ValueError
    return text


DUMP_INDEX = Key(
    "index",
    "0",
    "text",
    "Index of the dump, from 0.",
    words="an integer from 0",
    reader=_read_index,
    error=_unreadable,
)
DUMP_PART = Key(
    "what",
    WHOLE_DUMP,
    "text",
    "The `dump` itself, or the `theory` of its layers, in the form of the live path's `theory` message.",
    words=f"{WHOLE_DUMP} or {ITS_THEORY}",
    reader=_read_part,
    error=_unreadable,
)


def _read_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    start, stop = (int(match[1]), int(match[2])) if match else (0, 0)
    if not start < stop <= start + MAX_VALUES:
        raise ValueError
    return start, stop


def window_keys(example: str) -> tuple[Key, ...]:
    """The keys of `tensor.json`: a tensor's name and ranges of its rows and columns."""
    name = Key(
        "name",
        None,
        "text",
        "The tensor.",
        words=f"a tensor's name, such as {example}",
        required=True,
        error=_unreadable,
    )
    rows = Key(
        "rows",
        DEFAULT_RANGE,
        "text",
        "First and last row.",
        words=f"a range such as 0:5 (the end is not included) of at most {MAX_VALUES}",
        reader=_read_range,
        error=partial(RequestError, status=422, code="invalid_range"),
        bound=MAX_VALUES,
    )
    return name, rows, replace(rows, name="cols", doc="First and last column.")


DATA_KEYS = (
    replace(
        KEY_BY_NAME["data"],
        doc="The data set.",
        choices=tuple(DATA_SETS),
        default=None,
        required=True,
        error=invalid_parameter,
    ),
    replace(
        KEY_BY_NAME["seed"],
        doc="Seed that draws the data set, or splits it into training and held-out samples.",
        error=invalid_parameter,
    ),
)

MAX_VARIANCE = 1e12
"""The largest σ_w² or σ_b² that can be asked for; a spec's σ_w² is at most 1024 · 10⁸."""

THEORY_KEYS = (
    replace(KEY_BY_NAME["activation"], doc="φ.", error=invalid_parameter),
    Key(
        "weight_variance",
        None,
        "float",
        "σ_w² = fan_in · Var(W). The default, 1/E[φ(z)²], keeps a variance of 1 without biases.",
        minimum=0,
        maximum=MAX_VARIANCE,
        error=invalid_parameter,
    ),
    Key(
        "bias_variance",
        0.0,
        "float",
        "σ_b², the variance of a bias.",
        minimum=0,
        maximum=MAX_VARIANCE,
        error=invalid_parameter,
    ),
)
