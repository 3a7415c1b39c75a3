"""`chainrule check`: the exit status, the formats, and what the user's file prints."""

import json
import os

import pytest
import torch
from command import chainrule as in_a_process
from torch import nn
from typer.testing import CliRunner

import chainrule
from chainrule.__main__ import commands

NET = """
import os, sys
import torch
from torch import nn

print("the file runs")
os.system("echo a process prints")

class Net(nn.Module):
    def __init__(self, cuts):
        super().__init__()
        self.first, self.second, self.cuts = nn.Linear(3, 4), nn.Linear(4, 1), cuts

    def forward(self, x):
        print("forward runs")
        sys.__stdout__.write("past any redirection\\n")
        hidden = torch.tanh(self.first(x))
        if self.cuts:
            hidden = hidden.detach()  # CUT
        return self.second(hidden)

def healthy():
    return Net(False), torch.randn(5, 3), lambda out: out.square().mean()

def cut():
    return Net(True), torch.randn(5, 3), lambda out: out.square().mean()

def wrong_shape():
    return Net(False), torch.randn(5, 4), lambda out: out.square().mean()

def refuses():
    def loss(out):
        raise ValueError("out of range")
    return Net(False), torch.randn(5, 3), loss

def raises():
    raise OSError("no data")

def nonsense():
    return 3
"""


def check(*arguments):
    ours = {name: None for name in os.environ if name.startswith("CHAINRULE_")}
    return CliRunner().invoke(commands, ["check", *arguments], env=ours, catch_exceptions=False)


def line_with(text):
    return 1 + next(at for at, line in enumerate(NET.splitlines()) if text in line)


PLACES = {
    "cut": line_with("# CUT"),
    "wrong_shape": line_with("self.first(x))"),
    "refuses": line_with("raise ValueError"),
    "raises": line_with("raise OSError"),
    "nonsense": line_with("def nonsense"),
}


@pytest.fixture(autouse=True)
def _net(write):
    write("net.py", NET)


@pytest.mark.parametrize(
    ("factory", "status", "says"),
    [
        ("healthy", 0, "net.py:healthy: no fault in 16 checks, 3 checks not made · loss "),
        ("cut", 1, "net.py:cut: 1 fault, 3 checks not made · loss "),
        ("wrong_shape", 1, "net.py:wrong_shape: the pass failed, 1 fault, 13 checks not made · no loss · "),
        ("refuses", 1, "net.py:refuses: the pass failed, 1 fault, 13 checks not made · no loss · "),
    ],
)
def test_the_exit_status_is_the_verdict(factory, status, says):
    answer = check(f"net.py:{factory}")
    assert (answer.exit_code, answer.stdout.startswith(says)) == (status, True), answer.output
    assert "forward runs" in answer.stderr
    if status:
        assert f"net.py:{PLACES[factory]}" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["net.py:nonsense"], "net.py:{nonsense}: nonsense returned 3; expected (model, inputs)"),
        (["net.py:raises"], "net.py:{raises}: raises() raised: OSError: no data"),
        (["net.py:missing"], "net.py: unknown name missing; the file defines "),
        (["gone.py:make"], "gone.py: file not found"),
        (["net.py:healthy", "--device", "gpu"], "device: gpu is not available"),
        (["gone.json"], "gone.json: No such file or directory"),
    ],
)
def test_what_cannot_be_checked_is_one_line_and_status_2(arguments, says):
    answer = check(*arguments)
    assert (answer.exit_code, answer.stdout) == (2, "")
    (line,) = [each for each in answer.stderr.splitlines() if each.startswith("chainrule: ")]
    assert line.startswith(f"chainrule: {says.format_map(PLACES)}")


def test_another_format_is_a_mistake_in_the_command_line():
    answer = check("net.py:healthy", "--format", "xml")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "xml" in answer.stderr


def test_standard_output_has_the_report_alone(folder):
    """A process of its own: one that the file starts prints into its standard output, past Python."""
    done = in_a_process("check", "net.py:cut", "--format", "json", folder=folder)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert [finding["kind"] for finding in report["findings"]] == ["detach"]
    assert report["model"] == "net.py:cut"
    for printed in ("the file runs", "a process prints", "forward runs", "past any redirection"):
        assert printed in done.stderr


def test_annotations_have_the_line_as_seen_from_the_current_directory(folder):
    (folder / "ci").mkdir()
    (folder / "ci" / "net.py").write_text(NET)
    commands = check("ci/net.py:cut", "--format", "github").stdout.splitlines()
    assert commands[1].startswith(f"::error file=ci/net.py,line={PLACES['cut']},title=Chainrule%3A cut (net.py%3A")
    refused = check("ci/net.py:refuses", "--format", "github").stdout.splitlines()
    assert refused[1].startswith(f"::error file=ci/net.py,line={PLACES['refuses']},title=Chainrule%3A failed::")


def test_the_report_can_be_written_to_a_file(folder):
    answer = check("net.py:cut", "--format", "json", "-o", "report.json")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert json.loads((folder / "report.json").read_text())["passed"] is False
    answer = check("net.py:cut", "-o", "gone/report.txt")
    assert answer.exit_code == 1
    assert answer.stderr.endswith("chainrule: gone/report.txt: No such file or directory\n")


def test_the_seed_is_that_of_the_pass():
    losses = [json.loads(check("net.py:healthy", "--format", "json", *seed).stdout)["loss"] for seed in SEEDS]
    assert losses[0] == losses[1] != losses[2]


SEEDS = ([], ["--seed", "42"], ["--seed", "7"])


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (float("nan"), 1)])
def test_a_dump_is_judged_in_another_job(factor, status):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with chainrule.record(net) as recording:
        (net(torch.randn(5, 3)) * factor).square().mean().backward()
    recording.save("step1.json")
    answer = check("step1.json")
    assert answer.exit_code == status
    assert answer.stdout == f"{recording.trace.report()}\n"


@pytest.mark.parametrize(("scale", "status"), [(1.0, 0), (9.0, 1)])
def test_the_dump_of_a_spec_is_judged_as_well(scale, status):
    chainrule.save(chainrule.trace_spec(chainrule.ModelSpec(scale=scale)), "spec.json")
    answer = check("spec.json")
    assert answer.exit_code == status
    assert ("FAULT  exploding in " in answer.stdout) == bool(status)
