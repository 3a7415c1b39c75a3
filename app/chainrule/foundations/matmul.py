"""Matrix multiplication from scratch, five times: each rung does at once what the one before did in a loop.

    c[i, j] = Σₖ a[i, k] · b[k, j]          a: (m, k), b: (k, n), c: (m, n)

    loops           three loops: one multiplication and one addition at a time
    elementwise     the loop over k becomes a product of two vectors and a sum
    broadcasting    the loop over j becomes the product of a column with a matrix
    einsum          the loop over i, and with it every loop, becomes the names of the indices
    @               PyTorch's operator

Every rung is called `matmul` in the chapter and computes the same thing; the line it replaces stays above the new one.
Each takes two matrices of one dtype, and raises ValueError where they cannot be multiplied (the chapter asserts). The
results agree up to rounding: who adds in another order gets other last digits.

Source: ch. 17, "Matrix Multiplication from Scratch".
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def matmul_loops(a: Tensor, b: Tensor) -> Tensor:
    """a: (m, k), b: (k, n) → c: (m, n), in m·n·k steps of Python."""
    ar, ac, bc = _sizes(a, b)
    c = torch.zeros(ar, bc, dtype=a.dtype, device=a.device)
    for i in range(ar):
        for j in range(bc):
            for k in range(ac):
                c[i, j] += a[i, k] * b[k, j]
    return c


def matmul_elementwise(a: Tensor, b: Tensor) -> Tensor:
    """a: (m, k), b: (k, n) → c: (m, n), in m·n steps of Python."""
    ar, _, bc = _sizes(a, b)
    c = torch.zeros(ar, bc, dtype=a.dtype, device=a.device)
    for i in range(ar):
        for j in range(bc):
            # for k in range(ac): c[i, j] += a[i, k] * b[k, j]            # previous
            c[i, j] = (a[i] * b[:, j]).sum()
    return c


def matmul_broadcasting(a: Tensor, b: Tensor) -> Tensor:
    """a: (m, k), b: (k, n) → c: (m, n), in m steps of Python, each with a temporary of the size of b."""
    ar, _, bc = _sizes(a, b)
    c = torch.zeros(ar, bc, dtype=a.dtype, device=a.device)
    for i in range(ar):
        # for j in range(bc): c[i, j] = (a[i] * b[:, j]).sum()            # previous
        c[i] = (a[i].unsqueeze(-1) * b).sum(dim=0)
    return c


def matmul_einsum(a: Tensor, b: Tensor) -> Tensor:
    """a: (m, k), b: (k, n) → c: (m, n): k, which the result lacks, is summed over."""
    _sizes(a, b)
    # for i in range(ar): c[i] = (a[i].unsqueeze(-1) * b).sum(dim=0)      # previous
    return torch.einsum("ik,kj->ij", a, b)


def matmul_operator(a: Tensor, b: Tensor) -> Tensor:
    """a: (m, k), b: (k, n) → c: (m, n), as PyTorch has it."""
    _sizes(a, b)
    # return torch.einsum("ik,kj->ij", a, b)                              # previous
    return a @ b


RUNGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loops": matmul_loops,
    "elementwise": matmul_elementwise,
    "broadcasting": matmul_broadcasting,
    "einsum": matmul_einsum,
    "@": matmul_operator,
}
"""The five in the order of the chapter; each is named after its new tool."""


def _sizes(a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """Rows of a, columns of a (which are the rows of b), columns of b."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: expected a (m, k) and b (k, n), got a {tuple(a.shape)}, b {tuple(b.shape)}")
    if a.dtype != b.dtype:
        raise ValueError(f"matmul: expected a and b of one dtype, got a {a.dtype}, b {b.dtype}")
    return a.shape[0], a.shape[1], b.shape[1]
