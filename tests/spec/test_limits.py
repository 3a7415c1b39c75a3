"""The limits of a spec: each maximum is computed, one more is refused, and the check allocates nothing."""

import asyncio
import contextlib
import tracemalloc

import httpx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spec_strategies import specs
from typer.testing import CliRunner

from chainrule.__main__ import USAGE, commands
from chainrule.errors import LimitError, SpecError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import ANSWERS, count_steps, estimate_cost, with_answer
from chainrule.spec.limits import check_limits, with_limits
from chainrule.spec.presets import PRESETS
from chainrule.spec.programs import MAX_DEPTH, MAX_SIZE, PROGRAMS
from chainrule.web.main import create_app

# For each limit, the key named by an error and the amount needed by a spec.
ASKED = {
    "max_depth": ("widths", lambda spec: spec.depth),
    "max_width": ("widths", lambda spec: max(spec.widths)),
    "max_batch": ("batch", lambda spec: spec.batch),
    "max_steps": ("rung", count_steps),
    "max_flops": ("widths", lambda spec: estimate_cost(spec).flops),
    "max_memory_bytes": ("widths", lambda spec: estimate_cost(spec).memory_bytes),
    "max_response_bytes": ("widths", lambda spec: estimate_cost(spec).response_bytes),
}
LEAST = {
    name: max(1, *(each.ge for each in Settings.model_fields[name].metadata if hasattr(each, "ge"))) for name in ASKED
}
UNLIMITED = dict.fromkeys(ASKED, 10**60) | {"max_depth": MAX_DEPTH}

ANY = specs(depths=(1, 80), widths=(1, 2048), batches=(1, 2048))
NETS = specs(programs=("mlp",), depths=(2, 80), widths=(2, 2048), batches=(2, 2048))
# Limits that do not apply to every spec, and specs that they apply to.
OF = {
    "max_depth": NETS,
    "max_batch": NETS | specs(programs=("matmul", "exp", "linear_cpp"), batches=(2, 2048)),
    "max_steps": specs(programs=("matmul",), batches=(2, 40), rungs=("loops", "elementwise", "broadcasting")),
    "max_response_bytes": specs(programs=("mlp",), depths=(20, 80), widths=(1, 2048), batches=(1, 2048)),
}
QUICK = settings(max_examples=30)


def limited(**limits):
    return Settings(**{**UNLIMITED, **limits})


def check_refusal(name, spec, asked, limits, form="json"):
    """The spec is refused; the error names the key, the amount, the limit and the setting."""
    field, allowed = ASKED[name][0], getattr(limits, name)
    with pytest.raises(LimitError) as caught:
        check_limits(spec, limits, form)
    error = caught.value
    assert (error.code, error.status, error.field, error.limit) == ("over_limit", 422, field, allowed)
    assert error.message.startswith(f"{field}: ")
    assert all(part in error.message for part in (str(asked), str(allowed), f"CHAINRULE_{name.upper()}"))
    assert field in spec.keys
    return error


@pytest.mark.parametrize("name", ASKED)
@QUICK
@given(data=st.data())
def test_the_amount_of_a_spec_is_allowed_and_one_less_is_not(name, data):
    spec = data.draw(OF.get(name, ANY))
    asked = ASKED[name][1](spec)
    assume(asked > LEAST[name])
    check_limits(spec, limited(**{name: asked}))
    check_refusal(name, spec, asked, limited(**{name: asked - 1}))


@QUICK
@given(spec=OF["max_response_bytes"], form=st.sampled_from(list(ANSWERS)))
def test_the_answer_and_its_memory_are_estimated_in_its_format(spec, form):
    cost = estimate_cost(spec)
    for name, asked in (
        ("max_response_bytes", ANSWERS[form].of(cost.response_bytes)),
        ("max_memory_bytes", with_answer(cost, form)),
    ):
        check_limits(spec, limited(**{name: asked}), form)
        check_refusal(name, spec, asked, limited(**{name: asked - 1}), form)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("max_depth", "widths=1x66"),
        ("max_width", "program=exp&widths=1025"),
        ("max_width", "widths=1,1000000000,1"),
        ("max_batch", "widths=1,1&batch=1025"),
        ("max_steps", "program=matmul&rung=loops&widths=4,16&batch=5"),
        ("max_flops", "widths=1024x65&batch=1&init=orthogonal"),
        ("max_flops", "widths=1024,1024&batch=1024&dtype=float16"),
        ("max_memory_bytes", "widths=1024x65&batch=1&dtype=float64"),
        ("max_response_bytes", "widths=2x8501&activation=gelu&style=functions&batch=1"),
        ("max_memory_bytes", "program=matmul&rung=broadcasting&widths=1024,1024&batch=256"),
    ],
)
def test_each_default_limit_is_met(name, query):
    spec = ModelSpec.from_query(query)
    error = check_refusal(
        name, spec, ASKED[name][1](spec), Settings(max_depth=64 if name == "max_depth" else MAX_DEPTH)
    )
    assert ("(float16 on a CPU counts 100-fold)" in error.message) == (spec.dtype == "float16")


@pytest.mark.parametrize(
    "query",
    [
        *(f"preset={preset.name}&dtype=float16" for preset in PRESETS),
        *(f"program={name}" for name in PROGRAMS),
        "widths=10x65&batch=1024",
        "widths=1024,1",
        "widths=1024,1024&batch=1024",
        "widths=1024,1024&batch=1024&dtype=float16&device=cuda",
        "program=matmul&rung=einsum&widths=1024,1024&batch=256",
        "program=matmul&rung=@&widths=1000,1000&batch=1000",
    ],
)
def test_the_default_limits_allow(query):
    check_limits(ModelSpec.from_query(query), Settings())


def test_the_api_and_the_command_line_measure_an_answer_in_its_format():
    # The explorer in the HTML takes more than the limit, the dump far less.
    async def ask(file):
        app = create_app(Settings(max_response_bytes=1 << 20))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as client:
            return await client.get(f"/api/v1/{file}?seed=7")

    html, dump = asyncio.run(ask("trace.html")), asyncio.run(ask("trace.json"))
    assert (html.status_code, dump.status_code) == (422, 200)
    error = html.json()["error"]
    size = ANSWERS["html"].of(estimate_cost(ModelSpec(seed=7)).response_bytes)
    assert error["message"].startswith(f"widths: {size} bytes of answer in the format html")
    environment = {"CHAINRULE_MAX_RESPONSE_BYTES": str(1 << 20)}
    result = CliRunner().invoke(commands, ["trace", "seed=7", "--format", "html"], env=environment)
    assert result.exit_code == USAGE
    assert error["message"] in " ".join(result.stderr.split())
    assert CliRunner().invoke(commands, ["trace", "seed=7"], env=environment).exit_code == 0


LARGEST = ModelSpec(widths=f"{MAX_SIZE}x{MAX_DEPTH + 1}", batch=MAX_SIZE)


@pytest.mark.parametrize("init", ["zeros", "orthogonal"])
@pytest.mark.parametrize("limits", [{}, {"max_depth": MAX_DEPTH, "max_width": MAX_SIZE, "max_batch": MAX_SIZE}])
def test_the_check_takes_no_memory(init, limits):
    spec = LARGEST.replace(init=init)
    tracemalloc.start()
    with contextlib.suppress(LimitError):
        check_limits(spec, Settings(**limits))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("query", "layers", "allowed"),
    [
        ("widths=0,1", True, "at most 64 layers of 1024 are computed here"),
        ("batch=0", True, "at most 1024 are computed here"),
        ("program=exp&widths=0", False, "at most 1024 are computed here"),
        ("program=neuron&widths=0,1", False, None),
        ("scale=inf", True, None),
    ],
)
def test_the_error_of_a_malformed_value_has_the_limit_of_this_server(query, layers, allowed):
    with pytest.raises(SpecError) as malformed:
        ModelSpec.from_query(query)
    error = with_limits(malformed.value, Settings(), layers=layers)
    if allowed is None:
        assert error is malformed.value
        return
    assert error.message == f"{malformed.value.message}; {allowed}"
    assert (error.field, error.limit["maximum"]) == (malformed.value.field, 1024)
