"""Watching a training on CUDA: it changes no number, and its rows are those of the host."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

import chainrule

pytestmark = pytest.mark.gpu


def model():
    torch.manual_seed(0)
    layers = [each for _ in range(6) for each in (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(64, 500), nn.Linear(500, 600))


def train(device, keep=None, steps=25, scaled=False, optimizer=torch.optim.AdamW):
    net = model().to(device)
    optimizer = optimizer(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device) if scaled else None
    x, y = (torch.randn(32, size, generator=torch.Generator().manual_seed(size)).to(device) for size in (64, 600))
    losses = []
    watching = chainrule.watch(net, optimizer, keep=keep, every=1, scaler=scaler) if keep else contextlib.nullcontext()
    with watching as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast(device, torch.float16) if scaled else contextlib.nullcontext():
                loss = nn.functional.mse_loss(net(x), y)
            if scaler is None:
                loss.backward()
            else:
                scaler.scale(loss).backward()
            if watch is not None:
                watch.loss(loss)
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            losses.append(loss.item())
    return losses, list(net.parameters())


@pytest.mark.parametrize("scaled", [False, True])
def test_watched_is_unwatched_bit_for_bit(tmp_path, scaled):
    losses, weights = train("cuda", scaled=scaled)
    watched_losses, watched_weights = train("cuda", tmp_path / "a.run", scaled=scaled)
    assert losses == watched_losses
    assert all(torch.equal(one, other) for one, other in zip(weights, watched_weights, strict=True))


def test_its_rows_are_those_of_the_host(tmp_path):
    rows = {}
    for device in ("cpu", "cuda"):
        train(device, tmp_path / f"{device}.run", steps=2, optimizer=torch.optim.SGD)
        rows[device] = chainrule.runs(tmp_path / f"{device}.run").rows.to_dict("records")
    assert len(rows["cpu"]) == len(rows["cuda"]) > 200
    for host, there in zip(rows["cpu"], rows["cuda"], strict=True):
        for name, value in host.items():
            if name == "run":
                continue
            if not isinstance(value, float):
                assert there[name] == value, (host, there)
            else:
                # A value beside zero, or beside the limit of saturation, can be on the other side.
                tolerance = 2e-3 if name.endswith(("fraction", "saturation")) else 1e-6
                assert np.isclose(there[name], value, rtol=1e-3, atol=tolerance, equal_nan=True), (name, host, there)
