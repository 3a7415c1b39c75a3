"""Rows of statistics in blocks: each tensor has its own, with several threads and after failures."""

import threading

import numpy as np
import pytest
import torch

from chainrule.stats import BINS, COLUMNS, StatisticsSlab, native, slab

LARGE = 100_000
"""Elements of which the compiled kernel takes statistics without holding the interpreter's lock."""


def take(rows, tensor):
    """As a recording does."""
    row = rows.take_at_once(tensor)
    return rows.take(tensor) if row < 0 else row


@pytest.mark.usefixtures("implementation")
def test_threads_that_add_rows_at_once():
    threads, each = 4, 12
    for _ in range(5):
        rows, taken = StatisticsSlab(capacity=4), {}
        start = threading.Barrier(threads)

        def work(thread, rows=rows, taken=taken, start=start):
            tensors = [torch.full((LARGE if i % 3 else 5,), float(thread * each + i)) for i in range(each)]
            start.wait(60)
            for tensor in tensors:
                taken[tensor[0].item()] = take(rows, tensor), tensor.numel()

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(row for row, _ in taken.values()) == list(range(threads * each))
        assert rows.rows == threads * each
        moments, counts = rows.moments, rows.counts
        for value, (row, size) in taken.items():
            assert moments[row, :6].tolist() == pytest.approx([size, value, 0, value, value, value * size**0.5])
            assert counts[row].tolist() == [size] + [0] * (BINS - 1)


class Meanwhile:
    """A kernel that runs callbacks before it writes a row; it refuses complex tensors."""

    def __init__(self):
        self.others = []

    def summarize_row(self, tensor, moments, counts, row):
        if self.others:
            self.others.pop()()
        if tensor.is_complex():
            return False
        np.asarray(moments)[row], np.asarray(counts)[row] = tensor[0].item(), tensor.numel()
        return True


@pytest.fixture
def meanwhile(monkeypatch):
    kernel = Meanwhile()
    monkeypatch.setattr(native, "kernel", kernel)
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset())
    return kernel.others


def test_a_named_tensor_of_floats_is_taken_once():
    x, rows = torch.linspace(-1, 2, 30).reshape(5, 6), {}
    slab = StatisticsSlab(2, only_moments=True)
    assert [slab.take_named(x, rows, "x"), slab.take_named(x + 1, rows, "x")] == [0, -1]
    assert slab.take_named(torch.arange(3), rows, "of integers") == -1
    assert slab.take_named(x[:, ::2].half(), rows, "y") == 1
    assert slab.take_named(x.to_sparse(), rows, "sparse") is None
    assert slab.take_named(x, rows, "beyond the capacity") is None
    assert rows == {"x": 0, "y": 1}
    plain = StatisticsSlab(2, only_moments=True)
    plain.take(x)
    plain.take(x[:, ::2].half())
    assert np.array_equal(slab.moments, plain.moments, equal_nan=True)
    assert StatisticsSlab().take_named(x, rows, "with a histogram") is None


@pytest.mark.parametrize("method", ["take", "take_at_once"])
def test_a_row_that_is_being_written_is_given_to_no_other_tensor(meanwhile, method):
    rows = StatisticsSlab(capacity=2)
    taken = {}

    def others():
        for value in range(5):
            taken[value] = getattr(rows, method)(torch.full((3,), float(value)))

    meanwhile.append(others)
    taken[7] = getattr(rows, method)(torch.full((3,), 7.0))
    assert sorted(taken.values()) == list(range(6))
    assert rows.moments[list(taken.values()), 0].tolist() == list(taken)


@pytest.mark.parametrize("method", ["take", "take_at_once"])
def test_a_failed_row_keeps_the_others(meanwhile, monkeypatch, method):
    def summarize(*_):
        raise RuntimeError("unreadable")

    monkeypatch.setattr(slab, "summarize", summarize)
    rows = StatisticsSlab(capacity=2)
    taken = []
    for value in (1.0, 2.0, 3.0):
        meanwhile.append(lambda value=value: taken.append(rows.take_at_once(torch.tensor([value]))))
        refused = torch.ones(1, dtype=torch.complex64)
        if method == "take":
            with pytest.raises(RuntimeError, match="unreadable"):
                rows.take(refused)
        else:
            assert rows.take_at_once(refused) == -1
    taken.append(rows.take(torch.tensor([4.0])))
    assert len(set(taken)) == 4
    assert rows.moments[taken, 0].tolist() == [1, 2, 3, 4]
    assert rows.rows > max(taken)


def test_rows_of_several_blocks():
    rows = StatisticsSlab(capacity=3)
    for value in range(7):
        assert rows.take(torch.full((4,), float(value))) == value
    assert rows.copy(1) == 7
    rows.write(2, torch.full((4,), 20.0))
    rows.write_dead_fraction(4, torch.zeros(2, 3))
    rows.write_saturation(5, torch.ones(2, 3), 0.0)
    rows.copy(5)
    means = [0, 1, 20, 3, 4, 5, 6, 1, 5]
    assert rows.rows == 9
    assert rows.moments[:9, COLUMNS.index("mean")].tolist() == means
    assert rows.counts[:9].sum(1).tolist() == [4] * 9
    assert rows.moments[4, -2] == 1
    assert rows.moments[5, -1] == 1
    assert np.isnan(rows.moments[8, -1])
    table = rows.table(["a", "b", "c"], [8, 0, 2])
    assert [table[name].mean for name in "abc"] == [5, 0, 20]
