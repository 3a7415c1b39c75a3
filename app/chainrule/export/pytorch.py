"""A spec as a script in plain PyTorch, to run, to change and to check Chainrule's figures with.

The script draws the same tensors, runs forward and backward and prints their figures, without Chainrule.
"""

from __future__ import annotations

from chainrule.export.pytorch_net import net_script
from chainrule.export.pytorch_programs import program_script
from chainrule.spec import ModelSpec


def pytorch_script(spec: ModelSpec) -> str:
    """A self-contained script that reproduces a spec's figures with torch alone; ASCII, the same for the same spec.

    Run, it prints one line per layer (std of the preactivation, mean and std of the activation, std of the gradient
    of the loss with respect to the activation; over the finite elements, in float64, of the population) and the loss.
    Of a program that is no net it is one line per tensor: mean and std of it and of its gradient.

    The backward pass is autograd's. Where `spec.style` writes it by hand the figures agree to rounding, which in
    float16 and bfloat16 can be seen; and where numbers overflow, relu's gradient by hand has NaN (0 · Inf) in places
    where autograd's has 0, so that its std is over fewer elements.
    """
    return net_script(spec) if spec.is_net else program_script(spec)
