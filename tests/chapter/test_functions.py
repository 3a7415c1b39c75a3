import pytest
import torch
from chapter_answers import asking

from chainrule.chapter.functions import PAGE
from chainrule.chapter.gradcheck import CASES
from chainrule.errors import InputError

ask = asking(PAGE)


def tensor(found):
    return torch.tensor(found["values"]).reshape(found["shape"])


@pytest.mark.parametrize("function", PAGE.inputs[0].choices)
@pytest.mark.parametrize("materialize", ["true", "false"])
def test_gradients_are_those_of_the_plain_expression(function, materialize):
    answer = ask(function=function, materialize_grads=materialize, grad_output="0.5")
    assert answer["backward"]["max_difference"] == pytest.approx(0, abs=1e-6)
    assert answer["backward"]["same_places"]
    assert len(answer["backward"]["received"]) == len(answer["outputs"])
    assert len(answer["backward"]["returned"]) == len(answer["inputs"])


def test_the_gradients_of_linear_function_are_torch_s():
    given = {"x": "1,2;3,4;5,6", "weight": "[[0.5,-1]]", "bias": "2,", "grad_output": "1;-2;3"}
    answer = ask(**given)
    x, w, b = (torch.tensor(each, requires_grad=True) for each in ([[1.0, 2], [3, 4], [5, 6]], [[0.5, -1]], [2.0]))
    out = torch.nn.functional.linear(x, w, b)
    out.backward(torch.tensor([[1.0], [-2.0], [3.0]]))
    assert torch.equal(tensor(answer["outputs"][0]), out.detach())
    for found, leaf in zip(answer["backward"]["returned"], (x, w, b), strict=True):
        assert torch.equal(tensor(found["tensor"]), leaf.grad)


@pytest.mark.parametrize(
    ("function", "saved", "attributes"),
    [
        ("my_relu", ["inp"], {}),
        ("exp", ["out"], {}),
        ("mul_constant", [], {"constant": 3.0}),
        ("linear_function", ["inp", "weight"], {}),
        ("sin_cos", ["sin", "cos"], {}),
    ],
)
def test_the_saved_tensors_of_ctx(function, saved, attributes):
    context = ask(function=function)["context"]
    assert context["node"] == f"{CASES[function].function.__name__}Backward"
    assert [each["is"] for each in context["saved"]] == saved
    assert [each["bytes"] for each in context["saved"]] == [24] * len(saved)
    assert context["bytes"] == 24 * len(saved)
    assert context["attributes"] == attributes


@pytest.mark.parametrize("needed", [(True, True, False), (False, False, True), (False, False, False)])
def test_a_gradient_that_is_not_needed_is_none(needed):
    names = ("x_requires_grad", "weight_requires_grad", "bias_requires_grad")
    answer = ask(**{name: str(each).lower() for name, each in zip(names, needed, strict=True)})
    assert answer["needs_input_grad"] == list(needed)
    assert answer["outputs"][0]["requires_grad"] == any(needed)
    if not any(needed):
        assert answer["context"] is None
        assert answer["backward"] is None
        return
    for kind in ("returned", "gradients"):
        assert tuple(each["tensor"] is not None for each in answer["backward"][kind]) == needed


@pytest.mark.parametrize(("materialize", "unused"), [("true", [0, 0]), ("false", None)])
def test_backward_gets_zeros_or_none_for_an_output_that_is_not_used(materialize, unused):
    answer = ask(function="sin_cos", x="0,1", used="sin", materialize_grads=materialize)["backward"]
    sin, cos = answer["received"]
    assert sin["tensor"]["values"] == [1, 1]
    assert (cos["tensor"] and cos["tensor"]["values"]) == unused
    assert answer["max_difference"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("has_bias", "flags"), [("a tensor", 3), ("None", 3), ("left out", 2)])
def test_a_bias_that_is_none_or_left_out(has_bias, flags):
    answer = ask(has_bias=has_bias)
    assert len(answer["needs_input_grad"]) == flags
    assert len(answer["backward"]["returned"]) == 3
    assert (answer["backward"]["returned"][2]["tensor"] is None) == (has_bias != "a tensor")


def test_the_calls_with_keywords_and_with_the_wrapper():
    calls = ask()["calls"]
    assert calls["torch"] == torch.__version__
    assert calls["keyword_call"] == "LinearFunction.apply(inp, weight, bias=bias)"
    assert (calls["keyword_error"], calls["max_difference"]) == (None, 0.0)
    assert calls["wrapper"]["max_difference"] == 0.0
    assert ask(has_bias="left out")["calls"]["wrapper"]["call"] == "linear(inp=inp, weight=weight)"


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"x": "1,2"}, "x", r"got inp \(2,\)"),
        ({"x": "1,2;3,4"}, "weight", r"got inp \(2, 2\), weight \(2, 3\)"),
        ({"bias": "1,2,3"}, "bias", r"bias \(3,\)"),
        ({"grad_output": "1,2,3"}, "grad_output", r"\(3,\) does not broadcast to that of the output, \(2, 2\)"),
    ],
)
def test_the_error_of_shapes_that_do_not_fit_names_the_input(given, field, says):
    with pytest.raises(InputError, match=says) as caught:
        PAGE.ask(given)
    assert caught.value.field == field
