"""Tensors that are no plain array of real numbers have right statistics, or a reason why they have none."""

import pytest
import torch
from agreement import DTYPES, assert_agrees, summary
from torch._subclasses.fake_tensor import FakeTensorMode

from chainrule.stats import StatisticsSlab, unsupported
from chainrule.trace.recorder import record

pytestmark = pytest.mark.usefixtures("implementation")

FLOAT8 = [each for name, each in vars(torch).items() if name.startswith("float8_")]


class Plain(torch.Tensor):
    """A subclass with memory of its own."""


class Wrapper(torch.Tensor):
    """A subclass without memory, that computes nothing."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func} of a wrapper")


def test_tensors_with_statistics():
    for dtype in (*DTYPES, *FLOAT8):
        assert unsupported(torch.zeros(2).to(dtype)) is None
    assert unsupported(torch.zeros(2, requires_grad=True)) is None
    assert unsupported(torch.empty(0)) is None
    assert unsupported(torch.zeros(2).as_subclass(Plain)) is None


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_number_of_8_bits(dtype):
    every = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)
    assert_agrees(every)
    assert_agrees(every[::3])
    assert_agrees(every[:100].repeat(200))


def test_a_subclass_with_memory():
    assert_agrees(torch.linspace(-1, 2, 100).as_subclass(Plain))
    assert_agrees(torch.nn.Parameter(torch.linspace(-1, 2, 100)))


def test_views_of_a_conjugate():
    """The real part of one is a plain view; of its imaginary part the memory holds the negatives."""
    values = torch.tensor([1 + 2j, 3 - 4j, -5 + 0j, 0.5j])
    for size in (4, 1):
        for part in (values[:size].conj().imag, values[:size].conj().real):
            assert_agrees(part)
    assert values.conj().imag.is_neg()
    assert summary(values.conj().imag)[0]["min"] == -2


def test_zeros_without_memory():
    got, counts = summary(torch._efficientzerotensor((5,)))
    assert (got["n"], got["mean"], got["zero_fraction"], counts[0]) == (5, 0, 1, 5)


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


def freed():
    tensor = torch.ones(5)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def cut_short():
    tensor = torch.ones(500)[::2]
    tensor.untyped_storage().resize_(1000)
    return tensor


MATRIX = torch.eye(4)

NONE = {
    "sparse_coo": lambda: MATRIX.to_sparse(),
    "sparse_csr": lambda: MATRIX.to_sparse_csr(),
    "sparse_csc": lambda: MATRIX.to_sparse_csc(),
    "sparse_bsr": lambda: MATRIX.to_sparse_bsr((2, 2)),
    "_mkldnn": lambda: MATRIX.to_mkldnn(),
    "nested": lambda: nested(torch.strided),
    "a nested": lambda: nested(torch.jagged),
    "complex32": lambda: torch.zeros(2, dtype=torch.complex32),
    "complex64": lambda: torch.zeros(2, dtype=torch.complex64),
    "complex128": lambda: torch.zeros(2, dtype=torch.complex128).conj(),
    "meta": lambda: torch.zeros(2, device="meta"),
    "qint8": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "quint8": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    **{
        name: lambda dtype=dtype: torch.zeros(2, dtype=torch.uint8).view(dtype)
        for name, dtype in vars(torch).items()
        if name.startswith("float4")
    },
    "bits8": lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8),
    "4,294,967,296 elements": lambda: torch.ones(1).expand(2**32),
    "8,589,934,592 elements": lambda: torch.ones((), dtype=torch.float16).expand(2, 2**32),
    "freed": lambda: freed().as_subclass(Plain),
    "was freed": lambda: cut_short().as_subclass(Plain),
    "fake": fake,
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("word", NONE)
def test_tensors_without_statistics_have_a_reason(word):
    note = unsupported(NONE[word]())
    assert note.startswith("no statistics: ")
    assert word in note


@pytest.mark.parametrize("make", [freed, cut_short, lambda: torch.nn.Parameter(cut_short())])
def test_memory_that_was_partly_freed_is_not_read(make):
    assert unsupported(make()) == "no statistics: its memory was freed"
    with pytest.raises(ValueError, match="its memory was freed"):
        summary(make())


def test_inside_a_function_transform():
    notes = []

    def function(x):
        notes.append(unsupported(x))
        return x.sum()

    torch.vmap(function)(torch.ones(2, 3))
    torch.func.grad(function)(torch.ones(3))
    assert len(notes) == 2
    assert all("function transform" in note for note in notes)


def test_a_recording_notes_the_reason_and_goes_on():
    sharded = torch.ones(6)
    try:
        with record() as recording:
            sharded.untyped_storage().resize_(0)
            torch.empty_like(sharded, device="meta")
            two = torch.ones(2).sum()
    finally:
        sharded.untyped_storage().resize_(24)  # so that it can be printed
    assert two == 2
    rows = {(tensor.shape, tensor.note) for tensor in recording.trace.tensors}
    assert ((6,), "no statistics: its memory was freed") in rows
    assert ((), None) in rows


def test_a_wrapper_subclass_may_raise():
    slab = StatisticsSlab()
    assert unsupported(Wrapper()) is None
    with pytest.raises(NotImplementedError, match="of a wrapper"):
        slab.take(Wrapper())
    assert slab.rows == 0
