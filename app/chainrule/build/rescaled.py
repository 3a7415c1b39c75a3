"""A net whose weights take one scale after another: the draws stay, and are multiplied in place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from chainrule.build.draws import draw_leaves, unscaled_weight, weight_factor
from chainrule.build.mlp import build_mlp
from chainrule.build.model import BuiltModel
from chainrule.build.programs import PROGRAM_BUILDERS
from chainrule.spec import ModelSpec

KEPT_BYTES = 2**26
"""Leaves and draws are kept up to this total, 64 MiB; those of a larger net are drawn for every spec."""


def rescales(one: ModelSpec, other: ModelSpec) -> bool:
    """Whether two specs are untrained nets that differ in the scale of their weights at most."""
    return one.is_net and other.is_net and not one.step and one.replace(scale=other.scale) == other


class RescaledNet:
    """Builds spec after spec, as `build_model` does, and faster where only the scale has changed.

    It keeps the leaves of the last net (x, y, weights, biases) and, once its scale has changed, the unscaled draws of
    the weights: 4 MB for 50 layers of 100 units, never more than KEPT_BYTES. A model is valid until the next is built,
    which writes its weights into the same memory.
    """

    def __init__(self) -> None:
        self._spec: ModelSpec | None = None
        self._leaves: dict[str, Tensor] = {}
        self._draws: list[Tensor] = []
        self._model: BuiltModel | None = None

    def build(self, spec: ModelSpec) -> BuiltModel:
        """The model of a spec, bit for bit `build_model`'s.

        Raises:
            RuntimeError, MissingExtraError: see `build_model`.
        """
        before, self._spec = self._spec, None
        if not spec.is_net:
            self.forget()
            return PROGRAM_BUILDERS[spec.program](spec)
        if before is None or not rescales(before, spec):
            self.forget()
            self._leaves = draw_leaves(spec)
        elif before.scale != spec.scale:
            self._rescale(spec)
        model = self._model
        if model is None:
            # Other tensor objects on the same memory: a gradient attached to one is freed with it.
            model = build_mlp(spec, {name: tensor.detach() for name, tensor in self._leaves.items()})
        if _kept_bytes(spec, model.leaves) > KEPT_BYTES:
            self.forget()
            return model
        self._spec = spec
        if isinstance(model.root, torch.nn.Module):
            # Its construction takes as long as half a pass. Other styles' models hold the tensors of their last pass.
            self._model, self._leaves = model, dict(model.leaves)
        return model

    @property
    def kept_bytes(self) -> int:
        """The size of the kept leaves and draws."""
        return sum(each.numel() * each.element_size() for each in (*self._leaves.values(), *self._draws))

    def forget(self) -> None:
        """Drop the leaves, the draws and the model."""
        self._spec = None
        self._leaves = {}
        self._draws = []
        self._model = None

    @torch.no_grad()
    def _rescale(self, spec: ModelSpec) -> None:
        """Multiply each draw by the new factor and round it to the spec's dtype, exactly as `draw_leaves` does."""
        pairs = list(pairwise(spec.widths))
        if not self._draws:
            self._draws = [unscaled_weight(spec, f"w{index}", *fans) for index, fans in enumerate(pairs, start=1)]
        for index, (draw, fans) in enumerate(zip(self._draws, pairs, strict=True), start=1):
            weight, factor = self._leaves[f"w{index}"], weight_factor(spec, *fans, index == spec.depth)
            if self._model is not None:
                weight.copy_((draw * factor).t())  # under autograd a weight is (fan_out, fan_in)
            elif weight.dtype == draw.dtype and weight.device == draw.device:
                torch.mul(draw, factor, out=weight)
            else:
                weight.copy_(draw * factor)


def _kept_bytes(spec: ModelSpec, leaves: Mapping[str, Tensor]) -> int:
    drawn = 4 * sum(fan_in * fan_out for fan_in, fan_out in pairwise(spec.widths))
    return drawn + sum(leaf.numel() * leaf.element_size() for leaf in leaves.values())
