"""The places where torch.compile would cut the graph of a user's model."""

import textwrap

import pytest
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.user_model.model import open_reference
from chainrule.user_model.what_if import WhatIf

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        {middle}
        return self.last(hidden)


def factory():
    return Net(), torch.randn(3, 4), lambda output: output.square().mean()
"""


@pytest.fixture
def opened(tmp_path):
    def make(middle, **options):
        file = tmp_path / "cut.py"
        file.write_text(MODEL.replace("{middle}", textwrap.indent(middle, 8 * " ").strip()))
        return open_reference(f"{file}:factory", **options)

    return make


def cuts(trace):
    return [fault for fault in trace.faults if fault.kind == "graph_break"]


def test_a_branch_on_values_is_a_cut_at_its_line(opened):
    model = opened("if hidden.sum() > -1:\n    hidden = 2 * hidden", compiles=True)
    tracer = model.tracer()
    trace = tracer.trace()
    (cut,) = cuts(trace)
    assert cut.level == "note", cut
    assert not trace.has_faults
    assert cut.source.text == "if hidden.sum() > -1:"
    op = next(op for op in trace.ops if op.id == cut.op)
    assert (op.name, op.source.line) == ("sum", cut.source.line)
    assert "the branch depends on the values of a tensor. It makes 2 graphs" in cut.message
    assert "graph break" not in trace.report().partition("NOT CHECKED FOR")[2].partition("CHECKED FOR")[0]
    # A what-if changes no code; its numbers are those of a tracer that compiles nothing.
    scaled = tracer.trace(WhatIf(scale=1.5))
    assert cuts(scaled) == [cut]
    assert (
        scaled.loss == opened("if hidden.sum() > -1:\n    hidden = 2 * hidden").tracer().trace(WhatIf(scale=1.5)).loss
    )


def test_a_whole_graph_has_no_cut_and_the_check_is_listed(opened):
    trace = opened("hidden = 2 * hidden", compiles=True).check()
    assert not cuts(trace)
    assert trace.environment["compiled_graphs"] == 1
    assert "starts at zero, graph break, recompilation." in " ".join(trace.report().split())
    assert "graph break" not in opened("hidden = 2 * hidden").check().report()


def test_a_model_that_does_not_compile_says_so(opened):
    model = opened('if torch.compiler.is_compiling():\n    raise ValueError("not here")', compiles=True)
    (cut,) = cuts(model.check())
    assert cut.level == "unchecked"
    assert cut.message.startswith("torch.compile fails: ")


def test_the_command_reports_cuts_and_succeeds(opened):
    model = opened("hidden = 2 * hidden\nprint('hidden')")
    run = CliRunner().invoke(commands, ["check", "--compile", str(model.file.files[0]) + ":factory"])
    assert run.exit_code == 0, run.output


def test_a_number_that_changes_in_each_pass_is_compiled_again_at_its_line(opened):
    trace = opened("self.passes = getattr(self, 'passes', 0) + 1\nhidden = hidden * self.passes", compiles=True).check()
    (again,) = [fault for fault in trace.faults if fault.kind == "recompilation"]
    assert again.level == "note", again
    assert not trace.has_faults
    assert "compiles forward again in every pass" in again.message
    assert "self.passes ==" in again.message
    assert "self.passes" in again.source.text
    assert not any(
        fault.kind == "recompilation" for fault in opened("hidden = 2 * hidden", compiles=True).check().faults
    )
