"""Statistics taken on a CUDA device agree with float64 numpy, and the host does not wait for them."""

import gc
import math
import weakref

import numpy as np
import pytest
import torch
from agreement import (
    DTYPES,
    any_tensors,
    assert_agrees,
    layouts,
    long_tensors,
    narrow_tensors,
    special_tensors,
    summary,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.stats import (
    SMALL,
    StatisticsSlab,
    StreamCapturedError,
    cuda,
    dead_fraction,
    device,
    saturation,
    unsupported,
)
from chainrule.trace.recorder import record
from chainrule.trace.units import summarize_units

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["kernels", "copied", "records", "records in chunks"], autouse=True)
def _way(request):
    """By the kernels; by PyTorch: copied for the host, or taken on the device, of one chunk or of several."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            assert cuda.prepare(0)
        else:
            patch.setattr(cuda, "prepare", lambda _: False)
        if request.param.startswith("records"):
            patch.setattr(device, "STAGED", 0)
        if request.param == "records in chunks":
            patch.setattr(device, "CHUNK", 8192)
        yield


@pytest.fixture
def no_waiting():
    """An error where the host waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


TENSORS = {str(dtype): any_tensors(dtype) for dtype in DTYPES}
TENSORS |= {"special": special_tensors(), "narrow": narrow_tensors(), "long": long_tensors()}


@pytest.mark.parametrize("tensors", TENSORS.values(), ids=TENSORS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_values(tensors, data):
    assert_agrees(data.draw(tensors).cuda())


@pytest.mark.parametrize("name", [name for name, _ in layouts()])
def test_any_memory_layout(name):
    assert_agrees(dict(layouts("cuda"))[name])


@pytest.mark.parametrize("size", [1, 31, 32, 33, 1 << 17, (1 << 17) + 1])
@pytest.mark.parametrize("value", [0.0, -7.0, 1e300, 5e-324, math.nan, math.inf, -math.inf])
def test_all_equal(size, value):
    assert_agrees(torch.full((size,), value, dtype=torch.float64, device="cuda"))


@pytest.mark.parametrize("times", [2**29, 2**30 - 1])
def test_an_expanded_tensor_is_its_elements_many_times(times):
    few = torch.tensor([[0.5], [math.nan], [-2.0], [0.0]], device="cuda")
    once, once_counts = summary(few)
    got, counts = summary(few.expand(4, times))
    assert got["n"] == 4 * times
    assert (got["mean"], got["std"]) == pytest.approx((once["mean"], once["std"]), rel=1e-14)
    assert counts.tolist() == (once_counts.astype(int) * times).tolist()
    assert "elements" in unsupported(few.expand(4, 2**30))


@pytest.mark.parametrize("arrange", [lambda t: t, lambda t: t[:, ::2], lambda t: t[:1].expand(6, -1, -1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dead_units_and_saturation(arrange, dtype):
    activation = (torch.randn(7, 40, 50, generator=torch.Generator().manual_seed(0)) - 1).to("cuda", dtype)
    activation[0, 0, 0] = math.nan
    activation = arrange(activation)
    slab = StatisticsSlab()
    slab.take(activation)
    slab.write_dead_fraction(0, activation)
    slab.write_saturation(0, activation.clamp(-1, 1), 0.0)
    assert slab.moments[0, -2] == dead_fraction(activation.cpu())
    assert slab.moments[0, -1] == saturation(activation.clamp(-1, 1).cpu(), 0.0)


def test_more_than_31_bits_of_elements():
    tensor = torch.zeros(2**31 + 5, dtype=torch.bool, device="cuda")
    tensor[-1] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "CHUNK", 1 << 22)
        got, counts = summary(tensor)
    assert (got["n"], got["max"]) == (2**31 + 5, 1)
    assert (counts[0], counts[-1], counts.sum()) == (2**31 + 4, 1, 2**31 + 5)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_the_host_waits_for_nothing_until_the_end(no_waiting):  # noqa: ARG001
    slab = StatisticsSlab()
    tensors = [torch.ones(size, device="cuda", dtype=dtype) for size in (5, 50_000) for dtype in DTYPES]
    for tensor in tensors:
        slab.take(tensor)
        slab.copy(0)
        if tensor.dtype == torch.float32:
            slab.write_dead_fraction(0, tensor[None])
            slab.write_saturation(0, tensor, 0.5)
    torch.cuda.set_sync_debug_mode("default")
    assert (slab.moments[: slab.rows, 1] == 1).all()


def test_another_stream_and_no_tensor_kept():
    slab = StatisticsSlab(capacity=1)
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for value in range(30):
        with torch.cuda.stream(streams[value % 3]):
            tensor = torch.full((20_000,), float(value), device="cuda")
            tensor[0] += 1
            slab.take(tensor)
            kept.append(weakref.ref(tensor))
            del tensor
    gc.collect()
    assert not any(each() is not None for each in kept)
    assert slab.moments[:30, 3].tolist() == list(range(30))
    assert slab.moments[:30, 4].tolist() == list(range(1, 31))


def test_memory_while_a_tensor_is_read():
    if device.CHUNK < 1 << 22:
        return
    tensor = torch.randn(20_000_000, device="cuda")
    slab = StatisticsSlab()
    slab.take(torch.ones(3, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for part in (tensor, tensor.view(1000, -1)[:, ::2], tensor.view(2, -1).t()[:, :1]):
        slab.take(part)
    assert torch.cuda.max_memory_allocated() - before <= 72 << 20


def test_deterministic_algorithms_may_be_asked_for():
    torch.use_deterministic_algorithms(True)
    try:
        assert_agrees(torch.randn(50_000, generator=torch.Generator().manual_seed(1)).cuda())
    finally:
        torch.use_deterministic_algorithms(False)


def test_statistics_are_refused_while_a_graph_is_captured():
    slab = StatisticsSlab()
    tensor = torch.ones(100, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.add(1)
        with pytest.raises(StreamCapturedError, match="being captured"):
            slab.take(tensor)
    assert slab.rows == 0


def test_an_activation_in_a_captured_graph_gets_no_unit_statistics():
    slab = StatisticsSlab()
    activation = torch.ones(10, 10, device="cuda")
    slab.take(activation)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after = activation.relu()
        summarize_units("relu", activation, slab, 0)
        summarize_units("tanh", activation, slab, 0)
    graph.replay()
    assert after.sum().item() == 100
    assert slab.moments[0, :2].tolist() == [100, 1]
    assert np.isnan(slab.moments[0, -2:]).all()


def test_a_full_device_leaves_a_note(monkeypatch):
    def widen(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(device, "_widen", widen)
    monkeypatch.setattr(device.DeviceRows, "_add_block", widen)
    monkeypatch.setattr(device, "STAGED", 0)
    with record() as recording:
        out = torch.ones(100, device="cuda").relu().sum()
    assert out.item() == 100
    # Few values are copied and take no other memory.
    notes = [tensor.note for tensor in recording.trace.tensors if math.prod(tensor.shape) > SMALL]
    assert notes
    assert set(notes) == {"no statistics: CUDA out of memory."}
