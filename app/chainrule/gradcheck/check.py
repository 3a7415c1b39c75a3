"""The gradient check of a user's function, in float64 and in the dtype of its arguments.

An error names the place in the user's file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule import stopping
from chainrule.dump.json_values import json_number
from chainrule.errors import CheckError
from chainrule.foundations.gradient_check import (
    ATOL,
    EPS,
    RTOL,
    GradientCheck,
    as_tuple,
    clones,
    differentiated,
    gradient_check,
    same_elements,
    with_dtype,
)
from chainrule.gradcheck.report import PROPERTIES, check_report, index_of, output_names, shape_of, torch_verdict
from chainrule.user_model.code import shown_path, telling

MAX_ELEMENTS = 2_000_000
"""Elements of all Jacobians together; LinearFunction of (20, 20) by (30, 20) has 600 000."""

MAX_EVALUATIONS = 20_000
"""Elements of the inputs, and of the outputs: two forward passes per input, two backward passes per output."""

ROUNDINGS = 32
"""Tolerated error of a gradient that is 0 in float64, such as the gradient of softmax(x).sum(), in units of ε."""


@dataclass(frozen=True, slots=True)
class Target:
    """The function to check: a Function's class or a callable, with its name in a file. Raises CheckError for others.

    A message shows `file` if the function has no line number.
    """

    function: Any
    name: str
    file: str

    def __post_init__(self) -> None:
        if isinstance(self.function, type) and not self.is_function:
            raise CheckError(
                f"{self.name} is a class, but not a torch.autograd.Function; expected a Function, a function or an "
                "instance"
            )
        if not callable(self.function):
            raise CheckError(
                f"{self.name} is of type {type(self.function).__name__}; expected a Function or a callable"
            )

    @property
    def is_function(self) -> bool:
        """Whether it is a `torch.autograd.Function`."""
        return isinstance(self.function, type) and issubclass(self.function, Function)

    @property
    def called(self) -> Callable[..., Any]:
        """Its `apply`, or the callable itself."""
        called: Callable[..., Any] = self.function.apply if self.is_function else self.function
        return called

    def __call__(self, *arguments: Any) -> Any:
        """Call it on copies, which it may modify in place. Raises ChainruleError if this work is to stop."""
        stopping.check()
        return self.called(*clones(arguments))

    def place(self, method: str = "forward") -> str:
        """`file:line` where a method of the Function is defined, or the callable."""
        function = getattr(self.function, method, None) if self.is_function else self.function
        code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
        return self.file if code is None else f"{shown_path(code.co_filename)}:{code.co_firstlineno}"

    def argument_names(self, count: int) -> list[str]:
        """The declared names of the arguments; `inputs[i]` for an argument without a declared name."""
        try:
            signature = inspect.signature(self.function.forward if self.is_function else self.function)
            parameters = list(signature.parameters.values())
        except (TypeError, ValueError):
            parameters = []
        # A Function with setup_context has a forward without ctx.
        if self.is_function and self.function.setup_context is Function.setup_context:
            parameters = parameters[1:]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        declared = [each.name for each in parameters if each.kind in positional]
        return [declared[index] if index < len(declared) else f"inputs[{index}]" for index in range(count)]

    def outputs(self, arguments: Sequence[Any], dtype: str) -> tuple[Tensor, ...]:
        """The outputs at these arguments. Raises CheckError if it raises, or returns anything but tensors."""
        with telling(f"forward raised on {dtype} inputs", None, self.place(), CheckError):
            returned = self(*arguments)
        # apply passes a list on, without a graph.
        if not isinstance(returned, Tensor | tuple) and (self.is_function or not isinstance(returned, list)):
            wanted = "a tensor or a tuple of tensors" if self.is_function else "tensors"
            raise CheckError(f"{self.place()}: forward returned a {type(returned).__name__}; expected {wanted}")
        return as_tuple(returned)


def check(
    target: Target, arguments: Sequence[Any], *, eps: float = EPS, atol: float = ATOL, rtol: float = RTOL
) -> dict[str, Any]:
    """Check in float64, and in the dtypes of the arguments if these differ; tolerances as for `gradient_check`.

    Returns:
        {"name", "file", "eps", "atol", "rtol", "inputs", "given", "passed", "checks": {"float64": report, …}}. "given":
        the dtypes of the inputs, in words. A report is that of `check_report` with "torch", "in_place" (the names of
        the inputs that forward modifies), and in dtypes other than float64 "analytic" of `analytic_agreement`.

        "passed": the check and torch's check pass in float64, since differences are too coarse in other dtypes. The
        analytic gradient in the dtype of the inputs must agree with float64.

    Raises:
        CheckError: it cannot be checked.
    """
    names = target.argument_names(len(arguments))
    tolerances = {"eps": eps, "atol": atol, "rtol": rtol}
    # The same point to the last digit: float64 holds every value of a narrower dtype.
    wide, wide_report = _check_in("float64", target, with_dtype(arguments, torch.float64), names, tolerances)
    dtypes = {each.dtype for each in arguments if isinstance(each, Tensor) and each.is_floating_point()}
    given = ", ".join(sorted(str(each).removeprefix("torch.") for each in dtypes))
    report: dict[str, Any] = {
        "name": target.name,
        "file": target.file,
        **tolerances,
        "inputs": [{"name": name, "shape": shape_of(each)} for name, each in zip(names, arguments, strict=True)],
        "given": given,
        "passed": wide.passed and not wide_report["torch"]["finds_fault"],
        "checks": {"float64": wide_report},
    }
    if given != "float64":
        try:
            narrow, narrow_report = _check_in(given, target, arguments, names, tolerances)
        except CheckError as error:
            # The verdict depends on float64 alone.
            report["checks"][given] = {"error": error.message}
            return report
        agreement = analytic_agreement(wide, narrow, max(torch.finfo(each).eps for each in dtypes), atol, rtol)
        report["checks"][given] = {**narrow_report, "analytic": agreement}
        report["passed"] = report["passed"] and agreement["agrees"] and agreement["holds"]
    return report


def _check_in(
    dtype: str, target: Target, arguments: Sequence[Any], names: Sequence[str], tolerances: dict[str, float]
) -> tuple[GradientCheck, dict[str, Any]]:
    outputs = target.outputs(arguments, dtype)
    _check_outputs(target, outputs, dtype)
    _check_size(arguments, outputs)
    with telling(f"the check raised on {dtype} inputs", None, target.place("backward"), CheckError):
        found: GradientCheck = gradient_check(target, arguments, **tolerances)
        verdict = torch_verdict(target, arguments, **tolerances)
    shapes = ([shape_of(each) for each in outputs], [shape_of(each) for each in arguments])
    report = check_report(found, names, output_names(len(outputs)), shapes)
    copies = clones(arguments)
    versions = [getattr(each, "_version", None) for each in copies]
    target.called(*copies)
    in_place = [
        name for name, old, each in zip(names, versions, copies, strict=True) if old != getattr(each, "_version", None)
    ]
    return found, {**report, "in_place": in_place, "torch": verdict}


def _check_outputs(target: Target, outputs: Sequence[Tensor], dtype: str) -> None:
    if not any(each.requires_grad for each in outputs):
        raise CheckError(f"{target.place()}: no output requires grad, so there is no gradient to check")
    for number, each in enumerate(outputs):
        if each.requires_grad and each.is_complex():
            raise CheckError(f"{target.place()}: output {number} is {each.dtype}; only real outputs can be checked")
        if not bool(each.isfinite().all()):
            first = int((~each.isfinite()).reshape(-1).to(torch.uint8).argmax())
            value = float(each.detach().reshape(-1)[first])
            raise CheckError(
                f"{target.place()}: on {dtype} inputs output {number} is {value} at {index_of(first, each.shape)}: "
                "finite differences need finite outputs"
            )


def _check_size(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> None:
    into = sum(arguments[place].numel() for place in differentiated(arguments))
    out = sum(each.numel() for each in outputs if each.requires_grad)
    if into * out > MAX_ELEMENTS or into > MAX_EVALUATIONS or out > MAX_EVALUATIONS:
        raise CheckError(
            f"{into} input elements that require grad and {out} output elements give Jacobians of {into * out} "
            f"elements; at most {MAX_ELEMENTS} are computed, of at most {MAX_EVALUATIONS} input or output elements: "
            "use smaller inputs",
            limit={"elements": MAX_ELEMENTS, "evaluations": MAX_EVALUATIONS},
        )


def analytic_agreement(
    wide: GradientCheck, narrow: GradientCheck, precision: float, atol: float, rtol: float
) -> dict[str, Any]:
    """{"agrees", "max_difference", "holds"}: whether backward in a narrow dtype with ε `precision` agrees with float64.

    The tolerance is the square root of ε times a Jacobian's largest element, because cancelling terms leave fewer
    digits in small elements; `atol` and `rtol` count if they are larger. "holds": the narrow dtype has every property
    of `GradientCheck` that float64 has, such as `zero_for_zero`.
    """
    found = {(each.output, each.input): each.analytic for each in narrow.comparisons}
    wanted = {(each.output, each.input): each.analytic for each in wide.comparisons}
    same = found.keys() == wanted.keys() and all(found[key].shape == wanted[key].shape for key in wanted)
    held = all(getattr(narrow, name) or not getattr(wide, name) for name in PROPERTIES)
    if not same:
        return {"agrees": False, "max_difference": json_number(float("inf")), "holds": held}
    largest, agrees = 0.0, True
    for key, right in wanted.items():
        if not right.numel():
            continue
        narrowed = found[key].to(right.dtype)
        difference = torch.where(same_elements(narrowed, right), torch.zeros_like(right), (narrowed - right).abs())
        scale = float(right.abs().nan_to_num(posinf=0.0).max())
        tolerance = max(atol, ROUNDINGS * precision) + max(rtol, precision**0.5) * scale
        agrees = agrees and bool((difference <= tolerance).all())
        largest = max(largest, float(difference.nan_to_num(nan=torch.inf).max()))
    return {"agrees": agrees, "max_difference": json_number(largest), "holds": held}


def check_arguments(made: Any) -> tuple[Any, ...]:
    """The arguments, from a tensor or a tuple of them. Raises CheckError if they cannot be checked."""
    if isinstance(made, Tensor):
        made = (made,)
    if not isinstance(made, tuple | list):
        raise CheckError(f"it returned a value of type {type(made).__name__}; expected a tuple of the arguments")
    if not any(isinstance(each, Tensor) and each.requires_grad for each in made):
        raise CheckError(
            "none of its tensors requires grad; expected at least one, such as torch.randn(3, requires_grad=True)"
        )
    for number, each in enumerate(made):
        if not isinstance(each, Tensor):
            continue
        if each.layout is not torch.strided or each.is_nested or each.is_quantized:
            raise CheckError(f"its tensor {number} has the layout {each.layout}; only dense tensors can be checked")
        if each.requires_grad and not each.is_floating_point():
            raise CheckError(f"its tensor {number} is {each.dtype}; only real floating-point tensors can be checked")
        if each.is_floating_point() and not bool(each.isfinite().all()):
            raise CheckError(f"its tensor {number} contains NaN or infinity; finite differences need finite inputs")
    return tuple(made)
