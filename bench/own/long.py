"""A model of more than 10,000 ops: a recurrent cell written out, over a long sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

STEPS = 1250


class Recurrent(nn.Module):
    """h ← tanh(W x + U h), one position after the other, and what the last state says."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.reads, self.keeps, self.says = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:  # x: (steps, batch, width)
        h = torch.zeros_like(x[0])
        for position in x:
            h = torch.tanh(self.reads(position) + self.keeps(h))
        said: Tensor = self.says(h)
        return said.square().mean()


def make() -> tuple[nn.Module, Tensor]:
    """1,250 positions, a batch of 8."""
    torch.manual_seed(0)
    return Recurrent(), torch.randn(STEPS, 8, 32)
