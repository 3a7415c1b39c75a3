"""The Model Explorer export, held to the rules of the viewer's reader."""

import dataclasses
import json

import pytest

from chainrule.dump.wire import dump_trace, load
from chainrule.export.model_explorer import MAX_LISTED, NODE_STATISTICS, to_model_explorer, to_node_data
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace.graph import Failure


def check_rules(collection):
    """The viewer drops or crashes on a graph that breaks these rules."""
    assert json.loads(json.dumps(collection, allow_nan=False)) == collection
    assert isinstance(collection["label"], str)
    for graph in collection["graphs"]:
        assert graph["id"]
        outputs = {}
        for node in graph["nodes"]:
            assert {"id", "label", "namespace", "incomingEdges", "outputsMetadata"} <= set(node)
            assert node["id"] not in outputs, "ids are unique"
            assert all(isinstance(node[key], str) for key in ("id", "label", "namespace"))
            assert node["label"]
            assert "" not in node["namespace"].split("/") or node["namespace"] == ""
            outputs[node["id"]] = [output["id"] for output in node["outputsMetadata"]]
            for metadata in (node["attrs"], *(each["attrs"] for each in node["outputsMetadata"])):
                assert all(isinstance(each["key"], str) and isinstance(each["value"], str) for each in metadata)
            for output in node["outputsMetadata"]:
                assert [each["value"] for each in output["attrs"] if each["key"] == "tensor_shape"]
        for node in graph["nodes"]:
            inputs = [edge["targetNodeInputId"] for edge in node["incomingEdges"]]
            assert len(inputs) == len(set(inputs)), "one edge per input"
            assert inputs == [each["id"] for each in node["inputsMetadata"]]
            for edge in node["incomingEdges"]:
                assert edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]], "no dangling edge"


def nodes_by_id(trace):
    return {node["id"]: node for node in to_model_explorer(trace)["graphs"][0]["nodes"]}


def attributes(metadata):
    return {each["key"]: each["value"] for each in metadata["attrs"]}


@pytest.mark.smoke
def test_ops_and_leaf_tensors_are_nodes_and_edges_name_their_output_and_input(small_trace):
    collection = to_model_explorer(small_trace)
    check_rules(collection)
    assert collection["graphs"][0]["groupNodeAttributes"][""] == {"widths": "100,50,1", "bias": "True", "loss": "3.25"}
    nodes = nodes_by_id(small_trace)
    assert set(nodes) == {"t0", "t1", "n0", "n1", "n2", "n3", "n4"}
    assert nodes["t1"]["label"] == "w1"
    assert attributes(nodes["t1"])["role"] == "parameter"
    assert attributes(nodes["t1"]["outputsMetadata"][0])["tensor_shape"] == "float32[100,50]"
    keys = ("sourceNodeId", "sourceNodeOutputId", "targetNodeInputId")
    edges = {name: [tuple(edge[key] for key in keys) for edge in node["incomingEdges"]] for name, node in nodes.items()}
    assert edges["n0"] == [("t0", "0", "0"), ("t1", "0", "1")]
    assert edges["n2"] == [("n1", "0", "0"), ("n1", "0", "1")]
    assert edges["n3"] == [("n1", "1", "0")]


def test_a_broken_pass_has_its_error(small_trace):
    failure = Failure("n1", "shapes do not match")
    failed = dataclasses.replace(small_trace, error=failure, loss=None)
    check_rules(to_model_explorer(failed))
    assert attributes(nodes_by_id(failed)["n1"])["error"] == "shapes do not match"


def test_passes_and_modules_are_nested_groups(small_trace):
    nodes = nodes_by_id(small_trace)
    assert nodes["n0"]["namespace"] == "forward/Model/layers.0 Lin"
    assert nodes["n4"]["namespace"] == "backward/Model/layers.0 Lin"
    assert nodes["n2"]["namespace"] == "forward/Model"
    inner = nodes["n1"]["namespace"].split("/")
    assert inner[:3] == ["forward", "Model", "layers.0 Lin"]
    assert len(inner) == 4, "a slash in a name opens no group"
    assert inner[3].startswith("act∕1 ")


def test_a_node_has_its_attributes(small_trace):
    nodes = nodes_by_id(small_trace)
    about = attributes(nodes["n0"])
    assert about["phase"] == "forward"
    assert about["source"].startswith("model.py:3 return")
    assert about["saved for backward"] == "x"
    assert about["attribute transpose"] == "False"
    assert attributes(nodes["n4"])["twin"] == "n0"
    output = attributes(nodes["n0"]["outputsMetadata"][0])
    assert (output["name"], output["mean"], output["std"], output["NaN"]) == ("l1", "0.25", "1.5", "3")


@pytest.mark.parametrize("style", ["functions", "module"])
def test_the_rules_hold_for_the_chapter_s_model(style):
    trace = trace_spec(ModelSpec(style=style))
    collection = to_model_explorer(trace)
    check_rules(collection)
    (graph,) = collection["graphs"]
    leaves = {tensor.id for tensor in trace.tensors if tensor.producer is None}
    assert {node["id"] for node in graph["nodes"]} == {op.id for op in trace.ops} | leaves
    assert {node["namespace"].split("/")[0] for node in graph["nodes"]} == {"forward", "backward"}


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


def test_deep_and_long_names_do_not_multiply():
    """Each node contains the path of its group, and the names of the tensors that it saves."""
    body = json.loads(dump_trace(trace_spec(ModelSpec(widths="5,4,3", batch=6))))
    inner = body["ops"][0]["module"]
    for level in range(3000):
        path = ".".join(["n"] * (level % 1000 + 1))
        body["modules"].append({"id": f"d{level}", "path": path, "type": "T" * 1000, "parent": inner})
        inner = f"d{level}"
        body["tensors"].append(body["tensors"][0] | {"id": f"s{level}", "name": "x" * 1000, "module": inner})
        body["tensors"][-1]["consumers"] = []
        body["saved"].append({"tensor": f"s{level}", "op": "n0"})
    dump = json.dumps(body)
    collection = to_model_explorer(load(dump))
    check_rules(collection)
    assert len(json.dumps(collection)) < 5 * len(dump)
    node = next(node for node in collection["graphs"][0]["nodes"] if node["id"] == "n0")
    *named, rest = attributes(node)["saved for backward"].split(", ")
    assert (len(named), rest) == (MAX_LISTED, "… (3002 in all)")
