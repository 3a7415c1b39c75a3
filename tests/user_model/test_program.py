"""A user's model as torch.compile runs it: its graphs, op by op (aot_eager) or kernel by kernel (inductor)."""

import gc
import weakref

import pytest
import torch

from chainrule.errors import ExploreError
from chainrule.precision.match import matched_tensors
from chainrule.trace.compiled import _Memory
from chainrule.user_model.model import open_reference
from chainrule.user_model.program import Program
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import COMPILERS, WhatIf

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.GELU()])
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return x + self.layers[1](self.layers[0](self.norm(x)))


class Net(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.Sequential(Block(), Block())
        self.last = nn.Linear(16, 4)
        self.dropout = nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(16)
        self.middle = middle

    def forward(self, x):
        hidden = self.blocks(torch.relu(self.first(x)))
        hidden = self.middle(self, hidden)
        return self.last(hidden)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(self.norm(x))


def small():
    return Small(), torch.randn(6, 8), lambda output: output.square().mean()


def made(middle):
    return Net(middle), torch.randn(6, 8), lambda output: output.square().mean()


def whole():
    return made(lambda net, hidden: hidden)


def two_graphs():
    def middle(net, hidden):
        if hidden.sum() > -1e9:
            hidden = 1.5 * hidden
        return hidden

    return made(middle)


def many_things():
    def middle(net, hidden):
        hidden = net.dropout(torch.tanh(net.norm(hidden)))
        hidden = checkpoint(lambda x: torch.relu(net.blocks[0](x)), hidden, use_reentrant=False)
        hidden = Square.apply(hidden)
        print(end="")  # cuts the graph
        hidden = torch.relu_(hidden - 0.1)
        for _ in range(2):
            hidden = hidden + net.blocks[1](hidden)
        return hidden.to(torch.bfloat16).float()

    return made(middle)


def nothing():
    def middle(net, hidden):
        return hidden

    model, x, loss = made(middle)
    model.forward = torch.compiler.disable(model.forward)
    return model, x, loss


def another_number():
    def middle(net, hidden):
        if torch.compiler.is_compiling():
            hidden = 1.001 * hidden
        return hidden

    return made(middle)
"""

BACKENDS = [pytest.param(each, marks=pytest.mark.long if each == "inductor" else ()) for each in COMPILERS]

CASES = (
    ("two_graphs", "aot_eager"),
    ("small", "inductor"),
    pytest.param("whole", "aot_eager", marks=pytest.mark.long),
    pytest.param("whole", "inductor", marks=pytest.mark.long),
    pytest.param("many_things", "aot_eager", marks=pytest.mark.long),
    pytest.param("two_graphs", "inductor", marks=pytest.mark.long),
    pytest.param("many_things", "inductor", marks=pytest.mark.long),
)


@pytest.fixture
def subject_of(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(MODEL)
    yield lambda factory: open_reference(f"{file}:{factory}").subject
    torch._dynamo.reset()


def by_name(trace):
    return {tensor.name: tensor for tensor in trace.tensors}


@pytest.mark.parametrize(("factory", "backend"), CASES)
def test_the_recorded_pass_has_the_bits_of_the_compiled_one(subject_of, factory, backend):
    subject = subject_of(factory)
    tracer = Tracer(subject)
    trace = tracer.trace(WhatIf(recording=backend))
    assert trace.error is None
    assert [fault.message for fault in trace.faults] == [fault.message for fault in Tracer(subject).trace().faults]
    with tracer.prepared() as run:  # the same graphs, and nothing looks on
        loss = tracer._programs[backend].call(*run.args).square().mean()
        loss.backward()
        assert trace.loss == float(loss.detach())
        names = by_name(trace)
        for name, parameter in subject.model.named_parameters():
            if parameter.grad is not None:
                row = trace.statistics[names[f"{name}.g"].id]
                wide = parameter.grad.double()
                assert row.norm == pytest.approx(float(wide.norm()), rel=1e-12)
                assert (row.min, row.max) == (float(wide.min()), float(wide.max()))


@pytest.mark.parametrize(("factory", "backend"), CASES)
def test_each_tensor_is_that_of_the_written_op(subject_of, factory, backend):
    subject = subject_of(factory)
    tracer = Tracer(subject)
    written, compiled = tracer.trace(), tracer.trace(WhatIf(recording=backend))
    match = matched_tensors(written, compiled, tracer.written)
    limit = 0.0 if backend == "aot_eager" else 1e-2 if factory == "many_things" else 1e-5
    for mine, other in match.items():
        if mine in compiled.statistics and (there := written.statistics[other]).norm:
            here = compiled.statistics[mine]
            assert abs(here.norm - there.norm) <= limit * there.norm, compiled.tensor_by_id[mine].name
    names = {written.tensor_by_id[each].name for each in match.values()}
    gradients = {f"{name}.g" for name, each in subject.model.named_parameters() if f"{name}.g" in by_name(written)}
    assert gradients <= names
    assert {"first.linear", "last.linear", "loss.mean"} <= names
    if backend == "aot_eager" and factory == "whole":
        outputs = {written.tensor_by_id[op.outputs[0]].name for op in written.ops if op.phase == "forward"}
        assert outputs <= names


@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_have_their_module_their_line_and_their_graph(subject_of, backend):
    trace = Tracer(subject_of("two_graphs")).trace(WhatIf(recording=backend))
    assert trace.environment["what_if"] == f"recording={backend}"
    paths = {module.id: module.path for module in trace.modules}
    products = [op for op in trace.ops if op.name == "addmm" and op.phase == "forward"]
    assert [paths[op.module] for op in products] == ["first", "blocks.0.layers.0", "blocks.1.layers.0", "last"]
    first, *others, last = (op.attributes["graph"] for op in products)
    assert others == [first, first]
    assert last > first
    assert products[-1].source.text == "return self.last(hidden)"
    assert all(op.attributes["written_as"] == "linear" for op in products)
    types = {module.path: module.type for module in trace.modules}
    assert (types["blocks"], types["blocks.0"], types["blocks.0.layers"]) == ("Sequential", "Block", "ModuleList")
    known = {output for op in trace.ops for output in op.outputs}
    made = {tensor.id for tensor in trace.tensors if tensor.producer is not None}
    assert made == known
    begun = {tensor.name for tensor in trace.tensors if tensor.producer is None and tensor.role != "gradient"}
    parameters = {name for name, _ in subject_of("two_graphs").model.named_parameters()}
    assert begun <= parameters | {"input"}, "the program gives it nothing else"


@pytest.mark.parametrize("factory", ["small", pytest.param("whole", marks=pytest.mark.long)])
def test_a_fused_kernel_is_a_group_with_values_at_its_borders(subject_of, factory):
    trace = Tracer(subject_of(factory)).trace(WhatIf(recording="inductor"))
    kernels = [module for module in trace.modules if module.type == "fused kernel"]
    first = kernels[0]
    assert first.path == "relu+layer_norm"
    relu, norm = (op for op in trace.ops if op.module == first.id and op.phase == "forward")
    assert (relu.name, norm.name) == ("relu", "layer_norm")
    assert [trace.tensor_by_id[each].name for each in relu.inputs] == ["first.addmm"]
    (inner,) = relu.outputs
    assert inner in norm.inputs
    assert "no memory holds it" in trace.tensor_by_id[inner].note
    assert inner not in trace.statistics
    assert all(each in trace.statistics for each in norm.outputs)
    assert "self.norm(x)" in norm.source.text
    for kernel in kernels:
        within = [op for op in trace.ops if op.module == kernel.id]
        outside = {each for op in trace.ops if op.module != kernel.id for each in op.inputs}
        stored = {each for op in within for each in op.outputs if each in outside}
        assert stored, kernel
        assert all(each in trace.statistics for each in stored), "what others read is in memory"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_what_if_runs_the_same_graphs(subject_of, backend):
    subject = subject_of("whole")
    tracer = Tracer(subject)
    before = tracer.trace(WhatIf(recording=backend))
    graphs = tracer._programs[backend]._graphs
    scaled = tracer.trace(WhatIf(scale=2.0, recording=backend))
    assert tracer._programs[backend]._graphs == graphs, "compiled once"
    assert scaled.loss == pytest.approx(tracer.trace(WhatIf(scale=2.0)).loss, rel=1e-5)
    assert tracer.trace(WhatIf(recording=backend)).loss == before.loss


def test_a_pass_without_a_graph_says_so(subject_of):
    trace = Tracer(subject_of("nothing")).trace(WhatIf(recording="aot_eager"))
    (note,) = [fault for fault in trace.faults if fault.kind == "graph_break"]
    assert note.level == "note"
    assert "no graph of this pass" in note.message


@pytest.mark.long
def test_without_a_cpp_compiler_inductor_says_so(subject_of):
    from torch._inductor import config as inductor  # takes seconds, in each process of the suite if it stood above

    with (
        inductor.patch({"cpp.cxx": ("/no/compiler",)}),
        pytest.raises(ExploreError, match=r"net\.py:\d+: torch\.compile with inductor fails: .*compiler"),
    ):
        Tracer(subject_of("whole")).trace(WhatIf(recording="inductor"))


def test_an_old_pytorch_is_refused(subject_of, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    with pytest.raises(ExploreError, match=r"recording: aot_eager needs PyTorch 2\.8 or newer; this is 2\.6\.0\+cpu"):
        Tracer(subject_of("whole")).trace(WhatIf(recording="aot_eager"))


@pytest.mark.long
def test_two_programs_of_one_code_do_not_see_each_other(subject_of):
    subject = subject_of("whole")
    first, second = Tracer(subject), Tracer(subject)
    asked = WhatIf(recording="inductor")
    assert len(first.trace(asked).ops) == len(second.trace(asked).ops)
    assert len(first.trace(WhatIf(scale=0.5, recording="inductor")).ops) == len(second.trace(asked).ops)
    program = Program(subject.model, "inductor")
    with program.compiling():
        program.call(*subject.args)  # without a recording


MORE = """


class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Cut() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        y = self.linear(self.norm(x))
        print(end="")
        return x + torch.sigmoid(y)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Linear(8, 256)
        with torch.no_grad():
            self.both.weight[128:] *= 100

    def forward(self, x):
        query, key = self.both(x).chunk(2, -1)
        scores = torch.matmul(query, key.transpose(-1, -2))
        return F.dropout(scores, 0.5)


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        return y, y.t(), y[2:], y.sum(0)


def looped():
    return Looped(), torch.randn(6, 8), lambda output: output.square().mean()


def attention():
    return Attention(), torch.randn(2, 40, 8), lambda output: output.square().mean()


def views():
    return Views(), torch.randn(6, 8), lambda output: sum(each.square().mean() for each in output)


def raises():
    return made(lambda net, hidden: hidden.no_such_method())
"""


@pytest.fixture
def more(tmp_path):
    file = tmp_path / "more.py"
    file.write_text(MODEL + MORE)
    yield lambda factory: open_reference(f"{file}:{factory}").subject
    torch._dynamo.reset()


def test_one_graph_of_several_modules_stands_in_each_of_them(more):
    trace = Tracer(more("looped")).trace(WhatIf(recording="aot_eager"))
    paths = {module.id: module.path for module in trace.modules}
    for op in trace.ops:
        for each in op.inputs:
            name = trace.tensor_by_id[each].name
            if name.endswith(("weight", "bias")):
                assert name.startswith(paths[op.module]), op
    sigmoids = [paths[op.module] for op in trace.ops if op.name == "sigmoid" and op.phase == "forward"]
    assert sigmoids == ["blocks.0", "blocks.1", "blocks.2"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_one_memory_have_their_own_statistics(more, backend):
    subject = more("attention")
    trace = Tracer(subject).trace(WhatIf(recording=backend))
    (product,) = [op for op in trace.ops if op.name == "bmm" and op.phase == "forward"]
    with torch.no_grad():
        query, key = subject.model.both(subject.args[0]).chunk(2, -1)
    norms = [trace.statistics[each].norm for each in product.inputs]
    assert norms == pytest.approx([float(query.norm()), float(key.norm())], rel=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_that_a_graph_returns_have_a_producer(more, backend):
    subject = more("views")
    tracer = Tracer(subject)
    trace = tracer.trace(WhatIf(recording=backend))
    begun = {tensor.role for tensor in trace.tensors if tensor.producer is None}
    assert begun <= {"input", "parameter", "gradient"}
    match = matched_tensors(tracer.trace(), trace, tracer.written)
    for mine, other in match.items():
        here, there = trace.statistics[mine].norm, tracer.trace().statistics[other].norm
        assert here == pytest.approx(there, rel=1e-5), trace.tensor_by_id[mine].name


@pytest.mark.long
def test_many_programs_in_one_process_are_compiled(more):
    counts = {len(Tracer(more("views")).trace(WhatIf(recording="aot_eager")).ops) for _ in range(10)}
    assert len(counts) == 1


def test_an_error_of_the_model_is_that_of_the_program(more):
    compiled, plain = (Tracer(more("raises")).trace(WhatIf(recording=each)) for each in ("aot_eager", "op"))
    assert compiled.error == plain.error
    assert "no_such_method" in plain.error.message


def test_a_recording_keeps_no_tensor(more):
    subject = more("attention")
    tracer = Tracer(subject)
    seen = []
    trace = tracer.record(WhatIf(recording="aot_eager"), lambda _, tensor: seen.append(weakref.ref(tensor)))
    gc.collect()
    kept = [each() for each in seen if each() is not None]
    parameters = {id(each) for each in (*subject.model.parameters(), *subject.inputs)}
    assert [tuple(each.shape) for each in kept if id(each) not in parameters] == []
    assert len(seen) > len(list(subject.model.parameters())), trace


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tracer_that_forgets_frees_the_model(more, backend):
    subject = more("looped")
    model = weakref.ref(subject.model)
    tracer = Tracer(subject)
    tracer.trace(WhatIf(recording=backend))
    tracer.forget()
    del subject, tracer
    gc.collect()
    assert model() is None


def test_a_view_belongs_to_the_part_of_memory_that_begins_nearest_before_it():
    query, key, both = (0, (4, 8), (16, 1)), (8, (4, 8), (16, 1)), (0, (4, 16), (16, 1))
    memory = _Memory(None, {query: 1, key: 2})
    assert memory.rows_for(key) == [2]
    assert memory.rows_for((8, (2, 2, 8), (32, 16, 1))) == [2]
    assert memory.rows_for((0, (2, 8), (16, 1))) == [1]
    assert memory.rows_for(both) == [1, 2], "it consists of both"
