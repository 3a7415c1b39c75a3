"""The edges of every limit: the most that it allows is computed, one more is refused, at no cost."""

import asyncio
import contextlib
import time
import tracemalloc

import httpx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spec_strategies import specs
from typer.testing import CliRunner

from chainrule.__main__ import USAGE, commands
from chainrule.errors import LimitError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import ANSWERS, count_steps, estimate_answer, estimate_cost
from chainrule.spec.limits import check_limits
from chainrule.spec.programs import MAX_DEPTH, MAX_SIZE, PROGRAMS
from chainrule.web.main import create_app

# What each limit of a spec is about: the key that is named, and how much of it a spec asks for.
ASKED = {
    "max_depth": ("widths", lambda spec: spec.depth),
    "max_width": ("widths", lambda spec: max(spec.widths)),
    "max_batch": ("batch", lambda spec: spec.batch),
    "max_steps": ("rung", count_steps),
    "max_flops": ("widths", lambda spec: estimate_cost(spec).flops),
    "max_memory_bytes": ("widths", lambda spec: estimate_cost(spec).memory_bytes),
    "max_response_bytes": ("widths", lambda spec: estimate_cost(spec).response_bytes),
}
NOT_OF_A_SPEC = {"max_body_bytes", "max_connections", "max_requests", "max_sockets", "max_kept_bytes"}
LEAST = {
    name: max(1, *(each.ge for each in Settings.model_fields[name].metadata if hasattr(each, "ge"))) for name in ASKED
}
UNLIMITED = dict.fromkeys(ASKED, 10**60) | {"max_depth": MAX_DEPTH}

ANY = specs(depths=(1, 80), widths=(1, 2048), batches=(1, 2048))
NETS = specs(programs=("mlp",), depths=(2, 80), widths=(2, 2048), batches=(2, 2048))
# Where a limit says nothing of every spec: those of which it does.
OF = {
    "max_depth": NETS,
    "max_batch": NETS | specs(programs=("matmul", "exp", "linear_cpp"), batches=(2, 2048)),
    "max_steps": specs(programs=("matmul",), batches=(2, 40), rungs=("loops", "elementwise", "broadcasting")),
    "max_response_bytes": specs(programs=("mlp",), depths=(20, 80), widths=(1, 2048), batches=(1, 2048)),
}


def limited(**limits: int) -> Settings:
    """Settings that allow all but what is named."""
    return Settings(**{**UNLIMITED, **limits})


def refused(spec: ModelSpec, limits: Settings, form: str = "json") -> LimitError:
    with pytest.raises(LimitError) as caught:
        check_limits(spec, limits, form)
    return caught.value


def check_refusal(error: LimitError, name: str, spec: ModelSpec, asked: int, allowed: int) -> None:
    """The error names the key, what was asked for, what is allowed and the setting."""
    field = ASKED[name][0]
    assert (error.code, error.status, error.field, error.limit) == ("over_limit", 422, field, allowed)
    assert error.message.startswith(f"{field}: ")
    for part in (str(asked), str(allowed), f"CHAINRULE_{name.upper()}"):
        assert part in error.message
    assert field in spec.keys


@pytest.mark.smoke
def test_the_limits_of_a_spec_are_all_of_the_settings_but_the_servers():
    limits = {name for name in Settings.model_fields if name.startswith("max_")}
    assert limits == set(ASKED) | NOT_OF_A_SPEC


@pytest.mark.parametrize("name", ASKED)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), more=st.integers(0, 10**6))
def test_exactly_what_a_spec_asks_for_is_enough_and_one_less_is_not(name, data, more):
    spec = data.draw(OF.get(name, ANY))
    asked = ASKED[name][1](spec)
    assume(asked > LEAST[name])
    check_limits(spec, limited(**{name: min(asked + more, UNLIMITED[name])}))
    check_limits(spec, limited(**{name: asked}))
    check_refusal(refused(spec, limited(**{name: asked - 1})), name, spec, asked, asked - 1)


@settings(max_examples=60, deadline=None)
@given(spec=OF["max_response_bytes"], form=st.sampled_from(list(ANSWERS)))
def test_an_answer_is_measured_in_its_format(spec, form):
    asked = estimate_answer(spec, form)
    assume(asked > LEAST["max_response_bytes"])
    check_limits(spec, limited(max_response_bytes=asked), form)
    error = refused(spec, limited(max_response_bytes=asked - 1), form)
    check_refusal(error, "max_response_bytes", spec, asked, asked - 1)
    assert f"as {form}," in error.message


GROWN = {
    "max_depth": lambda spec: spec.replace(widths=(spec.n_in, *spec.widths)),
    "max_width": lambda spec: spec.replace(widths=[width + 1 for width in spec.widths]),
    "max_batch": lambda spec: spec.replace(batch=spec.batch + 1),
}


@pytest.mark.parametrize("name", GROWN)
@settings(max_examples=40, deadline=None)
@given(spec=specs(programs=("mlp",), depths=(1, 63), widths=(1, 2048), batches=(1, 2048)))
def test_the_largest_net_that_is_allowed_is_computed_and_the_next_is_refused(name, spec):
    _, asked = ASKED[name]
    allowed = asked(spec)
    check_limits(spec, limited(**{name: allowed}))
    larger = GROWN[name](spec)
    check_refusal(refused(larger, limited(**{name: allowed})), name, larger, allowed + 1, allowed)


@settings(max_examples=60, deadline=None)
@given(
    spec=specs(programs=("matmul",), widths=(1, 40), batches=(1, 40), rungs=("loops", "elementwise", "broadcasting"))
)
def test_a_product_of_one_row_more_takes_more_steps(spec):
    allowed = count_steps(spec)
    check_limits(spec, limited(max_steps=allowed))
    larger = spec.replace(batch=spec.batch + 1)
    check_refusal(refused(larger, limited(max_steps=allowed)), "max_steps", larger, count_steps(larger), allowed)


@settings(max_examples=60, deadline=None)
@given(spec=OF["max_batch"], key=st.sampled_from(list(GROWN)))
def test_what_is_larger_costs_more(spec, key):
    cost, larger = estimate_cost(spec), estimate_cost(GROWN[key if spec.is_net else "max_batch"](spec))
    assert larger.flops > cost.flops
    assert larger.memory_bytes >= cost.memory_bytes
    assert larger.response_bytes >= cost.response_bytes


@settings(max_examples=60, deadline=None)
@given(spec=specs(programs=("mlp",), depths=(1, 64)))
def test_what_costs_the_defaults_at_most_is_computed_and_no_other(spec):
    defaults = Settings()
    too_much = [name for name, (_, asked) in ASKED.items() if asked(spec) > getattr(defaults, name)]
    if not too_much:
        check_limits(spec, defaults)
    else:
        assert any(f"CHAINRULE_{name.upper()}" in refused(spec, defaults).message for name in too_much)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("max_depth", "widths=1x66"),
        ("max_width", "program=exp&widths=1025"),
        ("max_batch", "widths=1,1&batch=1025"),
        ("max_steps", "program=matmul&rung=loops&widths=4,16&batch=5"),
        ("max_flops", "widths=1024x65&batch=1&init=orthogonal"),
        ("max_memory_bytes", "widths=1024x65&batch=1&dtype=float64"),
    ],
)
def test_each_limit_is_met_as_it_comes(name, query):
    spec = ModelSpec.from_query(query)
    error = refused(spec, Settings())
    check_refusal(error, name, spec, ASKED[name][1](spec), getattr(Settings(), name))


@pytest.mark.smoke
def test_an_answer_is_too_large_where_more_layers_are_allowed():
    spec = ModelSpec(widths="2x9001", activation="gelu", style="functions", batch=1)
    error = refused(spec, Settings(max_depth=MAX_DEPTH))
    check_refusal(error, "max_response_bytes", spec, estimate_cost(spec).response_bytes, 64 << 20)


def test_no_limit_of_depth_width_or_batch_is_beyond_what_a_spec_can_name():
    defaults = Settings()
    assert defaults.max_depth <= MAX_DEPTH
    assert max(defaults.max_width, defaults.max_batch) <= MAX_SIZE


# --------------------------------------------------------------------------------------------------- where it is said


def test_the_api_and_the_command_line_measure_an_answer_in_its_format():
    # The explorer alone takes more than is allowed, and the dump that is shown in it far less.
    async def ask(*files: str) -> list[httpx.Response]:
        app = create_app(Settings(max_response_bytes=1 << 20))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as client:
            return [await client.get(f"/api/v1/{file}?seed=7") for file in files]

    html, dump = asyncio.run(ask("trace.html", "trace.json"))
    assert (html.status_code, dump.status_code) == (422, 200)
    error = html.json()["error"]
    assert (error["code"], error["field"], error["limit"]) == ("over_limit", "widths", 1 << 20)
    assert f"{estimate_answer(ModelSpec(seed=7), 'html')} bytes of answer as html" in error["message"]
    assert "CHAINRULE_MAX_RESPONSE_BYTES" in error["message"]

    environment = {"CHAINRULE_MAX_RESPONSE_BYTES": str(1 << 20)}
    result = CliRunner().invoke(commands, ["trace", "seed=7", "--format", "html"], env=environment)
    assert result.exit_code == USAGE
    assert error["message"] in " ".join(result.stderr.split())
    assert CliRunner().invoke(commands, ["trace", "seed=7"], env=environment).exit_code == 0


# ------------------------------------------------------------------------------------------------------- at no cost

HUGE = st.sampled_from(list(PROGRAMS)).flatmap(
    lambda program: specs(programs=(program,), depths=(1, 200), widths=(1, MAX_SIZE), batches=(1, MAX_SIZE))
)


@settings(max_examples=60, deadline=None)
@given(spec=HUGE, wide=st.booleans())
def test_to_check_the_limits_takes_no_memory(spec, wide):
    limits = Settings(max_depth=MAX_DEPTH, max_width=MAX_SIZE, max_batch=MAX_SIZE) if wide else Settings()
    tracemalloc.start()
    with contextlib.suppress(LimitError):
        check_limits(spec, limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("init", ["kaiming_normal", "orthogonal"])
def test_the_largest_spec_there_is_is_refused_at_once(init):
    spec = ModelSpec(widths=f"{MAX_SIZE}x{MAX_DEPTH + 1}", batch=MAX_SIZE, init=init)
    limits = Settings(max_depth=MAX_DEPTH, max_width=MAX_SIZE, max_batch=MAX_SIZE)
    tracemalloc.start()
    refused(spec, limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    began = time.process_time()
    refused(spec, limits)
    assert time.process_time() - began < 1
