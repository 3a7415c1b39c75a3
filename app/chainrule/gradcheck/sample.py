"""A gradient check of one call of a custom Function: of large tensors, on a sample of their elements.

A Jacobian has as many rows as the outputs have elements and as many columns as the inputs. The sample's columns are
random. Its rows are those that these columns reach most, and random others: the Jacobian of an elementwise function is
diagonal, and rows and columns both chosen at random would miss the diagonal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.errors import CheckError
from chainrule.foundations.gradient_check import EPS, as_tuple, clones, differentiated, with_dtype
from chainrule.gradcheck.check import Target, check, check_arguments
from chainrule.gradcheck.report import index_of, output_names
from chainrule.stopping import current_stop

MAX_CHECKED = 512
"""With more elements of the inputs or of the outputs, a sample is checked."""

SAMPLE = 128
"""Elements of the inputs in a sample, and twice as many of the outputs; fewer if a call takes long."""

MIN_SAMPLE = 16

MAX_ELEMENTS = 4_000_000
"""A call of larger tensors is not checked: each difference takes two calls."""

WORK = 100_000_000
"""Elements that a sample's differences may read, about."""


def check_call(function: type[Function], arguments: tuple[Any, ...], file: str) -> dict[str, Any]:
    """Check a custom Function at arguments that its `apply` was called with, of any size; `file` is for messages.

    Returns the report of `check`, and "sampled": null, or {"columns": [checked, of], "rows": [checked, of]}. In the
    report of a sample the shapes, and the indices of the worst element, are those of the whole tensors. Raises
    CheckError if it cannot be checked, ChainruleError if the work of this thread was asked to stop.
    """
    target = Target(function, function.__name__, file)
    try:
        check_arguments(arguments)
    except CheckError as error:
        raise CheckError(f"{target.name} is called with what cannot be checked: {error.message}") from None
    elements = sum(each.numel() for each in arguments if isinstance(each, Tensor))
    if elements > MAX_ELEMENTS:
        raise CheckError(
            f"{target.name} is called with {elements} elements; at most {MAX_ELEMENTS} can be checked: "
            "trace the model with a smaller batch",
            limit={"elements": MAX_ELEMENTS},
        )
    wide = with_dtype(arguments, torch.float64)
    outputs = target.outputs(wide, "float64")
    columns = sum(arguments[place].numel() for place in differentiated(arguments))
    rows = sum(each.numel() for each in outputs if each.requires_grad)
    if columns <= MAX_CHECKED and rows <= MAX_CHECKED:
        return {**check(target, arguments), "sampled": None}
    sample = _Sample(target, arguments, wide, outputs)
    report = check(Target(sample.part(), target.name, file), sample.values())
    sample.restore(report)
    return {**report, "sampled": {"columns": [sample.columns, columns], "rows": [sample.rows, rows]}}


class _Sample:
    """A part of a function: from some elements of its inputs, with the others fixed, to some of its outputs."""

    def __init__(
        self, target: Target, arguments: Sequence[Any], wide: Sequence[Any], outputs: Sequence[Tensor]
    ) -> None:
        self.target = target
        self.arguments = arguments
        self.wide = wide
        self.inputs = inputs = differentiated(arguments)
        names = target.argument_names(len(arguments))
        self.names = [names[place] for place in inputs]
        self.outputs = [each.shape for each in outputs]
        self._generator = torch.Generator().manual_seed(0)
        elements = sum(each.numel() for each in (*wide, *outputs) if isinstance(each, Tensor))
        size = max(MIN_SAMPLE, min(SAMPLE, WORK // (8 * max(1, elements))))
        self.chosen = self._choose([arguments[place].numel() for place in inputs], size)
        self.kept = self._rows(outputs, size)
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

    def _rows(self, outputs: Sequence[Tensor], size: int) -> list[Tensor]:
        """For each output the elements that a chosen element of the inputs moves most, and random others."""
        kept: list[list[Tensor]] = [[] for _ in outputs]
        for number, places in enumerate(self.chosen):
            for place in places.tolist():
                moved = []
                for step in (-EPS, EPS):
                    values = [part.clone() for part in self.values(wide=True)]
                    values[number][int((places == place).nonzero())] += step
                    moved.append([each.detach() for each in self._run(values)])
                for rows, low, high in zip(kept, *moved, strict=True):
                    if low.numel() and low.is_floating_point():
                        rows.append((high - low).abs().reshape(-1).nan_to_num().argmax().reshape(1).cpu())
        count = [each.numel() for each in outputs]
        others = self._choose(count, size)
        return [torch.cat([*rows, other]).unique() for rows, other in zip(kept, others, strict=True)]  # type: ignore[no-untyped-call]

    def _run(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The function's outputs with these values as the chosen elements of its inputs, in their dtypes."""
        if (error := current_stop().error) is not None:
            raise error
        given = self.wide if values[0].dtype == torch.float64 else self.arguments
        full = [each.detach() if isinstance(each, Tensor) else each for each in clones(given)]
        for place, chosen, part in zip(self.inputs, self.chosen, values, strict=True):
            base = full[place]
            flat = base.reshape(-1).to(part.dtype).index_put((chosen.to(base.device),), part)
            full[place] = flat.reshape(base.shape)
        return as_tuple(self.target(*full))

    def values(self, wide: bool = False) -> tuple[Tensor, ...]:
        """The chosen elements of the inputs, leaves that require grad."""
        given = self.wide if wide else self.arguments
        return tuple(
            given[place].detach().reshape(-1)[chosen.to(given[place].device)].clone().requires_grad_(not wide)
            for place, chosen in zip(self.inputs, self.chosen, strict=True)
        )

    def part(self) -> Callable[..., Any]:
        """The part as a function, with the argument names of the whole and its place in the user's file."""

        def part(*values: Tensor) -> tuple[Tensor, ...]:
            outputs = self._run(values)
            return tuple(each.reshape(-1)[rows.to(each.device)] for each, rows in zip(outputs, self.kept, strict=True))

        declared = [inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)]
        # A function that takes any number of arguments has no name for one: `inputs[2]`.
        if all(name.isidentifier() for name in self.names):
            declared = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.names]
        part.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        part.__wrapped__ = self.target.function.forward  # type: ignore[attr-defined]
        return part

    def restore(self, report: dict[str, Any]) -> None:
        """Put the shapes and the indices of the whole into a report of the part."""
        shapes = {name: list(self.arguments[place].shape) for name, place in zip(self.names, self.inputs, strict=True)}
        chosen = dict(zip(self.names, self.chosen, strict=True))
        numbers = {name: number for number, name in enumerate(output_names(len(self.outputs)))}
        for each in report["inputs"]:
            each["shape"] = shapes[each["name"]]
        for comparison in (each for found in report["checks"].values() for each in found.get("comparisons", ())):
            number, name = numbers[comparison["output"]], comparison["input"]
            comparison["output_shape"], comparison["input_shape"] = list(self.outputs[number]), shapes[name]
            if (worst := comparison["worst"]) is not None:
                worst["output_index"] = index_of(int(self.kept[number][worst["row"]]), self.outputs[number])
                worst["input_index"] = index_of(int(chosen[name][worst["column"]]), shapes[name])
