"""Broadcasting by arithmetic on shapes says what PyTorch does with tensors."""

import ast
import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.foundations import broadcasting
from chainrule.foundations.broadcasting import (
    ADDED_DIMENSIONS,
    BroadcastError,
    broadcast_shape,
    broadcast_steps,
    contiguous_strides,
    expand,
    expanded_strides,
    mean_squared_error_of_all_pairs,
)

SHAPES = st.lists(st.integers(0, 4), max_size=6).map(tuple)


@st.composite
def pairs(draw):
    """Two shapes that fit more often than not: each dimension equal, 1 on one side, missing in front, or at random."""
    full = draw(SHAPES)
    sides = [[draw(st.sampled_from((size, size, 1))) for size in full] for _ in range(2)]
    a, b = (tuple(side[draw(st.integers(0, len(side))) :]) for side in sides)
    if draw(st.integers(0, 3)) == 0:
        b = draw(SHAPES)
    return a, b


def torch_says(a, b):
    """The shape of a + b, or PyTorch's message; both from the real operation."""
    try:
        return tuple((torch.zeros(a) + torch.zeros(b)).shape), None
    except RuntimeError as error:
        return None, str(error)


@given(pairs())
def test_shape_and_message_are_pytorchs(shapes):
    a, b = shapes
    shape, message = torch_says(a, b)
    if message is None:
        assert broadcast_shape(a, b) == shape
    else:
        with pytest.raises(BroadcastError) as raised:
            broadcast_shape(a, b)
        assert str(raised.value) == message


@given(pairs())
def test_steps_run_from_the_last_dimension_to_the_first_or_to_the_fault(shapes):
    a, b = shapes
    steps = broadcast_steps(a, b)
    shape, message = torch_says(a, b)
    assert [step.from_end for step in steps] == [-1 - index for index in range(len(steps))]
    assert [step.dimension for step in steps] == [max(len(a), len(b)) - 1 - index for index in range(len(steps))]
    assert [step.rule == "fault" for step in steps] == [False] * (len(steps) - 1) + [message is not None] * bool(steps)
    if message is None:
        assert tuple(step.size for step in reversed(steps)) == shape


@pytest.mark.parametrize(
    ("a", "b", "rules"),
    [
        ((3, 1, 5), (4, 1), ["stretch_b", "stretch_a", "pad_b"]),
        ((3,), (2, 3), ["equal", "pad_a"]),
        ((2,), (2, 3), ["fault"]),
        ((3, 2), (3, 3, 2), ["equal", "equal", "pad_a"]),
        ((), (4,), ["pad_a"]),
        ((1,), (0,), ["stretch_a"]),
        ((0,), (3,), ["fault"]),
        ((1,), (1,), ["equal"]),
        ((), (), []),
    ],
)
def test_each_dimension_names_its_rule(a, b, rules):
    assert [step.rule for step in broadcast_steps(a, b)] == rules


@given(pairs())
def test_expanded_strides_are_pytorchs(shapes):
    a, b = shapes
    target, message = torch_says(a, b)
    if message is not None:
        return
    for shape in (a, b):
        tensor = torch.zeros(shape)
        assert contiguous_strides(shape) == tensor.stride()
        assert expanded_strides(shape, contiguous_strides(shape), target) == tensor.expand(target).stride()


@given(pairs(), st.randoms(use_true_random=False))
def test_the_virtual_copy_holds_what_expand_holds_and_owns_nothing(shapes, random):
    a, b = shapes
    target, message = torch_says(a, b)
    if message is not None:
        return
    # A transposed tensor: expand must go by the strides that are there, not by those of a contiguous one.
    order = list(range(len(a)))
    random.shuffle(order)
    tensor = torch.arange(float(torch.Size(a).numel())).view(a).permute(order)
    target = broadcast_shape(tensor.shape, (1,) * len(target))
    copy = expand(tensor, target)
    assert torch.equal(copy, tensor.expand(target))
    assert copy.stride() == tensor.expand(target).stride()
    assert copy.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_the_stretched_rows_of_the_chapter_are_one_row():
    c = torch.tensor([10.0, 20, 30])
    rows, columns = expand(c, (3, 3)), expand(c.unsqueeze(1), (3, 3))
    assert rows.tolist() == [[10, 20, 30]] * 3
    assert columns.tolist() == [[10] * 3, [20] * 3, [30] * 3]
    assert (rows.stride(), columns.stride()) == ((0, 1), (1, 0))
    assert rows.untyped_storage().nbytes() == 3 * 4


@pytest.mark.parametrize(("shape", "target"), [((3,), (2, 4)), ((2, 3), (3,)), ((0,), (1,)), ((3, 1), (2, 5))])
def test_what_cannot_be_expanded_is_refused_as_in_pytorch(shape, target):
    with pytest.raises(RuntimeError):
        torch.zeros(shape).expand(target)
    with pytest.raises(ValueError, match="cannot be expanded"):
        expand(torch.zeros(shape), target)


def test_shapes_far_beyond_memory_cost_nothing():
    a, b = (2**31, 1, 2**31), (2**31, 1)
    assert broadcast_shape(a, b) == (2**31, 2**31, 2**31)
    assert expanded_strides(b, contiguous_strides(b), (2**31,) * 3) == (0, 1, 0)


def test_a_way_to_add_a_dimension_is_the_code_it_is_called_by():
    table = next(
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(broadcasting)))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ADDED_DIMENSIONS"
    )
    assert [ast.unparse(way.body) for way in table.values] == list(ADDED_DIMENSIONS)


def test_the_ways_to_add_a_dimension_lead_to_a_row_or_a_column():
    c = torch.tensor([10.0, 20, 30])
    shapes = {code: tuple(way(c).shape) for code, way in ADDED_DIMENSIONS.items()}
    assert shapes == {
        "c": (3,),
        **dict.fromkeys(("c.unsqueeze(0)", "c[None, :]", "c[None]"), (1, 3)),
        **dict.fromkeys(("c.unsqueeze(1)", "c[:, None]", "c[..., None]"), (3, 1)),
    }


def test_the_loss_of_all_pairs_is_the_true_one_and_twice_the_covariance():
    generator = torch.Generator().manual_seed(3)
    pred = torch.randn(200, 1, generator=generator, dtype=torch.float64)
    targ = pred.squeeze(-1) + 0.1 * torch.randn(200, generator=generator, dtype=torch.float64)
    true = torch.nn.functional.mse_loss(pred.squeeze(-1), targ)
    covariance = torch.cov(torch.stack([pred.squeeze(-1), targ]), correction=0)[0, 1]
    torch.testing.assert_close(mean_squared_error_of_all_pairs(pred, targ), true + 2 * covariance)
    assert mean_squared_error_of_all_pairs(pred, targ) > 50 * true
