"""`trace.report()`: the findings as text, JSON and GitHub's annotations; and `repr(trace)`."""

import dataclasses
import json
import re
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import torch
from source_lines import line_of
from torch import nn

import chainrule
from chainrule.diagnose.profile import profile
from chainrule.trace.graph import Fault, FaultKind, Source
from chainrule.trace.report import MAX_LENGTH, WIDTH, WORDS
from chainrule.user_model.model import open_reference
from chainrule.user_model.tracer import Tracer

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
        self.frozen = nn.Linear(4, 1).requires_grad_(False)

    def forward(self, x):
        hidden = torch.tanh(self.first(x)).detach()
        return self.second(hidden) + self.frozen(hidden)


def recorded(model, *inputs):
    return chainrule.trace_model(model, *inputs, loss=lambda out: out.square().mean())


@pytest.fixture
def cut():
    return recorded(Cut(), torch.ones(2, 3))


@pytest.fixture
def healthy():
    return recorded(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3))


def broken():
    with pytest.raises(RuntimeError, match="shapes"), chainrule.record(net := Cut()) as recording:
        net(torch.ones(2, 5))
    return recording.trace


def with_findings(trace, *faults):
    return dataclasses.replace(trace, faults=faults)


def test_the_words_are_those_of_the_page():
    source = (ROOT / "static" / "core" / "lab" / "faults.js").read_text(encoding="utf-8")
    table = source.partition("const KINDS = {")[2].partition("\n};")[0]
    assert dict(re.findall(r'^  (\w+): \{ word: "([^"]+)"', table, re.MULTILINE)) == WORDS
    assert list(WORDS) == list(get_args(FaultKind)) == SCHEMA["$defs"]["kind"]["enum"]


def test_a_text_has_place_line_figure_and_remedy_of_each_finding(cut):
    line = line_of(Path(__file__), "hidden = torch.tanh(")
    assert cut.report() == (
        f"""\
Cut: 1 fault, 1 note, 3 checks not made · loss {cut.loss:.3g} · 3 layers, 6 parameters of 26 elements

FAULT  cut (test_report.py:{line})
    hidden = torch.tanh(self.first(x)).detach()
    detach cuts the graph: first (2 parameters) get no gradient through it
    rule: the loss depends on trainable parameters, and the graph between them is cut (PyTorch
          documentation, Autograd mechanics: Locally disabling gradient computation)
    fix:  Remove detach if these parameters should learn; else freeze them with
          requires_grad_(False).

NOTE  no gradient in frozen
    frozen (2 parameters): no gradient, requires_grad=False
    rule: a parameter of the model got no gradient from a backward pass (PyTorch documentation,
          Autograd mechanics: Setting requires_grad)
    fix:  It is frozen. To train it, call model.frozen.requires_grad_()

NOT CHECKED FOR  not optimized, old gradient, eval mode: these checks need the optimizer. Give
    optimizer=optimizer."""
    )
    assert cut.has_faults


def test_a_healthy_pass_says_what_was_checked(healthy):
    first, *_, made = healthy.report().split("\n\n")
    assert first.startswith("Sequential: no fault in 16 checks, 3 checks not made · loss ")
    words = " ".join(made.split()).removeprefix("CHECKED FOR ").removesuffix(".").split(", ")
    assert len(words) == 16
    on_request = {"replicas differ", "graph break", "recompilation", "precision"}
    assert set(words) == set(WORDS.values()) - on_request - {"not optimized", "old gradient", "eval mode"}
    assert not healthy.has_faults


def test_an_optimizer_and_an_own_model_leave_no_check_out(healthy):
    told = dataclasses.replace(healthy, environment={"model": "net.py:make", "optimizer": "SGD"})
    assert told.report().startswith("net.py:make: no fault in 19 checks · loss")
    assert "NOT CHECKED" not in told.report()
    alone = dataclasses.replace(healthy, environment={"model": "net.py:make"}).report()
    assert "Return (model, inputs, loss_fn, optimizer)." in " ".join(alone.split())


def test_a_pass_that_broke_off_says_so():
    text = broken().report()
    assert text.startswith("Cut: the pass failed, 1 fault, 13 checks not made · no loss · ")
    assert "FAULT  failed in first (test_report.py:" in text
    assert "mat1 and mat2 shapes cannot be multiplied (2x5 and 3x4)" in text
    assert "these checks need a complete backward pass, but the pass failed." in " ".join(text.split())


def test_what_the_pass_lacks_is_said_once():
    with chainrule.record() as recording:
        torch.ones(3).sum()
    groups = {tuple(each["kinds"]): each["why"] for each in json.loads(recording.trace.report("json"))["not_checked"]}
    assert list(groups.values()) == [
        "these checks need a backward pass, but there was none.",
        "these checks need the model. Give it to the recording.",
    ]
    kinds = [kind for group in groups for kind in group]
    assert len(kinds) == len(set(kinds))
    assert {"detach", "unregistered", "eval_mode"} <= set(kinds)
    assert {"untied", "broadcast", "softmax", "no_optimizer"} <= set(next(iter(groups)))


def test_a_wrong_loss_is_not_called_healthy_before_its_backward_pass():
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(0))
    with chainrule.record(model, optimizer=torch.optim.SGD(model.parameters(), 0.1)) as recording:
        nn.functional.nll_loss(model(torch.randn(8, 3)), torch.zeros(8, dtype=torch.long))
    assert recording.trace.faults == ()
    assert {"softmax", "no_optimizer"}.isdisjoint(json.loads(recording.trace.report("json"))["checked"])
    assert repr(recording.trace).splitlines()[1] == "no faults, 13 checks not made"


def test_a_trace_that_nobody_has_judged_is_not_called_healthy(healthy):
    trace = dataclasses.replace(healthy, environment={})
    assert trace.report().startswith("Sequential: no fault in 0 checks, 19 checks not made")
    assert "this trace was not checked for faults" in trace.report()
    assert repr(trace).splitlines()[1] == "not checked for faults"


def test_a_spec_has_nothing_to_register_or_to_optimize():
    report = json.loads(chainrule.trace_spec(chainrule.ModelSpec(widths="4,3,1")).report("json"))
    assert {"exploding", "gradient_drop", "first_nonfinite"} <= set(report["checked"])
    assert {"unregistered", "no_optimizer"}.isdisjoint(report["checked"])


def test_faults_come_first_and_checks_that_were_not_made_last(healthy):
    found = with_findings(
        healthy,
        Fault("dead", "all units are dead", "b", level="note"),
        Fault("wrong_backward", "gradcheck took longer than 5 s", "c", level="unchecked"),
        Fault("vanishing", "0.0001 of the last layer's", "a", layers=(1,), rule="RMS < 0.001 (AUTOTRAINER)"),
    )
    text = found.report()
    assert re.findall(r"^(?:FAULT|NOTE|NOT CHECKED)  .*", text, re.MULTILINE) == [
        "FAULT  vanishing in a",
        "NOTE  dead in b",
        "NOT CHECKED  wrong gradient in c",
    ]
    assert "    rule: RMS < 0.001 (AUTOTRAINER)\n" in text
    assert text.startswith("Sequential: 1 fault, 1 note, 4 checks not made · ")
    assert "wrong_backward" not in json.loads(found.report("json"))["checked"]


def test_a_message_is_one_line_of_bounded_length(healthy):
    found = with_findings(healthy, Fault("failed", "\x1b[31mred\x1b[0m\r\nValueError: " + "1 " * 100_000))
    (finding,) = json.loads(found.report("json"))["findings"]
    assert finding["message"].startswith("[31mred [0m ValueError: 1 1 ")
    assert len(finding["message"]) == MAX_LENGTH
    lines = found.report().splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("loss", [float("nan"), float("-inf"), 0.5, None])
def test_json_follows_its_schema(cut, loss):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for trace in (dataclasses.replace(cut, loss=loss), broken(), chainrule.trace_spec(chainrule.ModelSpec())):
        validator.validate(json.loads(trace.report("json"), parse_constant=pytest.fail))


def test_json_has_counts_and_findings(cut):
    report = json.loads(cut.report("json"))
    assert (report["schema"], report["passed"], report["broke_off"]) == ("chainrule.report/1", False, False)
    sizes = [parameter.numel() for parameter in Cut().parameters()]
    assert report["counts"] == {
        "faults": 1,
        "notes": 1,
        "checked": 16,
        "not_checked": 3,
        "layers": 3,
        "ops": len(cut.ops),
        "tensors": len(cut.tensors),
        "parameters": len(sizes),
        "parameter_elements": sum(sizes),
    }
    first = report["findings"][0]
    assert (first["kind"], first["word"], first["source"]["file"]) == ("detach", "cut", "test_report.py")
    assert report["loss"] == cut.loss


def read_as_the_runner(line):
    """A workflow command, its properties and its message, as `ActionCommand.TryParseV2` of actions/runner reads it."""
    assert line.startswith("::")
    command, _, message = line[2:].partition("::")
    name, _, properties = command.partition(" ")
    pairs = (pair.split("=", 1) for pair in properties.split(","))

    def unescaped(text, codes):
        for code, character in codes.items():
            text = text.replace(code, character)
        return text.replace("%25", "%")

    of_data = {"%0D": "\r", "%0A": "\n"}
    of_property = of_data | {"%3A": ":", "%2C": ","}
    return name, {key: unescaped(value, of_property) for key, value in pairs}, unescaped(message, of_data)


def test_annotations_are_read_by_github_as_they_were_meant(healthy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd, 100%3A.py").write_text("\nx = cut(x)  # 50%, or: less\n")
    source = Source("odd, 100%3A.py", 2, "x = cut(x)  # 50%, or: less", "f")
    found = with_findings(
        healthy,
        Fault("detach", "100%0A: a, b :: c", "blocks.a,b:c%25", source=source, rule="50 %, or: less", remedy="Wait"),
        Fault("dead", "a note", level="note"),
        Fault("wrong_backward", "too long", level="unchecked"),
    )
    summary, *commands = found.report("github").splitlines()
    assert summary.startswith("Sequential: 1 fault, 1 note, 4 checks not made · ")
    assert [read_as_the_runner(line) for line in commands[:3]] == [
        (
            "error",
            {
                "file": "odd, 100%3A.py",
                "line": "2",
                "title": "Chainrule: cut in blocks.a,b:c%25 (odd, 100%3A.py:2)",
            },
            "100%0A: a, b :: c\nrule: 50 %, or: less\nfix: Wait",
        ),
        ("notice", {"title": "Chainrule: dead"}, "a note"),
        ("warning", {"title": "Chainrule: wrong gradient"}, "too long"),
    ]
    assert {read_as_the_runner(line)[0] for line in commands[3:]} == {"warning"}


def test_an_annotation_names_its_file_from_the_current_directory(cut, monkeypatch):
    monkeypatch.chdir(ROOT)
    place = "file=tests/trace/test_report.py,line={},".format(line_of(Path(__file__), "hidden = torch.tanh("))
    assert cut.report("github").count(f"::error {place}") == 1
    monkeypatch.chdir(ROOT / "docs")
    assert "file=" not in cut.report("github")


def test_a_finding_without_a_line_is_annotated_at_the_factory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = (
        "from torch import nn, ones",
        "def make():",
        "    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1).requires_grad_(False))",
        "    return net, ones(2, 3), lambda out: out.mean()",
    )
    (tmp_path / "net.py").write_text("\n".join(lines))
    trace = Tracer(open_reference("net.py:make").subject).trace()
    (note,) = [line for line in trace.report("github").splitlines() if line.startswith("::notice")]
    assert note.startswith("::notice file=net.py,line=2,title=Chainrule%3A no gradient in 1::1 (2 parameters): ")


def test_an_error_outside_of_ops_is_annotated_at_the_line_in_its_message(healthy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").touch()
    found = with_findings(healthy, Fault("failed", "net.py:7: ValueError: no"), Fault("failed", "gone.py:7: no"))
    (first, second, *_) = found.report("github").splitlines()[1:]
    assert read_as_the_runner(first)[1] == {"file": "net.py", "line": "7", "title": "Chainrule: failed"}
    assert read_as_the_runner(second)[1] == {"title": "Chainrule: failed"}


def test_another_format_is_refused(cut):
    with pytest.raises(ValueError, match=r"^format: 'xml' is not one of text, json, github$"):
        cut.report("xml")


class Many(nn.Module):
    """10,000 parameters, of which every second is used."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(())) for _ in range(10_000))

    def forward(self):
        return torch.stack(list(self.weights)[::2])


def test_a_report_of_10000_parameters_is_short():
    trace = recorded(Many())
    assert len(trace.faults) == 8
    assert "(and 4992 more of this kind)" in trace.report()
    for form, length in (("text", 3_000), ("json", 8_000), ("github", 3_000)):
        assert len(trace.report(form)) < length
    assert len(repr(trace)) < 3 * (WIDTH + 1)


def test_a_trace_is_three_lines(cut, healthy):
    place = f"(test_report.py:{line_of(Path(__file__), 'hidden = torch.tanh(')})"
    assert repr(cut).splitlines() == [
        f"Trace of Cut: 3 layers, {len(cut.ops)} ops, {len(cut.tensors)} tensors, loss {cut.loss:.3g}",
        f"1 fault: cut {place}, 3 checks not made",
        'report() explains the faults; chainrule.save(trace, "net.html") draws the graph',
    ]
    assert repr(healthy).splitlines()[1] == "no faults, 3 checks not made"
    whole = dataclasses.replace(healthy, environment={"model": "net.py:make", "optimizer": "SGD"})
    assert repr(whole).splitlines()[1] == "no faults"
    unchecked = with_findings(whole, Fault("wrong_backward", "too long", level="unchecked"))
    assert repr(unchecked).splitlines()[1] == "no faults, 1 check not made"
    long = with_findings(healthy, *[Fault("dead", "", "blocks." * 50)] * 8)
    assert [len(line) <= WIDTH for line in repr(long).splitlines()] == [True] * 3


def test_a_profile_and_a_summary_are_short_without_their_bins(healthy):
    found = profile(healthy)
    assert "counts" not in repr(found.layers[0])
    assert len(repr(found)) < 1_000
