"""Statistics of a trace as node data for Google's Model Explorer: one number per node, one file per statistic.

The graph and node ids are those of `to_model_explorer`. An op has the statistic of its first output that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chainrule.export.model_explorer import GRAPH
from chainrule.trace.graph import Op, Tensor, Trace

Json = dict[str, Any]

GRADIENT = ("#fdf7e6", "#f3c66b", "#d9822b", "#8a3ca5")
"""From the least value to the greatest; the lightness is monotonic, so it is readable without hue."""


@dataclass(frozen=True, slots=True)
class NodeStatistic:
    """A figure of an op, or of a leaf tensor or an op's output."""

    doc: str
    of_tensor: Callable[[Nodes, Tensor], float | None] | None = None
    of_op: Callable[[Nodes, Op], float | None] | None = None


class Nodes:
    """A trace with its durations and gradients by id."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        durations = trace.timing.get("op_us")
        self.microseconds = {op.id: took for op, took in zip(trace.ops, durations or (), strict=False)}
        self.gradient_of: dict[str, Tensor] = {}
        for tensor in trace.tensors:
            # If a gradient was accumulated, the last tensor is the sum.
            if tensor.gradient_of is not None:
                self.gradient_of[tensor.gradient_of] = tensor

    def statistic(self, tensor: Tensor | None, name: str) -> float | None:
        """A figure of the trace's table, or None."""
        if tensor is None or tensor.id not in self.trace.statistics:
            return None
        value = getattr(self.trace.statistics[tensor.id], name)
        return None if value is None else float(value)

    def gradient(self, tensor: Tensor) -> Tensor | None:
        """The gradient of the loss with respect to a tensor; a gradient itself."""
        return tensor if tensor.role == "gradient" else self.gradient_of.get(tensor.id)


def _of_table(name: str) -> Callable[[Nodes, Tensor], float | None]:
    return lambda nodes, tensor: nodes.statistic(tensor, name)


NODE_STATISTICS: Mapping[str, NodeStatistic] = {
    "std": NodeStatistic("Standard deviation.", _of_table("std")),
    "mean": NodeStatistic("Mean.", _of_table("mean")),
    "norm": NodeStatistic("L2 norm.", _of_table("norm")),
    "gradient_norm": NodeStatistic(
        "L2 norm of the gradient of the loss.", lambda nodes, tensor: nodes.statistic(nodes.gradient(tensor), "norm")
    ),
    "dead_fraction": NodeStatistic("Share of units not above zero for the whole batch.", _of_table("dead_fraction")),
    "nan": NodeStatistic("Values that are NaN.", _of_table("nan")),
    "time": NodeStatistic("Duration in µs.", of_op=lambda nodes, op: nodes.microseconds.get(op.id)),
    "flops": NodeStatistic("Floating point operations.", of_op=lambda _, op: op.flops),
    "bytes": NodeStatistic("Bytes read plus written.", of_op=lambda _, op: op.bytes),
}
"""By name."""


def to_node_data(trace: Trace, statistic: str) -> Json:
    """One of NODE_STATISTICS for every node that has it, as Model Explorer's node data."""
    figure = NODE_STATISTICS[statistic]
    nodes = Nodes(trace)
    results: Json = {}
    if figure.of_tensor is not None:
        made = {output for op in trace.ops for output in op.outputs}
        for tensor in trace.tensors:
            if tensor.id not in made:
                _put(results, tensor.id, figure.of_tensor(nodes, tensor))
    for op in trace.ops:
        if figure.of_op is not None:
            _put(results, op.id, figure.of_op(nodes, op))
        elif figure.of_tensor is not None:
            outputs = (trace.tensor_by_id[output] for output in op.outputs if output in trace.tensor_by_id)
            values = (figure.of_tensor(nodes, output) for output in outputs)
            _put(results, op.id, next((value for value in values if value is not None), None))
    stops = [{"stop": place / (len(GRADIENT) - 1), "bgColor": colour} for place, colour in enumerate(GRADIENT)]
    return {GRAPH: {"results": results, "gradient": stops}}


def _put(results: Json, node: str, value: float | None) -> None:
    if value is not None:
        results[node] = {"value": value}
