"""Rules for every trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from chainrule.dump.wire import dump_trace, load
from chainrule.stats import SMALL, StatisticsTable
from chainrule.trace.graph import Op, Role, Trace


def assert_well_formed(trace: Trace) -> None:
    """Every id leads somewhere, both ways; ids count in order of execution; a value has statistics or says why not."""
    for letter, parts in (("m", trace.modules), ("n", trace.ops), ("t", trace.tensors)):
        assert [part.id for part in parts] == [f"{letter}{row}" for row in range(len(parts))]
    modules, tensors = trace.module_by_id, trace.tensor_by_id
    ops = {op.id: op for op in trace.ops}
    order = {op.id: row for row, op in enumerate(trace.ops)}

    root, *others = trace.modules
    assert (root.path, root.parent) == ("", None)
    assert len({module.path for module in trace.modules}) == len(trace.modules)
    for module in others:
        assert modules[module.parent].path == module.path.rpartition(".")[0]

    for op in trace.ops:
        assert op.module in modules
        assert op.phase in ("forward", "backward")
        assert op.flops >= 0
        assert op.bytes >= 0
        for tensor in op.inputs:
            assert op.id in tensors[tensor].consumers
            producer = tensors[tensor].producer
            assert producer is None or order[producer] < order[op.id]
        assert len(set(op.outputs)) == len(op.outputs)
        for tensor in op.outputs:
            assert tensors[tensor].producer == op.id
        if op.phase == "forward":
            assert op.twin is None
        if op.twin is not None:
            assert ops[op.twin].phase == "forward"
            assert order[op.twin] < order[op.id]
        if op.source is not None:
            assert not Path(op.source.file).is_absolute()
            assert ".." not in Path(op.source.file).parts

    for tensor in trace.tensors:
        assert tensor.role in get_args(Role)
        assert tensor.name
        assert tensor.module in modules
        assert tensor.producer is None or tensor.id in ops[tensor.producer].outputs
        assert len(set(tensor.consumers)) == len(tensor.consumers)
        for consumer in tensor.consumers:
            assert tensor.id in ops[consumer].inputs
        if tensor.gradient_of is not None:
            origin = tensors[tensor.gradient_of]
            assert tensor.shape == origin.shape
            assert tensor.role == "gradient"
            assert re.fullmatch(re.escape(f"{origin.name}.g") + "( [0-9]+)?", tensor.name)
        assert (tensor.note is None) == (tensor.id in trace.statistics)
        if tensor.id in trace.statistics:
            summary, values = trace.statistics[tensor.id], trace.statistics.values.get(tensor.id)
            assert summary.n == int(np.prod(tensor.shape))
            assert (values is not None) == (summary.n <= SMALL)
            if values is not None:
                finite = values[np.isfinite(values)]
                assert len(values) == summary.n
                assert (min(finite, default=None), max(finite, default=None)) == (summary.min, summary.max)

    assert len(set(trace.statistics.tensors)) == len(trace.statistics)
    assert len(set(trace.saved)) == len(trace.saved)
    for saved in trace.saved:
        assert saved.tensor in tensors
        assert ops[saved.op].phase == "forward"
    # Whatever is recorded can be opened again.
    load(dump_trace(trace))


def assert_twins(trace: Trace) -> None:
    """Every backward op belongs to a forward op of its own module."""
    ops = {op.id: op for op in trace.ops}
    for op in trace.ops:
        if op.phase == "backward":
            assert op.twin is not None, op
            assert ops[op.twin].module == op.module, (op, ops[op.twin])


def assert_same_table(one: StatisticsTable, other: StatisticsTable) -> None:
    """Equal to the last bit."""
    assert one.tensors == other.tensors
    assert np.array_equal(one.moments, other.moments, equal_nan=True)
    assert np.array_equal(one.counts, other.counts)
    assert one.values.keys() == other.values.keys()
    for tensor, values in one.values.items():
        assert np.array_equal(values, other.values[tensor], equal_nan=True)


def assert_same_trace(one: Trace, other: Trace) -> None:
    for part in ("spec", "environment", "modules", "ops", "tensors", "saved", "layers", "error"):
        assert getattr(one, part) == getattr(other, part), (one.spec, part)
    assert_same_table(one.statistics, other.statistics)
    assert np.array_equal(one.loss, other.loss, equal_nan=True)


def assert_statistics(trace: Trace, tensor: str, values: torch.Tensor) -> None:
    """Compare the statistics of `tensor` with numpy's of `values` in float64."""
    row = trace.statistics[tensor]
    x = values.detach().double().numpy().ravel()
    if x.size <= SMALL:
        assert np.array_equal(trace.statistics.values[tensor], x, equal_nan=True)
    finite = x[np.isfinite(x)]
    assert row.n == x.size
    assert (row.nan, row.posinf, row.neginf) == (np.isnan(x).sum(), np.isposinf(x).sum(), np.isneginf(x).sum())
    assert sum(row.counts) == finite.size
    assert row.zero_fraction == pytest.approx(np.mean(x == 0), rel=1e-12)
    if not finite.size:
        assert row.mean is row.std is row.min is row.max is row.norm is None
        return
    largest = np.abs(finite).max()
    assert (row.min, row.max) == (finite.min(), finite.max())
    assert row.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12 * largest)
    assert row.std == pytest.approx(finite.std(), rel=1e-9, abs=1e-12 * largest)
    assert row.norm == pytest.approx(np.linalg.norm(finite), rel=1e-9)


def gradients_of(trace: Trace, name: str) -> list[str]:
    wanted = trace.tensor_by_name[name].id
    return [tensor.id for tensor in trace.tensors if tensor.gradient_of == wanted]


def assert_gradient(trace: Trace, name: str, expected: torch.Tensor | None) -> None:
    """Check the values of a tensor's only gradient, or that it has none (`expected` None)."""
    if expected is None:
        assert name not in trace.tensor_by_name or gradients_of(trace, name) == [], name
        return
    (found,) = gradients_of(trace, name)
    assert_statistics(trace, found, expected)


def names_in(trace: Trace, phase: str) -> list[str]:
    return [op.name for op in trace.ops if op.phase == phase]


def producer_of(trace: Trace, tensor: str) -> Op:
    return next(op for op in trace.ops if op.id == trace.tensor_by_id[tensor].producer)
