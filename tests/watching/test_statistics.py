"""The statistics of a step: outputs, parameters and updates of unusual kinds, and what stays of the hooks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import chainrule
from chainrule.stats import BINS, COLUMNS, StatisticsSlab
from chainrule.watching.statistics import Members, StepStatistics


class Own(torch.Tensor):
    """A subclass around a tensor, without the ops on lists of tensors."""

    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, dtype=inside.dtype, requires_grad=inside.requires_grad
        )

    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if "_foreach" in func.name():
            raise NotImplementedError(func.name())
        args, kwargs = tree_map(lambda each: each.inside if isinstance(each, cls) else each, (args, kwargs or {}))
        wrapped = func(*args, **kwargs)
        return tree_map(lambda each: cls(each) if isinstance(each, torch.Tensor) else each, wrapped)


def test_parameters_of_a_class_without_ops_on_lists():
    net = nn.Linear(4, 3)
    net.weight = nn.Parameter(Own(net.weight.detach()))
    statistics = StepStatistics(Members(net), has_histograms=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, foreach=False)
    net.bias.grad = torch.tensor([1.0, -2.0, 2.0])
    net.weight.grad = Own(torch.ones(3, 4))
    statistics.end()
    statistics.take_parameters(optimizer)
    with torch.no_grad():
        net.bias -= 0.5 * net.bias.grad
    statistics.take_updates()
    assert statistics.norms("update")["bias"] == pytest.approx(1.5)


class Learned(nn.Module):
    """Its output is its parameter."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(3))

    def forward(self):
        return self.value


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.keep, self.scale = Learned(), nn.Identity(), nn.Linear(3, 1)

    def forward(self, x):
        return self.scale(self.keep(self.keep(x + self.shift())))


def test_hooks_beside_those_of_the_program():
    """An output that is a parameter keeps no hook; an output with other hooks has its statistics as well."""
    net, seen = Shifted(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.keep.register_forward_hook(lambda *given: given[2].register_hook(seen.append) and None)
    with chainrule.watch(net, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            hidden = net.keep(net.shift() * 2)
            handle = hidden.register_hook(seen.append)
            handle.remove()
            (net(torch.ones(2, 3)).sum() + hidden.sum()).backward()
            optimizer.step()
    assert len(seen) == 9
    assert not net.shift.value._backward_hooks


def test_the_gradient_of_an_output_that_has_a_hook_already():
    net = nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.Linear(3, 1))
    statistics = StepStatistics(Members(net), has_histograms=False)
    net(torch.ones(2, 3)).sum().backward()
    statistics.end(2.0)
    norms = statistics.norms("gradient")
    assert norms.keys() == {"0", "1", "2"}
    assert norms["0"] == norms["1"] == pytest.approx((net[2].weight.norm() * 2**0.5 / 2).item())


def test_rows_that_are_not_used_may_hold_any_bits(monkeypatch):
    """Memory that was not written to can hold a signalling NaN, of which numpy warns."""

    def new_block(slab):
        bits = np.full((slab._size, len(COLUMNS)), 0x7FF0000000000001, np.uint64)
        return bits.view(np.float64), np.empty((slab._size, BINS), np.uint32)

    monkeypatch.setattr(StatisticsSlab, "_new_block", new_block)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    statistics = StepStatistics(Members(model), has_histograms=False)
    model(torch.ones(2, 3)).sum().backward()
    statistics.end()
    assert len(statistics.keys) < len(statistics._slab.moments)
    assert statistics.first_nonfinite(0.5) is None
