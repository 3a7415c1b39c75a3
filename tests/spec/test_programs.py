import pytest

from chainrule.build.programs import PROGRAM_BUILDERS
from chainrule.chapter.pages import PAGES
from chainrule.errors import SpecError
from chainrule.foundations.matmul import RUNGS as RUNGS_OF_THE_CHAPTER
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME, SPEC_KEYS, keys_of
from chainrule.spec.limits import check_limits
from chainrule.spec.programs import PROGRAMS, RUNGS

pytestmark = pytest.mark.smoke

CONSTRUCTS = [name for name in PROGRAMS if name != "mlp"]
UNUSED = [(program, key) for program in PROGRAMS for key in KEY_BY_NAME if key not in keys_of(program)]


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_s_name_alone_is_a_canonical_query(program):
    spec = ModelSpec.from_query(f"program={program}")
    assert spec.program == program
    assert spec.query() == ("" if program == "mlp" else f"program={program}")
    assert list(spec.as_dict()) == [key.name for key in SPEC_KEYS if key.name in keys_of(program)]
    check_limits(spec, Settings(max_batch=1024 if "batch" in spec.keys else 1))


@pytest.mark.parametrize(("program", "key"), UNUSED)
def test_a_key_that_the_program_does_not_use_is_refused(program, key):
    value = str(KEY_BY_NAME[key].default).lower()
    with pytest.raises(SpecError) as caught:
        ModelSpec.from_query(f"program={program}&{key}={value}")
    error = caught.value
    assert (error.code, error.status, error.field) == ("invalid_spec", 422, key)
    assert error.message.startswith(f"{key}: ")
    assert f"program={program}" in error.message
    assert error.limit == list(keys_of(program))
    assert all(used in error.message for used in error.limit)


def test_replace_keeps_the_keys_that_both_programs_share():
    net = ModelSpec(seed=7, dtype="float64", widths="9,8,1", batch=3, activation="tanh", init="uniform", scale=2)
    with pytest.raises(SpecError, match="scale"):
        net.replace(scale=0)
    assert ModelSpec.parse({"program": "exp", "widths": 7}) == ModelSpec.from_query("program=exp&widths=7")
    assert net.replace(program="exp") == ModelSpec(program="exp", seed=7, dtype="float64")
    layer = net.replace(program="linear_function")
    assert layer == ModelSpec(program="linear_function", seed=7, dtype="float64", init="uniform", scale=2)
    assert layer.replace(program="mlp").query() == "init=uniform&scale=2&seed=7&dtype=float64"
    assert ModelSpec(program="exp", widths=9).replace(program="my_relu", batch=2).query() == (
        "program=my_relu&widths=9&batch=2"
    )
    assert net.replace(program="mlp") == net
