"""`summarize`: exact statistics of a tensor on the host, by the compiled kernel or by PyTorch and numpy.

The compiled kernel (`native.py`) reads tensors in host memory. Everything else, or everything where it was not
compiled, uses vectorised calls only (measured per element, one thread: `aminmax` 0.19 ns, float64 copy 0.19, `sum`
0.15, `dot` 0.10-0.19, `bincount` of uint8 0.5; against `histc` 5.8 and `var_mean` 5.6). Two finite extremes prove that
every value of a piece is finite, so a common tensor needs no test per element. Work goes through a float64 buffer that
stays in the cache: float32 squares neither overflow nor vanish there, and bins are exactly those of the definition.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from chainrule.stats import native
from chainrule.stats.pieces import pieces, without_repeats
from chainrule.stats.summary import BINS, NEGINF, NORM, CountArray, FloatArray, N
from chainrule.stats.summary import NAN as NAN_COLUMN

CHUNK = 32768
"""Elements per pass through the buffers: two float64 buffers of this size fit into a 1 MiB second-level cache."""

PIECE = 1 << 18
"""Elements that are read, or if not contiguous copied, at once: 2 MiB of float64."""

MAX_ELEMENTS = 2**32 - 1
"""The largest count of a bin."""

FLOAT64_SAFE = 2.0**500
"""Magnitudes between 1/FLOAT64_SAFE and FLOAT64_SAFE can be squared and summed in float64 unscaled."""

NUMPY_IS_FASTER = 4096
"""Up to this many elements numpy's smaller cost per call wins over torch's smaller cost per element."""

NAN = math.nan

_HAVE_EXTREMES = {
    getattr(torch, name) for name in "float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64".split()
}
"""Dtypes that `aminmax` takes; the other real dtypes are widened to float64 first."""

_OTHERS = "bool uint16 uint32 uint64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
_READABLE = _HAVE_EXTREMES | {getattr(torch, name) for name in _OTHERS.split() if hasattr(torch, name)}
"""Dtypes that PyTorch widens to float64; the others are bits without a number, or pack several values in a byte."""


class _Buffers(threading.local):
    """Work space, one set per thread: hooks of a CUDA backward run on a thread of their own."""

    def __init__(self) -> None:
        # numpy ignores PyTorch's default device and mode.
        self._position = np.empty(CHUNK)
        self._bin = np.empty(CHUNK, np.uint8)
        self._is_zero = np.empty(CHUNK, np.bool_)
        self.of = lru_cache(maxsize=256)(self._cut)  # cutting takes longer than the statistics of a small tensor

    def _cut(self, size: int) -> _Slices:
        """The buffers cut to `size`: float64 as tensor and array, uint8 as tensor and array, and a mask."""
        position, bins = self._position[:size], self._bin[:size]
        with torch.inference_mode(False):
            return torch.from_numpy(position), position, torch.from_numpy(bins), bins, self._is_zero[:size]


_Slices = tuple[torch.Tensor, FloatArray, torch.Tensor, npt.NDArray[np.uint8], npt.NDArray[np.bool_]]

_buffers = _Buffers()


def unsupported(tensor: torch.Tensor) -> str | None:
    """Why this tensor has no statistics, or None if it has."""
    if native.kernel is not None and native.kernel.is_readable(tensor) and tensor.numel() <= MAX_ELEMENTS:
        return None
    reason = _reason_against(tensor)
    return None if reason is None else f"no statistics: {reason}"


def _reason_against(tensor: torch.Tensor) -> str | None:
    if tensor.is_nested:
        return "a nested tensor has no single shape"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._C._functorch.is_legacy_batchedtensor(tensor):
        return "the values are not available inside a function transform (vmap, grad)"
    if tensor.layout != torch.strided:
        return f"layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_meta:
        return "a meta tensor has no values"
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_quantized:
        return f"quantized dtype {dtype}"
    if tensor.is_complex():
        return f"complex dtype {dtype}"
    if tensor.dtype not in _READABLE:
        return f"values of dtype {dtype} cannot be read"
    if tensor.numel() > MAX_ELEMENTS:
        return f"{tensor.numel():,} elements are more than the maximum of {MAX_ELEMENTS:,}"
    if _is_fake(tensor):
        return "a fake tensor has no values"
    if is_freed(tensor):
        return "its memory was freed"
    return None


def _is_fake(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is fake, as while a program is traced: its storage is on another device than it says."""
    try:
        return tensor.untyped_storage().device != tensor.device
    except (RuntimeError, NotImplementedError):
        return False


def is_freed(tensor: torch.Tensor) -> bool:
    """Whether the storage of `tensor` was freed or shrunk, as sharded training does between uses."""
    if tensor.numel() == 0 or tensor._is_zerotensor():
        return False
    try:
        held = tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return False  # a subclass without storage answers for its values itself
    if held == 0 or tensor.is_contiguous():
        span = tensor.numel()
    else:
        span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return held < (tensor.storage_offset() + span) * tensor.element_size()


def summarize(tensor: torch.Tensor, moments: FloatArray, counts: CountArray) -> None:
    """Write the statistics of `tensor` into one row of moments (len(COLUMNS),) and of counts (BINS,).

    Any shape, strides and real dtype, empty included; see `unsupported` for the rest. Tensors on other devices are
    copied to the host whole; on the host at most PIECE elements are copied at once, whatever the strides. The dead
    fraction and the saturation become NaN. The tensor is only read.

    Raises:
        ValueError: the tensor's memory was freed.
        RuntimeError, NotImplementedError, TypeError: torch cannot read the tensor.
    """
    kernel = native.kernel
    if kernel is not None and kernel.summarize(tensor, moments, counts):
        return
    if is_freed(tensor):
        raise ValueError("its memory was freed")
    tensor = tensor.detach()
    if tensor.numel() == 0:
        moments[:] = (0, NAN, NAN, NAN, NAN, NAN, 0.0, 0, 0, 0, NAN, NAN)
        counts[:] = 0
        return
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    times = 1
    if not tensor.is_contiguous():
        tensor, times = without_repeats(tensor)
    # The kernel may be able to read a tensor on the host without its repeats or its gradient, or a small copy.
    small = tensor.numel() <= PIECE
    if kernel is None or not kernel.summarize(tensor.resolve_neg().contiguous() if small else tensor, moments, counts):
        _summarize_by_torch(tensor, moments, counts)
    if times > 1:
        repeat(moments, counts, times)


def repeat(moments: FloatArray, counts: CountArray, times: int) -> None:
    """Scale a row of statistics to a tensor that repeats each element `times` times."""
    moments[N] *= times
    moments[NAN_COLUMN : NEGINF + 1] *= times
    moments[NORM] = float(moments[NORM]) * math.sqrt(times)
    counts *= np.uint32(times)


def _summarize_by_torch(tensor: torch.Tensor, moments: FloatArray, counts: CountArray) -> None:
    low, high, nan, posinf, neginf = _scan(tensor)
    n = tensor.numel()
    finite = n - nan - posinf - neginf
    mean = std = norm = NAN
    zeros = 0
    counts[:] = 0
    if not finite:
        low = high = NAN
    elif low == high:
        counts[0] = finite
        mean, std, norm, zeros = low, 0.0, abs(low) * math.sqrt(finite), finite if low == 0 else 0
    else:
        mean, std, norm, zeros = _count(tensor, low, high, finite < n, counts)
    moments[:] = (n, mean, std, low, high, norm, zeros / n, nan, posinf, neginf, NAN, NAN)


def _scan(tensor: torch.Tensor) -> tuple[float, float, int, int, int]:
    """The extremes of the finite values, and the numbers of NaN, +Inf and -Inf."""
    lows, highs, specials = [math.inf], [-math.inf], [0, 0, 0]
    for piece in pieces(tensor, PIECE):
        extremes = torch.aminmax(piece if piece.dtype in _HAVE_EXTREMES else piece.to(torch.float64))
        low, high = float(extremes.min.item()), float(extremes.max.item())
        if math.isfinite(low) and math.isfinite(high):
            lows.append(low)
            highs.append(high)
            continue
        for part in pieces(piece, CHUNK):
            values = _widened(part)[1]
            found = (np.isnan(values), values == math.inf, values == -math.inf)
            specials = [count + int(np.count_nonzero(each)) for count, each in zip(specials, found, strict=True)]
            finite = values[np.isfinite(values)]
            lows.append(float(finite.min(initial=math.inf)))
            highs.append(float(finite.max(initial=-math.inf)))
    nan, posinf, neginf = specials
    # Adding 0 turns -0 into 0: otherwise the sign would depend on the order of reading.
    return min(lows) + 0.0, max(highs) + 0.0, nan, posinf, neginf


def _widened(piece: torch.Tensor) -> _Slices:
    """Copy a piece of at most CHUNK elements into the first buffer; return the buffers."""
    slices = _buffers.of(piece.numel())
    (slices[0] if piece.dim() == 1 else slices[0].view(piece.shape)).copy_(piece)
    return slices


def _count(
    tensor: torch.Tensor, low: float, high: float, has_specials: bool, counts: CountArray
) -> tuple[float, float, float, int]:
    """Count finite values into bins; return their mean, std, norm and number of zeros. `low` < `high`."""
    exponent = 0
    zeros = 0
    has_zero = low <= 0 <= high
    magnitude = max(-low, high)
    if not 1 / FLOAT64_SAFE < magnitude < FLOAT64_SAFE:
        # Only float64 gets here. Scaling by a power of two is exact.
        exponent = math.frexp(magnitude)[1]
        low, high = math.ldexp(low, -exponent), math.ldexp(high, -exponent)
    bins_per_unit = BINS / (high - low)

    # Moments of the positions p = (x - low) · bins_per_unit in [0, 64], chunk by chunk about the chunk's own mean:
    # E p² - (E p)² would lose up to 2n roundings if all but a few values lie close together. The variance is at least
    # 64²/2n, since both ends are attained.
    total, mean, squares = 0, 0.0, 0.0
    histogram = np.zeros(BINS + 1, np.int64)
    for piece in pieces(tensor, CHUNK):
        position_tensor, position, bin_tensor, bins, is_zero = _widened(piece)
        if has_specials:
            finite = position[np.isfinite(position)]
            if not finite.size:
                continue
            position_tensor, position, bin_tensor, bins, is_zero = _buffers.of(finite.size)
            position[:] = finite
        size = position.size
        if has_zero:
            zeros += int(np.count_nonzero(np.equal(position, 0.0, out=is_zero)))
        if exponent:
            np.ldexp(position, -exponent, out=position)
        np.subtract(position, low, out=position)
        np.multiply(position, bins_per_unit, out=position)
        np.copyto(bins, position, casting="unsafe")
        if size > NUMPY_IS_FASTER:
            histogram += torch.bincount(bin_tensor, minlength=BINS + 1).numpy()
            own_mean = position_tensor.sum().item() / size
            np.subtract(position, own_mean, out=position)
            # numpy's dot would wake the threads of its BLAS, which then spin.
            own_squares = torch.dot(position_tensor, position_tensor).item()
        else:
            histogram += np.bincount(bins, minlength=BINS + 1)
            own_mean = float(position.sum()) / size
            np.subtract(position, own_mean, out=position)
            own_squares = float(position @ position)
        # Joined to those before (Chan, Golub & LeVeque 1979, equation 2.1).
        step, before, total = own_mean - mean, total, total + size
        mean += step * (size / total)
        squares += own_squares + step * step * (before * (size / total))

    histogram[BINS - 1] += histogram[BINS]  # x = high falls on the outer edge of the last bin
    counts[:] = histogram[:BINS]
    std = math.sqrt(squares / total) / bins_per_unit
    mean = low + mean / bins_per_unit
    norm = math.sqrt(total) * math.hypot(mean, std)
    if exponent:
        mean, std, norm = (_ldexp(value, exponent) for value in (mean, std, norm))
    return mean, std, norm, zeros


def _ldexp(value: float, exponent: int) -> float:
    """`value`·2**exponent; inf beyond float64's range, since the norm can be larger than every element."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf
