import math
import operator

import pytest
import torch
from draws import normal

from chainrule.foundations.arithmetic import arithmetic, comparisons, mean_as_number, reduction

PYTHON = {name.removeprefix("true"): getattr(operator, name) for name in "add sub mul truediv gt lt eq".split()}


@pytest.mark.parametrize("shape", [(), (4,), (3, 2), (0,)])
def test_every_operator_is_that_of_python_on_each_pair_of_elements(shape):
    a, b = normal(0, *shape), normal(1, *shape)
    results = arithmetic(a, b) | comparisons(a, b)
    assert list(results) == list(PYTHON)
    for name, result in results.items():
        pairs = zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
        assert result.shape == shape
        assert result.flatten().tolist() == [PYTHON[name](x, y) for x, y in pairs]
    assert all(results[name].dtype == torch.bool for name in ("gt", "lt", "eq"))


def test_reductions_of_nothing():
    nothing = torch.ones(0)
    assert reduction(nothing, "all").item() is True
    assert reduction(nothing, "sum").item() == 0
    assert math.isnan(reduction(nothing, "mean").item())


def test_a_reduction_that_does_not_exist_is_an_error():
    with pytest.raises(RuntimeError, match=r"floating point or complex dtype\. Got: Bool"):
        reduction(torch.tensor([True]), "mean")
    with pytest.raises(ValueError, match="expected all, sum or mean, got 'max'"):
        reduction(torch.ones(2), "max")


def test_the_mean_as_a_number_has_the_digits_of_its_float32():
    mean = mean_as_number(torch.tensor([12.0, 14.0, 3.0]))
    assert (type(mean), mean) == (float, 9.666666984558105)
    assert mean_as_number(torch.tensor([12.0, 14.0, 3.0], dtype=torch.float64)) == 29 / 3
