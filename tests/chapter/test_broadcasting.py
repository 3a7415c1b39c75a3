import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from chapter_answers import asking

from chainrule.chapter.broadcasting import OPERATORS, PAGE
from chainrule.dump.json_values import json_tensor
from chainrule.errors import InputError

ask = asking(PAGE)


def test_two_shapes():
    answer = ask(a="3,1,5", b="4,1")
    assert answer["shape"] == [3, 4, 5]
    assert [step["rule"] for step in answer["steps"]] == ["stretch_b", "stretch_a", "pad_b"]
    assert answer["a"]["expanded_stride"] == list(torch.empty(3, 1, 5).expand(3, 4, 5).stride())
    assert (answer["a"]["stored_bytes"], answer["a"]["copied_bytes"]) == (15 * 4, 60 * 4)


@pytest.mark.parametrize(
    ("text", "given", "tensor"),
    [
        ("[10,20,30]", "values", torch.tensor([10.0, 20, 30])),
        ("1,2;3,4", "values", torch.tensor([[1.0, 2], [3, 4]])),
        ("10.,6,4", "values", torch.tensor([10.0, 6, 4])),
        ("2.73", "values", torch.tensor(2.73)),
        ("-5", "values", torch.tensor(-5.0)),
        ("1e3", "values", torch.tensor(1000.0)),
        ("5", "shape", torch.arange(5.0)),
        ("2,3", "shape", torch.arange(6.0).view(2, 3)),
        ("(2,3)", "shape", torch.arange(6.0).view(2, 3)),
        ("", "shape", torch.tensor(0.0)),
    ],
)
def test_values_and_shapes_are_distinguished(text, given, tensor):
    answer = ask(a=text, b="()")["a"]
    assert answer["given"] == given
    assert answer["shape"] == list(tensor.shape)
    torch.testing.assert_close(torch.tensor(answer["tensor"]["values"]), tensor, check_stride=False)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_result_is_pytorch_s(operator):
    a, b = torch.tensor([[1.0], [2], [-3]]), torch.tensor([10.0, -3, 0])
    computed = {"+": a + b, "-": a - b, "*": a * b, "/": a / b, ">": a > b, "<": a < b}[operator]
    answer = ask(a="[[1],[2],[-3]]", b="[10,-3,0]", operator=operator)["result"]
    assert answer == json_tensor(computed)


@pytest.mark.parametrize(
    ("a", "b"),
    [("[10,20]", "[[1,2,3],[4,5,6]]"), ("3,3", "2,3"), ("5,4", "3,5,3"), ("0", "3"), ("2147483648,2", "2147483648,3")],
)
def test_the_error_of_shapes_that_do_not_fit_is_pytorch_s(a, b):
    with pytest.raises(InputError) as raised:
        ask(a=a, b=b)
    error = raised.value
    with pytest.raises(RuntimeError) as by_torch:
        torch.zeros(()).expand(error.limit["a"]) + torch.zeros(()).expand(error.limit["b"])  # views: nothing is stored
    assert error.message == str(by_torch.value)
    assert error.limit["steps"][-1]["rule"] == "fault"
    assert error.limit["dimension"] == error.limit["steps"][-1]["dimension"]
    assert error.field == "b"


@pytest.mark.parametrize(
    ("a", "b", "shape", "is_addressable"),
    [
        ("2147483648,1", "2147483648", [2**31, 2**31], False),
        ("2147483648,1", "100000000", [2**31, 10**8], True),
        (",".join(["2147483648"] * 8), "1", [2**31] * 8, False),
        (",".join(["2147483648"] * 4), "0,1,1,1,1", [0] + [2**31] * 4, False),
    ],
)
def test_huge_shapes_are_explained_without_a_value(a, b, shape, is_addressable):
    answer = ask(a=a, b=b)
    assert answer["shape"] == shape
    assert answer["numel"] == pytest.approx(float(math.prod(shape)))
    assert answer["is_addressable"] is is_addressable
    assert answer["result"] is None


@pytest.mark.parametrize(
    ("a", "says"), [("2147483649", "more than 2147483648"), (",".join(["1."] * 65), "more than 64 numbers")]
)
def test_other_texts_are_refused(a, says):
    with pytest.raises(InputError, match=says) as raised:
        ask(a=a)
    assert raised.value.field == "a"


def test_the_chapter_s_vector_and_matrix():
    ways = {way["code"]: way for way in ask()["added_dimensions"]["ways"]}
    c, m = torch.tensor([10.0, 20, 30]), torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    for code, way in ways.items():
        is_column = code in ("c.unsqueeze(1)", "c[:, None]", "c[..., None]")
        assert way["sum"]["values"] == ((c.unsqueeze(1) if is_column else c) + m).tolist()
        assert way["expanded_stride"] == ([1, 0] if is_column else [0, 1])
        assert way["stored_numel"] == 3
        assert way["shares_memory"]
    assert len(ways) == 7


def test_the_chapter_s_vector_without_its_new_dimension_fails():
    ways = {way["code"]: way for way in ask(c="10,20", m="1,2,3;4,5,6")["added_dimensions"]["ways"]}
    assert ways["c"]["sum_error"].startswith("The size of tensor a (2) must match the size of tensor b (3)")
    assert ways["c"]["sum"] is None
    assert ways["c[:, None]"]["sum"]["values"] == [[11, 12, 13], [24, 25, 26]]


def test_normalization_by_scalars():
    m = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    normalized = ask()["normalized"]
    torch.testing.assert_close(torch.tensor(normalized["values"]["values"]), (m - 5) / 2.73)
    assert normalized["std_of_m"] == pytest.approx(float(m.std(correction=0)))
    zero = ask(std="0")["normalized"]["values"]["values"]
    assert zero == [["-Infinity"] * 3, ["-Infinity", "NaN", "Infinity"], ["Infinity"] * 3]


def test_an_empty_matrix_has_neither_mean_nor_deviation():
    answer = ask(c="[]", m="[[]]")
    assert (answer["normalized"]["mean_of_m"], answer["normalized"]["std_of_m"]) == ("NaN", "NaN")
    assert answer["normalized"]["values"]["shape"] == [1, 0]


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_the_trap_has_the_loss_of_pytorch():
    trap = ask(seed="7", n="200", noise="0.1")["trap"]
    assert (trap["pred"], trap["targ"], trap["difference"]) == ([200, 1], [200], [200, 200])
    assert trap["bytes"] == 200 * 200 * 4
    generator = torch.Generator().manual_seed(7)
    targ = torch.randn(200, generator=generator)
    pred = targ.unsqueeze(-1) + 0.1 * torch.randn(200, 1, generator=generator)
    assert trap["loss"] == pytest.approx(float(F.mse_loss(pred, targ)), rel=1e-5)
    assert trap["true_loss"] == pytest.approx(float(F.mse_loss(pred.squeeze(-1), targ)), rel=1e-5)
    assert trap["loss_difference"] == pytest.approx(trap["twice_the_covariance"], rel=1e-4)
    # The loss of all pairs prefers the mean to good predictions.
    assert trap["loss"] > trap["loss_of_the_mean"] == pytest.approx(trap["true_loss_of_the_mean"], rel=1e-5)
    assert trap["true_loss"] < 0.05 * trap["true_loss_of_the_mean"]
