"""Attention with and without the division of its scores by √d, and other models for a comparison of precisions."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

WIDTH = 64


class Attention(nn.Module):
    """One head, whose queries and keys have variance 2."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for projection in (self.query, self.key):
            nn.init.normal_(projection.weight, std=(2 / WIDTH) ** 0.5)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) * self.scale
        return scores.softmax(-1) @ self.value(x)


def made(scale):
    model = nn.Sequential(nn.LayerNorm(WIDTH), Attention(scale), nn.Linear(WIDTH, 10))
    target = torch.arange(128) % 10
    return model, torch.randn(4, 32, WIDTH), lambda output: F.cross_entropy(output.flatten(0, 1), target)


def scaled():
    return made(WIDTH**-0.5)


def unscaled():
    return made(1.0)
