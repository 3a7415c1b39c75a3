import numpy as np
import pytest
import torch

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

pytestmark = pytest.mark.gpu

STYLES = ["functions", "classes", "layer_function", "autograd_function", "module"]


def both(**keys):
    return trace_spec(ModelSpec(**keys)), trace_spec(ModelSpec(device="cuda", **keys))


def assert_same_graph(cpu, cuda):
    assert [op.name for op in cuda.ops] == [op.name for op in cpu.ops]
    assert [(each.name, each.shape, each.role) for each in cuda.tensors] == [
        (each.name, each.shape, each.role) for each in cpu.tensors
    ]
    assert cuda.statistics.tensors == cpu.statistics.tensors


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-10)])
def test_the_chapters_model_agrees(style, dtype, tolerance):
    cpu, cuda = both(style=style, dtype=dtype)
    assert_same_graph(cpu, cuda)
    assert cuda.loss == pytest.approx(cpu.loss, rel=tolerance)
    # A mean is small beside the values it is of: it is off by a share of their spread, not of itself.
    size = np.abs(np.stack([cpu.statistics.column("min"), cpu.statistics.column("max")])).max(0)
    for column in ("mean", "std", "min", "max"):
        difference = np.abs(cuda.statistics.column(column) - cpu.statistics.column(column))
        assert np.nanmax(difference / np.maximum(size, 1e-30)) <= tolerance, column
    np.testing.assert_array_equal(cuda.statistics.column("n"), cpu.statistics.column("n"))


def test_the_draw_does_not_depend_on_the_device():
    cpu, cuda = both(init="orthogonal", bias_std=0.1)
    for name in ("x", "y", "w1", "b1", "w2", "b2"):
        ours, theirs = (trace.statistics[trace.tensor_by_name[name].id] for trace in (cpu, cuda))
        assert theirs.counts == ours.counts, name
        assert (theirs.min, theirs.max) == (ours.min, ours.max), name


def test_the_environment_names_the_device():
    _, cuda = both()
    assert cuda.environment["device"] == "cuda"
    assert cuda.environment["device_name"] == torch.cuda.get_device_name()
