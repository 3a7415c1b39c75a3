"""The parser accepts what torch.einsum accepts, and an error points at its character."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.foundations.einsum_notation import (
    LETTERS,
    EinsumError,
    broken_rules,
    parse,
    parse_sublists,
    to_sublists,
    write_sublists,
)


@pytest.mark.parametrize(
    ("equation", "position", "says"),
    [
        ("ik,kj>ij", 5, "the arrow is '->'"),
        ("ij- >ji", 2, "without a space"),
        ("i1->i", 1, "numbers belong in sublists"),
        ("ij->i?", 5, "'?' is not an index"),
        ("é->é", 0, "letters a-z and A-Z"),
        ("i\tj", 1, "'\\t' is not an index"),
        ("ij->i->j", 5, "a second arrow"),
        ("ij->i,j", 5, "a comma in the output"),
        ("ij->ii", 5, "'i' is repeated in the output"),
        ("ij,jk->ix", 8, "'x' is in the output, but in no operand"),
        ("ij->ix?", 5, "'x' is in the output, but in no operand"),
        ("ij->ii..", 5, "'i' is repeated in the output"),
        ("i . ..->i", 2, "not part of an ellipsis"),
        ("...i...->i", 4, "operand 0 already has an ellipsis"),
        ("...i->......", 9, "the output already has an ellipsis"),
        ("i->i..", 4, "a point in the output"),
    ],
)
def test_the_error_of_a_malformed_equation_has_its_position(equation, position, says):
    with pytest.raises(EinsumError, match=re.escape(says)) as raised:
        parse(equation)
    assert raised.value.position == position
    operands = [torch.ones(2, 2)] * (equation.partition("->")[0].count(",") + 1)
    with pytest.raises(RuntimeError):
        torch.einsum(equation, *operands)


def test_positions_count_every_character():
    equation = parse(" b i, ...j -> ... b")
    assert [[(each.name, each.position) for each in operand] for operand in equation.operands] == [
        [("b", 1), ("i", 3)],
        [("...", 6), ("j", 9)],
    ]
    assert equation.starts == (1, 6)
    assert [(each.name, each.position) for each in equation.output] == [("...", 14), ("b", 18)]


@pytest.mark.parametrize(
    ("text", "count", "equation"),
    [
        ("torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2])", 2, "...AB,...BC->...AC"),
        ("[0,1],[1,2]", 2, "AB,BC"),
        ("[0, 0], []", 1, "AA->"),
        ("[26, 51, 25]", 1, "azZ"),
        ("[Ellipsis, 0]", 1, "...A"),
    ],
)
def test_sublists_are_read_as_the_equation_of_their_numbers(text, count, equation):
    assert parse_sublists(text, count) == equation


SUBLISTS = [
    ("[0, x]", 4, "'x' is neither"),
    ("[0, 52]", 4, "from 0 to 51"),
    ("[0,,1]", 3, "'' is neither"),
    ("As, [0, 1", 4, "never closed"),
    ("[0], [1] + [2]", 9, "'+' is not allowed"),
    ("[0], [1], [2]", 10, "one list too many"),
    ("As, Bs", 6, "a list is missing"),
]


@pytest.mark.parametrize(("text", "position", "says"), SUBLISTS)
def test_the_error_of_a_malformed_sublist_has_its_position(text, position, says):
    with pytest.raises(EinsumError, match=re.escape(says)) as raised:
        parse_sublists(text, 1)
    assert raised.value.position == position


@given(st.text(alphabet="[]0123456789,. ab()x", max_size=40), st.integers(1, 3))
def test_any_text_of_sublists_is_read_or_refused_in_words(text, count):
    try:
        read = parse_sublists(text, count)
    except EinsumError as error:
        read = error.position
    if isinstance(read, int):
        assert 0 <= read <= len(text)
    else:
        assert set(read) <= {*LETTERS, *",.->"}
        assert read.count(",") < count


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bA,a", "b...A", "ii", "ii->", "zy,yx", "...ij->...ji", ",i->i"])
def test_sublists_say_the_same_as_their_equation(equation):
    parsed = parse(equation)
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn([2] * len(operand), generator=generator, dtype=torch.float64) for operand in parsed.operands]
    sublists, output = to_sublists(parsed)
    arguments = [each for pair in zip(tensors, sublists, strict=True) for each in pair]
    result = torch.einsum(*arguments) if output is None else torch.einsum(*arguments, output)
    torch.testing.assert_close(result, torch.einsum(equation, *tensors))
    written = write_sublists(sublists, output, [f"t{number}" for number in range(len(tensors))])
    torch.testing.assert_close(torch.einsum(parse_sublists(written, len(tensors)), *tensors), result)


@pytest.mark.parametrize(
    ("equation", "broken"),
    [
        ("ik,kj->ij", ([], [], [])),
        ("bij,bjk->bik", (["b"], [], [])),
        ("ii->i", (["i"], [], [])),
        ("ij->i", ([], [], ["j"])),
        ("i,i,i->", ([], ["i"], [])),
        ("iij->i", (["i"], [], ["j"])),
        ("b,b,b->b", (["b"], ["b"], [])),
        ("...ij,...jk->...ik", ([], [], [])),
    ],
)
def test_the_indices_that_break_each_of_the_chapters_rules(equation, broken):
    assert broken_rules(parse(equation)) == broken
