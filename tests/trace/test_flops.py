"""The cost of ops: FLOPs as torch counts them, or counted by hand where torch counts none; bytes read and written."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from chainrule.trace import record, trace_model


def costs_of(run):
    """Names and FLOPs of the ops of a program, but for those that only draw."""
    with record() as recording:
        run()
    return [(op.name, op.flops) for op in recording.trace.ops if op.name not in ("randn", "zeros")]


def test_products_cost_2mnk():
    a, b, weight, bias = torch.randn(5, 4), torch.randn(4, 3), torch.randn(3, 4), torch.randn(3)
    products = 2 * 5 * 4 * 3

    def run():
        _ = a @ b
        torch.mm(a, b)
        F.linear(a, weight)
        F.linear(a, weight, bias)
        torch.addmm(bias, a, b)
        torch.matmul(a[0], b[:, 0])
        torch.matmul(a, b[:, 0])
        torch.matmul(a.expand(2, 7, 5, 4), b)

    added = products + 5 * 3
    assert [cost for cost in costs_of(run) if cost[0] not in ("getitem", "expand")] == [
        ("matmul", products),
        ("mm", products),
        ("linear", products),
        ("linear", added),
        ("addmm", added),
        ("matmul", 2 * 4),
        ("matmul", 2 * 5 * 4),
        ("matmul", 2 * 7 * products),
    ]


def test_elementwise_ops_cost_one_per_element_and_moves_nothing():
    x, one = torch.randn(4, 6), torch.randn(24)
    moves = [
        lambda: x.t(),
        lambda: x.reshape(24),
        lambda: x[1:],
        lambda: x.expand(3, 4, 6),
        lambda: torch.cat([x, x]),
        lambda: torch.stack([x, x]),
        lambda: x.split(2),
        lambda: x.clone(),
        lambda: x.double(),
        lambda: torch.ones(3, 3),
        lambda: torch.tensor([1.0, 2.0]),
    ]
    for run in moves:
        assert [cost for _, cost in costs_of(run)] == [0]

    def run():
        x + 1
        x * x
        x.sum()
        torch.relu(x)
        one.dot(one)
        x.prod()
        x.norm()
        x.var()
        x.std(0)
        x.max(1)
        torch.max(x, x)

    assert [cost for _, cost in costs_of(run)] == [24, 24, 24, 24, 48, 24, 48, 96, 96, 24, 24]


def attend(query, key):
    # One op on the CPU is not counted by torch; its parts are.
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query, key, key)


r = torch.randn
# The op, a program that ends with it, and the additions that torch leaves out.
COUNTED_BY_TORCH = [
    ("bmm", lambda: torch.bmm(r(7, 5, 4), r(7, 4, 3)), 0),
    ("baddbmm", lambda: torch.baddbmm(torch.zeros(7, 5, 3), r(7, 5, 4), r(7, 4, 3)), 7 * 5 * 3),
    ("tensordot", lambda: torch.tensordot(r(2, 3, 4, 5), r(4, 5, 6, 7), 2), 0),
    ("einsum", lambda: torch.einsum("bhqd,bhkd->bhqk", r(2, 3, 4, 5), r(2, 3, 6, 5)), 0),
    ("einsum", lambda: torch.einsum("...ij,jk", r(2, 3, 4), r(4, 5)), 0),
    ("einsum", lambda: torch.einsum("ij,jk,kl->il", r(2, 3), r(3, 4), r(4, 5)), 0),
    ("linalg_multi_dot", lambda: torch.linalg.multi_dot([r(2, 9), r(9, 9), r(9, 9)]), 0),
    ("conv2d", lambda: F.conv2d(r(2, 3, 8, 8), r(8, 3, 3, 3), padding=1), 0),
    ("conv2d", lambda: F.conv2d(r(2, 4, 9, 9), r(8, 2, 3, 3), stride=2, groups=2), 0),
    ("conv1d", lambda: F.conv1d(r(2, 3, 20), r(5, 3, 4), dilation=2), 0),
    ("conv3d", lambda: F.conv3d(r(1, 2, 4, 4, 4), r(3, 2, 2, 2, 2)), 0),
    ("conv_transpose1d", lambda: F.conv_transpose1d(r(2, 4, 5), r(4, 3, 2), groups=2), 0),
    ("conv_transpose2d", lambda: F.conv_transpose2d(r(2, 3, 5, 5), r(3, 6, 2, 2), stride=2), 0),
    ("conv_transpose3d", lambda: F.conv_transpose3d(r(2, 3, 4, 5, 6), r(3, 4, 2, 2, 2)), 0),
    ("scaled_dot_product_attention", lambda: attend(r(2, 3, 4, 8), r(2, 3, 6, 8)), 0),
]


@pytest.mark.parametrize(
    ("name", "run", "added"), COUNTED_BY_TORCH, ids=[f"{at} {case[0]}" for at, case in enumerate(COUNTED_BY_TORCH)]
)
def test_products_cost_torchs_count(name, run, added):
    with FlopCounterMode(display=False) as counter:
        run()
    assert counter.get_total_flops() > 0
    assert costs_of(run)[-1] == (name, counter.get_total_flops() + added)


COMPOSITES = {
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


@pytest.mark.parametrize("case", COMPOSITES)
def test_composites_cost_torchs_count_forward_and_backward(case):
    make, shapes = COMPOSITES[case]
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


def test_biases_of_composites_cost_one_per_output():
    costs = dict(costs_of(lambda: nn.LSTM(3, 4)(r(5, 2, 3))))
    assert costs["lstm"] == 5 * 2 * (2 * 16 * 3 + 2 * 16 * 4 + 2 * 16)
    costs = dict(costs_of(lambda: nn.MultiheadAttention(8, 2)(*[r(10, 1, 8)] * 3)))
    projections, attention = 2 * 10 * 8 * 24 + 10 * 24 + 2 * 10 * 8 * 8 + 10 * 8, 4 * 10 * 10 * 8
    assert costs["multi_head_attention_forward"] == projections + attention


def test_a_packed_sequence_costs_its_own_length():
    rows = [r(3, 3), r(2, 3)]
    costs = dict(costs_of(lambda: nn.GRU(3, 4, bias=False)(nn.utils.rnn.pack_sequence(rows))))
    assert costs["gru"] == 5 * 2 * 12 * (3 + 4)


def test_a_bilinear_form_costs_its_products_and_its_bias():
    costs = dict(costs_of(lambda: F.bilinear(r(5, 3), r(5, 4), r(2, 3, 4), torch.zeros(2))))
    assert costs["bilinear"] == 5 * 2 * (2 * 3 * 4 + 2 * 4 + 1)


@pytest.mark.parametrize(("requires_grad", "gradients"), [(False, 1), (True, 2)])
def test_the_backward_of_a_product_costs_a_product_per_gradient(requires_grad, gradients):
    trace = trace_model(nn.Linear(4, 3), torch.randn(5, 4, requires_grad=requires_grad), loss=torch.sum)
    (node,) = [op for op in trace.ops if op.name == "AddmmBackward0"]
    # one product for the weight and one more for x, where it is asked for
    assert node.flops == pytest.approx(gradients * 2 * 5 * 4 * 3, rel=0.13)


def test_bytes_are_those_read_and_written():
    with record() as recording:
        a = torch.randn(10, 20)
        b = a @ torch.randn(20, 5)
        b.t()
        b.double()
    costs = {op.name: op.bytes for op in recording.trace.ops}
    assert costs["matmul"] == 4 * (10 * 20 + 20 * 5 + 10 * 5)
    assert costs["t"] == 0
    assert costs["double"] == (4 + 8) * 50
