"""Tensors that a second thread reads while the program goes on: the same rows, and nothing is kept afterwards."""

import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from chainrule.stats import StatisticsSlab, native

pytestmark = pytest.mark.skipif(native.kernel is None, reason="the compiled kernel has the second thread")

RING = 32
SIZE = 20_000


def tensors():
    """More than can wait at once: usual ones, views, a small one, and one that the kernel leaves to PyTorch."""
    torch.manual_seed(1)
    usual = [torch.randn(200, 100) * 10.0**power for power in range(-3, 2 * RING)]
    views = [usual[0].t(), usual[1][:, ::2], usual[2].expand(3, 200, 100)]
    special = [torch.full((SIZE,), value) for value in (0.0, float("nan"), float("inf"))]
    tiny = torch.linspace(-1, 1, SIZE, dtype=torch.float64) * 1e-200
    return [*usual, *views, *special, torch.randn(SIZE).half(), torch.arange(SIZE), torch.randn(7, 5), tiny]


def test_the_rows_are_those_of_one_thread():
    given = tensors()
    usual, beside = StatisticsSlab(len(given)), StatisticsSlab(len(given), beside=True)
    for row, tensor in enumerate(given):
        usual.write(row, tensor)
        beside.write(row, tensor)
        if row < 2:  # while they wait to be read
            for slab in (usual, beside):
                slab.write_dead_fraction(row, tensor)
                slab.write_saturation(row, tensor, 0.0)
    assert np.array_equal(beside.moments, usual.moments, equal_nan=True)
    assert np.array_equal(beside.counts, usual.counts)
    assert beside.values.keys() == usual.values.keys()


def test_a_tensor_that_changes_before_it_is_settled_is_refused():
    tensor = torch.ones(SIZE)
    slab = StatisticsSlab(2, beside=True)
    slab.write(0, tensor)
    slab.settle()
    tensor.add_(1)
    slab.write(1, tensor)
    tensor.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        slab.settle()


def test_nothing_is_kept_if_the_program_fails():
    def program():
        slab = StatisticsSlab(RING, beside=True)
        for row in range(RING // 2):
            tensor = torch.full((SIZE,), float(row))
            seen.append(weakref.ref(tensor))
            slab.write(row, tensor)
        raise ArithmeticError("of the program")

    seen = []
    with pytest.raises(ArithmeticError, match="of the program"):
        program()
    assert len(seen) == RING // 2
    assert all(each() is None for each in seen)


@pytest.mark.parametrize("size", [5, SIZE])
def test_bad_rows_are_refused_and_counts_may_be_missing(size):
    beside, slab = native.kernel.Beside(), StatisticsSlab(2)
    for row in (-1, 2):
        with pytest.raises(IndexError):
            beside.summarize_row(torch.ones(size), slab.moments, slab.counts, row)
    assert beside.summarize_row(torch.ones(size), slab.moments, None, 1)
    assert beside.finish() == []
    assert slab.moments[1, 1] == 1


FORKED = """
import os, torch
from chainrule.stats import StatisticsSlab
slab = StatisticsSlab(2, beside=True)
slab.write(0, torch.ones(20_000))
slab.settle()
slab.write(1, torch.ones(20_000))
child = os.fork()
if not child:
    try:
        slab.settle()
    except RuntimeError:
        del slab
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
slab.settle()
assert slab.moments[1, 1] == 1
"""


@pytest.mark.long
def test_a_forked_process_does_not_wait_for_the_thread():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
