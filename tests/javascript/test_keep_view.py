"""After an edit of the model: the same things are found again in the new graph, and the view is kept."""

from collections.abc import Callable
from typing import Any

import orjson
import torch

from chainrule.dump.wire import dump_topology
from chainrule.trace import trace_model

COUNTERPARTS = """async (m, { before, after, ids }) => {
    const { buildGraph } = await import("/static/core/graph/graph.js");
    const [one, other] = [buildGraph(before), buildGraph(after)];
    const counterparts = new m.Counterparts(one, other);
    return ids.map((id) => counterparts.id(id));
}"""

KEEP = """async (m, { before, after, view }) => {
    const { buildGraph } = await import("/static/core/graph/graph.js");
    const { parseView } = await import("/static/core/url-state.js");
    return m.keepView(parseView(view), new m.Counterparts(buildGraph(before), buildGraph(after)));
}"""


class Layers(torch.nn.Module):
    """A module whose forward is what a test says: other ops, or other modules."""

    def __init__(self, forward: Callable[["Layers", torch.Tensor], torch.Tensor], **modules: torch.nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the test says."""
        return self._forward(self, x)


def topology(forward: Callable[[Layers, torch.Tensor], torch.Tensor], **modules: torch.nn.Module) -> dict[str, Any]:
    """The graph of a model, as the page gets it."""
    torch.manual_seed(0)
    model = Layers(forward, **modules)
    return orjson.loads(orjson.dumps(dump_topology(trace_model(model, torch.randn(5, 4)))))


def linears() -> dict[str, torch.nn.Module]:
    return {"first": torch.nn.Linear(4, 4), "second": torch.nn.Linear(4, 4)}


def op_named(graph: dict[str, Any], name: str, phase: str = "forward", order: int = 0) -> str:
    """The id of the `order`-th op of a name."""
    return [op["id"] for op in graph["ops"] if op["name"] == name and op["phase"] == phase][order]


def plain(model: Layers, x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(model.first(x))
    return torch.relu(model.second(hidden)).sum()


def with_one_more(model: Layers, x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(model.first(torch.sin(x)))
    return torch.relu(model.second(hidden)).sum()


def with_another(model: Layers, x: torch.Tensor) -> torch.Tensor:
    hidden = torch.sigmoid(model.first(x))
    return torch.relu(model.second(hidden)).sum()


def test_things_are_found_again_though_every_id_has_shifted(module):
    before, after = topology(plain, **linears()), topology(with_one_more, **linears())
    relu, tanh = op_named(before, "relu"), op_named(before, "tanh")
    assert relu != op_named(after, "relu"), "with one more op before it"
    ids = [relu, tanh, "second.weight", "second.weight.g", "first/forward", "second/backward", "tanh", "relu.g"]
    found = module("graph/keep-view.js", COUNTERPARTS, {"before": before, "after": after, "ids": ids})
    expected = [op_named(after, "relu"), op_named(after, "tanh"), *ids[2:]]
    assert found == expected


def test_an_op_in_the_place_of_another_is_its_counterpart_and_what_has_gone_has_none(module):
    before, after = topology(plain, **linears()), topology(with_another, **linears())
    ids = [op_named(before, "tanh"), "tanh", "no such thing"]
    found = module("graph/keep-view.js", COUNTERPARTS, {"before": before, "after": after, "ids": ids})
    assert found == [op_named(after, "sigmoid"), "sigmoid", ""]
    fewer = topology(lambda model, x: model.first(x).sum(), first=torch.nn.Linear(4, 4))
    gone = ["second.weight", "second/forward", op_named(before, "relu")]
    assert module("graph/keep-view.js", COUNTERPARTS, {"before": before, "after": fewer, "ids": gone}) == ["", "", ""]


def test_an_activation_that_no_module_makes_is_of_the_layer_before_it(module):
    graph = topology(plain, **linears())
    script = """async (m, { graph, ids, groups }) => {
        const { buildGraph } = await import("/static/core/graph/graph.js");
        return ids.map((id) => m.groupAt(buildGraph(graph), id, groups));
    }"""
    ids = ["first.linear", "tanh", "tanh.g", "relu", "second.weight.g", "second/backward", "input", "sum", ""]
    found = module("lab/weights.js", script, {"graph": graph, "ids": ids, "groups": ["first", "second"]})
    assert found == ["first", "first", "first", "second", "second", "second", None, None, None]


def test_a_fold_is_found_again_however_often_it_repeats(module):
    def repeated(times: int) -> dict[str, Any]:
        blocks = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(times)]
        return topology(lambda model, x: model.body(x).sum(), body=torch.nn.Sequential(*blocks))

    ids = ["body.0*3/forward", "body.0*3.rest/forward", "body.2/forward"]
    found = module("graph/keep-view.js", COUNTERPARTS, {"before": repeated(3), "after": repeated(5), "ids": ids})
    assert found == ["body.0*5/forward", "body.0*5.rest/forward", "body.2/forward"]


def test_names_are_aligned_from_both_ends(module):
    runs = [
        ["abc", "abc"],
        ["abc", "xabc"],
        ["abc", "abxc"],
        ["abcd", "ad"],
        ["abc", "axc"],
        ["abab", "ababab"],
        ["abc", ""],
        ["abcd", "axbyd"],
    ]
    found = module("graph/keep-view.js", "(m, runs) => runs.map(([a, b]) => m.align([...a], [...b]))", runs)
    assert found == [
        [0, 1, 2],
        [1, 2, 3],
        [0, 1, 3],
        [0, -1, -1, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [-1, -1, -1],
        [0, 2, -1, 4],
    ]


def test_a_view_is_kept_and_what_comes_back_is_as_it_was(module):
    before, after = topology(plain, **linears()), topology(with_one_more, **linears())
    step = [op["id"] for op in before["ops"]].index(op_named(before, "relu"))
    view = f"select={op_named(before, 'relu')}&toggled=second/forward&step={step}&reach=up2&predict=relu.std&guess=1"
    kept = module("graph/keep-view.js", KEEP, {"before": before, "after": after, "view": view})
    ids = [op["id"] for op in after["ops"]]
    relu = op_named(after, "relu")
    assert kept == {"select": relu, "toggled": "second/forward", "step": ids.index(relu)}
    fewer = topology(lambda model, x: model.first(x).sum(), first=torch.nn.Linear(4, 4))
    lost = module("graph/keep-view.js", KEEP, {"before": before, "after": fewer, "view": view})
    # The group stays in the address: the next version may have it again.
    assert lost["toggled"] == "second/forward"
    assert (lost["select"], lost["reach"], lost["predict"], lost["guess"]) == ("", "", "", "")
    assert lost["step"] < len(fewer["ops"])


def test_a_group_that_was_opened_by_hand_stays_open_whatever_the_level_says_of_it(module):
    inner = Layers(lambda model, x: torch.tanh(model.linear(x)), linear=torch.nn.Linear(4, 4))
    single = topology(lambda model, x: model.block(x).sum(), block=torch.nn.Linear(4, 4))
    nested = topology(lambda model, x: model.block(model.other(x)).sum(), block=inner, other=torch.nn.Linear(4, 4))
    # A leaf is closed at the level of layers, and one that holds others is open.
    for after, toggled in ((nested, ""), (single, "block/forward")):
        asked = {"before": single, "after": after, "view": "toggled=block/forward"}
        assert module("graph/keep-view.js", KEEP, asked)["toggled"] == toggled
