"""A tensor in pieces of bounded size, so that work on each needs bounded memory, whatever the strides."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def without_repeats(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """An expanded tensor without its repeats, and how often each element is repeated."""
    times = 1
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
            times *= size
    return tensor, times


def pieces(tensor: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """Views of at most `most` elements that together are `tensor`, in memory order as far as strides allow."""
    if tensor.numel() <= most:
        yield tensor
        return
    tensor = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    if tensor.is_contiguous():
        tensor = tensor.view(-1)
    inner = tensor[0].numel()
    if inner <= most:
        step = most // inner
        for start in range(0, len(tensor), step):
            yield tensor[start : start + step]
    else:
        for index in range(len(tensor)):
            yield from pieces(tensor[index], most)


def pieces_of_units(activation: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """Views of (batch, …) with the whole batch and at most `most` units each, that together are `activation`."""
    units = activation[0].numel()
    if units <= most:
        yield activation
        return
    inner = units // activation.shape[1]
    if inner <= most:
        yield from torch.split(activation, most // inner, 1)
    else:
        for index in range(activation.shape[1]):
            yield from pieces_of_units(activation.select(1, index), most)
