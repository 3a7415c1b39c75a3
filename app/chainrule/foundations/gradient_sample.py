"""A part of a function with large tensors, for a gradient check: some elements of its inputs and its outputs.

A Jacobian has as many rows as the outputs have elements and as many columns as the inputs. The sample's columns are
random. Its rows are those that these columns reach most, those of the same places, and random others: the Jacobian of
an elementwise function is diagonal, and rows and columns both chosen at random would miss the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from chainrule.foundations.gradient_check import EPS, Checked, as_tuple, differentiated


class Sample:
    """The function from some elements of f's inputs, with the others fixed, to some elements of its outputs.

    f must not change its arguments in place: it gets the very tensors.

    Attributes:
        inputs: positions of the arguments that require grad; `chosen` holds the places of the elements of each.
        kept: the places of the elements of each output.
        columns, rows: how many elements these are.
    """

    def __init__(
        self,
        f: Checked,
        arguments: Sequence[Any],
        wide: Sequence[Any],
        outputs: Sequence[Tensor],
        size: int,
        eps: float = EPS,
    ) -> None:
        """Choose about `size` elements of the inputs, and up to twice as many of the outputs.

        `wide` is the arguments in float64, or in the dtype to choose in, `outputs` is what f gives for them.
        """
        self.f = f
        self.arguments = arguments
        self.wide = wide
        self.inputs = inputs = differentiated(arguments)
        self._generator = torch.Generator().manual_seed(0)
        self.chosen = self._choose([arguments[place].numel() for place in inputs], size)
        self.kept = self._rows(outputs, size, eps)
        self.columns = sum(map(len, self.chosen))
        self.rows = sum(len(rows) for rows, each in zip(self.kept, outputs, strict=True) if each.requires_grad)

    def _choose(self, sizes: Sequence[int], size: int) -> list[Tensor]:
        """Random places in tensors of these sizes, ascending, about `size` in all; every place of a small tensor."""
        left, found = size, {}
        for rank, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            share = min(sizes[place], max(1, left // (len(sizes) - rank)))
            found[place] = torch.randperm(sizes[place], generator=self._generator)[:share].sort().values
            left -= share
        return [found[place] for place in range(len(sizes))]

    def _rows(self, outputs: Sequence[Tensor], size: int, eps: float) -> list[Tensor]:
        """For each output the elements that a chosen element of the inputs moves most, and others."""
        sizes = [self.arguments[place].numel() for place in self.inputs]
        kept = [
            [places for places, of in zip(self.chosen, sizes, strict=True) if of == each.numel()] for each in outputs
        ]
        for number, places in enumerate(self.chosen):
            for place in places.tolist():
                moved = []
                for step in (-eps, eps):
                    values = [part.clone() for part in self.values(wide=True)]
                    values[number][int((places == place).nonzero())] += step
                    moved.append([each.detach() for each in self.run(values)])
                for rows, low, high in zip(kept, *moved, strict=True):
                    if low.numel() and low.is_floating_point():
                        rows.append((high - low).abs().reshape(-1).nan_to_num().argmax().reshape(1).cpu())
        count = [each.numel() for each in outputs]
        others = self._choose(count, size)
        return [torch.cat([*rows, other]).unique() for rows, other in zip(kept, others, strict=True)]  # type: ignore[no-untyped-call]

    def run(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """All outputs of f with these values as the chosen elements of its inputs, in their dtype."""
        given = self.wide if values[0].dtype == torch.float64 else self.arguments
        full = [each.detach() if isinstance(each, Tensor) else each for each in given]
        for place, chosen, part in zip(self.inputs, self.chosen, values, strict=True):
            base = full[place]
            flat = base.reshape(-1).to(part.dtype).index_put((chosen.to(base.device),), part)
            full[place] = flat.reshape(base.shape)
        return as_tuple(self.f(*full))

    def values(self, wide: bool = False) -> tuple[Tensor, ...]:
        """The chosen elements of the inputs, leaves that require grad."""
        given = self.wide if wide else self.arguments
        return tuple(
            given[place].detach().reshape(-1)[chosen.to(given[place].device)].clone().requires_grad_(not wide)
            for place, chosen in zip(self.inputs, self.chosen, strict=True)
        )

    def part(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The part as a function: the chosen elements of the inputs to those kept of the outputs."""
        outputs = self.run(values)
        return tuple(each.reshape(-1)[rows.to(each.device)] for each, rows in zip(outputs, self.kept, strict=True))
