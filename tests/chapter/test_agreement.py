import math

import pytest
import torch

from chainrule.chapter.agreement import max_difference


@pytest.mark.parametrize(
    ("result", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([math.nan, math.inf, -math.inf], [math.nan, math.inf, -math.inf], 0.0),
        ([math.inf], [-math.inf], math.inf),
        ([math.nan, 1.0], [1.0, 1.0], math.nan),
        ([], [], 0.0),
        ([0.1], torch.tensor([0.1], dtype=torch.float64), 1.490e-9),  # below float32
    ],
)
def test_max_difference(result, expected, difference):
    found = max_difference(torch.tensor(result), torch.as_tensor(expected))
    assert found == pytest.approx(difference, rel=1e-3, nan_ok=True)
