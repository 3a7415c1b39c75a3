"""The code of the five styles side by side: forward beside forward, backward beside backward; and its length."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any

from chainrule.chapter.line_alignment import Pairing, aligned
from chainrule.chapter.listings import read_listing
from chainrule.chapter.page import Listing
from chainrule.foundations import functions, layer_function, layers, modules, styles
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
    "classes": "A layer remembers its own tensors. Nothing is handed to backward any more, so the backward pass is a "
    "loop over the layers instead of a list of calls that has to be kept in order.",
    "layer_function": "The remembering goes into a base class. What is left of a layer is what only it can know: "
    "forward, and bwd, which is given the tensors.",
    "autograd_function": "Model, its loop, .g and its clearing go: autograd records what was called and calls backward "
    "itself. A function returns its gradients instead of adding them up, and says what it saves.",
    "module": "The backward functions go: whatever is made of torch's operations has its gradient already. Parameters "
    "are found by being attributes.",
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


def _row(part: str, role: str, *cells: Any) -> Row:
    """A row whose cells are one source each, or a tuple of sources."""
    return Row(part, role, tuple(cell if isinstance(cell, tuple) else (cell,) for cell in cells))


_MODEL = (layers.Model, layers.Model.__init__, layers.Model.parameters, layers.Model.__call__)
_GRADIENTS = (layers.accumulate, layers.zero_grad)
_BASE = layer_function.LayerFunction

ROWS: Sequence[Row] = (
    _row(
        "lin",
        "made of",
        (),
        (layers.Lin, layers.Lin.__init__),
        (layer_function.Lin, layer_function.Lin.__init__),
        functions.LinearFunction,
        (modules.Linear, modules.Linear.__init__),
    ),
    _row(
        "lin",
        FORWARD,
        layers.lin,
        layers.Lin.__call__,
        layer_function.Lin.forward,
        functions.LinearFunction.forward,
        modules.Linear.forward,
    ),
    _row(
        "lin",
        BACKWARD,
        layers.lin_grad,
        layers.Lin.backward,
        layer_function.Lin.bwd,
        functions.LinearFunction.backward,
        (),
    ),
    _row(
        "relu",
        FORWARD,
        layers.relu,
        (layers.Relu, layers.Relu.__call__),
        (layer_function.Relu, layer_function.Relu.forward),
        (functions.MyRelu, functions.MyRelu.forward),
        (),  # nn.ReLU
    ),
    _row(
        "relu", BACKWARD, layers.relu_grad, layers.Relu.backward, layer_function.Relu.bwd, functions.MyRelu.backward, ()
    ),
    _row(
        "mse",
        FORWARD,
        layers.mse,
        (layers.Mse, layers.Mse.__call__),
        (layer_function.Mse, layer_function.Mse.forward),
        (functions.MseFunction, functions.MseFunction.forward),
        (modules.Mse, modules.Mse.forward, layers.mse),
    ),
    _row(
        "mse",
        BACKWARD,
        layers.mse_grad,
        layers.Mse.backward,
        layer_function.Mse.bwd,
        functions.MseFunction.backward,
        (),
    ),
    _row(
        ONCE,
        FORWARD,
        (),
        _MODEL,
        (_BASE, _BASE.__call__, *_MODEL),
        (),
        (modules.Model, modules.Model.__init__, modules.Model.forward),
    ),
    _row(
        ONCE,
        BACKWARD,
        _GRADIENTS,
        (*_GRADIENTS, layers.Model.backward),
        (*_GRADIENTS, _BASE.backward, layers.Model.backward),
        (),
        (),
    ),
    _row(
        MODEL,
        "both passes",
        layers.forward_and_backward,
        styles.with_classes,
        styles.with_layer_function,
        styles.with_autograd_function,
        styles.with_module,
    ),
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
            name: [[beside._asdict() for beside in _beside(row["cells"][at], row["cells"][at + 1])] for row in rows]
            for at, name in enumerate(PAIRS)
        },
    }


def _beside(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Pairing]:
    return aligned(
        *(["".join(text for text, _kind in line["parts"]) for line in cell["code"]] for cell in (one, other))
    )


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
        found = sum(1 for line in _code(cell) if _is_code(line))
        for place in ("lines", places[row.part], *(["backward"] if row.role == BACKWARD else [])):
            counts[place] += found
        for of in cell:
            names |= _names(of)
    return {**counts, "names": len(names)}


def _is_code(line: Mapping[str, Any]) -> bool:
    text = "".join(text for text, _kind in line["parts"]).strip()
    return bool(text) and not text.startswith("#")


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
