"""A model as somebody may have it in a file: residual blocks with a norm, a list of them, and a head."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """x + down(relu(up(norm(x))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width) → (batch, width)."""
        hidden = self.up(self.norm(x))
        return x + self.down(torch.relu(hidden))


class Net(nn.Module):
    """An embedding, some blocks, a head."""

    def __init__(self, blocks: int = 3, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8) → (batch, 4)."""
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make() -> tuple[nn.Module, torch.Tensor, object]:
    """The model, its inputs and its loss."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    return Net(), x, lambda out: functional.mse_loss(out, y)
