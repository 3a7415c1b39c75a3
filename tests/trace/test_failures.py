import contextlib
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from trace_rules import assert_well_formed, names_in

from chainrule.dump.wire import dump_trace, load
from chainrule.stats import StatisticsSlab
from chainrule.trace import record, trace_model
from chainrule.trace.units import summarize_units


@pytest.mark.smoke
def test_a_failing_forward_gives_the_trace_so_far():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    trace = trace_model(model, torch.randn(2, 3))
    assert_well_formed(trace)
    assert names_in(trace, "forward") == ["linear", "relu", "linear"]
    failed = trace.ops[-1]
    assert trace.error.op == failed.id
    assert failed.outputs == ()
    assert [trace.tensor_by_id[each].name for each in failed.inputs][1:] == ["2.weight", "2.bias"]
    assert trace.module_by_id[failed.module].path == "2"
    assert trace.error.message.startswith("RuntimeError: ")
    assert "mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)" in trace.error.message
    assert load(dump_trace(trace)).error == trace.error


def test_record_lets_the_error_through_and_keeps_the_trace():
    with pytest.raises(RuntimeError, match="must match"), record() as recording:
        torch.ones(2) + torch.ones(3)
    assert recording.trace.ops[-1].name == "add"
    assert recording.trace.error.op == recording.trace.ops[-1].id


def fails_outside_of_ops():
    torch.ones(2).sum()


def fails_after_an_error_that_it_handled():
    with contextlib.suppress(RuntimeError):
        torch.ones(2) + torch.ones(3)
    torch.zeros(1).sum()


def fails_after_a_checkpoint():
    layer = nn.Linear(3, 3)
    checkpoint(lambda x: torch.tanh(layer(x)), torch.randn(4, 3), use_reentrant=False).sum().backward()


@pytest.mark.parametrize(
    "program", [fails_outside_of_ops, fails_after_an_error_that_it_handled, fails_after_a_checkpoint]
)
def test_an_error_that_no_op_raised_has_no_op(program):
    def run():
        program()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), record() as recording:
        run()
    assert recording.trace.error.op is None
    assert recording.trace.error.message == "ValueError: mine"
    assert names_in(recording.trace, "forward")


def test_an_error_that_the_program_handles_is_no_failure_of_the_trace():
    with record() as recording:
        fails_after_an_error_that_it_handled()
    assert recording.trace.error is None


def test_a_thread_that_is_not_recorded_leaves_no_mark(functions):
    def elsewhere():
        functions.cube.apply(nn.Linear(3, 3)(torch.ones(2, 3))).sum().backward()

    with record() as recording:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(30)
        torch.ones(2)
    assert names_in(recording.trace, "forward") == ["ones"]


def test_an_activation_whose_memory_was_given_back_keeps_its_row():
    slab = StatisticsSlab()
    activation = torch.relu(torch.randn(100, 100))
    row = slab.take(activation)
    before = slab.moments[row].copy()
    activation.untyped_storage().resize_(64)
    for op_name in ("relu", "tanh"):
        summarize_units(op_name, activation, slab, row)
    assert np.array_equal(slab.moments[row], before, equal_nan=True)
