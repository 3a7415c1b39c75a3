"""Every entry to a backward pass: `backward` and `grad`, of any order, through checkpoints and by hand."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from trace_rules import assert_gradient, assert_twins, assert_well_formed, gradients_of, producer_of

from chainrule.trace import record, trace_model


@pytest.mark.smoke
def test_the_three_entry_points_are_recorded_alike(functions):
    def recorded(go_back):
        x = torch.tensor([0.5, -1.5], requires_grad=True)
        with record(leaves={"x": x}) as recording:
            go_back(functions.cube.apply(x).square().sum(), x)
        return recording.trace

    first, *others = map(
        recorded, (lambda y, _: y.backward(), lambda y, _: torch.autograd.backward(y), torch.autograd.grad)
    )
    gradient = first.tensor_by_name["x.g"]
    assert gradient.gradient_of == first.tensor_by_name["x"].id
    # d/dx x⁶ = 6x⁵
    assert first.statistics[gradient.id].min == pytest.approx(6 * (-1.5) ** 5)
    for trace in others:
        assert [(op.name, op.phase, op.inputs, op.outputs, op.twin) for op in trace.ops] == [
            (op.name, op.phase, op.inputs, op.outputs, op.twin) for op in first.ops
        ]
        assert trace.loss == first.loss
        assert trace.statistics[gradient.id] == first.statistics[gradient.id]


def ones(*shape):
    return torch.ones(*shape, requires_grad=True)


@pytest.mark.parametrize(
    ("go_back", "of_a", "of_b"),
    [
        (lambda a, b: torch.autograd.grad([a * b, a + b * b], [a, b], [torch.ones(3), 2 * torch.ones(3)]), 3.0, 5.0),
        (lambda a, b: (a * b * 3).sum().backward(inputs=[a]), 3.0, None),
        (lambda a, b: (a * b * 2).backward(torch.full((3,), 7.0)), 14.0, 14.0),
    ],
    ids=["several outputs", "some inputs only", "from a given gradient"],
)
def test_other_ways_back(go_back, of_a, of_b):
    a, b = ones(3), ones(3)
    with record(leaves={"a": a, "b": b}) as recording:
        go_back(a, b)
    for name, expected in (("a", of_a), ("b", of_b)):
        assert_gradient(recording.trace, name, None if expected is None else torch.full((3,), expected))


def test_grad_by_a_tensor_in_the_middle():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        middle = x * 3
        torch.autograd.grad((middle**2).sum(), middle)
    assert_gradient(recording.trace, "mul", torch.tensor([6.0, 12.0]))
    assert_gradient(recording.trace, "x", None)


def test_a_gradient_of_a_gradient():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with record(leaves={"x": x}) as recording:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        penalty = (first**2).sum()
        penalty.backward()
    trace = recording.trace
    assert_well_formed(trace)
    # d/dx (3x²)² = 36x³
    assert x.grad.tolist() == [288.0, 972.0]
    assert trace.statistics[gradients_of(trace, "x")[-1]].max == 972.0
    (penalty_op,) = [op for op in trace.ops if op.name == "sum" and op.id != trace.ops[1].id]
    assert penalty_op.phase == "forward"
    assert trace.statistics[penalty_op.outputs[0]].mean == 12.0**2 + 27.0**2


def test_ops_of_a_second_backward_have_the_twins_of_the_first():
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with record() as recording:
        (gradient,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
        gradient.sum().backward()
    assert torch.equal(w.grad, 6 * w.detach())
    ops = {op.id: op for op in recording.trace.ops}
    twins = {op.name: ops[op.twin].name for op in recording.trace.ops if op.phase == "backward"}
    assert twins["PowBackward0"] == twins["MulBackward0"] == "pow"


def test_torch_still_refuses_the_same_calls():
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


def test_batched_gradients_and_function_transforms():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with record():
        (rows,) = torch.autograd.grad(x**2, x, torch.eye(3), is_grads_batched=True)
        gradient = torch.func.grad(lambda x: (x**3).sum())(torch.tensor([2.0]))
        sums = torch.vmap(lambda row: row.sum() * 2)(torch.ones(3, 2))
        jacobian = torch.autograd.functional.jacobian(lambda x: x**2, torch.tensor([1.0, 2.0]))
    assert torch.equal(rows, torch.diag(2 * x.detach()))
    assert gradient.tolist() == [12.0]
    assert sums.tolist() == [4.0] * 3
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]


@pytest.mark.smoke
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["without reentry", "reentrant"])
def test_checkpointed_ops_are_recomputed_and_marked(use_reentrant):
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
    assert_well_formed(trace)
    assert_twins(trace)

    again = [op for op in trace.ops if op.attributes.get("recomputed")]
    assert [op.name for op in again][:2] == ["linear", "tanh"]
    ops = {op.id: op for op in trace.ops}
    for op in again:
        assert op.phase == "backward"
        assert ops[op.twin].name == op.name
        assert op.outputs or op is again[-1]
    for name, tensor in (("x", x), ("weight", layer.weight), ("bias", layer.bias)):
        assert_gradient(trace, name, tensor.grad)


def test_a_backward_given_to_trace_model():
    x = torch.tensor([1.0, 2.0])

    def square_grad():
        x.g = 2 * x

    trace = trace_model(lambda x: (x * x).sum(), x, backward=square_grad)
    assert_gradient(trace, "input", 2 * x)
    assert producer_of(trace, gradients_of(trace, "input")[0]).phase == "backward"


def test_scratch_gradients_that_accumulate():
    class Twice:
        def __call__(self, x):
            self.x = x
            return (x * 3 + x * x).sum()

        def backward(self):
            self.x.g = torch.full_like(self.x, 3.0)
            self.x.g = self.x.g + 2 * self.x

    trace = trace_model(Twice(), torch.tensor([1.0, 2.0]))
    assert_gradient(trace, "input", torch.tensor([5.0, 7.0]))
    # The layer kept the tensor of the forward pass that the backward pass reads.
    assert {trace.tensor_by_id[saved.tensor].name for saved in trace.saved} == {"input"}
    assert {op.phase for op in trace.ops if op.name == "full_like"} == {"backward"}
