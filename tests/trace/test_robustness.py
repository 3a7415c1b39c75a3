"""Programs that recorders trip over: every one is recorded whole, with the gradients that torch computes."""

import contextlib
import sys
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.autograd.function import Function
from torch.utils.checkpoint import checkpoint

from chainrule.dump.wire import dump_trace, load
from chainrule.stats import StatisticsSlab
from chainrule.trace import record, trace_model
from chainrule.trace.units import summarize_units


def forward_names(trace):
    return [op.name for op in trace.ops if op.phase == "forward"]


def backward_names(trace):
    return [op.name for op in trace.ops if op.phase == "backward"]


def tensors_of(trace, ids):
    return [trace.tensor_by_id[identifier] for identifier in ids]


# ------------------------------------------------------------------------------------------------- all programs at once


def test_every_program_gives_a_trace_that_can_be_dumped_and_read(program, well_formed, twinned):
    made = program()
    with record(made.model) as recording:
        made.run()
    well_formed(recording.trace)
    twinned(recording.trace)
    assert load(dump_trace(recording.trace)).ops == recording.trace.ops


ONE_PASS = [
    "mlp",
    "conv_batchnorm_dropout",
    "checkpoint_reentrant",
    "checkpoint_without_reentry",
    "lstm",
    "attention",
    "transformer",
    "custom_functions",
    "shared_layer",
    "in_place",
    "branching",
]


@pytest.mark.smoke
@pytest.mark.parametrize("program", ONE_PASS, indirect=True)
def test_the_gradient_of_every_parameter_is_the_one_torch_left(program, gradients_of, has_statistics):
    made = program()
    with record(made.model) as recording:
        made.run()
    checked = 0
    for name, parameter in made.model.named_parameters():
        if parameter.grad is None:
            assert name not in recording.trace.tensor_by_name or not gradients_of(recording.trace, name)
            continue
        found = gradients_of(recording.trace, name)
        assert len(found) == 1, name
        has_statistics(recording.trace, found[0], parameter.grad)
        checked += 1
    assert checked > 0


# --------------------------------------------------------------------------------------------------------- control flow


def test_control_flow_is_recorded_as_it_went():
    def program(x, steps):
        for _ in range(steps):
            x = x.sin() if x.sum() > 0 else x.cos()
        return x.sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    two, four = trace_model(program, x, 2), trace_model(program, x, 4)
    went = [name for name in forward_names(four) if name in ("sin", "cos")]
    assert went == ["sin"] * 4
    assert [name for name in forward_names(two) if name in ("sin", "cos")] == ["sin"] * 2
    (negative,) = [op.name for op in trace_model(program, -x.detach(), 1).ops if op.name in ("sin", "cos")]
    assert negative == "cos"


def test_comprehensions_lambdas_and_generators_have_lines(source_line):
    with record() as recording:
        sum(value * 2 for value in [torch.ones(2)] * 2)
        [value.exp() for value in [torch.ones(2)]]
        (lambda value: value.log())(torch.ones(2))
    for op in recording.trace.ops:
        assert op.source.text == source_line(op)
        assert op.source.text


# ------------------------------------------------------------------------------------------------------------- in place


def test_an_in_place_op_makes_a_new_value(well_formed):
    with record() as recording:
        x = torch.zeros(3)
        y = x.add_(2.0)
        z = y * x
    trace = recording.trace
    well_formed(trace)
    zeros, add, mul = trace.ops
    assert [op.name for op in trace.ops] == ["zeros", "add_", "mul"]
    assert add.inputs == zeros.outputs
    assert add.outputs != zeros.outputs
    assert set(mul.inputs) == set(add.outputs)
    assert trace.statistics[zeros.outputs[0]].max == 0.0
    assert trace.statistics[add.outputs[0]].max == 2.0
    assert trace.statistics[mul.outputs[0]].max == 4.0
    assert z.max().item() == 4.0


def test_setitem_changes_the_tensor():
    with record() as recording:
        x = torch.zeros(4)
        x[1:3] = torch.ones(2)
        x.sum()
    zeros, _ones, setitem, total = recording.trace.ops
    assert setitem.name == "setitem_"
    assert zeros.outputs[0] in setitem.inputs
    assert set(total.inputs) == set(setitem.outputs)
    assert recording.trace.statistics[setitem.outputs[0]].mean == 0.5
    assert recording.trace.statistics[total.outputs[0]].mean == 2.0


def test_a_change_through_a_view_is_seen_in_the_base():
    with record() as recording:
        x = torch.zeros(2, 3)
        row = x[0]
        row.add_(3.0)
        x.sum()
    trace = recording.trace
    total = trace.ops[-1]
    assert trace.statistics[total.inputs[0]].mean == 1.5
    assert trace.statistics[total.outputs[0]].mean == 9.0
    assert trace.tensor_by_id[total.inputs[0]].producer == next(op.id for op in trace.ops if op.name == "add_")


def test_a_change_through_the_base_is_seen_in_the_view():
    with record() as recording:
        x = torch.zeros(2, 3)
        row = x[0]
        x.fill_(1.0)
        row.sum()
    total = recording.trace.ops[-1]
    assert recording.trace.statistics[total.inputs[0]].mean == 1.0
    assert recording.trace.statistics[total.outputs[0]].mean == 3.0


def test_out_arguments():
    buffer = torch.zeros(3)
    with record() as recording:
        torch.mul(torch.full((3,), 2.0), 4.0, out=buffer)
        buffer.sum()
    assert recording.trace.statistics[recording.trace.ops[-1].inputs[0]].mean == 8.0


def test_gradients_through_in_place_ops(has_statistics, gradients_of):
    def program(x):
        h = x * 2
        h.add_(1)
        h[:, 0] = 0
        return F.relu(h, inplace=True).square().sum()

    x = torch.randn(4, 3, requires_grad=True)
    trace = trace_model(program, x)
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, x.grad)
    relu = next(op for op in trace.ops if op.name == "relu")
    # relu in place keeps its result, which has the memory of its input but is another value
    assert [saved.tensor for saved in trace.saved if saved.op == relu.id] == list(relu.outputs)


# ------------------------------------------------------------------------------------------ shared layers and residuals


@pytest.mark.smoke
def test_the_gradients_of_a_shared_layer_accumulate(has_statistics, gradients_of, well_formed, twinned):
    layer = nn.Linear(4, 4)
    x = torch.randn(3, 4)
    trace = trace_model(nn.Sequential(layer, nn.Tanh(), layer), x, loss=torch.sum)
    well_formed(trace)
    twinned(trace)
    for name, parameter in (("0.weight", layer.weight), ("0.bias", layer.bias)):
        (gradient,) = gradients_of(trace, name)
        has_statistics(trace, gradient, parameter.grad)
        producer = next(op for op in trace.ops if op.id == trace.tensor_by_id[gradient].producer)
        assert producer.name == "accumulate"
        assert len(producer.inputs) == 2
    linear = [op for op in trace.ops if op.name == "linear"]
    assert len({op.module for op in linear}) == 1


def test_fan_out_and_residuals(has_statistics, gradients_of):
    x = torch.randn(3, 4, requires_grad=True)

    def program(x):
        return (x + torch.tanh(x) + x * x).sum()

    trace = trace_model(program, x)
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, x.grad)
    producer = next(op for op in trace.ops if op.id == trace.tensor_by_id[gradient].producer)
    # x + …, tanh(x), and both factors of x * x
    assert len(producer.inputs) == 4
    assert torch.allclose(x.grad, 2 - torch.tanh(x.detach()) ** 2 + 2 * x.detach())


def test_the_shares_of_a_gradient_add_up_to_it():
    """linearity: the mean of the sum is the sum of the means."""
    x = torch.randn(30, requires_grad=True)
    trace = trace_model(lambda x: (torch.sin(x) + torch.exp(x) * x).sum(), x)
    gradient = trace.tensor_by_name["input.g"]
    accumulate = next(op for op in trace.ops if op.id == gradient.producer)
    shares = [trace.statistics[share].mean for share in accumulate.inputs]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(trace.statistics[gradient.id].mean, rel=1e-5)
    assert trace.statistics[gradient.id].mean == pytest.approx(x.grad.double().mean().item(), rel=1e-9)


# ------------------------------------------------------------------------------------------------------ several outputs


def test_ops_with_several_outputs(well_formed, gradients_of, has_statistics):
    x = torch.randn(4, 6, requires_grad=True)

    def program(x):
        a, b, c = x.split(2, dim=1)
        values, indices = b.max(dim=0)
        q, r = torch.linalg.qr(c)
        u, _s, _v = torch.linalg.svd(a, full_matrices=False)
        return a.sum() + values.sum() + r.abs().sum() + q.sum() + u.abs().sum() + indices.sum()

    trace = trace_model(program, x)
    well_formed(trace)
    by_name = {op.name: op for op in trace.ops if op.phase == "forward"}
    assert [part.shape for part in tensors_of(trace, by_name["split"].outputs)] == [(4, 2)] * 3
    assert [part.dtype for part in tensors_of(trace, by_name["max"].outputs)[:2]] == ["float32", "int64"]
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, x.grad)


def test_an_output_that_nobody_uses_has_no_gradient():
    x = torch.randn(4, 6, requires_grad=True)
    trace = trace_model(lambda x: x.split(2, dim=1)[1].sum(), x)
    split = trace.ops[0]
    with_gradient = {tensor.gradient_of for tensor in trace.tensors}
    assert [output in with_gradient for output in split.outputs] == [False, True, False]
    assert trace.statistics[trace.tensor_by_name["input.g"].id].zero_fraction == pytest.approx(2 / 3)


# ----------------------------------------------------------------------------------------------------- custom Functions


@pytest.mark.smoke
def test_a_custom_functions_backward_is_recorded_with_its_lines(functions, source_line, well_formed, twinned):
    cube = functions.cube.apply
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    trace = trace_model(lambda x: cube(x).sum(), x)
    well_formed(trace)
    twinned(trace)
    (module,) = [module for module in trace.modules if module.type == "Cube"]
    inside = [op for op in trace.ops if op.module == module.id]
    assert [op.name for op in inside if op.phase == "forward"] == ["mul", "mul"]
    backward = [op for op in inside if op.phase == "backward"]
    assert [op.name for op in backward] == ["mul", "mul", "mul"]
    for op in backward:
        assert op.source.text == "return 3 * inp * inp * grad_output"
        assert op.source.text == source_line(op)
        assert op.source.function == "Cube.backward"
    gradient = trace.tensor_by_name["input.g"]
    assert gradient.producer == backward[-1].id
    assert trace.statistics[gradient.id].max == 12.0
    assert x.grad.tolist() == [3.0, 12.0]
    assert [tensor.name for tensor in tensors_of(trace, [saved.tensor for saved in trace.saved])] == ["input"]


@pytest.mark.parametrize("asks", [True, False], ids=["both ask", "one gradient is None"])
def test_a_custom_function_of_two_outputs(functions, asks, has_statistics, gradients_of):
    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=asks)

    def program(a, b):
        total, difference = functions.sum_and_difference.apply(a, b, 0.5)
        return (total * difference).sum()

    trace = trace_model(program, a, b)
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, a.grad)
    assert torch.allclose(a.grad, a.detach() / 2)
    if asks:
        (gradient,) = gradients_of(trace, "input_1")
        has_statistics(trace, gradient, b.grad)
    else:
        assert gradients_of(trace, "input_1") == []


def test_a_function_one_output_of_which_is_unused(functions, has_statistics, gradients_of):
    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    trace = trace_model(lambda a, b: functions.sum_and_difference.apply(a, b, 2.0)[1].sum(), a, b)
    for name, leaf in (("input", a), ("input_1", b)):
        (gradient,) = gradients_of(trace, name)
        has_statistics(trace, gradient, leaf.grad)
    assert (a.grad[0].item(), b.grad[0].item()) == (2.0, -2.0)


def test_a_function_that_leaves_torch_is_an_op_itself(functions, has_statistics, gradients_of):
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    trace = trace_model(lambda x: functions.numpy_sine.apply(x).sum(), x)
    (op,) = [op for op in trace.ops if op.name == "NumpySine"]
    assert op.phase == "forward"
    has_statistics(trace, op.outputs[0], torch.from_numpy(np.sin(x.detach().numpy())))
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, torch.from_numpy(np.cos(x.detach().numpy())))


def test_two_calls_of_one_function_are_two_modules(functions):
    trace = trace_model(
        lambda x: functions.cube.apply(functions.cube.apply(x)).sum(), torch.ones(2, requires_grad=True)
    )
    paths = [module.path for module in trace.modules if module.type == "Cube"]
    assert len(paths) == len(set(paths)) == 2
    assert trace.statistics[trace.tensor_by_name["input.g"].id].max == 9.0


def test_a_function_in_place_and_one_that_hands_its_input_through():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, inp):
            ctx.mark_dirty(inp)
            return inp.add_(1)

        @staticmethod
        def backward(ctx, grad_output):  # noqa: ARG004
            return grad_output

    class Reverse(Function):
        @staticmethod
        def forward(ctx, inp):  # noqa: ARG004
            return inp.view_as(inp)

        @staticmethod
        def backward(ctx, grad_output):  # noqa: ARG004
            return -grad_output

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    trace = trace_model(lambda x: (Reverse.apply(AddOne.apply(x * 2)) ** 2).sum(), x)
    # d/dx of -(2x + 1)² in the backward pass
    assert x.grad.tolist() == [-12.0, -20.0]
    assert trace.statistics[trace.tensor_by_name["input.g"].id].min == -20.0


def test_a_function_with_a_setup_context():
    class Double(Function):
        @staticmethod
        def forward(inp):
            return inp * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad_output):  # noqa: ARG004
            return grad_output * 2

    x = torch.ones(3, requires_grad=True)
    trace = trace_model(lambda x: Double.apply(x).sum(), x)
    assert trace.statistics[trace.tensor_by_name["input.g"].id].mean == 2.0


# --------------------------------------------------------------------------------------------------------- entry points


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["Tensor.backward", "autograd.backward", "autograd.grad"])
def test_the_three_entry_points_are_alike(how, functions):
    def dumped(how):
        x = torch.tensor([0.5, -1.5], requires_grad=True)
        with record(leaves={"x": x}) as recording:
            loss = functions.cube.apply(x).square().sum()
            if how == "Tensor.backward":
                loss.backward()
            elif how == "autograd.backward":
                torch.autograd.backward(loss)
            else:
                torch.autograd.grad(loss, x)
        return recording.trace

    trace, expected = dumped(how), dumped("Tensor.backward")
    assert [(op.name, op.phase, op.inputs, op.outputs, op.twin) for op in trace.ops] == [
        (op.name, op.phase, op.inputs, op.outputs, op.twin) for op in expected.ops
    ]
    assert trace.loss == expected.loss
    gradient = trace.tensor_by_name["x.g"]
    assert gradient.gradient_of == trace.tensor_by_name["x"].id
    # d/dx x⁶ = 6x⁵
    assert trace.statistics[gradient.id].min == pytest.approx(6 * (-1.5) ** 5)


def test_grad_of_several_outputs_by_several_inputs(has_statistics, gradients_of):
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    with record(leaves={"a": a, "b": b}) as recording:
        first, second = a * b, a + b * b
        of_a, of_b = torch.autograd.grad([first, second], [a, b], [torch.ones(3), torch.full((3,), 2.0)])
    trace = recording.trace
    for name, gradient in (("a", of_a), ("b", of_b)):
        (found,) = gradients_of(trace, name)
        has_statistics(trace, found, gradient)
    assert torch.allclose(of_a, b.detach() + 2)


def test_grad_by_something_in_the_middle():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        middle = x * 3
        (gradient,) = torch.autograd.grad((middle**2).sum(), middle)
    trace = recording.trace
    assert gradient.tolist() == [6.0, 12.0]
    of_middle = [tensor.id for tensor in trace.tensors if tensor.gradient_of == trace.ops[0].outputs[0]]
    assert len(of_middle) == 1
    assert trace.statistics[of_middle[0]].max == 12.0
    assert "x.g" not in trace.tensor_by_name


def test_backward_for_some_inputs_only():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with record(leaves={"a": a, "b": b}) as recording:
        (a * b * 3).sum().backward(inputs=[a])
    assert b.grad is None
    assert a.grad.tolist() == [3.0, 3.0]
    assert recording.trace.statistics[recording.trace.tensor_by_name["a.g"].id].mean == 3.0


def test_a_gradient_given_to_backward():
    x = torch.ones(3, requires_grad=True)
    weights = torch.tensor([1.0, 2.0, 3.0])
    with record(leaves={"x": x}) as recording:
        (x * 2).backward(weights)
    assert recording.trace.statistics[recording.trace.tensor_by_name["x.g"].id].max == 6.0
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_two_backward_passes_over_one_graph(gradients_of):
    x = torch.tensor([2.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        loss = (x**3).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    trace = recording.trace
    assert x.grad.item() == 24.0
    found = gradients_of(trace, "x")
    # two passes, each of which brings 3x² = 12; what stands in `.grad` is their sum
    assert [trace.statistics[gradient].mean for gradient in found] == [24.0]
    (op,) = [op for op in trace.ops if op.name == "accumulate"]
    assert [trace.statistics[share].mean for share in op.inputs] == [12.0, 12.0]
    assert backward_names(trace).count("PowBackward0") == 2


def test_a_gradient_of_a_gradient(well_formed):
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        penalty = (first**2).sum()
        penalty.backward()
    trace = recording.trace
    well_formed(trace)
    # d/dx (3x²)² = 36x³
    assert x.grad.tolist() == [288.0, 972.0]
    last = [tensor for tensor in trace.tensors if tensor.gradient_of == trace.tensor_by_name["x"].id][-1]
    assert trace.statistics[last.id].max == 972.0
    (penalty_op,) = [op for op in trace.ops if op.name == "sum" and op.id != trace.ops[1].id]
    assert penalty_op.phase == "forward"
    assert trace.statistics[penalty_op.outputs[0]].mean == 12.0**2 + 27.0**2


def test_double_backward_through_a_custom_function(functions):
    x = torch.tensor([2.0], requires_grad=True)
    with record(leaves={"x": x}):
        (first,) = torch.autograd.grad(functions.cube.apply(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_what_torch_refuses_it_still_refuses():
    x = torch.ones(3, requires_grad=True)
    with record():
        with pytest.raises(RuntimeError, match="scalar outputs"):
            (x * 2).backward()
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(1).backward()
        loss = (x * x).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        with pytest.raises(RuntimeError, match="not have been used in the graph"):
            torch.autograd.grad((x * 2).sum(), torch.ones(1, requires_grad=True))
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            (x * 2).backward(torch.ones(4))


def test_batched_gradients():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with record():
        out = x**2
        (rows,) = torch.autograd.grad(out, x, torch.eye(3), is_grads_batched=True)
    assert torch.equal(rows, torch.diag(2 * x.detach()))


def test_function_transforms():
    with record():
        gradient = torch.func.grad(lambda x: (x**3).sum())(torch.tensor([2.0]))
        rows = torch.vmap(lambda row: row.sum() * 2)(torch.ones(3, 2))
        jacobian = torch.autograd.functional.jacobian(lambda x: x**2, torch.tensor([1.0, 2.0]))
    assert gradient.tolist() == [12.0]
    assert rows.tolist() == [4.0] * 3
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]


# ----------------------------------------------------------------------------------------------------------- checkpoint


@pytest.mark.smoke
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["without reentry", "reentrant"])
def test_checkpointed_ops_are_recomputed_and_marked(use_reentrant, well_formed, twinned, has_statistics, gradients_of):
    layer = nn.Linear(3, 3)
    calls = []

    def block(x):
        calls.append(torch.is_grad_enabled())
        return torch.tanh(layer(x)).exp()

    x = torch.randn(4, 3, requires_grad=True)
    with record(layer, leaves={"x": x}) as recording:
        out = checkpoint(block, x, use_reentrant=use_reentrant)
        assert len(calls) == 1, "saved tensors were unpacked during the forward pass"
        out.sum().backward()
    assert len(calls) == 2
    trace = recording.trace
    assert trace.error is None
    well_formed(trace)
    twinned(trace)

    again = [op for op in trace.ops if op.attributes.get("recomputed")]
    assert [op.name for op in again][:2] == ["linear", "tanh"]
    ops = {op.id: op for op in trace.ops}
    for op in again:
        assert op.phase == "backward"
        assert ops[op.twin].name == op.name
        assert op.outputs or op is again[-1]
    assert not any(op.attributes.get("recomputed") for op in trace.ops if op.phase == "forward")
    for name, tensor in (("x", x), ("weight", layer.weight), ("bias", layer.bias)):
        (found,) = gradients_of(trace, name)
        has_statistics(trace, found, tensor.grad)


def test_a_failure_after_a_checkpoint_is_not_blamed_on_it():
    layer = nn.Linear(3, 3)
    x = torch.randn(4, 3, requires_grad=True)
    recording = record(layer)

    def program():
        checkpoint(lambda x: torch.tanh(layer(x)), x, use_reentrant=False).sum().backward()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), recording:
        program()
    assert recording.trace.error.op is None
    assert recording.trace.error.message.startswith("ZeroDivisionError")


# --------------------------------------------------------------------------------------------------------- known layers


def test_lstm(has_statistics, gradients_of, well_formed):
    lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True)
    x = torch.randn(5, 2, 4, requires_grad=True)
    trace = trace_model(lstm, x, loss=lambda result: result[0].sum() + result[1][1].mean())
    well_formed(trace)
    (op,) = [op for op in trace.ops if op.name == "lstm"]
    assert [part.shape for part in tensors_of(trace, op.outputs)[:3]] == [(5, 2, 6), (4, 2, 3), (4, 2, 3)]
    for name, parameter in lstm.named_parameters():
        (gradient,) = gradients_of(trace, name)
        has_statistics(trace, gradient, parameter.grad)
    (gradient,) = gradients_of(trace, "input")
    has_statistics(trace, gradient, x.grad)


@pytest.mark.parametrize("need_weights", [True, False], ids=["by hand", "fused"])
def test_attention(need_weights, has_statistics):
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    trace = trace_model(lambda x: attention(x, x, x, need_weights=need_weights)[0].square().sum(), x)
    by_shape = {tensor.shape: tensor.id for tensor in trace.tensors if tensor.role == "gradient" and tensor.gradient_of}
    has_statistics(trace, by_shape[(24, 8)], attention.in_proj_weight.grad)


def test_the_fast_path_of_a_transformer_in_evaluation():
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )
    encoder.eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = encoder(x)
        trace = trace_model(encoder, x)
        with record(encoder):
            recorded = encoder(x)
    # torch takes another kernel while any torch function mode is on: the one exception to bit by bit.
    assert torch.allclose(recorded, expected, atol=1e-6)
    assert trace.error is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_do_not_break_a_recording():
    with record() as recording:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        total = nested.to_padded_tensor(0.0).sum()
    assert total.item() == 5.0
    assert recording.trace.error is None


def test_batchnorm_buffers_are_new_values(well_formed):
    model = nn.BatchNorm1d(3)
    x = torch.randn(8, 3) + 5
    trace = trace_model(model, x, loss=torch.sum)
    well_formed(trace)
    means = [tensor for tensor in trace.tensors if tensor.name == "running_mean"]
    assert [tensor.role for tensor in means] == ["buffer", "buffer"]
    assert trace.statistics[means[0].id].mean == 0.0
    assert trace.statistics[means[1].id].mean == pytest.approx(model.running_mean.double().mean().item(), rel=1e-9)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.ones(3, dtype=torch.complex64) * 1j, "complex64"),
        (lambda: torch.empty(3, 2, device="meta") + 1, "meta"),
    ],
    ids=["sparse", "complex", "meta"],
)
def test_kinds_without_statistics_have_a_note_and_no_row(tensor, word, well_formed):
    with record() as recording:
        tensor()
    trace = recording.trace
    well_formed(trace)
    last = trace.tensors[-1]
    assert last.id not in trace.statistics
    assert word in last.note


@pytest.mark.parametrize(
    "dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2], ids=str
)
def test_rare_dtypes_do_not_break_a_recording(dtype, well_formed):
    with record() as recording:
        made = torch.ones(4).to(dtype)
        back = made.to(torch.float32)
    assert back.sum().item() == 4.0
    well_formed(recording.trace)
    (op,) = [op for op in recording.trace.ops if op.name == "to" and op.outputs[0] != recording.trace.tensors[-1].id]
    converted = recording.trace.tensor_by_id[op.outputs[0]]
    if converted.note is None:
        assert recording.trace.statistics[converted.id].mean == 1.0


def test_a_kernel_that_does_not_know_a_tensor_subclass():
    class Tagged(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Tagged)
    with record() as recording:
        y = x * 2
    assert type(y) is Tagged
    assert recording.trace.statistics[recording.trace.ops[0].outputs[0]].mean == 2.0


# ---------------------------------------------------------------------------------------------------------------- depth


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.sum()


def test_a_thousand_layers_without_recursion(well_formed, twinned):
    torch.manual_seed(0)
    model = Deep(1000)
    limit = sys.getrecursionlimit()
    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 80)
    try:
        trace = trace_model(model, torch.randn(3, 2))
        encoded = dump_trace(trace)
        again = load(encoded)
    finally:
        sys.setrecursionlimit(limit)
    well_formed(trace)
    twinned(trace)
    assert forward_names(trace) == ["linear", "tanh"] * 1000 + ["sum"]
    assert len(trace.modules) == 1002
    assert len(again.ops) == len(trace.ops) == 2001 + 3 * 1000 + 1


def test_deep_modules_and_long_chains_of_views():
    model = nn.Linear(2, 2)
    for _ in range(60):
        model = nn.Sequential(model)
    trace = trace_model(model, torch.ones(1, 2), loss=torch.sum)
    assert trace.module_by_id[trace.ops[0].module].path == ".".join("0" * 60)
    with record() as recording:
        x = torch.ones(1)
        for _ in range(500):
            x = x.view(1)
    assert len(recording.trace.ops) == 501


# ---------------------------------------------------------------------------------------------------- gradients by hand


class ByHand:
    """A layer with its gradient, as one writes it without autograd."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, inp):
        self.inp, self.out = inp, (inp @ self.weight).clamp_min(0.0)
        return self.out

    def backward(self):
        masked = self.out.g * (self.out > 0).float()
        self.inp.g = masked @ self.weight.t()
        self.weight.g = self.inp.t() @ masked


class Net:
    def __init__(self, *weights):
        self.layers = [ByHand(weight) for weight in weights]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        self.out = x
        return x.square().sum()

    def backward(self):
        self.out.g = 2 * self.out
        for layer in reversed(self.layers):
            layer.backward()


@pytest.mark.smoke
def test_scratch_code_with_gradients_in_g(well_formed, gradients_of):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=generator)
    weights = [torch.randn(4, 4, generator=generator), torch.randn(4, 2, generator=generator)]
    leaves = [tensor.clone().requires_grad_() for tensor in (x, *weights)]
    torch.relu(torch.relu(leaves[0] @ leaves[1]) @ leaves[2]).square().sum().backward()

    net = Net(*weights)
    trace = trace_model(net, x)

    well_formed(trace)
    paths = {module.id: module.path for module in trace.modules}
    types = {module.path: module.type for module in trace.modules}
    assert types["layers.0"] == types["layers.1"] == "ByHand"
    for op in trace.ops:
        if op.name in ("matmul", "clamp_min", "gt", "t"):
            assert paths[op.module] in ("layers.0", "layers.1")
    assert {op.phase for op in trace.ops if op.name in ("gt", "t", "float")} == {"backward"}
    for name, leaf in zip(("input", "layers.0.weight", "layers.1.weight"), leaves, strict=True):
        (gradient,) = gradients_of(trace, name)
        assert trace.statistics[gradient].mean == pytest.approx(leaf.grad.mean().item(), rel=1e-4, abs=1e-6)
        assert trace.statistics[gradient].norm == pytest.approx(leaf.grad.norm().item(), rel=1e-5)
    # what the backward reads of the forward pass was kept for it
    kept = {trace.tensor_by_id[saved.tensor].name for saved in trace.saved}
    assert {"input", "layers.0.weight", "layers.1.weight"} <= kept


def test_a_backward_given_to_trace_model():
    x = torch.tensor([1.0, 2.0])

    def forward(x):
        return (x * x).sum()

    def square_grad():
        x.g = 2 * x

    trace = trace_model(forward, x, backward=square_grad)
    gradient = trace.tensor_by_name["input.g"]
    assert trace.statistics[gradient.id].max == 4.0
    assert next(op for op in trace.ops if op.id == gradient.producer).phase == "backward"


def test_scratch_gradients_that_accumulate(gradients_of):
    x = torch.tensor([1.0, 2.0])

    class Twice:
        def __call__(self, x):
            self.x = x
            return (x * 3 + x * x).sum()

        def backward(self):
            self.x.g = torch.full_like(self.x, 3.0)
            self.x.g = self.x.g + 2 * self.x

    trace = trace_model(Twice(), x)
    (gradient,) = gradients_of(trace, "input")
    assert trace.statistics[gradient].max == 7.0


# ---------------------------------------------------------------------------------------------- parts without gradients


def test_detach_cuts_the_gradient():
    x = torch.tensor([3.0], requires_grad=True)
    trace = trace_model(lambda x: (x * x.detach()).sum(), x)
    assert x.grad.item() == 3.0
    assert trace.statistics[trace.tensor_by_name["input.g"].id].mean == 3.0
    assert "detach" in forward_names(trace)
    assert not any(trace.tensor_by_id[t].name == "detach.g" for op in trace.ops for t in op.outputs)


def test_a_part_without_gradients():
    layer = nn.Linear(2, 2)

    def program(x):
        with torch.no_grad():
            scale = layer(x).abs().max()
        return (layer(x) / scale).sum()

    trace = trace_model(program, torch.ones(3, 2))
    assert forward_names(trace) == ["linear", "abs", "max", "linear", "div", "sum"]
    twins = [op.twin for op in trace.ops if op.name == "AddmmBackward0"]
    second_linear = [op.id for op in trace.ops if op.name == "linear"][1]
    assert twins == [second_linear]


def test_frozen_parameters_have_no_gradient(gradients_of, has_statistics):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    trace = trace_model(model, torch.randn(4, 3), loss=torch.sum)
    assert trace.tensor_by_name["0.weight"].role == "parameter"
    assert gradients_of(trace, "0.weight") == []
    (gradient,) = gradients_of(trace, "2.weight")
    has_statistics(trace, gradient, model[2].weight.grad)


def test_the_hooks_of_the_user_and_what_they_make(gradients_of):
    x = torch.ones(3, requires_grad=True)
    seen = []

    def program(x):
        hidden = x * 2
        hidden.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 10)
        return hidden.sum()

    trace = trace_model(program, x)
    assert [gradient.tolist() for gradient in seen] == [[1.0] * 3]
    assert x.grad.tolist() == [20.0] * 3
    (gradient,) = gradients_of(trace, "input")
    assert trace.statistics[gradient].mean == 20.0
    of_hidden = [tensor.id for tensor in trace.tensors if tensor.gradient_of == trace.ops[0].outputs[0]]
    assert trace.statistics[of_hidden[-1]].mean == 10.0


def test_an_optimizer_inside_the_backward_pass():
    """Parameters that change, and gradients that go, as soon as they are complete."""
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


def test_training_steps_are_recorded_one_after_the_other(well_formed):
    weight = torch.tensor([4.0], requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.25)
    with record(leaves={"w": weight}) as recording:
        for _ in range(3):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
    trace = recording.trace
    well_formed(trace)
    # w ← w - ¼·2w halves it: 4, 2, 1, ½
    assert weight.item() == 0.5
    of_weight = [tensor.id for tensor in trace.tensors if tensor.name in ("w.g", "w.g 2", "w.g 3")]
    assert [trace.statistics[gradient].mean for gradient in of_weight] == [8.0, 4.0, 2.0]


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.smoke
def test_a_failing_forward_gives_the_trace_so_far(well_formed):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    trace = trace_model(model, torch.randn(2, 3))
    well_formed(trace)
    assert forward_names(trace) == ["linear", "relu", "linear"]
    failed = trace.ops[-1]
    assert trace.error.op == failed.id
    assert failed.outputs == ()
    assert [tensor.name for tensor in tensors_of(trace, failed.inputs)][1:] == ["2.weight", "2.bias"]
    assert trace.module_by_id[failed.module].path == "2"
    assert trace.error.message.startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)")
    assert load(dump_trace(trace)).error == trace.error


def test_record_lets_the_error_through_and_keeps_the_trace():
    with pytest.raises(RuntimeError, match="must match"), record() as recording:
        torch.ones(2) + torch.ones(3)
    assert recording.trace.ops[-1].name == "add"
    assert recording.trace.error.op == recording.trace.ops[-1].id

    def program():
        torch.ones(2).sum()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), record() as recording:
        program()
    assert recording.trace.error.op is None
    assert recording.trace.error.message == "ValueError: mine"
    assert forward_names(recording.trace) == ["ones", "sum"]


def test_an_error_that_the_program_handles_is_no_failure_of_the_trace():
    with record() as recording:
        try:
            torch.ones(2) + torch.ones(3)
        except RuntimeError:
            torch.zeros(1)
    assert recording.trace.error is None


def test_an_error_handled_earlier_is_not_blamed_for_a_later_one():
    def program():
        with contextlib.suppress(RuntimeError):
            torch.ones(2) + torch.ones(3)
        torch.zeros(1).sum()
        raise ValueError("later")

    with pytest.raises(ValueError, match="later"), record() as recording:
        program()
    assert recording.trace.error.op is None


def test_a_failing_backward_gives_the_trace_so_far(well_formed, functions):
    class Broken(Function):
        @staticmethod
        def forward(ctx, inp):  # noqa: ARG004
            return inp * 2

        @staticmethod
        def backward(ctx, grad_output):  # noqa: ARG004
            return grad_output @ torch.ones(7)

    x = torch.randn(3, requires_grad=True)
    trace = trace_model(lambda x: Broken.apply(functions.cube.apply(x)).sum(), x)
    well_formed(trace)
    failed = next(op for op in trace.ops if op.id == trace.error.op)
    assert failed.phase == "backward"
    assert failed.name == "matmul"
    assert failed.source.function.endswith("Broken.backward")
    assert trace.module_by_id[failed.module].type == "Broken"
    assert "SumBackward0" in backward_names(trace)
    assert x.grad is None


def test_a_gradient_of_the_wrong_shape_is_torchs_error():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, inp):  # noqa: ARG004
            return inp * 2

        @staticmethod
        def backward(ctx, grad_output):  # noqa: ARG004
            return torch.ones(5)

    trace = trace_model(lambda x: Wrong.apply(x).sum(), torch.randn(3, requires_grad=True))
    assert "invalid gradient" in trace.error.message


# -------------------------------------------------------------------------------------------------------------- threads


def test_two_threads_that_record_at_once_do_not_mix(functions):
    barrier = threading.Barrier(2, timeout=30)
    traces, failures = {}, []

    def work(width):
        try:
            model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
            x = torch.ones(4, width, requires_grad=True)
            with record(model, leaves={"x": x}) as recording:
                for _ in range(20):
                    barrier.wait()
                    functions.cube.apply(model(x)).sum().backward()
            traces[width] = recording.trace
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(width,)) for width in (3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    for width, trace in traces.items():
        assert forward_names(trace) == ["linear", "tanh", "linear", "mul", "mul", "sum"] * 20
        assert {tensor.shape for tensor in trace.tensors} <= {
            (4, width), (4, 1), (width, width), (width,), (1, width), (1,), (), (width, 1)
        }  # fmt: skip


def test_a_thread_that_is_not_recorded_leaves_no_mark(functions):
    def elsewhere():
        functions.cube.apply(nn.Linear(3, 3)(torch.ones(2, 3))).sum().backward()

    with record() as recording:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(30)
        torch.ones(2)
    assert forward_names(recording.trace) == ["ones"]


def test_the_nodes_of_a_created_graph_belong_to_the_op_whose_backward_made_them():
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with record() as recording:
        z = (w**3).sum()
        (gradient,) = torch.autograd.grad(z, w, create_graph=True)
        total = gradient.sum()
        total.backward()
    assert torch.equal(w.grad, 6 * w.detach())
    ops = {op.id: op for op in recording.trace.ops}
    twins = {op.name: ops[op.twin].name for op in recording.trace.ops if op.phase == "backward"}
    assert twins["PowBackward0"] == "pow"
    assert twins["MulBackward0"] == "pow"


def test_an_activation_whose_memory_was_given_back_keeps_its_row():
    slab = StatisticsSlab()
    activation = torch.relu(torch.randn(100, 100))
    row = slab.take(activation)
    before = slab.moments[row].copy()
    activation.untyped_storage().resize_(64)
    for op_name in ("relu", "tanh"):
        summarize_units(op_name, activation, slab, row)
    assert np.array_equal(slab.moments[row], before, equal_nan=True)
