"""Two pieces of code side by side: pairs of equal and of similar lines."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

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
