"""Every value of a program is recorded, with the gradient that torch computes: changed in place, shared, cut off."""

import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from trace_rules import (
    assert_gradient,
    assert_statistics,
    assert_twins,
    assert_well_formed,
    gradients_of,
    names_in,
    producer_of,
)

from chainrule.dump.wire import dump_trace, load
from chainrule.trace import record, trace_model

ONE_PASS = """mlp conv_batchnorm_dropout checkpoint_reentrant checkpoint_without_reentry lstm transformer
    custom_functions shared_layer in_place branching""".split()


@pytest.mark.smoke
@pytest.mark.parametrize("program", ONE_PASS, indirect=True)
def test_parameters_get_the_gradients_that_torch_left(program):
    made = program()
    with record(made.model) as recording:
        made.run()
    parameters = dict(made.model.named_parameters())
    assert any(parameter.grad is not None for parameter in parameters.values())
    for name, parameter in parameters.items():
        assert_gradient(recording.trace, name, parameter.grad)


def residual(x):
    return (x + torch.tanh(x) + x * x).sum()


def in_place(x):
    h = x * 2
    h.add_(1)
    h[:, 0] = 0
    return F.relu(h, inplace=True).square().sum()


def several_outputs(x):
    a, b, c = x.split(2, dim=1)
    values, indices = b.max(dim=0)
    q, r = torch.linalg.qr(c)
    u, _s, _v = torch.linalg.svd(a, full_matrices=False)
    return a.sum() + values.sum() + r.abs().sum() + q.sum() + u.abs().sum() + indices.sum()


def with_a_hook(x):
    hidden = x * 2
    hidden.register_hook(lambda gradient: gradient * 10)
    return hidden.sum()


def detached(x):
    return (x * x.detach()).sum()


@pytest.mark.parametrize("program", [residual, in_place, several_outputs, with_a_hook, detached])
def test_the_input_gets_the_gradient_that_torch_left(program):
    x = torch.randn(4, 6, requires_grad=True)
    trace = trace_model(program, x)
    assert_well_formed(trace)
    assert_gradient(trace, "input", x.grad)


def test_comprehensions_lambdas_and_generators_have_lines(source_line):
    with record() as recording:
        sum(value * 2 for value in [torch.ones(2)] * 2)
        [value.exp() for value in [torch.ones(2)]]
        (lambda value: value.log())(torch.ones(2))
    assert all(op.source.text == source_line(op) != "" for op in recording.trace.ops)


def test_an_in_place_op_makes_a_new_value():
    with record() as recording:
        x = torch.zeros(3)
        y = x.add_(2.0)
        y * x
    trace = recording.trace
    assert_well_formed(trace)
    zeros, add, mul = trace.ops
    assert [op.name for op in trace.ops] == ["zeros", "add_", "mul"]
    assert add.inputs == zeros.outputs
    assert add.outputs != zeros.outputs
    assert set(mul.inputs) == set(add.outputs)
    assert [trace.statistics[op.outputs[0]].max for op in trace.ops] == [0.0, 2.0, 4.0]


def write_a_part():
    x = torch.zeros(2, 3)
    x[:, 1:] = torch.full((2, 2), 1.5)
    return x


def write_through_a_view():
    x = torch.zeros(2, 3)
    x[0].add_(2.0)
    return x


def write_through_the_base():
    x = torch.zeros(2, 3)
    row = x[0]
    x.fill_(1.0)
    return row


def write_to_an_argument():
    torch.mul(torch.full((3,), 0.5), 2.0, out=OUT)
    return OUT


OUT = torch.zeros(3)


@pytest.mark.parametrize(
    ("program", "writer"),
    [
        (write_a_part, "setitem_"),
        (write_through_a_view, "add_"),
        (write_through_the_base, "fill_"),
        (write_to_an_argument, "mul"),
    ],
)
def test_a_change_of_memory_is_seen_in_every_tensor_on_it(program, writer):
    with record() as recording:
        program().sum()
    trace = recording.trace
    total = trace.ops[-1]
    assert trace.statistics[total.inputs[0]].mean == 1.0
    assert producer_of(trace, total.inputs[0]).name == writer


def test_relu_in_place_keeps_its_result_for_the_backward():
    trace = trace_model(in_place, torch.randn(4, 6, requires_grad=True))
    relu = next(op for op in trace.ops if op.name == "relu")
    # The result has the memory of the input, but is another value.
    assert [saved.tensor for saved in trace.saved if saved.op == relu.id] == list(relu.outputs)


@pytest.mark.smoke
def test_the_gradients_of_a_shared_layer_accumulate():
    layer = nn.Linear(4, 4)
    trace = trace_model(nn.Sequential(layer, nn.Tanh(), layer), torch.randn(3, 4), loss=torch.sum)
    assert_well_formed(trace)
    assert_twins(trace)
    for name, parameter in (("0.weight", layer.weight), ("0.bias", layer.bias)):
        assert_gradient(trace, name, parameter.grad)
        producer = producer_of(trace, gradients_of(trace, name)[0])
        assert producer.name == "accumulate"
        shares = [trace.tensor_by_id[each].name for each in producer.inputs]
        assert shares == [f"{name}.g share 1", f"{name}.g share 2"]
    assert len({op.module for op in trace.ops if op.name == "linear"}) == 1


def test_an_output_that_nobody_uses_has_no_gradient():
    trace = trace_model(lambda x: x.split(2, dim=1)[1].sum(), torch.randn(4, 6, requires_grad=True))
    with_gradient = {tensor.gradient_of for tensor in trace.tensors}
    assert [output in with_gradient for output in trace.ops[0].outputs] == [False, True, False]
    assert trace.statistics[trace.tensor_by_name["input.g"].id].zero_fraction == pytest.approx(2 / 3)


def test_a_gradient_changed_by_a_hook_is_recorded_after_the_change():
    trace = trace_model(with_a_hook, torch.ones(3, requires_grad=True))
    of_hidden = [tensor.id for tensor in trace.tensors if tensor.gradient_of == trace.ops[0].outputs[0]]
    assert trace.statistics[of_hidden[-1]].mean == 10.0


def test_parameters_may_change_and_gradients_go_during_the_backward_pass():
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()

    def step(parameter):
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    trace = trace_model(model, torch.ones(1, 3), loss=torch.sum)
    assert trace.error is None
    assert torch.allclose(model.weight, before - 0.1)


def test_batchnorm_buffers_are_new_values():
    model = nn.BatchNorm1d(3)
    trace = trace_model(model, torch.randn(8, 3) + 5, loss=torch.sum)
    assert_well_formed(trace)
    before, after = (tensor for tensor in trace.tensors if tensor.name == "running_mean")
    assert before.role == after.role == "buffer"
    assert trace.statistics[before.id].mean == 0.0
    assert_statistics(trace, after.id, model.running_mean)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_do_not_break_a_recording():
    with record() as recording:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        total = nested.to_padded_tensor(0.0).sum()
    assert total.item() == 5.0
    assert recording.trace.error is None


@pytest.mark.long
def test_a_thousand_layers_without_recursion():
    torch.manual_seed(0)
    layers = [layer for _ in range(1000) for layer in (nn.Linear(2, 2), nn.Tanh())]
    model = nn.Sequential(*layers)
    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 80)
    try:
        trace = trace_model(model, torch.randn(3, 2), loss=torch.sum)
        again = load(dump_trace(trace))
    finally:
        sys.setrecursionlimit(limit)
    assert_twins(trace)
    assert names_in(trace, "forward") == ["linear", "tanh"] * 1000 + ["sum"]
    assert len(again.ops) == len(trace.ops) == 2001 + 3 * 1000 + 1
