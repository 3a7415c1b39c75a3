import subprocess
import sys

import orjson
import pytest
from hypothesis import example, given, settings
from spec_strategies import HERE, specs

from chainrule.diagnose.profile import profile
from chainrule.dump.wire import dump_profile, dump_topology, dump_trace, frame
from chainrule.export.formats import FORMATS
from chainrule.run import MAX_VALUES, TensorValues, trace_spec
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.cost import (
    ANSWERS,
    FLOAT16_ON_CPU,
    FLOPS_PER_VALUE,
    count_graph,
    estimate_cost,
    with_answer,
)

SMALL = specs(programs=HERE, depths=(1, 12), widths=(1, 20), batches=(1, 5))
LARGER = specs(programs=("mlp",), depths=(1, 4), widths=(1, 200), batches=(1, 300))
STATISTICS_FLOPS = 10

# The dumps that are smallest and largest beside their estimates.
EXTREMES = (
    "program=exp&widths=1&batch=1",
    "program=matmul&rung=einsum&widths=1,1&batch=1&dtype=bfloat16",
    "program=matmul&rung=loops&widths=4,4&batch=4",
    "program=neuron&widths=64,1",
    "widths=2x41&activation=gelu&style=functions&batch=2&last_activation=true",
    "widths=20x12&init=zeros&style=module&bias=false",
    "widths=20x12&scale=10000&style=classes&dtype=float16",
)


def extremes(test):
    for query in EXTREMES:
        test = example(ModelSpec.from_query(query))(test)
    return test


@pytest.mark.smoke
@settings(max_examples=60)
@given(SMALL | LARGER)
@extremes
def test_the_estimate_is_at_least_the_recording_and_at_most_about_twice_that(spec):
    trace, counted, cost = trace_spec(spec), count_graph(spec), estimate_cost(spec)
    # The ends of a graph vary by a few ops: a squeezed target, the parts of a loss.
    assert len(trace.ops) <= counted.ops <= len(trace.ops) + 6
    assert len(trace.tensors) <= counted.tensors <= len(trace.tensors) + 8
    assert len(trace.modules) <= counted.modules
    values = int(trace.statistics.column("n").sum())
    assert values <= counted.values <= 2 * values + 100

    size = len(dump_trace(trace))
    assert size <= cost.response_bytes <= 2 * size + 4096
    assert len(orjson.dumps(dump_topology(trace))) <= cost.response_bytes
    assert len(frame(trace, 1, 1, 1.0)) <= cost.response_bytes
    if spec.is_net:
        assert len(dump_profile(profile(trace))) <= cost.response_bytes

    # A draw is no op, and float16 counts more than once.
    plain = spec.replace(dtype="float32", **({"init": "zeros"} if "init" in spec.keys else {}))
    flops = sum(op.flops for op in trace.ops)
    assert flops <= estimate_cost(plain).flops <= 2 * (flops + STATISTICS_FLOPS * values) + 1000


@pytest.mark.parametrize(
    ("dtype", "device", "times"),
    [("float16", "cpu", FLOAT16_ON_CPU), ("float16", "cuda", 1), ("bfloat16", "cpu", 1), ("float64", "cpu", 1)],
)
def test_operations_of_float16_products_count_more_on_a_cpu(dtype, device, times):
    spec = ModelSpec(widths="30,40,5", batch=7)
    products = 6 * 7 * (30 * 40 + 40 * 5)
    more = estimate_cost(spec.replace(dtype=dtype, device=device)).flops - estimate_cost(spec).flops
    assert more == (times - 1) * products


def test_matrix_products_and_orthogonal_draws_are_counted_exactly():
    # Forward 2·b·n·m, backward twice that; the statistics of the weight, its transpose and its gradient.
    flops = [estimate_cost(ModelSpec(widths=[width, width], batch=1000)).flops for width in (100, 200, 300)]
    assert flops[2] - 2 * flops[1] + flops[0] == 2 * 100**2 * (6 * 1000 + 3 * FLOPS_PER_VALUE)
    spec = ModelSpec(widths=[500, 500])
    assert estimate_cost(spec.replace(init="orthogonal")).flops == estimate_cost(spec).flops + 4 * 500**3


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("query", EXTREMES)
def test_an_answer_in_any_format_is_no_larger_than_its_estimate(form, query):
    spec = ModelSpec.from_query(query)
    # The picture is largest if every group is open and none is folded.
    options = {"level": "all", "fold": "off"} if form == "svg" else {}
    answer = FORMATS[form].render(spec, FORMATS[form].read(options))
    assert len(answer) <= ANSWERS[form].of(estimate_cost(spec).response_bytes)


def test_the_largest_window_of_values_is_within_the_least_limit_of_an_answer():
    least = min(each.ge for each in Settings.model_fields["max_response_bytes"].metadata)
    values = [[-1.2345678901234567e-300] * MAX_VALUES] * MAX_VALUES
    window = TensorValues("n" * 200, "t" * 20, (2**31, 2**31), "bfloat16", (0, 2**31), (0, 2**31), values)
    assert len(orjson.dumps(window)) <= least


MEASURE = """
import resource, sys, torch
from chainrule.export.formats import FORMATS
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.dump.wire import dump_trace
from chainrule.export import svg

def height():
    # On Linux ru_maxrss starts with the parent's. The process that draws is ours too.
    drawing = svg._engine._process
    try:
        found = 0
        for process in ("self", *([] if drawing is None else [drawing.pid])):
            with open(f"/proc/{process}/status") as lines:
                found += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
        return found
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

torch.set_num_threads(1)
spec, form = ModelSpec.from_query(sys.argv[1]), FORMATS[sys.argv[2]]
options = {"level": "all", "fold": "off"} if form.name == "svg" else {}
for small in ("", "style=module", "style=autograd_function", "init=orthogonal", "program=matmul"):
    dump_trace(trace_spec(ModelSpec.from_query(small).replace(dtype=spec.dtype)))
before = height()
form.render(spec, form.read(options))
print(height() - before)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("widths=400x17&batch=600&activation=gelu&style=functions", "json"),
        ("program=matmul&rung=loops&widths=4,4&batch=4", "svg"),
        ("widths=400x17&batch=600&style=autograd_function&dtype=float64", "json"),
        ("widths=400x17&batch=1000&style=module", "json"),
        ("widths=600x25&batch=1&init=orthogonal&dtype=float64", "json"),
        ("widths=600x17&batch=10&step=3&optimizer=adam", "json"),
        ("program=two_outputs&widths=2000&batch=2000", "json"),
        ("program=matmul&rung=loops&widths=8,8&batch=4", "html"),
    ],
)
def test_a_pass_takes_no_more_memory_than_estimated_and_at_least_a_quarter(query, form):
    measured = subprocess.run([sys.executable, "-c", MEASURE, query, form], check=True, capture_output=True, text=True)
    height = int(measured.stdout)
    assert height <= with_answer(estimate_cost(ModelSpec.from_query(query)), form) <= 4 * height
