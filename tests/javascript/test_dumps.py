"""Dumps in memory: how many are kept, packed histograms, and graphs matched with each other."""

import json

import pytest
import torch
from torch import nn
from training_dumps import read, write_dumps

from chainrule import trace_model
from chainrule.dump.wire import dump_trace


class Repeated(nn.Module):
    """One layer, so many times one after the other."""

    def __init__(self, times):
        super().__init__()
        self.times, self.lin = times, nn.Linear(3, 3)

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.lin(x))
        return x.square().mean()


def test_of_what_is_repeated_the_first_is_matched_with_the_first(module):
    a, b = (json.loads(dump_trace(trace_model(Repeated(times), torch.randn(2, 3)))) for times in (2, 3))
    seen = module(
        "lab/match.js",
        """(m, [a, b]) => {
            const { ops, tensors, onlyB } = m.matchGraphs(a, b);
            return { ops: [...ops], tensors: [...tensors], onlyB };
        }""",
        [a, b],
    )
    ops = [None if there < 0 else a["ops"][there]["id"] for there in seen["ops"]]
    named = {op["id"]: other for op, other in zip(b["ops"], ops, strict=True)}
    forward = [(op["name"], other) for op, other in zip(b["ops"], ops, strict=True) if op["phase"] == "forward"]
    assert forward == [
        *(("linear", "n0"), ("tanh", "n1"), ("linear", "n2"), ("tanh", "n3"), ("linear", None), ("tanh", None)),
        *(("square", "n4"), ("mean", "n5")),
    ]
    # A backward op belongs to its forward op, though the last call goes back first.
    twins = {op["id"]: op["twin"] for op in a["ops"]}
    for op in b["ops"]:
        if op["name"] in ("TanhBackward0", "AddmmBackward0"):
            other = named[op["id"]]
            assert (other and twins[other]) == named[op["twin"]], op["id"]
    names = {
        here["name"]: None if there < 0 else a["tensors"][there]["name"]
        for here, there in zip(b["tensors"], seen["tensors"], strict=True)
    }
    for name in ("tanh", "tanh_1", "tanh.g", "tanh_1.g", "lin.weight.g", "lin.bias.g", "square.g"):
        assert names[name] == name
    assert names["tanh_2"] is names["tanh_2.g"] is None
    assert [b["tensors"][tensor]["name"] for tensor in seen["onlyB"]["tensors"]] == ["lin.linear_2", "tanh_2"]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    return write_dumps(tmp_path_factory.mktemp("dumps"))


def test_of_two_hundred_dumps_the_last_sixteen_are_kept(module, dumps):
    text = (dumps / "step0.json").read_text()
    seen = module(
        "dump/sources.js",
        """async (m, text) => {
            let reads = 0;
            const source = (step) => ({ name: `step${step}.json`, get text() { reads += 1; return text; } });
            const sources = Array.from({ length: 200 }, (_, step) => source(step));
            const shelf = new m.DumpShelf(sources);
            const first = await shelf.get(0);
            const after = reads;
            for (let step = 0; step < 200; step += 1) await shelf.get(step);
            const last = await shelf.get(199);
            const before = reads;
            await shelf.get(185);
            const kept = reads;
            await shelf.get(100);
            return {
                kept: shelf.kept,
                lazy: after,
                again: [kept - before, reads - kept],
                shared: last.picture.key === first.picture.key,
                one: (await shelf.get(198)).picture.topology === last.picture.topology,
            };
        }""",
        text,
    )
    assert seen["kept"] == 16
    # Looked at twice: whether there is a text, and the text. None but the first was read for the first.
    assert seen["lazy"] <= 2
    assert seen["again"][0] == 0
    assert seen["again"][1] > 0
    assert (seen["shared"], seen["one"]) == (True, True)


def test_counts_of_histograms_survive_being_put_away(module, dumps):
    dump = read(dumps, "step0")
    dump["statistics"]["histogram"]["counts"][0][:3] = [4_000_000, 61, 1]
    seen = module(
        "dump/step-figures.js",
        """async (m, text) => {
            const figures = await new m.StepReader().read({ name: "x", text });
            const unit = (at) => figures.units[Math.floor(at / 64)];
            const again = Array.from(figures.counts.slice(0, 128), (count, at) => count * unit(at));
            return { again, loss: figures.loss, rows: figures.units.length };
        }""",
        json.dumps(dump),
    )
    assert seen["rows"] == len(dump["statistics"]["tensor"])
    assert seen["loss"] == dump["loss"]
    first, second = dump["statistics"]["histogram"]["counts"][:2]
    assert seen["again"][64:] == second
    assert seen["again"][:64] == pytest.approx(first, abs=4_000_000 / 65535)


def test_graphs_are_matched_by_what_things_are(module, dumps):
    a, b = read(dumps, "step0"), read(dumps, "deeper")
    seen = module(
        "lab/match.js",
        """(m, [a, b]) => {
            const { isSame, tensors, ops, onlyA, onlyB } = m.matchGraphs(a, b);
            const same = m.matchGraphs(a, structuredClone(a));
            const carried = ["n3", "body.4.bias", "body.0/forward"].map((id) => m.carried(id, a, b));
            const lists = { tensors: [...tensors], ops: [...ops], places: [...same.tensors] };
            return { isSame, onlyA, onlyB, same: same.isSame, carried, ...lists };
        }""",
        [a, b],
    )
    assert (seen["isSame"], seen["same"]) == (False, True)
    assert seen["places"] == list(range(len(a["tensors"])))
    names = {
        here["name"]: a["tensors"][there]["name"]
        for here, there in zip(b["tensors"], seen["tensors"], strict=True)
        if there >= 0
    }
    # A parameter, what a module puts out, and the gradients of both answer to their namesakes.
    assert all(name == other for name, other in names.items())
    assert {"body.0.weight", "body.3.relu", "body.4.linear.g", "body.2.bias.g", "mse_loss"} <= names.keys()
    assert {name for name in names if name.startswith(("body.5", "body.6"))} == set()
    partners = [there for there in seen["tensors"] if there >= 0]
    assert len(partners) == len(set(partners)) == len(a["tensors"])
    assert seen["onlyA"] == {"modules": [], "tensors": []}
    assert seen["onlyB"]["modules"] == ["body.5 ReLU", "body.6 Linear"]
    for op, other in zip(b["ops"], seen["ops"], strict=True):
        assert other < 0 or (op["name"], op["phase"]) == (a["ops"][other]["name"], a["ops"][other]["phase"])
    by_id = {op["id"]: op["name"] for op in b["ops"]}
    assert by_id[seen["carried"][0]] == next(op["name"] for op in a["ops"] if op["id"] == "n3")
    assert seen["carried"][1:] == ["body.4.bias", "body.0/forward"]
