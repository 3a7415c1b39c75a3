"""A sweep over a user's own model: `file.py:factory`, whose arguments are the axes.

    def make(lr=0.1, width=64):
        …
        return model, inputs, loss_fn, optimizer

Each cell calls the factory with its values, after `torch.manual_seed` with its seed, and trains the model on its inputs
for `steps` steps. It needs the optimizer only for a training.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from chainrule.errors import SweepError
from chainrule.spec.values import Key, shown
from chainrule.sweeps.axes import Axis, read_axes
from chainrule.sweeps.measures import read_measure
from chainrule.sweeps.sweep import FLOPS_PER_SECOND, MAX_CELLS, Cells, Grid, count_cells
from chainrule.sweeps.work import Values
from chainrule.user_model.code import load, split_reference
from chainrule.user_model.subject import Subject, make_subject, scalar_loss

MEASURES = ("loss", "loss_ratio", "first_nonfinite", "steps_to_loss", "gradient_ratio")
"""The measures of `measures.py` that a user's model has."""

FIRST_SEED = 42

LARGEST = 1e300
"""An argument's largest number."""

CELL_FLOPS = FLOPS_PER_SECOND
"""A guess, until the first cell is measured: the first task has one cell."""


@dataclass(frozen=True, slots=True)
class FactoryJob:
    """One cell: the factory, its arguments, the seed, the measure and the training steps."""

    reference: str
    arguments: Mapping[str, Any]
    seed: int
    measure: str
    steps: int

    def values(self) -> Values:
        """See `Job`."""
        torch.manual_seed(self.seed)
        made = load(self.reference)(**self.arguments)
        subject = make_subject(made, self.reference.rpartition(":")[2])
        return np.array([_measured(subject, self.measure, self.steps)])


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell of a factory's sweep; see `Plan`."""

    cells: Cells
    cell: FactoryJob
    flops: float = CELL_FLOPS

    def job(self) -> FactoryJob:
        """See `Plan`."""
        return self.cell


class FactorySweep(Grid):
    """The models of a factory over its arguments."""

    def __init__(self, reference: str, axes: Sequence[Axis], seeds: int, measure: str, steps: int) -> None:
        """See `read_factory_sweep`, which checks the arguments."""
        super().__init__(axes, range(FIRST_SEED, FIRST_SEED + seeds), measure)
        self.reference, self.steps = reference, steps

    def described(self) -> dict[str, Any]:
        """See `Grid`."""
        content = split_reference(self.reference)[0].read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        return {"factory": self.reference, "its file": digest, "steps": self.steps, **super().described()}

    @cached_property
    def stacks(self) -> Sequence[CellPlan]:
        """See `Grid`."""
        return tuple(
            CellPlan(
                np.array([cell]),
                FactoryJob(
                    self.reference,
                    self.values_of(cell),
                    self.seeds[cell % len(self.seeds)],
                    self.measure_text,
                    self.steps,
                ),
            )
            for cell in range(self.cells)
        )


def read_factory_sweep(reference: str, over: Sequence[str], seeds: int, measure: str, steps: int) -> FactorySweep:
    """A sweep over the arguments of a factory. Runs its file.

    Raises:
        ExploreError: the file does not run, or does not define the factory.
        SweepError: an axis is no argument of the factory, or the measure is not one of MEASURES.
    """
    path, name = split_reference(reference)
    keys = _arguments(load(reference))
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise SweepError(f"steps: expected an integer of at least 0, got {shown(steps)}", field="steps")
    if count_cells(over, seeds) > MAX_CELLS:
        raise SweepError(f"over: at most {MAX_CELLS} cells are allowed", field="over", limit=MAX_CELLS)
    if measure.partition(":")[0] not in MEASURES:
        allowed = ", ".join(MEASURES)
        raise SweepError(f"measure: {shown(measure)} is not one of {allowed}", field="measure", limit=list(MEASURES))
    read_measure(measure)
    if read_measure(measure).kind.trains and measure != "loss" and not steps:
        raise SweepError(f"measure: {measure} needs a training; steps is 0", field="measure")
    return FactorySweep(f"{path}:{name}", read_axes(over, keys, f"{name}()"), seeds, measure, steps)


def _arguments(factory: Callable[..., Any]) -> dict[str, Key]:
    """The arguments of a factory as keys; the kind is that of the annotation or of the default, else a number."""
    keys = {}
    for parameter in inspect.signature(factory).parameters.values():
        default = parameter.default
        kinds = {"int": "int", "float": "float", "bool": "bool", "str": "choice"}
        annotation = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        kind: Any = kinds.get(annotation) or kinds.get(type(default).__name__, "float")
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            keys[parameter.name] = Key(
                parameter.name, None, kind, "", minimum=-LARGEST, maximum=LARGEST, error=SweepError
            )
    return keys


def _measured(subject: Subject, measure: str, steps: int) -> float:
    losses: list[float] = []
    for step in range(steps + 1):
        subject.model.zero_grad(set_to_none=True)
        output = subject.model(*subject.args, **subject.kwargs)
        loss = scalar_loss(subject, output, None if subject.loss is None else subject.loss(output))
        losses.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]
        if step < steps:
            if not subject.optimizers:
                raise SweepError(f"{subject.name}() returned no optimizer, which a training needs")
            for optimizer in subject.optimizers:
                optimizer.step()
    name, _, argument = measure.partition(":")
    if name == "gradient_ratio":
        weights = [each.grad for each in subject.model.parameters() if each.ndim > 1 and each.grad is not None]
        sizes = [gradient.double().square().mean().sqrt().item() for gradient in weights]
        return sizes[0] / sizes[-1] if sizes and sizes[-1] else math.nan
    if name == "steps_to_loss":
        return next((step for step, loss in enumerate(losses) if loss <= float(argument)), math.inf)
    if name == "first_nonfinite":
        return next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), math.inf)
    return losses[-1] / losses[0] if name == "loss_ratio" else losses[-1]
