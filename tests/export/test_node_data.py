import dataclasses
import json

import pytest

from chainrule.export.model_explorer import NODE_STATISTICS, to_model_explorer, to_node_data
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec


@pytest.fixture(scope="module")
def trace():
    return trace_spec(ModelSpec.from_query("widths=20,10,1&batch=8&style=module"))


def results(trace, statistic):
    ((graph, data),) = to_node_data(trace, statistic).items()
    assert graph == to_model_explorer(trace)["graphs"][0]["id"]
    return {node: each["value"] for node, each in data["results"].items()}


@pytest.mark.smoke
@pytest.mark.parametrize("statistic", NODE_STATISTICS)
def test_every_statistic_names_nodes_of_the_graph(trace, statistic):
    data = to_node_data(trace, statistic)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    nodes = {node["id"] for node in to_model_explorer(trace)["graphs"][0]["nodes"]}
    assert results(trace, statistic).keys() <= nodes
    assert results(trace, statistic)
    (graph,) = data.values()
    assert [each["stop"] for each in graph["gradient"]] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_an_op_has_the_statistic_of_its_output(trace):
    std, norm, gradient = (results(trace, name) for name in ("std", "norm", "gradient_norm"))
    by_name = trace.tensor_by_name
    x, w1, l2 = by_name["x"], by_name["w1"], by_name["l2"]
    assert std[x.id] == trace.statistics[x.id].std
    assert std[l2.producer] == trace.statistics[l2.id].std
    assert norm[w1.id] == trace.statistics[w1.id].norm
    assert gradient[w1.id] == trace.statistics[by_name["w1.g"].id].norm
    assert gradient[l2.producer] == trace.statistics[by_name["l2.g"].id].norm
    # The output of a backward op is a gradient.
    made = by_name["l2.g"].producer
    assert gradient[made] == norm[made]
    assert results(trace, "dead_fraction").keys() == {l2.producer}


def test_costs_are_those_of_the_ops(trace):
    assert results(trace, "flops") == {op.id: op.flops for op in trace.ops}
    assert results(trace, "bytes") == {op.id: op.bytes for op in trace.ops}
    assert results(trace, "time") == dict(zip([op.id for op in trace.ops], trace.timing["op_us"], strict=True))
    assert results(dataclasses.replace(trace, timing={}), "time") == {}


def test_nan_values_are_counted(small_trace):
    assert results(small_trace, "nan") == {"n0": 3.0}
