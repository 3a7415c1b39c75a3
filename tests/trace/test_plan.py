"""A repeated recording takes the statistics of a fresh recording, to the last bit, or is refused."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from trace_rules import assert_same_table

from chainrule.errors import TraceError
from chainrule.stats import StatisticsTable
from chainrule.trace import Known, Plan, record, repeat

pytestmark = pytest.mark.smoke


def by_products(scale, seed=0):
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


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_repetition_takes_the_recordings_statistics(by_hand, functions):
    def by_autograd(scale, seed=0):
        generator = np.random.default_rng(seed)
        x, w = (torch.from_numpy(draw) for draw in (generator.normal(size=(8, 6)), scale * np.eye(6)))
        w.requires_grad_()
        total, difference = functions.sum_and_difference.apply(functions.cube.apply(x @ w.t()), x, 0.5)
        (torch.relu(total) * difference + total).pow(2).mean().backward()

    program = by_products if by_hand else by_autograd
    plan, trace = recorded(lambda: program(0.5))
    assert plan.complete
    for scale, seed in ((0.5, 0), (1.7, 3), (1e30, 1), (0.0, 2)):
        _, fresh = recorded(lambda scale=scale, seed=seed: program(scale, seed))
        assert fresh.ops == trace.ops
        assert_same_table(repeat(plan, lambda scale=scale, seed=seed: program(scale, seed)), fresh.statistics)


REPEATED = "mlp shared_layer in_place transformer conv_batchnorm_dropout checkpoint_without_reentry"


@pytest.mark.parametrize("model", REPEATED.split())
def test_models_are_repeated_to_the_last_bit(model, make_program):
    def made(scale):
        program = make_program(model)
        with torch.no_grad():
            for parameter in program.model.parameters():
                parameter.mul_(scale)
        torch.manual_seed(3)
        return program

    # Once before: torch looks at its default device when a checkpoint is first come to, and then never again.
    made(1.0).run()
    plan = Plan()
    first = made(1.0)
    with record(first.model, plan=plan) as recording:
        first.run()
    assert plan.complete
    assert len(recording.trace.statistics) > 10
    for scale in (1.0, 1.6, 0.0, 1e25):
        fresh = made(scale)
        with record(fresh.model) as expected:
            fresh.run()
        again = made(scale)
        assert_same_table(repeat(plan, again.run), expected.trace.statistics)
        assert not any(parameter.grad is None for parameter in again.model.parameters())


def test_tensors_that_are_read_beside_the_program_may_change_by_calls(functions):
    def program(scale):
        x = torch.linspace(-1, 1, 20_000, dtype=torch.float64).reshape(200, 100) * scale
        w = torch.ones(100, 100, dtype=torch.float64, requires_grad=True)
        middle = x.clone() @ w
        x.mul_(2)
        x += 1
        x[0] = 7
        torch.add(x, 1, out=x)
        torch.ones(200, 100).mul_(scale)  # first seen by the call that changes it
        F.relu(x * 3, inplace=True)
        with torch._C.DisableTorchFunction():
            unseen = [torch.full((5000,), scale, dtype=torch.float64) for _ in range(2)]
        F.batch_norm(x.reshape(4, 5000), *unseen, training=True)  # it changes two buffers, which no name tells
        (functions.cube.apply(middle) + x).relu_().mean().backward()

    plan, _ = recorded(lambda: program(0.5))
    assert plan.complete
    for scale in (0.5, 1.7, 1e30):
        _, fresh = recorded(lambda scale=scale: program(scale))
        for _ in range(5):
            assert_same_table(repeat(plan, lambda scale=scale: program(scale), beside=True), fresh.statistics)


def test_a_change_that_no_call_shows_is_refused():
    def program(hidden):
        x = torch.ones(200, 100) * 2
        if hidden:
            with torch._C.DisableTorchFunction():
                x.add_(1)

    plan, _ = recorded(lambda: program(hidden=False))
    assert plan.complete
    repeat(plan, lambda: program(hidden=False), beside=True)
    with pytest.raises(TraceError, match="changed in place"):
        repeat(plan, lambda: program(hidden=True), beside=True)


def test_a_repetition_leaves_no_hook_behind():
    w = torch.ones(3, 3, requires_grad=True)
    accumulates = (w * 2).grad_fn.next_functions[0][0]
    plan, _ = recorded(lambda: (w * w.exp()).sum().backward())
    assert plan.complete
    repeat(plan, lambda: (w * w.exp()).sum().backward())
    assert type(accumulates).__name__ == "AccumulateGrad"
    w.grad = None
    (w * w.exp()).sum().backward()
    assert torch.equal(w.grad, (1 + w.detach()) * w.detach().exp())


def test_known_statistics_are_not_taken_again():
    plan, trace = recorded(lambda: by_products(0.5))
    last = trace.statistics
    # Figures that no tensor has, to be found again.
    told = StatisticsTable(last.tensors, np.full_like(last.moments, -7.0), np.full_like(last.counts, 7))
    w = next(tensor.id for tensor in trace.tensors if tensor.producer is None and tensor.shape == (6, 6))
    fresh = repeat(plan, lambda: by_products(1.7))
    table = repeat(plan, lambda: by_products(1.7), Known(told, {w}))
    # A view has the statistics of what it views.
    views = {op.outputs[0] for op in trace.ops if op.name == "t" and op.inputs == (w,)}
    assert views
    for tensor in table.tensors:
        row = table.tensors.index(tensor)
        if tensor in {w, *views}:
            assert set(table.counts[row]) == {7}
        else:
            assert np.array_equal(table.moments[row], fresh.moments[row], equal_nan=True)


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.randn(8, 6) @ torch.randn(6, 6),
        lambda: (by_products(0.5), torch.ones(2) + 1),
        lambda: torch.sin(torch.ones(3)),
    ],
    ids=["shorter", "longer", "another"],
)
def test_another_program_is_refused(other):
    plan, _ = recorded(lambda: by_products(0.5))
    refuses(plan, other)


def backward_of(loss):
    def run():
        w = torch.ones(3, requires_grad=True)
        loss(w).backward()

    return run


def test_another_backward_pass_is_refused():
    plan, _ = recorded(backward_of(lambda w: w.mul(w.detach()).sum()))
    assert plan.complete
    refuses(plan, backward_of(lambda w: w.detach().mul(w).sum()))
    refuses(plan, backward_of(lambda w: w.mul(w.detach()).mean()))


def refuses(plan, other):
    with pytest.raises(TraceError):
        repeat(plan, other)
    # The mode is off again: what follows is not counted.
    assert torch.ones(2).add(1).tolist() == [2, 2]


def autograd_twice():
    """The gradients of two passes meet in `.grad`: no call makes their sum."""
    w = torch.ones(3, 3, requires_grad=True)
    for _ in range(2):
        (w * 2).sum().backward()


def second_order():
    w = torch.ones(3, 3, requires_grad=True)
    torch.autograd.grad((w**3).sum(), w, create_graph=True)


def test_statistics_taken_outside_of_calls_cannot_be_repeated(functions):
    def by_numpy():
        functions.numpy_sine.apply(torch.ones(3, requires_grad=True)).sum().backward()

    for run in (autograd_twice, second_order, by_numpy):
        plan, _ = recorded(run)
        assert not plan.complete, run
        with pytest.raises(TraceError):
            repeat(plan, run)


def test_a_broken_recording_is_not_repeated():
    plan = Plan()
    with pytest.raises(RuntimeError), record(plan=plan):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not plan.complete


def test_a_repetition_reads_tensors_of_subclasses():
    class Other(torch.Tensor):
        pass

    def run():
        torch.manual_seed(0)
        return (torch.randn(40, 30).as_subclass(Other) * 3 + 1).sum()

    plan, trace = recorded(run)
    assert plan.complete
    assert_same_table(repeat(plan, run), trace.statistics)
