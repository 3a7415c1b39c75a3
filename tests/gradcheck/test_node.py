"""A custom Function of a user's model, checked at the arguments of its call."""

import json

import pytest
import torch
from functions import made
from torch import nn

from chainrule.errors import CheckError, NotFoundError
from chainrule.gradcheck import sample as sampled_check
from chainrule.gradcheck.node import check_node
from chainrule.gradcheck.sample import MAX_CHECKED
from chainrule.user_model.model import UserModel
from chainrule.user_model.subject import make_subject
from chainrule.user_model.what_if import WhatIf


class Cube(torch.autograd.Function):
    """`factor · x³`, with the gradient of x³ times `wrong` where x > 1."""

    @staticmethod
    def forward(ctx, x, factor, wrong):
        ctx.save_for_backward(x)
        ctx.factor, ctx.wrong = factor, wrong
        return factor * x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        right = 3 * ctx.factor * x**2 * gradient
        return torch.where(x > 1, ctx.wrong * right, right), None, None


class Cubes(nn.Module):
    """Two calls of `Cube`: a right one, and one with `wrong`."""

    def __init__(self, width=3, wrong=1.0):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.wrong = wrong
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(width))
            self.layer.bias.zero_()

    def forward(self, x):
        hidden = self.layer(x)
        return Cube.apply(hidden, 0.5, 1.0) + Cube.apply(hidden, 2.0, self.wrong)


def through(function):
    """A model that applies a Function to the output of a linear layer."""
    return type("Model", (nn.Linear,), {"forward": lambda self, x: function.apply(nn.Linear.forward(self, x))})(3, 3)


def own(model, x, **options):
    return UserModel("m", lambda: make_subject((model, x, torch.sum), "m", **options))


def ops_called(model, name, phase="forward"):
    return [op.id for op in model.tracer().trace(WhatIf()).ops if op.name == name and op.phase == phase]


X = torch.tensor([[-0.5, 0.25, 2.0]])


def test_a_right_function_passes_at_the_arguments_of_its_call():
    model = own(Cubes(), X)
    for op, factor in zip(ops_called(model, "pow"), (0.5, 2.0), strict=True):
        report = check_node(model, WhatIf(), op)
        assert (report["passed"], report["name"], report["op"], report["sampled"]) == (True, "Cube", op, None)
        assert report["file"].endswith("test_node.py")
        assert set(report["checks"]) == {"float64", "float32"}
        (comparison,) = report["checks"]["float64"]["comparisons"]
        assert (comparison["output"], comparison["input"]) == ("out", "x")
        # d(factor x³)/dx at the very x of the pass.
        diagonal = [comparison["analytic"]["values"][place][place] for place in range(3)]
        assert diagonal == pytest.approx((3 * factor * X[0] ** 2).tolist())
        json.dumps(report, allow_nan=False)


def test_only_the_wrong_call_fails_and_names_its_worst_place():
    module = Cubes(wrong=2.0)
    model = own(module, X)
    before, state = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    first, second = ops_called(model, "pow")
    assert check_node(model, WhatIf(), first)["passed"]
    report = check_node(model, WhatIf(), second)
    assert not report["passed"]
    worst = report["checks"]["float64"]["comparisons"][0]["worst"]
    assert worst["input_index"] == worst["output_index"] == [0, 2]
    assert worst["analytic"] == pytest.approx(2 * worst["numeric"])
    # Scaled, no value exceeds 1, so the wrong gradient is not used.
    assert check_node(model, WhatIf(scale=0.4), second)["passed"]
    # A backward op stands for its forward op.
    trace = model.tracer().trace(WhatIf())
    module_of = {op.id: op.module for op in trace.ops}
    backward = [op.id for op in trace.ops if op.phase == "backward" and op.module == module_of[second]]
    report = check_node(model, WhatIf(), backward[-1])
    assert (report["passed"], report["op"]) == (False, backward[-1])
    # Model and generator are unchanged.
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_kink_is_explained():
    relu = made(lambda _, x: x.relu(), lambda _, gradient: gradient)
    model = through(relu)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
        model.bias.zero_()
    model = own(model, torch.tensor([[1.0, 2.0, 0.0]]))
    (op,) = ops_called(model, "relu")
    (comparison,) = check_node(model, WhatIf(), op)["checks"]["float64"]["comparisons"]
    assert comparison["worst"]["input_index"] == [0, 2]
    assert comparison["kink"].startswith("The forward has a kink here: the differences from the left (0) and the right")


def test_ops_of_an_inner_function_check_the_inner_function():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x, 0.001, 1.0).exp()

    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 0.003 * x**2 * (0.001 * x**3).exp() * gradient

    torch.manual_seed(0)
    model = own(through(made(forward, backward, "Shifted")), X)
    names = {name: check_node(model, WhatIf(), ops_called(model, name)[0])["name"] for name in ("pow", "exp")}
    assert names == {"pow": "Cube", "exp": "Shifted"}


@pytest.mark.parametrize("rows", [1, pytest.param(400, marks=pytest.mark.long)])
def test_large_tensors_are_sampled_with_places_of_the_whole(rows):
    x = torch.linspace(-1, 0.9, rows * 600).reshape(rows, 600)
    right = own(Cubes(600), x)
    op = ops_called(right, "pow")[1]
    report = check_node(right, WhatIf(), op)
    assert report["passed"]
    columns, of = report["sampled"]["columns"]
    assert 16 <= columns < of == x.numel() > MAX_CHECKED
    assert columns <= report["sampled"]["rows"][0] < of
    (comparison,) = report["checks"]["float64"]["comparisons"]
    assert comparison["input_shape"] == comparison["output_shape"] == [rows, 600]
    # The Jacobian is diagonal: each sampled column has its nonzero row.
    shown = torch.tensor(comparison["analytic"]["values"])
    assert (shown != 0).sum() >= 16

    wrong = own(Cubes(600, wrong=1.5), x * 2)
    report = check_node(wrong, WhatIf(), op)
    assert not report["passed"]
    worst = report["checks"]["float64"]["comparisons"][0]["worst"]
    assert worst["input_index"] == worst["output_index"]
    assert (2 * x)[tuple(worst["input_index"])] > 1


class Gate(torch.autograd.Function):
    """The positive part of x, a mask and a value that is no tensor."""

    @staticmethod
    def forward(ctx, x, mode):
        inside = x > 0
        ctx.save_for_backward(inside)
        ctx.mark_non_differentiable(inside)
        return x * inside, inside, mode

    @staticmethod
    def backward(ctx, gradient, *_):
        (inside,) = ctx.saved_tensors
        return gradient * inside, None


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        out, inside, _ = Gate.apply(x * self.scale, "gate")
        return torch.where(inside, out, -out)


@pytest.mark.parametrize("width", [3, 600])
def test_boolean_and_other_outputs_are_skipped(width):
    model = own(Gated(width), torch.linspace(-1, 1.1, width).reshape(1, width))
    report = check_node(model, WhatIf(), ops_called(model, "mul")[1])
    assert (report["name"], report["passed"], report["sampled"] is None) == ("Gate", True, width == 3)
    (comparison,) = report["checks"]["float64"]["comparisons"]
    assert (comparison["output"], comparison["input"]) == ("out[0]", "x")


def test_small_inputs_beside_large_ones_are_checked_completely():
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum(0) * torch.tensor([1.0, 1.0, 7.0])

    weighed = made(forward, backward)

    class Model(Gated):
        def forward(self, x):
            return weighed.apply(x + 0 * self.scale, self.scale)

    model = own(Model(3), torch.randn(1000, 3))
    checks = check_node(model, WhatIf(), ops_called(model, "mul")[-1])["checks"]["float64"]["comparisons"]
    by_input = {check["input"]: check for check in checks}
    assert by_input["x"]["passed"]
    assert by_input["scale"]["size"][1] == 3
    assert by_input["scale"]["worst"]["input_index"] == [2]


def test_random_numbers_drawn_in_a_check_are_restored():
    def forward(ctx, x):
        ctx.factor = torch.rand(())
        return x * ctx.factor

    model = own(through(made(forward, lambda ctx, gradient: gradient * ctx.factor)), X)
    (op,) = ops_called(model, "mul")
    before = torch.get_rng_state()
    assert not check_node(model, WhatIf(), op)["passed"], "it is another function each time"
    assert torch.equal(torch.get_rng_state(), before)


def test_other_ops_are_refused():
    model = own(Cubes(), X)
    (op,) = ops_called(model, "linear")
    with pytest.raises(CheckError, match=r"\(linear\) is not an op of a custom autograd.Function"):
        check_node(model, WhatIf(), op)
    with pytest.raises(NotFoundError, match="unknown op n999"):
        check_node(model, WhatIf(), "n999")


def test_too_many_elements_are_refused(monkeypatch):
    monkeypatch.setattr(sampled_check, "MAX_ELEMENTS", 100)
    model = own(Cubes(60), torch.randn(2, 60))
    with pytest.raises(CheckError, match="Cube is called with 120 elements; at most 100 can be checked"):
        check_node(model, WhatIf(), ops_called(model, "pow")[0])


def double_in_float32(_, x):
    if x.dtype != torch.float32:
        raise TypeError("float32 alone")
    return x * 2


def unlucky(*_):
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("forward", "backward", "says"),
    [
        (
            double_in_float32,
            lambda _, gradient: gradient * 2,
            "forward raised on float64 inputs: TypeError: float32 alone",
        ),
        (lambda _, x: x * 2, unlucky, ".*no luck"),
    ],
)
def test_a_function_that_raises_is_refused_with_its_line(forward, backward, says):
    model = own(through(made(forward, backward)), X)
    with pytest.raises(CheckError, match=rf"test_node.py:\d+: {says}") as told:
        check_node(model, WhatIf(), ops_called(model, "mul")[0])
    assert not told.value.message.startswith("/")
