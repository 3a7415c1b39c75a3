# ruff: noqa: D102 (the formulas of forward and backward stand at the class)
# mypy: disable-error-code="no-untyped-call, no-any-return"
"""The C++ operator made usable: an autograd Function around it, and an nn.Module around that."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from chainrule.foundations.linear_extension.library import load_extension


class LinearCpp(Function):
    """The linear layer computed by the C++ extension: `LinearFunction`, but that each pass is one call into C++.

        out         = inp @ weightᵀ + bias          (batch, fan_out)
        grad_inp    = grad_output @ weight          (batch, fan_in)
        grad_weight = grad_outputᵀ @ inp            (fan_out, fan_in)
        grad_bias   = Σ_batch grad_output           (fan_out,)

    Called as `LinearCpp.apply(inp, weight, bias)`; the bias may be None or left out. The tensors are of one floating
    dtype, on one device (cpu; cuda where the extension was built with it), of any strides.

    Its gradient cannot be differentiated again: C++ computes below autograd, which records nothing of it. Asked to, it
    raises. Under autocast it does as `F.linear`: the operands are cast to autocast's dtype, float64 excepted.

    Raises:
        ExtensionNotBuiltError: the extension is not there.
        ValueError: the shapes or the devices do not fit together.
        TypeError: the dtypes differ or are not float64, float32, float16 or bfloat16.

    Source: the custom-operator series, sections 7 to 9; the official tutorial on C++ and CUDA extensions.
    """

    @staticmethod
    def forward(ctx: Any, inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        inp, weight, bias = _autocast(inp, weight, bias)
        ctx.save_for_backward(inp, weight)
        return load_extension().forward(inp, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inp, weight and bias; None for each that is not needed."""
        inp, weight = ctx.saved_tensors
        # One flag per argument that was passed: there is no third one where the bias was left out.
        needed = [*ctx.needs_input_grad, False][:3]
        gradients: tuple[Tensor | None, ...] = load_extension().backward(grad_output, inp, weight, needed)
        return gradients


def _autocast(inp: Tensor, *others: Any) -> tuple[Any, ...]:
    """The operands in autocast's dtype, where it is on; autograd casts their gradients back."""
    device = inp.device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return inp, *others
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        each.to(dtype)
        if isinstance(each, Tensor) and each.is_floating_point() and each.dtype != torch.float64
        else each
        for each in (inp, *others)
    )


class LinearCppLayer(nn.Module):
    """`nn.Linear` on the C++ operator: same parameters, same initial draw, same state_dict.

    `inp: (batch, fan_in)` → `(batch, fan_out)`; `weight: (fan_out, fan_in)`, `bias: (fan_out,)` or None.

    Source: the custom-operator series, section 9. There the weight is uniform(−0.1, 0.1) whatever the fan_in, and
    `extra_repr` reads names that were never set.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        # torch's own default: both uniform within 1/√fan_in.
        bound = 1.0 / math.sqrt(in_features) if in_features else 0.0
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, inp: Tensor) -> Tensor:
        return LinearCpp.apply(inp, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
