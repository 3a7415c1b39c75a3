"""On a CUDA device a pass that stops or runs out of memory leaves nothing behind, and the next one is right."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from chainrule.errors import MemoryLimitError, StoppedError
from chainrule.memory import memory_errors, release_memory
from chainrule.run import Retracer, trace_spec
from chainrule.spec import ModelSpec
from chainrule.stopping import Stop, stoppable
from chainrule.trace import record

pytestmark = pytest.mark.gpu

STYLES = ["functions", "classes", "layer_function", "autograd_function", "module"]
SPARE = 256 << 20
"""Bytes of the device that a pass may take."""


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Torch may take SPARE bytes more of the device than it holds now."""
    release_memory()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + SPARE) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def net(style, **keys):
    return ModelSpec.parse({"widths": "32x25", "batch": 16, "device": "cuda", "style": style, **keys})


def assert_same_figures(one, other):
    assert one.loss == other.loss
    assert one.statistics.tensors == other.statistics.tensors
    assert np.array_equal(one.statistics.counts, other.statistics.counts)
    np.testing.assert_allclose(one.statistics.moments, other.statistics.moments, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "query", [{"widths": "1024x129", "batch": 16}, {"widths": "64x65", "batch": 65536}], ids=["weights", "activations"]
)
@pytest.mark.usefixtures("little_memory")
def test_a_small_pass_is_right_after_one_that_is_too_large(style, query):
    expected = trace_spec(net(style, scale=0.5))
    before = torch.cuda.memory_allocated()
    retracer = Retracer()
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match="the device ran out of memory"), memory_errors():
            retracer.trace(net(style, **query))
        retracer.forget()
        release_memory()
        assert torch.cuda.memory_allocated() <= before
        assert_same_figures(retracer.trace(net(style, scale=0.5)), expected)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_recording_stops_within_one_layer(phase):
    """The engine calls the hooks in a thread of the device, which has no current stop of its own."""
    stop, seen = Stop(), []
    weights = [torch.randn(16, 16, device="cuda", requires_grad=True) for _ in range(24)]
    # Each layer has its weight, its product and its tanh, and a gradient of each.
    last = {"forward": 3 * 12, "backward": 3 * 24 + 3 * 8}[phase]

    def on_tensor(_name, tensor):
        seen.append(tuple(tensor.shape))
        if len(seen) == last:
            stop.ask(StoppedError("disconnected"))

    def run():
        x = torch.ones(4, 16, device="cuda")
        for weight in weights:
            x = torch.tanh(x @ weight)
        x.sum().backward()

    with pytest.raises(StoppedError) as caught, stoppable(stop), record(on_tensor=on_tensor):
        run()
    assert caught.value is stop.error
    assert len(seen) <= last + 4
    if phase == "forward":
        assert all(weight.grad is None for weight in weights)
    assert any(weight.grad is None for weight in weights)
