"""What `chainrule.watch` costs: the time of a watched training ÷ that of the same training unwatched.

    python bench/watch.py [rounds]

CPU seconds of the process with its writing thread: other work on the machine does not count. Watched and unwatched
trainings take turns; the table has the median of the ratios.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

import chainrule

STEPS = 200


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    ), torch.randn(128, 64)


def cnn() -> tuple[nn.Module, torch.Tensor]:
    convolutions = [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
    ]
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)), torch.randn(
        64, 3, 32, 32
    )


def seconds(make, every: int | None) -> float:
    torch.manual_seed(0)
    net, x = make()
    y = torch.arange(len(x)) % 10
    optimizer = torch.optim.Adam(net.parameters())
    with tempfile.TemporaryDirectory() as folder:
        watching = chainrule.watch(net, optimizer, every=every, keep=Path(folder) / "a.run") if every else nullcontext()
        with watching as watch:
            began = time.process_time()
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                if watch:
                    watch.loss(loss)
                optimizer.step()
            return time.process_time() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    print("| net | bare step | every=1 | every=10 |\n|---|---|---|---|")
    for make in (mlp, cnn):
        seconds(make, 1)
        bare, ratios = [], {1: [], 10: []}
        for _ in range(rounds):
            for every, found in ratios.items():
                alone = seconds(make, None)
                bare.append(alone / STEPS)
                found.append(seconds(make, every) / alone)
        cells = " | ".join(f"{statistics.median(found):.2f}" for found in ratios.values())
        print(f"| {make.__name__} | {statistics.median(bare) * 1e3:.2f} ms | {cells} |")


if __name__ == "__main__":
    main()
