"""Finding things of a graph: what is typed, what is found, what depends on what."""

import json

import pytest
import torch
from torch import nn

from chainrule import trace_model
from chainrule.dump.wire import dump_trace

SEARCH = """async (m, [dump, texts, hidden]) => {
    const { pictureOfDump } = await import("/static/core/picture.js");
    const { buildGraph } = await import("/static/core/graph/graph.js");
    const picture = pictureOfDump(dump, 1, "k");
    const graph = buildGraph(picture.topology);
    if (hidden !== null) {
        const row = picture.rows.get(dump.tensors.find(({ name }) => name === hidden).id);
        picture.hidden = { row, rows: new Set([row]), loss: false, tensor: hidden, statistic: "std" };
    }
    return texts.map((text) => {
        const query = m.parseQuery(text);
        return "error" in query ? query : m.search(graph, picture, query);
    });
}"""

REACH = """async (m, [dump, asked]) => {
    const { buildGraph, find } = await import("/static/core/graph/graph.js");
    const graph = buildGraph({ ...dump, op_us: null });
    const all = (hops) => (hops === null ? Infinity : hops);
    return asked.map(([id, hops, direction]) => [...m.reach(graph, find(graph, id), { hops: all(hops), direction })]);
}"""


@pytest.fixture
def find(module):
    def run(dump, *texts, hidden=None):
        return module("graph/search.js", SEARCH, [dump, texts, hidden])

    return run


def test_what_is_found_is_what_the_dump_says(dump_of, find):
    dump = dump_of("style=module")
    tensors = {tensor["id"]: tensor for tensor in dump["tensors"]}
    ops = dump["ops"]
    statistics = dump["statistics"]
    std = dict(zip(statistics["tensor"], statistics["std"], strict=True))
    took = dict(zip((op["id"] for op in ops), dump["timing"]["op_us"], strict=True))

    def tensors_where(holds):
        return {tensor["name"] for tensor in tensors.values() if holds(tensor)}

    def ops_where(holds):
        return {op["id"] for op in ops if holds(op)}

    expected = {
        "op:backward": ops_where(lambda op: "Backward" in op["name"]),
        "role:gradient -squeeze": tensors_where(lambda t: t["role"] == "gradient" and "squeeze" not in t["name"]),
        "shape:200×50": tensors_where(lambda t: t["shape"] == [200, 50]),
        "shape:200,50": tensors_where(lambda t: t["shape"] == [200, 50]),
        "shape:*x50": tensors_where(lambda t: len(t["shape"]) == 2 and t["shape"][1] == 50),
        "/^l\\d$/": {"l1", "l2"},
        "std>0.5": tensors_where(lambda t: (std[t["id"]] or 0) > 0.5),
        "std<=1e-2 role:gradient": tensors_where(lambda t: t["role"] == "gradient" and std[t["id"]] <= 1e-2),
        "numel>=10000": tensors_where(lambda t: torch.Size(t["shape"]).numel() >= 10_000),
        "op:mm std>0.01": ops_where(
            lambda op: "mm" in op["name"].lower() and any((std[out] or 0) > 0.01 for out in op["outputs"])
        ),
        "time>50": ops_where(lambda op: took[op["id"]] > 50),
        "nan>0": set(),
    }
    # Two are found by their ids: their names are not theirs alone.
    assert len({tensor["name"] for tensor in tensors.values()}) == len(tensors)
    for text, answer in zip(expected, find(dump, *expected), strict=True):
        assert set(answer["ids"]) == expected[text], text
        assert answer["total"] == len(expected[text])
    [answer] = find(dump, "layers.0")
    order = {op["id"]: place for place, op in enumerate(ops)}
    places = [order[one] for one in answer["ids"] if one in order]
    assert places == sorted(places)
    assert len(places) == 6
    assert answer["ids"][0] == "layers.0/forward"


def test_a_mistake_is_named_with_what_is_allowed(dump_of, find):
    wrong = {
        "foo:x": "op, name, module, role",
        "bogus>3": "std, mean, min, max",
        "std>many": "“many” is no number",
        "std>": "behind the sign",
        "role:gradeint": "gradient, saved",
        "shape:2by3": "such as 200×50",
        "op:": "without a space",
        "/(/": "Unterminated group",
        "/l1": "ends with a slash",
        "__proto__:x": "is no key",
        "/(a+)+$/": "can take for ever",
        "/(l|l)*$/": "can take for ever",
        "/a*a*a*a*b/": "at most 3 repeats",
        "/" + "a?" * 20 + "/": "8 optional parts",
        "x" * 1000: "300 characters",
    }
    for (text, part), answer in zip(wrong.items(), find(dump_of(""), *wrong), strict=True):
        assert part in answer["error"], text


def test_what_waits_for_a_guess_is_not_found_by_its_figure(dump_of, find):
    dump = dump_of("")
    shown, hidden = find(dump, "std>0.7 role:activation")[0], find(dump, "std>0.7 role:activation", hidden="l2")[0]
    assert shown["ids"] == ["l2"]
    assert "l2" not in hidden["ids"]
    assert "guess" in hidden["note"]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


def test_reach_goes_through_what_was_saved_and_stops_after_so_many_ops(module, dump_of):
    chapter = dump_of("style=module")
    one, two, back, away = module(
        "graph/reach.js",
        REACH,
        [chapter, [["l2", 1, "down"], ["l2", 1, "up"], ["l1.g", None, "up"], ["loss", None, "down"]]],
    )
    names = {op["id"]: op["name"] for op in chapter["ops"]}
    # matmul reads it; ReluBackward0 and MmBackward0 need what was kept of it.
    assert {names[each] for each in one if each in names} == {"matmul", "ReluBackward0", "MmBackward0"}
    assert {"layers.2.matmul", "l1.g", "w2.g"} & set(one) == {"layers.2.matmul", "l1.g"}
    assert {"layers.2/forward", "layers.2/backward", "layers.1/backward"} <= set(one)
    assert {names[each] for each in two if each in names} == {"relu"}
    # The gradient of l1 depends on x and w1, through l1 > 0, and on the target; not on the value of the loss.
    assert {"x", "w1", "w2", "y", "loss.g"} <= set(back)
    assert not {"loss", "w1.g", "b2.g"} & set(back)
    assert [each for each in away if "/" not in each] == ["loss"]

    dump = json.loads(dump_trace(trace_model(Residual(), torch.randn(2, 4), loss=torch.sum)))
    [through] = module("graph/reach.js", REACH, [dump, [["inner.weight", None, "down"]]])
    # By way of tanh's output, which its backward needs.
    assert {"inner/forward", "inner.weight.g", "inner.bias.g"} <= set(through)
    assert "inner.bias" not in through
