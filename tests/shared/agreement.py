"""The oracle of every implementation of the statistics: plain float64 numpy, on tensors of every kind.

`assert_agrees` is the oracle; the strategies make tensors on the host, for a test to put where it tests.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from chainrule.stats import BINS, COLUMNS, SMALL, StatisticsSlab

EPSILON = float(np.finfo(np.float64).eps)


def summary(tensor):
    """The statistics of `tensor` from a slab, by column, with the values of a small tensor, and the histogram."""
    slab = StatisticsSlab(capacity=1)
    # Rubbish beforehand: every entry must be written.
    slab.moments[:], slab.counts[:] = 123.456, 77
    row = slab.take(tensor)
    columns = dict(zip(COLUMNS, slab.moments[row].tolist(), strict=True))
    return columns | {"values": slab.values.get(row)}, slab.counts[row]


def as_float64(tensor):
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        return tensor.to(torch.float64).resolve_neg().numpy().ravel()
    return tensor.numpy().ravel().astype(np.float64)


def scaled(finite):
    """`finite · 2**-exponent`, near 1 so that squares cannot overflow, and the exponent."""
    exponent = int(np.frexp(np.abs(finite).max())[1])
    return np.ldexp(finite, -exponent), exponent


def assert_agrees(tensor):
    x = as_float64(tensor)
    finite = x[np.isfinite(x)]
    got, counts = summary(tensor)

    values = got.pop("values")
    assert (values is not None) == (x.size <= SMALL)
    if values is not None:
        assert np.array_equal(values, x, equal_nan=True)
    # Counts and extremes are exact.
    assert got["n"] == x.size
    assert got["nan"] == np.count_nonzero(np.isnan(x))
    assert got["posinf"] == np.count_nonzero(x == np.inf)
    assert got["neginf"] == np.count_nonzero(x == -np.inf)
    assert got["zero_fraction"] == (np.count_nonzero(x == 0) / x.size if x.size else 0.0)
    assert math.isnan(got["dead_fraction"])
    assert math.isnan(got["saturation"])
    assert counts.sum() == finite.size
    if not finite.size:
        assert all(math.isnan(got[name]) for name in ("mean", "std", "min", "max", "norm"))
        return
    low, high = float(finite.min()), float(finite.max())
    assert (got["min"], got["max"]) == (low, high)

    # Moments: numpy's, of the values brought near 1.
    near_one, exponent = scaled(finite)
    largest = float(np.abs(near_one).max())
    width = float(near_one.max() - near_one.min())
    rounding = EPSILON * (finite.size + 64)
    expected = {
        "mean": (near_one.mean(), 4 * EPSILON * largest * math.log2(finite.size + 2) + rounding * width),
        "std": (near_one.std(), rounding * largest),
        "norm": (np.linalg.norm(near_one), 4 * rounding * np.linalg.norm(near_one)),
    }
    for name, (value, tolerance) in expected.items():
        if math.isinf(got[name]):
            # The norm of numbers can be larger than any number, or come so near the largest that rounding decides.
            assert name == "norm"
            assert math.frexp(value * (1 + 1e-9))[1] + exponent > 1024
            continue
        there, denormal = math.ldexp(got[name], -exponent), math.ldexp(5e-324, -exponent)
        assert there == pytest.approx(value, rel=1e-9 if name == "std" else 0, abs=tolerance + denormal), name
    if low < high:
        assert got["std"] > 0 or high - low < 1e-300
    assert_histogram_agrees(counts, near_one)


def assert_histogram_agrees(counts, values):
    """Equal to numpy's count per bin, but for values that lie on an edge to within a rounding."""
    low, high = values.min(), values.max()
    position = (values - low) / (high - low) * BINS if low < high else np.zeros(values.size)
    expected = np.bincount(np.minimum(position.astype(int), BINS - 1), minlength=BINS)
    edge = np.round(position)
    on_an_edge = np.count_nonzero((np.abs(position - edge) <= 64e-12) & (edge > 0) & (edge < BINS))
    # A value that changes bins makes a difference of one in two of them, and shifts nothing else.
    assert np.abs(np.cumsum(counts.astype(int)) - np.cumsum(expected)).max() <= on_an_edge


# ------------------------------------------------------------------------------------------------------------ tensors

DTYPES = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: np.float32,
    torch.float8_e4m3fn: np.float32,
    torch.float8_e5m2: np.float32,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.int16: np.int16,
    torch.uint16: np.uint16,
    torch.int32: np.int32,
    torch.uint32: np.uint32,
    torch.int64: np.int64,
    torch.uint64: np.uint64,
    torch.bool: np.bool_,
}
"""The dtypes that have statistics, with the numpy dtype of their values."""

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)

SPECIAL = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 1.7e308, -1.7e308, 1e-300, 5e-324, -5e-324]
)


def any_tensors(dtype):
    return hnp.arrays(DTYPES[dtype], SHAPES).map(lambda values: torch.from_numpy(values.copy()).to(dtype))


def special_tensors():
    """float64 at the limits of arithmetic."""
    return st.lists(SPECIAL, max_size=12).map(lambda values: torch.tensor(values, dtype=torch.float64))


@st.composite
def narrow_tensors(draw):
    """float64, normally distributed; the mean may be much larger than the spread."""
    offset, spread = draw(st.floats(-1e6, 1e6)), draw(st.floats(1e-12, 1e6))
    size, seed = draw(st.integers(2, 300)), draw(st.integers(0, 2**32 - 1))
    return torch.from_numpy(offset + spread * np.random.default_rng(seed).standard_normal(size))


@st.composite
def long_tensors(draw):
    """More elements than any implementation reads at once: heavy tails, or a few values far from all the others."""
    size = draw(st.sampled_from([4097, 32_769, 70_001]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "ninth power", "alike", "alike beside zeros", "two values"]))
    if kind == "normal":
        values = generator.standard_normal(size) * draw(st.sampled_from([1e-30, 1.0, 1e30]))
    elif kind == "ninth power":
        values = generator.standard_normal(size) ** 9
    elif kind == "two values":
        values = generator.choice(generator.standard_normal(2), size)
    else:
        values = np.full(size, generator.standard_normal() if kind == "alike" else 0.0)
        values[generator.integers(size, size=2)] = [-100 * generator.random(), 100 * generator.random()]
    for special in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), max_size=3)):
        values[generator.integers(size, size=draw(st.sampled_from([1, 1000, size])))] = special
    return torch.from_numpy(values).to(draw(st.sampled_from([torch.float32, torch.float64])))


def layouts(device="cpu"):
    """Names and tensors with every kind of strides."""
    generator = torch.Generator().manual_seed(5)
    base = torch.randn(6, 8, 5, 7, generator=generator).to(device)
    paired = torch.randn(5, dtype=torch.complex64, generator=generator).to(device)
    yield "transposed", base[0, 0].t()
    yield "permuted", base.permute(3, 1, 0, 2)
    yield "strided", base[::2, 1::3, :, ::2]
    yield "one column", base[0, 0, :, 2]
    yield "expanded", torch.tensor([1.0, 2.0, 4.0], device=device).expand(5, 3)
    yield "expanded scalar", torch.tensor(3.5, device=device).expand(4, 4)
    yield "channels last", base.to(memory_format=torch.channels_last)
    yield (
        "channels last 3d",
        torch.randn(2, 3, 4, 5, 6, generator=generator).to(device, memory_format=torch.channels_last_3d),
    )
    yield "flipped", base.flip(0)
    yield "diagonal", base[0, 0].diagonal()
    yield "unfolded", base[0, 0].unfold(1, 3, 1)
    yield "offset", base.flatten()[7:]
    yield "negated imaginary part", paired.conj().imag
    yield "real part", paired.real
    yield "batch of matrices transposed", base.mT
    yield "negated", torch._neg_view(base)
    yield "expanded inside", base[:, :1, :, 3:4].expand(-1, 9, -1, 2)
    yield "expanded, not finite", torch.tensor([[math.nan], [math.inf], [0.0], [3.0]], device=device).expand(4, 6)
    # More than is copied at once, and rows longer and shorter than a chunk.
    wide = torch.randn(3, 100_000, generator=generator).to(device)
    yield "long and strided", wide[:, ::2].expand(2, 3, -1)
    yield "long, strided and negated", torch._neg_view(wide)[:, 1::2]
    tall = torch.randn(100_000, 7, generator=generator, dtype=torch.float64).to(device)
    tall[5, 2], tall[99_999, 0], tall[70_000, 1] = math.nan, math.inf, -math.inf
    yield "tall and strided, not finite", tall[:, :3]
    yield "tall, transposed and strided", tall.t()[1:3, :90_000]
