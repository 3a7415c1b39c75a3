"""Small models with a graph worth looking at: for pictures and for layouts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace import Trace, trace_model


class ResidualBlock(nn.Module):
    """Two convolutions and what they are added to (He et al. 2015, *Deep residual learning*)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class Residual(nn.Module):
    """One residual block and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.block = ResidualBlock(4, 8, 2)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).flatten(1))


class LSTMCell(nn.Module):
    """One step (Hochreiter & Schmidhuber 1997), its four gates in one product."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(features, 4 * hidden)
        self.hidden = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (self.input(x) + self.hidden(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class LSTM(nn.Module):
    """Four steps through one cell, whose weights every step shares."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = LSTMCell(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 16)
        c = x.new_zeros(x.shape[0], 16)
        for step in range(4):
            h, c = self.cell(x[:, step], h, c)
        return self.head(h)


class Attention(nn.Module):
    """Causal self-attention, spelled out (Vaswani et al. 2017, *Attention is all you need*)."""

    mask: Tensor

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(positions, positions, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        parts = self.qkv(x).view(batch, positions, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, positions, width))


class Block(nn.Module):
    """A block of a GPT: attention and an MLP, each with its norm and its residual."""

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, positions)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """One block between an embedding of positions and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(8, 32))
        self.block = Block(32, 4, 8)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.block(x + self.positions)))


def _traced(model: nn.Module, x: Tensor, y: Tensor) -> Trace:
    return trace_model(model, x, loss=lambda out: F.mse_loss(out, y))


def _seeded(make: Callable[[], Trace]) -> Callable[[], Trace]:
    def made() -> Trace:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return make()

    return made


MODELS: dict[str, Callable[[], Trace]] = {
    "chapter": _seeded(lambda: trace_spec(ModelSpec())),
    "layers50": _seeded(lambda: trace_spec(ModelSpec.from_query("widths=100x51"))),
    "residual": _seeded(lambda: _traced(Residual(), torch.randn(4, 4, 8, 8), torch.randn(4, 10))),
    "lstm": _seeded(lambda: _traced(LSTM(), torch.randn(5, 4, 8), torch.randn(5, 4))),
    "gpt_block": _seeded(lambda: _traced(Gpt(), torch.randn(2, 8, 32), torch.randn(2, 8, 16))),
}
"""Models by name, each a function that records it."""

VIEWS: dict[str, dict[str, str]] = {
    "chapter": {},
    "layers50": {"fold": "on"},
    "residual": {"level": "all"},
    "lstm": {"level": "all"},
    "gpt_block": {"level": "all"},
}
"""How each of them is drawn: options of `to_svg`."""
