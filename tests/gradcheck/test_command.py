"""`chainrule gradcheck` on right, wrong and broken files."""

import re
import signal
import sys
from textwrap import dedent

import httpx
import pytest
import torch
from command import serving
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.errors import CheckError
from chainrule.gradcheck.command import check_function
from chainrule.gradcheck.text import report_text
from chainrule.user_model import code

FUNCTIONS = dedent('''
    import sys

    import torch
    from torch.autograd import Function


    class Product(Function):
        @staticmethod
        def forward(ctx, inp, weight):
            ctx.save_for_backward(inp, weight)
            return inp @ weight.t()

        @staticmethod
        def backward(ctx, grad_output):
            inp, weight = ctx.saved_tensors
            return grad_output @ weight, grad_output.t() @ inp


    class Twice(Product):
        @staticmethod
        def backward(ctx, grad_output):
            grad_inp, grad_weight = Product.backward(ctx, grad_output)
            return grad_inp, 2 * grad_weight


    class TooFew(Product):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output @ ctx.saved_tensors[1]


    class BadShape(Product):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output


    class Raises(Product):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.nothing  # RAISES


    class NotFinite(Product):
        @staticmethod
        def forward(ctx, inp, weight):
            return (inp @ weight.t() * 0).log() * float("nan")


    class WithContext(Function):
        """The newer way: setup_context beside a forward without ctx."""

        @staticmethod
        def forward(base):
            return base.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.saved_tensors[0]


    def two_outputs(a, b):
        return (a * a) @ b.t(), a.sum()


    def constant(a, b):
        return torch.ones(3)


    def number(a, b):
        return 3.0


    def detached(a, b):
        return a.detach()


    def infinite_gradient(a, b):
        return (a * 0).abs().sqrt()


    def make_inputs():
        return torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)


    def in_double():
        return tuple(each.detach().double().requires_grad_() for each in make_inputs())


    def one():
        return torch.randn(3, requires_grad=True)


    def no_gradient():
        return (torch.randn(3),)


    def complex_inputs():
        return (torch.randn(3, dtype=torch.complex64, requires_grad=True),)


    def sparse_inputs():
        return (torch.eye(3).to_sparse().requires_grad_(),)


    def not_a_number():
        return (torch.tensor([float("nan")], requires_grad=True),)


    def a_dict():
        return {"x": 1}


    def needs_an_argument(size):
        return (torch.randn(size, requires_grad=True),)


    def breaks():
        raise KeyError("weights")  # BREAKS


    def large():
        return torch.randn(60, 40, requires_grad=True), torch.randn(60, 40, requires_grad=True)


    class NoFunction:
        pass


    VALUE = 3


    class ExitsForward(Product):
        @staticmethod
        def forward(ctx, inp, weight):
            sys.exit(0)  # EXITS FORWARD


    class ExitsBackward(Product):
        @staticmethod
        def backward(ctx, grad_output):
            sys.exit(0)  # EXITS BACKWARD


    def exits():
        sys.exit(0)  # EXITS


    class WrongInFloat(Product):
        @staticmethod
        def backward(ctx, grad_output):
            grad_inp, grad_weight = Product.backward(ctx, grad_output)
            return grad_inp, grad_weight * (1 if grad_output.dtype == torch.float64 else -70)


    class OnesInFloat(Product):
        @staticmethod
        def backward(ctx, grad_output):
            grad_inp, grad_weight = Product.backward(ctx, grad_output)
            return grad_inp, grad_weight + (not grad_output.any() and grad_output.dtype != torch.float64)


    def softmax_total(x):
        return torch.softmax(x, 0).sum()


    def cubed_slope(x):
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return slope.square().sum()


    def in_half():
        return torch.randn(4).half().requires_grad_()


    def in_bfloat16():
        return torch.randn(4).bfloat16().requires_grad_()


    class WithoutNone(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2


    class InPlace(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2


    class ReturnsAList(WithoutNone):
        @staticmethod
        def forward(ctx, x):
            return [x * 2]


    def dropout(x):
        return torch.nn.functional.dropout(x)


    def imports_late(x):
        import late

        return late.SCALE * x
''')


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "_LOADED", {})
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return path


def line_of(text):
    return next(number for number, line in enumerate(FUNCTIONS.splitlines(), 1) if text in line)


def check(function, inputs="make_inputs", **options):
    return check_function(f"functions.py:{function}", f"functions.py:{inputs}", **options)


def refused(function, inputs="make_inputs", **options):
    with pytest.raises(CheckError) as caught:
        check(function, inputs, **options)
    message = caught.value.message
    assert "\n" not in message
    return message


# ----------------------------------------------------------------------------------------------------- what is found
@pytest.mark.usefixtures("file")
def test_a_right_function_passes_in_float64():
    report = check("Product")
    wide, given = report["checks"]["float64"], report["checks"]["float32"]
    assert wide["passed"]
    assert wide["torch"]["passed"]
    assert not given["passed"]
    assert [(each["output"], each["input"], each["size"]) for each in wide["comparisons"]] == [
        ("out", "inp", [6, 12]),
        ("out", "weight", [6, 8]),
    ]
    text = report_text(report)
    assert re.search(r"^passed$", text, re.MULTILINE)
    assert "torch.autograd.gradcheck says the same" in text
    assert "In float32, as the inputs are given" in text
    assert "no mistake of backward" in text


@pytest.mark.usefixtures("file")
def test_a_wrong_function_fails_with_its_worst_element():
    report = check("Twice", "in_double")
    assert list(report["checks"]) == ["float64"]
    inp, weight = report["checks"]["float64"]["comparisons"]
    assert inp["passed"]
    assert not weight["passed"]
    worst = weight["worst"]
    assert worst["analytic"] == pytest.approx(2 * worst["numeric"], rel=1e-6)
    row = next(line for line in report_text(report).splitlines() if line.startswith("out") and "weight" in line)
    assert row.split()[-1] == "DIFFER"
    assert f"weight{worst['input_index']}" in row
    assert "FAILED: 1 of 2 Jacobians differ" in report_text(report)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "inputs", "names"),
    [
        ("WithContext", "one", [("out", "base")]),
        ("two_outputs", "make_inputs", [("out[0]", "a"), ("out[0]", "b"), ("out[1]", "a"), ("out[1]", "b")]),
    ],
)
def test_other_kinds_of_functions(function, inputs, names):
    found = check(function, inputs)["checks"]["float64"]
    assert found["passed"]
    assert [(each["output"], each["input"]) for each in found["comparisons"]] == names


@pytest.mark.usefixtures("file")
def test_a_gradient_that_is_not_finite_fails():
    found = check("infinite_gradient")["checks"]["float64"]
    assert not found["passed"]
    assert found["max_difference"] == "NaN"
    report = check("infinite_gradient")
    assert "NaN" in report_text(report)
    assert report["checks"]["float32"]["analytic"]["agrees"]
    assert not report["passed"]


@pytest.mark.usefixtures("file")
def test_seed_and_tolerances():
    first, again, other = check("Product", seed=1), check("Product", seed=1), check("Product", seed=2)
    assert first == again
    assert first != other
    assert check("Twice", atol=10.0)["checks"]["float64"]["passed"]
    assert not check("Product", eps=1e-13)["checks"]["float64"]["passed"]


@pytest.mark.usefixtures("file")
def test_a_large_jacobian_is_reported_by_its_part_around_the_worst_element(monkeypatch):
    monkeypatch.setattr("chainrule.gradcheck.report.MAX_SHOWN", 4)
    (_, weight) = check("Twice")["checks"]["float64"]["comparisons"]
    rows, columns = weight["window"]["rows"], weight["window"]["columns"]
    assert rows[1] - rows[0] == columns[1] - columns[0] == 4
    assert rows[0] <= weight["worst"]["row"] < rows[1]
    assert columns[0] <= weight["worst"]["column"] < columns[1]
    assert torch.tensor(weight["analytic"]["values"]).shape == (4, 4)
    assert weight["size"] == [6, 8]


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("WrongInFloat", r"^analytic in float32 differs from float64's, by up to \d+.*: look at backward\.$"),
        ("OnesInFloat", r"^backward does not multiply by grad_output: .*\.$"),
    ],
)
def test_a_backward_wrong_only_in_the_given_dtype_fails(function, says):
    report = check(function)
    assert report["checks"]["float64"]["passed"]
    assert not report["passed"]
    text = report_text(report)
    assert re.search(says, text, re.MULTILINE)
    assert (
        "FAILED: in float64 it passes, but not in the dtype given\ntorch.autograd.gradcheck passes it in float64"
        in text
    )
    assert "no mistake of backward" not in text


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("inputs", ["one", "in_half", "in_bfloat16"])
@pytest.mark.parametrize("function", ["WithContext", "softmax_total", "cubed_slope"])
def test_rounding_alone_passes(function, inputs):
    report = check(function, inputs)
    (dtype,) = report["checks"].keys() - {"float64"}
    assert report["checks"][dtype]["analytic"]["agrees"]
    assert report["passed"]


@pytest.mark.usefixtures("file")
def test_a_backward_that_does_not_take_none_fails():
    report = check("WithoutNone", "one")
    assert not report["passed"]
    text = report_text(report)
    assert "backward does not take an undefined grad_output for 0" in text
    assert "FAILED\ntorch.autograd.gradcheck says the same" in text


@pytest.mark.usefixtures("file")
def test_a_function_that_modifies_its_input_is_checked_on_copies():
    report = check("InPlace", "one")
    assert report["passed"]
    assert report["checks"]["float64"]["in_place"] == ["x"]
    assert "gradcheck says the same (on copies: it modifies x in place)" in report_text(report)


@pytest.mark.usefixtures("file")
def test_a_fault_found_by_torch_fails_the_check(monkeypatch):
    said = {"passed": False, "finds_fault": True, "message": "a fault"}
    monkeypatch.setattr("chainrule.gradcheck.check.torch_verdict", lambda *_, **__: said)
    report = check("Product")
    assert not report["passed"]
    assert "FAILED\ntorch.autograd.gradcheck fails it: a fault" in report_text(report)
    said |= {"finds_fault": False}
    report = check("Product")
    assert report["passed"]
    assert "passed\ntorch.autograd.gradcheck cannot check it: a fault" in report_text(report)


@pytest.mark.usefixtures("file")
def test_a_random_forward_is_reported():
    report = check("dropout", "one")
    assert not report["passed"]
    text = report_text(report)
    assert "forward is not repeatable" in text
    assert "backward" not in text


# ----------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "inputs", "says"),
    [
        ("TooFew", "make_inputs", r"^functions.py:\d+: .*incorrect number of gradients \(expected 2, got 1\)"),
        ("BadShape", "make_inputs", r"^functions.py:\d+: .*invalid gradient at index 0 - got \[3, 2\]"),
        ("NotFinite", "make_inputs", r"^functions.py:\d+: on float64 inputs output 0 is nan at \[0, 0\]"),
        ("constant", "make_inputs", r"^functions.py:\d+: no output requires grad"),
        ("detached", "make_inputs", r"^functions.py:\d+: no output requires grad"),
        (
            "ReturnsAList",
            "one",
            r"^functions.py:\d+: .*type list; a Function must return a tensor or a tuple of tensors",
        ),
        ("number", "make_inputs", r"^functions.py:\d+: forward returned a value of type float"),
        ("two_outputs", "one", r"^functions.py:\d+: forward raised on float64 inputs: TypeError: .*missing 1 required"),
        ("NoFunction", "make_inputs", "NoFunction is a class, but no torch.autograd.Function"),
        ("VALUE", "make_inputs", "VALUE is a value of type int, which cannot be called"),
        ("Absent", "make_inputs", r"functions.py: there is no Absent; there is .*Product"),
        ("Product", "absent", "functions.py: there is no absent"),
        ("Product", "VALUE", "functions.py:VALUE: a value of type int, not a function that makes the inputs"),
        ("Product", "a_dict", "functions.py:a_dict: it returned a value of type dict; wanted is a tuple"),
        ("Product", "no_gradient", "functions.py:no_gradient: none of its tensors requires grad"),
        ("Product", "complex_inputs", "its tensor 0 is torch.complex64: only real"),
        ("Product", "sparse_inputs", "its tensor 0 is not a dense one"),
        ("Product", "not_a_number", "its tensor 0 holds NaN or infinity"),
        ("Product", "needs_an_argument", "functions.py:needs_an_argument: making the inputs raised: TypeError"),
        ("Product", "large", "4800 elements that require grad and 3600 elements of output .* take smaller inputs"),
    ],
)
def test_unsupported_functions_and_inputs_are_refused_in_one_line(function, inputs, says):
    assert re.search(says, refused(function, inputs))


@pytest.mark.usefixtures("file")
def test_an_error_has_the_line_that_raised():
    assert refused("Raises").startswith(f"functions.py:{line_of('# RAISES')}: ")
    assert refused("Product", "breaks").startswith(f"functions.py:{line_of('# BREAKS')}: ")


@pytest.mark.parametrize(
    ("function", "inputs", "line"),
    [
        ("ExitsForward", "make_inputs", "# EXITS FORWARD"),
        ("ExitsBackward", "make_inputs", "# EXITS BACKWARD"),
        ("Product", "exits", "sys.exit(0)  # EXITS\n"),
    ],
)
@pytest.mark.usefixtures("file")
def test_a_function_that_exits_is_refused(function, inputs, line):
    number = FUNCTIONS[: FUNCTIONS.index(line)].count("\n") + 1
    message = refused(function, inputs)
    assert message.startswith(f"functions.py:{number}: ")
    assert message.endswith("SystemExit: 0")


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("functions.py:a b", "wanted is FILE.py:NAME"),
        ("none.py:f", "none.py: there is no such file"),
        ("broken.py:f", "broken.py:2: it does not import: ZeroDivisionError: division by zero"),
    ],
)
def test_a_bad_reference_is_refused(file, reference, says):
    file.with_name("broken.py").write_text("import torch\n1 / 0\n")
    for arguments in ((reference, "functions.py:make_inputs"), ("functions.py:Product", reference)):
        with pytest.raises(CheckError, match=re.escape(says)):
            check_function(*arguments)


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("option", [{"eps": 0.0}, {"eps": float("nan")}, {"atol": -1.0}, {"rtol": float("inf")}])
def test_bad_options_are_refused(option):
    (name,) = option
    assert refused("Product", **option).startswith(f"--{name}: ")


def test_a_file_imports_its_neighbours_and_is_run_once(file):
    file.with_name("beside.py").write_text("SCALE = 2.0\n")
    user = file.with_name("user.py")
    user.write_text(
        "import torch\nfrom beside import SCALE\n"
        "with open('runs', 'a') as log: log.write('x')\n"
        "def f(x): return SCALE * x\n"
        "def make(): return torch.ones(2, requires_grad=True)\n"
    )
    assert check_function(f"{user}:f", "user.py:make")["checks"]["float64"]["passed"]
    assert file.with_name("runs").read_text() == "x"
    assert str(file.parent) not in sys.path


def test_a_function_may_import_when_it_is_called(file):
    file.with_name("late.py").write_text("SCALE = 2.0\n")
    before = list(sys.path)
    assert check("imports_late", "one")["passed"]
    assert sys.path == before


# ---------------------------------------------------------------------------------------------------- the command line


OPTIONS = ("--inputs", "functions.py:make_inputs")


@pytest.mark.parametrize(("function", "status"), [("Product", 0), ("Twice", 1), ("WrongInFloat", 1), ("Raises", 2)])
@pytest.mark.usefixtures("file")
def test_the_exit_status_is_the_verdict(function, status):
    done = CliRunner().invoke(commands, ["gradcheck", f"functions.py:{function}", *OPTIONS], catch_exceptions=False)
    assert done.exit_code == status
    if status == 2:
        assert done.stdout == ""
        assert done.stderr.startswith(f"chainrule: functions.py:{line_of('# RAISES')}: ")
        assert len(done.stderr.splitlines()) == 1
    else:
        assert done.stderr == ""
        assert done.stdout.startswith(f"{function} in float64: eps 1e-06")


@pytest.mark.parametrize("seed", ["-1", str(2**64), "x"])
@pytest.mark.usefixtures("file")
def test_a_bad_seed_is_refused(seed):
    done = CliRunner().invoke(commands, ["gradcheck", "functions.py:Product", *OPTIONS, f"--seed={seed}"])
    assert done.exit_code == 2
    assert "--seed" in done.stderr


def test_open_serves_the_page_on_loopback_and_keeps_the_exit_status(file):
    arguments = ("functions.py:Twice", *OPTIONS, "--open", "--no-browser")
    with serving(*arguments, command="gradcheck", folder=file.parent) as (process, address):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/gradcheck", address)
        page = httpx.get(address)
        assert page.status_code == 200
        assert "Gradient check of Twice" in page.text
        assert "<strong>not right</strong>" in page.text
        assert str(file.parent) not in page.text
        report = httpx.get(f"{address}.json").json()
        assert not report["checks"]["float64"]["passed"]
        assert report["file"] == "functions.py"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 1
