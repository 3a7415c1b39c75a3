"""The compiled kernel agrees with PyTorch, refuses other tensors, and changes nothing else."""

import hashlib
import logging
import math
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import layouts

from chainrule.stats import (
    BINS,
    COLUMNS,
    StatisticsSlab,
    dead_fraction,
    kernel_name,
    native,
    saturation,
    summarize,
    unsupported,
)

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = tuple(getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
EXACT = [COLUMNS.index(name) for name in ("n", "min", "max", "zero_fraction", "nan", "posinf", "neginf")]
ROUNDED = [COLUMNS.index(name) for name in ("mean", "std", "norm")]


def rows():
    """A row of moments and a row of counts with wrong values: every entry must be written."""
    return np.full(len(COLUMNS), 123.456), np.full(BINS, 77, np.uint32)


def by_torch(tensor):
    moments, counts = rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernel", None)
        summarize(tensor, moments, counts)
    return moments, counts


def assert_agrees_with_torch(compiled, tensor):
    moments, counts = rows()
    assert compiled.summarize(tensor, moments, counts)
    expected, expected_counts = by_torch(tensor)
    assert counts.tolist() == expected_counts.tolist()
    # As bytes: NaN is NaN, and -0 is not 0.
    assert moments[EXACT].tobytes() == expected[EXACT].tobytes()
    width = expected[COLUMNS.index("max")] - expected[COLUMNS.index("min")]
    rounding = 4e-16 * (tensor.numel() + 64) * (width if math.isfinite(width) else 0)
    np.testing.assert_allclose(moments[ROUNDED], expected[ROUNDED], rtol=1e-9, atol=rounding)
    assert np.isnan(moments[-2:]).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_of_16_bits(compiled, dtype):
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    assert_agrees_with_torch(compiled, every)
    for size in (0x400, 0x80):
        # The denormals alone, and the first normal number.
        assert_agrees_with_torch(compiled, torch.arange(size + 1).to(torch.int16).view(dtype))
    moments, counts = rows()
    for number in every[::97]:
        assert compiled.summarize(number, moments, counts)
        if torch.isfinite(number):
            assert moments[COLUMNS.index("mean")] == number.item()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_more_in_one_bin_than_16_bits_count(compiled, dtype):
    tensor = torch.zeros(600_001, dtype=dtype)
    tensor[123] = 1
    assert_agrees_with_torch(compiled, tensor)
    _, counts = rows()
    compiled.summarize(tensor, np.empty(len(COLUMNS)), counts)
    assert (counts[0], counts[BINS - 1]) == (600_000, 1)
    tensor[1::2] = 1
    tensor[-1] = math.nan
    assert_agrees_with_torch(compiled, tensor)


def test_values_on_the_edges_of_bins(compiled):
    for steps in (64, 65, 128, 640, 6400):
        for high in (1.0, 0.1, 3e-5, 7e20):
            assert_agrees_with_torch(compiled, torch.linspace(-high / 3, high, steps))
            assert_agrees_with_torch(compiled, torch.linspace(0, high, steps + 1, dtype=torch.float64))


@pytest.mark.parametrize(("dtype", "outlier"), [(torch.float64, 1e20), (torch.float32, 1e9)], ids=str)
@pytest.mark.parametrize("step", [1, 3])
def test_outliers_where_the_centre_is_sampled(compiled, dtype, outlier, step):
    """Of ±1, half of each: the sums of so few different numbers are known exactly."""
    n = 500_000
    tensor = torch.ones(n * step, dtype=dtype)[::step]
    tensor[::2] = -1
    tensor[n // 16 :: (n + 7) // 8] = outlier
    outliers, ones = (tensor == outlier).sum().item(), (tensor == 1).sum().item()
    moments, _ = rows()
    assert compiled.summarize(tensor, moments, rows()[1])
    height = Fraction(tensor.max().item())
    mean = (outliers * height + 2 * ones + outliers - n) / n
    square = (outliers * height**2 + n - outliers) / n
    expected = [float(mean), math.sqrt(square - mean**2), math.sqrt(n * square)]
    assert moments[ROUNDED].tolist() == pytest.approx(expected, rel=1e-13)


@pytest.fixture
def flushed():
    """Call with flush_denormal on, and turn it off before a comparison, which would flush as well."""

    def call(function, *arguments):
        torch.set_flush_denormal(True)
        try:
            return function(*arguments)
        finally:
            torch.set_flush_denormal(False)

    yield call
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    "values",
    [
        [1e-45, 1e-40, 0.0, 3e-39],
        [1e-40, -2e-40, -0.0, 0.0, 1e-37],
        [1e-40, 2e-40, 4e-40],
        [3e-40],
        [-1e-40, 1.0, 0.0],
        [-1e-40, 1e-12, math.nan],
        [1e-40, math.inf, 2e-40],
        [6e-8, 1.2e-7, 0.0],
    ],
    ids=str,
)
def test_denormals_are_numbers_where_the_processor_flushes_them(compiled, flushed, values, step):
    for dtype in FLOATS:
        tensor = torch.tensor(values * 300, dtype=dtype).repeat_interleave(step)[::step]
        expected, found = rows(), rows()
        assert compiled.summarize(tensor, *expected)
        assert flushed(compiled.summarize, tensor, *found)
        assert found[1].tolist() == expected[1].tolist()
        assert found[0][EXACT].tobytes() == expected[0][EXACT].tobytes()
        np.testing.assert_allclose(found[0][ROUNDED], expected[0][ROUNDED], rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("values", "low", "zero_fraction"),
    [
        ([5e-324, 1e-310, 0.0], 0.0, 1.0),
        ([1e-310], 0.0, 1.0),
        ([1e-310, 1e-310, 3e-300, 0.0], 0.0, 0.75),
        ([-1e-310, 0.0, 1.0, -0.0], -1e-310, 0.5),
    ],
)
def test_a_row_of_flushed_float64_is_consistent(compiled, flushed, values, low, zero_fraction):  # noqa: ARG001
    moments, counts = rows()
    flushed(summarize, torch.tensor(values * 20, dtype=torch.float64), moments, counts)
    row = dict(zip(COLUMNS, moments.tolist(), strict=True))
    assert row["min"] == low <= row["mean"] <= row["max"]
    assert row["zero_fraction"] == zero_fraction
    assert (row["std"] == 0) == (row["min"] == row["max"]) == (row["norm"] == 0)
    assert counts.sum() == row["n"]


@pytest.mark.parametrize("value", [1e160, 1e-160, 5e-324, 1.7e308])
def test_float64_that_cannot_be_squared_is_left_to_torch(compiled, value):
    moments, counts = rows()
    tensor = torch.tensor([value, 0.0, value / 2], dtype=torch.float64)
    assert not compiled.summarize(tensor, moments, counts)
    summarize(tensor, moments, counts)
    assert moments.tobytes() == by_torch(tensor)[0].tobytes()


def test_integers_that_float64_does_not_hold_are_left_to_torch(compiled):
    moments, counts = rows()
    assert not compiled.summarize(torch.tensor([2**53 + 1, 0]), moments, counts)
    assert compiled.summarize(torch.tensor([2**53 - 1, 1 - 2**53]), moments, counts)


SMALL = [
    (name, each) for name, each in layouts() if each.dtype == torch.float32 and each.untyped_storage().nbytes() < 1e6
]
READ_IN_PLACE = [
    *((name, each) for name, each in SMALL if not each.is_neg() and each.isfinite().all()),
    ("overlapping", torch.randn(72).as_strided((2, 2), (1, 1))),
    ("many dimensions", torch.randn(2**10).view(*[2] * 10)[:, 1:, :, :, 1:].permute(9, 3, 5, 1, 7, 0, 2, 4, 8, 6)),
    ("more than a block, column by column", torch.randn(70, 500)[3:-3].t()),
    ("long and strided", torch.randn(30_000)[::3]),
]


@pytest.mark.parametrize(("name", "tensor"), READ_IN_PLACE, ids=[name for name, _ in READ_IN_PLACE])
def test_memory_of_any_layout_is_read_in_place(compiled, name, tensor):  # noqa: ARG001
    def strided(values):
        """`values` as memory, seen with the strides of `tensor`."""
        return values.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // 4,), (1,), 0)
    specials = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0]).repeat(len(memory))[: len(memory[::5])]
    for dtype in DTYPES:
        assert_agrees_with_torch(compiled, strided((memory * 20).abs().to(dtype)))
        if dtype.is_floating_point:
            with_specials = (memory * 20).to(dtype)
            with_specials[::5] = specials
            assert_agrees_with_torch(compiled, strided(with_specials))


def dense_and_strided():
    every = torch.arange(-(2**15), 2**15).to(torch.int16)
    normal = torch.randn(20_000, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    normal[::700], normal[5], normal[6], normal[7] = 0, math.nan, math.inf, -math.inf
    for dtype in FLOATS:
        yield every.view(dtype) if dtype.itemsize == 2 else normal.to(dtype)
        yield normal.to(dtype).view(100, 200)[:, ::3]
    for dtype in (*INTEGERS, torch.bool):
        yield every.clamp(0, 127).to(dtype)


@pytest.mark.parametrize("name", native.kernel.instruction_sets() if native.kernel else ())
def test_instruction_sets_agree(name):
    """A selection for every instruction set; the whole matrix runs on the best one, or in `make test-all`."""
    native.kernel.use(name)
    try:
        for tensor in dense_and_strided():
            assert_agrees_with_torch(native.kernel, tensor)
            if tensor.is_floating_point():
                units = tensor.reshape(-1)[:200].reshape(4, 50)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(native, "kernel", None)
                    expected = dead_fraction(units), saturation(tensor, 0.5)
                assert (native.kernel.dead_fraction(units), native.kernel.saturation(tensor, 0.5, 0.485)) == expected
    finally:
        native.kernel.use(native.kernel.instruction_sets()[0])


@pytest.mark.parametrize(
    "arrange",
    [
        lambda base: base,
        lambda base: base.t(),
        lambda base: base[::7, ::3],
        lambda base: base[1:].expand(2, -1, -1),
        lambda base: base.as_strided((1, 2), (5, 1), 16),
        lambda base: base.as_strided((2, 2), (15, 1)),
        lambda base: base[-1:, -1:],
    ],
)
def test_memory_that_was_partly_freed_is_not_read(compiled, arrange):
    base = torch.ones(100, 100)
    tensor, still_there = arrange(base), base.as_strided((2, 2), (14, 1))
    assert compiled.is_readable(tensor)
    base.untyped_storage().resize_(64)
    assert not compiled.is_readable(tensor)
    assert not compiled.summarize(tensor, *rows())
    assert compiled.dead_fraction(tensor) is None
    assert compiled.saturation(tensor, 0.0, 0.97) is None
    assert unsupported(tensor) == "no statistics: its memory was freed"
    with pytest.raises(ValueError, match="freed"):
        summarize(tensor, *rows())
    assert compiled.is_readable(still_there)
    assert compiled.summarize(still_there, *rows())
    assert compiled.is_readable(base[:0])
    base.untyped_storage().resize_(0)
    assert not compiled.summarize(still_there, *rows())


def test_any_byte_but_0_is_true(compiled):
    tensor = torch.tensor([0, 1, 2, 255, 0], dtype=torch.uint8).repeat(900).view(torch.bool)
    assert_agrees_with_torch(compiled, tensor)
    assert_agrees_with_torch(compiled, tensor[1::3])
    moments, _ = rows()
    assert compiled.summarize(tensor, moments, rows()[1])
    assert moments[[COLUMNS.index("mean"), COLUMNS.index("max")]].tolist() == [0.6, 1.0]


def test_memory_that_is_not_aligned_is_left_to_torch(compiled):
    tensor = torch.frombuffer(bytearray(range(41)), dtype=torch.float32, offset=1)
    assert not compiled.summarize(tensor, *rows())
    assert compiled.is_readable(tensor)


@pytest.mark.parametrize("limit", [0.97, 0.485, 0.5, 0.75, 0.9, 1.5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_limits_between_and_on_the_numbers_of_16_bits(compiled, dtype, limit):
    """Whether the nearest number of the dtype is even or odd, the kernel rounds as PyTorch does."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    number = torch.tensor(limit, dtype=dtype)
    for step in range(-3, 4):
        moved = (number.view(torch.int16) + step).view(dtype).item()
        for middle in (0.0, 0.25, 0.5):
            expected = ((every - middle).abs() > moved).double().mean().item()
            assert compiled.saturation(every, middle, moved) == expected
    expected = (every.abs() > limit).double().mean().item()
    assert compiled.saturation(every, 0.0, limit) == expected


class Subclass(torch.Tensor):
    """Its values may be something else than what it holds in memory."""


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_tensors_without_plain_values_are_not_read(compiled):
    def refused(tensor):
        assert not compiled.is_readable(tensor)
        assert not compiled.summarize(tensor, *rows())
        assert compiled.dead_fraction(tensor) is None
        assert compiled.saturation(tensor, 0.0, 0.97) is None
        return tensor.sum()

    for tensor in (
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.zeros(2, 2, device="meta"),
        torch.zeros(2, 2, dtype=torch.complex64),
        torch.zeros(2, 2).to(torch.float8_e4m3fn),
        torch.randn(2, 2).as_subclass(Subclass),
    ):
        assert not compiled.is_readable(tensor)
        assert not compiled.summarize(tensor, *rows())
    torch.vmap(refused)(torch.randn(3, 4))
    torch.func.grad(refused)(torch.randn(3, 4))
    for other in (None, 3, np.ones(3), "tensor"):
        assert not compiled.is_readable(other)
        assert not compiled.summarize(other, *rows())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
def test_tensors_without_memory_have_no_statistics(compiled):
    def refused(tensor):
        assert not compiled.summarize(tensor, *rows())
        assert StatisticsSlab().take_at_once(tensor) == -1
        assert unsupported(tensor).startswith("no statistics: ")
        return None if tensor.is_nested else tensor.sum()

    for tensor in (
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.zeros(2, 2, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ):
        refused(tensor)
    for transform in (torch.vmap, torch.func.grad):
        transform(refused)(torch.randn(3, 4))
    # Also inside of a transform, tensors from outside of it have memory.
    plain = torch.randn(3)
    torch.vmap(lambda each: each + float(StatisticsSlab().take_at_once(plain)))(torch.ones(2))


def test_a_negated_view_is_read_with_its_sign(compiled):
    tensor = torch._neg_view(torch.tensor([1.0, 2.0, 5.0]))
    moments, counts = rows()
    summarize(tensor, moments, counts)
    assert moments[COLUMNS.index("max")] == -1.0
    assert not compiled.summarize(tensor, *rows())
    for imaginary in (torch.ones(5, 1, dtype=torch.complex64), torch.tensor(1j), torch.ones(1, dtype=torch.complex64)):
        negated = imaginary.conj().imag
        assert negated.is_neg()
        assert not compiled.summarize(negated, *rows())
        assert compiled.saturation(negated, 0.0, 0.97) is None
        assert compiled.summarize(negated.resolve_neg(), *rows())
        assert compiled.summarize(imaginary.imag, *rows())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((torch.ones(3), np.empty(11), np.empty(BINS, np.uint32)), ValueError),
        ((torch.ones(3), np.empty((12, 2))[:, 0], np.empty(BINS, np.uint32)), ValueError),
        ((torch.ones(3), np.empty(12, ">f8"), np.empty(BINS, np.uint32)), ValueError),
        ((torch.ones(3), np.empty(12), np.empty(BINS, np.float32)), ValueError),
        ((torch.ones(3), np.empty(12), b" " * 4 * BINS), BufferError),
        ((torch.ones(3), 5, 6), TypeError),
        ((torch.ones(3),), TypeError),
    ],
)
def test_rows_of_another_form_are_refused(compiled, arguments, error):
    with pytest.raises(error):
        compiled.summarize(*arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16])
@pytest.mark.parametrize("change", [lambda x: x, lambda x: x[::2, 1:], lambda x: x * 0, lambda x: x / (x - x[0, 0])])
def test_without_counts_the_moments_are_the_same(compiled, dtype, change):
    tensor = change(torch.randn(70, 50) * 9).to(dtype)
    expected, alone = rows(), rows()
    assert compiled.summarize(tensor, *expected) == compiled.summarize(tensor, alone[0], None)
    assert alone[0].tobytes() == expected[0].tobytes()
    assert (alone[1] == rows()[1]).all()


def test_a_row_of_arrays_is_written_and_no_other(compiled):
    tensor, expected = torch.randn(3000), rows()
    compiled.summarize(tensor, *expected)
    arrays = np.full((3, len(COLUMNS)), 123.456), np.full((3, BINS), 77, np.uint32)
    before = [array.copy() for array in arrays]
    assert compiled.summarize_row(tensor, *map(memoryview, arrays), 1)
    for array, old, one in zip(arrays, before, expected, strict=True):
        assert array[1].tobytes() == one.tobytes()
        assert (array[[0, 2]] == old[[0, 2]]).all()


@pytest.mark.parametrize(
    ("moments", "counts", "row", "error"),
    [
        ((3, 12), (3, 64), 3, IndexError),
        ((3, 12), (3, 64), -1, IndexError),
        ((3, 12), (2, 64), 2, IndexError),
        ((3, 11), (3, 64), 0, ValueError),
        ((3, 12), (3, 63), 0, ValueError),
        ((3, 12), (3, 64), 2**70, OverflowError),
        ((3, 12), (3, 64), 0.0, TypeError),
    ],
)
def test_a_row_that_is_not_there_is_refused(compiled, moments, counts, row, error):
    with pytest.raises(error):
        compiled.summarize_row(torch.ones(3), np.empty(moments), np.empty(counts, np.uint32), row)
    with pytest.raises(ValueError, match="format 'I'"):
        compiled.summarize_row(torch.ones(3), np.empty((3, 12)), np.empty((3, 64)), 0)


def test_a_row_is_copied_into_one_that_is_there(compiled):
    first, second = ((np.random.rand(3, 12), np.arange(192, dtype=np.uint32).reshape(3, 64)) for _ in range(2))
    before = [array.copy() for array in second]
    compiled.copy_row(*first, 2, *second, 0)
    for array, source, old in zip(second, first, before, strict=True):
        assert array[0].tobytes() == source[2].tobytes()
        assert array[1:].tobytes() == old[1:].tobytes()
    for row, new in ((3, 0), (0, 3), (-1, 0), (0, -1)):
        with pytest.raises(IndexError):
            compiled.copy_row(*first, row, *second, new)
    with pytest.raises(ValueError, match="format 'd'"):
        compiled.copy_row(first[1], first[1], 0, *second, 0)
    with pytest.raises(OverflowError):
        compiled.copy_row(*first, 2**70, *second, 0)


def test_a_tensor_that_changes_meanwhile_is_counted_within_the_row(compiled):
    """The second pass reads other values than the first: the statistics are wrong, but no other memory is written."""
    tensor = torch.randn(400_000)
    around = np.full((3, BINS), 77, np.uint32)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            tensor[::3] = 1e30
            tensor[1::3] = math.nan
            tensor[::3] = -1e30
            tensor.normal_()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            compiled.summarize(tensor, np.empty(len(COLUMNS)), around[1])
    finally:
        stop.set()
        thread.join()
    assert (around[[0, 2]] == 77).all()


class Unbindable:
    def __init__(self, source):
        self.SOURCE = source

    def bind(self, *_):
        raise ImportError("the method stride is of another kind")


SOURCE = hashlib.sha256(Path(native.__file__).with_name("_kernel.c").read_bytes()).hexdigest()


@pytest.mark.parametrize(("source", "warning"), [("0" * 64, "another source"), (SOURCE, "of another kind")])
def test_a_kernel_of_another_source_or_for_another_pytorch_is_not_used(monkeypatch, caplog, source, warning):
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setattr(native, "import_module", lambda _: Unbindable(source))
    with caplog.at_level(logging.WARNING):
        monkeypatch.setattr(native, "kernel", native._load())
    assert warning in caplog.text
    assert kernel_name() == "torch"


def test_without_one_or_with_the_switch_torch_is_used(monkeypatch):
    def absent(name):
        raise ImportError(name)

    with monkeypatch.context() as patch:
        patch.setenv(native.SWITCH, "torch")
        assert native._load() is None
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setattr(native, "import_module", absent)
    assert native._load() is None


def test_a_default_device_of_the_user_is_not_taken_for_the_host(compiled):  # noqa: ARG001 (it must be compiled)
    code = (
        "import torch; torch.set_default_device('meta'); from chainrule.stats import native; "
        "print([native.kernel.is_readable(torch.empty(3, device=each)) for each in ('cpu', 'meta')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[True, False]\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_mkldnn(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.empty(3, device="meta"),
    ],
    ids=["sparse", "mkldnn", "nested", "meta"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_memory_of_its_own_is_refused_in_silence(make, compiled, capfd):
    assert not compiled.is_readable(make())
    assert capfd.readouterr() == ("", "")
