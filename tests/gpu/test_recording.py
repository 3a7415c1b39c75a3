"""Recordings on CUDA: every row is that of its tensor, and the recorded program computes what it computes alone."""

import contextlib

import numpy as np
import pytest
import torch
from agreement import as_float64
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

import chainrule
from chainrule.stats import BINS, COLUMNS
from chainrule.stats.kernel import summarize
from chainrule.trace import record

pytestmark = pytest.mark.gpu


class Block(nn.Module):
    """Attention and a feed-forward part, with dropout and a norm."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(), nn.Linear(4 * width, width))

    def forward(self, x):
        query, key, value = (part.unsqueeze(1) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).squeeze(1))
        return torch.tanh(x + self.feed(x))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(50, 64), Block(64), Block(64), nn.Linear(64, 50)).cuda()


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(50, (40, 100), generator=generator).cuda()


def step(model, ids, precision):
    with torch.autocast("cuda", precision) if precision else contextlib.nullcontext():
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("precision", [None, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("level", ["op", "aten"])
def test_every_row_is_that_of_its_tensor(level, precision):
    model, ids, seen = net(), batch(), {}

    def remember(name, tensor):
        if tensor.is_floating_point():
            seen[name] = tensor.detach().cpu()

    with record(model, level=level, on_tensor=remember) as recording:
        step(model, ids, precision)
    table, checked = recording.trace.statistics, 0
    assert {tensor.note for tensor in recording.trace.tensors} == {None}
    for name, tensor in seen.items():
        if name not in table:
            continue
        moments, counts = np.empty(len(COLUMNS)), np.empty(BINS, np.uint32)
        summarize(tensor, moments, counts)
        row = table.row_of[name]
        assert table.counts[row].tolist() == counts.tolist(), name
        values = as_float64(tensor)
        size = np.abs(values[np.isfinite(values)]).max(initial=1e-30)
        np.testing.assert_allclose(table.moments[row, :-2], moments[:-2], rtol=1e-9, atol=1e-12 * size, err_msg=name)
        checked += 1
    assert checked > 100


@pytest.mark.parametrize("precision", [None, torch.bfloat16], ids=str)
def test_a_recorded_pass_is_the_pass_bit_for_bit(precision):
    alone, recorded, ids = net(), net(), batch()
    torch.manual_seed(2)
    loss = step(alone, ids, precision)
    torch.manual_seed(2)
    with chainrule.record(recorded):
        same = step(recorded, ids, precision)
    assert torch.equal(loss, same)
    # An embedding's gradient is a sum in any order.
    for (name, one), other in zip(alone.named_parameters(), recorded.parameters(), strict=True):
        if name != "0.weight":
            assert torch.equal(one.grad, other.grad), name


def test_units_are_those_of_the_host():
    model, ids = net(), batch()
    kept = {}
    model[1].feed[1].register_forward_hook(lambda _, __, output: kept.update(relu=output.detach().cpu()))
    model[1].register_forward_hook(lambda _, __, output: kept.update(tanh=output.detach().cpu()))
    with chainrule.record(model) as recording:
        step(model, ids, None)
    trace = recording.trace
    of = {
        op.name: trace.statistics[op.outputs[0]]
        for op in reversed(trace.ops)
        if op.name in ("relu", "tanh") and op.outputs
    }
    assert of["relu"].dead_fraction == (kept["relu"].amax(0) <= 0).double().mean().item()
    assert of["tanh"].saturation == (kept["tanh"].abs() > 0.97).double().mean().item()
