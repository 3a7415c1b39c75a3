"""The spec: one table, read the same from a query string and from JSON."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_strategies import specs

from chainrule.errors import SpecError
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME, SPEC_KEYS
from chainrule.spec.programs import MAX_DEPTH
from chainrule.spec.values import number_text

pytestmark = pytest.mark.smoke


def rejected(query: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        ModelSpec.from_query(query)
    return caught.value


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        (
            "seed=7&scale=1.50&activation=relu&widths=100,100,100,1&bias=false",
            "widths=100x3,1&scale=1.5&bias=false&seed=7",
        ),
        (
            "program=mlp&preset=deep-relu&scale=0.2&widths=100%2C1",
            "widths=100,1&last_activation=true&init=standard_normal&scale=0.2&bias=false",
        ),
        (f"widths=1x{MAX_DEPTH + 1}", f"widths=1x{MAX_DEPTH + 1}"),
        ("program=neuron&widths=3,1", "program=neuron"),
        ("widths=2,1&seed=1&program=neuron", "program=neuron&widths=2,1&seed=1"),
        ("program=matmul&rung=@&batch=200", "program=matmul&rung=@&batch=200"),
        ("program=mul_constant&constant=-0.50", "program=mul_constant&constant=-0.5"),
        ("program=exp&widths=100", "program=exp&widths=100"),
    ],
)
def test_the_canonical_query_has_the_changed_keys_in_order(query, canonical):
    assert ModelSpec.from_query(query).query() == canonical
    assert ModelSpec.from_query(canonical) == ModelSpec.from_query(query)


def test_the_default_is_the_chapter_s_model():
    spec = ModelSpec()
    assert spec.widths == (100, 50, 1)
    assert (spec.depth, spec.n_in, spec.n_out) == (2, 100, 1)
    assert (spec.activation, spec.init, spec.loss, spec.batch) == ("relu", "kaiming_normal", "mse", 200)
    assert ModelSpec.from_query("") == spec
    assert spec.query() == ""
    assert str(ModelSpec(bias_std="-0").bias_std) == "0.0"
    with pytest.raises(ValueError, match="frozen"):
        spec.seed = 1


def test_the_table_and_the_model_have_the_same_keys_and_defaults():
    assert tuple(key.name for key in SPEC_KEYS) == tuple(ModelSpec.model_fields)
    assert ModelSpec.parse({key.name: key.default for key in SPEC_KEYS if key.name in ModelSpec().keys}) == ModelSpec()
    assert all(getattr(ModelSpec(), key.name) == key.default for key in SPEC_KEYS if key.kind != "widths")
    assert all(key.doc.endswith(".") for key in SPEC_KEYS)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.1, "0.1"), (1e-6, "0.000001"), (1e-7, "1e-7"), (2.5e-9, "2.5e-9"), (1e30, "1e+30"), (12, "12")],
)
def test_numbers_are_written_as_javascript_writes_them(value, text):
    assert number_text(value) == text
    assert float(text) == value


@settings(max_examples=200)
@given(specs(), st.integers(0, 2**63 - 1), st.floats(1e-4, 1e4), st.floats(0, 10), st.floats(-1e6, 1e6))
def test_every_spec_is_read_back_from_its_query_and_its_dict(spec, seed, scale, bias_std, constant):
    changes = {"seed": seed, "scale": scale, "constant": constant}
    if spec.bias and spec.init != "torch_default":
        changes["bias_std"] = bias_std
    spec = spec.replace(**{name: value for name, value in changes.items() if name in spec.keys})
    assert ModelSpec.from_query(spec.query()) == spec
    assert ModelSpec.from_query(spec.query()).query() == spec.query()
    assert ModelSpec.parse(json.loads(json.dumps(spec.as_dict()))) == spec


@pytest.mark.parametrize(
    ("query", "field", "parts"),
    [
        ("scale=abc", "scale", ["'abc'", "0.0001", "10000"]),
        *((f"scale={text}", "scale", [f"'{text}'"]) for text in ("0", "nan", "inf", "1e999", "1_0", "")),
        ("batch=1.5", "batch", ["'1.5'", "integer"]),
        ("batch=0", "batch", ["'0'", "from 1"]),
        ("batch=\N{ARABIC-INDIC DIGIT THREE}", "batch", ["integer"]),
        ("seed=-1", "seed", ["'-1'", "from 0"]),
        ("seed=9223372036854775808", "seed", ["9223372036854775808", "9223372036854775807"]),
        ("bias=yes", "bias", ["'yes'", "true or false"]),
        ("init=kaimin_normal", "init", ["'kaimin_normal'", "did you mean 'kaiming_normal'?"]),
        ("device=tpu", "device", ["'tpu'", "cpu, cuda"]),
        ("widths=100", "widths", ["'100'", "2 to"]),
        ("widths=0,1", "widths", ["'0,1'", "0 is out of range"]),
        ("widths=100,,1", "widths", ["'100,,1'"]),
        (f"widths=1x{MAX_DEPTH + 2}", "widths", ["10001 integers"]),
        ("widths=100x0,1,1", "widths", ["100x0"]),
        ("widths=100,1.5", "widths", ["'1.5'"]),
        ("widths=99999999999,1", "widths", ["99999999999"]),
        ("preset=nope", "preset", ["'nope'", "deep-relu"]),
        ("preset=kaiming_relu", "preset", ["did you mean 'kaiming-relu'?"]),
        ("loss=cross_entropy", "loss", ["'cross_entropy'", "100,50,1", "at least 2"]),
        ("bias=false&bias_std=0.1", "bias_std", ["0.1", "bias=false", "must be 0"]),
        ("bias_std=0.1&init=torch_default", "bias_std", ["0.1", "torch_default"]),
        ("bias_std=10.5", "bias_std", ["'10.5'", "from 0 to 10"]),
        ("seed=1&seed=2", "seed", ["twice", "'1'", "'2'"]),
        ("program=perceptron", "program", ["'perceptron'", "mlp, neuron, matmul"]),
        ("program=exp&widths=5,5", "widths", ["'5,5'", "one integer from 1"]),
        ("program=exp&widths=5x2", "widths", ["'5x2'", "one integer"]),
        ("program=matmul&widths=3", "widths", ["'3'", "2 integers", "at least 2 are needed"]),
        ("program=neuron&widths=65,1", "widths", ["'65,1'", "from 1 to 64", "65 is out of range"]),
        ("program=neuron&widths=3,2", "widths", ["'3,2'", "ends in 2", "last width is 1"]),
        ("program=matmul&rung=loop", "rung", ["'loop'", "did you mean 'loops'?"]),
        ("program=mul_constant&constant=nan", "constant", ["'nan'", "from -1000000 to 1000000"]),
        ("program=neuron&init=torch_default&bias_std=0.1", "bias_std", ["torch_default"]),
        ("data=moon", "data", ["'moon'", "did you mean 'moons'?"]),
        (
            "data=moons",
            "widths",
            ["100,50,1", "2 features and 2 classes", "the first width must be 2, the last width 1 or 2"],
        ),
        ("data=digits&widths=64,1", "widths", ["64,1", "10 classes", "the last width 10"]),
        ("data=xor&widths=2,2&batch=1001", "batch", ["1001", "data=xor", "1000 training samples", "at most 1000"]),
        ("optimizer=adamax", "optimizer", ["'adamax'", "did you mean 'adam'?"]),
        ("lr=-1", "lr", ["'-1'", "from 0 to 1000000000"]),
        ("step=100001", "step", ["'100001'", "from 0 to 100000"]),
        ("program=neuron&step=1", "step", ["program=neuron", "step is a key of mlp"]),
        ("program=exp&preset=deep-relu", "program", ["'exp'", "preset=deep-relu", "mlp"]),
    ],
)
def test_the_error_of_a_bad_value_names_key_value_and_allowed_values(query, field, parts):
    error = rejected(query)
    assert error.field == field
    assert error.message.startswith(field)
    for part in parts:
        assert part in error.message


def test_an_unknown_key_suggests_the_closest():
    error = rejected("widht=3,1")
    assert error.field == "widht"
    assert "did you mean 'widths'?" in error.message
    assert error.limit == [*KEY_BY_NAME, "preset"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("widths", value) for value in ([True, 1], [2.0, 1], None)),
        *(("scale", value) for value in (True, float("nan"), 10**400)),
        *(("bias", value) for value in (1, "True")),
        ("seed", 10**5000),
        ("batch", 3.0),
        ("activation", ["relu"]),
        ("preset", 3),
    ],
    ids=lambda value: str(type(value)),
)
def test_json_values_of_the_wrong_type_are_refused(key, value):
    with pytest.raises(SpecError) as caught:
        ModelSpec.parse({key: value})
    assert caught.value.field == key


@pytest.mark.parametrize(
    "query",
    [
        "widths=100x999999999",
        "widths=" + "1," * 200_000,
        "scale=" + "9" * 100_000,
        "a" * 100_000 + "=1",
        "preset=" + "deep-" * 20_000,
        "&".join(f"k{i}=1" for i in range(5000)),
    ],
    ids=lambda query: query[:20],
)
def test_the_error_of_a_huge_query_takes_little_memory(query):
    rejected(query)  # loads modules
    tracemalloc.start()
    error = rejected(query)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A few copies of the query, but nothing is expanded.
    assert peak < 200_000 + 10 * len(query)
    assert len(error.message) < 600
