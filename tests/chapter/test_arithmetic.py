import math
import operator
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from chapter_answers import asking
from hypothesis import given as given_that
from hypothesis import strategies as st

from chainrule.chapter.arithmetic import PAGE, SIGNS, explain_item, explain_mismatch, nearest_float32
from chainrule.dump.json_values import json_tensor

ask = asking(PAGE)

PYTHON = {name.removeprefix("true"): getattr(operator, name) for name in "add sub mul truediv gt lt eq".split()}
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SHAPES = st.lists(st.integers(1, 4), max_size=4)


def tensor_of(described):
    def number(value):
        return [number(each) for each in value] if isinstance(value, list) else WORDS.get(value, value)

    return torch.tensor(number(described["values"]), dtype=getattr(torch, described["dtype"]))


def test_the_chapter_s_matrices():
    answer = ask()
    assert answer["square"]["result"]["values"] == [[1, 4, 9], [16, 25, 36], [49, 64, 81]]
    message = "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0"
    assert answer["product"]["error"]["message"] == message
    assert answer["product"]["error"]["dimension"] == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("10,6,-4", "2,8,7"),
        ("0,0,-0,1e30", "0,1,-1,1e-30"),
        ("nan,inf,-inf,inf", "1,inf,inf,0"),
        ("1,2;3,4", "5"),
        ("1;2;3", "1,2"),
    ],
)
def test_every_operator_is_torch_s(a, b):
    answer = ask(a=a, b=b)
    left, right = tensor_of(answer["a"]), tensor_of(answer["b"])
    assert [each["name"] for each in answer["operators"]] == list(SIGNS) == list(PYTHON)
    for each in answer["operators"]:
        expected = PYTHON[each["name"]](left, right)
        torch.testing.assert_close(tensor_of(each["result"]), expected, rtol=0, atol=0, equal_nan=True)
        for name, reduction in each["reductions"].items():
            if name == "mean" and expected.dtype == torch.bool:
                assert "must be either a floating point or complex dtype. Got: Bool" in reduction["error"]
                continue
            value = json_tensor(getattr(expected, name)())
            assert reduction == {"value": value["values"], "dtype": value["dtype"], "error": None}


@pytest.mark.parametrize(
    ("op", "a", "b", "values", "reasons"),
    [
        ("div", "1,-1,0,2", "0,0,0,1", ["Infinity", "-Infinity", "NaN"], ["division by 0", "division by 0", "0 / 0"]),
        ("div", "inf", "-inf", ["NaN"], ["∞ / ∞"]),
        ("add", "inf,inf", "-inf,inf", ["NaN", "Infinity"], ["∞ − ∞", "∞ stays ∞"]),
        ("sub", "inf,inf", "-inf,inf", ["Infinity", "NaN"], ["∞ stays ∞", "∞ − ∞"]),
        ("mul", "0,inf", "inf,2", ["NaN", "Infinity"], ["0 · ∞", "∞ stays ∞"]),
        (
            "mul",
            "nan,3e38",
            "0,2",
            ["NaN", "Infinity"],
            ["a computation with NaN", "beyond the largest float32, 3.4e+38"],
        ),
        ("eq", "nan,1", "nan,1", [False], ["even NaN == NaN"]),
        ("gt", "1,2", "nan,1", [False], ["every comparison with NaN is false"]),
        ("div", "1", "inf", [], []),
    ],
)
def test_elements_that_are_not_finite_are_explained(op, a, b, values, reasons):
    elements = ask(op=op, a=a, b=b)["elements"]
    assert [each["value"] for each in elements] == values
    for each, reason in zip(elements, reasons, strict=True):
        assert reason in each["why"]


@given_that(SHAPES, SHAPES)
def test_the_dimension_at_fault_is_the_one_torch_names(a, b):
    explained = explain_mismatch(a, b)
    assert len(explained["sizes"]) == max(len(a), len(b))
    if explained["dimension"] is None:
        assert all(size["fits"] for size in explained["sizes"])
        assert (torch.ones(a) * torch.ones(b)).dim() == len(explained["sizes"])
        return
    with pytest.raises(RuntimeError, match=f"at non-singleton dimension {explained['dimension']}$"):
        torch.ones(a) * torch.ones(b)


def test_a_mismatch_of_the_operands_keeps_the_rest_of_the_page():
    answer = ask(a="1,2,3", b="1,2")
    for each in answer["operators"]:
        assert (each["result"], each["reductions"]) == (None, {})
        assert each["error"]["message"].startswith("The size of tensor a (3) must match the size of tensor b (2)")
    assert answer["item"] is None


@given_that(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8))
def test_the_digits_of_a_mean_are_those_of_its_float32(elements):
    result = torch.tensor(elements)
    item = explain_item(result)
    value = result.mean().item()
    assert item["value"] == value
    assert Decimal(item["exact"]) == Decimal(value)
    assert item["below"] < value < item["above"]
    total = sum(map(Fraction, result.tolist()))
    ratio = total / len(elements)
    assert item["error"] == float(Fraction(value) - ratio)
    assert item["float32_sum"] == result.sum().item()
    assert item["sum_error"] == float(Fraction(item["float32_sum"]) - total)
    # The result is the nearest float32 unless the sum was rounded.
    assert item["value"] == item["rounded"] or item["sum_error"] != 0
    digits = item["ratio_digits"]
    assert (digits is None) == (ratio.denominator.bit_count() > 1)
    if digits is not None and digits <= 24:
        assert item["rounded"] == ratio
    if item["binary"] is not None:
        before, _, after = item["binary"].removeprefix("-").partition(".")
        assert (-1 if value < 0 else 1) * int(before + after, 2) / 2 ** len(after) == value


def test_the_rounding_of_the_sum_and_of_the_ratio():
    lost = ask(a="1e8,1,-1e8", b="0")["item"]
    assert (lost["value"], lost["sum"], lost["float32_sum"], lost["sum_error"]) == (0, 1, 0, -1)
    assert lost["rounded"] == torch.tensor(1 / 3).item()
    # 25 binary digits: halfway between two float32 numbers.
    tie = ask(a="16777216,1", b="0")["item"]
    assert (tie["value"], tie["rounded"], tie["is_tie"]) == (8388608, 8388608, True)
    assert (tie["ratio"], tie["ratio_is_exact"], tie["ratio_digits"]) == (8388608.5, True, 25)
    assert (tie["sum"], tie["float32_sum"], tie["sum_error"]) == (16777217, 16777216, -1)
    # More digits than float64 has.
    assert ask(a="1e30,1", b="0")["item"]["sum_is_exact"] is False


def test_the_nearest_float32_is_rounded_once():
    # Above halfway by less than float64's precision: rounding to float64 first would make it a tie.
    halfway = 1 + Fraction(1, 2**24)
    assert torch.tensor(float(halfway + Fraction(1, 2**60)), dtype=torch.float32).item() == 1
    assert nearest_float32(halfway + Fraction(1, 2**60)) == (1 + 2**-23, False)
    assert nearest_float32(halfway) == (1, True)
    assert nearest_float32(halfway + Fraction(1, 2**23)) == (1 + 2**-22, True)
