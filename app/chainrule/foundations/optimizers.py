"""The optimizers: the step that follows the gradients.

    SGD   Adam   AdamW          updates = optimizer.updates(parameters, gradients); then parameter += update

w is a parameter, g its gradient, η the learning rate `lr`, λ the `weight_decay`. The chapter ends with the gradients;
ch. 4 of the same book has the step, and ch. 16 the other optimizers. Names and defaults are those of `torch.optim`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class SGD:
    """Stochastic gradient descent, with or without momentum.

        d = g + λ w
        v = μ v + d                                   v = d at the first step
        update = −η d          without momentum
        update = −η v          with momentum μ
        update = −η (d + μ v)  with Nesterov's momentum

    Source: I. Sutskever et al., *On the importance of initialization and momentum in deep learning* (2013), in the form
    of `torch.optim.SGD`, where η stands outside the sum.
    """

    def __init__(self, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> None:
        self.lr, self.momentum, self.nesterov, self.weight_decay = lr, momentum, nesterov, weight_decay
        self.velocities: list[Tensor] = []

    def updates(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        """The update of each parameter, in its shape; also updates the velocities."""
        directions = [g + self.weight_decay * w for w, g in zip(parameters, gradients, strict=True)]
        if self.momentum:
            if self.velocities:
                pairs = zip(self.velocities, directions, strict=True)
                self.velocities = [self.momentum * v + d for v, d in pairs]
            else:
                self.velocities = [d.clone() for d in directions]
            if self.nesterov:
                pairs = zip(self.velocities, directions, strict=True)
                directions = [d + self.momentum * v for v, d in pairs]
            else:
                directions = self.velocities
        return [-self.lr * d for d in directions]


class Adam:
    """Adaptive moments: each element has a step of its own size.

        d = g + λ w
        m = β₁ m + (1 − β₁) d          the mean of the gradients
        s = β₂ s + (1 − β₂) d²         the mean of their squares
        update = −η m̂ / (√ŝ + ε)       m̂ = m / (1 − β₁ᵗ), ŝ = s / (1 − β₂ᵗ) at step t = 1, 2, …

    m and s begin at 0, and m̂ and ŝ correct for this beginning.

    Source: D. Kingma and J. Ba, *Adam: A Method for Stochastic Optimization* (2014), algorithm 1.
    """

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0
        self.means: list[Tensor] = []
        self.squares: list[Tensor] = []

    def updates(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        """The update of each parameter, in its shape; also updates the moments."""
        return self.adapted([g + self.weight_decay * w for w, g in zip(parameters, gradients, strict=True)])

    def adapted(self, directions: Sequence[Tensor]) -> list[Tensor]:
        """−η m̂ / (√ŝ + ε) for each direction d; also updates the moments."""
        beta1, beta2 = self.betas
        if not self.means:
            self.means = [torch.zeros_like(d) for d in directions]
            self.squares = [torch.zeros_like(d) for d in directions]
        self.steps += 1
        self.means = [beta1 * m + (1 - beta1) * d for m, d in zip(self.means, directions, strict=True)]
        self.squares = [beta2 * s + (1 - beta2) * d * d for s, d in zip(self.squares, directions, strict=True)]
        size = self.lr / (1 - beta1**self.steps)
        root = math.sqrt(1 - beta2**self.steps)
        return [-size * m / (s.sqrt() / root + self.eps) for m, s in zip(self.means, self.squares, strict=True)]


class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments.

        update = −η λ w − η m̂ / (√ŝ + ε)          with d = g

    Source: I. Loshchilov and F. Hutter, *Decoupled Weight Decay Regularization* (2017), algorithm 2.
    """

    def updates(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        """The update of each parameter, in its shape; also updates the moments."""
        shrink = -self.lr * self.weight_decay
        return [shrink * w + u for w, u in zip(parameters, self.adapted(gradients), strict=True)]
