import math

import pytest
import torch

from chainrule.foundations.arithmetic import mean_as_number, reduction


def test_reductions_of_nothing():
    nothing = torch.ones(0)
    assert reduction(nothing, "all").item() is True
    assert reduction(nothing, "sum").item() == 0
    assert math.isnan(reduction(nothing, "mean").item())


def test_a_reduction_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="expected all, sum or mean, got 'max'"):
        reduction(torch.ones(2), "max")


def test_the_mean_as_a_number_has_the_digits_of_its_float32():
    mean = mean_as_number(torch.tensor([12.0, 14.0, 3.0]))
    assert (type(mean), mean) == (float, 9.666666984558105)
