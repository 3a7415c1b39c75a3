"""The meaning of an einsum: every element of the result is a sum of products, written here as loops.

    'ik,kj->ij'        out[i, j] = Σₖ t0[i, k] · t1[k, j]

    resolve            equation and shapes → a Contraction: every index with its size, its role and where it occurs
    einsum             the result, one product at a time
    write_loops        the same loops as a person would write them

An index of the output is a loop around the sum, any other index is a loop of the sum. Where an index occurs in several
operands they go through it together; where it occurs twice in one operand, along the diagonal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chainrule.foundations.einsum_notation import ELLIPSIS, EinsumError, Equation, Subscript, parse

Role = Literal["kept", "batch", "broadcast", "summed"]
"""The part that an index plays.

    kept        it is in the output and in one operand
    batch       it is in the output and in several operands, which go through it together
    broadcast   it is a dimension behind `...`, and in the output
    summed      it is not in the output
"""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where an index stands: dimension `dimension` of operand `operand`, which has `size` there."""

    operand: int
    dimension: int
    size: int


@dataclass(frozen=True, slots=True)
class Index:
    """One index of an einsum.

    Attributes:
        name: its letter, or e0, e1, … for the dimensions behind `...`.
        size: how many values it runs through.
        role: see `Role`.
        occurrences: where it stands in the operands.
        output: which dimension of the result it is; None where it is summed.
    """

    name: str
    size: int
    role: Role
    occurrences: tuple[Occurrence, ...]
    output: int | None

    @property
    def is_ellipsis(self) -> bool:
        """Whether it is one of the dimensions behind `...`."""
        return len(self.name) > 1

    @property
    def is_diagonal(self) -> bool:
        """Whether it stands twice or more in one operand."""
        operands = [each.operand for each in self.occurrences]
        return len(operands) > len(set(operands))

    @property
    def stretched(self) -> tuple[int, ...]:
        """Operands that have size 1 where others have more: they are broadcast."""
        return tuple(sorted({each.operand for each in self.occurrences if each.size != self.size}))


@dataclass(frozen=True, slots=True)
class Contraction:
    """An einsum of operands of known shapes.

    Attributes:
        equation: as it was read.
        shapes: of the operands.
        operands: per operand, the name of the index of each dimension.
        output: name of the index of each dimension of the result.
        indices: those of the output in its order, then the summed ones in order of appearance.
    """

    equation: Equation
    shapes: tuple[tuple[int, ...], ...]
    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    indices: tuple[Index, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(index.size for index in self.indices if index.output is not None)

    @property
    def summed(self) -> tuple[Index, ...]:
        """The indices of the sum."""
        return tuple(index for index in self.indices if index.output is None)

    @property
    def products(self) -> int:
        """How many products are added up in all: the product of all sizes."""
        return math.prod(index.size for index in self.indices)


# -------------------------------------------------------------------------------------------- the meaning of an index


def resolve(equation: Equation, shapes: Sequence[Sequence[int]]) -> Contraction:
    """Give every index of an equation, as `parse` reads it, its size from the operands' shapes.

    Raises:
        EinsumError: there are more or fewer operands than in the equation; an operand has more or fewer dimensions
            than indices; an index has two sizes, neither of them 1; an index that is repeated in one operand has two
            sizes there, be one of them 1 or not.

    Source: rules of torch.einsum.
    """
    _check_count(equation, len(shapes))
    ellipsis = _ellipsis_names(equation, shapes)
    operands = [
        _dimensions(subscripts, ellipsis, len(shape))
        for subscripts, shape in zip(equation.operands, shapes, strict=True)
    ]
    sizes: dict[str, int] = {}
    occurrences: dict[str, list[Occurrence]] = {}
    for operand, (named, shape) in enumerate(zip(operands, shapes, strict=True)):
        for dimension, (index, size) in enumerate(zip(named, shape, strict=True)):
            name, earlier = index.name, occurrences.setdefault(index.name, [])
            _check_size(name, size, sizes.get(name, 1), operand, earlier, index.position)
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
            earlier.append(Occurrence(operand, dimension, size))
    output = _names(_dimensions(equation.output, ellipsis, len(equation.output) - 1 + len(ellipsis)))
    order = [*output, *(name for name in occurrences if name not in output)]
    indices = [_index(name, sizes[name], occurrences[name], output) for name in order]
    return Contraction(equation, tuple(map(tuple, shapes)), tuple(map(_names, operands)), output, tuple(indices))


def _check_count(equation: Equation, given: int) -> None:
    wanted = len(equation.operands)
    if given < wanted:
        raise EinsumError(
            f"the equation has {wanted} operands, but {given} {'is' if given == 1 else 'are'} given: "
            f"operand {given} is missing",
            equation.starts[given],
        )
    if given > wanted:
        end = equation.text.find("->")
        raise EinsumError(
            f"{given} operands are given, but the equation has {wanted}: each operand needs its indices, separated by "
            "commas",
            end if end >= 0 else len(equation.text),
        )


def _ellipsis_names(equation: Equation, shapes: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Names for the dimensions behind `...`: as many as the operand has that has most of them."""
    most = 0
    for operand, (subscripts, shape) in enumerate(zip(equation.operands, shapes, strict=True)):
        letters = sum(each.name != ELLIPSIS for each in subscripts)
        behind = len(shape) - letters
        if behind < 0 or (behind and letters == len(subscripts)):
            raise EinsumError(
                f"operand {operand} has {_count(len(shape), 'dimension')}, but {_count(letters, 'index', 'indices')}"
                + ("" if behind < 0 else "; write `...` for the other dimensions"),
                equation.starts[operand],
            )
        most = max(most, behind)
    return tuple(f"e{number}" for number in range(most))


def _dimensions(subscripts: Sequence[Subscript], ellipsis: Sequence[str], ndim: int) -> list[Subscript]:
    """The index of each dimension. An ellipsis that stands for fewer dimensions than another means the last ones."""
    behind = ndim - (len(subscripts) - 1)
    found: list[Subscript] = []
    for each in subscripts:
        names = ellipsis[len(ellipsis) - behind :] if each.name == ELLIPSIS else [each.name]
        found += [Subscript(name, each.position) for name in names]
    return found


def _names(subscripts: Sequence[Subscript]) -> tuple[str, ...]:
    return tuple(each.name for each in subscripts)


def _check_size(name: str, size: int, known: int, operand: int, earlier: Sequence[Occurrence], position: int) -> None:
    what = f"'{name}'" if len(name) == 1 else f"dimension {name[1:]} of `...`"
    within = [each for each in earlier if each.operand == operand]
    if within and within[0].size != size:
        raise EinsumError(
            f"{what} is repeated in operand {operand}, once of size {within[0].size} and once of {size}: "
            "a diagonal needs equal sizes",
            position,
        )
    if size != known and size != 1 and known != 1:
        other = next(each.operand for each in earlier if each.size == known)
        raise EinsumError(f"{what} has size {known} in operand {other}, but {size} in operand {operand}", position)


def _index(name: str, size: int, occurrences: Sequence[Occurrence], output: Sequence[str]) -> Index:
    role: Role = "summed"
    if name in output:
        several = len({each.operand for each in occurrences}) > 1
        role = "broadcast" if len(name) > 1 else "batch" if several else "kept"
    return Index(name, size, role, tuple(occurrences), output.index(name) if name in output else None)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


# ---------------------------------------------------------------------------------------------------------- the loops


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """`torch.einsum`, as the loops that it stands for: one product at a time.

        out[kept…] = Σ_summed t0[…] · t1[…] · …

    The operands and the result have one dtype. Raises EinsumError: see `parse` and `resolve`.

    Source: ch. 17, "Einstein Summation".
    """
    contraction = resolve(parse(equation), [operand.shape for operand in operands])
    out = torch.zeros(contraction.shape, dtype=operands[0].dtype)
    names = [index.name for index in contraction.indices]
    for values in itertools.product(*(range(index.size) for index in contraction.indices)):
        at = dict(zip(names, values, strict=True))
        term = torch.ones((), dtype=out.dtype)
        for operand, dimensions in zip(operands, contraction.operands, strict=True):
            # An operand of size 1 is broadcast: it has one place for every value of the index.
            place = (at[name] if size > 1 else 0 for name, size in zip(dimensions, operand.shape, strict=True))
            term = term * operand[tuple(place)]
        out[tuple(at[name] for name in contraction.output)] += term
    return out


def write_loops(contraction: Contraction, names: Sequence[str]) -> str:
    """The loops of an einsum as Python: the source of a function `einsum` of the operands.

    None of the operands' names is a single letter: those are the indices.
    """
    lines = [f"def einsum({', '.join(names)}):"]
    sizes = "".join(f"{size}, " for size in contraction.shape).removesuffix(", ")
    lines.append(f"    out = torch.zeros({sizes or '()'})")
    indent = "    "
    for index in contraction.indices:
        lines.append(f"{indent}for {index.name} in range({index.size}):  # {index.role}")
        indent += "    "
    factors = [
        _element(name, dimensions, shape, {index.name: index.size for index in contraction.indices})
        for name, dimensions, shape in zip(names, contraction.operands, contraction.shapes, strict=True)
    ]
    sign = "+=" if contraction.summed else "="
    lines.append(f"{indent}out[{', '.join(contraction.output) or '()'}] {sign} {' * '.join(factors)}")
    lines.append("    return out")
    return "\n".join(lines)


def _element(name: str, dimensions: Sequence[str], shape: Sequence[int], sizes: dict[str, int]) -> str:
    place = [each if size == sizes[each] else "0" for each, size in zip(dimensions, shape, strict=True)]
    return f"{name}[{', '.join(place) or '()'}]"
