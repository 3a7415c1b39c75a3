"""The chapter's model as its pages draw it, and its gradients by autograd, as a reference."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from chainrule.foundations.initialization import draw, generator_for, normal


def draw_model(batch: int, n_in: int, hidden: int, n_out: int, seed: int, scale: float = 1.0) -> tuple[Tensor, ...]:
    """x, targ, w1, b1, w2, b2 with Kaiming weights times `scale` and zero biases: the explorer's draws from this seed.

    x: (batch, n_in), targ: (batch,) for n_out = 1, else (batch, n_out), w1: (n_in, hidden), w2: (hidden, n_out).
    """
    x = normal((batch, n_in), generator_for(seed, "x"))
    targ = normal((batch,) if n_out == 1 else (batch, n_out), generator_for(seed, "y"))
    w1 = draw("kaiming_normal", n_in, hidden, generator_for(seed, "w1"), scale)
    w2 = draw("kaiming_normal", hidden, n_out, generator_for(seed, "w2"), scale)
    return x, targ, w1, torch.zeros(hidden), w2, torch.zeros(n_out)


def autograd_pass(
    x: Tensor, targ: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss and its gradients with respect to x, w1, b1, l1, l2, w2, b2 and out, by torch's own layers and loss."""
    x, w1, b1, w2, b2 = (tensor.detach().requires_grad_() for tensor in (x, w1, b1, w2, b2))
    l1 = F.linear(x, w1.t(), b1)
    l2 = F.relu(l1)
    out = F.linear(l2, w2.t(), b2)
    loss = F.mse_loss(out, targ.view_as(out))
    by = {"x": x, "w1": w1, "b1": b1, "l1": l1, "l2": l2, "w2": w2, "b2": b2, "out": out}
    return loss.detach(), dict(zip(by, torch.autograd.grad(loss, list(by.values())), strict=True))
