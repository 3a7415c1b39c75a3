"""The optimizers against torch.optim, step by step in float64."""

import pytest
import torch

from chainrule.foundations.optimizers import SGD, Adam, AdamW

PAIRS = {
    "sgd": (lambda: SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd with weight decay": (
        lambda: SGD(0.1, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01),
    ),
    "momentum": (
        lambda: SGD(0.1, 0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01),
    ),
    "nesterov": (
        lambda: SGD(0.1, 0.9, nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": (lambda: Adam(0.1, weight_decay=0.01), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01)),
    "adamw": (lambda: AdamW(0.1, weight_decay=0.01), lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.01)),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", PAIRS)
def test_updates_are_torch_s(name):
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 3), (3,))]
    ours = [each.clone() for each in start]
    theirs = [each.clone().requires_grad_() for each in start]
    optimizer, reference = PAIRS[name][0](), PAIRS[name][1](theirs)
    for _ in range(200):
        gradients = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in start]
        updates = optimizer.updates(ours, gradients)
        ours = [w + update for w, update in zip(ours, updates, strict=True)]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
        torch.testing.assert_close(ours, [each.detach() for each in theirs], rtol=1e-12, atol=1e-12)
