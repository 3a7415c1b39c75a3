import pytest
import torch
from draws import normal
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.foundations.matmul import RUNGS

SIZES = st.integers(0, 6)


@pytest.mark.parametrize("name", RUNGS)
@given(m=SIZES, k=SIZES, n=SIZES, seed=st.integers(0, 2**31))
@settings(max_examples=30)
def test_every_rung_is_torchs_product(name, m, k, n, seed):
    a, b = normal(seed, m, k), normal(seed + 1, k, n)
    c = RUNGS[name](a, b)
    assert c.dtype == torch.float64
    torch.testing.assert_close(c, torch.matmul(a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RUNGS)
def test_transposed_views_and_other_dtypes(name):
    a, b = normal(0, 4, 3, dtype=torch.float32).t(), normal(1, 5, 4, dtype=torch.float32).t()
    c = RUNGS[name](a, b)
    assert c.dtype == torch.float32
    torch.testing.assert_close(c, a @ b)
    a, b = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 2], [3, 4], [5, 6]])
    assert RUNGS[name](a, b).tolist() == [[22, 28], [49, 64]]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(("a", "b"), [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 2, 3), (3, 2))])
def test_every_rung_names_pattern_and_shapes(name, a, b):
    with pytest.raises(ValueError, match=r"expected a \(m, k\) and b \(k, n\)") as raised:
        RUNGS[name](torch.ones(a), torch.ones(b))
    assert str(raised.value).endswith(f"got a {a}, b {b}")
    with pytest.raises(ValueError, match=r"one dtype, got a torch\.float32, b torch\.float64"):
        RUNGS[name](torch.ones(2, 2), torch.ones(2, 2).double())
