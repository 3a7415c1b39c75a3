"""The code of the five styles side by side: forward beside forward, backward beside backward; and its length."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, NamedTuple

from chainrule.chapter.listings import read_listing
from chainrule.chapter.page import Listing
from chainrule.foundations import functions, layer_function, layers, modules
from chainrule.foundations.styles import STYLES

TITLES: Mapping[str, str] = {
    "functions": "functions",
    "classes": "classes",
    "layer_function": "LayerFunction",
    "autograd_function": "autograd.Function",
    "module": "nn.Module",
}
"""The chapter's names of the styles."""

STEPS: Mapping[str, str] = {
    "classes": "Each layer stores its own tensors, so backward needs no arguments. The backward pass is a loop over "
    "the layers instead of a list of calls in the correct order.",
    "layer_function": "A base class stores the tensors. A layer only defines forward, and bwd, which gets the tensors "
    "as arguments.",
    "autograd_function": "The model class, its loop, .g and the code that clears it are gone: autograd records the "
    "calls and calls backward. A function returns its gradients instead of adding them up, and names the tensors to "
    "save.",
    "module": "The backward functions are gone: torch's operations already have gradients. The module finds its "
    "parameters because they are attributes.",
}
"""The code that each style removes from the previous one."""

PAIRS = tuple(f"{one} to {other}" for one, other in pairwise(STYLES))
"""Every step from one style to the next."""

FORWARD, BACKWARD = "forward", "backward"
ONCE, MODEL = "once for all layers", "the model"

Cell = Sequence[Any]
"""Functions and methods, whose whole source is shown, and classes, whose first line is shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the model, its role, and its code in each style."""

    part: str
    role: str
    cells: tuple[Cell, ...]


def _rows(part: str, *cells: tuple[Any, ...]) -> tuple[Row, Row]:
    """The forward and the backward row of a part, from one cell per style of each, a source or a tuple of sources."""
    forward, backward = (
        Row(part, role, tuple(cell if isinstance(cell, tuple) else (cell,) for cell in of))
        for role, of in zip((FORWARD, BACKWARD), cells, strict=True)
    )
    return forward, backward


_MODEL = (layers.Model, layers.Model.__init__, layers.Model.parameters, layers.Model.__call__)
_GRADIENTS = (layers.accumulate, layers.zero_grad)
_BASE = layer_function.LayerFunction
_MODULE = (modules.Model.__init__, modules.Model.forward)

ROWS: Sequence[Row] = (
    Row(
        "lin",
        "made of",
        (
            (),
            (layers.Lin, layers.Lin.__init__),
            (layer_function.Lin, layer_function.Lin.__init__),
            (functions.LinearFunction,),
            (modules.Linear, modules.Linear.__init__),
        ),
    ),
    *_rows(
        "lin",
        (
            layers.lin,
            layers.Lin.__call__,
            layer_function.Lin.forward,
            functions.LinearFunction.forward,
            modules.Linear.forward,
        ),
        (layers.lin_grad, layers.Lin.backward, layer_function.Lin.bwd, functions.LinearFunction.backward, ()),
    ),
    *_rows(
        "relu",
        (
            layers.relu,
            (layers.Relu, layers.Relu.__call__),
            (layer_function.Relu, layer_function.Relu.forward),
            (functions.MyRelu, functions.MyRelu.forward),
            (),  # nn.ReLU
        ),
        (layers.relu_grad, layers.Relu.backward, layer_function.Relu.bwd, functions.MyRelu.backward, ()),
    ),
    *_rows(
        "mse",
        (
            layers.mse,
            (layers.Mse, layers.Mse.__call__),
            (layer_function.Mse, layer_function.Mse.forward),
            (functions.MseFunction, functions.MseFunction.forward),
            (modules.Mse, modules.Mse.forward, layers.mse),
        ),
        (layers.mse_grad, layers.Mse.backward, layer_function.Mse.bwd, functions.MseFunction.backward, ()),
    ),
    *_rows(
        ONCE,
        ((), _MODEL, (_BASE, _BASE.__call__, *_MODEL), (), (modules.Model, *_MODULE)),
        (
            _GRADIENTS,
            (*_GRADIENTS, layers.Model.backward),
            (*_GRADIENTS, _BASE.backward, layers.Model.backward),
            (),
            (),
        ),
    ),
    Row(MODEL, "both passes", ((layers.forward_and_backward,), *((STYLES[name],) for name in [*STYLES][1:]))),
)

TORCHS_OWN: Mapping[tuple[str, str], str] = {
    ("relu", FORWARD): "nn.ReLU, torch's own",
    ("lin", BACKWARD): "autograd",
    ("relu", BACKWARD): "autograd",
    ("mse", BACKWARD): "autograd",
    (ONCE, BACKWARD): "autograd",
}
"""Shown in nn.Module's empty cells."""


@cache
def side_by_side() -> dict[str, Any]:
    """{"styles": names and counts, "rows": a cell per style for each part, "pairs": paired lines, by PAIRS and row}."""
    rows: list[dict[str, Any]] = [
        {
            "part": row.part,
            "role": row.role,
            "cells": [
                {"code": _code(cell), "file": _file(cell), "instead": None if cell else _instead(row, style)}
                for style, cell in zip(STYLES, row.cells, strict=True)
            ],
        }
        for row in ROWS
    ]
    counted = [_count([row.cells[at] for row in ROWS]) for at in range(len(STYLES))]
    return {
        "styles": [
            {"name": name, "title": TITLES[name], "removes": STEPS.get(name), **counted[at]}
            for at, name in enumerate(STYLES)
        ],
        "rows": rows,
        "pairs": {
            name: [
                [
                    each._asdict()
                    for each in aligned(*([*map(_text, cell["code"])] for cell in row["cells"][at : at + 2]))
                ]
                for row in rows
            ]
            for at, name in enumerate(PAIRS)
        },
    }


ALIKE = 0.5
"""The least similarity of a pair of different lines, from 0 to 1, as difflib measures it."""

HEADS = ("def ", "class ")
"""Two lines that both begin like this may pair whatever their similarity."""


class Pairing(NamedTuple):
    """The index of a line of the left and of its partner on the right; None for a line without a partner."""

    left: int | None
    right: int | None
    same: bool


def aligned(left: Sequence[str], right: Sequence[str]) -> list[Pairing]:
    """Every line of both, in order, in pairs with the largest sum of similarities; indentation is ignored."""
    # best[i][j]: the largest sum for left[i:] and right[j:].
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    worth = [[_worth(one.strip(), other.strip()) for other in right] for one in left]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], worth[i][j] + best[i + 1][j + 1] if worth[i][j] else 0.0)
    found, i, j = list[Pairing](), 0, 0
    while i < len(left) and j < len(right):
        if worth[i][j] and best[i][j] == worth[i][j] + best[i + 1][j + 1]:
            found.append(Pairing(i, j, left[i].strip() == right[j].strip()))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            found.append(Pairing(i, None, False))
            i += 1
        else:
            found.append(Pairing(None, j, False))
            j += 1
    found += [Pairing(rest, None, False) for rest in range(i, len(left))]
    return found + [Pairing(None, rest, False) for rest in range(j, len(right))]


def _worth(one: str, other: str) -> float:
    if one == other:
        return 2.0
    alike = SequenceMatcher(None, one, other, autojunk=False).ratio()
    return alike if alike >= ALIKE or any(one.startswith(head) and other.startswith(head) for head in HEADS) else 0.0


def _instead(row: Row, style: str) -> str | None:
    place = (row.part, row.role)
    if style == "module":
        return TORCHS_OWN.get(place)
    return "autograd" if style == "autograd_function" and row.part == ONCE else None


def _code(cell: Cell) -> list[dict[str, Any]]:
    """The lines of a cell, as numbers and parts, without docstrings and checks of shapes."""
    lines = []
    has_class = any(inspect.isclass(of) for of in cell)
    for of in cell:
        source = read_listing(Listing(of.__qualname__, of))
        checks = set[int]() if inspect.isclass(of) else _check_lines(of)
        shown = source.lines[:1] if inspect.isclass(of) else source.lines
        # Methods are indented below their class.
        indent = "    " if has_class and "." in of.__qualname__ else ""
        for line in shown:
            if line.number in checks or not line.text.strip():
                continue
            parts = [(indent, ""), *line.parts] if indent else [*line.parts]
            lines.append({"number": line.number, "parts": parts})
    return lines


def _check_lines(of: Any) -> set[int]:
    """Numbers of the lines that check shapes, such as `if …: raise …` and `check_linear(…)`."""
    block, first = inspect.getsourcelines(of)
    found = set[int]()
    for node in ast.walk(ast.parse(dedent("".join(block)))):
        raises = isinstance(node, ast.If) and all(isinstance(each, ast.Raise) for each in node.body)
        calls = isinstance(node, ast.Expr) and ast.unparse(node).startswith(("check_linear(", "check_classes("))
        names = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in SHAPES_NAMED
        if isinstance(node, ast.stmt) and (raises or calls or names):
            found |= set(range(first + node.lineno - 1, first + (node.end_lineno or node.lineno)))
    return found


SHAPES_NAMED = ("(inp_shape, weight_shape)", "bias_shape")
"""Variables that only checks use."""


def _file(cell: Cell) -> str | None:
    return read_listing(Listing(cell[0].__qualname__, cell[0])).file if cell else None


def _count(cells: Sequence[Cell]) -> dict[str, int]:
    """The length of a style's code without comments, empty lines, docstrings and checks of shapes.

    Returns:
        {"lines", of which "per_layer" in lin, relu and mse, "once" for all layers, "per_model"; "backward": lines about
        gradients only; "names": different names}
    """
    places = {"lin": "per_layer", "relu": "per_layer", "mse": "per_layer", ONCE: "once", MODEL: "per_model"}
    counts = {"lines": 0, "per_layer": 0, "once": 0, "per_model": 0, "backward": 0}
    names = set[str]()
    for row, cell in zip(ROWS, cells, strict=True):
        # No line of `_code` is empty.
        found = sum(not _text(line).strip().startswith("#") for line in _code(cell))
        for place in ("lines", places[row.part], *(["backward"] if row.role == BACKWARD else [])):
            counts[place] += found
        for of in cell:
            names |= _names(of)
    return {**counts, "names": len(names)}


def _text(line: Mapping[str, Any]) -> str:
    return "".join(text for text, _kind in line["parts"])


def _names(of: Any) -> set[str]:
    """The identifiers in a function without annotations and checks, or the names of a class and its bases."""
    if inspect.isclass(of):
        return {of.__name__, *(base.__name__ for base in of.__bases__ if base is not object)}
    block, first = inspect.getsourcelines(of)
    checks = {number - first + 1 for number in _check_lines(of)}
    tree = ast.parse(dedent("".join(block))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    arguments = [*tree.args.args, tree.args.vararg, tree.args.kwarg]
    found = {tree.name, *(each.arg for each in arguments if each is not None)}
    for statement in tree.body:
        for node in ast.walk(statement):
            if getattr(node, "lineno", 0) in checks:
                continue
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found
