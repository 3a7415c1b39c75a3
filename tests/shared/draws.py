"""Draws of tests, each from a seed or a generator."""

import torch


def normal(source, *shape, dtype=torch.float64):
    generator = source if isinstance(source, torch.Generator) else torch.Generator().manual_seed(source)
    return torch.randn(shape, generator=generator, dtype=dtype)
