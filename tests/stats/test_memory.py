"""Peak extra memory while statistics are taken, as PyTorch's and Python's allocators report it."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch.autograd.profiler import profile

from chainrule.stats import StatisticsSlab, device, kernel, native

pytestmark = pytest.mark.long

MEBIBYTE = 1 << 20
ELEMENTS = 2 * device.CHUNK + 2048


def peak_of_torch(take):
    """Bytes that PyTorch allocates for `take()`, at the peak."""
    with profile(profile_memory=True) as profiled:
        take()
    allocations = [each.nbytes() for each in profiled.kineto_results.events() if each.name() == "[memory]"]
    return int(np.cumsum([0, *allocations]).max())


def peak_of_python(take):
    """Bytes that Python and NumPy allocate for `take()`, at the peak."""
    tracemalloc.start()
    take()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def tensors():
    """Tensors whose copy would show: 32 MiB or more as they are, 64 MiB in float64."""
    base = torch.zeros(4, ELEMENTS // 2)
    base[0, :] = torch.linspace(-1, 1, ELEMENTS // 2)
    yield "dense", base[:2]
    yield "strided", base[:, ::2]
    yield "negated", torch._neg_view(base[:2])
    yield "transposed and strided", base[:2, 7:].t()
    yield "expanded", base[:2, None].expand(2, 50, -1)
    special = base.clone()
    special[1, 3], special[1, 4] = torch.nan, torch.inf
    yield "not finite", special[:, ::2]


IDS = [name for name, _ in tensors()]


@pytest.mark.parametrize("tensor", [tensor for _, tensor in tensors()], ids=IDS)
def test_on_the_host_nothing_large_is_copied(tensor, implementation_on_host):  # noqa: ARG001
    slab = StatisticsSlab()
    slab.take(tensor)  # makes the buffers
    assert peak_of_torch(lambda: slab.take(torch.ones(5))) >= 20  # the profiler sees what there is
    assert 2 * 8 * kernel.PIECE == 4 * MEBIBYTE
    assert peak_of_torch(lambda: slab.take(tensor)) + peak_of_python(lambda: slab.take(tensor)) <= 4 * MEBIBYTE


@pytest.mark.parametrize("tensor", [tensor for _, tensor in tensors()], ids=IDS)
def test_on_a_device_it_is_the_docstrings_figure(tensor, monkeypatch):
    monkeypatch.setattr(native, "kernel", None)
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu"}))
    assert "On a CUDA device 72 MiB while one is read" in StatisticsSlab.__doc__
    slab = StatisticsSlab()
    slab.take(torch.ones(3))  # makes the words
    assert peak_of_torch(lambda: slab.take(tensor)) <= 72 * MEBIBYTE
    assert peak_of_torch(lambda: slab.write_dead_fraction(0, tensor)) <= 72 * MEBIBYTE
    assert peak_of_torch(lambda: slab.write_saturation(0, tensor, 0.5)) <= 72 * MEBIBYTE


def test_more_than_31_bits_of_elements_that_lie_dense():
    values = torch.from_numpy(np.zeros(2**31 + 5, np.bool_))  # of which only the last page takes room
    values[-1] = True
    slab = StatisticsSlab()
    row = slab.take(values)
    summary = slab.table(["it"], [row])["it"]
    assert (summary.n, summary.min, summary.max) == (2**31 + 5, 0, 1)
    assert (summary.counts[0], summary.counts[-1], sum(summary.counts)) == (2**31 + 4, 1, 2**31 + 5)
