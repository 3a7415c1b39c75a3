"""The cost of `chainrule.watch` and of other tools that watch a training: a watched step ÷ a bare step.

    python bench/watch.py [--rounds 5] [--models M1,M3,M4] [--only bare,every=1]

AdamW on the models of models.py, one thread. CPU seconds of the process with its threads: other work on the machine
does not count, nor does the work that a tool leaves to another process. `--models M1@cuda` trains on a CUDA device, by
the clock. Each round trains a new model with each
candidate, in turn; the table has the median and the quartiles of the ratios. Writes bench/results/bench-watch.json.

A tool that is not installed fails: the extra `bench` has all but Cockpit, which needs an old setuptools
(`pip install cockpit-for-pytorch 'setuptools<81'`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import chainrule
from models import Case, case
from timing import now, quartiles

SECONDS = 2.0
"""Approximate duration of the bare steps in each training."""

RESULTS = Path(__file__).parent / "results" / "bench-watch.json"

Step = Callable[[torch.optim.Optimizer], None]


def backward(which: Case, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Forward and backward pass; the loss."""
    optimizer.zero_grad()
    loss = which.loss(which.model(which.x))
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


@contextmanager
def bare(which: Case, optimizer: torch.optim.Optimizer, _folder: Path) -> Iterator[Callable[[], None]]:
    def step() -> None:
        backward(which, optimizer)
        optimizer.step()

    yield step


def watched(every: int) -> Any:
    """`chainrule.watch`, kept in a run; statistics of every so many steps, histograms of every 100th."""

    @contextmanager
    def watching(which: Case, optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[Callable[[], None]]:
        with chainrule.watch(which.model, optimizer, every=every, keep=folder / "a.run") as watch:

            def step() -> None:
                watch.loss(backward(which, optimizer))
                optimizer.step()

            yield step

    return watching


@contextmanager
def tensorboard(which: Case, optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[Callable[[], None]]:
    """Histograms of parameters and gradients, every step."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]
    number = 0

    def step() -> None:
        nonlocal number
        loss = backward(which, optimizer)
        writer.add_scalar("loss", loss.item(), number)  # type: ignore[no-untyped-call]
        for name, parameter in which.model.named_parameters():
            writer.add_histogram(name, parameter, number)  # type: ignore[no-untyped-call]
            writer.add_histogram(f"{name}.grad", parameter.grad, number)  # type: ignore[no-untyped-call]
        optimizer.step()
        number += 1

    yield step
    writer.close()  # type: ignore[no-untyped-call]


@contextmanager
def wandb(which: Case, optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[Callable[[], None]]:
    """`wandb.watch` with histograms of parameters and gradients, every step, offline."""
    os.environ |= {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
    import wandb as package

    run = package.init(mode="offline", dir=str(folder), project="bench")
    run.watch(which.model, log="all", log_freq=1)

    def step() -> None:
        run.log({"loss": backward(which, optimizer).item()})
        optimizer.step()

    yield step
    run.unwatch(which.model)
    run.finish()


@contextmanager
def cockpit(which: Case, optimizer: torch.optim.Optimizer, _folder: Path) -> Iterator[Callable[[], None]]:
    """Cockpit's configuration `economy`, every step."""
    from backpack import extend
    from cockpit import Cockpit
    from cockpit.utils.configuration import configuration

    model, loss_of = extend(which.model), extend(torch.nn.MSELoss())
    losses_of = extend(torch.nn.MSELoss(reduction="none"))
    tracker = Cockpit(model.parameters(), quantities=configuration("economy"))
    number = 0

    def step() -> None:
        nonlocal number
        optimizer.zero_grad()
        output = model(which.x)
        loss = loss_of(output, which.y)
        losses = losses_of(output, which.y).flatten(1).mean(1)
        told = {"batch_size": len(which.x), "individual_losses": losses, "loss": loss, "optimizer": optimizer}
        with tracker(number, info=told):
            loss.backward(create_graph=tracker.create_graph(number))
        optimizer.step()
        number += 1

    yield step


CANDIDATES = {
    "bare": bare,
    "every=1": watched(1),
    "every=10": watched(10),
    "TensorBoard": tensorboard,
    "wandb": wandb,
    "Cockpit": cockpit,
}


def seconds_a_step(model: str, candidate: str, steps: int) -> float:
    which = case(model)
    optimizer = torch.optim.AdamW(which.model.parameters())
    with tempfile.TemporaryDirectory() as folder, CANDIDATES[candidate](which, optimizer, Path(folder)) as step:
        step()  # what only the first step does
        began = now()
        for _ in range(steps):
            step()
        return (now() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=lambda names: names.split(","), default=["M1", "M3", "M4"])
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(CANDIDATES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, dict[str, Any]] = {}
    print("| × bare step | bare | " + " | ".join(options.only[1:]) + " |\n|---|---|" + "---|" * (len(options.only) - 1))
    for model in options.models:
        first = seconds_a_step(model, "bare", 2)
        times: dict[str, list[float]] = {name: [] for name in options.only}
        failures: dict[str, str] = {}
        for _ in range(options.rounds):
            for name in options.only:
                if name in failures:
                    continue
                # A whole number of histograms; a tool that is far slower is measured by fewer steps.
                steps = max(10, int(SECONDS / first) // 100 * 100) if name.startswith(("bare", "every")) else 10
                try:
                    times[name].append(seconds_a_step(model, name, steps))
                except Exception as error:
                    failures[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
        found = {
            name: quartiles([one / bare for one, bare in zip(each, times["bare"], strict=True)])
            for name, each in times.items()
            if name not in failures
        }
        results[model] = {"bare_ms": statistics.median(times["bare"]) * 1e3, "ratios": found, "failures": failures}
        cells = [
            "fails" if name in failures else "{:.2f} ({:.2f}–{:.2f})".format(*found[name]) for name in options.only[1:]
        ]
        print(f"| {model} | {results[model]['bare_ms']:.1f} ms | " + " | ".join(cells) + " |", flush=True)
        for name, said in failures.items():
            print(f"{model}, {name}: {said}", file=sys.stderr)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
