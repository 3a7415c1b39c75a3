"""Our gradient check agrees with torch's, for correct functions and for wrong ones."""

import math
from itertools import count

import pytest
import torch
from functions import made

from chainrule.chapter.custom_functions import EXERCISES, FUNCTIONS
from chainrule.foundations.gradient_check import (
    Comparison,
    analytic_jacobians,
    gradient_check,
    numeric_jacobians,
    with_dtype,
)

CASES = {**FUNCTIONS, **EXERCISES}
SIZES = {"batch": 3, "n": 3, "fan_out": 2}


def point_of(case, seed=0):
    return case.draw(SIZES, torch.Generator().manual_seed(seed))


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def verdict_of_torch(f, inputs, **tolerances):
    return torch.autograd.gradcheck(f, inputs, raise_exception=False, **tolerances)


@pytest.mark.filterwarnings("ignore:Input #:UserWarning")  # that float32 is likely to fail is the point
@pytest.mark.parametrize("tolerances", [{}, {"eps": 1e-2}, {"eps": 1e-9}, {"atol": 0.5, "rtol": 0.5}, {"atol": 0.0}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_torchs(case, dtype, tolerances):
    inputs = with_dtype(point_of(case), dtype)
    ours = gradient_check(case.apply, inputs, **tolerances)
    assert ours.passed == verdict_of_torch(case.apply, inputs, **tolerances)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_jacobians_are_autograds_and_those_of_the_plain_expression(case):
    inputs = point_of(case)
    tensors = tuple(each for each in inputs if isinstance(each, torch.Tensor))
    rest = inputs[len(tensors) :]
    expected = torch.autograd.functional.jacobian(lambda *args: case.apply(*args, *rest), tensors)
    per_output = expected if isinstance(case.apply(*inputs), tuple) else (expected,)
    for (output, position), ours in analytic_jacobians(case.apply, inputs).items():
        block = per_output[output]
        block = block[position] if isinstance(block, tuple) else block
        torch.testing.assert_close(ours, block.reshape(ours.shape), rtol=0, atol=0)
    right = analytic_jacobians(case.plain, inputs)
    for key, numeric in numeric_jacobians(case.apply, inputs, 1e-6).items():
        torch.testing.assert_close(numeric, right[key], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "inp",
    [
        torch.randn(4, 3, dtype=torch.float64).t(),
        torch.randn(5, dtype=torch.float64)[::2],
        torch.tensor(0.7, dtype=torch.float64),
        torch.zeros(0, 3, dtype=torch.float64),
        torch.randn(3, 1, dtype=torch.float64).expand(3, 2),
    ],
    ids=["transposed", "every second", "scalar", "no elements", "expanded"],
)
def test_any_layout_and_shape(inp):
    inp = inp.detach().requires_grad_()
    check = gradient_check(lambda x: (x.sin() * x).sum(0), (inp,))
    assert check.passed
    assert check.comparisons[0].analytic.shape == (math.prod(inp.shape[1:]), inp.numel())
    before = inp.detach().clone()
    numeric_jacobians(torch.exp, (inp,), 1e-3)
    assert torch.equal(inp, before)


@pytest.mark.parametrize(
    ("f", "inputs", "compared"),
    [
        (lambda a, b: (a.exp(), b.exp()), (leaf(1, 1), leaf(1, 1)), [(0, 0), (0, 1), (1, 0), (1, 1)]),  # zeros
        (lambda x: x.mul_(2).exp_(), (leaf(0.3, -0.2),), [(0, 0)]),  # in place
        (lambda x, power, i: (x.argmax() + i, x**power), (leaf(1, 2), 3, torch.tensor(1)), [(1, 0)]),
        (lambda x: (x > 0, x**2), (leaf(-1, 2),), [(1, 0)]),  # truth values
    ],
)
def test_what_can_be_differentiated_is_compared(f, inputs, compared):
    before = inputs[0].tolist()
    check = gradient_check(f, inputs)
    assert check.passed
    assert [(each.output, each.input) for each in check.comparisons] == compared
    assert inputs[0].tolist() == before


def test_nothing_to_differentiate_is_an_error():
    with pytest.raises(ValueError, match="no input requires grad"):
        gradient_check(torch.exp, (torch.ones(2, dtype=torch.float64),))
    with pytest.raises(ValueError, match="no output requires grad"):
        gradient_check(torch.Tensor.detach, (torch.ones(2, dtype=torch.float64).requires_grad_(),))


def test_a_backward_that_changes_between_calls_fails():
    factors = count(2, 1e-9)
    drifting = made(lambda _, inp: inp * 2, lambda _, grad_output: grad_output * next(factors))
    check = gradient_check(drifting.apply, (leaf(1, 1),))
    assert all(each.passed for each in check.comparisons)
    assert (check.forward_repeatable, check.backward_repeatable, check.passed) == (True, False, False)


@pytest.mark.parametrize(
    ("without_gradient", "takes"),
    [
        (lambda: None, True),
        (lambda: torch.zeros(2, dtype=torch.float64), True),
        (lambda: torch.ones(2, dtype=torch.float64), False),
        (lambda: None * 2, False),
    ],
    ids=["None", "zeros", "ones", "raises"],
)
@pytest.mark.filterwarnings("ignore:Backwards compatibility:UserWarning")
def test_an_undefined_gradient_counts_as_zero(without_gradient, takes):
    def forward(ctx, inp):
        ctx.set_materialize_grads(False)
        return inp * 2

    f = made(forward, lambda _, gradient: without_gradient() if gradient is None else 2 * gradient).apply
    check = gradient_check(f, (leaf(1, 1),))
    assert check.zero_for_zero
    assert check.takes_undefined is check.passed is takes
    try:
        assert verdict_of_torch(f, (leaf(1, 1),)) is takes
    except TypeError:  # it lets the error of None * 2 through
        assert not takes


def test_either_of_two_outputs_may_be_without_gradient():
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a + b, a - b

    def backward(_, of_sum, of_difference):
        if of_sum is None:
            return (None, None) if of_difference is None else (of_difference, -of_difference)
        # The mistake: 1 too much where the difference is not used.
        return (of_sum + 1, of_sum) if of_difference is None else (of_sum + of_difference, of_sum - of_difference)

    assert not gradient_check(made(forward, backward).apply, (leaf(1), leaf(1))).takes_undefined


def kinks(f, x, **options):
    return [each.kink for each in gradient_check(f, (x,), **options).comparisons]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("share", [-0.75, 0.0, 0.5])
@pytest.mark.parametrize("eps", [1e-2, 1e-4, 1e-6])
def test_a_kink_within_eps_is_found_with_both_slopes(dtype, share, eps):
    x = torch.tensor([share * eps], dtype=dtype, requires_grad=True)
    ((left, right),) = kinks(torch.relu, x, eps=eps)
    # relu from x − eps to x, and from x to x + eps.
    assert (left, right) == pytest.approx((max(share, 0.0), min(1 + share, 1.0)), abs=1e-6)


def test_only_a_kink_that_explains_the_error_is_found():
    wrong = made(lambda _, inp: inp.relu(), lambda _, grad_output: 3 * grad_output).apply
    assert kinks(torch.relu, leaf(0.3)) == kinks(wrong, leaf(0.3)) == kinks(wrong, leaf(0.0)) == [None]
    assert kinks(torch.relu, torch.tensor([0.3], requires_grad=True)) == [None], "rounding in float32"
    assert kinks(torch.exp, leaf(1.0), eps=1.0) == kinks(torch.cos, leaf(1.5), eps=1.0) == [None], "curvature"


@pytest.mark.parametrize(
    ("analytic", "numeric", "tolerance", "passed"),
    [
        (1.0, 1.1, 0.2, True),
        (1.0, 1.1, 0.05, False),
        (math.nan, 1.0, 1.0, False),
        (math.nan, math.nan, 1.0, False),
        (math.inf, math.inf, math.inf, True),
        (-math.inf, math.inf, math.inf, False),
        (1.0, math.inf, math.inf, False),
    ],
)
def test_elements_agree_as_in_torch_allclose(analytic, numeric, tolerance, passed):
    elements = (torch.tensor([[each]], dtype=torch.float64) for each in (analytic, numeric, tolerance))
    assert Comparison(0, 0, *elements).passed is passed
    atol, rtol = (tolerance, 0.0) if math.isfinite(tolerance) else (0.0, 1.0)
    assert torch.allclose(torch.tensor(analytic), torch.tensor(numeric), rtol, atol) is passed
