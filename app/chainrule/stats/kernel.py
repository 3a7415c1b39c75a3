"""`summarize`: exact statistics of a tensor, from its own memory, by the compiled kernel or without a compiler.

The compiled kernel (`native.py`) takes what lies dense in host memory. The rest is done here, and everything where it
was not compiled, by calls that are vectorised alone (measured per element, one thread: `aminmax` 0.19 ns, float64 copy
0.19, `sum` 0.15, `dot` 0.10-0.19, `bincount` of uint8 0.5; against `histc` 5.8 and `var_mean` 5.6). Two finite extremes
prove that every value is finite, so the common tensor needs no test per element. Work goes through a buffer of float64
that stays in the cache: float32 squares can neither overflow nor vanish there, and the bins are the reference's.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import numpy.typing as npt
import torch

from chainrule.stats import native
from chainrule.stats.summary import BINS, CountArray, FloatArray

CHUNK = 32768
"""Elements per pass through the buffers: two float64 buffers of this size fit into a 1 MiB second-level cache."""

FLOAT64_SAFE = 2.0**500
"""Magnitudes between 1/FLOAT64_SAFE and FLOAT64_SAFE can be squared and summed in float64 as they are."""

NUMPY_IS_FASTER = 4096
"""Up to this many elements numpy's smaller cost per call wins over torch's smaller cost per element."""

NAN = math.nan

_HAVE_EXTREMES = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
)
"""What `aminmax` takes; the other real dtypes are widened to float64 first."""


class _Buffers(threading.local):
    """Work space, one set per thread: hooks of a CUDA backward run on a thread of their own."""

    def __init__(self) -> None:
        self._position = torch.empty(CHUNK, dtype=torch.float64)
        self._bin = torch.empty(CHUNK, dtype=torch.uint8)
        self._is_zero = np.empty(CHUNK, np.bool_)
        self._slices: dict[int, _Slices] = {}

    def of(self, size: int) -> _Slices:
        """The buffers cut to `size`: float64 as tensor and array, uint8 as tensor and array, and a mask."""
        slices = self._slices.get(size)
        if slices is None:
            if len(self._slices) >= 256:
                self._slices.clear()
            position, bins = self._position[:size], self._bin[:size]
            slices = self._slices[size] = (position, position.numpy(), bins, bins.numpy(), self._is_zero[:size])
        return slices


_Slices = tuple[torch.Tensor, FloatArray, torch.Tensor, npt.NDArray[np.uint8], npt.NDArray[np.bool_]]

_buffers = _Buffers()


def unsupported(tensor: torch.Tensor) -> str | None:
    """Why this tensor has no statistics, or None if it has."""
    if native.kernel is not None and native.kernel.is_readable(tensor):
        return None
    if tensor.is_nested:
        return "no statistics: a nested tensor has no shape of its own"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._C._functorch.is_legacy_batchedtensor(tensor):
        return "no statistics: inside a function transform (vmap, grad) the values are not to be had"
    if tensor.layout != torch.strided:
        return f"no statistics: layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_meta:
        return "no statistics: a meta tensor has no values"
    if tensor.is_quantized:
        return f"no statistics: quantized dtype {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.is_complex():
        return f"no statistics: complex dtype {str(tensor.dtype).removeprefix('torch.')}"
    return None


def summarize(tensor: torch.Tensor, moments: FloatArray, counts: CountArray) -> None:
    """Write the statistics of `tensor` into one row of moments (len(COLUMNS),) and of counts (BINS,).

    Any shape, strides, device and real dtype, empty included; see `unsupported` for the rest. The dead fraction and
    the saturation are left as "does not apply". The tensor is only read.
    """
    kernel = native.kernel
    if kernel is not None and not tensor.is_neg() and kernel.summarize(tensor, moments, counts):
        return
    flat = _flatten(tensor.detach())
    if kernel is not None and kernel.summarize(flat, moments, counts):
        return
    n = flat.numel()
    if n == 0:
        moments[:] = (0, NAN, NAN, NAN, NAN, NAN, 0.0, 0, 0, 0, NAN, NAN)
        counts[:] = 0
        return
    if flat.dtype not in _HAVE_EXTREMES:
        flat = flat.to(torch.float64)
    extremes = torch.aminmax(flat)
    low, high = extremes.min.item(), extremes.max.item()
    if math.isfinite(low) and math.isfinite(high):
        mean, std, norm, zeros = _summarize_finite(flat, low, high, counts)
        # Adding 0 makes -0 the zero that it equals: which of them an extreme is would depend on the order of reading.
        moments[:] = (n, mean, std, low + 0.0, high + 0.0, norm, zeros / n, 0, 0, 0, NAN, NAN)
        return

    values = flat.to(torch.float64).numpy()
    specials = [int(np.count_nonzero(test(values))) for test in (np.isnan, np.isposinf, np.isneginf)]
    finite = torch.from_numpy(values[np.isfinite(values)])
    mean = std = low = high = norm = NAN
    zeros = 0
    if finite.numel():
        extremes = torch.aminmax(finite)
        low, high = extremes.min.item(), extremes.max.item()
        mean, std, norm, zeros = _summarize_finite(finite, low, high, counts)
    else:
        counts[:] = 0
    moments[:] = (n, mean, std, low + 0.0, high + 0.0, norm, zeros / n, *specials, NAN, NAN)


def _summarize_finite(
    flat: torch.Tensor, low: float, high: float, counts: CountArray
) -> tuple[float, float, float, int]:
    """Count finite, non-empty `flat` with these extremes into bins; give its mean, std, norm and number of zeros."""
    n = flat.numel()
    if low == high:
        counts[:] = 0
        counts[0] = n
        return low + 0.0, 0.0, abs(low) * math.sqrt(n), n if low == 0 else 0

    exponent = 0
    has_zero = low <= 0 <= high
    zeros = 0
    magnitude = max(-low, high)
    if not 1 / FLOAT64_SAFE < magnitude < FLOAT64_SAFE:
        # Only float64 gets here. A power of two brings the largest near 1 and rounds none of its size.
        if has_zero:
            zeros = n - int(np.count_nonzero(flat.numpy()))
            has_zero = False  # the zeros are counted; smaller values may become zero now
        exponent = math.frexp(magnitude)[1]
        flat = torch.from_numpy(np.ldexp(flat.numpy(), -exponent))
        low, high = math.ldexp(low, -exponent), math.ldexp(high, -exponent)
    bins_per_unit = BINS / (high - low)

    # Moments are taken of the positions p = (x - low) · bins_per_unit in [0, 64]. Both ends are attained, so their
    # variance is at least 64²/2n, and E p² - (E p)² loses no more than 2n roundings of float64 to cancellation.
    buffers = _buffers
    total = squares = 0.0
    histogram: CountArray | npt.NDArray[np.int64] | None = None
    for start in range(0, n, CHUNK):
        chunk = flat if n <= CHUNK else flat[start : start + CHUNK]
        size = chunk.numel()
        position_tensor, position, bin_tensor, bins, is_zero = buffers.of(size)
        position_tensor.copy_(chunk)
        if has_zero:
            zeros += int(np.count_nonzero(np.equal(position, 0.0, out=is_zero)))
        np.subtract(position, low, out=position)
        np.multiply(position, bins_per_unit, out=position)
        np.copyto(bins, position, casting="unsafe")
        if size > NUMPY_IS_FASTER:
            counted = torch.bincount(bin_tensor, minlength=BINS + 1).numpy()
            total += position_tensor.sum().item()
            # numpy's dot would wake the threads of its BLAS, which then spin; torch's keeps to torch's threads.
            squares += torch.dot(position_tensor, position_tensor).item()
        else:
            counted = np.bincount(bins, minlength=BINS + 1)
            total += float(position.sum())
            squares += float(position @ position)
        histogram = counted if histogram is None else histogram + counted

    assert histogram is not None
    histogram[BINS - 1] += histogram[BINS]  # x = high falls on the outer edge of the last bin
    counts[:] = histogram[:BINS]
    mean_position = total / n
    std = math.sqrt(max(0.0, squares / n - mean_position * mean_position)) / bins_per_unit
    mean = low + mean_position / bins_per_unit
    norm = math.sqrt(n) * math.hypot(mean, std)
    if exponent:
        mean, std, norm = (_ldexp(value, exponent) for value in (mean, std, norm))
    return mean, std, norm, zeros


def _ldexp(value: float, exponent: int) -> float:
    """`value`·2**exponent, infinite where float64 ends: the norm of numbers can be larger than any number."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def _flatten(tensor: torch.Tensor) -> torch.Tensor:
    """All elements on the host in one dimension, in any order, without a copy where the tensor is dense."""
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if not tensor.is_contiguous():
        if tensor.dim() >= 2 and tensor.mT.is_contiguous():
            tensor = tensor.mT
        elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            tensor = tensor.permute(0, 2, 3, 1)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.reshape(-1)
