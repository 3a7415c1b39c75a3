import pytest
import torch
from chapter_answers import asking

from chainrule.chapter.einsum import PAGE
from chainrule.chapter.inputs import read_shapes
from chainrule.errors import InputError

ask = asking(PAGE)

CHAPTER = [
    ("bi,ij,bj->b", "2,2;2,2;2,2"),
    ("ii", "2,2"),
    ("...ij,...jk->...ik", "3,2,5;3,5,4"),
    ("ik,kj->ij", "5,784;784,10"),
]


def refused(**given):
    with pytest.raises(InputError) as raised:
        ask(**given)
    return raised.value


@pytest.mark.parametrize(("equation", "shapes"), CHAPTER)
def test_the_chapter_s_calls(equation, shapes):
    answer = ask(equation=equation, shapes=shapes)
    operands = [torch.tensor(each["values"]) for each in answer["operands"]]
    expected = torch.einsum(equation, *operands)
    assert answer["shape"] == list(expected.shape)
    torch.testing.assert_close(torch.tensor(answer["result"]["values"]), expected)
    assert answer["sublists_agree"]
    assert answer["loops_agree"] is (None if equation == "ik,kj->ij" else True)


def test_every_index_has_its_size_its_role_and_its_occurrences():
    answer = ask(equation="bij,bjk->bik", shapes="3,2,5;3,5,4")
    assert answer["shape"] == [3, 2, 4]
    assert [(each["name"], each["size"], each["role"]) for each in answer["indices"]] == [
        ("b", 3, "batch"),
        ("i", 2, "kept"),
        ("k", 4, "kept"),
        ("j", 5, "summed"),
    ]
    assert answer["indices"][3]["occurrences"] == [
        {"operand": 0, "dimension": 2, "size": 5},
        {"operand": 1, "dimension": 1, "size": 5},
    ]
    assert (answer["products"], answer["products_per_element"]) == (120, 5)


def test_an_implicit_output_is_spelled_out():
    assert ask(equation="b...A", shapes="2,3,4")["explicit_equation"] == "b...A->...Ab"


def test_the_chapter_s_sublists_are_its_batch_product():
    sublists = ask(sublists="torch.einsum(As, [..., 0, 1], Bs, [..., 1, 2], [..., 0, 2])")
    equation = ask(equation="bij,bjk->bik")
    assert sublists["written_as"] == "sublists"
    assert sublists["result"] == equation["result"]
    assert sublists["sublists"] == "torch.einsum(t0, [..., 0, 1], t1, [..., 1, 2], [..., 0, 2])"


def test_the_chapter_s_rules_have_the_indices_that_break_them():
    rules = ask(equation="iij->i", shapes="2,2,3")["chapter_rules"]
    assert rules == [
        {"rule": "Repeated indices are implicitly summed over.", "broken_by": ["i"]},
        {"rule": "Each index can appear at most twice in any term.", "broken_by": []},
        {"rule": "Each term must contain identical non-repeated indices.", "broken_by": ["j"]},
    ]


@pytest.mark.parametrize(
    ("given", "field", "position"),
    [
        ({"equation": "ik,kj>ij"}, "equation", 5),
        ({"equation": "bij->bji"}, "shapes", 3),
        ({"shapes": "3,2,5;3,6,4"}, "shapes", 5),
    ],
)
def test_an_error_has_its_position_and_pytorch_s_message(given, field, position):
    error = refused(**given)
    assert (error.field, error.limit["position"]) == (field, position)
    shapes = read_shapes(given.get("shapes", "3,2,5;3,5,4"), 6)
    with pytest.raises(RuntimeError) as raised:
        torch.einsum(given.get("equation", "bij,bjk->bik"), *(torch.ones(shape) for shape in shapes))
    assert error.limit["torch"] == str(raised.value)


@pytest.mark.parametrize("given", [{"equation": "ij,jk->ik"}, {"equation": "ii,i"}])
def test_the_proposed_shapes_fit(given):
    proposed = refused(**given).limit["shapes"]
    assert ask(**given, shapes=proposed)["result"]["values"] is not None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"equation": "i->iz", "shapes": "2,2"}, "output subscript z does not appear"),
        ({"sublists": "[0], [1], [0, 0]", "shapes": "2,2;3"}, "output subscript A appears more than once"),
        ({"equation": "i,i,jj", "shapes": "2;3;4,5"}, "subscript i has size 3 for operand 1"),
    ],
)
def test_pytorch_s_message_is_about_the_same_fault(given, says):
    limit = refused(**given).limit
    assert says in limit["torch"]
    assert f"'{says.split('subscript ')[1][0]}'" in limit["explanation"]


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"equation": "i,j,k->ijk", "shapes": "100;100;100"}, "shapes", "1000000 products"),
        # The result is empty, but PyTorch's intermediate results would have 8192³ elements.
        ({"equation": "i,j,k,l->", "shapes": "8192;8192;8192;0"}, "shapes", "products are needed"),
        ({"equation": "iiii", "shapes": "60,60,60,60"}, "shapes", "12960000 elements"),
        ({"equation": "i", "shapes": "8193"}, "shapes", "more than 8192"),
        ({"equation": "i", "shapes": "1;1;1;1;1;1;1"}, "shapes", "7 shapes"),
        ({"equation": "i" * 201}, "equation", "201 characters"),
        ({"sublists": "[" * 201}, "sublists", "201 characters"),
        ({"sublists": "As, [..., 0, 52], Bs, [1]"}, "sublists", "from 0 to 51"),
        ({"shapes": "a"}, "shapes", "'a' is not a size"),
    ],
)
def test_too_large_or_unreadable_input_is_refused(given, field, says):
    error = refused(**given)
    assert error.field == field
    assert says in error.message
