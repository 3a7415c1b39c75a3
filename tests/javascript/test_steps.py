"""The passes step by step: the tensors kept for the backward pass are those that autograd keeps."""

import json

import pytest
import torch
from torch import nn

from chainrule import ModelSpec, trace_model
from chainrule.build import build_model
from chainrule.dump.wire import dump_trace

STEPS = """async (m, [dump, step]) => {
    const { buildGraph } = await import("/static/core/graph/graph.js");
    const graph = buildGraph({ ...dump, op_us: null });
    const steps = m.stepsOf(graph);
    const name = (tensor) => dump.tensors[tensor].name;
    const kept = [...steps.kept].map((tensor, at) => [name(tensor), steps.from[at], steps.until[at], steps.size[at]]);
    const now = m.stepAt(graph, step);
    const { shown, more } = m.aliveAt(steps, step, 2);
    return {
        count: steps.count, forward: steps.forward, base: steps.base, peak: steps.peak, alive: [...steps.alive],
        kept: Object.fromEntries(kept.map(([name, ...rest]) => [name, rest])),
        now: { reads: now.reads.map(name), writes: now.writes.map(name), saves: now.saves.map(name) },
        shown: shown.map(({ tensor, bytes }) => [name(tensor), bytes]), more,
        lit: [...m.litOf(graph, step)],
    };
}"""


def test_what_is_kept_and_until_when(dump_of, module):
    steps = module("graph/steps.js", STEPS, [dump_of("style=module"), 16])
    assert (steps["count"], steps["forward"]) == (22, 11)
    # w1, b1, w2, b2; w1 transposed is the same memory.
    assert steps["base"] == 4 * (5000 + 50 + 50 + 1)
    # From matmul to its backward, from relu to the last that reads l2, from pow to its backward.
    assert steps["kept"] == {"x": [1, 20, 80_000], "l2": [3, 18, 40_000], "loss.sub": [9, 12, 800]}
    assert steps["alive"][0] == 0
    assert steps["alive"][9] == max(steps["alive"]) == 120_800
    assert (steps["peak"], steps["alive"][19], steps["alive"][21]) == (9, 80_000, 0)
    assert steps["now"] == {
        "reads": ["layers.2.matmul.g", "layers.2.t", "l2"],
        "writes": ["l2.g", "layers.2.t.g"],
        "saves": [],
    }
    assert (steps["shown"], steps["more"]) == ([["x", 80_000], ["l2", 40_000]], 0)
    assert {"n16", "l2", "l2.g", "layers.2/backward"} <= set(steps["lit"])
    assert not {"layers.2/forward", "x", "out.g"} & set(steps["lit"])


class Block(nn.Module):
    """A model whose tensors share memory, are split, normalized, added and saved twice."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.wide = nn.Linear(16, 32)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        left, right = self.wide(self.norm(x)).chunk(2, -1)
        return x + self.out(torch.tanh(left) * torch.sigmoid(right))


def bytes_kept(run, resident):
    """Bytes that autograd keeps of a forward pass, parameters not counted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in resident}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = run()
    total = sum(kept.values())
    loss.backward()
    return total


@pytest.mark.parametrize("case", ["module", "tanh", "cross_entropy", "block"])
def test_as_many_bytes_are_kept_as_autograd_keeps(dump_of, module, case):
    queries = {
        "module": "style=module",
        "tanh": "style=module&activation=tanh&widths=100,50,50,1",
        "cross_entropy": "style=module&loss=cross_entropy&widths=100,50,10&activation=gelu",
    }
    if case == "block":
        torch.manual_seed(0)
        model, x = Block(), torch.randn(8, 4, 16)
        dump = json.loads(dump_trace(trace_model(model, x, loss=lambda out: out.pow(2).mean())))
        expected = bytes_kept(lambda: model(x).pow(2).mean(), model.parameters())
    else:
        dump = dump_of(queries[case])
        built = build_model(ModelSpec.from_query(queries[case]))
        expected = bytes_kept(built.forward, built.root.parameters())
    steps = module("graph/steps.js", STEPS, [dump, 0])
    assert steps["alive"][steps["forward"] - 1] == expected


class Attention(nn.Module):
    """Attention with a residual, whose every head is one op forward and many nodes backward."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return x + self.attention(x, x, x)[0]


class Cell(nn.Module):
    """A recurrent net that is one op forward and, in float64, a node per step and gate backward."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(3, 4).double()

    def forward(self, x):
        return self.cell(x)[0]


def nodes_that_keep(loss):
    """Names of the autograd nodes that hold a tensor."""
    pending, seen, keeping = [loss.grad_fn], set(), set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending += [following for following, _ in node.next_functions]
        saved = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        if any(isinstance(value, torch.Tensor) for value in saved):
            keeping.add(type(node).__name__)
    return keeping


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (Attention, torch.randn(10, 2, 8)),
        (Cell, torch.randn(5, 2, 3, dtype=torch.float64)),
        (Block, torch.randn(8, 4, 16)),
    ],
)
def test_what_is_saved_is_read_by_nodes_that_keep_tensors_alone(make, x, module):
    model = make()
    x.requires_grad_()
    dump = json.loads(dump_trace(trace_model(model, x, loss=lambda out: out.pow(2).mean())))
    readers = module(
        "graph/wiring.js",
        """async (m, dump) => {
            const { buildGraph } = await import("/static/core/graph/graph.js");
            const { needs } = m.wiringOf(buildGraph({ ...dump, op_us: null }));
            return dump.ops.filter((_, op) => m.entriesOf(needs, op).length > 0).map(({ name }) => name);
        }""",
        dump,
    )
    assert len(set(readers)) > 2
    assert set(readers) <= nodes_that_keep(model(x).pow(2).mean())


def test_a_thousand_layers_have_their_steps(module):
    n = 1000
    ops = [
        {"id": f"n{i}", "phase": "forward", "inputs": [f"h{i}"], "outputs": [f"h{i + 1}"], "twin": None}
        for i in range(n)
    ]
    ops += [
        {"id": f"n{2 * n - 1 - i}", "phase": "backward", "inputs": [f"g{i + 1}"], "outputs": [f"g{i}"], "twin": f"n{i}"}
        for i in reversed(range(n))
    ]
    maker = {out: op["id"] for op in ops for out in op["outputs"]}
    reader = {entry: op["id"] for op in ops for entry in op["inputs"]}
    names = [*(f"h{i}" for i in range(n + 1)), *(f"g{i}" for i in range(n + 1))]
    tensors = [
        {"id": name, "name": name, "shape": [8], "dtype": "float32", "module": "m0", "note": None}
        | {
            "role": "gradient" if name[0] == "g" else "activation",
            "gradient_of": f"h{name[1:]}" if name[0] == "g" else None,
        }
        | {"producer": maker.get(name), "consumers": [reader[name]] if name in reader else []}
        for name in names
    ]
    extra = {"name": "f", "module": "m0", "attributes": {}, "flops": 1, "bytes": 8, "source": None}
    dump = {
        "modules": [{"id": "m0", "path": "", "type": "Net", "parent": None}],
        "ops": [op | extra for op in ops],
        "tensors": tensors,
        "saved": [{"tensor": f"h{i}", "op": f"n{i}"} for i in range(n)],
        "layers": [],
        "sources": {},
        "statistics": {"tensor": []},
    }
    steps = module("graph/steps.js", STEPS, [dump, 5])
    assert (steps["count"], steps["forward"], steps["peak"]) == (2 * n, n, n - 1)
    assert steps["alive"] == [32 * (i + 1) for i in range(n)] + [32 * (n - i) for i in range(n)]
    assert steps["more"] == 4
