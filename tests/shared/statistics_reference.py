"""The definitions of `chainrule.stats.summary` in plain float64 numpy: slow and obvious, the tests' oracle."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from chainrule.stats.summary import BINS, Summary


def summarize_reference(values: npt.ArrayLike) -> Summary:
    """Summarize real `values` of any shape, empty included."""
    x = np.asarray(values, np.float64).ravel()
    nan, posinf, neginf = (int(np.count_nonzero(test(x))) for test in (np.isnan, np.isposinf, np.isneginf))
    zero_fraction = float(np.count_nonzero(x == 0) / x.size) if x.size else 0.0
    finite = x[np.isfinite(x)]
    if not finite.size:
        none = (None,) * 5
        return Summary(x.size, *none, zero_fraction, nan, posinf, neginf, None, None, (0,) * BINS)

    # A power of two brings the largest magnitude near 1: squares neither overflow nor vanish, and nothing is rounded.
    exponent = int(np.frexp(np.abs(finite).max())[1])
    scaled = np.ldexp(finite, -exponent)
    mean = math.fsum(scaled) / scaled.size
    std = math.sqrt(math.fsum((scaled - mean) ** 2) / scaled.size)
    norm = math.sqrt(math.fsum(scaled**2))

    low, high = float(scaled.min()), float(scaled.max())
    width = high - low
    bins = np.minimum(((scaled - low) * (BINS / width)).astype(np.int64), BINS - 1) if width > 0 else np.zeros(1, int)
    counts = np.bincount(bins, minlength=BINS) if width > 0 else np.bincount(bins, [scaled.size], minlength=BINS)
    return Summary(
        n=x.size,
        mean=float(np.ldexp(mean, exponent)),
        std=float(np.ldexp(std, exponent)),
        min=float(finite.min()),
        max=float(finite.max()),
        norm=float(np.ldexp(norm, exponent)),
        zero_fraction=zero_fraction,
        nan=nan,
        posinf=posinf,
        neginf=neginf,
        dead_fraction=None,
        saturation=None,
        counts=tuple(int(count) for count in counts),
    )
