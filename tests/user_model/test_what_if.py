"""What-ifs from strings and JSON, their errors, and groups of parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from chainrule.errors import SpecError
from chainrule.spec.model_spec import read_query
from chainrule.user_model.parameters import groups_of, named_parameters, tied_names
from chainrule.user_model.what_if import WHAT_IF_KEYS, WhatIf, check_group


def test_strings_and_json_values_mean_the_same():
    assert WhatIf.parse({}) == WhatIf()
    assert WhatIf().query() == ""
    text = WhatIf.parse({"scale": "0.5", "group": "layers.0", "init": "orthogonal", "seed": "7", "recording": "aten"})
    json = WhatIf.parse({"scale": 0.5, "group": "layers.0", "init": "orthogonal", "seed": 7, "recording": "aten"})
    assert text == json == WhatIf(0.5, "layers.0", "orthogonal", 7, "aten")
    assert text.as_dict() == {"scale": 0.5, "group": "layers.0", "init": "orthogonal", "seed": 7, "recording": "aten"}
    assert text.query() == "scale=0.5&group=layers.0&init=orthogonal&seed=7&recording=aten"


@given(
    scale=st.floats(1e-4, 1e4),
    group=st.text(st.characters(exclude_categories=("Cs",))),
    init=st.sampled_from(next(key.choices for key in WHAT_IF_KEYS if key.name == "init")),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_query_round_trips(scale, group, init, seed):
    what_if = WhatIf(scale, group, init, seed)
    assert WhatIf.parse(read_query(what_if.query())) == what_if


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"scale": "0"}, "scale", "scale: '0' is not a number from 0.0001 to 10000"),
        ({"recording": "cuda"}, "recording", "recording: 'cuda' is not one of op, aten"),
        ({"seed": -1}, "seed", "seed: -1 is not an integer from 0 to 9223372036854775807"),
        ({"init": "kaimin_normal"}, "init", "; did you mean 'kaiming_normal'?"),
        ({"group": 3}, "group", "group: 3 is not the path of a module"),
        ({"widths": "3,1"}, "widths", "widths: unknown key; the keys of a what-if are scale, group, init, seed"),
    ],
)
def test_a_bad_value_is_refused_with_key_and_range(values, field, message):
    with pytest.raises(SpecError) as caught:
        WhatIf.parse(values)
    assert caught.value.field == field
    assert message in caught.value.message


# ------------------------------------------------------------------------------------------------------------ groups


def tied():
    """A head that shares its weight with the embedding, and a module that appears twice."""
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(7, 4),
            "body": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()),
            "head": nn.Linear(4, 7, bias=False),
        }
    )
    model["head"].weight = model["embed"].weight
    model["again"] = model["body"]
    return model


def test_groups_are_modules_with_weights_in_order():
    assert groups_of(tied()) == ("embed", "body", "body.0", "head", "again", "again.0")


def test_a_tied_parameter_has_all_names_and_groups():
    (weight,) = (each for each in named_parameters(tied()) if each.name == "embed.weight")
    assert weight.names == ("embed.weight", "head.weight")
    assert weight.is_of("embed")
    assert weight.is_of("head")
    assert weight.is_of("")
    assert not weight.is_of("body")
    assert not weight.is_of("emb")
    assert tied_names(tied()) == {"embed.weight": ("head.weight",), "body.0.weight": ("again.0.weight",)}


def test_vectors_and_empty_tensors_are_no_weights():
    model = nn.Module()
    model.bias = nn.Parameter(nn.Linear(3, 3).bias.detach())
    model.empty = nn.Parameter(nn.Linear(3, 3).weight.detach()[:0])
    model.weight = nn.Parameter(nn.Linear(3, 3).weight.detach())
    assert [each.name for each in named_parameters(model) if each.is_weight] == ["weight"]
    assert groups_of(model) == ()


def test_an_unknown_group_is_refused_with_similar_ones():
    groups = groups_of(tied())
    assert check_group("body.0", groups) == "body.0"
    assert check_group("", groups) == ""
    with pytest.raises(SpecError) as caught:
        check_group("boody", groups)
    assert caught.value.field == "group"
    assert caught.value.limit == ["again", "body", "embed", "head", "again.0", "body.0"]
    assert "'boody'" in caught.value.message
    assert "did you mean 'body'?" in caught.value.message
    with pytest.raises(SpecError, match="and 2988 more"):
        check_group("x", [f"layers.{index}" for index in range(3000)])
