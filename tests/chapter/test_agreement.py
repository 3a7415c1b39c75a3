import math

import pytest
import torch

from chainrule.chapter.agreement import max_difference


@pytest.mark.parametrize(
    ("result", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([math.nan, 1.0], [math.nan, 1.0], 0.0),
        ([math.inf, -math.inf], [math.inf, -math.inf], 0.0),
        ([math.inf], [-math.inf], math.inf),
        ([math.nan, 1.0], [1.0, 1.0], math.nan),
        ([], [], 0.0),
    ],
)
def test_max_difference(result, expected, difference):
    assert max_difference(torch.tensor(result), torch.tensor(expected)) == pytest.approx(difference, nan_ok=True)


def test_differences_below_float32_are_seen():
    assert max_difference(torch.tensor([0.1]), torch.tensor([0.1], dtype=torch.float64)) == pytest.approx(
        1.490e-9, rel=1e-3
    )
