import contextlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.chapter.inputs import (
    choice,
    flag,
    integer,
    number,
    read_number,
    read_shape,
    read_shapes,
    read_tensor,
    tensor,
)
from chainrule.errors import InputError
from chainrule.spec.values import read_keys

INPUTS = (
    integer("m", 5, "Rows of a.", 1, 64),
    number("scale", "1.0", "Factor.", 0, 10),
    choice("op", "+", "Which.", ("+", "*")),
    flag("bias", True, "Whether there is one."),
    tensor("a", "10,6,4", "A vector.", 4, dims=(1,)),
)


def test_an_input_that_is_not_given_has_its_default():
    values = read_keys(INPUTS, {"m": "7", "bias": "false"}, "this page", InputError)
    assert (values["m"], values["scale"], values["op"], values["bias"]) == (7, 1.0, "+", False)
    assert values["a"].tolist() == [10, 6, 4]


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("m", "0", {"minimum": 1, "maximum": 64}),
        ("m", "2.5", {"minimum": 1, "maximum": 64}),
        ("scale", "inf", {"minimum": 0, "maximum": 10}),
        ("scale", "one", {"minimum": 0, "maximum": 10}),
        ("op", "-", ["+", "*"]),
        ("bias", "yes", None),
        ("a", "1,2,x", None),
        ("a", "1,2,3,4,5", None),
        ("a", "1,2;3,4", None),
        ("a", "1," * 5000, None),
    ],
)
def test_the_error_of_a_bad_text_names_the_input_the_text_and_the_allowed_values(name, text, limit):
    with pytest.raises(InputError) as raised:
        read_keys(INPUTS, {name: text}, "this page", InputError)
    error = raised.value
    assert (error.field, error.limit) == (name, limit)
    assert error.message.startswith(f"{name}: ")
    assert next(each.allowed for each in INPUTS if each.name == name) in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5", 5.0),
        ("-2.5", -2.5),
        ("−1", -1.0),
        ("1e3", 1000.0),
        ("10,6,4", [10, 6, 4]),
        ("1,", [1]),
        ("1,2;3,4", [[1, 2], [3, 4]]),
        ("1;2", [[1], [2]]),
        ("[10, 6, ]", [10, 6]),
        ("[[1,2],[−3,.5],]", [[1, 2], [-3, 0.5]]),
        ("[[[1]],[[2]]]", [[[1]], [[2]]]),
        ("[" * 8 + "1" + "]" * 8, [[[[[[[[1]]]]]]]]),
        ("inf,-inf,1", [math.inf, -math.inf, 1]),
        ("[inf,-inf]", [math.inf, -math.inf]),
        ("[]", []),
        ("[[],[]]", [[], []]),
    ],
)
def test_tensors_are_read(text, values):
    assert torch.equal(read_tensor(text), torch.tensor(values, dtype=torch.float32))


@pytest.mark.parametrize(
    "text",
    [
        *("", "[" * 9 + "]" * 9, "[" * 1000, "1e400", "1e39", "[-1e39]", "[nan nan]", "[NaNaN]", "[Infinity]"),
        *"a 1,,2 1;2,3 [1 1] [1]] [1][2] [1,[2]] [[1,2],[3]] [[1],[[2]]] [1,,2] [,1] [[1][2]] [1],".split(),
    ],
)
def test_other_texts_are_no_tensors(text):
    with pytest.raises(ValueError, match=r".+"):
        read_tensor(text)


@given(st.text(alphabet="[],;0123456789.e-naif ", max_size=30))
def test_any_text_is_a_tensor_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert read_tensor(text).numel() <= 256


@given(st.lists(st.integers(0, 10**9), max_size=8).map(tuple))
def test_shapes_are_read_as_they_are_written(shape):
    assert read_shape(",".join(map(str, shape))) == shape
    assert read_shape(str(shape)) == shape


def test_several_shapes_are_read():
    assert read_shapes("3,2,5;;2", 8) == ((3, 2, 5), (), (2,))
    with pytest.raises(ValueError, match="at most 8"):
        read_shapes(";" * 9, 8)
    with pytest.raises(ValueError, match="dimensions"):
        read_shape("1," * 9 + "1")
    with pytest.raises(ValueError, match="not a size"):
        read_shape("3,-1")


@given(st.floats(allow_nan=False))
def test_numbers_are_read_as_python_writes_them(value):
    assert read_number(repr(value)) == value
