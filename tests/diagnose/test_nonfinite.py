"""Numbers that are not finite on purpose, or are never used, are no fault; those that do harm are."""

import math

import pytest
import torch
from functions import made
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

import chainrule

NAN = math.nan


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def first(step, model=None):
    """The name of the first tensor that is not finite, as the fault of a pass gives it; None without one."""
    model = nn.Linear(4, 3) if model is None else model
    with chainrule.record(model) as recording:
        step(model).backward()
    trace = recording.trace
    found = [fault for fault in trace.faults if fault.kind == "first_nonfinite"]
    assert len(found) <= 1
    return trace.tensor_by_id[found[0].tensor].name if found else None


def holed(*shape):
    """Random numbers with NaN in the first row."""
    x = torch.randn(*shape)
    x[0] = NAN
    return x


X, HOLED, TARGETS = torch.ones(8, 4), holed(8, 4), holed(8, 3)
COUNTS = torch.arange(8.0)[:, None]  # the first is 0


def masked_targets(model):
    known = ~TARGETS.isnan()
    return F.mse_loss(model(X)[known], TARGETS[known])


def equal_to_itself(model):
    return model(torch.where(HOLED == HOLED, HOLED, 0.0)).sum()


def compared(model):
    known = TARGETS >= -100
    return (model(X)[known] - TARGETS[known]).pow(2).sum()


def set_in_place(model):
    x = HOLED.clone()
    x[x.isnan()] = 0
    return model(x).sum()


def logged(model):
    loss = model(X).sum()
    (loss.detach() * TARGETS).mean()
    return loss


def teacher_of_holes(model):
    with torch.no_grad():
        target = model(HOLED).nan_to_num()
    return F.mse_loss(model(X), target)


def opaque(model):
    masked = made(lambda _, p, y: (p * y.nan_to_num()).sum(), lambda _, g: (g, None))
    return masked.apply(model(X), TARGETS)


HARMLESS = [
    masked_targets,
    equal_to_itself,
    compared,
    set_in_place,
    logged,
    teacher_of_holes,
    lambda model: model(HOLED.nan_to_num()).sum(),
    lambda model: model(HOLED.masked_fill(HOLED.isnan(), 0)).sum(),
    lambda model: model(HOLED[1:]).sum(),
    lambda model: model(X).sum() * HOLED.nanmedian(0).values.sum(),  # and the places of the medians
    lambda model: (model(X).sum(1) * TARGETS.nansum(1)).sum(),
    lambda model: model((X * COUNTS.bool() / COUNTS).nan_to_num()).sum(),  # 0 / 0
    lambda model: model((X / COUNTS).nan_to_num(posinf=0)).sum(),  # 1 / 0
]


@pytest.mark.parametrize("step", HARMLESS)
def test_what_is_removed_is_no_fault(step):
    assert first(step) is None


HARMFUL = {
    "NaN in the loss": (lambda model: F.mse_loss(model(X), TARGETS), "target"),
    "integers of NaN": (lambda model: F.cross_entropy(model(X), HOLED.argmax(1) % 3), "target"),
    "a gradient of NaN": (lambda model: model(HOLED)[1:].sum(), "input"),
    "where after 0 / 0": (lambda model: _where_after(model(X) * 0), "div"),
    "where after 1 / 0": (lambda model: _where_after(model(X) * 0, 1), "rdiv"),
    "tanh of an overflow": (lambda model: (model(X) * 1e38 * 1e38).tanh().sum(), "mul_1"),
}


def _where_after(x, of=None):
    quotient = (x if of is None else of) / x
    return torch.where(x == 0, 0.0, quotient).sum()


@pytest.mark.parametrize("name", HARMFUL)
def test_what_does_harm_is_named(name):
    step, expected = HARMFUL[name]
    assert first(step) == expected


def test_nan_that_is_removed_is_not_blamed_for_another():
    def step(model):
        return (masked_targets(model) * 0).sqrt()

    assert first(step) == "mul.g"


def test_nan_of_a_parameter_is_a_fault_although_it_is_removed():
    model = nn.Linear(4, 3)
    model.weight.data[0, 0] = NAN
    assert first(lambda model: F.linear(X, model.weight.nan_to_num()).sum(), model) == "weight"


def test_nan_without_a_backward_is_a_fault():
    with chainrule.record(nn.Linear(4, 3)) as recording:
        F.linear(X, torch.zeros(2, 4)) / 0
    assert [fault.kind for fault in recording.trace.faults if fault.level == "fault"] == ["first_nonfinite"]


@pytest.mark.parametrize("length", [4, 11])
def test_what_ctc_loss_keeps_is_no_fault_and_an_impossible_target_is(length):
    x, targets = torch.randn(10, 2, 4), torch.randint(1, 3, (2, length))
    sizes = torch.full((2,), 10), torch.full((2,), length)
    found = first(lambda model: F.ctc_loss(model(x).log_softmax(-1), targets, *sizes))
    assert found == (None if length == 4 else "ctc_loss")


class Own(nn.Module):
    """Layers with a weight that is made, of memory full of NaN, and written in the first pass."""

    def __init__(self, write):
        super().__init__()
        self.weight, self.write = nn.Parameter(torch.full((3, 4), NAN)), write

    def forward(self, x):
        with torch.no_grad():
            self.write(self.weight)
        return F.linear(x, self.weight)


@pytest.mark.parametrize(
    "write", [nn.init.kaiming_uniform_, nn.init.xavier_normal_, lambda w: w.data.uniform_(), nn.init.zeros_]
)
def test_a_parameter_that_is_overwritten_may_hold_anything_before(write):
    assert first(lambda model: model(X).sum(), Own(write)) is None


@pytest.mark.parametrize("write", [lambda w: w.mul_(2), lambda w: w.data[:1].zero_()])
def test_a_parameter_that_is_changed_or_written_in_part_may_not(write):
    assert first(lambda model: model(X).sum(), Own(write)) == "weight"


def test_the_memory_of_lazy_modules_may_hold_anything():
    model = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(1))
    torch.use_deterministic_algorithms(True)  # torch then fills new memory with NaN
    try:
        assert first(lambda model: model(torch.randn(8, 4)).pow(2).mean(), model) is None
    finally:
        torch.use_deterministic_algorithms(False)
