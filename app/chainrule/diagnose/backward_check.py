"""Is the backward of a custom Function the derivative of its forward, at the arguments of one call?

The Jacobian of backward, row by row, is compared with finite differences of forward. Large tensors are sampled.
Unlike `torch.autograd.gradcheck`, the check reports an error only if the differences themselves are reliable: they
agree for two steps, and to the left and to the right, and backward is far from them.
Small steps are useless if forward has a kink or a pole, or computes in float32 for any input. Larger steps may work;
if they do not, the backward is unchecked.

Some backwards are not the derivative on purpose, and get a note: the forward is piecewise constant (rounding, signs,
quantizers: straight-through estimators), or returns its input unchanged (the backward reverses, scales or clips the
gradient).
"""

from __future__ import annotations

import inspect
import random
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.module import register_module_forward_pre_hook

from chainrule import stopping
from chainrule.foundations.gradient_check import as_tuple, leaves, with_dtype
from chainrule.foundations.gradient_sample import Sample
from chainrule.trace.custom_functions import unobserved
from chainrule.trace.graph import Level
from chainrule.trace.journal import out_of_sight

SAMPLE = 32
"""Elements of the inputs that are checked, and up to twice as many of the outputs; fewer if a call takes long."""

MIN_SAMPLE = 2

WORK = 50_000_000
"""Elements that the check of one call may read, about."""

CALLS = 16
"""Calls of forward and backward per element of the sample, about."""

UNSTEADY = 5.0
"""A backward is wrong only if its distance to the differences exceeds this multiple of their own variation."""

BENT = 0.1
"""Differences to the left and to the right that differ by more than this share show a kink."""

FLOOR = 1e-3
"""Errors below this share of the largest gradient in their row and column, or of the median, do not count."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A step, a smaller step to compare, the dtype's ε, and the tolerated relative error of a gradient."""

    large: float
    small: float
    precision: float
    tolerance: float


FINE = Steps(1e-6, 1e-8, torch.finfo(torch.float64).eps, 0.01)
"""In float64. A hundredth of a step has a hundred times the rounding: no float32 hides between the two."""

COARSE = Steps(1e-2, 1e-3, torch.finfo(torch.float32).eps, 0.05)
"""In float32, or in float64 if forward computes in float32."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and the repair."""

    level: Level
    message: str
    remedy: str | None = None


class OutOfTimeError(Exception):
    """The deadline has passed."""


class _UncheckableError(Exception):
    """The check cannot be made; its message says why."""


def check_backward(function: type[Function], arguments: Sequence[Any], deadline: float) -> Finding | None:
    """Check a Function at the arguments of a call, copies with their `requires_grad`; None if nothing is wrong.

    It is called many times on copies of the arguments. Forward draws the same random numbers each time, backward draws
    different ones: so a dropout can be checked, and a gradient with random rounding is unchecked. The states of all
    generators are restored.

    Args:
        function: the Function.
        arguments: tensors, lists and dicts of them, and plain values.
        deadline: the time of `perf_counter` at which the check stops, between two calls.

    Raises:
        OutOfTimeError: the deadline has passed.
        ChainruleError: the work of this thread was asked to stop.
    """
    call = _Call(function, deadline)
    with _apart({each.device.type for each in arguments if isinstance(each, Tensor)}):
        try:
            return _checked(call, arguments)
        except OutOfTimeError:
            raise
        except _UncheckableError as error:
            return unchecked(call.name, str(error))
        except Exception as error:
            stopping.check()
            words = " ".join(str(error).split())
            return unchecked(call.name, f"a repeated call raised {type(error).__name__}: {words}")


def unchecked(name: str, why: str) -> Finding:
    """The finding for a Function that was not checked."""
    return Finding("unchecked", f"the gradients of {name} were not checked: {why}")


class _Call:
    """Calls a Function on copies of its arguments, until the deadline."""

    def __init__(self, function: type[Function], deadline: float) -> None:
        self.function = function
        self.name = function.__name__
        self.deadline = deadline
        self.count = 0

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        self.look_at_clock()
        self.count += 1
        _seed(0)
        returned = self.function.apply(*map(_copied, arguments))  # type: ignore[no-untyped-call]
        _seed(self.count)
        outputs = as_tuple(returned) if isinstance(returned, Tensor | tuple) else ()
        for each in outputs:
            if each.requires_grad:
                each.register_hook(self.look_at_clock)  # type: ignore[no-untyped-call]
        return outputs

    def look_at_clock(self, _: object = None) -> None:
        """Raise OutOfTimeError after the deadline, or the error that stops the work of this thread."""
        stopping.check()
        if perf_counter() > self.deadline:
            raise OutOfTimeError

    def argument_names(self, count: int) -> list[str]:
        """The names that forward declares; `argument 2` for the third of a forward that declares none."""
        declared = list(inspect.signature(self.function.forward).parameters.values())
        if self.function.setup_context is Function.setup_context:
            declared = declared[1:]  # without ctx
        named = [each.name for each in declared if each.kind is not inspect.Parameter.VAR_POSITIONAL]
        return [named[place] if place < len(named) else f"argument {place}" for place in range(count)]


def _seed(number: int) -> None:
    """Seed the generators that a Function may use; `torch.manual_seed` would also seed CUDA before its first use."""
    random.seed(number)
    np.random.seed(number)
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)


def _copied(value: Any) -> Any:
    """A copy of an argument, also inside lists and dicts; autograd follows the copy of a tensor back to the tensor."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(_copied, value))
    return {key: _copied(each) for key, each in value.items()} if isinstance(value, dict) else value


class _Muted:
    """A stream that drops the output of this thread."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> Any:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _apart(devices: set[str]) -> Iterator[None]:
    """Hide the calls inside from the rest of the program, and restore the random number generators."""
    thread = threading.get_ident()

    def refuse(module: nn.Module, _: object) -> None:
        if threading.get_ident() == thread:
            raise _UncheckableError(f"it runs a {type(module).__name__}, and a repeated call could change that module")

    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(random.setstate, random.getstate())
        stack.enter_context(torch.random.fork_rng(devices=cuda))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in sorted({"cpu", *devices}):
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(out_of_sight())
        stack.enter_context(unobserved())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(redirect_stdout(_Muted(sys.stdout)))
        stack.callback(register_module_forward_pre_hook(refuse).remove)
        yield


def _checked(call: _Call, arguments: Sequence[Any]) -> Finding | None:
    try:
        return _checked_in(call, arguments, with_dtype(arguments, torch.float64), (FINE, COARSE))
    except (OutOfTimeError, _UncheckableError):
        raise
    except Exception:
        learns = [each for each in arguments if isinstance(each, Tensor) and each.requires_grad]
        if any(each.dtype != torch.float32 for each in learns):
            raise
        # The Function may accept only float32.
        return _checked_in(call, arguments, arguments, (COARSE,))


def _checked_in(call: _Call, arguments: Sequence[Any], wide: Sequence[Any], ladder: Sequence[Steps]) -> Finding | None:
    """Check at `wide`: the arguments, converted to the dtype of the computation."""
    began = perf_counter()
    outputs = call(*leaves(wide))
    again = call(*leaves(wide))
    took = (perf_counter() - began) / 2
    learns = [each for each in outputs if each.requires_grad and each.numel()]
    if not learns:
        return None
    if any(each.requires_grad and each.is_complex() for each in (*learns, *wide) if isinstance(each, Tensor)):
        raise _UncheckableError("it computes with complex numbers")
    for each in learns:
        if torch.finfo(each.dtype).eps > COARSE.precision:
            raise _UncheckableError(f"it returns {each.dtype}, which is too imprecise for finite differences")
    if not all(map(_same, outputs, again)):
        raise _UncheckableError("a repeated call returned a different result; it may use random numbers")
    elements = sum(each.numel() for each in (*wide, *outputs) if isinstance(each, Tensor))
    calls = min(WORK / max(1, elements), (call.deadline - perf_counter()) / max(took, 1e-9))
    size = max(MIN_SAMPLE, min(SAMPLE, int(calls / CALLS)))
    sample = Sample(call, arguments, wide, outputs, size, ladder[0].large)
    if not (sample.rows and sample.columns):
        return None
    point = leaves(sample.values() if wide is arguments else with_dtype(sample.values(), torch.float64))
    return _Comparison(call, sample, point, outputs, ladder).finding()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two results of one computation are equal, except for the order of sums."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    tolerance = 64 * torch.finfo(one.dtype).eps
    return torch.allclose(one.detach(), other.detach(), tolerance, tolerance, equal_nan=True)


class _Comparison:
    """The Jacobian of backward beside differences of forward: (rows of all outputs, columns of all inputs)."""

    def __init__(
        self,
        call: _Call,
        sample: Sample,
        point: Sequence[Tensor],
        outputs: Sequence[Tensor],
        ladder: Sequence[Steps],
    ) -> None:
        self.call = call
        self.sample = sample
        self.point = point
        self.ladder = ladder
        self.learns = [number for number, each in enumerate(outputs) if each.requires_grad]
        self.input_of = torch.tensor([n for n, each in enumerate(point) for _ in range(each.numel())])
        self.base = self._values(self._run(point))
        self.undefined: set[int] = set()  # the inputs for which backward returns None
        self.analytic = torch.zeros(0)
        self._differences: dict[float, tuple[Tensor, Tensor]] = {}

    def _run(self, values: Sequence[Tensor]) -> Tensor:
        """The rows at these values of the inputs."""
        outputs = self.sample.part(*values)
        return torch.cat([outputs[number].to(outputs[self.learns[0]].device) for number in self.learns])

    def _values(self, rows: Tensor) -> Tensor:
        return rows.detach().to("cpu", torch.float64)

    def _jacobian(self, *, afresh: bool) -> Tensor:
        """The Jacobian of backward; `afresh`: a forward pass for each row, since backward may change saved tensors."""
        rows, received = [], set[int]()
        output = self._run(self.point)
        for row in range(len(self.base)):
            if afresh and row:
                output = self._run(self.point)
            gradients = torch.autograd.grad(output[row], self.point, retain_graph=not afresh, allow_unused=True)
            received.update(number for number, each in enumerate(gradients) if each is not None)
            rows.append(_flat(gradients, self.point))
        self.undefined = set(range(len(self.point))) - received
        return torch.stack(rows)

    def differences(self, step: float) -> tuple[Tensor, Tensor]:
        """Quotients of differences to the left and to the right."""
        if step in self._differences:
            return self._differences[step]
        left, right = list[Tensor](), list[Tensor]()
        for number, value in enumerate(self.point):
            for place in range(value.numel()):
                for signed, side in ((-step, left), (step, right)):
                    values = leaves(self.point)
                    element = values[number].detach()[place]  # shares its memory with the leaf
                    before = float(element)
                    element += signed
                    width = float(element) - before  # as rounded
                    side.append((self._values(self._run(values)) - self.base) / (width or torch.nan))
        return self._differences.setdefault(step, (torch.stack(left, 1), torch.stack(right, 1)))

    def finding(self) -> Finding | None:
        """The verdict on all elements."""
        try:
            self.analytic = self._jacobian(afresh=False)
            first = _Judged(self, self.ladder[0])
            if bool((first.fine | ~first.active).all()):
                return self._uses_its_gradient()
        except Exception:  # a backward that works once
            self.call.look_at_clock()
        self.analytic = self._jacobian(afresh=True)
        first = _Judged(self, self.ladder[0])
        wrong, fine, active, still, numeric = first.wrong, first.fine, first.active, first.still, first.numeric
        # Open, or constant for small steps: perhaps because forward rounds.
        doubtful = active & ~fine & (~wrong | first.zero)
        if len(self.ladder) > 1 and bool(doubtful.any()):
            second = _Judged(self, self.ladder[1])
            fine = fine | (doubtful & second.fine)
            found = doubtful & ~wrong & second.wrong & ~second.zero
            numeric = torch.where(found, second.numeric, numeric)
            wrong = (wrong & ~fine) | found
        if bool(wrong.any()):
            return self._wrong(wrong, still, active, numeric)
        for number, value in enumerate(self.point):
            of_input = active & (self.input_of == number)
            if bool(of_input.any()) and not bool((of_input & fine).any()):
                finite = bool(self.base.isfinite().all() and value.isfinite().all())
                why = "forward has a kink there, or is too imprecise" if finite else "a value is NaN or infinite"
                raise _UncheckableError(f"finite differences do not work for {self._name(number)}: {why}")
        return self._uses_its_gradient()

    def _wrong(self, wrong: Tensor, still: Tensor, active: Tensor, numeric: Tensor) -> Finding:
        """The finding for these wrong elements."""
        if not torch.allclose(self._jacobian(afresh=True), self.analytic, FINE.tolerance, equal_nan=True):
            raise _UncheckableError("its backward returns a different gradient at each call")
        name = self.call.name
        inputs = sorted({int(each) for each in self.input_of[wrong.any(0)]})
        if (note := self._hands_through()) is not None:
            return note
        for number in inputs:
            if bool((still | ~active)[:, self.input_of == number].all()):
                return Finding(
                    "note",
                    f"the backward of {name} is not the derivative of its forward: forward is piecewise constant in "
                    f"{self._name(number)}. This is most likely a straight-through estimator, and intended",
                )
        if bool(still[wrong].all()):
            return Finding(
                "note",
                f"the backward of {name} returns a gradient for elements of {self._name(inputs[0])} that do not change "
                "its forward, like a straight-through estimator",
                "If this is not intended, return a gradient of 0 where forward is constant.",
            )
        if self.undefined.issuperset(inputs):
            return Finding(
                "note",
                f"the backward of {name} returns None for {self._name(inputs[0])}, but its forward depends on it: "
                "earlier ops get no gradient through this input",
                "If parameters before it should learn, return its gradient.",
            )
        for number in self.undefined:
            wrong[:, self.input_of == number] = False
        excess = torch.where(wrong, (self.analytic - numeric).abs(), torch.zeros_like(numeric))
        row, column = divmod(int(excess.argmax()), excess.shape[1])
        number = int(self.input_of[column])
        return Finding(
            "fault",
            f"the backward of {name} gives {float(self.analytic[row, column]):.3g} for input {self._at(column)}, "
            f"but finite differences of its forward give {float(numeric[row, column]):.3g}",
            f"Compare the gradient that backward returns for {self._name(number)} with the derivative of forward.",
        )

    def _name(self, number: int) -> str:
        return self.call.argument_names(len(self.sample.arguments))[self.sample.inputs[number]]

    def _at(self, column: int) -> str:
        """The element of an argument, as `x[1, 0]`."""
        number = int(self.input_of[column])
        place = column - int((self.input_of < number).sum())
        shape = self.sample.arguments[self.sample.inputs[number]].shape
        flat = self.sample.chosen[number][place]
        # By numpy: torch's imports sympy.
        index = str([int(each) for each in np.unravel_index(int(flat), shape)]) if shape else ""
        return self._name(number) + index

    def _hands_through(self) -> Finding | None:
        """The note on a Function whose outputs are copies of its arguments, at the arguments and at another point."""
        elsewhere = [
            (torch.rand_like(each) - each.detach()).requires_grad_(each.requires_grad)
            if isinstance(each, Tensor) and each.is_floating_point()
            else each
            for each in self.sample.wide
        ]
        for given in (self.sample.wide, elsewhere):
            inputs = [each.detach().reshape(-1) for each in given if isinstance(each, Tensor)]
            try:
                outputs = self.call(*given)
            except Exception:
                self.call.look_at_clock()
                return None
            for number in self.learns:
                output = outputs[number].detach().reshape(-1)
                if not any(torch.equal(output, each.to(output)) for each in inputs):
                    return None
        return Finding(
            "note",
            f"the backward of {self.call.name} is not the derivative of its forward: forward returns its input "
            "unchanged, and backward changes the gradient. This is most likely intended",
        )

    def _uses_its_gradient(self) -> Finding | None:
        """A backward must be linear in grad_output; `grad.abs()` and `grad * grad` are not.

        The rows of the Jacobian are its results for a grad_output of 1. A loss may ignore grad_output, because it is 1
        at the end of a net. A Function whose forward returns its input unchanged may clip grad_output.
        """
        # 0 times infinity is NaN.
        if bool(self._pulled(torch.zeros(len(self.base))).nan_to_num(posinf=0.0, neginf=0.0).any()):
            return Finding(
                "note",
                f"the backward of {self.call.name} does not multiply by grad_output: it is correct only if grad_output "
                "is 1, as for a loss",
                "Multiply by grad_output. It is not 1 if the loss is scaled, or if the loss is a sum of several terms.",
            )
        signs = torch.randint(2, (len(self.base),), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
        for incoming, size in ((-signs.abs(), "-1"), (2 * signs, "±2")):
            found, again = self._pulled(incoming), self._pulled(incoming)
            expected, terms = incoming.double() @ self.analytic, incoming.abs().double() @ self.analytic.abs()
            excess = (found - expected).abs()
            wrong = excess > COARSE.tolerance * terms + FLOOR * terms.nan_to_num(posinf=0.0).amax()
            if not bool(wrong.any()):
                continue
            if not torch.allclose(found, again, FINE.tolerance, equal_nan=True):
                raise _UncheckableError("its backward returns a different gradient at each call")
            column = int(torch.where(wrong, excess, torch.zeros_like(excess)).argmax())
            return self._hands_through() or Finding(
                "fault",
                f"the backward of {self.call.name} is not linear in grad_output: for a grad_output of {size} it gives "
                f"{float(found[column]):.3g} for input {self._at(column)}, but grad_output times the derivative is "
                f"{float(expected[column]):.3g}",
                "Multiply by grad_output itself, and keep its sign and size.",
            )
        return None

    def _pulled(self, incoming: Tensor) -> Tensor:
        """The gradients that backward returns for a grad_output of one number per row."""
        output = self._run(self.point)
        gradients = torch.autograd.grad(output, self.point, incoming.to(output, copy=True), allow_unused=True)
        return _flat(gradients, self.point)


class _Judged:
    """The elements of a comparison at two steps, as truth values: (rows, columns).

    Attributes:
        numeric: the differences with the larger step.
        active: backward and the differences are not both 0.
        fine: they agree.
        zero: the differences are 0.
        still: all differences of the column are 0, except at a kink.
    """

    def __init__(self, comparison: _Comparison, steps: Steps) -> None:
        self._comparison, self._steps = comparison, steps
        analytic, (left, right) = comparison.analytic, comparison.differences(steps.large)
        self.numeric = numeric = (left + right) / 2
        self._apart = (analytic - numeric).abs()
        largest = comparison.base.abs().nan_to_num(posinf=0.0).clamp_min(1.0)[:, None]
        self._rounding = rounding = 16 * steps.precision * largest / steps.large
        self._smooth = smooth = (left - right).abs() <= BENT * (left.abs() + right.abs()) + rounding
        size = torch.maximum(analytic.abs(), torch.where(smooth, numeric.abs(), torch.zeros_like(numeric)))
        self.zero = numeric.abs() <= rounding
        self.active = (analytic != 0) | ~self.zero
        finite = size.nan_to_num(posinf=0.0)
        usual = torch.minimum(finite.amax(0, keepdim=True), finite.amax(1, keepdim=True)).expand_as(size).clone()
        for number in {int(each) for each in comparison.input_of[self.active.any(0)]}:
            of_input = comparison.input_of == number
            usual[:, of_input] += finite[:, of_input][self.active[:, of_input]].median()
        self.fine = self._apart <= rounding + steps.tolerance * size + FLOOR * usual
        self.still = (self.zero | ~smooth).all(0, keepdim=True).expand_as(smooth)

    @cached_property
    def wrong(self) -> Tensor:
        """They do not agree, and the differences can be trusted."""
        steps = self._steps
        nearer = torch.stack(self._comparison.differences(steps.small)).mean(0)
        away = (self.numeric - nearer).abs()
        largest = torch.maximum(self.numeric.abs(), nearer.abs())
        steady = self._smooth & (away <= BENT * largest + self._rounding * steps.large / steps.small)
        # NaN is not far: a gradient of 0 times an infinite derivative is NaN in torch's own ops too.
        return steady & ~self.fine & (self._apart > UNSTEADY * away)


def _flat(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """Gradients as one vector, in float64 on the CPU; zeros for None."""
    found = zip(gradients, like, strict=True)
    parts = (torch.zeros(value.numel()) if each is None else each.detach().reshape(-1).cpu() for each, value in found)
    return torch.cat([each.double() for each in parts])
