"""A module that is put together from a forward function and its parts."""

from torch import nn


class Parts(nn.Module):
    """`forward(self, *inputs)` calls the parts, which are attributes."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.run(self, *inputs)
