# mypy: disable-error-code="no-untyped-call"
"""Is a backward right? Its gradients are held against differences of the forward, element by element.

    numeric   J[i,j] ≈ (f_i(x + eps e_j) − f_i(x − eps e_j)) / (2 eps)      column by column, forward only
    analytic  J[i,:] = e_iᵀ J                                              row by row, backward with grad_output = e_i

They agree where |analytic − numeric| ≤ atol + rtol · |numeric|. Jacobians are (elements of the output, elements of the
input). The numeric one is wrong for two reasons, which pull in opposite directions: of the Taylor series eps² f‴/6 is
cut off, and f is rounded, so that the difference is off by about ε |f| / eps, ε the dtype's precision. In float64 the
best eps is about 1e-5, and 1e-10 is left of the error; in float32 1e-2 and 1e-5, and with eps = 1e-6 nothing is right.

The same arithmetic and the same other checks of a backward as in `torch.autograd.gradcheck` with fast_mode=False, so
that the verdicts are the same. f runs with gradients enabled on tensors that require grad, as in training: it may
differentiate in its own forward. Not checked, here as there by default: second derivatives (`gradgradcheck`),
forward-mode derivatives, and batched gradients (vmap).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Checked = Callable[..., Tensor | Sequence[Tensor]]
"""The function to check: tensors and other values in, a tensor or several out."""

EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3
"""The step and the tolerances of `torch.autograd.gradcheck`, which are meant for float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The two Jacobians of one output with respect to one input, by position: (output elements, input elements) each.

    `analytic` is backward's, `numeric` that of the differences; `tolerance` is atol + rtol · |numeric|.
    """

    output: int
    input: int
    analytic: Tensor
    numeric: Tensor
    tolerance: Tensor

    @property
    def difference(self) -> Tensor:
        """|analytic − numeric|; 0 where both are the same infinity."""
        same = self.analytic == self.numeric
        return torch.where(same, torch.zeros_like(self.analytic), (self.analytic - self.numeric).abs())

    @property
    def within(self) -> Tensor:
        """Where they agree. NaN agrees with nothing, and a tolerance that is infinite is none."""
        same = self.analytic == self.numeric
        return same | ((self.difference <= self.tolerance) & self.difference.isfinite() & self.tolerance.isfinite())

    @property
    def passed(self) -> bool:
        """Whether they agree everywhere."""
        return bool(self.within.all())

    @property
    def max_difference(self) -> float:
        """The largest difference; NaN if there is one. 0 where there are no elements."""
        return float(self.difference.max()) if self.difference.numel() else 0.0

    @property
    def worst(self) -> tuple[int, int] | None:
        """Row and column of the difference that is largest for its tolerance; None without elements."""
        share = torch.where(self.difference == 0, torch.zeros_like(self.difference), self.difference / self.tolerance)
        share = share.nan_to_num(nan=torch.inf, posinf=torch.inf)
        if not share.numel():
            return None
        return divmod(int(share.argmax()), share.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class GradientCheck:
    """A comparison per output and input, and what else is asked of a backward.

    Attributes:
        comparisons: by output, then by input.
        zero_for_zero: grad_output = 0 gives gradients that are 0: backward multiplies by it.
        takes_undefined: a grad_output that is not there, which is None in a backward whose forward said
            `ctx.set_materialize_grads(False)`, is taken for 0.
        forward_repeatable: forward run again gives the same, bit for bit.
        backward_repeatable: backward run again gives the same, bit for bit.
    """

    comparisons: tuple[Comparison, ...]
    zero_for_zero: bool
    takes_undefined: bool
    forward_repeatable: bool
    backward_repeatable: bool

    @property
    def passed(self) -> bool:
        """The verdict."""
        of_backward = self.zero_for_zero and self.takes_undefined
        repeatable = self.forward_repeatable and self.backward_repeatable
        return of_backward and repeatable and all(each.passed for each in self.comparisons)

    @property
    def max_difference(self) -> float:
        """The largest difference of all; NaN if there is one."""
        differences = [each.max_difference for each in self.comparisons]
        return float(torch.tensor(differences, dtype=torch.float64).max()) if differences else 0.0


def gradient_check(
    f: Checked, inputs: Sequence[Any], *, eps: float = EPS, atol: float = ATOL, rtol: float = RTOL
) -> GradientCheck:
    """Hold the gradients of f, such as `MyFunction.apply`, at a point against differences of half the width `eps`.

    The inputs and the outputs that require grad are checked; all other inputs are passed on as they are.

    Raises:
        ValueError: no input requires grad, or no output does.
        Exception: whatever f raises, forward or backward.
    """
    point = leaves(inputs)
    forward_repeatable = _all_identical(_values(f, point), _values(f, point))
    numeric = numeric_jacobians(f, inputs, eps)
    analytic = analytic_jacobians(f, inputs)
    again = analytic_jacobians(f, inputs)
    comparisons = tuple(
        Comparison(output, position, a, n, atol + rtol * n.abs())
        for (output, position), a in analytic.items()
        for n in (numeric[output, position],)
    )
    backward_repeatable = _all_identical(list(analytic.values()), list(again.values()))
    return GradientCheck(
        comparisons, _gives_zeros(f, inputs), _takes_undefined(f, inputs), forward_repeatable, backward_repeatable
    )


def numeric_jacobians(f: Checked, inputs: Sequence[Any], eps: float) -> dict[tuple[int, int], Tensor]:
    """Central differences, by (output, input): (output elements, input elements), in the output's dtype.

    Two evaluations of f per element of the inputs that require grad. Outputs of integers or truth values have none.
    """
    point = leaves(inputs)
    positions, outputs = differentiated(inputs), _values(f, point)
    columns: dict[tuple[int, int], list[Tensor]] = {
        (output, position): []
        for output, value in enumerate(outputs)
        for position in positions
        if value.is_floating_point() or value.is_complex()
    }
    for position in positions:
        perturbed = point[position].detach()  # shares its memory with the leaf that f gets
        for place_index in product(*(range(size) for size in perturbed.shape)):
            place = perturbed[place_index]
            original = place.clone()
            place.copy_(original - eps)
            below = _values(f, point)
            place.copy_(original + eps)
            above = _values(f, point)
            place.copy_(original)
            for output, (low, high) in enumerate(zip(below, above, strict=True)):
                if (output, position) in columns:
                    columns[output, position].append(((high - low) / (2 * eps)).reshape(-1))
    return {
        key: torch.stack(each, dim=1) if each else outputs[key[0]].new_zeros(outputs[key[0]].numel(), 0)
        for key, each in columns.items()
    }


def analytic_jacobians(f: Checked, inputs: Sequence[Any]) -> dict[tuple[int, int], Tensor]:
    """The results of backward for one unit vector after the other, by (output, input), in the input's dtype.

    One backward pass per element of the outputs. Zeros for an input that the output does not depend on.
    """
    positions, point = differentiated(inputs), leaves(inputs)
    wanted = [point[position] for position in positions]
    jacobians: dict[tuple[int, int], Tensor] = {}
    for number, output in enumerate(_outputs(f, point)):
        if not output.requires_grad:
            continue
        blocks = [leaf.new_zeros(output.numel(), leaf.numel()) for leaf in wanted]
        for row in range(output.numel()):
            unit = torch.zeros_like(output, memory_format=torch.contiguous_format)
            unit.view(-1)[row] = 1.0
            gradients = torch.autograd.grad(output, wanted, unit, retain_graph=True, allow_unused=True)
            for block, gradient in zip(blocks, gradients, strict=True):
                if gradient is not None:
                    block[row] = gradient.reshape(-1)
        jacobians |= {(number, position): block for position, block in zip(positions, blocks, strict=True)}
    if not jacobians:
        raise ValueError("no output requires grad: nothing of f is differentiable")
    return jacobians


def step_errors(f: Checked, inputs: Sequence[Any], steps: Sequence[float]) -> list[float]:
    """The largest |analytic − numeric| for each step eps; infinite or NaN where the differences are."""
    analytic = analytic_jacobians(f, inputs)
    errors = []
    for eps in steps:
        numeric = numeric_jacobians(f, inputs, eps)
        largest = [(a - numeric[key]).abs().max() for key, a in analytic.items() if a.numel()]
        errors.append(float(torch.stack(largest).max()) if largest else 0.0)
    return errors


def with_dtype(inputs: Sequence[Any], dtype: torch.dtype) -> tuple[Any, ...]:
    """Copies of the floating tensors in another dtype, which require grad as the originals do; the rest as it is."""
    return tuple(
        each.detach().to(dtype, copy=True).requires_grad_(each.requires_grad)
        if isinstance(each, Tensor) and each.is_floating_point()
        else each
        for each in inputs
    )


def differentiated(inputs: Sequence[Any]) -> list[int]:
    """Positions of the inputs that require grad. Raises ValueError if none does."""
    positions = [index for index, each in enumerate(inputs) if isinstance(each, Tensor) and each.requires_grad]
    if not positions:
        raise ValueError("no input requires grad: there is nothing to differentiate")
    return positions


def as_tuple(outputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors among a function's outputs."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(each for each in outputs if isinstance(each, Tensor))


def leaves(inputs: Sequence[Any]) -> list[Any]:
    """Copies of the tensors as leaves, which require grad as the originals do."""
    return [
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each
        for each in inputs
    ]


def clones(inputs: Sequence[Any]) -> list[Any]:
    """Copies of the tensors that autograd follows back to the originals: f may modify them in place."""
    return [each.clone() if isinstance(each, Tensor) else each for each in inputs]


def _outputs(f: Checked, point: Sequence[Any]) -> tuple[Tensor, ...]:
    return as_tuple(f(*clones(point)))


def _values(f: Checked, point: Sequence[Any]) -> tuple[Tensor, ...]:
    # Not under no_grad: f may use autograd itself, or look whether gradients are enabled.
    return tuple(each.detach() for each in _outputs(f, point))


class Undefined(Function):
    """The identity with an undefined gradient: autograd passes one for an output that the loss does not use."""

    @staticmethod
    def forward(ctx: Any, inp: Tensor) -> Tensor:  # noqa: ARG004, D102
        return inp.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> None:  # noqa: ARG004
        """None, which is not 0: autograd calls the backward before it without this gradient."""
        return None  # noqa: RET501


def _takes_undefined(f: Checked, inputs: Sequence[Any]) -> bool:
    count = sum(each.requires_grad for each in _outputs(f, leaves(inputs)))
    # All of them undefined, and each one alone.
    choices = [set(range(count))] + [{index} for index in range(count) if count > 1]
    try:
        return all(_gives_zeros(f, inputs, undefined) for undefined in choices)
    except Exception:
        # For example None · 2: with a defined gradient the same backward ran.
        return False


def _gives_zeros(f: Checked, inputs: Sequence[Any], undefined: Set[int] = frozenset()) -> bool:
    """Whether a grad_output of 0, or an undefined one of some outputs, gives gradients of 0."""
    point = leaves(inputs)
    outputs = [each for each in _outputs(f, point) if each.requires_grad]
    ends = [Undefined.apply(each) if index in undefined else each for index, each in enumerate(outputs)]
    wanted = [point[position] for position in differentiated(inputs)]
    gradients = torch.autograd.grad(ends, wanted, [torch.zeros_like(each) for each in ends], allow_unused=True)
    return all(each is None or bool((each == 0).all()) for each in gradients)


def _all_identical(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and bool(same_elements(a, b).all()) for a, b in zip(first, second, strict=True)
    )


def same_elements(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one shape are equal; NaN equals NaN."""
    return (a == b) | (a.isnan() & b.isnan())
