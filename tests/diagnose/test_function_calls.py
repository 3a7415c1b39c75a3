"""Custom Functions are checked when a recording is over, whichever way it was made."""

import gc
import math
import sys
import warnings
import weakref
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from functions import made
from process_state import left_behind, random_state
from source_lines import line_of
from torch import nn
from torch.autograd import Function

import chainrule
from chainrule.diagnose import backward_check, function_calls
from chainrule.diagnose.function_calls import FunctionCalls
from chainrule.errors import StoppedError
from chainrule.stopping import Stop, stoppable
from chainrule.trace.custom_functions import Applied
from chainrule.user_model.model import open_reference
from chainrule.user_model.subject import make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf


class WrongSine(Function):
    """Its backward has the wrong sign."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return -gradient * torch.cos(x)


class Net(nn.Module):
    """A Function between two layers."""

    def __init__(self, apply):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 4)
        self.apply_it = apply

    def forward(self, x):
        return self.second(self.apply_it(self.first(x)))


def wrong_net():
    return Net(lambda x: WrongSine.apply(x))  # the call


def x():
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(1))


def mean_square(out):
    return out.square().mean()


def by_record(model):
    with chainrule.record(model) as recording:
        mean_square(model(x())).backward()
    return recording.trace


def by_trace_model(model):
    return chainrule.trace_model(model, x(), loss=mean_square)


def by_tracer(model):
    return Tracer(make_subject((model, x(), mean_square), "net")).trace()


def told(trace):
    return [fault for fault in trace.faults if fault.kind == "wrong_backward"]


def levels(model, record=by_record):
    return [fault.level for fault in told(record(model))]


HOW = pytest.mark.parametrize("record", [by_record, by_trace_model, by_tracer])


@HOW
def test_a_sign_error_is_a_fault_with_op_and_line(record):
    trace = record(wrong_net())
    (fault,) = trace.faults
    assert (fault.kind, fault.level, fault.module) == ("wrong_backward", "fault", "WrongSine")
    (sine,) = (op for op in trace.ops if op.phase == "forward" and op.name == "sin")
    assert fault.op == sine.id
    assert fault.source.line == line_of(Path(__file__), "# the call")
    assert fault.source.text.endswith("# the call")
    assert "the backward of WrongSine gives -" in fault.message
    assert "for input x[" in fault.message


MODEL = """
import torch
from torch import nn

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return -3 * ctx.saved_tensors[0] ** 2 * gradient

class Net(nn.Linear):
    def forward(self, x):
        return Cube.apply(super().forward(x))

def make():
    return Net(3, 3), torch.randn(5, 3), lambda out: out.sum()
"""


def test_the_command_lines_model_tells_it_too(tmp_path, monkeypatch):
    file = tmp_path / "cubes.py"
    file.write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    (fault,) = open_reference(f"{file}:make").tracer().trace(WhatIf()).faults
    assert (fault.kind, fault.level, fault.source.file) == ("wrong_backward", "fault", "cubes.py")
    assert fault.source.line == line_of(file, "Cube.apply")


@HOW
def test_right_functions_and_torchs_own_are_not_mentioned(record):
    right = made(lambda _, x: 2 * x, lambda _, gradient: 2 * gradient)
    assert record(Net(right.apply)).faults == ()
    layer = nn.Linear(32, 32)
    checkpointed = Net(lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True))
    assert told(record(checkpointed)) == []


@HOW
def test_what_is_meant_is_a_note(record):
    net = Net(made(lambda _, x: x.round(), lambda _, gradient: gradient, "Round").apply)
    (note,) = record(net).faults
    assert (note.kind, note.level) == ("wrong_backward", "note")
    assert "a straight-through estimator" in note.message


@HOW
def test_without_time_left_it_is_unchecked_and_says_how_to_check(record, monkeypatch):
    monkeypatch.setattr(function_calls, "BUDGET", 0.0)
    (fault,) = record(wrong_net()).faults
    assert fault.level == "unchecked"
    assert fault.message == "the gradients of WrongSine were not checked: the check took longer than 0 s (stopped)"
    assert fault.remedy.startswith("`chainrule gradcheck test_function_calls.py:WrongSine --inputs ")
    assert fault.op is not None
    monkeypatch.setattr(function_calls, "BUDGET", math.inf)
    assert levels(wrong_net(), record) == ["fault"]


def test_a_check_that_is_stopped_midway_is_unchecked(monkeypatch):
    class Impatient(backward_check._Call):
        def __call__(self, *arguments):
            output = super().__call__(*arguments)
            self.deadline = -math.inf
            return output

    monkeypatch.setattr(backward_check, "_Call", Impatient)
    assert levels(wrong_net()) == ["unchecked"]


def test_only_one_of_two_is_wrong_and_large_arguments_are_unchecked(monkeypatch):
    right = made(lambda _, x: 2 * x, lambda _, gradient: 2 * gradient, "Right")
    net = Net(lambda x: WrongSine.apply(right.apply(x)) + WrongSine.apply(x.sum()))
    (fault,) = told(by_record(net))
    assert "WrongSine" in fault.message
    monkeypatch.setattr(function_calls, "MAX_BYTES", 100)
    # The scalar is kept.
    faults = told(by_record(net))
    assert [(fault.level, fault.message.split()[3]) for fault in faults] == [
        ("fault", "WrongSine"),
        ("unchecked", "Right"),
        ("unchecked", "WrongSine"),
    ]


def draws(_, x):
    return x * torch.rand(())


@HOW
def test_results_gradients_and_random_numbers_are_those_without_a_recording(record):
    noise = made(draws, lambda _, gradient: gradient, "Noise")
    plain, net = (Net(lambda x: noise.apply(WrongSine.apply(x))) for _ in range(2))
    torch.manual_seed(3)
    at_first, hooks = random_state(), left_behind()
    mean_square(plain(x())).backward()
    drawn = random_state()
    torch.manual_seed(3)
    trace = record(net)
    assert [fault.level for fault in told(trace)] == ["fault", "fault"]
    assert left_behind() == hooks
    if record is by_tracer:  # it puts everything back
        assert random_state() == at_first
        assert all(parameter.grad is None for parameter in net.parameters())
    else:
        assert random_state() == drawn
        gradients = [[parameter.grad for parameter in each.parameters()] for each in (plain, net)]
        assert all(map(torch.equal, *gradients))
    assert all(map(torch.equal, plain.parameters(), net.parameters()))


def test_arguments_are_those_of_the_call_whatever_becomes_of_them():
    class Halved(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor.clone())
            return x * factor

        @staticmethod
        def backward(ctx, gradient):
            (factor,) = ctx.saved_tensors
            return torch.where(factor == 1, -1, 1) * gradient * factor, None

    factor = torch.ones(())

    def forward(x):
        out = Halved.apply(x, factor)
        factor.fill_(2)
        return out

    assert levels(Net(forward)) == ["fault"]  # wrong where factor is 1
    assert levels(Net(forward)) == []


def test_copies_are_dropped_after_the_check_and_made_only_once():
    calls = FunctionCalls()
    argument = torch.ones(3, 1, 7, 2, requires_grad=True)  # of a shape that no other tensor has
    begun = calls.begin(WrongSine, (argument,))
    alive = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.shape == argument.shape]
    kept = [weakref.ref(each) for each in alive]
    del alive
    begun(Applied("n0", "", None, 0.0))
    assert calls.begin(WrongSine, (argument + 1,)) is None
    assert len(kept) >= 2  # the argument, and its copy
    (fault,) = calls.faults(None)
    assert (fault.level, fault.op, fault.source) == ("fault", "n0", None)
    del begun, fault
    gc.collect()
    assert [each for each in kept if each() is not None and each() is not argument] == []


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_nothing_to_check(guard):
    with chainrule.record() as recording, guard():
        WrongSine.apply(torch.ones(3, requires_grad=True))
    assert recording.trace.faults == ()


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode, chainrule.record, nullcontext])
def test_a_trace_may_be_read_in_any_mode(guard):
    with chainrule.record() as recording:
        WrongSine.apply(torch.ones(3, requires_grad=True)).sum().backward()
    with guard() as other:
        trace = recording.trace
    assert [fault.level for fault in told(trace)] == ["fault"]
    if isinstance(other, chainrule.record):
        assert list(other.trace.ops) == []


def test_what_a_second_call_could_change_is_unchecked(monkeypatch):
    layer = nn.Linear(32, 32)
    given = made(lambda _, x, layer: layer(x), lambda _, gradient: (gradient, None), "Given")
    (fault,) = told(by_record(Net(lambda x: given.apply(x, layer))))
    assert (fault.level, "of type Linear" in fault.message) == ("unchecked", True)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    (fault,) = told(by_record(wrong_net()))
    assert (fault.level, "wait forever for the others" in fault.message) == ("unchecked", True)


def test_a_live_view_checks_once(monkeypatch):
    calls = []
    check = function_calls.check_backward
    monkeypatch.setattr(function_calls, "check_backward", lambda *given: calls.append(1) or check(*given))
    tracer = Tracer(make_subject((wrong_net(), x(), mean_square), "net"))
    for scale in (1.0, 0.5, 2.0):
        assert [fault.level for fault in told(tracer.trace(WhatIf(scale=scale)))] == ["fault"]
    tracer.record()  # for values
    tracer._recorded = None
    assert [fault.level for fault in told(tracer.trace(WhatIf(scale=3.0)))] == ["fault"]
    assert len(calls) == 1


def test_two_threads_that_check_at_once_leave_stdout_and_generators_as_they_were(in_two_threads):
    net = wrong_net()
    before = sys.stdout, random_state(), list(warnings.filters)
    found = in_two_threads(lambda: levels(net), 5)
    assert found == [["fault"]] * 10
    assert (sys.stdout, random_state(), list(warnings.filters)) == before


def test_a_missing_backward_pass_is_a_fault_beside_it():
    net = Net(lambda x: WrongSine.apply(x).detach())
    net.second.requires_grad_(requires_grad=False)
    assert {"wrong_backward", "no_gradient"} <= {fault.kind for fault in by_tracer(net).faults}


def test_work_that_is_to_stop_stops_in_a_check(monkeypatch):
    stop = Stop()
    check = function_calls.check_backward

    def stopped(*given):
        stop.ask(StoppedError("disconnected"))
        return check(*given)

    monkeypatch.setattr(function_calls, "check_backward", stopped)
    with stoppable(stop), pytest.raises(StoppedError):
        by_tracer(wrong_net())
