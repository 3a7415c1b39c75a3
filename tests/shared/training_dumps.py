"""Dumps of one training, and of models unlike it."""

import json

import torch
from torch import nn

from chainrule import trace_model
from chainrule.dump.wire import dump_trace

STEPS = 6


class Task(nn.Module):
    """A net and its loss, so that a forward pass ends in a scalar."""

    def __init__(self, hidden):
        super().__init__()
        torch.manual_seed(3)
        layers = [nn.Linear(8, 12), nn.ReLU()]
        for _ in range(hidden - 1):
            layers += [nn.Linear(12, 12), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(12, 1))

    def forward(self, inp, target):
        return nn.functional.mse_loss(self.body(inp), target)


def batch():
    """inp: (32, 8), target: (32, 1)."""
    inp = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))
    return inp, inp.sum(1, keepdim=True).sin()


def write_dumps(folder):
    """Write step0.json … step1000.json of one training and deeper.json with a layer more."""
    inp, target = batch()
    task = Task(2)
    (folder / "deeper.json").write_bytes(dump_trace(trace_model(Task(3), inp, target)))
    optimizer = torch.optim.SGD(task.parameters(), lr=0.2)
    for step in range(STEPS):
        (folder / f"step{200 * step}.json").write_bytes(dump_trace(trace_model(task, inp, target)))
        for _ in range(10):
            optimizer.zero_grad()
            task(inp, target).backward()
            optimizer.step()
    return folder


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())
