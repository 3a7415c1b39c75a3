"""Factories that return nothing that could be traced."""

import torch
from torch import nn


def no_scalar():
    return nn.Linear(3, 2), torch.randn(4, 3)


def frozen():
    return nn.Linear(3, 1).requires_grad_(False), torch.randn(2, 3)


def inputs_on_meta():
    return nn.Linear(3, 1), torch.randn(2, 3, device="meta")


def out_of_memory():
    raise MemoryError("not enough")  # OUT OF MEMORY
