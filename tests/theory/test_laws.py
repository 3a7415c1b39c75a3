import mpmath
import numpy as np
import pytest

from chainrule.theory.laws import Gaussians, chi_square_law, chi_square_laws

VARIANCES = [0.0, 1e-12, 1e-9, 1e-6, 0.01, 0.0625, 0.3, 2.0, 7.5, 20.0, 1e6]


@pytest.mark.smoke
@pytest.mark.parametrize("variance", [1e-6, 0.01, 0.3, 2.0, 20.0])
def test_the_law_of_a_chi_square_agrees_with_mpmath(variance):
    x = 1 / variance
    mean, spread = chi_square_law(variance)
    assert mean == pytest.approx(float(mpmath.digamma(x) - mpmath.log(x)), rel=1e-9)
    assert spread == pytest.approx(float(mpmath.polygamma(1, x)), rel=1e-12)


def test_columns_agree_with_single_laws():
    laws = chi_square_laws(np.array(VARIANCES))
    for index, variance in enumerate(VARIANCES):
        mean, spread = chi_square_law(variance)
        assert laws.variance[index] == pytest.approx(spread, rel=1e-12)
        assert laws.mean[index] == pytest.approx(mean, rel=1e-6)


def test_the_variance_of_a_gaussian_tensor_agrees_with_a_sample():
    n, inputs, c = 6, 4, 0.6
    generator = np.random.default_rng(5)
    shared = generator.standard_normal((200_000, 1, n))
    own = generator.standard_normal((200_000, inputs, n))
    sample = (np.sqrt(c) * shared + np.sqrt(1 - c) * own).var(axis=(1, 2))
    column = np.ones(1)
    law = Gaussians(column, c * column, 0 * column, n * column, inputs, column).variances
    assert law.value[0] == pytest.approx(sample.mean(), rel=0.01)
    # `own` leaves out what is of order 1/n².
    assert law.own[0] == pytest.approx(sample.var() / sample.mean() ** 2, rel=0.1)
