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


    class WithoutNone(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2


    class InPlace(WithoutNone):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)


    def changed(base=Product, **methods):
        return type("Changed", (base,), {name: staticmethod(method) for name, method in methods.items()})


    def scaled(by):
        def backward(ctx, grad_output):
            grad_inp, grad_weight = Product.backward(ctx, grad_output)
            return grad_inp, by(grad_output) * grad_weight

        return changed(backward=backward)


    def is_narrow(g):
        return g.dtype != torch.float64


    Twice = scaled(lambda g: 2)
    WrongInFloat = scaled(lambda g: -70 if is_narrow(g) else 1)
    OnesInFloat = changed(
        backward=lambda ctx, g: tuple(each + (is_narrow(g) and not g.any()) for each in Product.backward(ctx, g))
    )
    TooFew = changed(backward=lambda ctx, g: g @ ctx.saved_tensors[1])
    BadShape = changed(backward=lambda ctx, g: (g, g))
    Raises = changed(backward=lambda ctx, g: g.nothing)  # RAISES
    NotFinite = changed(forward=lambda ctx, inp, weight: inp @ weight.t() * float("nan"))
    ExitsForward = changed(forward=lambda ctx, inp, weight: sys.exit(0))  # EXITS FORWARD
    ExitsBackward = changed(backward=lambda ctx, g: sys.exit(0))  # EXITS BACKWARD
    ReturnsAList = changed(WithoutNone, forward=lambda ctx, x: [x * 2])
    two_outputs = lambda a, b: ((a * a) @ b.t(), a.sum())
    number = lambda a, b: 3.0
    detached = lambda a, b: a.detach()
    relu = lambda x: x.relu()
    infinite_gradient = lambda a, b: (a * 0).abs().sqrt()
    softmax_total = lambda x: torch.softmax(x, 0).sum()
    dropout = lambda x: torch.nn.functional.dropout(x)
    VALUE = 3


    class NoFunction:
        pass


    def cubed_slope(x):
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return slope.square().sum()


    def imports_late(x):
        import late

        return late.SCALE * x


    def make_inputs():
        return torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)


    def in_double():
        return tuple(each.detach().double().requires_grad_() for each in make_inputs())


    def breaks():
        raise KeyError("weights")  # BREAKS


    one = lambda: torch.randn(3, requires_grad=True)
    at_zero = lambda: torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    in_half = lambda: torch.randn(4).half().requires_grad_()
    in_bfloat16 = lambda: torch.randn(4).bfloat16().requires_grad_()
    no_gradient = lambda: (torch.randn(3),)
    complex_inputs = lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),)
    sparse_inputs = lambda: (torch.eye(3).to_sparse().requires_grad_(),)
    not_a_number = lambda: (torch.tensor([float("nan")], requires_grad=True),)
    a_dict = lambda: {"x": 1}
    needs_an_argument = lambda size: (torch.randn(size, requires_grad=True),)
    exits = lambda: sys.exit(0)  # EXITS INPUTS
    large = lambda: (torch.randn(60, 40, requires_grad=True), torch.randn(60, 40, requires_grad=True))
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
    assert (wide["passed"], wide["torch"]["passed"], given["passed"]) == (True, True, False)
    assert [each["size"] for each in wide["comparisons"]] == [[6, 12], [6, 8]]
    text = report_text(report)
    assert re.search(r"^passed$", text, re.MULTILINE)
    assert "torch.autograd.gradcheck agrees" in text
    assert "In float32, the dtype of the inputs" in text
    assert "The finite differences fail, not backward" in text


@pytest.mark.usefixtures("file")
def test_a_wrong_function_fails_with_its_worst_element(monkeypatch):
    monkeypatch.setattr("chainrule.gradcheck.report.MAX_SHOWN", 4)
    report = check("Twice", "in_double")
    assert list(report["checks"]) == ["float64"]
    inp, weight = report["checks"]["float64"]["comparisons"]
    assert (inp["passed"], weight["passed"]) == (True, False)
    worst = weight["worst"]
    assert worst["analytic"] == pytest.approx(2 * worst["numeric"], rel=1e-6)
    row = next(line for line in report_text(report).splitlines() if line.startswith("out") and "weight" in line)
    assert row.split()[-1] == "DIFFER"
    assert f"weight{worst['input_index']}" in row
    assert "FAILED: 1 of 2 Jacobians differ" in report_text(report)
    # The report holds the part around it.
    for place, (start, stop) in (
        (worst["row"], weight["window"]["rows"]),
        (worst["column"], weight["window"]["columns"]),
    ):
        assert start <= place < stop == start + 4
    assert torch.tensor(weight["analytic"]["values"]).shape == (4, 4)


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
    report = check("infinite_gradient")
    assert report["checks"]["float64"]["max_difference"] == "NaN"
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
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            "WrongInFloat",
            r"^The analytic Jacobian in float32 differs from the one in float64 by up to \d+.*: look at backward\.$",
        ),
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
        "FAILED: it passes in float64, but not in the dtype of the inputs\ntorch.autograd.gradcheck passes it in"
        in text
    )
    assert "The finite differences fail, not backward" not in text


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("inputs", ["one", "in_half", "in_bfloat16"])
@pytest.mark.parametrize("function", ["WithContext", "softmax_total", "cubed_slope"])
def test_rounding_alone_passes(function, inputs):
    report = check(function, inputs)
    (dtype,) = report["checks"].keys() - {"float64"}
    assert report["checks"][dtype]["analytic"]["agrees"]
    assert report["passed"]


@pytest.mark.usefixtures("file")
def test_a_kink_is_explained():
    text = report_text(check("relu", "at_zero"))
    kink = "The forward has a kink here: the differences from the left (0) and the right (1) disagree. Move the input."
    assert f"out[0, 1] / x[0, 1]: {kink}\n" in text
    assert "FAILED: 1 of 1 Jacobians differ" in text


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("WithoutNone", "backward does not treat a grad_output of None as 0"),
        ("dropout", "forward is not repeatable"),
    ],
)
def test_other_faults_fail(function, fault):
    report = check(function, "one")
    assert not report["passed"]
    text = report_text(report)
    assert re.search(f"^{fault}", text, re.MULTILINE)
    assert ("backward" in text) == (function == "WithoutNone")


@pytest.mark.usefixtures("file")
def test_a_function_that_modifies_its_input_is_checked_on_copies():
    report = check("InPlace", "one")
    assert report["passed"]
    assert report["checks"]["float64"]["in_place"] == ["x"]
    assert "gradcheck agrees (on copies: x is modified in place)" in report_text(report)


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


# ----------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "inputs", "says"),
    [
        ("TooFew", "make_inputs", r"^functions.py:\d+: .*incorrect number of gradients \(expected 2, got 1\)"),
        ("BadShape", "make_inputs", r"^functions.py:\d+: .*invalid gradient at index 0 - got \[3, 2\]"),
        ("NotFinite", "make_inputs", r"^functions.py:\d+: on float64 inputs output 0 is nan at \[0, 0\]"),
        ("detached", "make_inputs", r"^functions.py:\d+: no output requires grad"),
        (
            "ReturnsAList",
            "one",
            r"^functions.py:\d+: forward returned a list; expected a tensor or a tuple of tensors",
        ),
        ("number", "make_inputs", r"^functions.py:\d+: forward returned a float; expected tensors"),
        ("two_outputs", "one", r"^functions.py:\d+: forward raised on float64 inputs: TypeError: .*missing 1 required"),
        ("NoFunction", "make_inputs", "NoFunction is a class, but not a torch.autograd.Function"),
        ("VALUE", "make_inputs", "VALUE is of type int; expected a Function or a callable"),
        ("Absent", "make_inputs", r"functions.py: unknown name Absent; the file defines .*Product"),
        ("Product", "absent", "functions.py: unknown name absent"),
        ("Product", "VALUE", "functions.py:VALUE is of type int; expected a function that returns the inputs"),
        ("Product", "a_dict", "functions.py:a_dict: it returned a value of type dict; expected a tuple"),
        ("Product", "no_gradient", "functions.py:no_gradient: none of its tensors requires grad"),
        ("Product", "complex_inputs", "its tensor 0 is torch.complex64; only real"),
        ("Product", "sparse_inputs", "its tensor 0 has the layout torch.sparse_coo; only dense"),
        ("Product", "not_a_number", "its tensor 0 contains NaN or infinity"),
        (
            "Product",
            "needs_an_argument",
            "functions.py:needs_an_argument: the function of the inputs raised: TypeError",
        ),
        ("Product", "large", "4800 input elements that require grad and 3600 output elements .* use smaller inputs"),
    ],
)
def test_unsupported_functions_and_inputs_are_refused_in_one_line(function, inputs, says):
    assert re.search(says, refused(function, inputs))


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("function", "inputs", "line", "says"),
    [
        ("Raises", "make_inputs", "RAISES", "has no attribute 'nothing'"),
        ("Product", "breaks", "BREAKS", "KeyError: 'weights'"),
        ("ExitsForward", "make_inputs", "EXITS FORWARD", "SystemExit: 0"),
        ("ExitsBackward", "make_inputs", "EXITS BACKWARD", "SystemExit: 0"),
        ("Product", "exits", "EXITS INPUTS", "SystemExit: 0"),
    ],
)
def test_an_error_has_the_line_that_raised(function, inputs, line, says):
    message = refused(function, inputs)
    assert message.startswith(f"functions.py:{line_of(f'# {line}')}: ")
    assert message.endswith(says)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("functions.py:a b", "expected FILE.py:NAME"),
        ("none.py:f", "none.py: file not found"),
        ("broken.py:f", "broken.py:2: the import failed: ZeroDivisionError: division by zero"),
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
    assert check("imports_late", "one")["passed"]
    assert str(file.parent) not in sys.path


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
        page_address, token = address.split("?token=")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/gradcheck", page_address)
        assert httpx.get(page_address).status_code == 401
        page = httpx.get(address, follow_redirects=True)
        assert page.status_code == 200
        assert "Gradient check of Twice" in page.text
        assert "<strong>not correct</strong>" in page.text
        assert str(file.parent) not in page.text
        report = httpx.get(f"{page_address}.json", headers={"authorization": f"Bearer {token}"}).json()
        assert not report["checks"]["float64"]["passed"]
        assert report["file"] == "functions.py"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 1
