"""Gradients that layers written by hand keep as an attribute `.g` of the tensor."""

from __future__ import annotations

import sys

import torch

from chainrule.trace.journal import NO_ROW, Journal


class GradientAttributes:
    """Links tensors outside autograd to the gradients in their `.g`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._held: list[torch.Tensor] = []
        self._limit = 16

    def watch(self, tensor: torch.Tensor) -> None:
        """Hold a tensor outside autograd until its owner drops it: only then is its `.g` final.

        Dropped tensors are found by their reference count, whenever twice as many are held as after the last sweep.
        """
        self._held.append(tensor)
        if len(self._held) >= self._limit:
            self._sweep()

    def _sweep(self, everything: bool = False) -> None:
        kept = []
        while self._held:
            tensor = self._held.pop()
            # This variable holds one reference, getrefcount's argument another.
            if not everything and sys.getrefcount(tensor) > 2:
                kept.append(tensor)
            else:
                self._link(tensor, self._journal.find(tensor))
        kept.reverse()
        self._held = kept
        self._limit = max(16, 2 * len(kept))

    def _link(self, tensor: torch.Tensor, row: int) -> None:
        gradient = tensor.__dict__.get("g")
        if row == NO_ROW or not isinstance(gradient, torch.Tensor):
            return
        gradient_row = self._journal.find(gradient)
        if gradient_row not in (NO_ROW, row):
            self._journal.tensors[gradient_row].role = "gradient"
            self._journal.tensors[gradient_row].gradient_of = row

    def finish(self) -> None:
        """Link the tensors that are still alive: those held, and the leaves."""
        self._sweep(everything=True)
        for tensor, row in self._journal.live_with("g"):
            self._link(tensor, row)
