"""`record` and `trace_model`: the graph of a pass, counted by hand and checked against autograd's own."""

import math
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from chainrule.dump.wire import dump_trace
from chainrule.errors import TraceError
from chainrule.trace import record, scope, trace_model


def names(trace, ids):
    return [trace.tensor_by_id[identifier].name for identifier in ids]


def ops_of(trace, phase):
    return [op for op in trace.ops if op.phase == phase]


# --------------------------------------------------------------------------------------------------- one graph, by hand


@pytest.mark.smoke
def test_a_small_graph_counted_by_hand(well_formed, twinned):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    x, y = torch.randn(5, 4), torch.randn(5, 1)

    trace = trace_model(model, x, loss=lambda out: F.mse_loss(out, y))

    well_formed(trace)
    twinned(trace)
    forward, backward = ops_of(trace, "forward"), ops_of(trace, "backward")
    assert [op.name for op in forward] == ["linear", "relu", "linear", "mse_loss"]
    paths = {module.id: module.path for module in trace.modules}
    assert [paths[op.module] for op in forward] == ["0", "1", "2", "loss"]
    assert [(module.path, module.type) for module in trace.modules][:4] == [
        ("", "Sequential"),
        ("0", "Linear"),
        ("1", "ReLU"),
        ("2", "Linear"),
    ]
    assert names(trace, forward[0].inputs) == ["input", "0.weight", "0.bias"]
    assert names(trace, forward[2].inputs)[1:] == ["2.weight", "2.bias"]
    assert forward[0].outputs[0] == forward[1].inputs[0]
    assert forward[1].outputs[0] == forward[2].inputs[0]
    # autograd: MseLoss, Addmm, T, Relu, Addmm, T (x asks for no gradient)
    assert [op.name for op in backward] == [
        "MseLossBackward0",
        "AddmmBackward0",
        "TBackward0",
        "ReluBackward0",
        "AddmmBackward0",
        "TBackward0",
    ]
    twins = {op.name: op.twin for op in backward}
    assert twins["MseLossBackward0"] == forward[3].id
    assert twins["ReluBackward0"] == forward[1].id
    assert [op.twin for op in backward if op.name == "AddmmBackward0"] == [forward[2].id, forward[0].id]
    assert trace.loss == F.mse_loss(model(x), y).item()


@pytest.mark.smoke
def test_the_statistics_are_the_tensors(has_statistics, gradients_of):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x = torch.randn(5, 4, requires_grad=True)
    hidden = model[0](x)
    hidden.retain_grad()
    activation = model[1](hidden)
    activation.retain_grad()
    model[2](activation).square().mean().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()} | {"input": x.grad}
    model.zero_grad()

    trace = trace_model(model, x.detach().requires_grad_(), loss=lambda out: out.square().mean())

    linear, relu = ops_of(trace, "forward")[:2]
    has_statistics(trace, linear.outputs[0], hidden)
    has_statistics(trace, relu.outputs[0], activation)
    has_statistics(trace, trace.tensor_by_name["input"].id, x)
    assert len(expected) == 5
    for name, gradient in expected.items():
        (found,) = gradients_of(trace, name)
        has_statistics(trace, found, gradient)
    for op, tensor in ((linear, hidden), (relu, activation)):
        (found,) = [part.id for part in trace.tensors if part.gradient_of == op.outputs[0]]
        has_statistics(trace, found, tensor.grad)


def test_roles():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x):
            return torch.tanh(self.linear(x) + self.shift) * 2

    y = torch.zeros(4, 3)
    trace = trace_model(Model(), torch.randn(4, 3), loss=lambda out: F.mse_loss(out, y))
    roles = {tensor.name: tensor.role for tensor in trace.tensors}
    assert roles["input"] == "input"
    assert roles["linear.weight"] == roles["linear.bias"] == "parameter"
    assert roles["shift"] == "buffer"
    assert [trace.tensor_by_id[op.outputs[0]].role for op in ops_of(trace, "forward")] == [
        "preactivation",
        "intermediate",
        "activation",
        "intermediate",
        "loss",
    ]
    target = trace.tensor_by_id[trace.ops[4].inputs[1]]
    assert target.role == "target"
    for tensor in trace.tensors:
        if tensor.gradient_of is not None:
            assert tensor.role == "gradient"


def test_leaves_and_outputs_are_named_as_asked():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with record(model, leaves={"x": x, "y": y, "w1": model[0].weight}, outputs={"0": "l1", "1": "l2"}) as recording:
        F.mse_loss(model(x), y).backward()
    trace = recording.trace
    assert names(trace, trace.ops[0].inputs) == ["x", "w1", "0.bias"]
    assert names(trace, trace.ops[1].inputs) == ["l1"]
    assert names(trace, trace.ops[1].outputs) == ["l2"]
    assert {trace.tensor_by_name[name].role for name in ("l1.g", "l2.g", "w1.g")} == {"gradient"}
    assert trace.tensor_by_name["x"].role == "input"
    assert trace.tensor_by_name["y"].role == "target"
    assert trace.tensor_by_name["w1"].role == "parameter"


def test_shapes_and_dtypes_are_torchs():
    with record() as recording:
        a = torch.arange(6).reshape(2, 3)
        b = a.to(torch.float64).mean()
        c = a > 2
    by_op = {op.name: recording.trace.tensor_by_id[op.outputs[0]] for op in recording.trace.ops}
    assert (by_op["arange"].shape, by_op["arange"].dtype) == ((6,), "int64")
    assert (by_op["reshape"].shape, by_op["reshape"].dtype) == ((2, 3), "int64")
    assert (by_op["mean"].shape, by_op["mean"].dtype) == ((), "float64")
    assert (by_op["gt"].shape, by_op["gt"].dtype) == ((2, 3), "bool")
    assert (b.item(), c.sum().item()) == (2.5, 3)
    assert recording.trace.statistics[by_op["gt"].id].mean == 0.5


# ----------------------------------------------------------------------------------------------------------- attributes


def test_attributes_are_the_arguments_that_are_no_tensors():
    x = torch.randn(2, 3, 8, 8)
    weight = torch.randn(6, 1, 3, 3)
    with record() as recording:
        F.conv2d(x, weight, stride=2, padding=(1, 0), groups=3)
        x.transpose(1, 2)
        x.sum(dim=(2, 3), keepdim=True)
        F.leaky_relu(x, 0.2)
        x[0, 1:3, ..., None]
        x.clamp(min=-math.inf)
        x.to(torch.float64)
    found = {op.name: op.attributes for op in recording.trace.ops}
    assert found["conv2d"]["stride"] == 2
    assert found["conv2d"]["padding"] == [1, 0]
    assert found["conv2d"]["groups"] == 3
    assert sorted(found["transpose"].values()) == [1, 2]
    assert found["sum"] == {"dim": [2, 3], "keepdim": True}
    assert 0.2 in found["leaky_relu"].values()
    assert "1:3" in next(iter(found["getitem"].values()))
    assert found["clamp"]["min"] == "-inf"
    assert "float64" in found["to"].values()
    dump_trace(recording.trace)


# ----------------------------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize(("batch", "n_in", "n_out"), [(5, 4, 3), (1, 1, 1), (200, 100, 50)])
def test_flops_of_products_are_2mnk(batch, n_in, n_out):
    a, b = torch.randn(batch, n_in), torch.randn(n_in, n_out)
    layer = nn.Linear(n_in, n_out, bias=False)
    products = 2 * batch * n_in * n_out
    with record() as recording:
        _ = a @ b
        torch.mm(a, b)
        layer(a)
        F.linear(a, layer.weight, torch.zeros(n_out))
        torch.addmm(torch.zeros(n_out), a, b)
    costs = [(op.name, op.flops) for op in recording.trace.ops if op.name != "zeros"]
    added = batch * n_out
    assert costs == [
        ("matmul", products),
        ("mm", products),
        ("linear", products),
        ("linear", products + added),
        ("addmm", products + added),
    ]


def test_flops_of_batched_products_and_vectors():
    with record() as recording:
        torch.bmm(torch.randn(7, 5, 4), torch.randn(7, 4, 3))
        torch.matmul(torch.randn(2, 7, 5, 4), torch.randn(4, 3))
        torch.matmul(torch.randn(4), torch.randn(4))
        torch.matmul(torch.randn(5, 4), torch.randn(4))
    costs = [op.flops for op in recording.trace.ops if op.name != "randn"]
    assert costs == [2 * 7 * 5 * 4 * 3, 2 * 2 * 7 * 5 * 4 * 3, 2 * 4, 2 * 5 * 4]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 8, 3, padding=1, bias=False), (2, 3, 8, 8)),
        (nn.Conv2d(4, 8, 3, stride=2, groups=2, bias=False), (2, 4, 9, 9)),
        (nn.Conv1d(3, 5, 4, dilation=2, bias=False), (2, 3, 20)),
        (nn.Conv3d(2, 3, 2, bias=False), (1, 2, 4, 4, 4)),
        (nn.ConvTranspose2d(3, 6, 2, stride=2, bias=False), (2, 3, 5, 5)),
    ],
    ids=["padded", "grouped and strided", "1d dilated", "3d", "transposed"],
)
def test_flops_of_convolutions_are_torchs_count(layer, shape):
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    with record() as recording:
        layer(x)
    assert [op.flops for op in recording.trace.ops] == [counter.get_total_flops()]


def test_flops_of_elementwise_ops_are_one_per_element_and_of_moves_none():
    x, one = torch.randn(4, 6), torch.randn(24)
    with record() as recording:
        x + 1
        x * x
        x.t()
        x.reshape(24)
        x.sum()
        torch.relu(x)
        x[1:]
        x.expand(3, 4, 6)
        torch.cat([x, x])
        torch.stack([x, x])
        x.split(2)
        x.clone()
        x.double()
        torch.zeros(3, 3)
        torch.tensor([1.0, 2.0])
        one.dot(one)
        x.prod()
        x.norm()
        x.var()
        x.std(0)
        x.max(1)
        torch.max(x, x)
    costs = [op.flops for op in recording.trace.ops]
    assert costs == [24, 24, 0, 0, 24, 24, *[0] * 9, 48, 24, 48, 96, 96, 24, 24]


torch_counts = [
    ("bmm", lambda: torch.bmm(torch.randn(7, 5, 4), torch.randn(7, 4, 3)), 0),
    ("baddbmm", lambda: torch.baddbmm(torch.zeros(7, 5, 3), torch.randn(7, 5, 4), torch.randn(7, 4, 3)), 7 * 5 * 3),
    ("tensordot", lambda: torch.tensordot(torch.randn(2, 3, 4, 5), torch.randn(4, 5, 6, 7), 2), 0),
    ("einsum", lambda: torch.einsum("bhqd,bhkd->bhqk", torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)), 0),
    ("einsum", lambda: torch.einsum("...ij,jk", torch.randn(2, 3, 4), torch.randn(4, 5)), 0),
    ("einsum", lambda: torch.einsum("ij,jk,kl->il", torch.randn(2, 3), torch.randn(3, 4), torch.randn(4, 5)), 0),
    ("linalg_multi_dot", lambda: torch.linalg.multi_dot([torch.randn(2, 9), torch.randn(9, 9), torch.randn(9, 9)]), 0),
    ("conv_transpose1d", lambda: F.conv_transpose1d(torch.randn(2, 4, 5), torch.randn(4, 3, 2), groups=2), 0),
    ("conv_transpose3d", lambda: F.conv_transpose3d(torch.randn(2, 3, 4, 5, 6), torch.randn(3, 4, 2, 2, 2)), 0),
    ("scaled_dot_product_attention", lambda: attend(torch.randn(2, 3, 4, 8), torch.randn(2, 3, 6, 8)), 0),
]


def attend(query, key):
    # One op on the CPU is not counted by torch; its parts are.
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query, key, key)


@pytest.mark.parametrize(
    ("name", "run", "added"), torch_counts, ids=[f"{at} {c[0]}" for at, c in enumerate(torch_counts)]
)
def test_flops_of_products_are_torchs_count(name, run, added):
    """`added`: what torch leaves out, the sum with another operand."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    with record() as recording:
        run()
    op = recording.trace.ops[-1]
    assert op.name == name
    assert counter.get_total_flops() > 0
    assert op.flops == counter.get_total_flops() + added


composites = {
    "attention": (lambda: nn.MultiheadAttention(8, 2, bias=False), [(10, 3, 8), (7, 3, 8), (7, 3, 8)]),
    "attention, one sequence": (lambda: nn.MultiheadAttention(8, 2, bias=False), [(10, 8)] * 3),
    "attention, other widths": (
        lambda: nn.MultiheadAttention(8, 2, bias=False, kdim=5, vdim=6, batch_first=True, add_zero_attn=True),
        [(3, 10, 8), (3, 7, 5), (3, 7, 6)],
    ),
    "lstm": (lambda: nn.LSTM(3, 4, bias=False), [(5, 2, 3)]),
    "lstm, projected": (lambda: nn.LSTM(3, 4, bias=False, proj_size=2), [(5, 2, 3)]),
    "gru, two layers, both ways": (lambda: nn.GRU(3, 4, 2, bias=False, bidirectional=True), [(5, 2, 3)]),
    "rnn, batch first": (lambda: nn.RNN(3, 4, bias=False, batch_first=True), [(2, 5, 3)]),
    "lstm cell": (lambda: nn.LSTMCell(3, 4, bias=False), [(2, 3)]),
    "gru cell": (lambda: nn.GRUCell(3, 4, bias=False), [(2, 3)]),
    "rnn cell": (lambda: nn.RNNCell(3, 4, bias=False), [(2, 3)]),
}


@pytest.mark.parametrize("case", composites)
def test_flops_of_what_is_made_of_products_are_torchs_count_forward_and_backward(case):
    from torch.utils.flop_counter import FlopCounterMode

    make, shapes = composites[case]
    # In float64 no library computes it in one go, which torch would not count.
    model = make().double()
    args = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def run(counting):
        out = model(*args)
        out = out[0] if isinstance(out, tuple) else out
        loss = out.sum()
        forward = counting()
        loss.backward()
        return forward, counting()

    with FlopCounterMode(display=False) as counter:
        forward, total = run(counter.get_total_flops)
    with record(model) as recording:
        run(lambda: 0)
    ops = recording.trace.ops
    (composite,) = [op for op in ops if op.phase == "forward" and op.name not in ("sum", "zeros", "transpose")]
    assert composite.flops == forward > 0
    parts = [op for op in ops if op.phase == "backward" and op.name.startswith(("Mm", "Addmm", "Bmm", "Baddbmm"))]
    assert sum(op.flops for op in parts) == total - forward
    assert sum(op.flops for op in ops) < 2 * total + 2000


def test_the_biases_of_what_is_made_of_products_count_once_per_output():
    with record() as recording:
        nn.LSTM(3, 4)(torch.randn(5, 2, 3))
        nn.MultiheadAttention(8, 2)(*[torch.randn(10, 1, 8)] * 3)
    costs = {op.name: op.flops for op in recording.trace.ops}
    assert costs["lstm"] == 5 * 2 * (2 * 16 * 3 + 2 * 16 * 4 + 2 * 16)
    assert (
        costs["multi_head_attention_forward"] == 2 * 10 * 8 * 24 + 10 * 24 + 4 * 10 * 10 * 8 + 2 * 10 * 8 * 8 + 10 * 8
    )


def test_a_packed_sequence_costs_what_is_in_it_and_a_bilinear_form_what_its_weight_asks():
    rows = [torch.randn(3, 3), torch.randn(2, 3)]
    with record() as recording:
        nn.GRU(3, 4, bias=False)(nn.utils.rnn.pack_sequence(rows))
        F.bilinear(torch.randn(5, 3), torch.randn(5, 4), torch.randn(2, 3, 4), torch.zeros(2))
    costs = {op.name: op.flops for op in recording.trace.ops}
    assert costs["gru"] == 5 * 2 * 12 * (3 + 4)
    assert costs["bilinear"] == 5 * 2 * (2 * 3 * 4 + 2 * 4 + 1)


def test_the_backward_of_a_product_costs_a_product_per_gradient():
    model = nn.Linear(4, 3)
    for requires_grad, gradients in ((False, 1), (True, 2)):
        x = torch.randn(5, 4, requires_grad=requires_grad)
        trace = trace_model(model, x, loss=torch.sum)
        (node,) = [op for op in trace.ops if op.name == "AddmmBackward0"]
        # one product for the weight and one more for x, where it is asked for
        assert node.flops == pytest.approx(gradients * 2 * 5 * 4 * 3, rel=0.13)


def test_bytes_are_what_is_read_and_written():
    with record() as recording:
        a = torch.randn(10, 20)
        b = a @ torch.randn(20, 5)
        b.t()
        b.double()
    costs = {op.name: op.bytes for op in recording.trace.ops}
    assert costs["matmul"] == 4 * (10 * 20 + 20 * 5 + 10 * 5)
    assert costs["t"] == 0
    assert costs["double"] == (4 + 8) * 50


# -------------------------------------------------------------------------------------------------------------- sources


def test_the_source_is_the_users_line(source_line):
    model = nn.Linear(3, 2)

    def program(x):
        hidden = model(x)  # the line of linear
        squared = hidden.square()  # the line of square
        return squared.mean()  # the line of mean

    with record(model) as recording:
        program(torch.randn(4, 3)).backward()
    for op in recording.trace.ops:
        if op.phase == "forward" and op.name in ("linear", "square", "mean"):
            assert op.source.file == "test_recorder.py"
            assert op.source.text.endswith(f"# the line of {op.name}")
            assert op.source.text == source_line(op)
            assert op.source.function.endswith("program")


def test_no_path_of_this_machine_is_in_a_dump(program):
    import os
    import sys

    made = program()
    with record(made.model) as recording:
        made.run()
    text = dump_trace(recording.trace).decode()
    for folder in (os.path.dirname(__file__), os.getcwd(), os.path.expanduser("~"), sys.prefix):
        assert folder not in text


# ---------------------------------------------------------------------------------------------------------------- saved


def saved_by(trace, op):
    return {trace.tensor_by_id[saved.tensor].id for saved in trace.saved if saved.op == op.id}


def test_saved_tensors_are_autograds():
    a, b = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    with record(leaves={"a": a, "b": b}) as recording:
        product = a @ b
        scaled = product * product
        activated = torch.sigmoid(scaled)
        total = activated.sum()
        total.backward()
    trace = recording.trace
    matmul, mul, sigmoid, addition = ops_of(trace, "forward")
    # d(ab) needs both factors; d(p·p) needs p; sigmoid is written in terms of its result; a sum needs nothing
    assert saved_by(trace, matmul) == set(matmul.inputs)
    assert saved_by(trace, mul) == {matmul.outputs[0]}
    assert saved_by(trace, sigmoid) == {sigmoid.outputs[0]}
    assert saved_by(trace, addition) == set()


class SavesBoth(torch.autograd.Function):
    """Saves its two outputs; autograd hands each back as another tensor object."""

    @staticmethod
    def forward(ctx, inp):
        sin, cos = inp.sin(), inp.cos()
        ctx.save_for_backward(sin, cos)
        return sin, cos

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        sin, cos = ctx.saved_tensors
        return grad_sin * cos - grad_cos * sin


def test_an_output_that_a_function_saved_is_the_same_tensor_in_its_backward():
    x = torch.randn(4, 3, requires_grad=True)
    with record(leaves={"x": x}) as recording:
        sin, cos = SavesBoth.apply(x)
        (sin * cos).sum().backward()
    trace = recording.trace
    assert [tensor.name for tensor in trace.tensors if tensor.producer is None] == ["x", "sum.g"]
    sine, cosine = (next(op for op in trace.ops if op.name == name).outputs[0] for name in ("sin", "cos"))
    first, second = (op for op in trace.ops if op.name == "mul" and op.phase == "backward")
    assert (first.inputs[1], second.inputs[1]) == (cosine, sine)
    assert {saved.tensor for saved in trace.saved} == {sine, cosine}


def test_leaves_may_say_what_they_are():
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    with record(leaves={"a": a, "b": b}, roles={"a": "input"}) as recording:
        (a * b).sum().backward()
    assert [recording.trace.tensor_by_name[name].role for name in ("a", "b")] == ["input", "parameter"]


def test_only_what_is_needed_is_saved():
    a, b = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2)
    with record(leaves={"a": a, "b": b}) as recording:
        (a @ b).sum().backward()
    trace = recording.trace
    # b asks for no gradient, so a is not kept for it
    assert [trace.tensor_by_id[saved.tensor].name for saved in trace.saved] == ["b"]


def test_a_mask_made_only_to_be_kept_is_a_saved_tensor():
    x = torch.randn(100, requires_grad=True)
    with record() as recording:
        x.abs().max(dim=0).values.backward()
        F.max_pool1d(x[None], 2).sum().backward()
    trace = recording.trace
    pool = next(op for op in trace.ops if op.name == "max_pool1d")
    (indices,) = [
        tensor for tensor in trace.tensors if tensor.role == "saved" and tensor.producer == pool.id and tensor.shape
    ]
    assert indices.dtype == "int64"
    assert indices.id in saved_by(trace, pool)


def test_dropout_keeps_its_mask():
    x = torch.ones(200, requires_grad=True)
    with record() as recording:
        torch.dropout(x, 0.25, True).sum().backward()
    trace = recording.trace
    (op,) = [op for op in trace.ops if op.name == "dropout"]
    (mask,) = [trace.tensor_by_id[identifier] for identifier in saved_by(trace, op)]
    assert mask.shape == (200,)


# -------------------------------------------------------------------------------------------------------- scopes, names


def test_scopes_group_plain_functions():
    def block(x):
        with scope("block", "block"):
            x = x * 2
            with scope("block.inner", "inner"):
                x = x.tanh()
            return x + 1

    with record() as recording:
        block(torch.ones(3)) - 1
    trace = recording.trace
    modules = {module.id: (module.path, module.type) for module in trace.modules}
    assert [modules[op.module] for op in trace.ops if op.name != "ones"] == [
        ("block", "block"),
        ("block.inner", "inner"),
        ("block", "block"),
        ("", "function"),
    ]
    assert trace.modules[0].type == "function"


def test_a_scope_outside_a_recording_does_nothing():
    with scope("nowhere", "none"):
        assert torch.ones(2).sum().item() == 2


def test_nested_modules_have_paths_and_parents(well_formed):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
            self.norm = nn.LayerNorm(3)

        def forward(self, x):
            for part in self.parts:
                x = part(x)
            return self.norm(x) + 1

    model = nn.Sequential(Block(), nn.Sequential(Block(), nn.ReLU()))
    trace = trace_model(model, torch.randn(2, 3), loss=torch.sum)
    well_formed(trace)
    paths = {module.id: module.path for module in trace.modules}
    types = {module.path: module.type for module in trace.modules}
    assert [paths[op.module] for op in ops_of(trace, "forward")][:9] == [
        "0.parts.0",
        "0.parts.1",
        "0.norm",
        "0",
        "1.0.parts.0",
        "1.0.parts.1",
        "1.0.norm",
        "1.0",
        "1.1",
    ]
    assert (types["1"], types["1.0"], types["1.0.norm"]) == ("Sequential", "Block", "LayerNorm")


def test_a_tied_parameter_and_a_shared_module_have_the_first_of_their_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleDict({"table": nn.Linear(3, 3), "act": nn.Tanh()})
            self.head = nn.Linear(3, 3, bias=False)
            self.head.weight = self.inner["table"].weight
            self.act = self.inner["act"]

        def forward(self, x):
            return self.act(self.head(self.inner["table"](x)))

    model = Tied()
    trace = trace_model(model, torch.ones(2, 3), loss=torch.sum)
    parameters = [tensor.name for tensor in trace.tensors if tensor.role == "parameter"]
    assert parameters == [name for name, _ in model.named_parameters()] == ["inner.table.weight", "inner.table.bias"]
    (tanh,) = [op for op in ops_of(trace, "forward") if op.name == "tanh"]
    assert trace.module_by_id[tanh.module].path == "inner.act"


def test_names_are_unique_but_for_the_gradients_of_several_passes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
    trace = trace_model(model, torch.randn(2, 3), loss=torch.sum)
    names_given = [tensor.name for tensor in trace.tensors]
    assert len(names_given) == len(set(names_given))


# ------------------------------------------------------------------------------------------------------ unit statistics


def test_dead_units_are_those_not_above_zero_for_any_input():
    x = torch.tensor([[1.0, -1.0, -2.0, 0.0], [-1.0, -1.0, 3.0, 0.0]])
    with record() as recording:
        torch.relu(x)
        F.gelu(x)
        x.clamp_min(0.0)
    trace = recording.trace
    rows = [trace.statistics[op.outputs[0]] for op in trace.ops]
    # columns 1 and 3 are dead
    assert [row.dead_fraction for row in rows] == [0.5, 0.5, 0.5]
    assert rows[0].zero_fraction == 0.75
    assert rows[0].saturation is None


def test_saturation_is_the_share_beyond_097():
    x = torch.tensor([0.0, 1.0, 2.0, 2.2, -3.0, 10.0])
    with record() as recording:
        torch.tanh(x)
        torch.sigmoid(2 * x)
    trace = recording.trace
    expected = np.mean(np.abs(np.tanh(x.double().numpy())) > 0.97)
    rows = [trace.statistics[op.outputs[0]] for op in trace.ops if op.name in ("tanh", "sigmoid")]
    # sigmoid(2x) is tanh(x), moved from (-1, 1) to (0, 1)
    assert [row.saturation for row in rows] == [expected, expected]
    assert expected == 0.5
    assert rows[0].dead_fraction is None


# --------------------------------------------------------------------------------------------------------- the protocol


def test_the_trace_is_there_only_after_the_block():
    recording = record()
    with pytest.raises(TraceError, match="block has ended"):
        _ = recording.trace
    with recording:
        torch.ones(2)
        with pytest.raises(TraceError):
            _ = recording.trace
    assert [op.name for op in recording.trace.ops] == ["ones"]


@pytest.mark.smoke
def test_recordings_do_not_nest():
    model, x = nn.Linear(2, 2), torch.ones(2)
    with record() as outer:
        torch.ones(2)
        with pytest.raises(TraceError, match="do not nest"), record():
            pass
        with pytest.raises(TraceError, match="do not nest"):
            trace_model(model, x)
        torch.zeros(2)
    assert [op.name for op in outer.trace.ops] == ["ones", "zeros"]
    with record() as after:
        torch.ones(2)
    assert len(after.trace.ops) == 1


def test_what_is_computed_outside_is_not_recorded():
    torch.ones(2) + 1
    with record() as recording:
        pass
    torch.ones(2) + 1
    assert recording.trace.ops == ()
    assert recording.trace.tensors == ()
    assert [module.path for module in recording.trace.modules] == [""]
    assert recording.trace.loss is None
    assert recording.trace.error is None


def test_the_loss_is_the_root_of_the_backward_pass():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    with record() as recording:
        (w * w).sum().backward()
    assert recording.trace.loss == 5.0
    (loss,) = [tensor for tensor in recording.trace.tensors if tensor.role == "loss"]
    assert loss.shape == ()


def test_trace_model_takes_a_scalar_output_for_the_loss():
    layer = nn.Linear(3, 1)
    x = torch.ones(1, 3)
    trace = trace_model(layer, x)
    assert trace.loss == layer(x).item()
    assert [op.name for op in ops_of(trace, "backward")] == ["AddmmBackward0", "TBackward0"]


def test_trace_model_without_a_scalar_has_no_backward():
    trace = trace_model(nn.Linear(3, 2), torch.ones(4, 3))
    assert trace.loss is None
    assert ops_of(trace, "backward") == []
    assert trace.error is None


def test_trace_model_with_nothing_that_asks_for_a_gradient():
    trace = trace_model(nn.Linear(3, 2).requires_grad_(False), torch.ones(4, 3), loss=torch.sum)
    assert trace.loss is not None
    assert ops_of(trace, "backward") == []


def test_trace_model_of_a_plain_callable():
    def square_sum(x):
        return x.square().sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    trace = trace_model(square_sum, x)
    assert trace.modules[0].type == "square_sum"
    assert trace.loss == 5.0
    gradient = trace.tensor_by_name["input.g"]
    assert gradient.gradient_of == trace.tensor_by_name["input"].id
    assert trace.statistics[gradient.id].max == 4.0
    assert torch.equal(x.grad, 2 * x)


def test_trace_model_names_several_inputs():
    trace = trace_model(torch.add, torch.ones(2), torch.zeros(2))
    assert names(trace, trace.ops[0].inputs) == ["input", "input_1"]


def test_set_loss_says_what_no_backward_tells():
    with record() as recording:
        out = torch.ones(3).sum()
        recording.set_loss(out)
    assert recording.trace.loss == 3.0
    assert recording.trace.tensor_by_id[recording.trace.ops[-1].outputs[0]].role == "loss"


def test_on_tensor_sees_every_value_once():
    seen = {}
    x = torch.ones(2, requires_grad=True)
    with record(on_tensor=lambda name, tensor: seen.setdefault(name, tensor.detach().clone())) as recording:
        (x * 3).sum().backward()
    trace = recording.trace
    assert set(seen) == {tensor.id for tensor in trace.tensors}
    for tensor in trace.tensors:
        assert tuple(seen[tensor.id].shape) == tensor.shape
    (gradient,) = [tensor.id for tensor in trace.tensors if tensor.gradient_of == trace.ops[0].inputs[0]]
    assert seen[gradient].tolist() == [3.0, 3.0]


def test_two_recordings_of_one_model_are_alike():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(4, 3)

    def dumped():
        trace = trace_model(model, x, loss=torch.sum)
        return dump_trace(trace).split(b'"timing"')[0]

    assert dumped() == dumped()


def test_a_trace_is_immutable_and_holds_no_tensor():
    trace = trace_model(nn.Linear(2, 1), torch.ones(1, 2))
    with pytest.raises(AttributeError):
        trace.loss = 0.0
    with pytest.raises(AttributeError):
        trace.tensors[0].name = "other"

    pending, seen = [trace], set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        assert not isinstance(value, torch.Tensor)
        if isinstance(value, (tuple, list, set, frozenset)):
            pending.extend(value)
        elif isinstance(value, dict):
            pending.extend(value.values())
        else:
            pending.extend(vars(value).values() if hasattr(value, "__dict__") else [])
            pending.extend(getattr(value, name) for name in getattr(type(value), "__slots__", ()))


def test_a_recording_loads_no_more_of_torch_than_a_bare_pass():
    code = """
import sys, torch
from chainrule.trace import trace_model
x = torch.ones(4, 3)
model = torch.nn.Linear(3, 1)
model(x).sum().backward()
before = set(sys.modules)
assert trace_model(model, x, loss=lambda output: output.sum()).loss is not None
print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ("torch", "sympy")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_two_threads_record_one_model():
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.Tanh())])
    x = torch.randn(4, 8)

    def run():
        with record(model) as recording:
            # Each weight is used twice: its gradients meet.
            torch.autograd.grad(model(model(x)).sum(), list(model.parameters()))
        trace = recording.trace
        return trace.modules, list(trace.ops), list(trace.tensors), list(trace.saved)

    alone = run()
    together = []
    barrier = threading.Barrier(2)

    def repeatedly():
        for _ in range(20):
            barrier.wait(timeout=60)
            together.append(run())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=repeatedly) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(together) == 40
    assert all(found == alone for found in together)


# ------------------------------------------------------------------------------ a custom Function's broken backward


class Broken(torch.autograd.Function):
    """Doubles, and goes back as `how` says."""

    @staticmethod
    def forward(ctx, x, how):
        ctx.how = how
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if ctx.how == "raises":
            raise ValueError("no gradient today")
        if ctx.how == "raises after an op":
            doubled = gradient * 2
            raise ValueError(f"no gradient today: {tuple(doubled.shape)}")
        if ctx.how == "too many":
            return gradient * 2, None, gradient
        if ctx.how == "another shape":
            return gradient.repeat(5, 5), None
        return gradient * 2, None


NO_MORE = 'raise ValueError("no gradient today")'
NO_MORE_AFTER = 'raise ValueError(f"no gradient today: {tuple(doubled.shape)}")'


@pytest.mark.parametrize(
    ("how", "line", "shape"),
    [
        ("raises", NO_MORE, (2, 3)),
        ("raises", NO_MORE, (1, 1)),
        ("raises after an op", NO_MORE_AFTER, (2, 3)),
        ("raises after an op", NO_MORE_AFTER, (1, 1)),
        ("too many", None, (2, 3)),
        ("too many", None, (1, 1)),
        ("another shape", None, (2, 3)),
    ],
)
def test_a_functions_backward_that_breaks_off_is_the_op_at_fault(how, line, shape):
    x = torch.randn(shape, requires_grad=True)

    def step():
        y = Broken.apply(torch.tanh(x), how)
        # Of one element it is the loss itself: nothing has gone back before.
        (y if y.numel() == 1 else y.mean()).backward()

    with pytest.raises((ValueError, RuntimeError)), record() as recording:
        step()
    trace = recording.trace
    op = next(each for each in trace.ops if each.id == trace.error.op)
    (forward,) = (each for each in trace.ops if each.name == "mul" and each.phase == "forward")
    assert (op.name, op.phase, op.twin, op.outputs) == ("BrokenBackward", "backward", forward.id, ())
    assert op.module == forward.module
    assert [trace.tensor_by_id[each].gradient_of for each in op.inputs] == [forward.outputs[0]]
    assert (None if op.source is None else op.source.text) == line
    assert op is trace.ops[-1]


def test_a_broken_backward_that_is_caught_inside_another_is_at_no_fault():
    class Careful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # noqa: ARG004
            return x + 1

        @staticmethod
        def backward(ctx, gradient):  # noqa: ARG004
            with torch.enable_grad():
                inner = Broken.apply(torch.ones(2, 3, requires_grad=True), "raises").sum()
            with pytest.raises(ValueError, match="no gradient today"):
                inner.backward()
            return gradient

    x = torch.randn(2, 3, requires_grad=True)
    with record() as recording:
        Careful.apply(x).sum().backward()
    assert recording.trace.error is None
    assert x.grad is not None

    def step():
        with pytest.raises(ValueError, match="no gradient today"):
            Broken.apply(x, "raises").sum().backward()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), record() as recording:
        step()
    assert recording.trace.error.op is None


def test_a_function_that_has_gone_back_is_not_what_breaks_off_after_it():
    x = torch.randn(2, 3, requires_grad=True)

    def step():
        y = torch.exp(x)
        z = Broken.apply(y, "goes")
        y.add_(1)
        z.sum().backward()

    with pytest.raises(RuntimeError, match="inplace operation"), record() as recording:
        step()
    trace = recording.trace
    assert trace.error.op is None
    assert any(op.phase == "backward" for op in trace.ops)


def test_a_function_that_raises_after_it_has_caught_another_is_the_op_at_fault():
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # noqa: ARG004
            return x + 1

        @staticmethod
        def backward(ctx, gradient):  # noqa: ARG004
            with torch.enable_grad():
                inner = Broken.apply(torch.ones(2, 3, requires_grad=True), "raises").sum()
            with pytest.raises(ValueError, match="no gradient today"):
                inner.backward()
            raise LookupError

    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(LookupError), record() as recording:
        Careless.apply(x).sum().backward()
    trace = recording.trace
    op = next(each for each in trace.ops if each.id == trace.error.op)
    assert (op.name, op.source.text) == ("CarelessBackward", "raise LookupError")
