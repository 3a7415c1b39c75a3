"""Two pieces of code line for line: what is the same stands side by side, and what has changed beside what it was."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

ALIKE = 0.5
"""How alike two lines must be, from 0 to 1 as difflib has it, to stand side by side without being the same."""


HEADS = ("def ", "class ")
"""How lines begin that stand side by side however little alike they are."""


class Pairing(NamedTuple):
    """A line of the left beside one of the right, by their places from 0; None where nothing stands opposite."""

    left: int | None
    right: int | None
    same: bool


def aligned(left: Sequence[str], right: Sequence[str]) -> list[Pairing]:
    """Every line of both, each once and in its order, such that as much as possible stands beside its like.

    Lines are compared without their indentation. Two that are the same count most, two that are alike as much as they
    are; a `def` is like any other, and so is a `class`.
    """
    # best[i][j]: of what is left from line i on, and from line j on.
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
