"""Statistics of tensors on a device, taken there: no synchronisation per tensor, one copy to the host per pass.

On CUDA, kernels of our own take those of float32, float16 and bfloat16 (`kernels.cu`). The rest of this module is for
other dtypes, for tensors with large gaps, and for all where the kernels cannot be compiled, by PyTorch's operations.

There, a tensor of up to STAGED bytes is copied in one launch and summarized on the host when the pass is over; for a
larger one the device makes a record: extremes, counts, and each chunk's mean and deviations. Both wait in words of
device memory. `fetch` copies the words and finishes the rows. The tensor itself is not kept.

Order: all launches go to the stream that is current when a tensor is seen, which is the one that made it (autograd runs
the hooks of a backward pass on the forward pass's streams, whatever the thread). Words belong to one stream, so that no
stream reuses memory under another, and `fetch` waits for the device before it reads them.

Memory (totals at `StatisticsSlab`): two float64 or int64 buffers of CHUNK elements and a mask while a tensor is read;
until `fetch`, which copies them once more, the words: MAX_STAGED, a record of some 600 bytes per tensor, and the rest
of a block per stream.

PyTorch's operations are the same on the CPU, where they are tested too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import RLock

import numpy as np
import numpy.typing as npt
import torch

from chainrule.stats import cuda, native
from chainrule.stats.kernel import is_freed, repeat, summarize
from chainrule.stats.pieces import pieces, pieces_of_units, without_repeats
from chainrule.stats.summary import BINS, COLUMNS, DEAD_FRACTION, SATURATION, SMALL, CountArray, FloatArray, N
from chainrule.stats.units import SATURATED

CHUNK = 1 << 22
"""Elements that are widened to float64 at once: 32 MiB."""

STAGED = 1 << 16
"""Tensors of up to this many bytes are copied for the host, which is less work than a record."""

MAX_STAGED = 1 << 24
"""Bytes copied for the host in one pass; when they are used up, every tensor but the smallest gets a record."""

FIRST_WORDS = 1 << 17
"""Words of 8 bytes in the first block, 1 MiB. Each further block is as large as all before it, up to MAX_WORDS."""

MAX_WORDS = 1 << 20

NAN_CLASS, POSINF_CLASS, NEGINF_CLASS = range(BINS + 1, BINS + 4)
CLASSES = BINS + 4
"""The classes of values: 64 bins, the outer edge of the last bin, NaN, +Inf, -Inf."""

FAR = 1e300
"""Limit of bins per unit, reached if all values are equal or none is finite."""

LARGEST_SCALE = 1000
"""Exponents beyond this are cut off: the scale of float64 must itself be a normal number."""

_EXPONENT = 0x7FF0000000000000
"""The exponent bits of a float64."""


class StreamCapturedError(RuntimeError):
    """The stream is being captured into a CUDA graph: nothing is computed yet."""


class _Words:
    """Words of 8 bytes on one device and one stream, in blocks. Blocks are never moved: launches may be under way."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.one = torch.ones((1, 1), dtype=torch.int32, device=device)
        self._blocks: list[torch.Tensor] = []
        self._sizes: list[int] = []  # of the blocks, in full
        self._used = 0  # of the last

    def reserve(self, words: int) -> tuple[int, torch.Tensor]:
        """Reserve words: their offset in the result of `to_host`, and the int64 tensor itself."""
        if not self._blocks or self._used + words > self._sizes[-1]:
            size = max(words, min(sum(self._sizes), MAX_WORDS), FIRST_WORDS)
            # An inference tensor could not be written to after inference mode.
            with torch.inference_mode(False):
                self._blocks.append(torch.empty(size, dtype=torch.int64, device=self.device))
            self._sizes.append(size)
            self._used = 0
        start = self._used
        self._used += words
        return sum(self._sizes[:-1]) + start, self._blocks[-1][start : start + words]

    def to_host(self) -> npt.NDArray[np.int64]:
        """All words, in one copy once the device has written them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if not self._blocks:
            return np.empty(0, np.int64)
        blocks = [*self._blocks[:-1], self._blocks[-1][: self._used]]
        try:
            return (torch.cat(blocks) if len(blocks) > 1 else blocks[0]).cpu().numpy()
        except torch.OutOfMemoryError:
            return np.concatenate([block.cpu().numpy() for block in blocks])

    def give_back(self) -> None:
        """Free all words."""
        self._blocks, self._sizes, self._used = [], [], 0


@dataclass(frozen=True, slots=True)
class _Staged:
    """A copied tensor; each element is repeated `times` times."""

    words: _Words
    start: int
    size: int
    dtype: torch.dtype
    times: int


@dataclass(frozen=True, slots=True)
class _Record:
    """A tensor's record in words.

    As float64: low, high, and for each chunk the number of finite values, their mean position, and the norm of the
    deviations from it; then as int64 the number of zeros and of each class, where NaN includes the padding.
    """

    words: _Words
    start: int
    chunks: int
    size: int
    padding: int
    times: int
    is_scaled: bool


def _words_of(chunks: int) -> int:
    """Length of a record."""
    return 2 + 3 * chunks + 1 + CLASSES


_ROW = np.dtype([("moments", np.float64, len(COLUMNS)), ("counts", np.uint32, BINS), ("values", np.float64, SMALL)])
"""A row in `kernels.cu`. Before the rows of a block is its scratch memory."""

_DTYPES_OF_KERNELS = {torch.float32, torch.float16, torch.bfloat16}

_SCRATCH = 64 * (16 + 32 * 48) + 16 + 256 * 48
"""Bytes: one for each tensor of a group, and one for a single tensor. See `_kernel.c`."""

FIRST_BLOCK, MAX_BLOCK = 1 << 19, 1 << 23
"""Bytes of the first block of rows; each further one is as large as all before it, up to the maximum."""

MAX_COPY = 1 << 25
"""A tensor with gaps of up to so many bytes is copied, so that the kernels can read it."""


@dataclass(slots=True)
class DeviceRows:
    """Rows of a slab whose statistics wait on a device. Thread-safe."""

    only_moments: bool = False
    launches: native.Launches | None = None
    _blocks: dict[int, torch.Tensor] = field(default_factory=dict)
    _words: dict[tuple[torch.device, int], _Words] = field(default_factory=dict)
    _rows: dict[int, _Staged | _Record] = field(default_factory=dict)
    _fractions: dict[tuple[int, int], tuple[_Words, int, int]] = field(default_factory=dict)
    _staged: int = 0
    _turn: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        if native.kernel is not None:
            self.launches = native.kernel.Launches(self.only_moments)

    def __contains__(self, row: int) -> bool:
        """Whether anything waits for `row`."""
        if self.launches is not None and self.launches.has(row):
            return True
        return row in self._rows or (row, DEAD_FRACTION) in self._fractions or (row, SATURATION) in self._fractions

    def forget(self, row: int) -> None:
        """Discard everything that waits for `row`."""
        with self._turn:
            if self.launches is not None:
                self.launches.forget(row)
            self._rows.pop(row, None)
            self._fractions.pop((row, DEAD_FRACTION), None)
            self._fractions.pop((row, SATURATION), None)

    def take_at_once(self, row: int, tensor: torch.Tensor) -> bool:
        """Let the kernels take the statistics of `tensor` for a new row, without a call of PyTorch, if they can."""
        return self.launches is not None and self.launches.take(tensor, row, 1) is True

    def write(self, row: int, tensor: torch.Tensor) -> None:
        """Take the statistics of `tensor`, which is not empty, for `row`.

        Raises:
            ValueError: the tensor's memory was freed.
            StreamCapturedError: its stream is being captured.
            RuntimeError: it cannot be read, or the device is out of memory.
        """
        self.forget(row)
        if is_freed(tensor):
            raise ValueError("its memory was freed")
        tensor = tensor.detach()
        # The values of a small tensor are kept, and so are their repeats.
        is_small = tensor.numel() <= SMALL
        tensor, times = (tensor, 1) if is_small else without_repeats(tensor)
        nbytes = tensor.numel() * tensor.element_size()
        with self._turn:
            if self._launch(row, tensor, times, nbytes):
                return
            words = self._words_for(tensor)
            if is_small or (nbytes <= STAGED and self._staged + nbytes <= MAX_STAGED):
                start, room = words.reserve(-(-nbytes // 8))
                self._staged += nbytes
                room.view(torch.uint8)[:nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
                self._rows[row] = _Staged(words, start, nbytes, tensor.dtype, times)
            else:
                self._rows[row] = _write_record(tensor, times, words)

    def _launch(self, row: int, tensor: torch.Tensor, times: int, nbytes: int) -> bool:
        if self.launches is None or tensor.dtype not in _DTYPES_OF_KERNELS:
            return False
        with torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext():
            if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
                return False
            if not cuda.prepare(tensor.device.index or 0):
                return False
            taken = self.launches.take(tensor, row, times)
            if taken is None and self._add_block(self.launches, tensor.device):
                taken = self.launches.take(tensor, row, times)
            if taken is False and nbytes <= MAX_COPY and (tensor.is_neg() or not tensor.is_contiguous()):
                # Its memory may be used again: in the same stream.
                taken = self._launch(row, tensor.resolve_neg().contiguous(), times, nbytes)
        return taken is True

    def _add_block(self, launches: native.Launches, device: torch.device) -> bool:
        size = min(max(FIRST_BLOCK, sum(len(each) for each in self._blocks.values())), MAX_BLOCK)
        number = max(self._blocks, default=-1) + 1
        with torch.inference_mode(False):
            block = torch.empty(size, dtype=torch.uint8, device=device)
            block[:_SCRATCH].zero_()
        stream = cuda.current_stream(device)
        if not launches.add_block(number, device.index or 0, stream, block.data_ptr(), size):
            return False
        self._blocks[number] = block
        return True

    def write_copy(self, row: int, new: int) -> bool:
        """Let row `new` wait for what `row` waits for; False if it waits for nothing."""
        with self._turn:
            self.forget(new)
            if self.launches is not None and self.launches.copy(row, new):
                return True
            if row not in self._rows:
                return False
            self._rows[new] = self._rows[row]
            return True

    def write_dead_fraction(self, row: int, activation: torch.Tensor) -> None:
        """`units.dead_fraction` of `activation`, for `row`."""
        if self.launches is not None and self.launches.dead_fraction(row, activation):
            return
        activation = activation.detach()
        counted = (torch.count_nonzero(piece.amax(0) <= 0) for piece in pieces_of_units(activation, CHUNK))
        self._write_fraction(row, DEAD_FRACTION, activation, counted, activation[0].numel())

    def write_saturation(self, row: int, activation: torch.Tensor, middle: float) -> None:
        """`units.saturation` of `activation`, for `row`."""
        limit = SATURATED * (1 - middle)
        if self.launches is not None and self.launches.saturation(row, activation, middle, limit):
            return
        values, _ = without_repeats(activation.detach())
        counted = (
            torch.count_nonzero(((piece - middle).abs_() if middle else piece.abs()) > limit)
            for piece in pieces(values, CHUNK)
        )
        self._write_fraction(row, SATURATION, activation, counted, values.numel())

    def _write_fraction(
        self, row: int, column: int, tensor: torch.Tensor, counted: Iterable[torch.Tensor], whole: int
    ) -> None:
        with self._turn:
            words = self._words_for(tensor)
            start, total = words.reserve(1)
            total.zero_()
            for part in counted:
                total.add_(part)
            self._fractions[row, column] = (words, start, whole)

    def _words_for(self, tensor: torch.Tensor) -> _Words:
        device, stream = tensor.device, 0
        if device.type == "cuda":
            with torch.cuda.device(device):  # is_current_stream_capturing asks the current device only
                if torch.cuda.is_current_stream_capturing():
                    raise StreamCapturedError("a CUDA graph is being captured: nothing is computed yet")
            stream = torch.cuda.current_stream(device).cuda_stream
        words = self._words.get((device, stream))
        if words is None:
            with torch.inference_mode(False):
                words = self._words[device, stream] = _Words(device)
        return words

    def fetch(
        self,
        at: Callable[[int], tuple[FloatArray, CountArray]],
        write_rows: Callable[[npt.NDArray[np.int64], FloatArray, CountArray], None],
        keep_values: Callable[[int, torch.Tensor], None],
    ) -> None:
        """Finish all waiting rows: by `write_rows`, or into `at(row)`: moments (len(COLUMNS),) and counts (BINS,).

        Calls `keep_values(row, tensor)` for each small tensor.

        Raises:
            RuntimeError: a device does not give its rows; then those that were not finished keep waiting.
        """
        with self._turn:
            self._fetch_launched(write_rows, keep_values)
            if not (self._rows or self._fractions):
                return
            fetched = {id(words): words.to_host() for words in self._words.values()}
            for row, waiting in self._rows.items():
                moments, counts = at(row)
                own = fetched[id(waiting.words)][waiting.start :]
                if isinstance(waiting, _Record):
                    _finish(waiting, own[: _words_of(waiting.chunks)], moments, counts)
                else:
                    copied = torch.from_numpy(own).view(torch.uint8)[: waiting.size].view(waiting.dtype)
                    summarize(copied, moments, counts)
                    if copied.numel() <= SMALL and waiting.times == 1:
                        keep_values(row, copied)
                if waiting.times > 1:
                    repeat(moments, counts, waiting.times)
            for (row, column), (of, start, whole) in self._fractions.items():
                at(row)[0][column] = fetched[id(of)][start] / whole
            self._rows.clear()
            self._fractions.clear()
            for words in self._words.values():
                words.give_back()
            self._staged = 0

    def _fetch_launched(
        self,
        write_rows: Callable[[npt.NDArray[np.int64], FloatArray, CountArray], None],
        keep_values: Callable[[int, torch.Tensor], None],
    ) -> None:
        entries = np.frombuffer(b"" if self.launches is None else self.launches.entries(), np.int64).reshape(-1, 4)
        if self.launches is None or not len(entries):
            return
        for device in {each.device for each in self._blocks.values() if each.is_cuda}:
            torch.cuda.synchronize(device)
        for number, block in self._blocks.items():
            rows, _, places, is_copy = entries[entries[:, 1] == number].T
            if not len(rows):
                continue
            used = block[_SCRATCH : _SCRATCH + (places.max() + 1) * _ROW.itemsize]
            found = used.cpu().numpy().view(_ROW)[places]
            found["moments"][is_copy == 1, DEAD_FRACTION:] = math.nan
            write_rows(rows, found["moments"], found["counts"])
            for index in () if self.only_moments else np.flatnonzero(found["moments"][:, N] <= SMALL):
                if not is_copy[index]:
                    size = int(found["moments"][index, N])
                    keep_values(int(rows[index]), torch.from_numpy(found["values"][index, :size]))
        needed = self.launches.clear(len(entries))
        self._blocks = {number: block for number, block in self._blocks.items() if number in needed}


def _write_record(tensor: torch.Tensor, times: int, words: _Words) -> _Record:
    """Launch the computation of a record of `tensor`, which is not empty."""
    is_scaled = tensor.dtype == torch.float64
    parts = list(pieces(tensor, CHUNK))
    start, room = words.reserve(_words_of(len(parts)))
    floats = room.view(torch.float64)
    ends, zeros, classes = floats[:2], room[-CLASSES - 1], room[-CLASSES:]

    # Padding makes rows of `lanes` elements of a chunk, so that at most 4096 elements of it add to one word.
    lanes = 32 if min(tensor.numel(), CHUNK) <= 1 << 17 else 1024
    padding = 0
    values = None
    for index, part in enumerate(parts):
        values, padded = _widen(part, lanes)
        padding += padded
        _scan(values, index == 0, ends, zeros)

    low, per_unit, scale = _positions(ends, is_scaled)
    # Each lane has counters of its own, so that neighbours in the same bin add to different words. A lane counts at
    # most 2^32/1024.
    histogram = torch.zeros((CLASSES, lanes), dtype=torch.int32, device=tensor.device)
    for index, part in enumerate(parts):
        if len(parts) > 1:
            values = _widen(part, lanes)[0]
        assert values is not None
        if scale is not None:
            values.div_(scale)
        values.sub_(low).mul_(per_unit)
        values.nan_to_num_(nan=NAN_CLASS, posinf=POSINF_CLASS, neginf=NEGINF_CLASS)
        # Another stream may change the tensor meanwhile: never index beyond the classes.
        values.clamp_(0, CLASSES - 1)
        rows = values.view(-1, lanes).to(torch.int64)
        histogram.scatter_add_(0, rows, words.one.expand_as(rows))
        del rows
        _write_moments(values, floats[2 + 3 * index : 5 + 3 * index])
    torch.sum(histogram, dim=1, dtype=torch.int64, out=classes)
    return _Record(words, start, len(parts), tensor.numel(), padding, times, is_scaled)


def _widen(piece: torch.Tensor, lanes: int) -> tuple[torch.Tensor, int]:
    """The values as float64 (rows · lanes,), padded with NaN, and the length of the padding."""
    size = piece.numel()
    padded = -(-size // lanes) * lanes
    values = torch.empty(padded, dtype=torch.float64, device=piece.device)
    values[:size].view(piece.shape).copy_(piece)
    if padded > size:
        values[size:].fill_(math.nan)
    return values, padded - size


def _scan(values: torch.Tensor, is_first: bool, ends: torch.Tensor, zeros: torch.Tensor) -> None:
    """Write the extremes of the finite values and the number of zeros, joined to those of earlier chunks."""
    inf = math.inf
    low, high = (ends[0], ends[1]) if is_first else (None, None)
    low = torch.amin(values.nan_to_num(nan=inf, posinf=inf, neginf=inf), 0, out=low)
    high = torch.amax(values.nan_to_num(nan=-inf, posinf=-inf, neginf=-inf), 0, out=high)
    if is_first:
        torch.sum(values == 0, 0, dtype=torch.int64, out=zeros)
    else:
        torch.minimum(ends[0], low, out=ends[0])
        torch.maximum(ends[1], high, out=ends[1])
        zeros.add_(torch.sum(values == 0, 0, dtype=torch.int64))


def _positions(ends: torch.Tensor, is_scaled: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """How to map a value to its position: lowest value, bins per unit, and for float64 a divisor, a power of two.

    Infinite values get infinite positions, also if all finite values are equal or there are none.
    """
    scale = None
    if is_scaled:
        power = torch.amax(ends.abs(), 0).view(torch.int64).bitwise_and(_EXPONENT).view(torch.float64)
        scale = power.clamp_(2.0**-LARGEST_SCALE, 2.0**LARGEST_SCALE)
        ends = ends / scale
    low = ends[0].nan_to_num(posinf=0.0)
    width = ends[1] - ends[0]
    # Not `64 / width`: PyTorch computes that by the reciprocal and rounds twice.
    per_unit = torch.full_like(width, BINS).div_(width).clamp_(1 / FAR, FAR)
    return low, per_unit, scale


def _write_moments(positions: torch.Tensor, moments: torch.Tensor) -> None:
    """Write number and mean of the finite positions, and the norm of their deviations. Overwrites `positions`."""
    finite = positions <= BINS
    torch.sum(finite, 0, dtype=torch.float64, out=moments[0])
    positions.mul_(finite)
    torch.div(torch.sum(positions, 0), moments[0], out=moments[1])
    positions.sub_(moments[1]).mul_(finite)
    torch.linalg.vector_norm(positions, out=moments[2])


def _finish(record: _Record, words: npt.NDArray[np.int64], moments: FloatArray, counts: CountArray) -> None:
    """Turn a record into a row of statistics."""
    floats = words.view(np.float64)
    zeros, classes = int(words[-CLASSES - 1]), words[-CLASSES:]
    nan, posinf, neginf = classes[NAN_CLASS:].tolist()
    nan -= record.padding
    counts[:] = classes[:BINS]
    counts[BINS - 1] += classes[BINS]  # x = high falls on the outer edge of the last bin
    size = record.size - nan - posinf - neginf
    low = high = mean = std = norm = math.nan
    if size:
        low, high = floats[:2].tolist()
        chunks = floats[2 : 2 + 3 * record.chunks].reshape(-1, 3)
        chunks = chunks[chunks[:, 0] > 0]
        share = chunks[:, 0] / size
        position = float(share @ chunks[:, 1])
        variance = float((chunks[:, 2] ** 2).sum()) / size + float(share @ (chunks[:, 1] - position) ** 2)
        exponent = 0
        if record.is_scaled:
            exponent = math.frexp(max(-low, high))[1] - 1 if low or high else 0
            exponent = min(max(exponent, -LARGEST_SCALE), LARGEST_SCALE)
        near, far = math.ldexp(low, -exponent), math.ldexp(high, -exponent)
        per_unit = BINS / (far - near) if far > near else FAR
        mean = near + position / per_unit
        std = math.sqrt(variance) / per_unit
        norm = math.sqrt(size) * math.hypot(mean, std)
        with np.errstate(over="ignore"):
            mean, std, norm = np.ldexp([mean, std, norm], exponent).tolist()
    moments[:-2] = (record.size, mean, std, low + 0.0, high + 0.0, norm, zeros / record.size, nan, posinf, neginf)
    moments[-2:] = math.nan
