import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from chapter_answers import asking

from chainrule.chapter.neuron import PAGE
from chainrule.errors import InputError

ask = asking(PAGE)


def test_the_terms_are_products_and_add_up():
    neuron = ask(inputs="1,2,3,-4", weights="0.5,-1,2,0.25", bias="-1")["neuron"]
    inputs, weights = torch.tensor([1.0, 2, 3, -4]), torch.tensor([0.5, -1, 2, 0.25])
    assert [term["product"] for term in neuron["terms"]] == (inputs * weights).tolist()
    assert [term["running_sum"] for term in neuron["terms"]] == (inputs * weights).cumsum(0).tolist()
    assert neuron["output"] == F.linear(inputs, weights, torch.tensor(-1.0)).item() == 2.5
    assert neuron["relu"] == 2.5


def test_relu_closes_and_does_not_hide_a_nan():
    assert ask(bias="-0.5")["neuron"]["output"] == -0.75
    assert ask(bias="-0.5")["neuron"]["relu"] == 0
    neuron = ask(inputs="2,nan,0.5")["neuron"]
    assert (neuron["output"], neuron["relu"], neuron["relu_as_printed"]) == ("NaN", "NaN", 0)


@pytest.mark.parametrize(
    ("inputs", "weights", "longer", "dropped", "output"),
    [("1,2,3", "1,2", "inputs", [3.0], 5.75), ("1,2", "1,2,nan", "weights", ["NaN"], 5.75)],
)
def test_lists_of_different_lengths_are_refused_with_the_result_of_zip(inputs, weights, longer, dropped, output):
    with pytest.raises(InputError, match=f"zip would silently drop the last of the {longer}") as raised:
        ask(inputs=inputs, weights=weights)
    assert raised.value.field == "weights"
    limit = raised.value.limit
    assert limit["output_without_the_dropped"] == output
    assert (limit["longer"], limit["dropped"], limit["pairs"], len(limit["terms"])) == (longer, dropped, 2, 2)


def test_the_layer_is_torch_s_in_both_ways():
    given = {"x": "1,2.5,-3;0.1,0.2,0.3", "w": "1,0,-1;0.7,0.5,0.3;2,-1,0;-1,1,1", "b": "0,1,-1,0.5"}
    layer = ask(**given)["layer"]
    x, w, b = (torch.tensor(layer[name]["values"]) for name in "xwb")
    y = F.linear(x, w, b)
    for name in ("y", "y_matmul"):
        assert layer[name]["shape"] == [2, 4]
        torch.testing.assert_close(torch.tensor(layer[name]["values"]), y)
    products = torch.tensor(layer["products"]["values"])
    assert products.shape == (2, 4, 3)
    torch.testing.assert_close(products.sum(-1) + b, y)
    exact = torch.tensor(layer["y"]["values"]).double() - torch.tensor(layer["y_matmul"]["values"]).double()
    assert layer["max_difference"] == exact.abs().max().item() <= layer["rounding"]
    assert layer["equal"]


def test_a_layer_of_nan_and_inf_agrees_with_itself():
    layer = ask(x="nan,1,2;inf,1,1", b="0,0,0,0")["layer"]
    assert layer["y"]["values"] == layer["y_matmul"]["values"]
    assert layer["y"]["values"][1] == ["Infinity", "Infinity", "Infinity", "-Infinity"]
    assert (layer["max_difference"], layer["equal"]) == (0, True)


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"w": "1,2;3,4"}, "w", "w: needs 3 columns, one per input .*got x \\(2, 3\\), w \\(2, 2\\), b \\(4,\\)"),
        ({"b": "1,2"}, "b", "b: needs 4 numbers, one per neuron"),
        ({"x": "1;2"}, "w", "w: needs 1 column, one per input"),
        ({"inputs": ",".join(["1"] * 17)}, "inputs", "at most 16 of them; they are 17"),
    ],
)
def test_bad_input_names_its_field(given, field, message):
    with pytest.raises(InputError, match=message) as raised:
        ask(**given)
    assert raised.value.field == field
