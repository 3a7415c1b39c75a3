"""The fast kernel against numpy in float64, on every kind of tensor there is."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from chainrule.stats import BINS, COLUMNS, summarize, unsupported
from chainrule.stats.reference import summarize_reference

pytestmark = pytest.mark.usefixtures("kernel")

EPSILON = float(np.finfo(np.float64).eps)


def summary(tensor):
    """What `summarize` writes, by column, and the histogram."""
    # Rubbish beforehand: every entry must be written.
    moments = np.full(len(COLUMNS), 123.456)
    counts = np.full(BINS, 77, np.uint32)
    summarize(tensor, moments, counts)
    return dict(zip(COLUMNS, moments.tolist(), strict=True)), counts


def as_float64(tensor):
    """The values, exactly where float64 has them, in numpy."""
    tensor = tensor.detach()
    if tensor.is_floating_point():
        return tensor.to(torch.float64).numpy().ravel()
    return tensor.numpy().ravel().astype(np.float64)


def scaled(finite):
    """The values times a power of two that brings them near 1, where squares are safe, and its exponent."""
    exponent = int(np.frexp(np.abs(finite).max())[1])
    return np.ldexp(finite, -exponent), exponent


def assert_agrees(tensor):
    x = as_float64(tensor)
    finite = x[np.isfinite(x)]
    got, counts = summary(tensor)

    # Exact whatever the arithmetic: counts and extremes.
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

    # Moments: numpy's, of the values brought near 1, and those of the reference.
    near_one, exponent = scaled(finite)
    largest = float(np.abs(near_one).max())
    width = float(near_one.max() - near_one.min())
    rounding = EPSILON * (finite.size + 64)
    expected = {
        "mean": (near_one.mean(), 4 * EPSILON * largest * math.log2(finite.size + 2) + rounding * width),
        "std": (near_one.std(), rounding * largest),
        "norm": (np.linalg.norm(near_one), 4 * rounding * np.linalg.norm(near_one)),
    }
    with np.errstate(over="ignore"):
        reference = summarize_reference(x)
    for name, (value, tolerance) in expected.items():
        there = math.ldexp(got[name], -exponent) if math.isfinite(got[name]) else got[name]
        if math.isinf(there):
            # The norm of numbers can be larger than any number, or come so near the largest that rounding decides.
            assert name == "norm"
            assert math.frexp(value * (1 + 1e-9))[1] + exponent > 1024
            assert reference.norm > 1.797e308
            continue
        denormal = math.ldexp(5e-324, -exponent)
        assert there == pytest.approx(value, rel=1e-9 if name == "std" else 0, abs=tolerance + denormal), name
        assert got[name] == pytest.approx(
            getattr(reference, name),
            rel=1e-9,
            abs=math.ldexp(tolerance, exponent) + 5e-324,
        ), name
    if low < high:
        assert got["std"] > 0 or high - low < 1e-300
    assert_histogram_agrees(counts, near_one, np.array(reference.counts))


def assert_histogram_agrees(counts, values, reference_counts):
    """Equal to the reference's and to numpy's, but for values that lie on an edge to within a rounding."""
    low, high = values.min(), values.max()
    if low == high:
        assert counts.tolist() == [values.size] + [0] * (BINS - 1)
        assert reference_counts.tolist() == counts.tolist()
        return
    position = (values - low) / (high - low) * BINS
    distance = np.abs(position - np.round(position))
    inner = (np.round(position) > 0) & (np.round(position) < BINS)
    on_an_edge = int(np.count_nonzero((distance <= 64e-12) & inner))
    expectations = [reference_counts]
    if high - low > 1000 * BINS * np.spacing(max(-low, high)):
        # numpy computes the edges and compares, which takes more bits than a division.
        expectations.append(np.histogram(values, bins=BINS, range=(low, high))[0])
    for expected in expectations:
        # A value that changes bins makes a difference of one in two of them, and shifts nothing else.
        assert np.abs(np.cumsum(counts.astype(int)) - np.cumsum(expected)).max() <= on_an_edge
    # With no value near an edge there is only one right answer.
    if not on_an_edge:
        assert counts.tolist() == np.bincount(np.minimum(position.astype(int), BINS - 1), minlength=BINS).tolist()


# ---------------------------------------------------------------------------------------------------- any values at all

DTYPES = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.bool: np.bool_,
}

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_values_of_any_dtype(dtype, data):
    values = data.draw(hnp.arrays(DTYPES[dtype], SHAPES))
    assert_agrees(torch.from_numpy(values.copy()))


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, SHAPES))
def test_any_values_of_bfloat16(values):
    assert_agrees(torch.from_numpy(values.copy()).to(torch.bfloat16))


SPECIAL = st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        math.nan,
        math.inf,
        -math.inf,
        1e300,
        -1e300,
        1e-300,
        5e-324,
        -5e-324,
        1e-30,
        1.7e308,
        -1.7e308,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(SPECIAL, max_size=12))
def test_the_special_values_in_any_mixture(values):
    assert_agrees(torch.tensor(values, dtype=torch.float64))


@settings(max_examples=100, deadline=None)
@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-12, 1e6),
    st.integers(2, 300),
    st.integers(0, 2**32 - 1),
)
def test_a_narrow_distribution_far_from_zero(offset, spread, size, seed):
    values = offset + spread * np.random.default_rng(seed).standard_normal(size)
    assert_agrees(torch.from_numpy(values))


# ------------------------------------------------------------------------------------------------- values with a reason


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_normal_sample(dtype):
    sample = torch.randn(200, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert_agrees(sample)
    got, counts = summary(sample)
    assert got["mean"] == pytest.approx(sample.double().mean().item(), abs=1e-12)
    assert got["std"] == pytest.approx(sample.double().std(correction=0).item(), rel=1e-12)
    assert got["norm"] == pytest.approx(sample.double().norm().item(), rel=1e-12)
    assert counts.max() > 10 * counts[0]


@pytest.mark.smoke
def test_by_hand():
    got, counts = summary(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert got["n"] == 4
    assert got["mean"] == 3.0
    assert got["std"] == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4), rel=1e-15)
    assert (got["min"], got["max"]) == (1.0, 6.0)
    assert got["norm"] == pytest.approx(math.sqrt(50), rel=1e-15)
    # floor((x - 1) * 64 / 5): 0, 12, 25, and the last bin is closed
    assert {row: int(count) for row, count in enumerate(counts) if count} == {0: 1, 12: 1, 25: 1, 63: 1}


@pytest.mark.parametrize(
    "size", [1, 2, 63, 64, 65, 4095, 4096, 4097, 32767, 32768, 32769, 65535, 65536, 65537, 100_000]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sizes_around_the_chunks(size, dtype):
    sample = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 3 + 1
    # The one zero and the extremes sit in the last element, where an off-by-one would lose them.
    sample[-1] = 0.0
    assert_agrees(sample.to(dtype))
    sample[-1] = 1000.0
    assert_agrees(sample.to(dtype))
    if size > 1:
        sample[-1] = math.nan
        assert_agrees(sample.to(dtype))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_an_empty_tensor_has_no_moments(shape, dtype):
    got, counts = summary(torch.empty(shape, dtype=dtype))
    assert got["n"] == 0
    assert all(math.isnan(got[name]) for name in ("mean", "std", "min", "max", "norm"))
    assert got["zero_fraction"] == got["nan"] == got["posinf"] == got["neginf"] == 0
    assert counts.tolist() == [0] * BINS


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -2.5, 1e-45, 3.4e38, math.nan, math.inf, -math.inf])
def test_one_element(value):
    assert_agrees(torch.tensor(value))
    assert_agrees(torch.tensor([[value]], dtype=torch.float64))


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -7.0, 1e300, 5e-324, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [2, 5000, 40_000])
def test_all_equal(value, size):
    tensor = torch.full((size,), value, dtype=torch.float64)
    assert_agrees(tensor)
    got, counts = summary(tensor)
    if math.isfinite(value):
        assert got["mean"] == value
        assert got["std"] == 0.0
        assert counts[0] == size


def test_negative_zero_is_zero():
    got, _ = summary(torch.tensor([-0.0, 0.0, 1.0, -0.0]))
    assert got["zero_fraction"] == 0.75


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_denormals_are_not_lost(dtype):
    tiny = torch.finfo(dtype).smallest_normal / 4
    values = torch.tensor([0.0, tiny, 2 * tiny, 3 * tiny], dtype=dtype)
    assert torch.count_nonzero(values) == 3
    got, _ = summary(values)
    assert got["zero_fraction"] == 0.25
    assert got["std"] == pytest.approx(tiny * math.sqrt(5) / 2, rel=1e-9)
    assert got["norm"] == pytest.approx(tiny * math.sqrt(14), rel=1e-9)
    assert_agrees(values)


def test_the_smallest_numbers_beside_the_largest():
    """Values that vanish when the largest is brought near 1 are still not zero."""
    values = torch.tensor([1e300, 1e-30, -1.0, 0.0], dtype=torch.float64)
    got, _ = summary(values)
    assert got["zero_fraction"] == 0.25
    assert_agrees(values)


def test_squares_beyond_the_dtype():
    values = torch.tensor([3e38, -3e38, 1e38])
    got, _ = summary(values)
    assert got["norm"] == pytest.approx(math.sqrt(19) * 1e38, rel=1e-6)
    assert_agrees(values)
    huge = torch.tensor([1e300, 3e300, -2e300], dtype=torch.float64)
    got, _ = summary(huge)
    assert got["norm"] == pytest.approx(math.sqrt(14) * 1e300, rel=1e-12)
    assert got["std"] == pytest.approx(np.std([1, 3, -2]) * 1e300, rel=1e-12)
    assert_agrees(huge)


def test_the_whole_range_of_float64():
    largest = torch.finfo(torch.float64).max
    got, counts = summary(torch.tensor([-largest, largest, 0.0, 0.0], dtype=torch.float64))
    assert got["mean"] == pytest.approx(0.0, abs=1e-15 * largest)
    assert got["std"] == pytest.approx(largest / math.sqrt(2), rel=1e-12)
    assert (counts[0], counts[32], counts[63]) == (1, 2, 1)


def test_integers_larger_than_float64_holds_exactly():
    ends = torch.iinfo(torch.int64)
    assert_agrees(torch.tensor([ends.min, ends.max, 0, 1]))
    assert_agrees(torch.tensor([2**53, 2**53 + 1, 2**53 + 2]))
    assert_agrees(torch.tensor([2**62, 2**62 + 1]))


def test_every_bin_is_half_open_and_the_last_one_closed():
    """Values on the edges themselves, where edges are exact: each belongs to the bin it opens."""
    _, counts = summary(torch.arange(65, dtype=torch.float64))
    assert counts.tolist() == [1] * 63 + [2]
    _, counts = summary(torch.arange(128, dtype=torch.float32) / 127 * 127)
    expected = np.minimum(np.floor(np.arange(128) * (64 / 127)).astype(int), 63)
    assert counts.tolist() == np.bincount(expected, minlength=64).tolist()


def test_nonfinite_values_are_counted_apart_and_the_rest_is_summarised():
    clean = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    dirty = torch.cat([clean, torch.tensor([math.nan] * 3 + [math.inf] * 5 + [-math.inf] * 7)])
    dirty = dirty[torch.randperm(len(dirty), generator=torch.Generator().manual_seed(4))]
    of_clean, clean_counts = summary(clean)
    of_dirty, dirty_counts = summary(dirty)
    for name in ("min", "max"):
        assert of_dirty[name] == of_clean[name]
    for name in ("mean", "std", "norm"):
        assert of_dirty[name] == pytest.approx(of_clean[name], rel=1e-12)
    assert (of_dirty["nan"], of_dirty["posinf"], of_dirty["neginf"]) == (3, 5, 7)
    assert dirty_counts.tolist() == clean_counts.tolist()
    assert of_dirty["zero_fraction"] == 0.0
    assert_agrees(dirty)


# ---------------------------------------------------------------------------------------------------- any memory layout


def layouts():
    base = torch.randn(6, 8, 5, 7, generator=torch.Generator().manual_seed(5))
    yield "transposed", base[0, 0].t()
    yield "permuted", base.permute(3, 1, 0, 2)
    yield "strided", base[::2, 1::3, :, ::2]
    yield "one column", base[0, 0, :, 2]
    yield "expanded", torch.tensor([1.0, 2.0, 4.0]).expand(5, 3)
    yield "expanded scalar", torch.tensor(3.5).expand(4, 4)
    yield "channels last", base.to(memory_format=torch.channels_last)
    yield "channels last 3d", torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    yield "flipped", base.flip(0)
    yield "diagonal", base[0, 0].diagonal()
    yield "unfolded", base[0, 0].unfold(1, 3, 1)
    yield "offset", base.flatten()[7:]
    yield "negated imaginary part", torch.randn(5, dtype=torch.complex64).conj().imag
    yield "real part", torch.randn(5, dtype=torch.complex64).real
    yield "batch of matrices transposed", base.mT


@pytest.mark.parametrize(("name", "tensor"), list(layouts()), ids=[name for name, _ in layouts()])
def test_any_memory_layout(name, tensor):  # noqa: ARG001 (the name is the test's id)
    assert_agrees(tensor)
    expected, expected_counts = summary(tensor.resolve_neg().clone(memory_format=torch.contiguous_format))
    got, counts = summary(tensor)
    for column in ("n", "min", "max", "zero_fraction", "nan"):
        assert got[column] == expected[column]
    for column in ("mean", "std", "norm"):
        assert got[column] == pytest.approx(expected[column], rel=1e-12, abs=1e-14)
    assert counts.tolist() == expected_counts.tolist()


# ------------------------------------------------------------------------------------------------------- only a reading


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32, torch.bool], ids=str)
def test_the_tensor_and_the_random_numbers_stay_as_they_are(dtype):
    tensor = (torch.randn(300, 3, generator=torch.Generator().manual_seed(6)) * 3).to(dtype)
    if tensor.is_floating_point():
        tensor[0] = torch.tensor([math.nan, math.inf, -0.0], dtype=dtype)
    before = tensor.clone().view(torch.uint8).tolist()
    version, state, threads = tensor._version, torch.get_rng_state(), torch.get_num_threads()
    summary(tensor)
    summary(tensor.t())
    assert tensor.view(torch.uint8).tolist() == before
    assert tensor._version == version
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_no_graph_is_built():
    leaf = torch.randn(5, 5, requires_grad=True)
    made = leaf * 2
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        assert_agrees(leaf)
        assert_agrees(made)
        assert_agrees(made.t())
    assert saved == []
    made.sum().backward()
    assert torch.equal(leaf.grad, torch.full((5, 5), 2.0))


def test_the_buffers_do_not_leak_from_one_tensor_into_the_next():
    """Summaries of a long tensor, then of shorter ones, are what they are alone."""
    generator = torch.Generator().manual_seed(7)
    for size in (70_000, 40_000, 5, 32_768, 100, 1):
        assert_agrees(torch.randn(size, generator=generator))


def test_threads_have_buffers_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    samples = [torch.randn(50_000, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    alone = [summary(sample) for sample in samples]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(summary, samples * 5))
    for row, (moments, counts) in enumerate(together):
        expected_moments, expected_counts = alone[row % 4]
        assert moments["mean"] == expected_moments["mean"]
        assert moments["std"] == expected_moments["std"]
        assert counts.tolist() == expected_counts.tolist()


# --------------------------------------------------------------------------------------------------- what has no values


def test_what_has_statistics():
    for dtype in (*DTYPES, torch.bfloat16):
        assert unsupported(torch.zeros(2, dtype=dtype)) is None
    assert unsupported(torch.zeros(2, requires_grad=True)) is None


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2, device="meta"), "meta"),
    ],
    ids=["sparse", "complex64", "complex128", "meta"],
)
def test_what_has_none_says_why(tensor, word):
    note = unsupported(tensor)
    assert note.startswith("no statistics")
    assert word in note


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel:UserWarning")
def test_a_quantized_tensor_has_none():
    assert "qint8" in unsupported(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
