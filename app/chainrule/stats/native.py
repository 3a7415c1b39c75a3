"""The compiled kernel, where this installation has it: `kernel` is the module that `_kernel.c` makes, or None.

It is compiled when the package is installed and there is a C compiler (`hatch_build.py`). What it computes, `kernel.py`
and `units.py` compute as well, with equal results, in several times the time.
"""

from __future__ import annotations

import hashlib
import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast

import torch

from chainrule.stats.summary import CountArray, FloatArray

logger = logging.getLogger(__name__)

SWITCH = "CHAINRULE_KERNEL"
"""Environment variable that says `torch` where the compiled kernel is to be left aside."""


class Kernel(Protocol):
    """What the compiled module offers. It reads tensors of any strides in place, without a copy, with their sign."""

    SOURCE: str
    """SHA-256 of the C file that it was made from, in hexadecimal."""

    def bind(self, exchange_api: object, tensor: torch.Tensor, /, *types: type) -> None:
        """Read tensors of exactly these types through their DLPack exchange API, a capsule; `tensor` is any.

        Raises:
            ImportError: it is of another major version, or lends no tensors; or the tensor cannot be asked for its sign
                and its memory.
        """

    def is_readable(self, tensor: torch.Tensor, /) -> bool:
        """Whether all values are in host memory that was not given back, and of a dtype that the kernel knows."""

    def summarize(self, tensor: torch.Tensor, moments: FloatArray, counts: CountArray, /) -> bool:
        """Write the statistics into their rows, or answer False: it is not for the kernel to do."""

    def summarize_row(self, tensor: torch.Tensor, moments: FloatArray, counts: CountArray, row: int, /) -> bool:
        """The same for one row of arrays (rows, 12) and (rows, 64).

        Raises:
            IndexError: there is no such row, or not as many rows of moments as of counts.
            ValueError: an array is not made of such rows of native float64 and uint32, or not contiguous.
        """

    def dead_fraction(self, tensor: torch.Tensor, /) -> float | None:
        """Share of units that are above zero for no input of the batch; None: it is not for the kernel to say."""

    def saturation(self, tensor: torch.Tensor, middle: float, limit: float, /) -> float | None:
        """Share of values further than `limit` from `middle`; None: it is not for the kernel to say."""

    def instruction_sets(self) -> tuple[str, ...]:
        """What the kernel is compiled for and this processor runs, the best first: avx512, avx2, baseline."""

    def use(self, instruction_set: str, /) -> None:
        """Run what was compiled for one of `instruction_sets()`; from the start it is the best."""


def _load() -> Kernel | None:
    if os.environ.get(SWITCH) == "torch":
        return None
    try:
        found = cast(Kernel, import_module("chainrule.stats._kernel"))
    except ImportError as error:
        logger.info("no compiled statistics kernel, PyTorch does its work: %s", error)
        return None
    source = Path(__file__).with_name("_kernel.c")
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != found.SOURCE:
        logger.warning("the statistics kernel was compiled from another source, PyTorch does its work: install again")
        return None
    try:
        found.bind(torch.Tensor.__dlpack_c_exchange_api__, torch.empty(0), torch.Tensor, torch.nn.Parameter)
    except (AttributeError, ImportError, ValueError) as error:
        logger.warning("PyTorch lends no tensors to the statistics kernel and does its work: %s", error)
        return None
    return found


kernel = _load()


def kernel_name() -> Literal["native", "torch"]:
    """Which implementation takes statistics."""
    return "torch" if kernel is None else "native"
