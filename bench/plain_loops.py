"""Plain loops of PyTorch that compute one cell of a sweep after the other, as a user would write them; for sweep.py.

Only the draws are those of the spec. They are cached, which spares these loops most of the drawing.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from chainrule.build.draws import draw_leaves
from chainrule.spec import ModelSpec


def plain_net(spec: ModelSpec) -> nn.Sequential:
    """Linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(spec.widths):
        layers += [nn.Linear(n_in, n_out, bias=spec.bias, dtype=getattr(torch, spec.dtype)), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def draw_into(net: nn.Sequential, spec: ModelSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the net the spec's draws, which are cached; returns x, (batch, n_in), and y, (batch, n_out)."""
    leaves = draw_leaves(spec)
    with torch.no_grad():
        for index, layer in enumerate(net[::2], start=1):
            layer.weight.copy_(leaves[f"w{index}"].T)
            if spec.bias:
                layer.bias.copy_(leaves[f"b{index}"])
    return leaves["x"], leaves["y"].view(spec.batch, spec.n_out)


def plain_training(spec: ModelSpec) -> float:
    """The loss at the spec's step ÷ the loss at the beginning."""
    net, loss_of = plain_net(spec), nn.MSELoss()
    x, y = draw_into(net, spec)
    optimizer = torch.optim.SGD(net.parameters(), lr=spec.lr)
    first = loss_of(net(x), y).item()
    for _ in range(spec.step):
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
    return float(loss_of(net(x), y).item() / first)


def plain_pass(spec: ModelSpec, net: nn.Sequential | None = None) -> float:
    """The gradient's standard deviation in the first hidden activation ÷ in the last; in a new net if none is given."""
    net = net or plain_net(spec)
    h, y = draw_into(net, spec)
    net.zero_grad()
    kept = []
    for place, layer in enumerate(net):
        h = layer(h)
        if place in (1, len(net) - 2):
            h.retain_grad()
            kept.append(h)
    nn.MSELoss()(h, y).backward()
    first, last = (each.grad.std(correction=0).item() for each in kept)
    return float(first / last)
