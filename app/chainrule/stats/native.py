"""The compiled kernel, where this installation has it: `kernel` is the module that `_kernel.c` makes, or None.

It is compiled when the package is installed and there is a C compiler (`hatch_build.py`). `kernel.py` and `units.py`
compute the same without it, several times slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch

from chainrule.stats.summary import CountArray, FloatArray

logger = logging.getLogger(__name__)

SWITCH = "CHAINRULE_KERNEL"
"""Environment variable; `torch` turns the compiled kernel off."""


FUNCTIONS = "data_ptr", "sizes", "strides", "dim", "storage_offset", "storage_size", "dtype", "device_type"
"""PyTorch's stable C functions by which the kernel reads a tensor, without `aoti_torch_get_`."""

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)


Place = tuple[int, int, FloatArray, Any]
"""A row: its number, its number in a block of rows, and the arrays of the block."""


class Beside(Protocol):
    """Reads tensors in a second thread, beside the program. If too many wait, the caller's thread reads.

    Only one thread may call it. It keeps the tensors that wait.
    """

    def summarize_row(self, tensor: torch.Tensor, moments: FloatArray, counts: CountArray | None, row: int, /) -> bool:
        """`Kernel.summarize_row`, but perhaps later: until `finish`, the tensor must not change."""

    def finish(self) -> list[tuple[torch.Tensor, FloatArray, CountArray, int]]:
        """Wait for all rows; the arguments of those that are left to PyTorch.

        Raises:
            RuntimeError: a tensor was changed in place before that.
        """


class Launches(Protocol):
    """Rows that the kernels in `kernels.cu` compute on CUDA devices, of tensors in FLOATS without gaps.

    A function that answers False or None leaves the tensor to PyTorch.
    """

    def __init__(self, only_moments: bool, /) -> None: ...

    def take(self, tensor: torch.Tensor, row: int, times: int, /) -> bool | None:
        """Compute the statistics of `tensor`, whose elements count so many times, as `row`; None: it needs a block."""

    def take_moments(
        self, tensor: torch.Tensor, rows: dict[str, int], name: str, room: Iterator[Place], /
    ) -> int | None:
        """`Kernel.take_moments`."""

    def take_group(
        self,
        tensors: dict[str, torch.Tensor],
        rows: dict[str, int],
        room: Iterator[tuple[int, int, FloatArray, Any]],
        /,
    ) -> None:
        """`take_moments` of tensors by name, of many at once; those that are left to PyTorch get no row."""

    def dead_fraction(self, row: int, tensor: torch.Tensor, /) -> bool:
        """Add the dead fraction to a row that was taken."""

    def saturation(self, row: int, tensor: torch.Tensor, middle: float, limit: float, /) -> bool:
        """Add the share of values further than `limit` from `middle` to a row that was taken."""

    def copy(self, row: int, new: int, /) -> bool:
        """Let row `new` have the statistics of `row`."""

    def forget(self, row: int, /) -> None:
        """Let `row` have no statistics."""

    def has(self, row: int, /) -> bool:
        """Whether `row` was taken."""

    def add_block(self, number: int, device: int, stream: int, address: int, size: int, /) -> bool:
        """Put rows on this stream of the device into this memory, whose first bytes are zero."""

    def entries(self) -> bytes:
        """int64 (rows, 4): row, number of the block, its row in the block, whether it is a copy."""

    def clear(self, count: int, /) -> set[int]:
        """Forget the first rows of `entries()`; the numbers of the blocks that are still needed."""


class Kernel(Protocol):
    """The compiled module. It reads tensors of any strides in place, without a copy, with their sign.

    A function that answers False or None leaves the tensor to PyTorch.
    """

    SOURCE: str
    """SHA-256 of the compiled C file, in hexadecimal."""

    Beside: type[Beside]

    Launches: type[Launches]

    def bind_device(self, device_type: int, functions: tuple[int, ...], /) -> None:
        """Launch kernels on devices of this type, by the functions at these addresses; see `cuda.Driver`."""

    def load_kernels(self, device: int, kernels: tuple[int, ...], /) -> bool:
        """Launch these on a device: `cuda.TASKS` of each of `cuda.FLOATS`. False if its number is too large."""

    def bind(self, tensor: torch.Tensor, functions: tuple[int, ...], dtypes: tuple[int, ...], /, *types: type) -> None:
        """Read tensors of exactly these types; `tensor` is an example.

        `functions` are the addresses of FUNCTIONS, and `dtypes` the numbers that they return for DTYPES.

        Raises:
            ImportError, AttributeError: the tensor's object or methods are of another kind.
        """

    def is_readable(self, tensor: torch.Tensor, /) -> bool:
        """Whether all values are in memory of the host or of a CUDA device, not freed, in a dtype that is known."""

    def summarize(self, tensor: torch.Tensor, moments: FloatArray, counts: CountArray | None, /) -> bool:
        """Write the statistics into their rows; without `counts` only the moments, which takes one reading."""

    def summarize_row(self, tensor: torch.Tensor, moments: FloatArray, counts: CountArray | None, row: int, /) -> bool:
        """`summarize` into one row of arrays (rows, 12) and (rows, 64)."""

    def take_moments(
        self, tensor: torch.Tensor, rows: dict[str, int], name: str, room: Iterator[Place], /
    ) -> int | None:
        """Write the moments of `tensor` to the next place in `room`, note its row in `rows`, and return it.

        -1 if `rows` has the name, or the tensor has no floats; None if the tensor is left to PyTorch, or `room` is
        used up.
        """

    def copy_row(
        self,
        moments: FloatArray,
        counts: CountArray,
        row: int,
        to_moments: FloatArray,
        to_counts: CountArray,
        to: int,
        /,
    ) -> None:
        """Copy one row of arrays (rows, 12) and (rows, 64) into another."""

    def dead_fraction(self, tensor: torch.Tensor, /) -> float | None:
        """Share of units that are above zero for no input of the batch."""

    def saturation(self, tensor: torch.Tensor, middle: float, limit: float, /) -> float | None:
        """Share of values further than `limit` from `middle`."""

    def instruction_sets(self) -> tuple[str, ...]:
        """The compiled instruction sets that this processor runs, the best first: avx512, avx2, baseline."""

    def use(self, instruction_set: str, /) -> None:
        """Switch to one of `instruction_sets()`; the default is the best."""


def load(name: str, source: Path, what: str, instead: str) -> Any:
    """A module compiled from `source`, or None with a line in the log; `instead` says what happens without it."""
    if os.environ.get(SWITCH) == "torch":
        return None
    try:
        found = import_module(name)
    except ImportError as error:
        logger.info("no compiled %s; %s: %s", what, instead, error)
        return None
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != found.SOURCE:
        logger.warning("the %s was compiled from another source; %s. Install Chainrule again", what, instead)
        return None
    return found


def bind(kernel: Kernel, example: torch.Tensor) -> None:
    """Let the kernel read tensors and parameters like `example` by PyTorch's C functions.

    Raises:
        ImportError, AttributeError: this PyTorch has other ones.
    """
    library = ctypes.CDLL(torch._C.__file__)
    functions = [getattr(library, f"aoti_torch_get_{name}") for name in FUNCTIONS]
    addresses = tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions)
    dtypes = tuple(getattr(library, f"aoti_torch_dtype_{name}")() for name in DTYPES)
    kernel.bind(example, addresses, dtypes, torch.Tensor, torch.nn.Parameter)


def _load() -> Kernel | None:
    source = Path(__file__).with_name("_kernel.c")
    found = cast(
        Kernel | None, load("chainrule.stats._kernel", source, "statistics kernel", "PyTorch computes the statistics")
    )
    try:
        if found is not None:
            bind(found, torch.empty(0, device="cpu"))
    except (AttributeError, ImportError, OSError) as error:
        logger.warning(
            "the statistics kernel cannot read PyTorch's tensors; PyTorch computes the statistics: %s", error
        )
        return None
    return found


kernel = _load()


def instruction_set() -> str:
    """The instruction set that the running kernel was compiled for; torch: PyTorch takes the statistics.

    With another one, statistics differ in the last bits.
    """
    return "torch" if kernel is None else kernel.instruction_sets()[0]


def kernel_name() -> Literal["native", "torch"]:
    """Which implementation takes statistics."""
    return "torch" if kernel is None else "native"
