import pytest

from chainrule.build.programs import PROGRAM_BUILDERS
from chainrule.chapter.pages import PAGES
from chainrule.errors import LimitError, SpecError
from chainrule.foundations.matmul import RUNGS as RUNGS_OF_THE_CHAPTER
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import count_steps
from chainrule.spec.keys import KEY_BY_NAME, SPEC_KEYS, keys_of
from chainrule.spec.limits import check_limits
from chainrule.spec.programs import MAX_NEURON_INPUTS, PROGRAMS, RUNGS

pytestmark = pytest.mark.smoke

CONSTRUCTS = [name for name in PROGRAMS if name != "mlp"]
UNUSED = [(program, key) for program in PROGRAMS for key in KEY_BY_NAME if key not in keys_of(program)]


def rejected(query: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        ModelSpec.from_query(query)
    return caught.value


def test_the_tables_fit_together():
    assert KEY_BY_NAME["program"].choices == tuple(PROGRAMS)
    assert set(PROGRAM_BUILDERS) == set(CONSTRUCTS)
    assert tuple(RUNGS_OF_THE_CHAPTER) == RUNGS
    for program in PROGRAMS.values():
        assert set(program.keys) <= set(KEY_BY_NAME)
        assert set(program.defaults) <= set(program.keys)
        assert program.doc.endswith(".")
        assert program.page is None or program.page.removeprefix("/foundations/") in PAGES
    assert set(keys_of("mlp")) == set(KEY_BY_NAME) - {"rung", "constant"}


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_the_links_of_the_chapter_are_within_the_limits(page):
    for link in page.links:
        check_limits(ModelSpec.from_query(link.query), Settings())


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_s_name_alone_is_a_canonical_query(program):
    spec = ModelSpec.from_query(f"program={program}")
    assert spec.program == program
    assert spec.query() == ("" if program == "mlp" else f"program={program}")
    assert list(spec.as_dict()) == [key.name for key in SPEC_KEYS if key.name in keys_of(program)]
    check_limits(spec, Settings())


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        ("program=neuron&widths=3,1", "program=neuron"),
        ("widths=2,1&seed=1&program=neuron", "program=neuron&widths=2,1&seed=1"),
        ("program=matmul&rung=loops&widths=3,2&batch=2", "program=matmul&rung=loops"),
        ("program=matmul&rung=@&batch=200", "program=matmul&rung=@&batch=200"),
        ("program=mul_constant&constant=2", "program=mul_constant"),
        ("program=mul_constant&constant=-0.50", "program=mul_constant&constant=-0.5"),
        ("program=exp&widths=100", "program=exp&widths=100"),
        ("program=linear_function&bias=false&scale=1", "program=linear_function&bias=false"),
    ],
)
def test_the_canonical_query_omits_the_program_s_defaults(query, canonical):
    assert ModelSpec.from_query(query).query() == canonical
    assert ModelSpec.from_query(canonical) == ModelSpec.from_query(query)


@pytest.mark.parametrize(("program", "key"), UNUSED)
def test_a_key_that_the_program_does_not_use_is_refused(program, key):
    value = str(KEY_BY_NAME[key].default).lower()
    error = rejected(f"program={program}&{key}={value}")
    assert (error.code, error.status, error.field) == ("invalid_spec", 422, key)
    assert error.message.startswith(f"{key}: ")
    assert f"program={program}" in error.message
    assert error.limit == list(keys_of(program))
    assert all(used in error.message for used in error.limit)


@pytest.mark.parametrize(
    ("query", "field", "parts"),
    [
        ("program=perceptron", "program", ["'perceptron'", "mlp, neuron, matmul"]),
        ("program=neurons", "program", ["did you mean 'neuron'?"]),
        ("program=exp&widths=5,5", "widths", ["'5,5'", "one integer from 1"]),
        ("program=exp&widths=", "widths", ["''", "one integer"]),
        ("program=exp&widths=5x2", "widths", ["'5x2'", "one integer"]),
        ("program=matmul&widths=3", "widths", ["'3'", "2 integers", "2 are needed"]),
        ("program=matmul&widths=3,2,1", "widths", ["'3,2,1'", "2 integers"]),
        ("program=linear_function&widths=3x3", "widths", ["'3x3'", "2 integers"]),
        ("program=neuron&widths=65,1", "widths", ["'65,1'", "from 1 to 64", "65 is out of range"]),
        ("program=neuron&widths=3,2", "widths", ["'3,2'", "ends in 2", "last width is 1"]),
        ("program=matmul&rung=loop", "rung", ["'loop'", "did you mean 'loops'?"]),
        ("program=mul_constant&constant=nan", "constant", ["'nan'", "from -1000000 to 1000000"]),
        ("program=neuron&init=torch_default&bias_std=0.1", "bias_std", ["torch_default"]),
        ("program=linear_function&bias=false&bias_std=0.1", "bias_std", ["bias=false"]),
        ("program=exp&preset=deep-relu", "program", ["'exp'", "preset=deep-relu", "mlp"]),
        ("program=exp&program=mlp", "program", ["twice"]),
    ],
)
def test_the_error_of_a_bad_value_names_key_value_and_allowed_values(query, field, parts):
    error = rejected(query)
    assert error.field == field
    for part in parts:
        assert part in error.message


def test_a_preset_may_name_the_net():
    assert ModelSpec.from_query("program=mlp&preset=deep-relu") == ModelSpec.from_query("preset=deep-relu")


def test_json_may_hold_a_single_width_as_a_number():
    assert ModelSpec.parse({"program": "exp", "widths": 7}) == ModelSpec.from_query("program=exp&widths=7")


def test_replace_keeps_the_keys_that_both_programs_share():
    net = ModelSpec(seed=7, dtype="float64", widths="9,8,1", batch=3, activation="tanh", init="uniform", scale=2)
    assert net.replace(program="exp") == ModelSpec(program="exp", seed=7, dtype="float64")
    layer = net.replace(program="linear_function")
    assert layer == ModelSpec(program="linear_function", seed=7, dtype="float64", init="uniform", scale=2)
    assert layer.replace(program="mlp").query() == "init=uniform&scale=2&seed=7&dtype=float64"
    assert ModelSpec(program="exp", widths=9).replace(program="my_relu", batch=2).query() == (
        "program=my_relu&widths=9&batch=2"
    )
    assert net.replace(program="mlp") == net


@pytest.mark.parametrize(
    ("rung", "widths", "batch", "steps"),
    [("loops", "4,16", 4, 256), ("elementwise", "100,16", 16, 256), ("broadcasting", "100,99", 256, 256)],
)
def test_the_steps_of_a_rung_are_limited(rung, widths, batch, steps):
    spec = ModelSpec(program="matmul", rung=rung, widths=widths, batch=batch)
    assert count_steps(spec) == steps == Settings().max_steps
    check_limits(spec, Settings())
    larger = spec.replace(batch=batch + 1)
    with pytest.raises(LimitError) as caught:
        check_limits(larger, Settings())
    assert (caught.value.field, caught.value.limit) == ("rung", steps)
    for part in (rung, str(count_steps(larger)), str(steps), widths, f"batch={batch + 1}", "CHAINRULE_MAX_STEPS"):
        assert part in caught.value.message
    check_limits(larger, Settings(max_steps=count_steps(larger)))


def test_the_batch_limit_does_not_bound_the_neuron():
    check_limits(ModelSpec(program="neuron", widths=f"{MAX_NEURON_INPUTS},1"), Settings(max_batch=1))
