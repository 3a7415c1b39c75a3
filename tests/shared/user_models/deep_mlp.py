"""50 layers of tanh whose weights are drawn too small: forward and backward, the signal vanishes."""

import torch
from torch import nn

DEPTH = 50
WIDTH = 64
STD = 0.1  # 1/√64 = 0.125 would keep it for longer


class DeepMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 1)
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=STD)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def make():
    y = torch.randn(32, 1)
    return DeepMLP(), torch.randn(32, WIDTH), lambda out: nn.functional.mse_loss(out, y)
