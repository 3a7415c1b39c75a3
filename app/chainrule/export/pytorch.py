"""A spec as a script in plain PyTorch that draws the same tensors, runs forward and backward and prints the figures."""

from __future__ import annotations

from chainrule.export.pytorch_net import net_script
from chainrule.export.pytorch_programs import program_script
from chainrule.spec import ModelSpec


def pytorch_script(spec: ModelSpec) -> str:
    """A self-contained ASCII script that reproduces a spec's figures with torch alone; deterministic.

    It prints one line per layer (std of the preactivation, mean and std of the activation, std of the gradient of the
    loss with respect to the activation; over the finite elements, in float64, of the population) and the loss. For a
    program that is not a net it prints one line per tensor: mean and std of the tensor and of its gradient.

    The backward pass is autograd's. If `spec.style` writes it by hand, the figures agree to rounding, which shows in
    float16 and bfloat16; after an overflow relu's gradient by hand has NaN (0 · Inf) where autograd's has 0, so its std
    is over fewer elements.
    """
    return net_script(spec) if spec.is_net else program_script(spec)
