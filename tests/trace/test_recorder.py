"""`record` and `trace_model`: the graph of a pass, counted by hand and checked against autograd's own."""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from lambda_modules import Parts
from torch import nn
from trace_rules import assert_twins, assert_well_formed, names_in

from chainrule.dump.wire import dump_trace
from chainrule.errors import TraceError
from chainrule.trace import record, scope, trace_model


def names(trace, ids):
    return [trace.tensor_by_id[identifier].name for identifier in ids]


def ops_of(trace, phase):
    return [op for op in trace.ops if op.phase == phase]


@pytest.mark.smoke
def test_a_small_graph_counted_by_hand():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    x, y = torch.randn(5, 4), torch.randn(5, 1)

    trace = trace_model(model, x, loss=lambda out: F.mse_loss(out, y))

    assert_well_formed(trace)
    assert_twins(trace)
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
    expected = "MseLossBackward0 AddmmBackward0 TBackward0 ReluBackward0 AddmmBackward0 TBackward0"
    assert [op.name for op in backward] == expected.split()
    twins = {op.name: op.twin for op in backward}
    assert twins["MseLossBackward0"] == forward[3].id
    assert twins["ReluBackward0"] == forward[1].id
    assert [op.twin for op in backward if op.name == "AddmmBackward0"] == [forward[2].id, forward[0].id]
    assert trace.loss == F.mse_loss(model(x), y).item()


def test_roles():
    model = Parts(lambda self, x: torch.tanh(self.linear(x) + self.shift) * 2, linear=nn.Linear(3, 3))
    model.register_buffer("shift", torch.ones(3))
    y = torch.zeros(4, 3)
    trace = trace_model(model, torch.randn(4, 3), loss=lambda out: F.mse_loss(out, y))
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


def test_attributes_are_the_arguments_besides_tensors():
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
        2 - x, x // 2, ~(x > 0)
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
    assert found["rsub"] == {"other": 2}
    assert {"floor_divide", "bitwise_not"} <= found.keys()
    dump_trace(recording.trace)


def test_no_path_of_this_machine_is_in_a_dump(program):
    made = program()
    with record(made.model) as recording:
        made.run()
    text = dump_trace(recording.trace).decode()
    for folder in (os.path.dirname(__file__), os.getcwd(), os.path.expanduser("~"), sys.prefix):
        assert folder not in text


def saved_by(trace, op):
    return {saved.tensor for saved in trace.saved if saved.op == op.id}


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


def test_tensors_made_only_to_be_kept_are_saved_tensors():
    x = torch.ones(200, requires_grad=True)
    with record() as recording:
        torch.dropout(x, 0.25, True).sum().backward()
        F.max_pool1d(x[None], 2).sum().backward()
    trace = recording.trace
    kept = {}
    for op in trace.ops:
        for tensor in saved_by(trace, op):
            kept.setdefault(op.name, []).append(trace.tensor_by_id[tensor])
    (mask,) = kept["dropout"]
    assert mask.shape == (200,)
    assert ("saved", "int64") in [(tensor.role, tensor.dtype) for tensor in kept["max_pool1d"]]


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


def test_a_tied_parameter_and_a_shared_module_have_their_first_names():
    inner = nn.ModuleDict({"table": nn.Linear(3, 3), "act": nn.Tanh()})
    parts = {"inner": inner, "head": nn.Linear(3, 3, bias=False), "act": inner["act"]}
    model = Parts(lambda self, x: self.act(self.head(self.inner["table"](x))), **parts)
    model.head.weight = inner["table"].weight
    trace = trace_model(model, torch.ones(2, 3), loss=torch.sum)
    parameters = [tensor.name for tensor in trace.tensors if tensor.role == "parameter"]
    assert parameters == [name for name, _ in model.named_parameters()] == ["inner.table.weight", "inner.table.bias"]
    (tanh,) = [op for op in ops_of(trace, "forward") if op.name == "tanh"]
    assert trace.module_by_id[tanh.module].path == "inner.act"


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
        with pytest.raises(TraceError, match="cannot be nested"), record():
            pass
        with pytest.raises(TraceError, match="cannot be nested"):
            trace_model(model, x)
        torch.zeros(2)
    assert [op.name for op in outer.trace.ops] == ["ones", "zeros"]
    with record() as after:
        torch.ones(2)
    assert len(after.trace.ops) == 1


def test_trace_model_takes_a_scalar_output_for_the_loss():
    layer, x = nn.Linear(3, 1), torch.ones(1, 3)
    trace = trace_model(layer, x)
    assert trace.loss == layer(x).item()
    assert names_in(trace, "backward") == ["AddmmBackward0", "TBackward0"]


@pytest.mark.parametrize(
    ("asks", "loss", "has_loss"), [(True, None, False), (False, torch.sum, True)], ids=["no scalar", "frozen"]
)
def test_trace_model_without_a_start_has_no_backward(asks, loss, has_loss):
    trace = trace_model(nn.Linear(3, 2).requires_grad_(asks), torch.ones(4, 3), loss=loss)
    assert (trace.loss is not None) == has_loss
    assert names_in(trace, "backward") == []
    assert trace.error is None


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


def test_two_threads_record_at_once(functions, in_two_threads):
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.Tanh())])
    x = torch.randn(4, 8)

    def run():
        with record(model) as recording:
            # Each weight is used twice: its gradients meet.
            torch.autograd.grad(functions.cube.apply(model(model(x))).sum(), list(model.parameters()))
        trace = recording.trace
        return trace.modules, list(trace.ops), list(trace.tensors), list(trace.saved)

    alone = run()
    for found in in_two_threads(run, 20):
        assert found == alone


def test_activations_have_their_units_statistics():
    x = torch.tensor([[1.0, -1.0, -2.0, 0.0], [-1.0, -1.0, 3.0, 0.0]])
    with record() as recording:
        torch.relu(x)
        F.gelu(x)
        x.clamp_min(0.0)
        torch.tanh(torch.tensor([0.0, 1.0, 2.0, 2.2, -3.0, 10.0]))
        torch.sigmoid(2 * torch.tensor([0.0, 1.0, 2.0, 2.2, -3.0, 10.0]))
    rows = {op.name: recording.trace.statistics[op.outputs[0]] for op in recording.trace.ops}
    # Columns 1 and 3 are dead; tanh is beyond 0.97 for three values, and sigmoid(2x) is tanh(x), moved to (0, 1).
    assert {rows[name].dead_fraction for name in ("relu", "gelu", "clamp_min")} == {0.5}
    assert {rows[name].saturation for name in ("tanh", "sigmoid")} == {0.5}
    assert rows["relu"].saturation is rows["tanh"].dead_fraction is rows["mul"].dead_fraction is None
