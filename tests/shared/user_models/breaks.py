"""Models that break on their way, and one whose weights are NaN."""

import torch
from torch import nn


class WrongShape(nn.Module):
    """The second layer takes another width than the first one gives."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(9, 1)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.second(hidden)  # BREAKS


class ChangedInPlace(nn.Module):
    """Changes in place the tensor that exp keeps for its backward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)

    def forward(self, x):
        hidden = self.first(x).exp()
        hidden += 1
        return hidden.mean()


class NotANumber(nn.Module):
    """The first layer's output is negative somewhere, and its logarithm is no number."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).log()).mean()


def make_wrong_shape():
    return WrongShape(), torch.randn(4, 6), lambda out: out.mean()


def make_changed_in_place():
    return ChangedInPlace(), torch.randn(4, 6)


def make_not_a_number():
    return NotANumber(), torch.randn(4, 6)
