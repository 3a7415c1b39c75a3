"""Trainers of other libraries: their wrappers of models and optimizers, and their callbacks.

This module does not import these libraries: a user who passes a trainer has imported its library.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer


class Watcher(Protocol):
    """Receives the reports of a trainer."""

    def start(self, model: nn.Module, optimizer: Optimizer, scaler: torch.amp.GradScaler | None = None) -> None:
        """Called when the training begins."""

    def loss(self, loss: torch.Tensor | float) -> None:
        """Called with the loss of the step, before the optimizer's step."""


def bare_model(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of data parallelism, of Fabric and of torch.compile."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        is_wrapper = isinstance(model, wrappers) or type(model).__name__ == "_FabricModule"
        inner = model.module if is_wrapper else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def bare_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside the wrappers of accelerate, Fabric and Lightning."""
    # An optimizer such as Lookahead also has an inner one, but is more than a wrapper.
    wrappers = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
    while type(optimizer).__module__.partition(".")[0] in wrappers:
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            break
        optimizer = inner
    return optimizer


def is_trainer(given: Any) -> bool:
    """Whether `attach` supports this object."""
    return _home(given) is not None


def attach(trainer: Any, watcher: Watcher) -> Callable[[], None]:
    """Make a trainer report the start of its training and its losses.

    Returns a function that undoes this and reports the losses of an unfinished step.

    If gradients accumulate over several batches, the loss of the step is the loss of all these batches.
    """
    package = _home(trainer)
    return _ATTACH[package.partition(".")[0]](trainer, watcher, package) if package else lambda: None


def _home(trainer: Any) -> str | None:
    """The package of the Trainer class that the object is an instance of; None for another object."""
    modules = (each.__module__ for each in type(trainer).__mro__ if each.__name__ == "Trainer")
    return next((each.partition(".trainer")[0] for each in modules if each.partition(".")[0] in _ATTACH), None)


def _attach_lightning(trainer: Any, watcher: Watcher, package: str) -> Callable[[], None]:
    losses: list[torch.Tensor] = []

    def on_train_start(trainer: Any, module: nn.Module) -> None:
        if len(trainer.optimizers) != 1:
            raise ValueError(
                f"optimizer: the Trainer has {len(trainer.optimizers)} optimizers; watch supports exactly one"
            )
        watcher.start(module, trainer.optimizers[0], trainer.scaler)

    def on_before_backward(_trainer: Any, _module: nn.Module, loss: torch.Tensor) -> None:
        losses.append(loss.detach())

    def on_before_optimizer_step(*_: Any) -> None:
        _tell(watcher, losses)

    callback = importlib.import_module(package).Callback()
    callback.on_train_start = on_train_start
    callback.on_before_backward = on_before_backward
    callback.on_before_optimizer_step = on_before_optimizer_step
    trainer.callbacks.append(callback)

    def detach() -> None:
        trainer.callbacks.remove(callback)
        _tell(watcher, losses)

    return detach


def _attach_transformers(trainer: Any, watcher: Watcher, package: str) -> Callable[[], None]:
    losses: list[torch.Tensor] = []
    training_step = trainer.training_step
    own = vars(trainer).get("training_step")

    def on_train_begin(*_: Any, model: nn.Module, optimizer: Optimizer, **_options: Any) -> None:
        watcher.start(model, optimizer)

    def on_pre_optimizer_step(*_: Any, **_options: Any) -> None:
        _tell(watcher, losses)

    @functools.wraps(training_step)
    def with_loss(*args: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = training_step(*args, **options)
        losses.append(loss)
        return loss

    callback = importlib.import_module(package).TrainerCallback()
    callback.on_train_begin = on_train_begin
    callback.on_pre_optimizer_step = on_pre_optimizer_step
    trainer.add_callback(callback)
    # Callbacks do not receive the loss, so the method that computes it is wrapped.
    trainer.training_step = with_loss

    def detach() -> None:
        trainer.remove_callback(callback)
        if own is None:
            del trainer.training_step
        else:
            trainer.training_step = own
        _tell(watcher, losses)

    return detach


def _tell(watcher: Watcher, losses: list[torch.Tensor]) -> None:
    """Report the sum of the losses of the batches. The trainer has divided each loss by the number of batches."""
    if losses:
        watcher.loss(torch.stack(losses).sum())
        losses.clear()


_ATTACH = {"lightning": _attach_lightning, "pytorch_lightning": _attach_lightning, "transformers": _attach_transformers}
"""Top package of the Trainer → the function that attaches to it."""
