"""Rows of the kernels on CUDA devices, launched by the compiled kernel. Here the host plays the device.

`cuda_on_host.cpp` runs the kernels; the driver is a set of C functions. `make test-gpu` has the real ones.
"""

import ctypes
import functools
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import layouts, long_tensors, narrow_tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from chainrule.stats import BINS, COLUMNS, SMALL, StatisticsSlab, cuda, dead_fraction, device, native, saturation
from chainrule.stats.device import DeviceRows
from chainrule.stats.kernel import summarize
from chainrule.watching.statistics import Members, StepStatistics

LAST = torch.channels_last
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HOST = Path(__file__).parents[1] / "shared" / "cuda_on_host.cpp"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The kernels, compiled for the host."""
    target = tmp_path_factory.mktemp("kernels") / "kernels.so"
    defined = f'-DKERNELS="{cuda.SOURCE}"'
    flags = "-std=c++17 -O2 -shared -fPIC -ffp-contract=off -x c++".split()
    subprocess.run([os.environ.get("CXX", "c++"), *flags, defined, HOST, "-o", target], check=True)
    return ctypes.CDLL(str(target))


class HostDriver:
    """What `cuda.Driver` finds, with the host as the device 0: its current stream, and what was launched."""

    def __init__(self, library):
        self.stream, self.capturing, self.fails, self.launched = 7, 0, False, []
        self._library = library
        numbers, void = ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p
        launch = ctypes.CFUNCTYPE(ctypes.c_int, void, *7 * [ctypes.c_uint], void, void, void)
        self._functions = (
            ctypes.CFUNCTYPE(ctypes.c_int32, void, numbers)(lambda _, to: self._tell(to, 0)),
            ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(void))(
                lambda _, to: self._tell(to, self.stream)
            ),
            launch(self._launch),
            ctypes.CFUNCTYPE(ctypes.c_int, void, numbers)(lambda _, to: self._tell(to, self.capturing)),
            ctypes.CFUNCTYPE(ctypes.c_int, numbers)(lambda to: self._tell(to, 0)),
        )
        self.addresses = tuple(ctypes.cast(each, void).value for each in self._functions)

    @staticmethod
    def _tell(to, value):
        to[0] = value
        return 0

    def _launch(self, function, blocks, tasks, _depth, threads, *others):
        stream, arguments = others[3:5]
        if self.fails or stream != self.stream:
            return 1
        self.launched.append((cuda.TASKS[(function - 1) % len(cuda.TASKS)], blocks))
        self._library.run(function - 1, blocks, tasks, threads, ctypes.c_void_p(arguments))
        return 0


@contextmanager
def bound(driver):
    """The compiled kernel launches on the host by this driver."""
    kernel, kind = native.kernel, ctypes.CDLL(torch._C.__file__).aoti_torch_device_type_cpu()
    kernel.bind_device(kind, driver.addresses)
    kernel.load_kernels(0, tuple(range(1, 1 + len(cuda.FLOATS) * len(cuda.TASKS))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "prepare", lambda _: True)
        patch.setattr(cuda, "current_stream", lambda _: driver.stream)
        try:
            yield driver
        finally:
            kernel.bind_device(-1, driver.addresses)


@pytest.fixture
def driver(library):
    with bound(HostDriver(library)) as driver:
        yield driver


class OnlyDevice:
    """The compiled kernel as it is to tensors on CUDA: it reads none on the host."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def summarize_row(self, *_):
        return False

    def take_moments(self, _tensor, rows, name, _room):
        return -1 if name in rows else None

    def dead_fraction(self, _):
        return None


@pytest.fixture
def only_device(driver, monkeypatch):
    """All tensors are on the device."""
    monkeypatch.setattr(native, "kernel", OnlyDevice(native.kernel))
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu"}))
    return driver


class Table:
    """DeviceRows, and the rows it has finished."""

    def __init__(self, *, only_moments=False):
        self.rows = DeviceRows(only_moments)
        self.moments, self.counts = np.full((5000, len(COLUMNS)), 123.456), np.full((5000, BINS), 77, np.uint32)
        self.values = {}

    def fetch(self):
        def write(rows, moments, counts):
            self.moments[rows], self.counts[rows] = moments, counts

        self.rows.fetch(
            lambda row: (self.moments[row], self.counts[row]),
            write,
            lambda row, tensor: self.values.update({row: tensor.tolist()}),
        )

    def assert_row(self, row, tensor):
        moments, counts = np.empty(len(COLUMNS)), np.empty(BINS, np.uint32)
        summarize(tensor, moments, counts)
        size = max(0.0, *np.nan_to_num(np.abs(moments[3:5])))
        np.testing.assert_allclose(self.moments[row][:-2], moments[:-2], rtol=1e-11, atol=1e-14 * size, equal_nan=True)
        if not self.rows.only_moments:
            assert self.counts[row].tolist() == counts.tolist()


SIZES = [1, SMALL, SMALL + 1, 4 * 8192, 4 * 8192 + 1, 100_000]


@pytest.mark.parametrize("only_moments", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_row_has_its_tensor(driver, dtype, only_moments):
    table = Table(only_moments=only_moments)
    tensors = [torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype) for size in SIZES]
    for row, tensor in enumerate(tensors):
        table.rows.write(row, tensor)
    assert [blocks for task, blocks in driver.launched if task == "summarize"] == [
        *([1, 1, 1, 4] if only_moments else [1, 1, 1, 1]),
        *(5, 13),
    ]
    assert ("histogram", 13) not in driver.launched if only_moments else ("histogram", 13) in driver.launched
    table.fetch()
    for row, tensor in enumerate(tensors):
        table.assert_row(row, tensor)
    assert table.values == ({} if only_moments else {0: tensors[0].tolist(), 1: tensors[1].tolist()})


@pytest.mark.long
def test_rows_fill_several_blocks_and_streams(driver, monkeypatch):
    monkeypatch.setattr(device, "FIRST_BLOCK", device._SCRATCH + 10_000)  # 20 rows
    table = Table()
    tensors = [torch.full((20 + row % 7,), float(row)) for row in range(300)]
    for row, tensor in enumerate(tensors):
        driver.stream = 7 + row % 3
        if not table.rows.take_at_once(row, tensor):
            table.rows.write(row, tensor)
    assert len(table.rows._blocks) > 3
    table.fetch()
    for row, tensor in enumerate(tensors):
        table.assert_row(row, tensor)
    # After a fetch, the blocks begin anew.
    blocks = len(table.rows._blocks)
    assert table.rows.take_at_once(3, tensors[9])
    assert len(table.rows._blocks) == blocks
    table.fetch()
    table.assert_row(3, tensors[9])
    table.assert_row(4, tensors[4])


@pytest.mark.usefixtures("driver")
def test_a_row_has_what_was_written_last():
    table, tensors = Table(), [torch.randn(30) for _ in range(4)]
    table.rows.write(0, tensors[0])
    table.rows.write(0, tensors[1])
    table.rows.write(1, tensors[2])
    table.rows.write(1, torch.arange(50))  # by PyTorch
    table.rows.write(2, torch.arange(50))
    table.rows.write(2, tensors[3])
    assert all(row in table.rows for row in range(3))
    assert 3 not in table.rows
    table.fetch()
    for row, tensor in enumerate([tensors[1], torch.arange(50), tensors[3]]):
        table.assert_row(row, tensor)


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_values(library, dtype, data):
    tensor = data.draw(st.one_of(long_tensors(), narrow_tensors())).to(dtype)
    with bound(HostDriver(library)) as driver:
        table = Table()
        table.rows.write(0, tensor)
        assert driver.launched
        table.fetch()
        table.assert_row(0, tensor)


@pytest.mark.usefixtures("driver")
def test_a_copy_has_neither_values_nor_fractions():
    table, tensor = Table(), torch.tensor([[1.0, -1.0], [2.0, 0.0]])
    table.rows.write(0, tensor)
    table.rows.write_dead_fraction(0, tensor)
    assert table.rows.write_copy(0, 1)
    assert not table.rows.write_copy(5, 6)
    table.fetch()
    table.assert_row(1, tensor)
    assert table.moments[0, -2] == 0.5
    assert np.isnan(table.moments[1, -2:]).all()
    assert table.values == {0: [1.0, -1.0, 2.0, 0.0]}


@pytest.mark.parametrize("name", [name for name, _ in layouts()])
def test_any_layout(driver, name):
    table, tensor = Table(), dict(layouts())[name]
    table.rows.write(0, tensor)
    table.fetch()
    if tensor.dtype == torch.float32:
        assert driver.launched
    table.assert_row(0, tensor)
    assert table.values == ({0: tensor.flatten().tolist()} if tensor.numel() <= SMALL else {})


@pytest.mark.usefixtures("driver")
def test_the_values_of_a_small_tensor_are_row_by_row():
    table = Table()
    tensors = [torch.arange(6.0).view(2, 3).t(), torch.arange(8.0).view(1, 2, 2, 2).contiguous(memory_format=LAST)]
    table.rows.write(0, torch.ones(1))
    for row, tensor in enumerate(tensors, 1):
        assert not table.rows.take_at_once(row, tensor)
        table.rows.write(row, tensor)
    table.fetch()
    assert [table.values[row] for row in (1, 2)] == [tensor.flatten().tolist() for tensor in tensors]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fractions(driver, dtype):
    activation = (torch.randn(7, 40, 3, generator=torch.Generator().manual_seed(0)) - 1).to(dtype)
    for number, each in enumerate((activation, activation[:, :, 1], activation[:1].expand(6, -1, -1))):
        table, small = Table(), each.clamp(-1, 1)
        table.rows.write(0, each)
        table.rows.write_dead_fraction(0, each)
        table.rows.write(1, small)
        table.rows.write_saturation(1, small, 0.5)
        assert (("dead", 4) in driver.launched) == (number != 1), "one in three units has gaps: PyTorch's"
        table.fetch()
        assert table.moments[0, -2] == dead_fraction(each)
        assert table.moments[1, -1] == saturation(small, 0.5)
        driver.launched.clear()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_at_the_limit_of_saturation(dtype):
    """All numbers near the limit, and torch's own comparison of them."""
    limit = torch.tensor(0.97, dtype=dtype)
    bits = limit.view(torch.int32 if dtype == torch.float32 else torch.int16)
    values = (bits + torch.arange(-4, 5, dtype=bits.dtype)).view(dtype)
    for value in values:
        table, one = Table(), value.reshape(1, 1)
        table.rows.write(0, one)
        table.rows.write_saturation(0, one, 0.0)
        table.fetch()
        assert table.moments[0, -1] == (one.abs() > 0.97).double().item()


@pytest.mark.usefixtures("driver")
def test_a_unit_with_nan_is_not_dead_and_zero_has_no_sign():
    table, activation = Table(), torch.tensor([[-1.0, float("nan"), -2.0], [-0.0, -1.0, -3.0]])
    table.rows.write(0, activation)
    table.rows.write_dead_fraction(0, activation)
    table.fetch()
    assert table.moments[0, -2] == (activation.amax(0) <= 0).double().mean()
    high = COLUMNS.index("max")
    assert (table.moments[0, high], np.signbit(table.moments[0, high])) == (0, False)


@pytest.mark.usefixtures("driver")
def test_names_are_noted_once():
    table, rows = Table(only_moments=True), {}
    places = iter([(row, row, None, None) for row in (4, 9)])
    launches, tensor = table.rows.launches, torch.ones(3)
    assert launches.take_moments(tensor, rows, "a", places) is None  # there is no block
    table.rows.write(0, tensor)
    assert launches.take_moments(tensor, rows, "a", places) == 4
    assert launches.take_moments(tensor, rows, "a", places) == -1
    assert launches.take_moments(torch.arange(3), rows, "b", places) is None
    assert launches.take_moments(tensor, rows, "b", places) == 9
    assert launches.take_moments(tensor, rows, "c", places) is None  # no place is left
    assert rows == {"a": 4, "b": 9}
    table.fetch()
    table.assert_row(9, tensor)


def test_a_group_is_read_by_few_launches(driver):
    table, rows = Table(only_moments=True), {"known": 3}
    places = iter([(row, row, None, None) for row in range(10, 400)])
    made = torch.Generator().manual_seed(0)
    tensors = {f"t{size}": torch.randn(size, generator=made) for size in (*range(1, 150), 40_000, 1 << 20)}
    halves = {f"h{size}": torch.randn(size, generator=made).half() for size in range(1, 10)}
    left = {
        "known": torch.ones(2),
        "large": torch.ones((1 << 20) + 1),
        "gaps": torch.ones(9)[::2],
        "whole": torch.arange(3),
    }
    table.rows.write(0, torch.ones(2))
    table.rows.launches.take_group({**left, **tensors, **halves}, rows, places)
    assert rows.keys() == {"known", *tensors, *halves}
    assert driver.launched[1:] == [("group", 1), ("group", 1), ("group", 32), ("group", 1)]
    table.fetch()
    for name, tensor in {**tensors, **halves}.items():
        table.assert_row(rows[name], tensor)


def test_a_group_whose_launch_fails_is_left(driver):
    table, rows = Table(only_moments=True), {}
    table.rows.write(0, torch.ones(2))
    driver.fails = True
    table.rows.launches.take_group({"a": torch.ones(3)}, rows, iter([(5, 5, None, None)]))
    assert rows == {}
    assert 5 not in table.rows


def test_a_group_that_is_interrupted_has_no_rows(driver):
    def room():
        yield (5, 5, None, None)
        raise MemoryError

    table, rows = Table(only_moments=True), {}
    table.rows.write(0, torch.ones(2))
    with pytest.raises(MemoryError):
        table.rows.launches.take_group({"a": torch.ones(3), "b": torch.ones(3)}, rows, room())
    assert rows == {}
    assert 5 not in table.rows
    assert len(driver.launched) == 1


@pytest.mark.usefixtures("driver")
def test_a_row_that_comes_during_a_fetch_waits_for_the_next():
    table = Table()
    table.rows.write(0, torch.ones(3))

    def write(rows, moments, _counts):
        table.moments[rows] = moments
        assert table.rows.take_at_once(1, torch.full((3,), 5.0))

    table.rows.fetch(lambda row: (table.moments[row], table.counts[row]), write, lambda *_: None)
    table.fetch()
    assert table.moments[1, 1] == 5


@pytest.mark.usefixtures("driver")
def test_passes_keep_no_blocks(monkeypatch):
    monkeypatch.setattr(device, "FIRST_BLOCK", device._SCRATCH + 10_000)
    monkeypatch.setattr(device, "MAX_BLOCK", device._SCRATCH + 10_000)
    table, tensors = Table(), [torch.full((3,), float(row)) for row in range(50)]
    for _ in range(3):
        for row, tensor in enumerate(tensors):
            table.rows.write(row, tensor)
        table.fetch()
        assert len(table.rows._blocks) == 1
        for row, tensor in enumerate(tensors):
            table.assert_row(row, tensor)


@pytest.mark.usefixtures("only_device")
@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("width", [3, 300])
def test_a_watched_step_whose_gradient_repeats_one_number(width, scale):
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 4))
    statistics = StepStatistics(Members(model), has_histograms=False)
    (scale * model(torch.ones(5, width)).sum()).backward()
    statistics.end(scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    statistics.take_parameters(optimizer)
    assert statistics.first_nonfinite(0.5) is None
    optimizer.step()
    statistics.take_updates()
    assert statistics._slab.rows == len(statistics.keys), "no row is lost"
    gradients = {name: float(each.grad.double().norm()) for name, each in model.named_parameters()}
    assert statistics.norms("weight_gradient") == pytest.approx(gradients)
    assert statistics.norms("gradient")["1"] == pytest.approx(20**0.5)
    assert list(statistics.norms("weight")) == list(gradients)


@pytest.mark.usefixtures("only_device")
def test_moments_in_several_blocks_of_rows_are_scaled_too(monkeypatch):
    monkeypatch.setattr(StatisticsSlab, "__init__", functools.partialmethod(small_slab, StatisticsSlab.__init__))
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4))
    statistics = StepStatistics(Members(model), has_histograms=False)
    (2 * model(torch.ones(5, 3)).sum()).backward()
    statistics.end(2.0)
    statistics.take_parameters(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        assert statistics.norms("gradient")["1"] == pytest.approx(20**0.5)


def small_slab(slab, made, *_, **options):
    made(slab, 2, **options)


def test_a_stream_that_is_captured_gets_no_launch(driver):
    table, tensor = Table(), torch.ones(3)
    table.rows.write(0, tensor)
    driver.capturing = 1
    before = len(driver.launched)
    assert not table.rows.take_at_once(1, tensor)
    assert len(driver.launched) == before


def test_a_launch_that_fails_leaves_the_tensor_to_pytorch(driver):
    table, tensor = Table(), torch.randn(40)
    table.rows.write(0, tensor)
    driver.fails = True
    assert not table.rows.take_at_once(1, tensor)
    table.rows.write(1, tensor)
    table.fetch()
    table.assert_row(0, tensor)
    table.assert_row(1, tensor)
