import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.foundations.einsum import einsum, resolve, write_loops
from chainrule.foundations.einsum_notation import EinsumError, parse


def draw_tensors(shapes):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_the_dimensions_behind_an_ellipsis_are_aligned_at_their_end():
    contraction = resolve(parse("...i,...i->...i"), [(2, 1, 3), (4, 3)])
    assert contraction.operands == (("e0", "e1", "i"), ("e1", "i"))
    assert [(index.name, index.size, index.role, index.stretched) for index in contraction.indices] == [
        ("e0", 2, "broadcast", ()),
        ("e1", 4, "broadcast", (0,)),
        ("i", 3, "batch", ()),
    ]
    (index,) = resolve(parse("ii"), [(3, 3)]).indices
    assert (index.role, index.is_diagonal, index.output) == ("summed", True, None)


@pytest.mark.parametrize(
    ("equation", "shapes", "position", "says"),
    [
        ("ij,jk->ik", [(2, 3)], 3, "operand 1 is missing"),
        ("ij->ji", [(2, 3), (3, 4)], 2, "2 operands are given, but the equation has 1"),
        ("i,", [(2,)], 2, "operand 1 is missing"),
        ("ij,jk->ik", [(2, 3), (3,)], 3, "operand 1 has 1 dimension, but 2 indices"),
        ("ij, j->i", [(2, 3), (3, 4)], 4, "write `...` for the other dimensions"),
        ("...ij", [(3,)], 0, "operand 0 has 1 dimension, but 2 indices"),
        ("", [(2,)], 0, "operand 0 has 1 dimension, but no indices"),
        ("ij,jk->ik", [(2, 3), (4, 5)], 3, "'j' has size 3 in operand 0, but 4 in operand 1"),
        ("ij,kj->ik", [(2, 3), (4, 5)], 4, "'j' has size 3 in operand 0, but 5 in operand 1"),
        ("ii->i", [(2, 3)], 1, "'i' is repeated in operand 0, once of size 2 and once of 3"),
        ("ii", [(1, 3)], 1, "a diagonal needs equal sizes"),
        ("...,i...", [(2,), (5, 3)], 5, "dimension 0 of `...` has size 2 in operand 0, but 3 in operand 1"),
    ],
)
def test_the_error_of_shapes_that_do_not_fit_has_its_position(equation, shapes, position, says):
    with pytest.raises(EinsumError, match=re.escape(says)) as raised:
        resolve(parse(equation), shapes)
    assert raised.value.position == position
    with pytest.raises(RuntimeError):
        torch.einsum(equation, *draw_tensors(shapes))


def torch_says(equation, shapes):
    try:
        return tuple(torch.einsum(equation, *(torch.ones(shape) for shape in shapes)).shape)
    except RuntimeError:
        return None


def ours(equation, shapes):
    try:
        return resolve(parse(equation), shapes).shape
    except EinsumError as error:
        return None if 0 <= error.position <= len(equation) else "points nowhere"


@st.composite
def einsums(draw):
    """An equation with shapes that nearly fit it: every index has a size, now and then 1 or another one."""
    sizes = {name: draw(st.integers(0, 3)) for name in "ijkAb"}
    operands = draw(st.lists(st.lists(st.sampled_from([*sizes, "..."]), max_size=4), min_size=1, max_size=3))
    behind = draw(st.lists(st.integers(1, 3), max_size=2))
    shapes = []
    for operand in operands:
        shape = []
        for name in operand:
            some = behind[draw(st.integers(0, len(behind))) :] if name == "..." else [sizes[name]]
            shape += [draw(st.sampled_from((size,) * 9 + (1, 2))) for size in some]
        shapes.append(tuple(shape))
    text = ",".join("".join(operand) for operand in operands)
    if draw(st.booleans()):
        names = sorted({name for operand in operands for name in operand})
        output = draw(st.permutations(names)) if names else []
        text += "->" + "".join(output[: draw(st.integers(0, len(output)))])
    return text, shapes


@settings(max_examples=400)
@given(einsums())
@example(("iji,k...->...A", [(2, 3, 2), (1, 1)]))
@example(("ij,jk->ik", [(2, 0), (0, 3)]))
@example((",->", [(), ()]))
@example(("ii,i->i", [(1, 1), (3,)]))
@example(("...,...j->j...", [(3,), (2, 1, 4)]))
def test_random_equations_are_taken_or_refused_as_by_torch(case):
    equation, shapes = case
    shape = ours(equation, shapes)
    assert shape == torch_says(equation, shapes)
    if shape is not None and resolve(parse(equation), shapes).products <= 50:
        tensors = draw_tensors(shapes)
        expected = torch.einsum(equation, *tensors)
        torch.testing.assert_close(einsum(equation, *tensors), expected)
        written = {"torch": torch}
        exec(write_loops(resolve(parse(equation), shapes), [f"t{number}" for number in range(len(shapes))]), written)
        torch.testing.assert_close(written["einsum"](*tensors).double(), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=400)
@given(
    st.text(alphabet="ijB.,-> ?1", max_size=12),
    st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=3),
)
@example("i->...i...", [(3,)])
@example("....i", [(3,)])
def test_random_texts_are_taken_or_refused_as_by_torch(equation, shapes):
    assert ours(equation, shapes) == torch_says(equation, shapes)
