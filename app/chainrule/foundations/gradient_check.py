# mypy: disable-error-code="no-untyped-call"
"""Is a backward correct? Its gradients are compared with finite differences of the forward, element by element.

    numeric   J[i,j] ≈ (f_i(x + eps e_j) − f_i(x − eps e_j)) / (2 eps)      column by column, forward only
    analytic  J[i,:] = e_iᵀ J                                              row by row, backward with grad_output = e_i

They agree if |analytic − numeric| ≤ atol + rtol · |numeric|. Jacobians have the shape (elements of the output, elements
of the input). The numeric Jacobian has two errors, and eps moves them in opposite directions: the truncation of the
Taylor series, about eps² f‴/6, and the rounding of f, about ε |f| / eps, where ε is the precision of the dtype. In
float64 the best eps is about 1e-5, with an error of 1e-10; in float32 it is 1e-2, with an error of 1e-5, and eps = 1e-6
gives no correct digit.

The arithmetic and the other checks of a backward are the same as in `torch.autograd.gradcheck` with fast_mode=False, so
the verdicts are the same. f runs with gradients enabled on tensors that require grad, as in training, because it may
differentiate in its own forward. Not checked, as in torch by default: second derivatives (`gradgradcheck`),
forward-mode derivatives, and batched gradients (vmap).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Checked = Callable[..., Tensor | Sequence[Tensor]]
"""The function to check: tensors and other values in, a tensor or several out."""

ZOOM = 64
"""A kink is looked for at steps from eps / ZOOM to ZOOM · eps."""

EPS, ATOL, RTOL = 1e-6, 1e-5, 1e-3
"""The step and the tolerances of `torch.autograd.gradcheck`, which are meant for float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The two Jacobians of one output with respect to one input, by position: (output elements, input elements) each.

    `analytic` comes from backward, `numeric` from the differences; `tolerance` is atol + rtol · |numeric|. `kink`: see
    `kink_of`; None if the two agree everywhere.
    """

    output: int
    input: int
    analytic: Tensor
    numeric: Tensor
    tolerance: Tensor
    kink: tuple[float, float] | None = None

    @property
    def difference(self) -> Tensor:
        """|analytic − numeric|; 0 where both are the same infinity."""
        same = self.analytic == self.numeric
        return torch.where(same, torch.zeros_like(self.analytic), (self.analytic - self.numeric).abs())

    @property
    def within(self) -> Tensor:
        """True for the elements that agree. NaN agrees with nothing; an infinite tolerance does not count."""
        same = self.analytic == self.numeric
        return same | ((self.difference <= self.tolerance) & self.difference.isfinite() & self.tolerance.isfinite())

    @property
    def passed(self) -> bool:
        """Whether they agree everywhere."""
        return bool(self.within.all())

    @property
    def max_difference(self) -> float:
        """The largest difference; NaN if a difference is NaN; 0 without elements."""
        return float(self.difference.max()) if self.difference.numel() else 0.0

    @property
    def worst(self) -> tuple[int, int] | None:
        """Row and column of the largest difference relative to its tolerance; None without elements."""
        share = torch.where(self.difference == 0, torch.zeros_like(self.difference), self.difference / self.tolerance)
        share = share.nan_to_num(nan=torch.inf, posinf=torch.inf)
        if not share.numel():
            return None
        return divmod(int(share.argmax()), share.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class GradientCheck:
    """A comparison per output and input, and four other properties of a correct backward.

    Attributes:
        comparisons: by output, then by input.
        zero_for_zero: a grad_output of 0 gives gradients of 0, because backward multiplies by grad_output.
        takes_undefined: backward treats an undefined grad_output as 0. It is None if forward called
            `ctx.set_materialize_grads(False)`.
        forward_repeatable: two runs of forward give the same result, bit for bit.
        backward_repeatable: two runs of backward give the same result, bit for bit.
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
        """The largest difference of all comparisons; NaN if a difference is NaN."""
        differences = [each.max_difference for each in self.comparisons]
        return float(torch.tensor(differences, dtype=torch.float64).max()) if differences else 0.0


def gradient_check(
    f: Checked, inputs: Sequence[Any], *, eps: float = EPS, atol: float = ATOL, rtol: float = RTOL
) -> GradientCheck:
    """Compare the gradients of f, such as `MyFunction.apply`, at a point with central differences of step `eps`.

    The inputs and the outputs that require grad are checked; all other inputs are passed to f unchanged.

    Raises:
        ValueError: no input requires grad, or no output does.
        Exception: any error that f raises, forward or backward.
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
    if forward_repeatable:
        comparisons = tuple(
            each if each.passed else replace(each, kink=kink_of(f, inputs, each, eps)) for each in comparisons
        )
    backward_repeatable = _all_identical(list(analytic.values()), list(again.values()))
    return GradientCheck(
        comparisons, _gives_zeros(f, inputs), _takes_undefined(f, inputs), forward_repeatable, backward_repeatable
    )


def numeric_jacobians(f: Checked, inputs: Sequence[Any], eps: float) -> dict[tuple[int, int], Tensor]:
    """Central differences, by (output, input): (output elements, input elements), in the output's dtype.

    Two evaluations of f per element of the inputs that require grad. Outputs of integers or truth values are left out.
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
    """The results of backward for each unit vector as grad_output, by (output, input), in the input's dtype.

    One backward pass per element of the outputs. Zeros if the output does not depend on the input.
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
        raise ValueError("no output requires grad: f has no gradient")
    return jacobians


def kink_of(f: Checked, inputs: Sequence[Any], comparison: Comparison, eps: float) -> tuple[float, float] | None:
    """The differences from the left and from the right at the worst element, if a kink of f explains its error.

    At a kink the two differ for every step. They differ less for a larger step if rounding is the cause, and less for a
    smaller step if curvature is. At a kink the error of a correct backward is at most half of their distance.
    """
    (row, column), point = comparison.worst or (0, 0), leaves(inputs)
    leaf = point[comparison.input].detach()  # shares its memory with the leaf that f gets
    element = leaf[torch.unravel_index(torch.tensor(column), leaf.shape)] if leaf.dim() else leaf
    origin = float(element)

    def slopes(center: float, step: float) -> tuple[float, float, float]:
        """The two differences, and how far rounding may move them apart."""
        places, values = [], []
        for wanted in (center - step, center, center + step):
            element.fill_(wanted)
            places.append(float(element))  # as rounded
            values.append(_values(f, point)[comparison.output].reshape(-1)[row])
        left, right = (float(values[at + 1] - values[at]) / (places[at + 1] - places[at] or math.nan) for at in (0, 1))
        largest = max(abs(float(each)) for each in values)
        return left, right, 16 * torch.finfo(values[0].dtype).eps * largest / step

    def apart(center: float, step: float) -> float:
        left, right, rounding = slopes(center, step)
        return abs(right - left) - rounding

    left, right, _ = slopes(origin, eps)
    error, tolerance = (float(each[row, column]) for each in (comparison.difference, comparison.tolerance))
    if not (error <= abs(right - left) / 2 + tolerance and apart(origin, ZOOM * eps) >= abs(right - left) / 2):
        return None
    center, step, largest = origin, eps, abs(right - left)
    while step > eps / ZOOM:
        step /= 2
        center = max((center - step, center, center + step), key=lambda place: apart(place, step))
        largest = max(largest, apart(center, step))
    return (left, right) if apart(center, step) > largest / 4 else None


def step_errors(f: Checked, inputs: Sequence[Any], steps: Sequence[float]) -> list[float]:
    """The largest |analytic − numeric| for each step eps; infinite or NaN if a difference is."""
    analytic = analytic_jacobians(f, inputs)
    errors = []
    for eps in steps:
        numeric = numeric_jacobians(f, inputs, eps)
        largest = [(a - numeric[key]).abs().max() for key, a in analytic.items() if a.numel()]
        errors.append(float(torch.stack(largest).max()) if largest else 0.0)
    return errors


def with_dtype(inputs: Sequence[Any], dtype: torch.dtype) -> tuple[Any, ...]:
    """Copies of the floating-point tensors in another dtype, with the same requires_grad; other values unchanged."""
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
    """Copies of the tensors as leaves, with the same requires_grad."""
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
    # Not under no_grad: f may use autograd itself, or test whether gradients are enabled.
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
    """Whether a grad_output of 0, or an undefined one for some outputs, gives gradients of 0."""
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
    """True for the equal elements of two tensors of one shape; NaN equals NaN."""
    return (a == b) | (a.isnan() & b.isnan())
