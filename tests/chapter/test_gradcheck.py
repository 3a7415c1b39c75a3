import inspect
import math
from pathlib import Path

import pytest
import torch
from chapter_answers import asking
from torch.func import jacrev

from chainrule.chapter.custom_functions import EXERCISES, FUNCTIONS
from chainrule.chapter.gradcheck import CASES, DTYPES, PAGE, STEPS, expected_error
from chainrule.foundations.gradient_check import as_tuple

ask = asking(PAGE)


@pytest.mark.parametrize("function", CASES)
def test_the_verdict_is_torch_s_in_both_dtypes(function):
    answer = ask(function=function)
    for dtype in DTYPES:
        check = answer["checks"][dtype]
        assert check["passed"] == check["torch"]["passed"]
        assert (check["torch"]["message"] == "") == check["passed"]
    assert answer["checks"]["float64"]["passed"] == (function in FUNCTIONS)
    assert not answer["checks"]["float32"]["passed"]
    assert answer["is_exercise"] == (function in EXERCISES)
    if function in EXERCISES and function != "exercise_h":
        assert min(answer["steps"]["float64"]["measured"]) > 0.1, "a mistake shows at every step"


def test_the_heatmaps_are_the_jacobians():
    answer = ask(function="linear_function", batch=2, n=3, fan_out=2)
    w = answer["inputs"][1]["values"]
    inp, weight, bias = answer["checks"]["float64"]["comparisons"]
    assert inp["analytic"]["values"] == [[*row, 0, 0, 0] for row in w] + [[0, 0, 0, *row] for row in w]
    assert bias["analytic"]["values"] == [[1, 0], [0, 1]] * 2
    assert weight["size"] == [4, 6]
    for each in (inp, weight, bias):
        a, n, d, t = (torch.tensor(each[name]["values"]) for name in ("analytic", "numeric", "difference", "tolerance"))
        torch.testing.assert_close(d, (a - n).abs(), atol=1e-7, rtol=0)
        torch.testing.assert_close(t, 1e-5 + 1e-3 * n.abs())
        assert torch.tensor(each["within"]["values"]).all()


def test_relu_on_its_kink():
    check = ask(function="my_relu", kink="true")["checks"]["float64"]
    assert not check["passed"]
    (comparison,) = check["comparisons"]
    worst = comparison["worst"]
    assert (worst["output_index"], worst["input_index"]) == ([0, 0], [0, 0])
    assert (worst["analytic"], worst["numeric"]) == (0.0, pytest.approx(0.5))
    assert comparison["kink"] == (
        "The forward has a kink here: the differences from the left (0) and the right (1) disagree. Move the input."
    )
    assert comparison["outside"] == 1


@pytest.mark.parametrize("function", ["exp", "mul_constant", "linear_function", "sin_cos"])
def test_the_measured_error_is_the_expected_one(function):
    steps = ask(function=function, seed=3)["steps"]
    for dtype in DTYPES:
        curve = steps[dtype]
        for eps, measured in zip(steps["eps"], curve["measured"], strict=True):
            expected = curve["rounding"] / eps + curve["truncation"] * eps**2
            assert measured <= 3 * expected
        if curve["best_step"] is not None:
            least = steps["eps"][curve["measured"].index(min(curve["measured"]))]
            assert abs(math.log10(least / curve["best_step"])) < 1.5
            assert curve["measured"][-1] == pytest.approx(curve["truncation"] * STEPS[-1] ** 2, rel=0.05)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_third_derivatives_are_those_of_autograd(case):
    point = case.draw({"batch": 2, "n": 3, "fan_out": 2}, torch.Generator().manual_seed(0))
    largest = 0.0
    for position, tensor in enumerate(point):
        if isinstance(tensor, torch.Tensor):

            def outputs(moved, position=position):
                made = as_tuple(case.plain(*point[:position], moved.view_as(point[position]), *point[position + 1 :]))
                return torch.cat([each.reshape(-1) for each in made])

            third = jacrev(jacrev(jacrev(outputs)))(tensor.detach().reshape(-1))
            largest = max(largest, torch.einsum("oiii->oi", third).abs().max().item())
    expected = expected_error(case, point, torch.float64).truncation * 6
    assert expected == pytest.approx(largest, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("function", EXERCISES)
def test_the_solution_names_the_line_in_the_file(function):
    solution = ask(function=function)["solution"]
    lines = Path(inspect.getsourcefile(EXERCISES[function].function)).read_text().splitlines()
    assert lines[solution["line"] - 1].strip() == solution["wrong"]
    assert ask(function="exp")["solution"] is None
