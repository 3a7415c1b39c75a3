"""The precisions that a model can be compared in, and their rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.errors import ExploreError
from chainrule.trace.nested import nested_tensors
from chainrule.user_model.subject import Subject
from chainrule.user_model.what_if import COMPILERS


@dataclass(frozen=True, slots=True)
class Precision:
    """One precision: the model and its inputs in `dtype`, or the model as it is, under autocast or with TF32.

    Or as a backend of torch.compile runs it, in its own dtype.
    """

    name: str
    dtype: torch.dtype
    is_autocast: bool = False
    is_tf32: bool = False
    is_compiled: bool = False


PRECISIONS = {
    each.name: each
    for each in (
        Precision("bfloat16", torch.bfloat16),
        Precision("float16", torch.float16),
        Precision("float32", torch.float32),
        Precision("float64", torch.float64),
        Precision("tf32", torch.float32, is_tf32=True),
        Precision("autocast-bfloat16", torch.bfloat16, is_autocast=True),
        Precision("autocast-float16", torch.float16, is_autocast=True),
        *(Precision(name, torch.float32, is_compiled=True) for name in COMPILERS),
    )
}

TF32 = 2.0**-11
"""Unit roundoff of the factors of a product in TF32."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """The largest relative error of rounding to nearest: 2⁻⁸ for bfloat16, 2⁻²⁴ for float32."""
    return torch.finfo(dtype).eps / 2


def precision_named(name: str) -> Precision:
    """The precision of this name.

    Raises:
        ExploreError: no precision has this name.
    """
    if name not in PRECISIONS:
        why = "; a cast to float8 needs scales, which only its layers know" if name.startswith("float8") else ""
        raise ExploreError(f"as: {name} is not one of {', '.join(PRECISIONS)}{why}", field="as")
    return PRECISIONS[name]


def check_precision(precision: Precision, subject: Subject) -> None:
    """Check that the subject can be compared in this precision.

    Raises:
        ExploreError: the device does not have it, or the model is in it already.
    """
    name, own, device = precision.name, dtypes_of(subject), subject.device.type
    if precision.is_compiled:
        return
    is_a_way = precision.is_tf32 or precision.is_autocast
    if is_a_way and own != {torch.float32}:
        raise ExploreError(f"as: {name} needs a model in float32; {subject.name} is in {in_words(own)}", field="as")
    if precision.is_tf32 and device != "cuda":
        raise ExploreError(f"as: tf32 needs a CUDA device; {subject.name} is on {device}", field="as")
    if not is_a_way and own == {precision.dtype}:
        others = ", ".join(each for each in PRECISIONS if each != name)
        raise ExploreError(
            f"as: {subject.name} is in {name} already, so both passes would be the same; choose one of {others}",
            field="as",
        )


def dtypes_of(subject: Subject) -> set[torch.dtype]:
    """The floating dtypes of the parameters, buffers and inputs."""
    model: nn.Module = subject.model
    given: list[Tensor] = nested_tensors([*subject.args, *subject.kwargs.values()])
    return {each.dtype for each in (*model.parameters(), *model.buffers(), *given) if each.is_floating_point()}


def in_words(dtypes: Iterable[torch.dtype]) -> str:
    """`bfloat16 and float32`."""
    return " and ".join(sorted(str(each).removeprefix("torch.") for each in dtypes))


@contextmanager
def products_in(kind: str | None) -> Iterator[None]:
    """Inside, products of float32 matrices on CUDA are computed in "tf32" or in "ieee"; None changes nothing."""
    places: Any = torch.backends
    backends = [] if kind is None else [places.cuda.matmul, places.cudnn.conv, places.cudnn.rnn]
    before = [each.fp32_precision for each in backends]
    try:
        for each in backends:
            each.fp32_precision = kind
        yield
    finally:
        for each, value in zip(backends, before, strict=True):
            each.fp32_precision = value
