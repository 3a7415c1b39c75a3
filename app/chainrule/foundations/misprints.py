# mypy: disable-error-code="attr-defined, override"
# (`.g` is ours: torch.Tensor declares no such attribute.)
"""The misprints of the chapter's code, kept so that they can be run: each one fails, or gives a wrong number.

    mse_without_squeeze     (batch, 1) − (batch,) broadcasts to (batch, batch)
    mse_grad_over_batch     divides by the batch, not by the number of elements
    mse_grad_bare_squeeze   `.squeeze()` takes the batch axis too, where the batch is 1
    Lin                     its `bwd` reads an attribute that nothing sets
    ForgetfulLayer          a module without `super().__init__()`

The right code stands in layers.py, layer_function.py and modules.py. Nothing here checks its shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chainrule.foundations import layer_function
from chainrule.foundations.layers import accumulate


def mse_without_squeeze(inp: Tensor, targ: Tensor) -> Tensor:
    """The mean squared error of every pair, if inp is (batch, 1) and targ (batch,): no error is raised.

    Compare `layers.mse`.
    """
    return (inp - targ).pow(2).mean()


def mse_grad_over_batch(inp: Tensor, targ: Tensor) -> Tensor:
    """The gradient of the mean squared error of `inp`, n_out times too large: n is the batch.

        2 (inp − targ) / batch          inp and targ: (batch, n_out)

    Right for n_out = 1, which is all that the chapter has. Compare `layers.mse_grad`. Source: ch. 17.
    """
    return 2.0 * (inp - targ) / targ.shape[0]


def mse_grad_bare_squeeze(inp: Tensor, targ: Tensor) -> Tensor:
    """The gradient as printed for one output, (batch, 1): at batch 1 its `.squeeze()` leaves shape () and not (1,).

        2 (inp − targ) / batch          inp: (batch, 1), targ: (batch,)

    `(batch,) − (batch,)` was meant. At batch 1 it is `() − (1,)`, which broadcasts back to (1,): the number is right by
    luck. With a targ of shape (batch, 1) it would not be. Source: ch. 17.
    """
    return 2.0 * (inp.squeeze() - targ).unsqueeze(-1) / targ.shape[0]


class Lin(layer_function.Lin):
    """The linear layer on LayerFunction as printed: `backward` raises AttributeError.

    `LayerFunction.__call__` keeps `args` and `out`, but no `inp`. Source: ch. 17, "Going to PyTorch".
    """

    def bwd(self, out: Tensor, inp: Tensor) -> None:
        """The gradient of inp, and then the AttributeError."""
        accumulate(inp, out.g @ self.w.t())
        accumulate(self.w, self.inp.t() @ self.out.g)


class ForgetfulLayer(nn.Module):
    """A linear layer that forgets `super().__init__()`: its first parameter raises AttributeError."""

    def __init__(self, n_in: int, n_out: int) -> None:
        self.weight = nn.Parameter(torch.zeros(n_out, n_in))
