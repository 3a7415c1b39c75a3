"""The compiled observer records what the one in Python records, and keeps nothing."""

import gc
import hashlib
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import observed
import pytest
import torch
from torch import nn

from chainrule.stats import native as kernel
from chainrule.trace import native, record, trace_model


@pytest.fixture(scope="module")
def in_python():
    """The dumps of a process that has no compiled observer."""
    environment = os.environ | {native.OBSERVER_SWITCH: "python"}
    command = [sys.executable, observed.__file__, str(torch.get_num_threads())]
    process = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(process.stdout)


def test_both_observers_make_the_same_dumps(in_python):
    here = json.loads(json.dumps(observed.dumps()))
    assert here.keys() == in_python.keys()
    for name, dump in here.items():
        for part, value in dump.items():
            assert value == in_python[name][part], f"{part} of {name}"
    assert in_python["op_that_fails"]["error"]["op"] is not None
    assert in_python["stopped"]["error"]["message"].endswith("enough")


class Other:
    """A compiled module whose `bind` finds a PyTorch that it does not know."""

    def __init__(self, source):
        self.SOURCE = source

    def bind(self, **_):
        raise ImportError("the method numel is of another kind")


SOURCE = hashlib.sha256(Path(native.__file__).with_name("_observer.c").read_bytes()).hexdigest()


@pytest.mark.parametrize(("source", "warning"), [("0" * 64, "another source"), (SOURCE, "of another kind")])
def test_an_observer_of_another_source_or_for_another_pytorch_is_not_used(monkeypatch, caplog, source, warning):
    for switch in (native.OBSERVER_SWITCH, kernel.SWITCH):
        monkeypatch.delenv(switch, raising=False)
    monkeypatch.setattr(kernel, "import_module", lambda _: Other(source))
    with caplog.at_level(logging.WARNING):
        assert native._load() is None
    assert warning in caplog.text


@pytest.mark.parametrize("switch", [{native.OBSERVER_SWITCH: "python"}, {kernel.SWITCH: "torch"}])
def test_a_switch_turns_it_off(monkeypatch, switch):
    monkeypatch.setattr(kernel, "import_module", lambda _: pytest.fail("it was imported"))
    for name, value in switch.items():
        monkeypatch.setenv(name, value)
    assert native._load() is None


def passes(model, x):
    for _ in range(3):
        trace_model(model, x, loss=lambda out: out.square().mean())
    observed.recorded(observed.op_that_fails)
    observed.recorded(observed.backward_that_fails)
    observed.recorded(observed.double_backward)
    observed.recorded(observed.written_through_a_view)


def census():
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects()), sys.getallocatedblocks()


@pytest.mark.long
def test_recordings_leave_no_object_behind():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.ones(3, 5)
    for _ in range(50):
        passes(model, x)
    model.zero_grad()
    grown = []
    while len(grown) < 3 and (not grown or grown[-1] >= 700):  # Python 3.13 fills caches at first
        objects, blocks = census()
        for _ in range(200):
            passes(model, x)
        model.zero_grad()
        objects_after, blocks_after = census()
        grown.append(blocks_after - blocks)
    assert not {name: count for name, count in (objects_after - objects).items() if count >= 200}
    assert grown[-1] < 700, "one block for two recordings"


def test_what_a_recording_met_keeps_its_count_of_references():
    weight, name = torch.ones(3, 3, requires_grad=True), "an attribute of an op"
    # None is immortal from Python 3.12. torch 2.6 itself loses references to it, also without the compiled observer.
    none_is_counted = sys.version_info < (3, 12) and not torch.__version__.startswith("2.6.")
    held = (weight, nn.functional.relu, torch.float32, name, *([None] if none_is_counted else []))

    def recorded():
        with record():
            nn.functional.relu(weight @ weight, inplace=False).sum(dtype=torch.float32).backward()
            torch.einsum("ij->i", weight)

    recorded()  # it imports modules of torch
    gc.collect()
    before = [sys.getrefcount(each) for each in held]
    for _ in range(200):
        recorded()
    weight.grad = None
    gc.collect()
    after = [sys.getrefcount(each) for each in held]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True)), (before, after)


def test_a_long_chain_of_nodes_is_let_go():
    """Rows refer to the rows of the nodes that follow: letting go of them must not use up the stack."""
    x = torch.ones(1, requires_grad=True)
    with record(find_layers=False):
        y = x
        for _ in range(20_000):
            y = y + 1
        y.backward()
    del y
