"""The page of einsum: an equation and shapes, every index explained, the loops it stands for, and the values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from chainrule import stopping
from chainrule.chapter.agreement import max_difference
from chainrule.chapter.inputs import SHAPE, read_shapes, seed_input, text
from chainrule.chapter.page import Link, Page, listings
from chainrule.dump.json_values import json_number, json_tensor
from chainrule.errors import InputError
from chainrule.foundations.einsum import Contraction, Index, einsum, resolve, write_loops
from chainrule.foundations.einsum_notation import (
    CHAPTER_RULES,
    ELLIPSIS,
    LETTERS,
    EinsumError,
    Equation,
    Subscript,
    broken_rules,
    parse,
    parse_sublists,
    to_sublists,
    write_sublists,
)

MAX_NUMEL = 8192
"""Elements of an operand and of the result; the chapter has 784 × 10."""

MAX_PRODUCTS = 2**18
"""The product of all index sizes, which also bounds PyTorch's intermediate results."""

MAX_LOOPED = 2000
"""With more products, the loops in Python are not run."""

MAX_CHARACTERS = 200
"""The longest equation or sublists."""


def answer(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"shape", "indices", "operands", "loops", "sublists", "result", …} of an equation and shapes.

    Raises:
        InputError: the equation makes no sense, does not fit the shapes (`limit` is {"text", "position", "torch":
            PyTorch's message, "shapes": some that would fit}), or is larger than this page computes.
    """
    shapes: Sequence[Sequence[int]] = values["shapes"]
    written = "sublists" if values["sublists"] else "equation"
    equation = read_equation(values[written], written, shapes)
    try:
        contraction = resolve(equation, shapes)
    except EinsumError as error:
        raise explained(error, equation.text, "shapes", shapes, equation) from None
    check_sizes(contraction)
    stopping.check()
    generator = torch.Generator().manual_seed(values["seed"])
    operands = [torch.randn(tuple(shape), generator=generator) for shape in shapes]
    return {"written_as": written, **explain(contraction, operands)}


def read_equation(given: str, written: str, shapes: Sequence[Sequence[int]]) -> Equation:
    """The equation of a text; `written` says whether that is an "equation" or "sublists". Raises InputError."""
    equation = given
    try:
        if written == "sublists":
            equation = parse_sublists(given, len(shapes))
    except EinsumError as error:
        raise explained(error, given, written, None, None) from None
    try:
        return parse(equation)
    except EinsumError as error:
        # With dimensions of size 1, one per letter left of the arrow, PyTorch complains of the equation.
        parts = equation.partition("->")[0].split(",")
        letters = [(1,) * sum(character in LETTERS for character in part) for part in parts]
        raise explained(error, equation, written, letters, None) from None


def explained(
    error: EinsumError, given: str, field: str, shapes: Sequence[Sequence[int]] | None, equation: Equation | None
) -> InputError:
    """The error with its position in the text, PyTorch's message, and shapes that would fit the equation."""
    return InputError(
        f"{field}: {error}",
        field=field,
        limit={
            "text": given,
            "position": error.position,
            "explanation": str(error),
            "torch": None if shapes is None else torch_message(given, shapes),
            "shapes": None if equation is None or shapes is None else fitting_shapes(equation, shapes),
        },
    )


def torch_message(equation: str, shapes: Sequence[Sequence[int]]) -> str | None:
    """PyTorch's error message for the equation with operands of these shapes, which are not allocated."""
    try:
        torch.einsum(equation, *(torch.empty(tuple(shape), device="meta") for shape in shapes))
    except (RuntimeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return None


def fitting_shapes(equation: Equation, shapes: Sequence[Sequence[int]]) -> str:
    """Shapes that fit an equation, as they are typed: the given sizes where possible, else 2, 3, 4, … per index."""
    sizes: dict[str, int] = {}
    for subscripts, shape in zip(equation.operands, shapes, strict=False):
        if len(shape) == len(subscripts) and ELLIPSIS not in {each.name for each in subscripts}:
            for each, size in zip(subscripts, shape, strict=True):
                sizes.setdefault(each.name, size)
    for subscripts in equation.operands:
        for each in subscripts:
            sizes.setdefault(each.name, 2 + len(sizes) % 4)
    return ";".join(",".join(str(sizes[each.name]) for each in part) or "()" for part in equation.operands)


def check_sizes(contraction: Contraction) -> None:
    """Raise InputError if it would take too long or too much memory."""
    # A size of 0 makes the whole product 0, but not PyTorch's intermediate results.
    products = math.prod(max(index.size, 1) for index in contraction.indices)
    largest = max(math.prod(max(size, 1) for size in shape) for shape in (*contraction.shapes, contraction.shape))
    message, limit = "", 0
    if products > MAX_PRODUCTS:
        message, limit = f"{products} products are needed; at most {MAX_PRODUCTS}", MAX_PRODUCTS
    elif largest > MAX_NUMEL:
        message, limit = f"an operand or the result has {largest} elements; at most {MAX_NUMEL}", MAX_NUMEL
    if limit:
        raise InputError(f"shapes: {message} are computed here", field="shapes", limit=limit)


def explain(contraction: Contraction, operands: Sequence[Tensor]) -> dict[str, Any]:
    """An einsum computed by PyTorch, as sublists, and by loops."""
    equation = contraction.equation
    names = [f"t{number}" for number in range(len(operands))]
    result = torch.einsum(equation.text, *operands)
    sublists, sublist_of_output = to_sublists(equation)
    arguments: list[Any] = [each for pair in zip(operands, sublists, strict=True) for each in pair]
    if sublist_of_output is not None:
        arguments.append(sublist_of_output)
    looped = einsum(equation.text, *operands) if contraction.products <= MAX_LOOPED else None
    apart = 0.0 if looped is None else max_difference(looped, result)
    return {
        "equation": equation.text,
        "explicit_equation": ",".join(map(write_subscripts, equation.operands))
        + "->"
        + write_subscripts(equation.output),
        "is_implicit": not equation.explicit,
        "shape": list(contraction.shape),
        "indices": [explain_index(index, len(operands)) for index in contraction.indices],
        "operands": [
            {"name": name, "subscripts": write_subscripts(subscripts), "dimensions": dimensions, **json_tensor(operand)}
            for name, subscripts, dimensions, operand in zip(
                names, equation.operands, contraction.operands, operands, strict=True
            )
        ],
        "output": {"subscripts": write_subscripts(equation.output), "dimensions": list(contraction.output)},
        "result": json_tensor(result),
        "products": contraction.products,
        "products_per_element": math.prod(index.size for index in contraction.summed),
        "loops": write_loops(contraction, names),
        "loops_agree": None if looped is None else apart <= rounding_bound(contraction, operands),
        "loops_max_difference": None if looped is None else json_number(apart),
        "sublists": write_sublists(sublists, sublist_of_output, names),
        "sublists_agree": bool(torch.equal(torch.einsum(*arguments), result)),
        "chapter_rules": [
            {"rule": rule, "broken_by": letters}
            for rule, letters in zip(CHAPTER_RULES, broken_rules(equation), strict=True)
        ],
    }


def explain_index(index: Index, operand_count: int) -> dict[str, Any]:
    """The fields of an index, and its "explanation"."""
    several = " and ".join(f"t{operand}" for operand in sorted({each.operand for each in index.occurrences}))
    roles = {
        "summed": f"not in the output: the {'products' if operand_count > 1 else 'elements'} are summed over it",
        "batch": f"in the output; {several} share it",
        "broadcast": "a dimension of `...`, aligned from the last one",
        "kept": f"in the output, and only in {several}",
    }
    parts = [roles[index.role]]
    if index.is_diagonal:
        parts.append("repeated in one operand, which selects its diagonal")
    if index.stretched:
        parts.append(f"{' and '.join(f't{each}' for each in index.stretched)} has size 1 there and is stretched")
    return {
        **asdict(index),
        "is_ellipsis": index.is_ellipsis,
        "is_diagonal": index.is_diagonal,
        "stretched": index.stretched,
        "explanation": "; ".join(parts),
    }


def write_subscripts(subscripts: Sequence[Subscript]) -> str:
    """Indices without spaces."""
    return "".join(each.name for each in subscripts)


def rounding_bound(contraction: Contraction, operands: Sequence[Tensor]) -> float:
    """The largest difference that rounding can make between two orders of adding up the same products."""
    terms = math.prod(index.size for index in contraction.summed)
    magnitude = torch.einsum(contraction.equation.text, *(operand.abs() for operand in operands))
    largest = float(magnitude.max()) if magnitude.numel() else 0.0
    return 2 * (terms + len(operands)) * torch.finfo(torch.float32).eps * largest


def _read_text(given: str) -> str:
    if len(given) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(given)} characters")
    return given


def _read_shapes(given: str) -> tuple[tuple[int, ...], ...]:
    shapes = read_shapes(given, 6)
    if max((size for shape in shapes for size in shape), default=0) > MAX_NUMEL:
        raise ValueError(f"a size is more than {MAX_NUMEL}")
    return shapes


PAGE = Page(
    name="einsum",
    title="Einstein summation",
    seed="002 Einstein Summation; Additional Einsum Notation Examples",
    lead="One line names the indices of the operands and of the result. Indices that are not in the result are summed.",
    inputs=(
        text(
            "equation",
            "bij,bjk->bik",
            "Letters for each operand's dimensions, `...` for the others, and after `->` the letters of the result.",
            _read_text,
            f"an equation of at most {MAX_CHARACTERS} characters, such as ij,jk->ik",
        ),
        text(
            "shapes",
            "3,2,5;3,5,4",
            "The shapes of the operands, separated by semicolons; () is a scalar.",
            _read_shapes,
            f"at most 6 shapes of at most 8 sizes up to {MAX_NUMEL}, such as 3,2,5;3,5,4",
            rf"{SHAPE}(;{SHAPE})*",
        ),
        text(
            "sublists",
            "",
            "The call with a list of numbers after each operand. It replaces the equation.",
            _read_text,
            f"nothing, or at most {MAX_CHARACTERS} characters, such as As, [0, 1], Bs, [1, 2], [0, 2]",
        ),
        seed_input("Seed of the operands, drawn from N(0, 1)."),
    ),
    answer=answer,
    listings=listings(einsum, broken_rules, parse, resolve),
    links=(
        Link("The matrix product as an einsum", "program=matmul&rung=einsum"),
        Link("The same as loops, 2 × 3 by 3 × 2", "program=matmul&rung=loops&widths=3,2&batch=2"),
        Link("The same product as @", "program=matmul&rung=@"),
    ),
)
