"""Which parameters of a model a what-if changes, and into what."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.build.redraw import redraw
from chainrule.user_model.what_if import AS_IT_IS, EVERYTHING, WhatIf


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter with all its names: a tied one has several. `name` is the first, as in `named_parameters()`."""

    name: str
    names: tuple[str, ...]
    parameter: nn.Parameter

    def is_of(self, group: str) -> bool:
        """Whether it belongs to a module, or to one inside it."""
        return group == EVERYTHING or any(name.startswith(f"{group}.") for name in self.names)

    @property
    def is_weight(self) -> bool:
        """Whether a what-if may change it: it has 2 or more dimensions, and something in it."""
        parameter = self.parameter
        return parameter.dim() >= 2 and parameter.is_floating_point() and parameter.numel() > 0


def named_parameters(model: nn.Module) -> tuple[Named, ...]:
    """The parameters of a model, each once."""
    names: dict[int, list[str]] = {}
    found: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        found[id(parameter)] = parameter
    return tuple(Named(names[key][0], tuple(names[key]), parameter) for key, parameter in found.items())


def groups_of(model: nn.Module) -> tuple[str, ...]:
    """The paths of the modules that a what-if can change, each before the modules inside it; without the root's."""
    found: dict[str, None] = {}
    for named in named_parameters(model):
        if named.is_weight:
            for name in named.names:
                parts = name.split(".")[:-1]
                for length in range(1, len(parts) + 1):
                    found[".".join(parts[:length])] = None
    order = {path: place for place, (path, _) in enumerate(model.named_modules(remove_duplicate=False))}
    return tuple(sorted(found, key=lambda path: order.get(path, len(order))))


def tied_names(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """The other names of tied weights, by the first name: an embedding that is also the last layer's weight."""
    return {named.name: named.names[1:] for named in named_parameters(model) if named.is_weight and named.names[1:]}


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one parameter: a new draw by `init` from `seed`, unless `init` is empty, then times `scale`."""

    scale: float = 1.0
    init: str = AS_IT_IS
    seed: int = 0

    @classmethod
    def of(cls, what_if: WhatIf, named: Named) -> Change:
        """The change that a what-if makes to a parameter."""
        if not named.is_weight or not named.is_of(what_if.group):
            return UNCHANGED
        return cls(what_if.scale, what_if.init, what_if.seed if what_if.init else 0)


UNCHANGED = Change()


class Draws:
    """The last draw of each parameter, so that a new scale draws nothing."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int, Tensor]] = {}

    @property
    def kept_bytes(self) -> int:
        """How much memory they take."""
        return sum(drawn.nbytes for _, _, drawn in self._last.values())

    def values(self, name: str, original: Tensor, change: Change) -> Tensor:
        """The values of a parameter after a change, from its name and its original values.

        Returns:
            of the same shape; in the original's dtype and on its device unless drawn. Maybe the original itself.
        """
        if change.init == AS_IT_IS:
            self._last.pop(name, None)
            return original if change.scale == 1.0 else original * change.scale
        last = self._last.get(name)
        if last is None or last[:2] != (change.init, change.seed):
            drawn = redraw(change.init, change.seed, name, tuple(original.shape))
            last = self._last[name] = change.init, change.seed, drawn
        return last[2] * change.scale


class State:
    """A model's parameters, buffers and attributes: changed for a pass, and put back after it, bit for bit.

    During a pass every parameter and buffer stands on other memory, so that nothing is written to the model's own.
    This covers running statistics, gradients, attributes, lists and dicts among them, and the model's generators.
    """

    def __init__(self, model: nn.Module) -> None:
        """Take a model; until the first `change` nothing is copied."""
        self._parameters = named_parameters(model)
        self._buffers = tuple(model.buffers())
        seen = {id(each) for each in (*model.parameters(), *self._buffers)}
        self._undo = tuple(undo for module in model.modules() for undo in _undoing(module, seen))
        self._originals = [each.parameter.detach() for each in self._parameters]
        self._original_buffers = [each.detach() for each in self._buffers]
        self._gradients = [each.parameter.grad for each in self._parameters]
        self._working = [each.clone() for each in self._originals]
        self._working_buffers = [each.clone() for each in self._original_buffers]
        # The change that a parameter's working memory holds; None where the last pass has written to it.
        self._held: list[Change | None] = [UNCHANGED for _ in self._parameters]
        self._versions: list[int] = []
        self._draws = Draws()

    @property
    def kept_bytes(self) -> int:
        """How much memory the copies take."""
        return sum(each.nbytes for each in (*self._working, *self._working_buffers)) + self._draws.kept_bytes

    def change(self, what_if: WhatIf) -> None:
        """Bring every parameter to what a what-if says, with no gradient."""
        with torch.no_grad():
            for place, (named, original) in enumerate(zip(self._parameters, self._originals, strict=True)):
                wanted = Change.of(what_if, named)
                if self._held[place] != wanted:
                    self._working[place].copy_(self._draws.values(named.name, original, wanted))
                    self._held[place] = wanted
                named.parameter.data = self._working[place]
                named.parameter.grad = None
            for buffer, working, original in zip(
                self._buffers, self._working_buffers, self._original_buffers, strict=True
            ):
                working.copy_(original)
                buffer.data = working
        self._versions = [each.parameter._version for each in self._parameters]

    def same(self, one: WhatIf, other: WhatIf) -> frozenset[str]:
        """All names of the parameters that hold at one what-if what they hold at the other."""
        unchanged = (each.names for each in self._parameters if Change.of(one, each) == Change.of(other, each))
        return frozenset(name for names in unchanged for name in names)

    def restore(self) -> None:
        """Put back what `change` has changed, and what the pass has."""
        for undo in self._undo:
            undo()
        for place, named in enumerate(self._parameters):
            if self._versions and named.parameter._version != self._versions[place]:
                self._held[place] = None
            named.parameter.data = self._originals[place]
            named.parameter.grad = self._gradients[place]
        for buffer, original in zip(self._buffers, self._original_buffers, strict=True):
            buffer.data = original


Undo = Callable[[], None]
"""Restores a value to its state when this was made."""


def _undoing(module: nn.Module, seen: set[int]) -> list[Undo]:
    """Undo changes of a module's attributes, and of the containers, tensors and generators among them.

    `seen` has the ids of values that need no undoing, or have it already; this adds to them.
    """
    found: list[Undo] = []

    def look(value: Any) -> None:
        kind = type(value)
        if id(value) in seen:
            return
        seen.add(id(value))
        if kind in (dict, OrderedDict, defaultdict):
            found.append(partial(_refill, value, dict(value)))
            for each in value.values():
                look(each)
        elif kind in (set, deque):
            found.append(partial(_refill, value, kind(value)))
        elif kind is list:
            found.append(partial(value.__setitem__, slice(None), list(value)))
            for each in value:
                look(each)
        elif kind is tuple:
            for each in value:
                look(each)
        elif kind in (Tensor, nn.Parameter) and not value.is_inference():
            gradient = value.grad if value.is_leaf else None
            found.append(partial(_rewrite, value, value.detach().clone(), value._version, gradient))
        elif kind is torch.Generator:
            found.append(partial(value.set_state, value.get_state()))
        elif kind is random.Random:
            found.append(partial(value.setstate, value.getstate()))
        elif kind is np.random.RandomState:
            found.append(partial(value.set_state, value.get_state()))
        elif kind is np.random.Generator:
            found.append(partial(setattr, value.bit_generator, "state", value.bit_generator.state))

    look(vars(module))
    return found


def _rewrite(tensor: Tensor, values: Tensor, version: int, gradient: Tensor | None) -> None:
    if tensor._version != version:
        tensor.data.copy_(values)
    if tensor.is_leaf:
        tensor.grad = gradient


def _refill(container: Any, values: Any) -> None:
    container.clear()
    container.extend(values) if isinstance(container, deque) else container.update(values)
