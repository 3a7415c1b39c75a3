"""Every gradient that is recorded is the one torch computes: for graphs made at random, checked with retain_grad()."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from trace_rules import assert_gradient, assert_statistics, assert_twins, assert_well_formed, gradients_of, producer_of

from chainrule.trace import record

ROWS = COLUMNS = 4

UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "square": lambda a: a * a,
    "double": lambda a: a + a,
    "negate": lambda a: -a,
    "transpose": lambda a: a.t(),
    "softmax": lambda a: a.softmax(-1),
    "normalize": lambda a: torch.nn.functional.layer_norm(a, (COLUMNS,)),
    "relu": torch.relu,
    "clamp": lambda a: a.clamp(-0.5, 0.5),
    "first rows": lambda a: torch.cat([a[:2], a[2:]]),
    "rolled": lambda a: a.roll(1, 0),
    "halves": lambda a: torch.cat(a.chunk(2, dim=1)[::-1], dim=1),
    "largest": lambda a: a.max(dim=1, keepdim=True).values.expand_as(a),
    "mean": lambda a: a.mean(0, keepdim=True) + torch.zeros(ROWS, COLUMNS),
    "in place": lambda a: (a * 1).add_(1).mul_(0.5),
    "written to": lambda a: torch.zeros(ROWS, COLUMNS).index_put((torch.tensor([0, 2]),), a[:2]),
}
BINARY = {
    "add": torch.add,
    "multiply": torch.mul,
    "matmul": torch.matmul,
    "divide": lambda a, b: a / (b * b + 1),
    "where": lambda a, b: torch.where(a > b, a, b),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "stacked": lambda a, b: torch.stack([a, b]).sum(0),
    "outer": lambda a, b: a[:, :1] * b[:1],
}
STEPS = st.lists(
    st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=10
)


def run_program(steps, seed):
    """The values of a graph: three leaves, then one value per step, made of any two before it; and its loss."""
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(ROWS, COLUMNS, generator=generator, requires_grad=True) for _ in range(3)]
    for name, first, second in steps:
        a, b = values[first % len(values)], values[second % len(values)]
        values.append(UNARY[name](a) if name in UNARY else BINARY[name](a, b))
    return values, sum(value.square().mean() for value in values[-3:])


@settings(max_examples=60)
@given(STEPS, st.integers(0, 1000))
def test_the_gradient_of_every_value_of_a_random_graph(steps, seed):
    bare, loss = run_program(steps, seed)
    for value in bare:
        if value.requires_grad:
            value.retain_grad()
    loss.backward()

    seen = {}

    def remember(name, tensor):
        seen[name] = tensor.detach().clone()

    with record(on_tensor=remember) as recording:
        values, recorded_loss = run_program(steps, seed)
        recorded_loss.backward()
    trace = recording.trace
    assert recorded_loss.item() == loss.item() == trace.loss
    assert_well_formed(trace)
    assert_twins(trace)
    for value, expected in zip(values[:3], bare[:3], strict=True):
        assert (value.grad is None) == (expected.grad is None)
        assert value.grad is None or torch.equal(value.grad, expected.grad)

    gradients = {}
    for tensor in trace.tensors:
        if tensor.gradient_of is not None:
            gradients.setdefault(tensor.gradient_of, []).append(tensor.id)
    checked = 0
    for value, expected in zip(values, bare, strict=True):
        # A value's tensors in the trace are those with its elements.
        if not expected.requires_grad or expected.grad is None:
            continue
        candidates = [
            name
            for name, tensor in seen.items()
            if trace.tensor_by_id[name].gradient_of is None
            and trace.tensor_by_id[name].role != "gradient"
            and tensor.shape == value.shape
            and torch.equal(tensor, value.detach())
        ]
        assert candidates
        want = expected.grad.double().numpy()
        found = False
        for gradient in [gradient for name in candidates for gradient in gradients.get(name, [])]:
            row = trace.statistics[gradient]
            scale = np.abs(want).max()
            found = found or (
                row.mean == pytest.approx(want.mean(), rel=1e-9, abs=1e-12 * scale)
                and row.std == pytest.approx(want.std(), rel=1e-7, abs=1e-12 * scale)
                and row.norm == pytest.approx(np.linalg.norm(want), rel=1e-9)
                and row.max == want.max()
            )
        assert found, (steps, seed)
        checked += 1
    assert checked > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_dtype(dtype):
    generator = torch.Generator().manual_seed(5)
    w = torch.randn(6, 5, generator=generator).to(dtype).requires_grad_()
    x = torch.randn(7, 6, generator=generator).to(dtype)
    with record(leaves={"x": x, "w": w}) as recording:
        torch.relu(x @ w).square().mean().backward()
    (gradient,) = gradients_of(recording.trace, "w")
    assert recording.trace.tensor_by_id[gradient].dtype == str(dtype).removeprefix("torch.")
    assert_statistics(recording.trace, gradient, w.grad)


@pytest.mark.parametrize("passes", [2, 3])
def test_the_gradients_of_several_passes_are_added(passes):
    torch.manual_seed(3)
    layer, heads = nn.Linear(4, 3), nn.ModuleList(nn.Linear(3, 1 + head) for head in range(passes))
    x = torch.randn(5, 4)
    sums = []
    with record(layer) as recording:
        hidden = torch.tanh(layer(x))
        for head in heads:
            head(hidden).pow(2).mean().backward(retain_graph=True)
            sums.append(layer.weight.grad.clone())
    trace = recording.trace
    assert_well_formed(trace)
    assert_gradient(trace, "weight", sums[-1])
    op = producer_of(trace, gradients_of(trace, "weight")[0])
    assert (op.name, op.phase) == ("accumulate", "backward")
    norms = [trace.statistics[share].norm for share in op.inputs]
    parts = (sums[-2], sums[-1] - sums[-2])
    assert norms == pytest.approx([part.double().norm().item() for part in parts], rel=1e-5)
    names = [tensor.name for tensor in trace.tensors if tensor.gradient_of is not None]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_the_gradients_of_two_steps_are_not_added(set_to_none):
    layer = nn.Linear(4, 3)
    with record(layer) as recording:
        for _ in range(2):
            layer.zero_grad(set_to_none=set_to_none)
            layer(torch.randn(5, 4)).pow(2).mean().backward()
    trace = recording.trace
    assert_well_formed(trace)
    of_weight = [tensor for tensor in trace.tensors if tensor.name in ("weight.g", "weight.g 2")]
    assert len(of_weight) == 2
    assert trace.statistics[of_weight[1].id].norm == pytest.approx(layer.weight.grad.double().norm().item())
