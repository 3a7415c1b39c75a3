import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.foundations.broadcasting import (
    BroadcastError,
    broadcast_shape,
    broadcast_steps,
    contiguous_strides,
    expand,
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
def test_steps_shape_and_message_are_pytorchs(shapes):
    a, b = shapes
    shape, message = torch_says(a, b)
    steps = broadcast_steps(a, b)
    assert [step.from_end for step in steps] == [-1 - index for index in range(len(steps))]
    assert [step.dimension for step in steps] == [max(len(a), len(b)) - 1 - index for index in range(len(steps))]
    assert [step.rule == "fault" for step in steps] == [False] * (len(steps) - 1) + [message is not None] * bool(steps)
    if message is None:
        assert broadcast_shape(a, b) == shape == tuple(step.size for step in reversed(steps))
        return
    with pytest.raises(BroadcastError) as raised:
        broadcast_shape(a, b)
    assert str(raised.value) == message


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


@given(pairs(), st.randoms(use_true_random=False))
def test_expand_gives_torchs_view(shapes, random):
    a, b = shapes
    target, message = torch_says(a, b)
    if message is not None:
        return
    assert contiguous_strides(b) == torch.zeros(b).stride()
    # A transposed tensor: expand must go by the strides that are there, not by those of a contiguous one.
    order = list(range(len(a)))
    random.shuffle(order)
    for tensor in (torch.zeros(b), torch.arange(float(torch.Size(a).numel())).view(a).permute(order)):
        target = broadcast_shape(tensor.shape, (1,) * len(target))
        copy = expand(tensor, target)
        assert torch.equal(copy, tensor.expand(target))
        assert copy.stride() == tensor.expand(target).stride()
        assert copy.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize(("shape", "target"), [((3,), (2, 4)), ((2, 3), (3,)), ((0,), (1,)), ((3, 1), (2, 5))])
def test_shapes_that_do_not_expand_are_refused_as_in_pytorch(shape, target):
    with pytest.raises(RuntimeError):
        torch.zeros(shape).expand(target)
    with pytest.raises(ValueError, match="cannot be expanded"):
        expand(torch.zeros(shape), target)
