"""How an einsum is written: as an equation, or with a list of numbers after each operand.

    "bij,bjk->bik"                                          an equation: letters, one per dimension; parse
    As, [0, 1, 2], Bs, [0, 2, 3], [0, 1, 3]                 the same as sublists; parse_sublists, to_sublists

The rules are PyTorch's. An index is a letter, a-z or A-Z. `...` stands for all dimensions of an operand that have no
letter, at most once per operand. Spaces are ignored, but not inside `->` or `...`. Without an arrow the output is
implicit: the dimensions of `...`, then the letters that occur exactly once, capitals first, each in alphabetical order.

The chapter's own rules (`CHAPTER_RULES`) are those of Einstein's convention, and stricter: `broken_rules` says by which
indices. A term is what is multiplied, the operands together; `bi,ij,bj->b` keeps to the second rule, since b stands in
it twice, and breaks the first, since b is repeated and yet kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ELLIPSIS = "..."

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""All indices there are, in PyTorch's order: number n of a sublist is letter n."""


class EinsumError(ValueError):
    """An einsum that makes no sense, and where.

    Attributes:
        position: of the character at fault, counted in the text that was read; its length at the end of that text.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class Subscript:
    """An index where it is written: its letter or `...`, and its position in the equation."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation, read.

    Attributes:
        text: as it was written.
        operands: the subscripts of each operand.
        starts: where each operand's subscripts begin in the text.
        output: the subscripts of the result, without positions of their own where the output is implicit.
        explicit: whether there is an arrow.
    """

    text: str
    operands: tuple[tuple[Subscript, ...], ...]
    starts: tuple[int, ...]
    output: tuple[Subscript, ...]
    explicit: bool

    @property
    def letters(self) -> list[str]:
        """Every letter once, in PyTorch's order."""
        return sorted({each.name for operand in self.operands for each in operand if each.name != ELLIPSIS})


# ---------------------------------------------------------------------------------------------------------- equations


def parse(text: str) -> Equation:
    """Read an equation, such as `ij,jk->ik`.

    Raises:
        EinsumError: a character that means nothing there, an ellipsis that is not three points or is one too many, an
            output index that is repeated or is in no operand.

    Source: ch. 17, "Einstein Summation"; rules of torch.einsum.
    """
    left, arrow, right = text.partition("->")
    operands: list[tuple[Subscript, ...]] = []
    starts: list[int] = []
    start = 0
    for part in left.split(","):
        operands.append(_subscripts(part, start, f"operand {len(operands)}"))
        starts.append(start + len(part) - len(part.lstrip(" ")))
        start += len(part) + 1
    counts = Counter(each.name for operand in operands for each in operand)
    if arrow:
        output = _output(right, len(left) + len(arrow), counts)
    else:
        once = sorted(name for name, count in counts.items() if count == 1 and name != ELLIPSIS)
        output = tuple(Subscript(name, len(text)) for name in [ELLIPSIS] * (ELLIPSIS in counts) + once)
    return Equation(text, tuple(operands), tuple(starts), output, bool(arrow))


def _subscripts(part: str, start: int, where: str) -> tuple[Subscript, ...]:
    """The indices in one part of an equation, which begins at `start`."""
    found: list[Subscript] = []
    position = 0
    while position < len(part):
        character = part[position]
        at = start + position
        if character in LETTERS:
            found.append(Subscript(character, at))
        elif character == ".":
            if any(each.name == ELLIPSIS for each in found):
                raise EinsumError(f"{where} already has an ellipsis: `...` is allowed once in each", at)
            if not part.startswith(ELLIPSIS, position):
                raise EinsumError(
                    f"a point in {where} that is not part of an ellipsis: an ellipsis has three points, `...`", at
                )
            found.append(Subscript(ELLIPSIS, at))
            position += 2
        elif character != " ":
            raise EinsumError(_meaningless(character, part[position:], where), at)
        position += 1
    return tuple(found)


def _meaningless(character: str, rest: str, where: str) -> str:
    """Why a character cannot stand in an equation."""
    if where == "the output":
        if rest.startswith("->"):
            return "a second arrow: an equation has one arrow, before its output"
        if character == ",":
            return "a comma in the output: the result is one tensor"
    if character in "->":
        return f"'{character}' alone is not an arrow: the arrow is '->', without a space"
    if character.isdigit():
        return f"'{character}' is not an index: in an equation indices are letters; numbers belong in sublists"
    return f"{character!r} is not an index: indices are the letters a-z and A-Z"


def _output(right: str, start: int, counts: Counter[str]) -> tuple[Subscript, ...]:
    """The indices right of the arrow. Raises EinsumError for the first of several faults, as PyTorch does."""
    try:
        output = _subscripts(right, start, "the output")
    except EinsumError as error:
        _check_output(_subscripts(right[: error.position - start], start, "the output"), counts)
        raise
    _check_output(output, counts)
    return output


def _check_output(output: Sequence[Subscript], counts: Counter[str]) -> None:
    seen: set[str] = set()
    for each in output:
        if each.name == ELLIPSIS:
            continue  # where no operand has one, it stands for no dimension
        if each.name in seen:
            raise EinsumError(
                f"'{each.name}' is repeated in the output: each dimension of the result needs its own index",
                each.position,
            )
        if each.name not in counts:
            raise EinsumError(f"'{each.name}' is in the output, but in no operand: its size is unknown", each.position)
        seen.add(each.name)


# ------------------------------------------------------------------------------------------------ the chapter's rules

CHAPTER_RULES = (
    "Repeated indices are implicitly summed over.",
    "Each index can appear at most twice in any term.",
    "Each term must contain identical non-repeated indices.",
)
"""Einstein's summation convention, in the chapter's words."""


def broken_rules(equation: Equation) -> tuple[list[str], list[str], list[str]]:
    """The letters that break each of `CHAPTER_RULES`. PyTorch computes such an equation all the same.

    The left side is one term, the product of all operands, and the output is the other. So the rules are broken by

        1. an index that is repeated on the left and yet kept: a batch index, or a diagonal
        2. an index that stands on the left three times or more
        3. an index that stands on the left once and not in the output: it is summed without being repeated

    An equation without an arrow can break the second alone.

    Source: ch. 17, "Einstein Summation".
    """
    counts = Counter(each.name for operand in equation.operands for each in operand)
    kept = {each.name for each in equation.output}
    letters = equation.letters
    return (
        [name for name in letters if counts[name] > 1 and name in kept],
        [name for name in letters if counts[name] > 2],
        [name for name in letters if counts[name] == 1 and name not in kept],
    )


# ----------------------------------------------------------------------------------------------------------- sublists

Sublist = list[object]
"""Indices as PyTorch takes them: numbers from 0 to 51, and at most one `...` (Ellipsis)."""


def to_sublists(equation: Equation) -> tuple[list[Sublist], Sublist | None]:
    """The sublists of an equation: one per operand, and that of the output, None where it is implicit.

    Letters are numbered in PyTorch's order, so that an implicit output keeps its order too.
    """
    numbers: dict[str, object] = {name: number for number, name in enumerate(equation.letters)} | {ELLIPSIS: ...}
    operands: list[Sublist] = [[numbers[each.name] for each in operand] for operand in equation.operands]
    return operands, [numbers[each.name] for each in equation.output] if equation.explicit else None


def write_sublists(operands: Sequence[Sublist], output: Sublist | None, names: Sequence[str]) -> str:
    """The call as it is written: `torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2])`."""
    lists = [", ".join("..." if each is ... else str(each) for each in sublist) for sublist in operands]
    arguments = [f"{name}, [{sublist}]" for name, sublist in zip(names, lists, strict=True)]
    if output is not None:
        arguments.append(f"[{', '.join('...' if each is ... else str(each) for each in output)}]")
    return f"torch.einsum({', '.join(arguments)})"


def parse_sublists(text: str, operand_count: int) -> str:
    """Turn sublists into an equation; number n is letter n of `LETTERS`, as in PyTorch.

    The text is a call as in the chapter, or its arguments, or the lists alone; operands' names mean nothing. One list
    more than there are operands is the output's.

    Raises:
        EinsumError: something between the brackets that is neither `...` nor a number from 0 to 51, or too many lists.

    Source: ch. 17, "with sublist format and ellipsis".
    """
    opening = re.match(r"\s*(torch\s*\.\s*)?einsum\s*\(", text)
    start = opening.end() if opening else 0
    lists: list[str] = []
    for found in _SUBLIST_TOKEN.finditer(text, start):
        token, at = found[0], found.start()
        if token.startswith("["):
            if not token.endswith("]"):
                raise EinsumError("this bracket is never closed", at)
            if len(lists) == operand_count + 1:
                raise EinsumError(f"one list too many for the {operand_count} operands and the output", at)
            lists.append(_letters(token[1:-1], at + 1))
        elif found["other"]:
            raise EinsumError(f"{token!r} is not allowed between sublists, such as `As, [..., 0, 1]`", at)
    if not lists:
        raise EinsumError("a list is missing: an operand's indices are in brackets, such as [..., 0, 1]", len(text))
    if len(lists) > operand_count:
        return f"{','.join(lists[:-1])}->{lists[-1]}"
    return ",".join(lists)


_SUBLIST_TOKEN = re.compile(r"\[[^\[\]]*\]?|[A-Za-z_]\w*|[\s,)]+|(?P<other>.)")


def _letters(numbers: str, start: int) -> str:
    """One sublist, without its brackets, as the letters of an equation."""
    if not numbers.strip():
        return ""
    letters: list[str] = []
    for word in numbers.split(","):
        at = start + len(word) - len(word.lstrip())
        number = word.strip()
        if number in ("...", "Ellipsis"):
            letters.append(ELLIPSIS)
        elif re.fullmatch("[0-9]{1,2}", number) and int(number) < len(LETTERS):
            letters.append(LETTERS[int(number)])
        else:
            raise EinsumError(f"{number!r} is neither `...` nor a number from 0 to {len(LETTERS) - 1}", at)
        start += len(word) + 1
    return "".join(letters)
