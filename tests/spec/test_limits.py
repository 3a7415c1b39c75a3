"""Limits: known from the spec alone, before anything is allocated."""

import tracemalloc

import pytest

from chainrule.errors import LimitError, SpecError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import FLOPS_PER_VALUE, estimate_cost, estimate_memory
from chainrule.spec.limits import check_device, check_limits, with_limits
from chainrule.spec.presets import PRESETS

pytestmark = pytest.mark.smoke


def refused(query: str, **settings: int) -> LimitError:
    with pytest.raises(LimitError) as caught:
        check_limits(ModelSpec.from_query(query), Settings(**settings))
    return caught.value


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_is_within_the_default_limits(preset):
    spec = ModelSpec.parse(preset.spec)
    check_limits(spec, Settings())
    check_limits(spec.replace(dtype="float16"), Settings())


@pytest.mark.parametrize(
    ("query", "field", "limit", "setting"),
    [
        ("widths=100x66", "widths", 64, "CHAINRULE_MAX_DEPTH"),
        ("widths=1025,1", "widths", 1024, "CHAINRULE_MAX_WIDTH"),
        ("widths=1,1000000000,1", "widths", 1024, "CHAINRULE_MAX_WIDTH"),
        ("batch=1025", "batch", 1024, "CHAINRULE_MAX_BATCH"),
        ("widths=1024x65&batch=1024", "widths", 100_000_000_000, "CHAINRULE_MAX_FLOPS"),
    ],
)
def test_each_limit_names_key_value_and_setting(query, field, limit, setting):
    error = refused(query)
    assert (error.field, error.limit, error.code) == (field, limit, "over_limit")
    assert setting in error.message
    assert str(limit) in error.message


def test_memory_is_limited_too():
    error = refused("widths=1024x65&batch=1024", max_flops=10**15)
    assert error.limit == 1 << 30
    assert "CHAINRULE_MAX_MEMORY_BYTES" in error.message


def test_float16_on_a_cpu_is_refused_where_it_would_take_long():
    query = "widths=1024,1024&batch=1024"
    check_limits(ModelSpec.from_query(query), Settings())
    check_limits(ModelSpec(dtype="float16"), Settings())
    check_limits(ModelSpec.from_query(f"{query}&dtype=float16&device=cuda"), Settings())
    error = refused(f"{query}&dtype=float16")
    assert "floating point operations (float16 on a CPU counts 100-fold), at most" in error.message
    assert (error.field, error.limit) == ("widths", Settings().max_flops)


@pytest.mark.parametrize("form", ["svg", "html"])
def test_an_answer_that_takes_memory_to_make_is_refused_for_it(form):
    spec = ModelSpec.from_query("program=matmul&rung=loops&batch=4&widths=8,8")
    asked = estimate_memory(spec, form)
    check_limits(spec, Settings(max_memory_bytes=asked), form)
    check_limits(spec, Settings(max_memory_bytes=asked - 1))
    with pytest.raises(LimitError, match=f"widths: {asked} bytes of memory, at most {asked - 1} "):
        check_limits(spec, Settings(max_memory_bytes=asked - 1), form)


def test_the_edge_of_a_limit_is_allowed():
    check_limits(ModelSpec(widths="10x65", batch=1024), Settings())
    check_limits(ModelSpec(widths="1024,1"), Settings())
    cost = estimate_cost(ModelSpec())
    check_limits(ModelSpec(), Settings(max_flops=cost.flops, max_memory_bytes=cost.memory_bytes))
    refused("", max_flops=cost.flops - 1)
    refused("", max_memory_bytes=cost.memory_bytes - 1)


def test_the_matrix_products_are_counted_exactly():
    # Forward 2·b·n·m, backward twice that. Else only the statistics of the weight, its transpose and its gradient grow
    # with the square of the width.
    flops = [estimate_cost(ModelSpec(widths=[width, width], batch=1000)).flops for width in (100, 200, 300)]
    second_difference = flops[2] - 2 * flops[1] + flops[0]
    assert second_difference == 2 * 100**2 * (6 * 1000 + 3 * FLOPS_PER_VALUE)


def test_the_memory_estimate_covers_weights_and_activations():
    spec = ModelSpec(widths=[300, 200, 100], batch=50)
    weights = 300 * 200 + 200 + 200 * 100 + 100
    activations = 50 * (300 + 200 + 100)
    assert estimate_cost(spec).memory_bytes > 4 * 2 * (weights + activations)
    assert estimate_cost(spec.replace(dtype="float64")).memory_bytes > estimate_cost(spec).memory_bytes


def test_an_orthogonal_draw_costs_more():
    spec = ModelSpec(widths=[500, 500])
    assert estimate_cost(spec.replace(init="orthogonal")).flops == estimate_cost(spec).flops + 4 * 500**3


def test_refusing_takes_no_memory():
    spec = ModelSpec(widths="2147483647x10001", batch=2**31 - 1)
    settings = Settings(max_depth=10_000, max_width=2**31, max_batch=2**31)
    tracemalloc.start()
    with pytest.raises(LimitError):
        check_limits(spec, settings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_a_missing_device_is_named_with_those_there_are():
    check_device(ModelSpec(device="cuda"), ["cpu", "cuda"])
    with pytest.raises(SpecError) as caught:
        check_device(ModelSpec(device="cuda"), ["cpu"])
    assert (caught.value.field, caught.value.limit) == ("device", ["cpu"])
    assert "'cuda'" in caught.value.message


@pytest.mark.parametrize(
    ("values", "allowed", "maximum"),
    [({"widths": "0,1"}, "at most 64 layers of 1024", 1024), ({"batch": "0"}, "at most 1024", 1024)],
)
def test_a_malformed_value_is_answered_with_what_this_server_allows(values, allowed, maximum):
    with pytest.raises(SpecError) as malformed:
        ModelSpec.parse(values)
    error = with_limits(malformed.value, Settings())
    assert allowed in error.message
    assert error.limit["maximum"] == maximum
    assert error.field == malformed.value.field


def test_an_error_without_a_limit_of_the_servers_stays_as_it_is():
    with pytest.raises(SpecError) as malformed:
        ModelSpec.parse({"scale": "inf"})
    assert with_limits(malformed.value, Settings()) is malformed.value
