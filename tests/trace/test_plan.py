"""A repeated recording takes, to the last bit, the statistics that a recording would take, or says that it cannot."""

import numpy as np
import pytest
import torch

from chainrule.errors import TraceError
from chainrule.trace import Plan, record, repeat

pytestmark = pytest.mark.smoke


def program(scale, seed=0):
    """Two layers and their backward pass by hand, with a view, an activation with units and a tensor of two readers."""
    generator = np.random.default_rng(seed)
    x, w = (torch.from_numpy(draw) for draw in (generator.normal(size=(8, 6)), scale * generator.normal(size=(6, 6))))
    middle = torch.tanh(x @ w)
    out = torch.relu(middle @ w.t()) + middle
    loss = (out**2).mean()
    grad = 2 * out / out.numel()
    x.g = (grad * (out > 0)) @ w
    return loss


def recorded(run):
    plan = Plan()
    with record(plan=plan) as recording:
        run()
    return plan, recording.trace


def test_a_repetition_takes_the_recordings_statistics():
    plan, trace = recorded(lambda: program(0.5))
    assert plan.complete
    for scale, seed in ((0.5, 0), (1.7, 3), (1e30, 1), (0.0, 2)):
        _, fresh = recorded(lambda scale=scale, seed=seed: program(scale, seed))
        table = repeat(plan, lambda scale=scale, seed=seed: program(scale, seed))
        assert fresh.ops == trace.ops
        assert table.tensors == fresh.statistics.tensors
        assert np.array_equal(table.moments, fresh.statistics.moments, equal_nan=True)
        assert np.array_equal(table.counts, fresh.statistics.counts)
    units = dict(zip(table.tensors, table.column("saturation"), strict=True))
    assert np.isfinite(list(units.values())).sum() == 1
    assert np.isfinite(table.column("dead_fraction")).sum() == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.randn(8, 6) @ torch.randn(6, 6),
        lambda: (program(0.5), torch.ones(2) + 1),
        lambda: torch.sin(torch.ones(3)),
    ],
    ids=["shorter", "longer", "another"],
)
def test_another_program_is_refused(other):
    plan, _ = recorded(lambda: program(0.5))
    with pytest.raises(TraceError):
        repeat(plan, other)
    # The mode is off again: what follows is not counted.
    assert torch.ones(2).add(1).tolist() == [2, 2]


def autograd():
    w = torch.randn(3, 3, requires_grad=True)
    (w @ w).sum().backward()


def in_place():
    torch.ones(3).mul_(2)


def fails():
    with pytest.raises(RuntimeError):
        torch.ones(2, 3) @ torch.ones(2, 3)
    raise ValueError("on purpose")


def test_what_no_call_shows_again_is_not_repeated():
    for run in (autograd, in_place):
        plan, _ = recorded(run)
        assert not plan.complete, run
        with pytest.raises(TraceError):
            repeat(plan, run)


def test_a_broken_recording_is_not_repeated():
    plan = Plan()
    with pytest.raises(ValueError, match="on purpose"), record(plan=plan):
        fails()
    assert not plan.complete
