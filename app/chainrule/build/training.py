"""The training of a spec's net: `spec.step` steps of its optimizer, a pure function of the spec.

A step is a forward and a backward pass of the step's batch, and an update of the parameters. Step k has the net before
its (k + 1)-th update, so step 0 has the net as it was drawn.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule import stopping
from chainrule.build.draws import draw_batch, draw_leaves
from chainrule.build.mlp import build_mlp
from chainrule.build.model import BuiltModel
from chainrule.build.parametrization import rate_factors
from chainrule.foundations.optimizers import SGD, Adam, AdamW
from chainrule.spec import ModelSpec
from chainrule.spec.data import RANDOM

MOMENTUM = 0.9
"""The momentum of the optimizers momentum and nesterov."""

CHECKPOINT_BYTES = 2**28
"""The memory for checkpoints of a training that goes back and forth: 256 MiB."""

FloatArray = npt.NDArray[np.float64]

Optimizer = SGD | Adam

OPTIMIZERS: Mapping[str, Callable[[ModelSpec], Optimizer]] = {
    "sgd": lambda spec: SGD(spec.lr, weight_decay=spec.weight_decay),
    "momentum": lambda spec: SGD(spec.lr, MOMENTUM, weight_decay=spec.weight_decay),
    "nesterov": lambda spec: SGD(spec.lr, MOMENTUM, nesterov=True, weight_decay=spec.weight_decay),
    "adam": lambda spec: Adam(spec.lr, weight_decay=spec.weight_decay),
    "adamw": lambda spec: AdamW(spec.lr, weight_decay=spec.weight_decay),
}
"""The optimizers, by their name in the spec."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Copies of the parameters and of the optimizer, as they are before the update of a step."""

    parameters: tuple[Tensor, ...]
    optimizer: Optimizer

    @property
    def nbytes(self) -> int:
        """The memory of its tensors."""
        kept = (each for value in vars(self.optimizer).values() if isinstance(value, list) for each in value)
        return sum(each.numel() * each.element_size() for each in (*self.parameters, *kept))


class Training:
    """A net that goes to any step: from the nearest checkpoint before it, or from its own step if that is nearer.

    There is a checkpoint for every step if `checkpoint_bytes` suffice, else for every 2nd, 4th, … step.

    Attributes:
        spec: with step 0.
        step: the number of updates that the parameters have had.
        model: the net at this step, with the step's batch; the same object at every step.
    """

    def __init__(self, spec: ModelSpec, checkpoint_bytes: int = CHECKPOINT_BYTES) -> None:
        self.spec = spec.replace(step=0)
        self._checkpoint_bytes = checkpoint_bytes
        self.step = 0
        # The drawn tensors may be cached, so the training has copies.
        leaves = {name: leaf.clone() for name, leaf in draw_leaves(self.spec).items()}
        self.model = build_mlp(self.spec, leaves)
        named = {name: leaf for name, leaf in self.model.leaves.items() if name not in ("x", "y")}
        self._parameters = list(named.values())
        self._weights = [place for place, name in enumerate(named) if name.startswith("w")]
        self._gradient = "grad" if self.model.autograd else "g"
        self._optimizer = OPTIMIZERS[spec.optimizer](spec)
        factors = rate_factors(spec)
        self._factors = [factors.get(name, 1.0) for name in named]
        self._passed: tuple[int, Tensor, list[Tensor]] | None = None
        self._checkpoints = {0: self._checkpoint()}
        self._stride = 1
        self._rows = np.empty((64, 2 + 3 * len(self._weights)))
        self._row_count = 0

    @property
    def rows(self) -> FloatArray:
        """One row per update: the loss, the norm of all gradients, and for each layer three norms of its weight.

        The norms are those of the weight, of its gradient and of its update, each for all layers in turn. Updates after
        `step` are there too, if the training has been there. (updates, 2 + 3 · layers), float64.
        """
        return self._rows[: self._row_count]

    @property
    def kept_bytes(self) -> int:
        """The memory of the net, its optimizer, the checkpoints and the rows."""
        # The first checkpoint has no moments of the optimizer yet.
        checkpoint = next(reversed(self._checkpoints.values())).nbytes
        batch = sum(self.model.leaves[name].nbytes for name in ("x", "y"))
        return checkpoint * (4 + len(self._checkpoints)) + self._rows.nbytes + batch

    def go_to(self, step: int) -> BuiltModel:
        """The net at a step; it is valid until the next call.

        Raises:
            ChainruleError: the work was asked to stop; the training stays at a step between.
        """
        nearest = max(each for each in self._checkpoints if each <= step)
        if not nearest <= self.step <= step:
            self._restore(nearest)
        while self.step < step:
            stopping.check()
            self._update()
        return self.model

    def keep_pass(self, loss: Tensor) -> None:
        """Keep the loss and the gradients of a pass of `model` at this step; its update then needs no other pass."""
        self._passed = self.step, loss.detach(), self._gradients()

    @property
    def loss(self) -> float | None:
        """The loss of this step's pass, if it was kept."""
        return float(self._passed[1]) if self._passed is not None and self._passed[0] == self.step else None

    def _gradients(self) -> list[Tensor]:
        return [getattr(leaf, self._gradient) for leaf in self._parameters]

    @torch.no_grad()
    def _restore(self, step: int) -> None:
        checkpoint = self._checkpoints[step]
        for parameter, kept in zip(self._parameters, checkpoint.parameters, strict=True):
            parameter.copy_(kept)
        self._optimizer = copy.deepcopy(checkpoint.optimizer)
        self._set_step(step)

    def _update(self) -> None:
        """Update the parameters with the gradients of the step's pass."""
        if self._passed is None or self._passed[0] != self.step:
            loss = self.model.forward()
            self.model.backward(loss)
            self.keep_pass(loss)
            self.model.clear_gradients()
        assert self._passed is not None
        _, loss, gradients = self._passed
        with torch.no_grad():
            updates = self._optimizer.updates(self._parameters, gradients)
            pairs = zip(updates, self._factors, strict=True)
            updates = [update if factor == 1 else factor * update for update, factor in pairs]
            if self.step == self._row_count:
                self._add_row(loss, gradients, updates)
            for parameter, update in zip(self._parameters, updates, strict=True):
                parameter += update
        self._passed = None
        self._set_step(self.step + 1)
        if self.step % self._stride == 0 and self.step not in self._checkpoints:
            self._checkpoints[self.step] = self._checkpoint()
            self._thin()

    @torch.no_grad()
    def _set_step(self, step: int) -> None:
        self.step = step
        if self.spec.data != RANDOM:
            for name, values in zip(("x", "y"), draw_batch(self.spec.replace(step=step)), strict=True):
                self.model.leaves[name].copy_(values)

    def _add_row(self, loss: Tensor, gradients: list[Tensor], updates: list[Tensor]) -> None:
        of_weights = [[each[place] for place in self._weights] for each in (self._parameters, gradients, updates)]
        tensors = [*gradients, *itertools.chain(*of_weights)]
        norms = torch._foreach_norm(tensors)
        values = torch.stack([loss.double(), *(norm.double() for norm in norms)]).cpu().numpy()
        if np.isinf(values[1:]).any():  # squares overflow long before the numbers do
            values[1:] = [float(torch.linalg.vector_norm(each.double())) for each in tensors]
        if self._row_count == len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        row, count = self._rows[self._row_count], 1 + len(gradients)
        row[0], row[1], row[2:] = values[0], math.hypot(*values[1:count]), values[count:]
        self._row_count += 1

    def _checkpoint(self) -> Checkpoint:
        parameters = tuple(parameter.detach().clone() for parameter in self._parameters)
        return Checkpoint(parameters, copy.deepcopy(self._optimizer))

    def _thin(self) -> None:
        """Drop every second checkpoint once they take too much memory."""
        if len(self._checkpoints) * self._checkpoints[self.step].nbytes > self._checkpoint_bytes:
            self._stride *= 2
            self._checkpoints = {step: each for step, each in self._checkpoints.items() if step % self._stride == 0}
