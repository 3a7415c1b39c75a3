"""The results of the automatic check of a Function: faults, notes on intended differences, and unchecked Functions."""

import math
import random
from itertools import count

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from functions import made
from process_state import left_behind, random_state
from torch import nn
from torch.autograd import Function

from chainrule.chapter.custom_functions import EXERCISES, FUNCTIONS
from chainrule.diagnose import backward_check
from chainrule.diagnose.backward_check import OutOfTimeError, check_backward
from chainrule.errors import StoppedError
from chainrule.foundations.exercises import SOLUTIONS
from chainrule.foundations.gradient_check import with_dtype
from chainrule.stopping import Stop, stoppable


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def found(function, *arguments):
    return check_backward(function, arguments or (normal(6, 5),), math.inf)


def told(function, *arguments):
    finding = found(function, *arguments)
    return None if finding is None else (finding.level, finding.message)


def of_input(forward, derivative, name="Made"):
    """A Function that saves its input: out = forward(x), grad_x = derivative(x) · grad_out."""

    def run(ctx, x):
        ctx.save_for_backward(x)
        return forward(x)

    return made(run, lambda ctx, gradient: gradient * derivative(*ctx.saved_tensors), name)


def hand_on(_, gradient):
    return gradient


def point_of(case):
    return with_dtype(case.draw({"batch": 4, "n": 5, "fan_out": 3}, torch.Generator().manual_seed(0)), torch.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_chapters_functions_are_right(name):
    assert found(FUNCTIONS[name].function, *point_of(FUNCTIONS[name])) is None


@pytest.mark.parametrize("name", EXERCISES)
def test_the_exercises_mistakes_are_found(name):
    finding = found(EXERCISES[name].function, *point_of(EXERCISES[name]))
    # A loss that ignores grad_output is correct if grad_output is 1.
    is_loss = "The factor grad_output is missing" in SOLUTIONS[EXERCISES[name].function].shows
    assert finding.level == ("note" if is_loss else "fault")
    assert ("does not multiply by grad_output" in finding.message) == is_loss


def test_the_worst_element_is_told_with_both_values():
    x = torch.tensor([[0.5, 0.0], [1.0, 3.0]], requires_grad=True)
    wrong = of_input(torch.sin, lambda x: torch.where(x == 1, -x.cos(), x.cos()), "Sine")
    expected = f"{math.cos(1):.3g}"
    assert told(wrong, x) == (
        "fault",
        f"the backward of Sine gives -{expected} for input x[1, 0], but finite differences of its forward give "
        f"{expected}",
    )


ROUND = made(lambda _, x: x.round(), hand_on, "Round")
SIGN = of_input(torch.sign, lambda x: x.abs() < 1, "Sign")
SPIKE = of_input(lambda x: (x > 0).to(x.dtype), lambda x: (1 + 10 * x.abs()) ** -2, "Spike")


class LearnedStep(Function):
    """The quantizer of S. K. Esser et al. 2020, Learned Step Size Quantization."""

    @staticmethod
    def forward(ctx, x, step):
        ctx.save_for_backward(x / step)
        return (x / step).clamp(-4, 3).round() * step

    @staticmethod
    def backward(ctx, gradient):
        (steps,) = ctx.saved_tensors
        inside = (steps > -4) & (steps < 3)
        of_step = torch.where(inside, steps.round() - steps, steps.clamp(-4, 3))
        return gradient * inside, (gradient * of_step).sum()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (ROUND, [normal(6, 5)]),
        (ROUND, [normal(200, 300)]),  # a sample
        (SIGN, [normal(6, 5)]),
        (SPIKE, [normal(6, 5)]),
        (LearnedStep, [normal(6, 5), torch.tensor(0.3, requires_grad=True)]),
    ],
)
def test_straight_through_estimators_are_notes(function, arguments):
    level, message = told(function, *arguments)
    assert level == "note"
    assert message.startswith(
        f"the backward of {function.__name__} is not the derivative of its forward: forward is piecewise constant in x."
    )


@pytest.mark.parametrize("derivative", [torch.ones_like, lambda x: 2 * torch.ones_like(x)])
def test_a_gradient_where_forward_is_constant_is_a_note_only_if_all_else_is_right(derivative):
    level, message = told(of_input(lambda x: x.clamp(-0.5, 0.5), derivative))
    wrong = bool((derivative(torch.ones(1)) != 1).any())
    assert level == ("fault" if wrong else "note")
    assert wrong or "elements of x that do not change its forward" in message


def with_loss(_, x, loss):  # noqa: ARG001
    return x


def nearest(_, x, code):  # noqa: ARG001
    return code.clone()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (made(lambda _, x: x.view_as(x), lambda _, gradient: -0.1 * gradient, "Reversal"), [normal(6, 5)]),
        (made(lambda _, x: x.clone(), lambda _, gradient: gradient.clamp(-0.1, 0.1), "Clipped"), [normal(6, 5)]),
        # DeepSeek's AddAuxiliaryLoss.
        (made(with_loss, lambda _, gradient: (gradient, torch.ones(()))), [normal(6, 5), normal()]),
        # A. van den Oord et al. 2017, VQ-VAE: the gradient of the code goes to what was quantized.
        (made(nearest, lambda _, gradient: (gradient, None)), [normal(6, 5), normal(6, 5)]),
    ],
)
def test_functions_that_hand_their_input_through_are_notes(function, arguments):
    level, message = told(function, *arguments)
    assert (level, "forward returns its input unchanged" in message) == ("note", True)


def test_a_sum_with_zeros_does_not_hand_its_input_through():
    first_row = made(lambda _, x, bias: x + bias, lambda _, gradient: (gradient, gradient[0]))
    level, message = told(first_row, normal(6, 5), torch.zeros(5, requires_grad=True))
    assert level == "fault"
    assert "gives 0 for input bias[" in message
    assert message.endswith("give 1")


def test_a_forward_that_refuses_other_values_does_not_hand_its_input_through():
    def positive(x):
        if bool((x <= 0).any()):
            raise ValueError("wanted are positive values")
        return x.abs()

    assert found(of_input(positive, lambda _: -1), torch.ones(3, requires_grad=True)).level == "fault"


def test_none_in_place_of_a_gradient_is_a_note():
    product = made(lambda _, x, y: x * y, lambda _, gradient: (gradient, None))
    ones = torch.ones(6, 5, requires_grad=True)
    level, message = told(product, normal(6, 5), ones)
    assert (level, "returns None for y, but its forward depends on it" in message) == ("note", True)
    assert told(product, normal(6, 5), 2 * ones.detach())[0] == "fault"


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_forward_draws_the_same_random_numbers_each_time(dropout, wrong):
    def forward(ctx, x):
        ctx.kept = torch.rand_like(x) > 0.5 if dropout else torch.from_numpy(np.random.rand(*x.shape)) + random.random()
        return x * ctx.kept * 2

    generator = random_state()
    finding = found(made(forward, lambda ctx, gradient: gradient * ctx.kept * (1 if wrong else 2)))
    assert (finding is not None and finding.level) == ("fault" if wrong else False)
    assert random_state() == generator


NOT_LINEAR = {
    "size": torch.abs,
    "square": torch.square,
    "positive part": lambda gradient: gradient.clamp(min=0),
    "clipped": lambda gradient: gradient.clamp(-1, 1),
    "sign": torch.sign,
}


@pytest.mark.parametrize("shape", [(6, 5), (), (200, 300)], ids=str)
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_backward_that_is_not_linear_is_a_fault_unless_forward_hands_through(name, shape):
    bent = NOT_LINEAR[name]

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    def backward(ctx, gradient):
        return bent(gradient) * (1 - ctx.saved_tensors[0].tanh() ** 2)

    level, message = told(made(forward, backward), normal(*shape))
    assert level == "fault"
    assert "is not linear in grad_output" in message
    level, message = told(made(lambda _, x: x.clone(), lambda _, gradient: bent(gradient)), normal(*shape))
    assert (level, "forward returns its input unchanged" in message) == ("note", True)


def test_the_bent_gradient_is_told_with_both_values():
    bent = made(lambda _, x: 3 * x, lambda _, gradient: 3 * gradient.abs(), "Bent")
    assert told(bent, normal(1)) == (
        "fault",
        "the backward of Bent is not linear in grad_output: for a grad_output of -1 it gives 3 for input x[0], but "
        "grad_output times the derivative is -3",
    )


def test_a_gradient_in_bfloat16_is_linear():
    product = made(lambda _, x: 3 * x, lambda _, gradient: (3 * gradient.bfloat16()).to(gradient.dtype))
    assert found(product) is None


def test_a_backward_may_write_into_the_gradient_that_comes_in():
    def single(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 alone")
        return 3 * x

    assert found(made(lambda _, x: single(x), lambda _, gradient: gradient.mul_(3))) is None


KINKS = {
    "relu": (torch.relu, lambda x: x > 0),
    "abs": (torch.abs, torch.sign),
    "sqrt": (torch.sqrt, lambda x: 0.5 / x.sqrt()),
    "log": (torch.log, lambda x: 1 / x),
    "exp": (lambda x: (50 * x).exp(), lambda x: 50 * (50 * x).exp()),
    "norm": (lambda x: x / (x * x + 1e-12).sqrt(), lambda x: 1e-12 / (x * x + 1e-12) ** 1.5),
}


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("sign", [1, -1])
def test_kinks_poles_and_wide_ranges_hide_no_error_and_make_none(name, sign):
    forward, derivative = KINKS[name]
    tiny = normal(8).detach().abs() ** torch.arange(1, 17, 2)
    x = torch.cat([torch.zeros(8), torch.arange(1.0, 5.0), tiny]).requires_grad_()
    finding = found(of_input(forward, lambda x: sign * derivative(x)), x)
    assert (finding is None) if sign == 1 else finding.level == "fault"


@pytest.mark.parametrize("x", [torch.zeros(4), -torch.ones(4)], ids=["kink", "NaN"])
def test_points_without_a_derivative_are_unchecked(x):
    root = of_input(lambda x: x.abs().sqrt() + x.sqrt(), lambda x: x)
    level, message = told(root, x.requires_grad_())
    assert level == "unchecked"
    assert "finite differences do not work for x" in message


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [1, 100])
def test_a_forward_that_computes_in_float32_is_judged_by_larger_steps(sign, scale):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.layer_norm(x.float(), (16,)).to(x.dtype)

    def backward(ctx, gradient):
        _, pull = torch.func.vjp(lambda x: F.layer_norm(x, (16,)), ctx.saved_tensors[0].float())
        return sign * pull(gradient.float())[0].to(gradient.dtype)

    finding = found(made(forward, backward), scale * normal(8, 16).detach().requires_grad_() * 1)
    assert finding is None if sign == 1 else finding.level == "fault"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_function_of_float32_alone_is_checked_in_it(sign):
    def sine(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 alone")
        return x.sin()

    finding = found(of_input(sine, lambda x: sign * x.cos()))
    assert finding is None if sign == 1 else finding.level == "fault"
    level, message = told(of_input(sine, torch.cos, "Sine"), normal(6, 5).half())
    assert level == "unchecked"
    assert message.endswith("Sine were not checked: a repeated call raised TypeError: float32 alone")


def doubled_at_first():
    """The factor on the gradient grows with each call."""
    calls = count(1)
    return made(lambda _, x: 2 * x, lambda _, gradient: gradient * next(calls))


def of_own_generator():
    generator = torch.Generator().manual_seed(0)
    return made(lambda _, x: x * torch.rand((), generator=generator), hand_on)


def rounded_at_random():
    """Its gradient is right on average."""
    return made(lambda _, x: 2 * x, lambda _, gradient: 2 * gradient + torch.rand_like(gradient) - 0.5)


def with_module(inner):
    return made(lambda _, x: inner(x), hand_on)


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        (of_own_generator(), [normal(3)], "a repeated call returned a different result; it may use random numbers"),
        (rounded_at_random(), [normal(3)], "its backward returns a different gradient at each call"),
        (doubled_at_first(), [normal(3)], "its backward returns a different gradient at each call"),
        (with_module(nn.Identity()), [normal(3)], "it runs a Identity, and a repeated call could change that module"),
        (made(lambda _, x: x * 2, hand_on), [normal(3) * (1 + 1j)], "complex numbers"),
        (
            made(lambda _, x: x.half(), hand_on),
            [normal(3)],
            "it returns torch.float16, which is too imprecise for finite differences",
        ),
    ],
)
def test_what_cannot_be_checked_is_said(function, arguments, why):
    level, message = told(function, *arguments)
    assert level == "unchecked"
    assert why in message


def test_a_backward_may_change_what_it_has_kept_and_drop_it():
    def forward(ctx, x):
        ctx.kept = x.cos()
        return x.sin()

    def overwrite(ctx, gradient):
        return ctx.kept.mul_(gradient)

    def drop(ctx, gradient):
        kept, ctx.kept = ctx.kept, None
        return gradient * kept

    assert found(made(forward, overwrite)) is None
    assert found(made(forward, drop)) is None


def test_an_approximated_derivative_is_right_within_a_hundredth():
    def by_tanh(x):
        return torch.func.vjp(lambda x: F.gelu(x, approximate="tanh"), x)[1](torch.ones_like(x))[0]

    assert found(of_input(F.gelu, by_tanh)) is None
    assert found(of_input(torch.exp, lambda x: 1.05 * x.exp())).level == "fault"


def test_nothing_that_learns_is_nothing_to_check():
    def forward(ctx, x):
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        return positive

    assert found(made(forward, hand_on)) is None
    assert found(made(lambda _, x: 2 * x, hand_on), torch.zeros(0, 3, requires_grad=True)) is None


def test_the_process_is_left_as_it_was(capsys):
    def forward(_, x):
        print("forward")
        random.random()
        np.random.rand()
        return 3 * x + 0 * torch.rand(())

    generator, state, x = random_state(), left_behind(), normal(3)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert found(made(forward, lambda _, gradient: 2 * gradient), x).level == "fault"
        assert torch.is_autocast_enabled("cpu")
    assert (random_state(), left_behind()) == (generator, state)
    assert x.grad is None
    assert torch.equal(x, normal(3))
    assert capsys.readouterr().out == ""


def test_it_stops_when_the_deadline_has_passed_or_it_is_asked_to(monkeypatch):
    clock = count()
    monkeypatch.setattr(backward_check, "perf_counter", lambda: next(clock))
    calls = []

    def forward(_, x):
        calls.append(x)
        return 2 * x

    with pytest.raises(OutOfTimeError):
        check_backward(made(forward, lambda _, gradient: 2 * gradient), (normal(50),), 12)
    assert 2 < len(calls) < 12
    stop = Stop()
    stop.ask(StoppedError("disconnected"))
    with stoppable(stop), pytest.raises(StoppedError):
        found(made(forward, hand_on))
