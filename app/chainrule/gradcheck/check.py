"""A gradient check of somebody's own function, on a float64 copy of its arguments, with all that can go wrong in it.

What is raised names the place in the user's file; nothing of ours shows.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from chainrule.dump.json_values import json_number
from chainrule.errors import CheckError, in_words
from chainrule.foundations.gradient_check import Checked, GradientCheck, as_tuple, gradient_check, with_dtype
from chainrule.gradcheck.report import check_report, index_of, shape_of, torch_verdict

MAX_ELEMENTS = 2_000_000
"""Of all Jacobians together: the seeds' LinearFunction of (20, 20) by (30, 20) has 600 000."""

MAX_EVALUATIONS = 20_000
"""Elements of the inputs and of the outputs: the forward runs twice per one, the backward twice per the other."""

ROUNDINGS = 32
"""So many times a dtype's ε a gradient may be off where it is 0 in float64, as that of a sum that is always 1."""


def check_own(
    target: Any, inputs: Sequence[Any], *, file: str, name: str, eps: float, atol: float, rtol: float
) -> dict[str, Any]:
    """The check in float64, and in the dtypes given where these are others.

    Args:
        target: a Function's class, or a callable.
        inputs: its arguments, as `check_inputs` gives them.
        file: the file it comes from, for the place of an error.
        name: what it is called there.
        eps: see `gradient_check`.
        atol: see `gradient_check`.
        rtol: see `gradient_check`.

    Returns:
        {"name", "file", "eps", "atol", "rtol", "inputs", "passed", "checks": {"float64": report, …}}, the reports as
        `check_report` makes them, with "torch" and "in_place", the names of the inputs that forward modifies; "given":
        the dtypes of the inputs, in words. The report of a dtype that is not float64 has "analytic", what
        `analytic_agreement` says of it.

        "passed", the verdict, is float64's, where torch finds no fault; in the dtypes given differences are too coarse
        for one, but what backward says there is to be what it says in float64, or it fails.

    Raises:
        CheckError: it cannot be checked.
    """
    f = callable_of(target, name)
    names = argument_names(target, len(inputs))
    place = _Place(target, file)
    tolerances = {"eps": eps, "atol": atol, "rtol": rtol}
    # The same point to the last digit: float64 holds every value of a narrower dtype.
    wide, wide_report = _check(f, with_dtype(inputs, torch.float64), names, place, tolerances, "float64")
    report: dict[str, Any] = {
        "name": name,
        "file": file,
        **tolerances,
        "inputs": [{"name": each, "shape": shape_of(value)} for each, value in zip(names, inputs, strict=True)],
        "passed": wide.passed and not wide_report["torch"]["finds_fault"],
        "checks": {"float64": wide_report},
    }
    given = sorted({str(each.dtype).removeprefix("torch.") for each in inputs if _is_floating(each)})
    report["given"] = ", ".join(given)
    if given != ["float64"]:
        try:
            narrow, narrow_report = _check(f, inputs, names, place, tolerances, report["given"])
        except CheckError as error:
            # The verdict is float64's; what happens in the dtype given is told beside it.
            report["checks"][report["given"]] = {"error": error.message}
            return report
        precision = max(torch.finfo(each.dtype).eps for each in inputs if _is_floating(each))
        agreement = analytic_agreement(wide, narrow, precision, atol, rtol)
        report["checks"][report["given"]] = {**narrow_report, "analytic": agreement}
        report["passed"] = report["passed"] and agreement["agrees"] and agreement["holds"]
    return report


def analytic_agreement(
    wide: GradientCheck, narrow: GradientCheck, precision: float, atol: float, rtol: float
) -> dict[str, Any]:
    """{"agrees", "max_difference", "holds"}: whether backward says in a narrow dtype what it says in float64.

    Rounding apart: it may leave half the dtype's digits of a Jacobian's elements, counted from the largest of them, for
    where terms cancel the small ones keep fewer. That, or the tolerances where they are wider. "holds": what else is
    asked of a function (`GradientCheck`) is no matter of digits: where float64 has it, the narrow dtype has it.

    Args:
        wide: the check in float64.
        narrow: the check at the same point in the dtype given.
        precision: that dtype's ε.
        atol: see `gradient_check`.
        rtol: see `gradient_check`.
    """
    found = {(each.output, each.input): each.analytic for each in narrow.comparisons}
    wanted = {(each.output, each.input): each.analytic for each in wide.comparisons}
    same = found.keys() == wanted.keys() and all(found[key].shape == wanted[key].shape for key in wanted)
    held = all(
        getattr(narrow, name) or not getattr(wide, name)
        for name in ("zero_for_zero", "takes_undefined", "forward_repeatable", "backward_repeatable")
    )
    if not same:
        return {"agrees": False, "max_difference": json_number(float("inf")), "holds": held}
    largest, agrees = 0.0, True
    for key, right in wanted.items():
        if not right.numel():
            continue
        narrowed = found[key].to(right.dtype)
        same_value = (narrowed == right) | (narrowed.isnan() & right.isnan())  # infinity and NaN, too
        difference = torch.where(same_value, torch.zeros_like(right), (narrowed - right).abs())
        scale = float(right.abs().nan_to_num(posinf=0.0).max())
        tolerance = max(atol, ROUNDINGS * precision) + max(rtol, precision**0.5) * scale
        agrees = agrees and bool((difference <= tolerance).all())
        largest = max(largest, float(difference.nan_to_num(nan=torch.inf).max()))
    return {"agrees": agrees, "max_difference": json_number(largest), "holds": held}


def callable_of(target: Any, name: str) -> Checked:
    """What is called: a Function's apply, or the callable itself. Raises CheckError for anything else."""
    if isinstance(target, type):
        if not issubclass(target, Function):
            raise CheckError(
                f"{name} is a class, but no torch.autograd.Function: give a Function, a function or an instance"
            )
        applied: Checked = target.apply
        return applied
    if not callable(target):
        raise CheckError(f"{name} is a value of type {type(target).__name__}, which cannot be called")
    called: Checked = target
    return called


def check_arguments(made: Any) -> tuple[Any, ...]:
    """What `make_inputs` returned, as the arguments. Raises CheckError where they are none that can be checked."""
    if isinstance(made, Tensor):
        made = (made,)
    if not isinstance(made, tuple | list):
        raise CheckError(f"it returned a value of type {type(made).__name__}; wanted is a tuple of the arguments")
    wanted = [each for each in made if isinstance(each, Tensor) and each.requires_grad]
    if not wanted:
        raise CheckError(
            "none of its tensors requires grad, so that there is nothing to check: torch.randn(3, requires_grad=True)"
        )
    for number, each in enumerate(made):
        if not isinstance(each, Tensor):
            continue
        if each.layout is not torch.strided or each.is_nested or each.is_quantized:
            raise CheckError(f"its tensor {number} is not a dense one ({each.layout}): only those can be checked")
        if each.requires_grad and not each.is_floating_point():
            raise CheckError(f"its tensor {number} is {each.dtype}: only real floating point can be checked")
        if each.is_floating_point() and not bool(each.isfinite().all()):
            raise CheckError(f"its tensor {number} holds NaN or infinity: a difference at such a point says nothing")
    return tuple(made)


def argument_names(target: Any, count: int) -> list[str]:
    """Names of the arguments as the function declares them, `inputs[i]` where it does not."""
    is_function = isinstance(target, type) and issubclass(target, Function)
    try:
        parameters = list(inspect.signature(target.forward if is_function else target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    # A Function with setup_context has a forward without ctx.
    if is_function and target.setup_context is Function.setup_context:
        parameters = parameters[1:]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    declared = [each.name for each in parameters if each.kind in positional]
    return [declared[index] if index < len(declared) else f"inputs[{index}]" for index in range(count)]


def _check(
    f: Checked,
    arguments: Sequence[Any],
    names: Sequence[str],
    place: _Place,
    tolerances: dict[str, float],
    dtype: str,
) -> tuple[GradientCheck, dict[str, Any]]:
    copied = copies(arguments)
    versions = [each._version if isinstance(each, Tensor) else None for each in copied]
    with place.naming(f"forward raised on {dtype} inputs"):
        returned = f(*copied)
    in_place = _modified(copied, versions, names)
    outputs = _outputs(returned, place, dtype)
    _check_size(arguments, outputs)
    with place.naming(f"the check raised on {dtype} inputs", backward=True):
        check: GradientCheck = gradient_check(f, arguments, **tolerances)
        # torch would hand it its leaves, which cannot be modified in place.
        verdict = torch_verdict((lambda *given: f(*copies(given))) if in_place else f, arguments, **tolerances)
    shapes = ([shape_of(each) for each in outputs], [shape_of(each) for each in arguments])
    labels = ["out"] if len(outputs) == 1 else [f"out[{index}]" for index in range(len(outputs))]
    return check, {**check_report(check, names, labels, shapes), "in_place": in_place, "torch": verdict}


def copies(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Copies, so that a function which modifies its arguments does no harm."""
    return tuple(each.clone() if isinstance(each, Tensor) else each for each in arguments)


def _outputs(returned: Any, place: _Place, dtype: str) -> tuple[Tensor, ...]:
    if place.is_function and not isinstance(returned, Tensor | tuple):
        # apply takes anything else, and passes it on without a graph.
        raise CheckError(
            f"{place.of_forward()}: forward returned a value of type {type(returned).__name__}; "
            "a Function must return a tensor or a tuple of tensors"
        )
    if not isinstance(returned, Tensor | tuple | list):
        raise CheckError(
            f"{place.of_forward()}: forward returned a value of type {type(returned).__name__}; wanted are tensors"
        )
    outputs = as_tuple(returned)
    if not any(each.requires_grad for each in outputs):
        raise CheckError(f"{place.of_forward()}: no output requires grad: nothing that it returns is differentiable")
    for number, each in enumerate(outputs):
        if each.requires_grad and each.is_complex():
            raise CheckError(f"{place.of_forward()}: output {number} is {each.dtype}: only real ones can be checked")
        if not bool(each.isfinite().all()):
            first = int((~each.isfinite()).reshape(-1).to(torch.uint8).argmax())
            at = index_of(first, each.shape)
            value = float(each.detach().reshape(-1)[first])
            raise CheckError(
                f"{place.of_forward()}: on {dtype} inputs output {number} is {value} at {at}: "
                "a difference there says nothing"
            )
    return outputs


def _check_size(arguments: Sequence[Any], outputs: Sequence[Tensor]) -> None:
    into = sum(each.numel() for each in arguments if isinstance(each, Tensor) and each.requires_grad)
    out = sum(each.numel() for each in outputs if each.requires_grad)
    if into * out > MAX_ELEMENTS or into > MAX_EVALUATIONS or out > MAX_EVALUATIONS:
        raise CheckError(
            f"{into} elements that require grad and {out} elements of output make Jacobians of {into * out} elements; "
            f"at most {MAX_ELEMENTS} are computed ({MAX_EVALUATIONS} of either): take smaller inputs",
            limit={"elements": MAX_ELEMENTS, "evaluations": MAX_EVALUATIONS},
        )


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _modified(arguments: Sequence[Any], versions: Sequence[int | None], names: Sequence[str]) -> list[str]:
    after = [each._version if isinstance(each, Tensor) else None for each in arguments]
    return [name for name, old, new in zip(names, versions, after, strict=True) if old != new]


class _Place:
    """Where in the user's file something went wrong."""

    def __init__(self, target: Any, file: str) -> None:
        self.target = target
        self.file = file
        self.is_function = isinstance(target, type) and issubclass(target, Function)

    @contextmanager
    def naming(self, what: str, *, backward: bool = False) -> Iterator[None]:
        """Makes one line of whatever the user's code raises: the place, what happened, and the error itself."""
        try:
            yield
        except (Exception, SystemExit) as error:
            place = raised_at(error, self.file) or (self._of("backward") if backward else self.of_forward())
            raise CheckError(f"{place}: {what}: {in_words(error)}") from error

    def of_forward(self) -> str:
        """The line that forward is defined at."""
        return self._of("forward")

    def _of(self, method: str) -> str:
        function: Callable[..., Any] | None = (
            getattr(self.target, method, None) if isinstance(self.target, type) else self.target
        )
        code = getattr(inspect.unwrap(function) if function is not None else None, "__code__", None)
        return self.file if code is None else f"{self.file}:{code.co_firstlineno}"


def raised_at(error: BaseException, file: str) -> str | None:
    """`file:line` of the innermost frame that is in the user's file; None if there is none."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else None
