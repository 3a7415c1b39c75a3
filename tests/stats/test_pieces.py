import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.stats.pieces import pieces, pieces_of_units, without_repeats


@st.composite
def views(draw):
    """Views of distinct numbers: any order of dimensions, steps, offsets, and dimensions of repeats."""
    shape = draw(st.lists(st.integers(1, 9), max_size=4))
    tensor = torch.arange(torch.Size(shape).numel()).view(shape)
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    for dim in range(tensor.dim()):
        tensor = tensor.narrow(dim, start := draw(st.integers(0, tensor.shape[dim] - 1)), tensor.shape[dim] - start)
        tensor = tensor[(slice(None),) * dim + (slice(None, None, draw(st.integers(1, 3))),)]
    return tensor


@settings(max_examples=300)
@given(views(), st.integers(1, 100))
def test_every_element_is_in_one_piece(tensor, most):
    found = list(pieces(tensor, most))
    assert all(0 < piece.numel() <= most for piece in found)
    assert sorted(value for piece in found for value in piece.flatten().tolist()) == sorted(tensor.flatten().tolist())
    storage = tensor.untyped_storage().data_ptr()
    assert all(piece.untyped_storage().data_ptr() == storage for piece in found)


@settings(max_examples=200)
@given(views().filter(lambda view: view.dim() >= 2), st.integers(1, 100))
def test_every_unit_is_in_one_piece_with_its_whole_batch(activation, most):
    found = list(pieces_of_units(activation, most))
    assert all(len(piece) == len(activation) and 0 < piece[0].numel() <= most for piece in found)
    units = [tuple(unit) for piece in found for unit in piece.reshape(len(piece), -1).t().tolist()]
    assert sorted(units) == sorted(tuple(unit) for unit in activation.reshape(len(activation), -1).t().tolist())


def test_dense_memory_has_large_pieces():
    base = torch.arange(10 * 7 * 13).view(10, 7, 13)
    for view in (base, base.permute(2, 0, 1), base.mT):
        assert [piece.numel() for piece in pieces(view, 300)] == [300, 300, 300, 10]


@given(views(), st.lists(st.integers(1, 5), min_size=1, max_size=2))
def test_without_repeats_each_element_stands_for_as_many(tensor, sizes):
    expanded = tensor.expand(*sizes, *tensor.shape)
    few, times = without_repeats(expanded)
    assert times * few.numel() == expanded.numel()
    assert sorted(few.flatten().tolist() * times) == sorted(expanded.flatten().tolist())
