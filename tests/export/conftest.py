"""A hand-made trace: x·w1 → relu → loss and back, with a shared input, two outputs of one op, and hostile names."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from py_mini_racer import MiniRacer

from chainrule.export.engine_process import make_engine
from chainrule.stats import BINS, COLUMNS, StatisticsTable
from chainrule.trace.graph import Module, Op, Saved, Source, Tensor, Trace

HOSTILE = 'a "quoted" \\N back\\slash\nand a/slash'


def op(identifier, name, phase, module, inputs, outputs, twin=None, source=None, **attributes) -> Op:
    return Op(identifier, name, phase, module, attributes, tuple(inputs), tuple(outputs), twin, 10, 80, source)


def tensor(identifier, name, role, shape, module="m1", producer=None, gradient_of=None) -> Tensor:
    return Tensor(identifier, name, role, shape, "float32", module, producer, (), gradient_of)


@pytest.fixture
def small_trace() -> Trace:
    line = Source("model.py", 3, 'return f"{x @ w}\\n"', "forward")
    tensors = (
        tensor("t0", "x", "input", (200, 100), module="m0"),
        tensor("t1", "w1", "parameter", (100, 50)),
        tensor("t2", "l1", "preactivation", (200, 50), producer="n0"),
        tensor("t3", HOSTILE, "activation", (200, 50), module="m2", producer="n1"),
        tensor("t4", "mask", "saved", (200, 50), module="m2", producer="n1"),
        tensor("t5", "loss", "loss", (), module="m0", producer="n2"),
        tensor("t6", "l1.g", "gradient", (200, 50), module="m2", producer="n3", gradient_of="t2"),
        tensor("t7", "w1.g", "gradient", (100, 50), producer="n4", gradient_of="t1"),
    )
    statistics: dict[str, Any] = dict.fromkeys(COLUMNS, 0.0) | {"n": 10_000.0, "mean": 0.25, "std": 1.5, "nan": 3.0}
    return Trace(
        modules=(
            Module("m0", "", "Model", None),
            Module("m1", "layers.0", "Lin", "m0"),
            Module("m2", "layers.0.act/1", HOSTILE, "m1"),
        ),
        ops=(
            op("n0", "matmul", "forward", "m1", ["t0", "t1"], ["t2"], source=line, transpose=False),
            op("n1", "relu", "forward", "m2", ["t2"], ["t3", "t4"]),
            op("n2", "mul", "forward", "m0", ["t3", "t3"], ["t5"]),
            op("n3", "mul", "backward", "m2", ["t4"], ["t6"], twin="n1"),
            op("n4", "matmul", "backward", "m1", ["t0", "t6"], ["t7"], twin="n0"),
        ),
        tensors=tensors,
        saved=(Saved("t0", "n0"), Saved("t4", "n1")),
        statistics=StatisticsTable(
            ("t2",), np.array([[statistics[name] for name in COLUMNS]]), np.zeros((1, BINS), np.uint32)
        ),
        loss=3.25,
        spec={"widths": "100,50,1", "bias": True},
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[MiniRacer]:
    """An empty JavaScript engine."""
    engine = make_engine()
    yield engine
    engine.close()
