"""A gradient check of one call of a custom Function, on a sample of elements if its tensors are large."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.errors import CheckError
from chainrule.foundations.gradient_check import differentiated, with_dtype
from chainrule.foundations.gradient_sample import Sample
from chainrule.gradcheck.check import Target, check, check_arguments
from chainrule.gradcheck.report import index_of, output_names

MAX_CHECKED = 512
"""If the inputs or the outputs have more elements than this, a sample is checked."""

SAMPLE = 128
"""Elements of the inputs in a sample, and twice as many of the outputs; fewer if a call takes long."""

MIN_SAMPLE = 16

MAX_ELEMENTS = 4_000_000
"""A call with more elements is not checked, because each difference takes two calls."""

WORK = 100_000_000
"""Elements that a sample's differences may read, about."""


def check_call(function: type[Function], arguments: tuple[Any, ...], file: str) -> dict[str, Any]:
    """Check a custom Function at the arguments of a call of its `apply`, of any size; `file` is for messages.

    Returns the report of `check`, and "sampled": null, or {"columns": [checked, of], "rows": [checked, of]}. In the
    report of a sample, shapes and the indices of the worst element refer to the whole tensors. Raises CheckError if
    the call cannot be checked, ChainruleError if the work of this thread was stopped.
    """
    target = Target(function, function.__name__, file)
    try:
        check_arguments(arguments)
    except CheckError as error:
        raise CheckError(f"{target.name} is called with arguments that cannot be checked: {error.message}") from None
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
    report = check(Target(sample.named(), target.name, file), sample.values())
    sample.restore(report)
    return {**report, "sampled": {"columns": [sample.columns, columns], "rows": [sample.rows, rows]}}


class _Sample(Sample):
    """A part of a function, with the argument names of the whole and its place in the user's file."""

    def __init__(
        self, target: Target, arguments: Sequence[Any], wide: Sequence[Any], outputs: Sequence[Tensor]
    ) -> None:
        elements = sum(each.numel() for each in (*wide, *outputs) if isinstance(each, Tensor))
        size = max(MIN_SAMPLE, min(SAMPLE, WORK // (8 * max(1, elements))))
        super().__init__(target, arguments, wide, outputs, size)
        self.target = target
        names = target.argument_names(len(arguments))
        self.names = [names[place] for place in self.inputs]
        self.outputs = [each.shape for each in outputs]

    def named(self) -> Callable[..., Any]:
        """The part as a function whose signature is the whole's."""

        def part(*values: Tensor) -> tuple[Tensor, ...]:
            return self.part(*values)

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
