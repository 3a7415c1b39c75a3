"""The fast kernel against numpy in float64, on every kind of tensor there is."""

import math

import numpy as np
import pytest
import torch
from agreement import (
    DTYPES,
    any_tensors,
    assert_agrees,
    layouts,
    long_tensors,
    narrow_tensors,
    special_tensors,
    summary,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.stats import BINS, unsupported

pytestmark = pytest.mark.usefixtures("implementation")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_any_values_of_any_dtype(dtype, data):
    assert_agrees(data.draw(any_tensors(dtype)))


@settings(max_examples=100)
@given(special_tensors())
@example(torch.tensor([2.31988419e300, 1.7976931348623157e308, 0.0], dtype=torch.float64))
@example(torch.tensor([1.7976931348623157e308, 1e300], dtype=torch.float64))
def test_the_special_values_in_any_mixture(tensor):
    assert_agrees(tensor)


@settings(max_examples=50)
@given(narrow_tensors())
def test_a_narrow_distribution_far_from_zero(tensor):
    assert_agrees(tensor)


@settings(max_examples=20)
@given(long_tensors())
def test_more_elements_than_are_read_at_once(tensor):
    assert_agrees(tensor)


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


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 4095, 4096, 4097, 32767, 32768, 32769, 65537, 100_000])
def test_sizes_around_the_chunks(size):
    dtype = [torch.float32, torch.float64, torch.bfloat16][size % 3]
    sample = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 3 + 1
    # The one zero and the extremes sit in the last element, where an off-by-one would lose them.
    sample[-1] = 0.0
    assert_agrees(sample.to(dtype))
    sample[-1] = 1000.0
    assert_agrees(sample.to(dtype))
    if size > 1:
        sample[-1] = math.nan
        assert_agrees(sample.to(dtype))


LARGEST = torch.finfo(torch.float64).max
ONE_VALUE = (0.0, -0.0, 0.1, -2.5, 3.4e38, 5e-324, math.nan, math.inf, -math.inf)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        *((torch.float64, [value] * size) for value in ONE_VALUE for size in (1, 2, 5000, 40_000)),
        *((torch.float32, [value]) for value in (*ONE_VALUE, 1e-45)),
        (torch.float64, [math.inf, math.nan]),
        (torch.float32, [3e38, -3e38, 1e38]),  # squares beyond the dtype
        (torch.float64, [1e300, 3e300, -2e300]),
        (torch.float64, [-LARGEST, LARGEST, 0.0, 0.0]),
        (torch.float64, [-74.0, *[-0.13] * 27_677, 87.0]),  # a few values make up the norm
        (torch.int64, [torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max, 0, 1]),
        (torch.int64, [2**53, 2**53 + 1, 2**53 + 2]),  # float64 does not hold them
        (torch.int64, [2**62, 2**62 + 1]),
    ],
)
def test_the_limits_of_arithmetic(dtype, values):
    assert_agrees(torch.tensor(values, dtype=dtype))
    assert_agrees(torch.tensor(values * 3, dtype=dtype).view(3, -1).t())


@pytest.mark.parametrize(("shape", "dtype"), [((0,), torch.float32), ((3, 0), torch.int64), ((0, 5, 2), torch.bool)])
def test_an_empty_tensor_has_no_moments(shape, dtype):
    got, counts = summary(torch.empty(shape, dtype=dtype))
    assert got["n"] == 0
    assert all(math.isnan(got[name]) for name in ("mean", "std", "min", "max", "norm"))
    assert got["zero_fraction"] == got["nan"] == got["posinf"] == got["neginf"] == 0
    assert counts.tolist() == [0] * BINS


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


def test_every_bin_is_half_open_and_the_last_one_closed():
    _, counts = summary(torch.arange(65, dtype=torch.float64))
    assert counts.tolist() == [1] * 63 + [2]
    _, counts = summary(torch.arange(128, dtype=torch.float32) / 127 * 127)
    expected = np.minimum(np.floor(np.arange(128) * (64 / 127)).astype(int), 63)
    assert counts.tolist() == np.bincount(expected, minlength=64).tolist()


@pytest.mark.parametrize(("name", "tensor"), list(layouts()), ids=[name for name, _ in layouts()])
def test_any_memory_layout(name, tensor):  # noqa: ARG001 (the name is the test's id)
    assert_agrees(tensor)


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


def test_threads_do_not_share_buffers():
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


@pytest.mark.parametrize("times", [1000, 2**29, 2**30 - 1])
def test_an_expanded_tensor_is_its_elements_many_times(times):
    few = torch.tensor([[0.5], [math.nan], [-2.0], [0.0]])
    once, once_counts = summary(few)
    got, counts = summary(few.expand(4, times))
    assert got["n"] == 4 * times
    assert got["nan"] == times
    for name in ("mean", "std", "min", "max", "zero_fraction", "posinf"):
        assert got[name] == once[name], name
    assert got["norm"] == pytest.approx(once["norm"] * math.sqrt(times), rel=1e-14)
    assert counts.tolist() == (once_counts.astype(int) * times).tolist()


def test_the_most_elements_that_a_bin_counts():
    one = torch.tensor(3.0)
    got, counts = summary(one.expand(2**32 - 1))
    assert (got["n"], got["mean"], got["std"]) == (2**32 - 1, 3.0, 0.0)
    assert counts[0] == 2**32 - 1
    assert unsupported(one.expand(2**16, 2**16 - 1)) is None
    assert "4,294,967,296 elements" in unsupported(one.expand(2**16, 2**16))
