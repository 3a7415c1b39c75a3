"""Broadcasting: how tensors of different shapes go through one elementwise operation, without a copy of either.

    compare, from the last dimension backwards     broadcast_steps     one step per dimension, with the rule it follows
    the shape of the result                        broadcast_shape     raises BroadcastError, in PyTorch's words
    the virtual copy                               expand              a stride of 0: the next row is the same row

    a    3 × 1 × 5          a missing dimension counts as 1; then two sizes fit if they are equal, or if one of them
    b        4 × 1          is 1, and that one is stretched to the other
         ─────────
         3 × 4 × 5

All but `expand` is arithmetic on shapes: nothing is allocated, so a shape may be of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Rule = Literal["equal", "stretch_a", "stretch_b", "pad_a", "pad_b", "fault"]
"""How one dimension is matched.

    equal       both sizes are the same
    stretch_a   a's size is 1: a is stretched to b's
    stretch_b   b's size is 1: b is stretched to a's
    pad_a       a has no such dimension: it counts as 1, then is stretched to b's
    pad_b       b has no such dimension: it counts as 1, then is stretched to a's
    fault       the sizes differ and neither is 1
"""


@dataclass(frozen=True, slots=True)
class BroadcastStep:
    """One dimension of two shapes that are aligned at their ends.

    Attributes:
        dimension: of the result, from 0.
        from_end: the same dimension counted from the end: −1 is the last.
        a: size of a, None where a has no such dimension.
        b: size of b, None where b has no such dimension.
        size: of the result; None where the sizes do not fit.
        rule: why.
    """

    dimension: int
    from_end: int
    a: int | None
    b: int | None
    size: int | None
    rule: Rule


class BroadcastError(ValueError):
    """Two shapes that do not fit, in PyTorch's words.

    Attributes:
        steps: the dimensions that were compared, last dimension first; the last step is the one at fault.
    """

    def __init__(self, steps: Sequence[BroadcastStep]) -> None:
        self.steps = tuple(steps)
        fault = self.steps[-1]
        super().__init__(
            f"The size of tensor a ({fault.a}) must match the size of tensor b ({fault.b}) "
            f"at non-singleton dimension {fault.dimension}"
        )


# ---------------------------------------------------------------------------------------------------------- the rules


def broadcast_steps(a: Sequence[int], b: Sequence[int]) -> list[BroadcastStep]:
    """Compare two shapes dimension by dimension, from the last one backwards: a step per dimension of the result.

    The first dimension that does not fit ends it: its rule is "fault", and the dimensions before it are not compared,
    as in PyTorch. () is the shape of a scalar. Source: ch. 17, "Broadcasting rules".
    """
    ndim = max(len(a), len(b))
    steps: list[BroadcastStep] = []
    for from_end in range(-1, -ndim - 1, -1):
        size_a = a[from_end] if -from_end <= len(a) else None
        size_b = b[from_end] if -from_end <= len(b) else None
        size, rule = match_sizes(size_a, size_b)
        steps.append(BroadcastStep(ndim + from_end, from_end, size_a, size_b, size, rule))
        if rule == "fault":
            break
    return steps


def match_sizes(a: int | None, b: int | None) -> tuple[int | None, Rule]:
    """The size that two sizes have in common, and by which rule; None stands for a dimension that is missing.

    A size of 0 is a size like any other: 1 is stretched to 0, which leaves nothing; 0 and 3 do not fit.
    """
    if a is None:
        return b, "pad_a"
    if b is None:
        return a, "pad_b"
    if a == b:
        return a, "equal"
    if a == 1:
        return b, "stretch_a"
    if b == 1:
        return a, "stretch_b"
    return None, "fault"


def broadcast_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of `a + b`. Raises BroadcastError if in some dimension the sizes differ and neither is 1."""
    steps = broadcast_steps(a, b)
    sizes = [step.size for step in reversed(steps) if step.size is not None]
    if len(sizes) < len(steps):
        raise BroadcastError(steps)
    return tuple(sizes)


# --------------------------------------------------------------------------------------------------- the virtual copy


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """How many elements further the next index of each dimension lies, in a tensor that is stored row by row.

    stride[i] = stride[i+1] · max(shape[i+1], 1),  1 in the last dimension
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def expanded_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The strides of `tensor.expand(target)`: 0 wherever the tensor is stretched.

    A dimension that keeps its size keeps its stride. A new dimension in front that is only 1 long is not stretched: it
    gets the stride that a row-by-row tensor would have there. (A scalar has no stride to go by; all of its are 0.)
    Raises ValueError if `shape` cannot be expanded to `target`.

    Source: ch. 17, "PyTorch accomplishes this by giving the new dimension a stride of 0".
    """
    if len(shape) > len(target) or any(
        size not in (1, wanted) for size, wanted in zip(shape, target[len(target) - len(shape) :], strict=True)
    ):
        raise ValueError(f"shape {tuple(shape)} cannot be expanded to {tuple(target)}")
    if not shape:
        return (0,) * len(target)
    expanded: list[int] = []
    for from_end in range(-1, -len(target) - 1, -1):
        if -from_end <= len(shape):
            size, stride = shape[from_end], strides[from_end]
        else:
            size, stride = 1, target[from_end + 1] * expanded[-1]
        expanded.append(stride if size == target[from_end] else 0)
    return tuple(reversed(expanded))


def expand(tensor: Tensor, target: Sequence[int]) -> Tensor:
    """The tensor as if it had been copied to the shape `target`: a view on the same memory, with strides of 0.

    No element is new: an in-place operation would write one place several times. Equal to `tensor.expand(target)`.
    Raises ValueError if the tensor's shape cannot be expanded to the target.

    Source: ch. 17, "Broadcasting a vector to a matrix" (`expand_as`).
    """
    strides = expanded_strides(tensor.shape, tensor.stride(), target)
    return torch.as_strided(tensor, tuple(target), strides, tensor.storage_offset())


# ------------------------------------------------------------------------------------------------- one dimension more

ADDED_DIMENSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "c": lambda c: c,
    "c.unsqueeze(0)": lambda c: c.unsqueeze(0),
    "c[None, :]": lambda c: c[None, :],
    "c[None]": lambda c: c[None],
    "c.unsqueeze(1)": lambda c: c.unsqueeze(1),
    "c[:, None]": lambda c: c[:, None],
    "c[..., None]": lambda c: c[..., None],
}
"""The chapter's ways to say where a vector's missing dimension goes, each (n,) → (n,), (1, n) or (n, 1).

Broadcasting by itself adds it in front, like `unsqueeze(0)`; trailing `:` may be left out; `...` stands for all
dimensions that are not named.
"""


# ------------------------------------------------------------------------------------------------------------ the trap


def mean_squared_error_of_all_pairs(pred: Tensor, targ: Tensor) -> Tensor:
    """The loss that `(pred - targ).pow(2).mean()` computes where pred kept a dimension too many.

        loss = 1/n² Σᵢ Σⱼ (predᵢ − targⱼ)² = mse(pred, targ) + 2 cov(pred, targ)

    (n, 1) − (n,) is (n, n): every prediction is held against every target, without a word. A net that minimizes this
    learns to say mean(targ) whatever its input. pred: (n, 1), targ: (n,), loss: ().

    Source: ch. 17, "mse": the reason for its `squeeze`.
    """
    return (pred - targ).pow(2).mean()
