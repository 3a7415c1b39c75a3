"""A gradient check of a custom Function at arguments of any size: of large ones a sample of the Jacobian is checked.

A Jacobian has as many rows as the outputs have elements and as many columns as the inputs. Of large tensors columns are
taken at random, and of the rows those that these columns reach most, and others at random: a function of one element at
a time has a diagonal, which no random choice of both would meet.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.errors import CheckError, in_words
from chainrule.foundations.gradient_check import ATOL, EPS, RTOL, as_tuple, with_dtype
from chainrule.gradcheck.check import argument_names, check_arguments, check_own
from chainrule.gradcheck.report import index_of
from chainrule.stopping import current_stop

MOST_CHECKED = 512
"""Elements of the inputs, and of the outputs, of which all are checked; of more, a sample is."""

SAMPLE = 128
"""Elements of the inputs in a sample, and twice as many of the outputs: fewer, if a call takes long."""

LEAST = 16
"""No sample is smaller."""

MOST_ELEMENTS = 4_000_000
"""A call of larger tensors is not checked: each difference takes two of it."""

WORK = 100_000_000
"""Elements that a sample's differences may read, about."""


def check_call(function: type[Function], arguments: tuple[Any, ...], file: str) -> dict[str, Any]:
    """Check a custom Function at arguments that it was called with, whatever their size.

    Args:
        function: the Function.
        arguments: of its `apply`.
        file: the file it comes from, for the place of an error.

    Returns:
        The report of `own_check.check_own`, and "sampled": null, or {"columns": [checked, of], "rows": [checked, of]}.
        Of a sample the shapes and the indices of the worst element are those of the whole tensors.

    Raises:
        CheckError: it cannot be checked; says why.
        ChainruleError: the work of this thread was asked to stop.
    """
    try:
        check_arguments(arguments)
    except CheckError as error:
        raise CheckError(f"{function.__name__} is called with what cannot be checked: {error.message}") from None
    tolerances = {"eps": EPS, "atol": ATOL, "rtol": RTOL}
    names = argument_names(function, len(arguments))
    inputs = [place for place, each in enumerate(arguments) if isinstance(each, Tensor) and each.requires_grad]
    elements = sum(each.numel() for each in arguments if isinstance(each, Tensor))
    if elements > MOST_ELEMENTS:
        raise CheckError(
            f"{function.__name__} is called with {elements} elements; at most {MOST_ELEMENTS} can be checked: "
            "trace the model with a smaller batch",
            limit={"elements": MOST_ELEMENTS},
        )
    columns = sum(arguments[place].numel() for place in inputs)
    wide = with_dtype(arguments, torch.float64)
    outputs = _outputs(function, wide, file)
    rows = sum(each.numel() for each in outputs if each.requires_grad)
    if columns <= MOST_CHECKED and rows <= MOST_CHECKED:
        return {**check_own(function, arguments, file=file, name=function.__name__, **tolerances), "sampled": None}
    sample = _Sample(function, arguments, wide, names, inputs, outputs)
    report = check_own(sample.callable(), sample.values(), file=file, name=function.__name__, **tolerances)
    sample.restore(report)
    return {**report, "sampled": {"columns": [sample.columns, columns], "rows": [sample.rows, rows]}}


def _outputs(function: type[Function], wide: Sequence[Any], file: str) -> tuple[Tensor, ...]:
    copied = [each.clone() if isinstance(each, Tensor) else each for each in wide]
    try:
        returned = function.apply(*copied)  # type: ignore[no-untyped-call]
    except Exception as error:
        code = getattr(inspect.unwrap(function.forward), "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno}"
        raise CheckError(f"{file}{line}: forward raised on float64 inputs: {in_words(error)}") from None
    if not isinstance(returned, Tensor | tuple):
        raise CheckError(f"{function.__name__} returns a value of type {type(returned).__name__}; wanted are tensors")
    return as_tuple(returned)


class _Sample:
    """A part of a function: some elements of its inputs, all else as it is, to some elements of its outputs."""

    def __init__(
        self,
        function: type[Function],
        arguments: Sequence[Any],
        wide: Sequence[Any],
        names: Sequence[str],
        inputs: Sequence[int],
        outputs: Sequence[Tensor],
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.wide = wide
        self.names = [names[place] for place in inputs]
        self.inputs = inputs
        self.outputs = [each.shape for each in outputs]
        self._generator = torch.Generator().manual_seed(0)
        elements = sum(each.numel() for each in (*wide, *outputs) if isinstance(each, Tensor))
        size = max(LEAST, min(SAMPLE, WORK // (8 * max(1, elements))))
        self.chosen = self._choose([arguments[place].numel() for place in inputs], size)
        self.kept = self._rows(outputs, size)
        self.columns = sum(map(len, self.chosen))
        self.rows = sum(len(rows) for rows, each in zip(self.kept, outputs, strict=True) if each.requires_grad)

    def _choose(self, sizes: Sequence[int], size: int) -> list[Tensor]:
        """Some places in each of several tensors, about `size` in all, rising; of a small one every place."""
        left, found = size, {}
        for rank, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            share = min(sizes[place], max(1, left // (len(sizes) - rank)))
            found[place] = torch.randperm(sizes[place], generator=self._generator)[:share].sort().values
            left -= share
        return [found[place] for place in range(len(sizes))]

    def _rows(self, outputs: Sequence[Tensor], size: int) -> list[Tensor]:
        """Of each output the elements that a chosen element of the inputs moves most, and as many at random."""
        kept: list[list[Tensor]] = [[] for _ in outputs]
        for number, places in enumerate(self.chosen):
            for place in places.tolist():
                moved = []
                for step in (-EPS, EPS):
                    values = [part.clone() for part in self.values(wide=True)]
                    values[number][int((places == place).nonzero())] += step
                    moved.append(self._whole(values))
                for rows, low, high in zip(kept, *moved, strict=True):
                    if low.numel() and low.is_floating_point():
                        rows.append((high - low).abs().reshape(-1).nan_to_num().argmax().reshape(1).cpu())
        count = [each.numel() for each in outputs]
        others = self._choose(count, size)
        return [torch.cat([*rows, other]).unique() for rows, other in zip(kept, others, strict=True)]  # type: ignore[no-untyped-call]

    def _whole(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(each.detach() for each in self._run(values))

    def _run(self, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The function's outputs where these are the chosen elements of its inputs, in the dtypes of these."""
        if (error := current_stop().error) is not None:
            raise error
        given = self.wide if values[0].dtype == torch.float64 else self.arguments
        full = [each.detach().clone() if isinstance(each, Tensor) else each for each in given]
        for place, chosen, part in zip(self.inputs, self.chosen, values, strict=True):
            base = full[place]
            flat = base.reshape(-1).to(part.dtype).index_put((chosen.to(base.device),), part)
            full[place] = flat.reshape(base.shape)
        return as_tuple(self.function.apply(*full))  # type: ignore[no-untyped-call]

    def values(self, wide: bool = False) -> tuple[Tensor, ...]:
        """The chosen elements of the inputs, leaves that require grad."""
        given = self.wide if wide else self.arguments
        return tuple(
            given[place].detach().reshape(-1)[chosen.to(given[place].device)].clone().requires_grad_(not wide)
            for place, chosen in zip(self.inputs, self.chosen, strict=True)
        )

    def callable(self) -> Callable[..., Any]:
        """The part as a function, with the names of the whole and its place in the user's file."""

        def part(*values: Tensor) -> tuple[Tensor, ...]:
            outputs = self._run(values)
            return tuple(each.reshape(-1)[rows.to(each.device)] for each, rows in zip(outputs, self.kept, strict=True))

        declared = [inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)]
        # `inputs[2]` is no name: what it is called where the function takes any number.
        if all(name.isidentifier() for name in self.names):
            declared = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.names]
        part.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        part.__wrapped__ = self.function.forward  # type: ignore[attr-defined]
        return part

    def restore(self, report: dict[str, Any]) -> None:
        """Put into a report of the part the shapes and the indices of the whole."""
        shapes = {
            each["name"]: list(self.arguments[place].shape)
            for each, place in zip(report["inputs"], self.inputs, strict=True)
        }
        chosen = {each["name"]: places for each, places in zip(report["inputs"], self.chosen, strict=True)}
        for each in report["inputs"]:
            each["shape"] = shapes[each["name"]]
        labels = ["out"] if len(self.outputs) == 1 else [f"out[{place}]" for place in range(len(self.outputs))]
        for check in report["checks"].values():
            for each in check.get("comparisons", ()):
                number, name = labels.index(each["output"]), each["input"]
                each["output_shape"], each["input_shape"] = list(self.outputs[number]), shapes[name]
                if (worst := each["worst"]) is not None:
                    worst["output_index"] = index_of(int(self.kept[number][worst["row"]]), self.outputs[number])
                    worst["input_index"] = index_of(int(chosen[name][worst["column"]]), shapes[name])
