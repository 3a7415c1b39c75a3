"""The five reference models of every figure: random weights, seeded.

M1  50 × [Linear(100, 100), ReLU], batch 200      M2  the chapter's 100 → 50 → 1, batch 200
M3  a ResNet-18 on 64 × 64 images, batch 8        M4  12 GPT-like blocks, width 256, 4 × 128 positions
M5  1000 × [Linear(100, 100), ReLU], batch 200

Also L10 … L1000 and any other number of such layers. `M1@cuda` is M1 on that device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)


@dataclass(frozen=True)
class Case:
    """A model with its input and target; the loss is the mean squared error."""

    model: nn.Module
    x: Tensor
    y: Tensor

    def bare(self) -> None:
        """One forward and backward pass, nothing else."""
        self.model.zero_grad(set_to_none=True)
        self.loss(self.model(self.x)).backward()  # type: ignore[no-untyped-call]

    def loss(self, output: Tensor) -> Tensor:
        """The loss of the model's output."""
        return F.mse_loss(output, self.y)


def mlp(depth: int, width: int = 100) -> nn.Sequential:
    """`depth` layers with Kaiming weights, so that the signal lives."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(width, width)
        nn.init.kaiming_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    """Two convolutions and what they are added to (He et al. 2015, *Deep residual learning*)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            convolution = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:  # x: (batch, channels_in, height, width)
        hidden = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


def resnet() -> nn.Sequential:
    """ResNet-18 with ten classes."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks: list[nn.Module] = []
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [ResidualBlock(channels_in, channels, stride), ResidualBlock(channels, channels, 1)]
        channels_in = channels
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class AttentionBlock(nn.Module):
    """A pre-norm decoder block (Radford et al. 2019, GPT-2)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # x: (batch, positions, width)
        batch, positions, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        query, key, value = (part.view(batch, positions, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, positions, width))
        fed: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + fed


def gpt(blocks: int = 12, width: int = 256, heads: int = 4) -> nn.Sequential:
    """Takes embeddings, not token ids."""
    return nn.Sequential(
        *(AttentionBlock(width, heads) for _ in range(blocks)), nn.LayerNorm(width), nn.Linear(width, width)
    )


_CASES: dict[str, tuple[Callable[[], nn.Module], Iterable[int], Iterable[int]]] = {
    "M1": (lambda: mlp(50), (200, 100), (200, 100)),
    "M2": (lambda: nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 1)), (200, 100), (200, 1)),
    "M3": (resnet, (8, 3, 64, 64), (8, 10)),
    "M4": (gpt, (4, 128, 256), (4, 128, 256)),
    "M5": (lambda: mlp(1000), (200, 100), (200, 100)),
}

NAMES = tuple(_CASES)


def case(name: str) -> Case:
    """One of M1 … M5, or L and a number of layers; the same numbers every time.

    Raises:
        KeyError: there is no such model.
    """
    name, _, device = name.partition("@")
    device = device or "cpu"
    torch.manual_seed(0)
    if name.startswith("L") and name[1:].isdecimal():
        make, x_shape, y_shape = lambda: mlp(int(name[1:])), (200, 100), (200, 100)
    else:
        make, x_shape, y_shape = _CASES[name]
    return Case(make().to(device), torch.randn(*x_shape).to(device), torch.randn(*y_shape).to(device))
