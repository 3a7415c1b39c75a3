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
    """A parameter by all of its names: a tied one has several. `name` is the first, as `named_parameters()` has it."""

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
    """The paths of the modules of which a what-if changes anything, each before those inside it; without the root's."""
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
    """What else a weight of several names is called, by the first: a table that is the last layer's weight too, say."""
    return {named.name: named.names[1:] for named in named_parameters(model) if named.is_weight and named.names[1:]}


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one parameter: drawn anew by `init` from `seed`, unless that is empty, then times `scale`."""

    scale: float = 1.0
    init: str = AS_IT_IS
    seed: int = 0

    @classmethod
    def of(cls, what_if: WhatIf, named: Named) -> Change:
        """What a what-if makes of a parameter."""
        if not named.is_weight or not named.is_of(what_if.group):
            return UNCHANGED
        return cls(what_if.scale, what_if.init, what_if.seed if what_if.init else 0)


UNCHANGED = Change()
"""A parameter stays what it is."""


class Draws:
    """What was drawn last of each parameter, so that a scale alone draws nothing."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int, Tensor]] = {}

    @property
    def kept_bytes(self) -> int:
        """How much memory they take."""
        return sum(drawn.nbytes for _, _, drawn in self._last.values())

    def forget(self) -> None:
        """Let go of them."""
        self._last.clear()

    def values(self, named: Named, change: Change) -> Tensor:
        """What a parameter holds after a change; `named.parameter` holds what it held before any.

        Returns:
            of the parameter's shape; in its dtype and on its device unless it was drawn. Maybe the parameter itself.
        """
        parameter = named.parameter.detach()
        if change.init == AS_IT_IS:
            self._last.pop(named.name, None)
            return parameter if change.scale == 1.0 else parameter * change.scale
        last = self._last.get(named.name)
        if last is None or last[:2] != (change.init, change.seed):
            drawn = redraw(change.init, change.seed, named.name, tuple(parameter.shape))
            last = self._last[named.name] = change.init, change.seed, drawn
        return last[2] * change.scale


class Copied:
    """The parameters and the state of a copy, brought to what a what-if says before each pass.

    Whatever a pass leaves behind in the copy goes again: running statistics, gradients, attributes that it has set,
    what it has put into a list, and how far it has drawn from a generator of its own.
    """

    def __init__(self, copy: nn.Module, original: nn.Module) -> None:
        """Take a fresh copy and the model that it was made of, which is only read."""
        self._pairs = tuple(zip(named_parameters(copy), named_parameters(original), strict=True))
        self._held = {mine.name: (UNCHANGED, mine.parameter._version) for mine, _ in self._pairs}
        self._buffers = tuple(zip(copy.buffers(), original.buffers(), strict=True))
        self._state = tuple(undo for module in copy.modules() for undo in _undoing(module))
        self._draws = Draws()

    @property
    def kept_bytes(self) -> int:
        """How much memory the copy takes."""
        tensors = [*(mine.parameter for mine, _ in self._pairs), *(mine for mine, _ in self._buffers)]
        return sum(tensor.nbytes for tensor in tensors) + self._draws.kept_bytes

    def change(self, what_if: WhatIf) -> None:
        """Bring every parameter to what a what-if says, and every buffer to what it was."""
        with torch.no_grad():
            for mine, original in self._pairs:
                wanted = Change.of(what_if, mine)
                # The version also tells what the pass itself has written to.
                if self._held[mine.name] != (wanted, mine.parameter._version):
                    mine.parameter.copy_(self._draws.values(original, wanted))
                    self._held[mine.name] = wanted, mine.parameter._version
            for buffer, original_buffer in self._buffers:
                buffer.copy_(original_buffer)

    @property
    def received(self) -> frozenset[str]:
        """The first names of the parameters that hold a gradient."""
        return frozenset(mine.name for mine, _ in self._pairs if mine.parameter.grad is not None)

    def same(self, one: WhatIf, other: WhatIf) -> frozenset[str]:
        """All names of the parameters that hold at one what-if what they hold at the other."""
        unchanged = (mine.names for mine, _ in self._pairs if Change.of(one, mine) == Change.of(other, mine))
        return frozenset(name for names in unchanged for name in names)

    def restore(self) -> None:
        """Drop what a pass has left behind: gradients, and attributes that it has set."""
        for undo in self._state:
            undo()
        for mine, _ in self._pairs:
            mine.parameter.grad = None


Undo = Callable[[], None]
"""Brings something back to what it was when this was made."""


def _undoing(module: nn.Module) -> list[Undo]:
    """What brings a module back: the dicts that hold its attributes, the containers and the generators among these."""
    found: list[Undo] = []
    seen: set[int] = set()

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


def _refill(container: Any, values: Any) -> None:
    container.clear()
    container.extend(values) if isinstance(container, deque) else container.update(values)
