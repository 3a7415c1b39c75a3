"""A sweep: a spec, axes, seeds and a measure; its cells, in stacks from coarse to fine.

A cell is one net with one seed. Their numbers begin at 0; the seed changes fastest, then the first axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.build.stack import STACKED
from chainrule.errors import LimitError, SpecError, SweepError
from chainrule.spec import ModelSpec
from chainrule.spec.cost import FLOPS_PER_VALUE, ITEM_SIZE, count_graph, slowness
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.values import shown
from chainrule.sweeps.axes import SHAPE_KEYS, Axis, count_values, read_axes, with_axis
from chainrule.sweeps.measures import LR_BISECTIONS, Measure, read_measure
from chainrule.sweeps.work import Plan, StackJob

MAX_CELLS = 10_000_000
"""Maximum number of cells of a sweep."""

MAX_SHAPES = 100_000
"""Maximum number of shapes of nets; each takes a tenth of a millisecond to check."""

MAX_SEEDS = 1000

CACHED_BYTES = 2**19
"""A layer's activations of all nets of a stack take about this much at most: they stay in the processor's cache."""

STACK_BYTES = 2**28
"""All tensors of a stack take about this much at most."""

STACK_NETS = 256
"""Maximum number of nets in a stack."""

FIRST_GRID = 5
"""The first pass has at least this many values of each axis, if the axis has so many."""

FLOPS_PER_SECOND = 1e10
"""The speed of one core, for estimates before any measurement."""

FLOPS_PER_LAYER = 5e5
"""The fixed cost of a layer in a pass of a stack, in operations: about ten calls of PyTorch."""

Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StackPlan:
    """The cells of one stack, what their specs share, and the seed and the other values of each cell.

    `flops`: the floating point operations of all its nets.
    """

    spec: ModelSpec
    measure: str
    cells: Cells
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    flops: float

    def __len__(self) -> int:
        return len(self.cells)

    def job(self) -> StackJob:
        """See `Plan`."""
        return StackJob(self.spec.as_dict(), self.measure, self.seeds, self.values)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a sweep: cells, operations, memory of a worker in bytes, and seconds on one core."""

    cells: int
    flops: float
    memory_bytes: int
    seconds: float


class Grid:
    """The cells of a sweep: every combination of the values of its axes, with each seed."""

    def __init__(self, axes: Sequence[Axis], seeds: Sequence[int], measure: str) -> None:
        self.axes = tuple(axes)
        self.seeds = tuple(seeds)
        self.measure_text = measure
        self.shape = tuple(len(axis.values) for axis in self.axes)

    @property
    def cells(self) -> int:
        """Their number."""
        return math.prod(self.shape) * len(self.seeds)

    def places(self, cells: Cells) -> tuple[list[Cells], Cells]:
        """The index on each axis, and the index of the seed, of each cell."""
        point, seed = np.divmod(cells, len(self.seeds))
        indices = []
        for count in self.shape:
            point, index = np.divmod(point, count)
            indices.append(index)
        return indices, seed

    def values_of(self, cell: int) -> dict[str, Any]:
        """The value of each axis in a cell."""
        indices = self.places(np.array([cell]))[0]
        return {axis.key: axis.values[int(index[0])] for axis, index in zip(self.axes, indices, strict=True)}

    def described(self) -> dict[str, Any]:
        """The arguments that determine its values, as JSON."""
        return {
            "over": [axis.over for axis in self.axes],
            "seeds": list(self.seeds),
            "measure": self.measure_text,
        }

    @property
    def stacks(self) -> Sequence[Plan]:
        """All cells, in the groups in which they are computed."""
        raise NotImplementedError


class Sweep(Grid):
    """Nets of a spec over axes, `seeds` seeds of each: the spec's seed and the following integers."""

    def __init__(self, spec: ModelSpec, axes: Sequence[Axis], seeds: int, measure: Measure) -> None:
        """See `read_sweep`, which checks the arguments."""
        super().__init__(axes, range(spec.seed, spec.seed + seeds), measure.text)
        self.spec = spec
        self.measure = measure

    def described(self) -> dict[str, Any]:
        """See `Grid`."""
        return {"spec": self.spec.as_dict(), **super().described()}

    def spec_of(self, cell: int) -> ModelSpec:
        """The spec of a cell."""
        values = self.values_of(cell)
        spec = self.spec
        for key in SHAPE_KEYS:
            if key in values:
                spec = with_axis(spec, key, values.pop(key))
        return spec.replace(seed=self.seeds[cell % len(self.seeds)], **values)

    @cached_property
    def shapes(self) -> Mapping[tuple[int, ...], ModelSpec]:
        """The spec of each shape of nets, by its indices on the axes that are not STACKED.

        Raises:
            SpecError, SweepError: values of the axes contradict another key, or the nets do not have the measure.
        """
        axes = [axis for axis in self.axes if axis.key not in STACKED]
        specs: dict[tuple[int, ...], ModelSpec] = {(): self.spec}
        for axis in axes:
            specs = {
                (*place, index): with_axis(spec, axis.key, value)
                for place, spec in specs.items()
                for index, value in enumerate(axis.values)
            }
        ends = [{axis.key: end(axis.values)} for axis in self.axes if axis.key in STACKED for end in (min, max)]
        for spec in specs.values():
            self.measure.check(spec)
            for change in ends:
                spec.replace(**change)
        return specs

    @cached_property
    def stacks(self) -> tuple[StackPlan, ...]:
        """All cells in stacks. The first ones cover the map coarsely; each pass halves the distances.

        The stacks are a function of the sweep alone. So are the last bits of its values, even where they
        depend on the stacks (see `build/stack.py`).
        """
        points = np.arange(math.prod(self.shape))
        level = np.zeros_like(points)
        shape = np.zeros_like(points)
        indices = self.places(points * len(self.seeds))[0]
        counts = []
        for axis, index in zip(self.axes, indices, strict=True):
            level = np.maximum(level, _levels(len(axis.values))[index])
            if axis.key not in STACKED:
                shape = shape * len(axis.values) + index
                counts.append(len(axis.values))
        order = np.lexsort((points, shape, level))
        level, shape = level[order], shape[order]
        cuts = np.flatnonzero((np.diff(level) != 0) | (np.diff(shape) != 0)) + 1
        plans = []
        for group in np.split(order, cuts):
            place = tuple(int(index[group[0]]) for axis, index in self._shaped(indices))
            spec = self.shapes[place]
            size = max(1, stack_size(spec) // len(self.seeds))
            for start in range(0, len(group), size):
                plans.append(self._plan(spec, group[start : start + size], indices))
        return tuple(plans)

    def _shaped(self, indices: Sequence[Cells]) -> Iterator[tuple[Axis, Cells]]:
        pairs = zip(self.axes, indices, strict=True)
        return ((axis, index) for axis, index in pairs if axis.key not in STACKED)

    def _plan(self, spec: ModelSpec, points: Cells, indices: Sequence[Cells]) -> StackPlan:
        seeds = len(self.seeds)
        values = {
            axis.key: tuple(axis.values[place] for place in np.repeat(index[points], seeds).tolist())
            for axis, index in zip(self.axes, indices, strict=True)
            if axis.key in STACKED
        }
        cells = (points[:, None] * seeds + np.arange(seeds)).reshape(-1)
        flops = stack_flops(spec, self.measure, len(cells))
        return StackPlan(spec, self.measure.text, cells, self.seeds * len(points), values, flops)

    def estimate(self) -> Estimate:
        """The cost of the sweep, from the specs alone."""
        each = self.cells // len(self.shapes)  # of each shape
        flops = sum(stack_flops(spec, self.measure, each) for spec in self.shapes.values())
        memory = max(min(each, stack_size(spec)) * net_bytes(spec) for spec in self.shapes.values())
        return Estimate(self.cells, flops, memory, flops / FLOPS_PER_SECOND)


def read_sweep(
    spec: ModelSpec,
    over: Sequence[str],
    seeds: int = 1,
    measure: str = "gradient_ratio",
    *,
    max_cells: int = MAX_CELLS,
    max_shapes: int = MAX_SHAPES,
) -> Sweep:
    """A sweep over the axes `over`; see `read_axis` for their texts and `KINDS` for the measures.

    Raises:
        SpecError: a value contradicts another key.
        SweepError: there is no axis, or one is malformed or given twice; the nets do not have the measure.
        LimitError: there are too many cells, with an estimate of their time; or too many shapes.
    """
    if not spec.is_net:
        raise SpecError(f"program: {spec.program!r} has no maps; only mlp has", field="program", limit=["mlp"])
    kind = read_measure(measure)
    cells = count_cells(over, seeds)
    KEY_BY_NAME["seed"].read(spec.seed + seeds - 1)
    if cells > max_cells:
        seconds = stack_flops(spec, kind, cells) / FLOPS_PER_SECOND
        raise LimitError(
            f"over: {cells} cells, about {duration(seconds)} on one core; at most {max_cells} cells are allowed",
            field="over",
            limit=max_cells,
        )
    sweep = Sweep(spec, read_axes(over), seeds, kind)
    shapes = math.prod(len(axis.values) for axis in sweep.axes if axis.key not in STACKED)
    if shapes > max_shapes:
        keys = ", ".join(axis.key for axis in sweep.axes if axis.key not in STACKED)
        raise LimitError(
            f"over: {shapes} different shapes of nets ({keys}); at most {max_shapes} are allowed, because only nets of "
            "one shape are computed together",
            field="over",
            limit=max_shapes,
        )
    _ = sweep.shapes  # checks the values
    return sweep


def count_cells(over: Sequence[str], seeds: object) -> int:
    """The number of cells of a sweep, before its axes are read.

    Raises:
        SweepError: there is no axis, or the number of seeds is out of range.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= MAX_SEEDS:
        raise SweepError(
            f"seeds: expected an integer from 1 to {MAX_SEEDS}, got {shown(seeds)}", field="seeds", limit=MAX_SEEDS
        )
    if not over:
        raise SweepError("over: missing; give at least one axis, such as scale=0.5:2:64", field="over")
    return seeds * math.prod(map(count_values, over))


def stack_size(spec: ModelSpec) -> int:
    """How many nets of a spec a stack has."""
    layer = ITEM_SIZE[spec.dtype] * spec.batch * max(spec.widths)
    return max(1, min(STACK_NETS, CACHED_BYTES // layer, STACK_BYTES // net_bytes(spec)))


def net_bytes(spec: ModelSpec) -> int:
    """The memory of one net of a stack: activations and gradients, parameters with gradients, moments and updates."""
    values = 4 * spec.batch * sum(spec.widths) + 6 * sum((n_in + 1) * n_out for n_in, n_out in pairwise(spec.widths))
    return ITEM_SIZE[spec.dtype] * values


def stack_flops(spec: ModelSpec, measure: Measure, nets: int) -> float:
    """The floating point operations of a stack."""
    one_pass = slowness(spec) * count_graph(spec).product_flops + FLOPS_PER_VALUE * spec.batch * sum(spec.widths)
    trainings = LR_BISECTIONS if measure.text == "largest_lr" else 1
    return float(nets * one_pass + FLOPS_PER_LAYER * spec.depth) * (spec.step + 1) * trainings


def duration(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `12 days`, `200 years`."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def _levels(count: int) -> Cells:
    """The pass in which each index of an axis comes: first every 2^k-th, in each further pass the middles between."""
    index = np.arange(count)
    levels = np.zeros(count, np.int64)
    stride = 1
    while (count - 1) // (2 * stride) + 1 >= FIRST_GRID:
        levels[index % (2 * stride) != 0] += 1
        stride *= 2
    return levels
