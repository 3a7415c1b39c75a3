"""Statistics taken on a device, for which the CPU stands in: launches, copies, rows and full memory."""

import gc
import math
import weakref
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.stats import (
    COUNT_COLUMNS,
    StatisticsSlab,
    StreamCapturedError,
    dead_fraction,
    device,
    native,
    saturation,
)
from chainrule.trace.recorder import record
from chainrule.trace.units import summarize_units

LAUNCHES = 35
"""At most so many for a tensor of one chunk, and for each further chunk."""

WORDS = device._Words

ALLOCATIONS = {"aten.empty.memory_format", "aten.new_empty.default", "aten.empty_like.default"}

WAITS = set(
    """_local_scalar_dense item is_nonzero equal allclose nonzero masked_select index bincount histc unique _unique2
    repeat_interleave to_sparse tolist""".split()
)
"""Operations for which the host waits, or which read a number on the host."""


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(native, "kernel", None)  # which would take what is on the CPU before a device is asked
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu"}))
    monkeypatch.setattr(device, "STAGED", 1000)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(device, "CHUNK", 4096)


class Launches(TorchDispatchMode):
    """Counts calls, without views and allocations."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
        if not is_view and str(func) not in ALLOCATIONS:
            self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def launches(take):
    """Number of launches of `take()`; fails if the host waits for one of them."""
    with Launches() as seen:
        take()
    assert not WAITS & set(seen.names), seen.names
    return seen.names.total()


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_few_launches_and_no_waiting(dtype, small_chunks):  # noqa: ARG001
    slab = StatisticsSlab()
    slab.take(torch.zeros(2000, dtype=dtype))  # makes the words
    small, large = torch.zeros(10, 4, dtype=dtype), torch.zeros(5, 4096, dtype=dtype)
    assert launches(lambda: slab.take(small)) == 1
    assert launches(lambda: slab.take(small[:, ::2])) == 1
    assert launches(lambda: slab.take(large[0, 1:])) <= LAUNCHES
    assert launches(lambda: slab.take(large[:, 1:])) <= 5 * LAUNCHES
    activation = normal(20, 200)
    assert launches(lambda: slab.write_dead_fraction(0, activation)) <= 5
    assert launches(lambda: slab.write_saturation(0, activation, 0.5)) <= 6


def test_all_rows_come_in_one_copy(monkeypatch):
    copies = []
    to_cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: copies.append(tensor) or to_cpu(tensor))
    monkeypatch.setattr(device, "FIRST_WORDS", 200)
    slab = StatisticsSlab(capacity=1)
    rows = [slab.take(normal(size, seed=size)) for size in range(100, 400, 7)]
    slab.write_dead_fraction(3, normal(4, 4))
    rows.append(slab.copy(rows[5]))
    assert copies == []
    table = slab.table([str(row) for row in rows], rows)
    assert len(copies) == 1
    assert table.column("n").tolist() == [*range(100, 400, 7), 135]
    slab.table([], [])
    assert len(copies) == 1


def test_a_device_too_full_for_one_copy_makes_several(monkeypatch):
    def cat(tensors):
        raise torch.OutOfMemoryError(f"no room for {len(tensors)} blocks")

    monkeypatch.setattr(torch, "cat", cat)
    monkeypatch.setattr(device, "FIRST_WORDS", 100)
    slab = StatisticsSlab()
    rows = [slab.take(torch.full((size,), float(size))) for size in range(2, 600, 9)]
    assert slab.moments[rows, 1].tolist() == list(range(2, 600, 9))


@pytest.mark.parametrize("size", [100, 1000])
def test_no_tensor_is_kept(size):
    slab = StatisticsSlab()
    tensor = normal(size)
    gone = weakref.ref(tensor), weakref.ref(tensor.untyped_storage())
    slab.take(tensor)
    slab.write_saturation(0, tensor, 0.0)
    expected = tensor.double().mean().item()
    del tensor
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert slab.moments[0, 1] == pytest.approx(expected, rel=1e-12)


def test_a_change_in_place_comes_too_late():
    slab = StatisticsSlab()
    for size in (10, 1000):
        tensor = torch.ones(size)
        row = slab.take(tensor)
        tensor.mul_(7)
        assert slab.moments[row, 1] == 1


def test_records_are_made_when_the_staging_memory_is_full(monkeypatch):
    monkeypatch.setattr(device, "MAX_STAGED", 2000)
    slab = StatisticsSlab()
    tensor = normal(100)
    slab.take(normal(5000))
    counts = [launches(lambda: slab.take(tensor)) for _ in range(8)]
    assert counts[:5] == [1] * 5
    assert all(count > 1 for count in counts[5:])
    moments = slab.moments[1:9]
    np.testing.assert_allclose(moments[:, :10], np.tile(moments[0, :10], (8, 1)), rtol=1e-13)
    assert len({tuple(row) for row in slab.counts[1:9].tolist()}) == 1
    assert launches(lambda: slab.take(tensor)) == 1  # the pass is over, and there is room again


@pytest.mark.parametrize("size", [50, 5000])
def test_rows_are_copied_overwritten_and_taken_again(size, small_chunks):  # noqa: ARG001
    slab = StatisticsSlab(capacity=1)
    first = slab.take(torch.full((size,), 2.0))
    slab.write_dead_fraction(first, torch.ones(3, 4))
    copied = slab.copy(first)
    slab.write(first, torch.full((size,), 3.0))
    third = slab.copy(copied)
    assert slab.moments[[first, copied, third], 1].tolist() == [3, 2, 2]
    assert np.isnan(slab.moments[[first, copied, third], -2:]).all()  # of another tensor, or of another order

    slab.write_dead_fraction(copied, -torch.ones(3, 4))
    slab.write(third, torch.full((size,), 4.0))
    again = slab.copy(copied)  # what is on the host already
    assert slab.moments[[first, copied, third, again], 1].tolist() == [3, 2, 4, 2]
    assert slab.moments[copied, -2] == 1
    assert np.isnan(slab.moments[[first, third, again], -2]).all()


@pytest.mark.parametrize("shape", [(1, 5), (7, 5000), (3, 4, 50, 30), (2, 3, 6000), (50, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dead_units_and_saturation(shape, dtype, small_chunks):  # noqa: ARG001
    activation = (normal(*shape) - 1).to(dtype)
    activation.view(-1)[0] = math.nan
    for arrange in (
        lambda tensor: tensor,
        lambda tensor: tensor[:, ::2],
        lambda tensor: tensor[:1].expand(6, *shape[1:]),
    ):
        tensor = arrange(activation)
        slab = StatisticsSlab()
        slab.take(tensor)
        slab.write_dead_fraction(0, tensor)
        slab.write_saturation(0, tensor.tanh(), 0.0)
        slab.copy(0)
        slab.write_saturation(1, tensor.sigmoid(), 0.5)
        assert slab.moments[0, -2] == dead_fraction(tensor)
        assert slab.moments[0, -1] == saturation(tensor.tanh(), 0.0)
        assert slab.moments[1, -1] == saturation(tensor.sigmoid(), 0.5)


def test_inference_mode_comes_and_goes():
    slab = StatisticsSlab()
    with torch.inference_mode():
        for size in (10, 1000):
            slab.take(torch.ones(size))
    for size in (10, 1000):
        slab.take(torch.ones(size))
        slab.write_saturation(0, torch.ones(size), 0.0)
    assert slab.moments[:4, 1].tolist() == [1.0] * 4


@pytest.mark.parametrize("staged", [0, 1 << 16])
def test_a_recording_has_the_statistics_of_the_host(monkeypatch, staged):
    monkeypatch.setattr(device, "STAGED", staged)
    spec = ModelSpec(style="module", activation="relu", dtype="float64")
    there = trace_spec(spec).statistics
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset())
    here = trace_spec(spec).statistics
    assert there.tensors == here.tensors
    np.testing.assert_array_equal(there.counts, here.counts)
    np.testing.assert_allclose(there.moments, here.moments, rtol=1e-9, atol=1e-15)
    for column in ("min", "max", "zero_fraction", "dead_fraction", "saturation", *COUNT_COLUMNS):
        np.testing.assert_array_equal(there.column(column), here.column(column))


def test_without_room_on_the_device_a_row_is_missing_and_the_program_goes_on(monkeypatch):
    empty = torch.empty

    def full(size, *args, **keys):
        if keys["dtype"] == torch.float64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32 MiB\nand so on")
        return empty(size, *args, **keys)

    def program():
        x = torch.ones(8, 10)
        large = (x.repeat(1, 50).relu() * 2).tanh()
        assert large.shape == (8, 500)
        results.append(large.sum().item())
        return x.sum()

    results = []
    slab = StatisticsSlab()
    with monkeypatch.context() as patch:
        patch.setattr(device.torch, "empty", full)
        with pytest.raises(RuntimeError, match="out of memory"):
            slab.take(torch.ones(4000))
        assert slab.rows == 0
        slab.take(torch.ones(40))
        with record() as recording:
            program()
    assert slab.moments[0, 0] == 40
    assert results == [pytest.approx(4000 * math.tanh(2))]
    trace = recording.trace
    large = [tensor for tensor in trace.tensors if math.prod(tensor.shape) == 4000]
    assert len(large) >= 3
    for tensor in large:
        assert tensor.note == "no statistics: CUDA out of memory. Tried to allocate 32 MiB"
        assert tensor.id not in trace.statistics
    assert any(tensor.id in trace.statistics for tensor in trace.tensors)


class There(torch.Tensor):
    """A CPU tensor that claims to be on the second of two CUDA devices."""

    device = torch.device("cuda", 1)


def on_cuda(tensor):
    return tensor.as_subclass(There)


class Cuda:
    """Two CUDA devices as the statistics see them: which is current, and on which of them a stream is captured."""

    def __init__(self):
        self.current = 0
        self.captured = set()

    @contextmanager
    def device(self, entered):
        before, self.current = self.current, entered.index
        try:
            yield
        finally:
            self.current = before

    def is_current_stream_capturing(self):
        return self.current in self.captured

    def current_stream(self, of):
        return SimpleNamespace(cuda_stream=of.index)


@pytest.fixture
def cuda(monkeypatch):
    stand_in = Cuda()
    for name in ("device", "is_current_stream_capturing", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    monkeypatch.setattr(device, "_Words", lambda _: WORDS(torch.device("cpu")))
    monkeypatch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu", "cuda"}))
    return stand_in


def test_stream_capture_is_checked_on_the_tensors_device(cuda):
    slab = StatisticsSlab()
    cuda.captured = {0}  # which is current, and is not the tensor's
    slab.take(on_cuda(torch.ones(4)))
    cuda.captured = {1}
    with pytest.raises(StreamCapturedError, match="being captured"):
        slab.take(on_cuda(torch.ones(5)))
    assert cuda.current == 0
    assert slab.rows == 1
    assert slab.moments[0, 0] == 4


def test_unit_statistics_are_left_out_while_a_stream_is_captured(cuda):
    slab = StatisticsSlab()
    activation = on_cuda(normal(10, 20).relu())
    slab.take(activation)
    cuda.captured = {1}
    for op_name in ("relu", "tanh"):
        summarize_units(op_name, activation, slab, 0)
    cuda.captured = set()
    assert slab.moments[0, 0] == 200
    assert np.isnan(slab.moments[0, -2:]).all()


@pytest.mark.usefixtures("cuda")
def test_a_failed_copy_from_one_device_can_be_repeated(monkeypatch):
    slab = StatisticsSlab(capacity=1)
    slab.take(torch.full((5000,), 1.0))
    slab.write_saturation(0, torch.ones(3, 3), 0.0)
    slab.take(on_cuda(torch.full((50,), 2.0)))
    to_host, asked = WORDS.to_host, []

    def fail_the_second_time(words):
        asked.append(words)
        if len(asked) == 2:
            raise RuntimeError("the device is lost")
        return to_host(words)

    monkeypatch.setattr(WORDS, "to_host", fail_the_second_time)
    with pytest.raises(RuntimeError, match="lost"):
        slab.table(["a", "b"], [0, 1])
    assert slab.moments[:2, 1].tolist() == [1, 2]
    assert slab.moments[0, -1] == 1
    asked.append(None)
    slab.take(torch.full((5000,), 3.0))
    assert slab.moments[:3, 1].tolist() == [1, 2, 3]
