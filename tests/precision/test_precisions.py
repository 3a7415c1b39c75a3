"""One model in two precisions: errors as numpy computes them, the op to blame, no alarm on healthy nets."""

import copy
import importlib.util
import math
import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command import chainrule, command
from source_lines import line_of
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from chainrule.dump.wire import dump_trace, load
from chainrule.errors import ExploreError
from chainrule.precision.compare import compare_precisions
from chainrule.precision.formats import PRECISIONS, products_in
from chainrule.precision.text import comparison_text
from chainrule.user_model.model import open_reference
from chainrule.user_model.subject import Subject
from chainrule.user_model.tracer import Tracer

ROOT = Path(__file__).parents[2]
ATTENTION = ROOT / "tests" / "shared" / "user_models" / "attention.py"


def square(output):
    return output.square().mean()


def subject_of(*layers, x=(64, 32), loss=square, seed=0):
    torch.manual_seed(seed)
    return Subject(nn.Sequential(*layers), (torch.randn(*x),), loss=loss)


def attention(factory):
    return open_reference(f"{ATTENTION}:{factory}").subject


def bench_case(name):
    spec = importlib.util.spec_from_file_location("bench_models", ROOT / "bench" / "models.py")
    models = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = models  # dataclasses look there
    spec.loader.exec_module(models)
    case = models.case(name)
    return Subject(case.model, (case.x,), loss=case.loss)


def figures(trace):
    """Name → error and prediction."""
    found = trace.precision
    names = (trace.tensor_by_id[each].name for each in found.tensor)
    return dict(zip(names, zip(found.error, found.expected, strict=True), strict=True))


def findings(trace, level="fault"):
    return [fault for fault in trace.faults if fault.kind == "precision" and fault.level == level]


def op_of(trace, fault):
    return next(op for op in trace.ops if op.id == fault.op)


def in_norm(value, reference):
    value, reference = (each.detach().double().numpy() for each in (value, reference))
    return np.linalg.norm(value - reference) / np.linalg.norm(reference)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_errors_are_those_of_two_runs_of_ones_own(name):
    subject = subject_of(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 8))
    dtype = PRECISIONS[name].dtype
    other = copy.deepcopy(subject.model).to(dtype)
    runs = []
    for model, x in ((copy.deepcopy(subject.model), subject.args[0]), (other, subject.args[0].to(dtype))):
        hidden = model[1](model[0](x))
        output = model[2](hidden)
        square(output).backward()
        gradients = {f"{key}.g": each.grad for key, each in model.named_parameters()}
        runs.append({"1.tanh": hidden, "2.linear": output, **gradients})
    less, more = runs[::-1] if name != "float64" else runs
    _, b = compare_precisions(subject, name)
    assert b.error is None
    assert (b.precision.of, b.precision.against) == ((name, "float32") if name != "float64" else ("float32", name))
    found = figures(b)
    assert len(found) == len(b.tensors)
    for key in less:
        assert found[key][0] == pytest.approx(in_norm(less[key], more[key]), rel=1e-12), key
    assert findings(b) == []
    # The factory's model is as before.
    assert all(each.dtype == torch.float32 and each.grad is None for each in subject.model.parameters())


def test_probabilities_have_the_error_of_their_elements():
    torch.manual_seed(0)
    x = 20 * torch.randn(64, 32, requires_grad=True)
    _, b = compare_precisions(Subject(nn.Softmax(-1), (x,), loss=square), "bfloat16")
    value, reference = (each.softmax(-1).detach().double().numpy() for each in (x.bfloat16(), x))
    is_normal = reference > torch.finfo(torch.float32).tiny
    apart = (value - reference)[is_normal] / reference[is_normal]
    assert figures(b)["softmax"][0] == pytest.approx(np.sqrt(np.mean(apart.clip(-1, 1) ** 2)), rel=1e-12)


def test_the_prediction_adds_squares():
    class Double(nn.Module):
        def forward(self, x):
            return torch.sin(x * 3)

    torch.manual_seed(0)
    x = torch.randn(64, 32, requires_grad=True)
    _, b = compare_precisions(Subject(Double(), (x,), loss=square), "bfloat16")
    u, inside = 2.0**-8, 2.0**-24
    one = math.hypot(u, math.hypot(u, inside))
    found = figures(b)
    assert found["input"][1] == u
    assert found["mul"][1] == pytest.approx(one, rel=1e-12)
    assert found["sin"][1] == pytest.approx(math.sqrt(one**2 + u**2 + inside**2), rel=1e-12)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "autocast-bfloat16"])
def test_attention_without_its_scale_is_named_at_the_softmax(name):
    _, b = compare_precisions(attention("unscaled"), name)
    (fault,) = findings(b)
    op = op_of(b, fault)
    assert (op.name, fault.module) == ("softmax", "1")
    assert fault.source.line == line_of(ATTENTION, "scores.softmax")
    assert "√(head size)" in fault.remedy
    assert "measured against float32" in fault.message
    assert "Higham" in fault.rule
    assert findings(compare_precisions(attention("scaled"), name)[1]) == []


class Variance(nn.Module):
    """E[x²] − E[x]², which cancels."""

    def forward(self, x):
        shifted = x + 10
        return (shifted * shifted).mean(-1) - shifted.mean(-1).square()


class Wave(nn.Module):
    def forward(self, x):
        return torch.sin(100 * x)


@pytest.mark.parametrize(("module", "op"), [(Variance(), "sub"), (Wave(), "sin")])
def test_an_ill_conditioned_op_is_named_and_none_after_it(module, op):
    _, b = compare_precisions(subject_of(nn.Linear(32, 32), module), "bfloat16")
    (fault,) = findings(b)
    assert op_of(b, fault).name == op
    assert comparison_text(b).count("fault: ") == 1


HEALTHY = {
    "layer norm": lambda: subject_of(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10), x=(2048, 32)),
    "convolutions": lambda: subject_of(
        *(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout()),
        *(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)),
        x=(16, 3, 18, 18),
    ),
    "equal rows": lambda: subject_of(
        *(each for _ in range(10) for each in (nn.Linear(32, 32), nn.Tanh())),
        nn.Linear(32, 10),
        x=(2048, 32),
        loss=lambda output: F.cross_entropy(output, torch.arange(2048) % 10),
    ),
    # The loss of a normalized output is constant: its gradient is 0 but for rounding.
    "no gradient": lambda: subject_of(nn.Linear(32, 64), nn.LayerNorm(64)),
    "a sum": lambda: subject_of(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10), loss=torch.sum),
    "M2": lambda: bench_case("M2"),
}


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "autocast-bfloat16"])
@pytest.mark.parametrize("net", HEALTHY)
def test_healthy_nets_give_no_alarm(net, name):
    _, b = compare_precisions(HEALTHY[net](), name)
    assert b.error is None
    assert findings(b) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["bfloat16", "float16", "autocast-bfloat16"])
@pytest.mark.parametrize("net", ["M1", "M3", "M4"])
def test_the_reference_models_give_no_alarm(net, name):
    _, b = compare_precisions(bench_case(net), name)
    assert findings(b) == []
    assert findings(b, "unchecked") == []
    # Rounding predicts the errors of fifty layers there and back: never too small by far, and too large where the
    # errors of a batch cancel.
    ratios = [error / expected for error, expected in figures(b).values() if expected]
    assert 0.05 < np.median(ratios) < 1
    assert max(ratios) < 2


def test_a_loss_near_zero_is_a_note():
    torch.manual_seed(0)
    model, x = nn.Linear(8, 1), torch.randn(64, 8)
    target = model(x).detach() * 1.01
    subject = Subject(model, (x,), loss=lambda output: F.mse_loss(output, target))
    _, b = compare_precisions(subject, "bfloat16")
    (note,) = findings(b, "note")
    assert op_of(b, note).name == "mse_loss"
    assert "The loss is small" in note.message
    assert findings(b) == []
    # In float32 the same op loses digits that nobody needs.
    assert findings(compare_precisions(subject, "float64")[1]) == []


def test_a_loss_with_weights_is_cast_and_its_targets_are_not():
    target = torch.arange(64) % 8
    loss = nn.CrossEntropyLoss(weight=torch.rand(8) + 0.5)
    _, b = compare_precisions(subject_of(nn.Linear(32, 8), loss=lambda output: loss(output, target)), "bfloat16")
    assert b.error is None
    wanted = torch.randn(64, 8)
    _, b = compare_precisions(subject_of(nn.Linear(32, 8), loss=lambda output: F.mse_loss(output, wanted)), "bfloat16")
    assert b.tensor_by_name["target"].dtype == "float32"
    assert loss.weight.dtype == torch.float32


def test_large_tensors_are_sampled_alike(monkeypatch):
    from chainrule.precision import samples

    monkeypatch.setattr(samples, "MAX_TOTAL", 2000)
    one, other = samples.Samples(most=1000), samples.Samples(most=1000)
    x = torch.arange(5000.0).reshape(50, 100)
    for each in range(4):
        one.add(f"t{each}", x)
    other.add("t0", x.T.contiguous().T.double())
    other.add("t9", torch.zeros(1).expand(2**40))
    assert one.total == sum(map(len, one.found.values())) <= 2000
    ((_, a, b),) = samples.in_pairs(one, other, {"t0": "t2"})
    assert torch.equal(a.double(), b)
    assert a.tolist() == list(range(0, 5000, 27))


def test_an_overflow_comes_first():
    subject = subject_of(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.no_grad():
        for layer in (0, 2):
            subject.model[layer].weight *= 1000
    a, b = compare_precisions(subject, "float16")
    first = b.faults[0]
    assert first.kind == "first_nonfinite"
    assert op_of(b, first).name == "linear"
    largest = a.statistics[a.tensor_by_name["2.linear"].id]
    assert f"In float32 it is finite: its largest magnitude is {max(-largest.min, largest.max):.3g}" in first.message
    assert all(math.isfinite(each) for each in b.precision.error)
    assert findings(compare_precisions(subject, "bfloat16")[1]) == []


def test_a_loss_that_needs_scaling_is_a_note():
    subject = subject_of(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10), loss=lambda output: square(output) * 1e-6)
    (note,) = findings(compare_precisions(subject, "float16")[1], "note")
    assert "too small for float16" in note.message
    assert "GradScaler" in note.remedy
    assert findings(compare_precisions(subject, "bfloat16")[1], "note") == []


def test_the_casts_of_autocast_shift_no_match():
    subject = subject_of(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8))
    a, b = compare_precisions(subject, "autocast-bfloat16")
    assert len(b.ops) > len(a.ops)
    assert {tensor.name for tensor in a.tensors} == figures(b).keys() & {tensor.name for tensor in a.tensors}
    assert b.tensor_by_name["0.linear"].dtype == "bfloat16"
    assert b.tensor_by_name["0.weight.g"].dtype == "float32"


def test_integers_differ_and_have_no_error():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(32, 50)

        def forward(self, x):
            score = self.score(x)
            return score.gather(1, score.argmax(1, keepdim=True))

    torch.manual_seed(0)
    model, x = Chosen(), torch.randn(2000, 32)
    differing = (model.score(x).argmax(1) != copy.deepcopy(model).bfloat16().score(x.bfloat16()).argmax(1)).sum()
    assert differing > 0
    _, b = compare_precisions(Subject(model, (x,), loss=square), "bfloat16")
    assert b.precision.differing[b.tensor_by_name["argmax"].id] == (int(differing), 2000)
    assert "argmax" not in figures(b)
    assert findings(b) == []


def test_integer_inputs_stay_integers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 1))
    a, b = compare_precisions(Subject(model, (torch.arange(20),), loss=square), "bfloat16")
    assert (a.tensor_by_name["input"].dtype, b.tensor_by_name["input"].dtype) == ("int64", "int64")
    assert b.precision.differing[b.tensor_by_name["input"].id] == (0, 20)


def test_other_random_numbers_end_the_comparison():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    _, b = compare_precisions(subject_of(nn.Linear(32, 8), Noisy()), "float64")
    (unchecked,) = findings(b, "unchecked")
    assert op_of(b, unchecked).name == "randn_like"
    assert findings(b) == []


def test_a_model_in_a_low_precision_is_measured_against_a_higher_one():
    subject = subject_of(nn.Linear(32, 8), nn.Tanh())
    low = Subject(copy.deepcopy(subject.model).bfloat16(), (subject.args[0].bfloat16(),), loss=square)
    a, b = compare_precisions(low, "float32")
    assert (b.precision.name, b.precision.of, b.precision.against) == ("float32", "bfloat16", "float32")
    assert (a.tensor_by_name["1.tanh"].dtype, b.tensor_by_name["1.tanh"].dtype) == ("bfloat16", "float32")
    assert figures(b)["input"] == (0, 2**-8)
    assert 1e-3 < figures(b)["1.tanh"][0] < 1e-2


def test_a_model_in_two_dtypes_is_cast_to_one():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(32, 8).bfloat16(), nn.Linear(8, 4)

        def forward(self, x):
            return self.last(self.first(x.to(self.first.weight.dtype)).to(self.last.weight.dtype))

    torch.manual_seed(0)
    subject = Subject(Mixed(), (torch.randn(64, 32),), loss=square)
    _, b = compare_precisions(subject, "bfloat16")
    assert (b.precision.of, b.precision.against) == ("bfloat16", "bfloat16 and float32")
    # The casts that B does not need are no obstacle.
    assert {"first.linear", "last.linear", "first.weight.g"} <= figures(b).keys()
    assert figures(b)["first.weight"] == (0, 0)
    assert figures(b)["last.weight"][0] > 0
    _, b = compare_precisions(subject, "float32")
    assert (b.precision.of, b.precision.against) == ("bfloat16 and float32", "float32")


def test_an_op_without_a_kernel_ends_b_alone():
    class Inverse(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    a, b = compare_precisions(subject_of(nn.Linear(8, 8), Inverse(), x=(8, 8)), "bfloat16")
    assert a.error is None
    failed = next(fault for fault in b.faults if fault.kind == "failed")
    assert failed.message.startswith("linalg_inv does not run in bfloat16: ")
    assert "0.linear" in figures(b)
    assert "broke off" in comparison_text(b)


def test_the_errors_survive_the_dump():
    _, b = compare_precisions(attention("unscaled"), "bfloat16")
    again = load(dump_trace(b))
    assert again.precision == b.precision
    assert dump_trace(again) == dump_trace(b)


def mixed():
    subject = subject_of(nn.Linear(32, 8), nn.Linear(8, 8))
    subject.model[1].bfloat16()
    return subject


@pytest.mark.parametrize(
    ("subject", "name", "says"),
    [
        (subject_of(nn.Linear(32, 8)), "float8_e4m3fn", "as: float8_e4m3fn is not one of bfloat16, float16, float32"),
        (subject_of(nn.Linear(32, 8)), "float32", "as: model is in float32 already"),
        (subject_of(nn.Linear(32, 8)), "tf32", "as: tf32 needs a CUDA device; model is on cpu"),
        (
            mixed(),
            "autocast-float16",
            "as: autocast-float16 needs a model in float32; model is in bfloat16 and float32",
        ),
        (mixed(), "float64", "must have the same dtype"),
    ],
)
def test_a_precision_that_cannot_be_had_is_an_error(subject, name, says):
    with pytest.raises(ExploreError) as caught:
        compare_precisions(subject, name)
    assert says in caught.value.message


def test_several_precisions_are_compared_with_one_run(monkeypatch):
    names = ("bfloat16", "float64", "autocast-bfloat16")
    singly = [compare_precisions(attention("unscaled"), name)[1] for name in names]
    passes = []
    record = Tracer.record
    monkeypatch.setattr(Tracer, "record", lambda *args, **options: passes.append(args) or record(*args, **options))
    a, *together = compare_precisions(attention("unscaled"), *names)
    assert len(passes) == 4
    assert a.precision is None
    assert [each.precision for each in together] == [each.precision for each in singly]
    assert [each.faults for each in together] == [each.faults for each in singly]
    # All are checked before anything runs.
    with pytest.raises(ExploreError, match="is in float32 already"):
        compare_precisions(attention("unscaled"), "bfloat16", "float32")
    assert len(passes) == 4


def test_tf32_rounds_the_factors_of_products_alone(monkeypatch):
    from chainrule.precision import compare

    monkeypatch.setattr(compare, "check_precision", lambda *_: None)  # here no CUDA device is needed
    _, b = compare_precisions(subject_of(nn.Linear(32, 8), nn.Tanh()), "tf32")
    found = figures(b)
    assert found["input"] == (0, 0)
    assert found["0.linear"] == (0, pytest.approx(math.sqrt(2) * 2**-11, rel=1e-4))
    assert found["1.tanh"][1] == pytest.approx(found["0.linear"][1], rel=1e-6)


def test_sampling_records_nothing():
    subject = attention("scaled")
    a, _ = compare_precisions(subject, "bfloat16")
    assert [op.name for op in a.ops] == [op.name for op in Tracer(subject).trace().ops]


def test_the_setting_of_products_is_restored():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    with products_in("tf32"):
        assert matmul.fp32_precision == "tf32"
    assert matmul.fp32_precision == before


@pytest.mark.long
def test_the_command_reports_and_serves():
    with command("compare", "--as", "bfloat16", f"{ATTENTION}:scaled", "--no-browser", "--port", "0") as link:
        assert re.search(r"/\?token=[^#]+#a=dump:0&colour=precision&dump=1$", link)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        several = ("--as", "bfloat16", "--as", "float64", "--as", "bfloat16", f"{ATTENTION}:unscaled")
        done = chainrule("compare", *several, "--port", str(taken.getsockname()[1]))
    assert "in use" in done.stderr
    blocks = done.stdout.strip().split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == ["bfloat16", "float64"]
    assert blocks[0].splitlines()[1].startswith("attention.py:unscaled in bfloat16, measured against float32: ")
    assert blocks[1].splitlines()[1].startswith("attention.py:unscaled in float32, measured against float64: ")
    for arguments, says in (
        (("--as", "bfloat17", f"{ATTENTION}:scaled"), "as: bfloat17 is not one of bfloat16, float16"),
        (("--as", "float16", "--as", "bfloat17", f"{ATTENTION}:scaled"), "as: bfloat17 is not one of bfloat16"),
        (("--as", "bfloat16", "a.json", "b.json"), "give FILE.py:FACTORY and no dumps"),
        (("a.json",), "compare needs at least two dumps"),
    ):
        done = chainrule("compare", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("chainrule: ")
        assert says in done.stderr


COMPILED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        factor = {factor}
        hidden = factor * hidden
        return self.last(hidden)


def factory():
    return Net(), torch.randn(32, 8), lambda output: output.square().mean()
"""


@pytest.fixture
def compiled(tmp_path):
    def make(factor):
        file = tmp_path / "net.py"
        file.write_text(COMPILED.replace("{factor}", factor))
        return f"{file}:factory"

    yield make
    torch._dynamo.reset()


@pytest.mark.long
def test_the_ops_of_aot_eager_have_the_bits_of_the_program(compiled):
    subject = open_reference(compiled("1.5")).subject
    a, b = compare_precisions(subject, "aot_eager")
    found = figures(b)
    gradients = {f"{name}.g" for name, _ in subject.model.named_parameters()}
    assert {"first.addmm", "relu", "mul", "last.addmm", *gradients} <= found.keys()
    assert set(figures(b).values()) == {(0.0, expected) for _, expected in found.values()}
    assert not findings(b)
    assert a.loss == b.loss


@pytest.mark.parametrize(
    "compilers", [("aot_eager",), pytest.param(("aot_eager", "inductor"), marks=pytest.mark.long)], ids="+".join
)
def test_the_op_that_a_compiler_changes_is_named_with_its_line(compiled, compilers):
    reference = compiled("1.5 if torch.compiler.is_compiling() else 1.25")
    _, *traces = compare_precisions(open_reference(reference).subject, *compilers)
    for trace, name in zip(traces, compilers, strict=True):
        (fault,) = findings(trace)
        op = next(op for op in trace.ops if op.id == fault.op)
        assert "mul" in op.name
        assert fault.source.text == "hidden = factor * hidden"
        assert f"20 % in {name}, measured against eager" in fault.message
        assert "aot_eager" in fault.remedy


@pytest.mark.long
@pytest.mark.parametrize("name", ["M1", "M2", "M3", "M4"])
def test_the_kernels_of_inductor_round_as_predicted(name):
    _, b = compare_precisions(bench_case(name), "inductor")
    assert not findings(b)
    ratios = [error / expected for error, expected in figures(b).values() if expected]
    assert max(ratios) < 3
    assert len(ratios) > 5
    torch._dynamo.reset()
