"""The source of a function, line by line, with the tokens that a page colours."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from textwrap import dedent

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

from chainrule.chapter.page import Listing

PACKAGE = Path(__file__).resolve().parents[1]

CLASSES: Sequence[tuple[_TokenType, str]] = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Number, "literal"),
    (String, "string"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Decorator, "decorator"),
    (Name.Builtin.Pseudo, "keyword"),
)
"""Token families and their classes in the style sheet."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source, by its number in its file, from 1: texts with the class of each, "" for plain.

    `change`: "new" if the previous listing lacks it, "old" if only the previous listing has it, else "".
    """

    number: int
    parts: tuple[tuple[str, str], ...]
    change: str = ""

    @property
    def text(self) -> str:
        """The line, without the indentation that all lines of the listing share."""
        return "".join(text for text, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Source:
    """A listing, ready to be shown: its file and first line, and its lines without docstrings."""

    name: str
    file: str
    first: int
    lines: tuple[Line, ...]


def read_listing(listing: Listing, others: Iterable[Listing] = ()) -> Source:
    """A listing's source, with marks on the lines that differ from those of its `previous`, one of `others`."""
    source = _read(listing)
    if listing.previous is None:
        return source
    previous = next(each for each in others if each.name == listing.previous)
    return replace(source, lines=_compared(_read(previous).lines, source.lines))


@cache
def _read(listing: Listing) -> Source:
    if isinstance(listing.of, Path):
        path, first, code, left_out = listing.of, 1, listing.of.read_text(encoding="utf-8"), set[int]()
    else:
        path = Path(inspect.getfile(listing.of)).resolve()
        block, first = inspect.getsourcelines(listing.of)
        code = dedent("".join(block))
        left_out = _docstring_lines(code)
    lines = [
        Line(first + index, parts)
        for index, parts in enumerate(_highlighted(path.name, code))
        if index + 1 not in left_out
    ]
    while lines and not lines[-1].text.strip():
        lines.pop()
    return Source(listing.name, path.relative_to(PACKAGE.parent).as_posix(), first, tuple(_single_spaced(lines)))


def _docstring_lines(code: str) -> set[int]:
    """Numbers of the lines of all docstrings, which the page replaces with its own text."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or ast.get_docstring(node) is None:
            continue
        if len(node.body) == 1:
            continue  # nothing else would be left of it
        docstring = node.body[0]
        found |= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return found


def _highlighted(file: str, code: str) -> list[tuple[tuple[str, str], ...]]:
    lines: list[list[tuple[str, str]]] = [[]]
    lexer = get_lexer_for_filename("x.cpp" if file.endswith(".cu") else file, stripnl=False)
    for token, text in lexer.get_tokens(code):
        kind = next((name for family, name in CLASSES if family in token.split()), "")
        for index, part in enumerate(text.split("\n")):
            if index:
                lines.append([])
            if part:
                lines[-1].append((part, kind))
    return [tuple(line) for line in lines]


def _single_spaced(lines: Sequence[Line]) -> list[Line]:
    """Drop the empty line that a docstring leaves at the head of a body, and repeated empty lines."""
    kept: list[Line] = []
    for line in lines:
        before = kept[-1].text.rstrip() if kept else ""
        if not line.text.strip() and (not before or before.endswith(":")):
            continue
        kept.append(line)
    return kept


def _compared(old: Sequence[Line], new: Sequence[Line]) -> tuple[Line, ...]:
    """The new lines with marks, each group preceded by the old lines that it replaces."""
    result: list[Line] = []
    matcher = SequenceMatcher(None, [line.text for line in old], [line.text for line in new], autojunk=False)
    for kind, old_start, old_stop, new_start, new_stop in matcher.get_opcodes():
        if kind == "equal":
            result += new[new_start:new_stop]
            continue
        result += [replace(line, change="old") for line in old[old_start:old_stop]]
        result += [replace(line, change="new") for line in new[new_start:new_stop]]
    return tuple(result)
