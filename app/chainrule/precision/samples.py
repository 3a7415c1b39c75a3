"""Samples of the tensors of a run, so that two runs can be compared without keeping their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from chainrule.trace.journal import address

MAX_ELEMENTS = 65_536
"""The elements that are kept of one tensor."""

MAX_TOTAL = 2**25
"""The elements that are kept of all tensors of a run; with more, each large tensor keeps fewer."""


@dataclass(slots=True)
class Samples:
    """Evenly spaced elements of each tensor, in its own dtype, on the CPU.

    The distance is a power of 3, so that it does not stay in one column of a matrix whose width is a power of 2.
    """

    found: dict[str, torch.Tensor] = field(default_factory=dict)
    most: int = MAX_ELEMENTS
    total: int = 0

    def add(self, identifier: str, tensor: torch.Tensor) -> None:
        """Keep a sample of a live tensor; `on_tensor` of a recording."""
        if address(tensor) is None or tensor.is_quantized or tensor.numel() == 0:
            return
        tensor = tensor.detach()
        if tensor.is_contiguous():
            sample = _thinned(tensor.view(-1), self.most)
        else:  # it may be a small tensor, expanded to a huge one
            places = torch.arange(0, tensor.numel(), _step(tensor.numel(), self.most), device=tensor.device)
            sample = tensor[torch.unravel_index(places, tensor.shape)]
        self.found[identifier] = sample.cpu().clone()
        self.total += sample.numel()
        while self.total > MAX_TOTAL and self.most > 1:
            self.most //= 3
            self.found = {each: _thinned(kept, self.most).clone() for each, kept in self.found.items()}
            self.total = sum(map(torch.Tensor.numel, self.found.values()))


def _step(size: int, most: int) -> int:
    step = 1
    while math.ceil(size / step) > most:
        step *= 3
    return step


def _thinned(flat: torch.Tensor, most: int) -> torch.Tensor:
    return flat[:: _step(flat.numel(), most)]


def in_pairs(a: Samples, b: Samples, match: dict[str, str]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Id in `b`, and the same elements of both."""
    for here, there in match.items():
        if here in b.found and there in a.found:
            one, other = a.found[there], b.found[here]
            least = min(one.numel(), other.numel())
            yield here, _thinned(one, least), _thinned(other, least)
