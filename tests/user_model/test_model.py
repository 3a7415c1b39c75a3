"""A model that is reloaded after edits and kept after a failed reload."""

import os
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from chainrule.errors import ExploreError, SpecError
from chainrule.user_model import watch
from chainrule.user_model.model import UserModel, check_device, open_reference
from chainrule.user_model.subject import Subject
from chainrule.user_model.watch import watching
from chainrule.user_model.what_if import WhatIf

MODEL = """
    import torch
    from parts import Net

    def make():
        return Net({width}), torch.randn(4, 3), lambda out: out.mean()
"""

PARTS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Linear(3, width)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(torch.{activation}(self.body(x)))
"""


@pytest.fixture
def edited(write):
    """A model in two files; `edited(width=…)` and `edited(activation=…)` edit one of them."""

    def edit(width=None, activation=None):
        if activation is not None:
            write("parts.py", PARTS.format(activation=activation))
        if width is not None:
            write("model.py", MODEL.format(width=width))

    edit(width=5, activation="tanh")
    return edit


def ops(own):
    return [op.name for op in own.tracer().trace().ops if op.phase == "forward"]


@pytest.mark.usefixtures("edited")
def test_a_reference_becomes_a_model_with_a_name_groups_and_keys():
    own = open_reference("model.py:make")
    assert own.name == "model.py:make"
    assert own.groups == ("body", "head")
    assert own.read({"scale": "2", "group": "body"}) == WhatIf(2.0, "body")
    with pytest.raises(SpecError, match=r"^group: 'tail' is not a module with a parameter of 2 or more dimensions"):
        own.read({"group": "tail"})
    assert (own.version, own.problem, own.device, own.seed) == (1, None, "cpu", 42)
    assert [file.name for file in own.files] == ["model.py", "parts.py"]
    assert own.subject.place == "model.py:5"


@pytest.mark.usefixtures("edited")
def test_a_factory_draws_from_the_seed():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    weights = [open_reference("model.py:make", seed=seed).subject.model.body.weight for seed in (3, 3, 4)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_trace_of_a_check_is_used_by_the_next_tracer(edited):
    own = open_reference("model.py:make")
    trace = own.check()
    assert own.tracer().trace() is trace
    assert own.tracer().trace() is not trace
    own.check()
    edited(width=7)
    own.reload()
    assert own.tracer().trace().tensor_by_name["body.weight"].shape == (7, 3)


# ------------------------------------------------------------------------------------------------------------ reloads
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("make = 3", "model.py: make is 3; expected a function that returns (model, inputs), (model"),
        ("def main(): ...", "model.py: unknown name make; the file defines main"),
        ("def make():\n    return 3", "model.py:1: make returned 3; expected (model, inputs)"),
        ("def make():\n    return 1 / 0", "model.py:2: make() raised: ZeroDivisionError: division by zero"),
        ("def make(width): ...", "model.py:1: make(width) takes arguments; expected a function without arguments"),
        ("async def make(): ...", "model.py:1: make is an async function; expected a function without async"),
        ("def make():\n    raise SystemExit(3)", "model.py:2: make() raised: SystemExit: 3"),
        (
            "from torch.nn import Identity\nmake = Identity()",
            "model.py: make is a model of type Identity; expected a func",
        ),
    ],
)
def test_a_failed_reload_keeps_the_last_subject_and_has_a_problem(edited, write, text, message):
    own = open_reference("model.py:make")
    good, old = own.subject, own.tracer()
    write("model.py", text)
    own.reload()
    assert own.subject is good
    assert own.version == 1
    assert isinstance(own.problem, ExploreError)
    assert own.problem.message.startswith(message)
    assert "\n" not in own.problem.message
    assert own.problem.body()["error"]["code"] == "invalid_model"
    assert "tanh" in ops(own)
    edited(width=8)
    own.reload()
    assert own.problem is None
    assert own.version == 2
    assert own.subject.model.body.out_features == 8
    # A tracer keeps its subject.
    assert old.trace().tensor_by_name["body.weight"].shape == (5, 3)


def test_listeners_hear_of_each_reload_until_they_end(edited, write):
    own = open_reference("model.py:make")
    told = []
    end = own.listen(lambda: told.append((own.version, own.problem is None)))
    own.reload()
    write("model.py", "def make(:")
    own.reload()
    edited(width=9)
    own.reload()
    end()
    end()
    own.reload()
    assert told == [(2, True), (2, False), (3, True)]


def test_reloads_from_many_threads_run_one_at_a_time():
    made, at_work, overlaps = [], [], []

    def make():
        at_work.append(1)
        overlaps.append(len(at_work))
        made.append(1)
        subject = Subject(torch.nn.Linear(3, 1), (torch.randn(2, 3),))
        at_work.pop()
        return subject

    own = UserModel("net", make)
    threads = [threading.Thread(target=own.reload) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == own.version == 9
    assert set(overlaps) == {1}


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta:x", ""])
def test_an_unknown_device_is_refused_with_the_known_ones(device):
    with pytest.raises(ExploreError) as caught:
        check_device(device)
    assert caught.value.message.startswith(f"device: {device} is not available; this machine has cpu")
    assert caught.value.field == "device"


@pytest.mark.usefixtures("edited")
def test_a_device_option_moves_a_copy(own):
    assert open_reference("model.py:make", device="cpu").subject.device == torch.device("cpu")
    with pytest.raises(ExploreError, match="cannot be copied: NotImplementedError: Cannot copy out of meta tensor"):
        own("nonsense.py:inputs_on_meta", device="cpu")
    moved = own("nonsense.py:inputs_on_meta", device="meta")
    assert {each.device.type for each in (*moved.subject.model.parameters(), *moved.subject.inputs)} == {"meta"}
    assert moved.device == "cpu"  # the server has no other device


# ------------------------------------------------------------------------------------------------------------ watched


class Reloads:
    def __init__(self, own):
        self.own = own
        self.seen = threading.Semaphore(0)
        own.listen(self.seen.release)

    def wait(self):
        assert self.seen.acquire(timeout=60), "no reload came"


def test_a_reload_that_is_interrupted_gets_time_to_end(monkeypatch):
    clock, done, interrupted = [0.0], threading.Event(), []
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(watch.Reloads, "_interrupt", lambda *_: interrupted.append(clock[0]))
    reloads = watch.Reloads(SimpleNamespace(name="net", has_changed=True, reload=done.wait))
    for clock[0] in (0.0, 1.0, 11.0, 12.0, 20.0, 22.0):
        reloads.look()
    done.set()
    assert interrupted == [11.0, 22.0]


def test_a_watched_model_is_reloaded_after_an_edit(edited, write, folder):
    own = open_reference("model.py:make")
    reloads = Reloads(own)
    with watching(own):
        edited(width=6)
        reloads.wait()
        assert own.subject.model.body.out_features == 6
        edited(activation="relu")
        reloads.wait()
        assert "relu" in ops(own)
        write("notes.txt", "nothing of the model's")
        write("model.py", "def make(:")
        reloads.wait()
        assert own.problem is not None
        # Many editors replace the file when they save.
        write("model.py.new", MODEL.format(width=11))
        os.replace(folder / "model.py.new", folder / "model.py")
        reloads.wait()
        assert own.subject.model.body.out_features == 11
        imports = "import torch\n    from deeper import width\n"
        write("model.py", MODEL.format(width="width.WIDTH").replace("import torch\n", imports))
        reloads.wait()
        assert own.problem is not None
        write("deeper/width.py", "WIDTH = 3\n")
        write("deeper/__init__.py", "")
        while own.problem is not None:
            reloads.wait()
        # Without an error, a file that is not imported does not count.
        write("other.py", "")
        assert not own.has_changed
        write("deeper/width.py", "WIDTH = 4\n")
        while own.subject.model.body.out_features != 4:
            reloads.wait()
    version = own.version
    edited(width=12)
    assert not reloads.seen.acquire(timeout=1)
    assert own.version == version


class Imports(dict):
    """Modules of which another thread imports one after each that is looked at."""

    def items(self):
        for number, pair in enumerate(super().items()):
            yield pair
            self[f"imported{number}"] = ModuleType("imported")


@pytest.mark.usefixtures("edited")
def test_its_files_are_found_while_another_thread_imports(monkeypatch):
    model = open_reference("model.py:make")
    files = model.files
    monkeypatch.setattr(sys, "modules", Imports(sys.modules))
    assert model.files == files


FOR_EVER = """
    while True:
        try:
            sum(range(9))
        except Exception:
            pass
"""


@pytest.mark.parametrize("where", ["model.py", "parts.py"])
def test_a_file_that_runs_for_ever_is_told_and_the_next_edit_interrupts_it(edited, write, monkeypatch, where):
    own = open_reference("model.py:make")
    reloads = Reloads(own)
    monkeypatch.setattr(watch, "SLOW_SECONDS", 0.5)
    with watching(own):
        write(where, FOR_EVER)
        reloads.wait()
        assert "model.py:make is still running after 0.5 seconds" in own.problem.message
        assert own.subject.model.body.out_features == 5
        # Files beside it that it does not import may come meanwhile.
        write("unrelated.py", "")
        assert not own.has_changed
        edited(width=7, activation="relu")
        while own.subject.model.body.out_features != 7:
            reloads.wait()
        while own.problem is not None:  # on a busy machine, this reload takes long too
            assert "is still running" in own.problem.message
            reloads.wait()
    assert "relu" in ops(own)
    for thread in threading.enumerate():
        if thread.name == "chainrule-reload":
            thread.join(60)
            assert not thread.is_alive()
