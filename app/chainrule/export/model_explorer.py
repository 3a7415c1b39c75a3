"""A trace as a graph collection for Google's Model Explorer, and its statistics as node data, a number per node.

Every node has a label and a namespace, a path of groups such as `a/b`; an edge names an output and an input by index,
as strings. Model Explorer silently drops an edge from an unknown node.

Ops are the nodes, tensors the edges; a tensor that no op made (an input, a parameter) is a node too. The two passes are
groups, and the modules are nested groups within them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from chainrule.trace.graph import Module, Op, Tensor, Trace

Json = dict[str, Any]

GRAPH = "trace"
"""The id of the one graph."""

MAX_PATH = 1000
"""Groups inside a group with a longer path are left out: each node contains the path of its group."""

MAX_TEXT = 200
"""The maximum length of a text that many nodes repeat."""

MAX_LISTED = 32
"""The saved tensors that a node names."""


def to_model_explorer(trace: Trace) -> Json:
    """The graph collection: one graph, ready for JSON."""
    groups = _groups(trace)
    sources: dict[str, tuple[str, str]] = {}
    """Per tensor: its node, and its index among that node's outputs."""
    for tensor in trace.tensors:
        sources[tensor.id] = (tensor.id, "0")
    for op in trace.ops:
        for place, output in enumerate(op.outputs):
            sources[output] = (op.id, str(place))

    leaves = [tensor for tensor in trace.tensors if sources[tensor.id][0] == tensor.id]
    nodes = [_leaf_node(trace, tensor, groups) for tensor in leaves]
    saved: defaultdict[str, list[str]] = defaultdict(list)
    for each in trace.saved:
        saved[each.op].append(_short(trace.tensor_by_id[each.tensor].name))
    nodes += [_op_node(trace, op, groups, sources, saved[op.id]) for op in trace.ops]
    graph: Json = {"id": GRAPH, "nodes": nodes}
    about = dict(trace.spec or {}) | ({"loss": trace.loss} if trace.loss is not None else {})
    if about:
        graph["groupNodeAttributes"] = {"": {key: str(value) for key, value in about.items()}}
    return {"label": "Chainrule", "graphs": [graph]}


def _groups(trace: Trace) -> dict[str, str]:
    """The path of groups of each module: one group per module from the root down."""
    groups: dict[str, str] = {}
    for module in trace.modules:
        pending = [module]
        while (outer := _outer(trace, pending[-1])) is not None and outer.id not in groups:
            pending.append(outer)
        for inner in reversed(pending):
            outer = _outer(trace, inner)
            name = inner.path.removeprefix(f"{outer.path}.") if outer else inner.path
            # A slash would open one more group, so a division slash replaces it.
            name = _short(f"{name} {inner.type}".strip()).replace("/", "∕")
            around = groups[outer.id] if outer else ""
            groups[inner.id] = around if len(around) > MAX_PATH else "/".join(filter(None, (around, name)))
    return groups


def _outer(trace: Trace, module: Module) -> Module | None:
    return None if module.parent is None else trace.module_by_id[module.parent]


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _namespace(phase: str, module: str, groups: dict[str, str]) -> str:
    return f"{phase}/{groups[module]}" if groups[module] else phase


def _leaf_node(trace: Trace, tensor: Tensor, groups: dict[str, str]) -> Json:
    return {
        "id": tensor.id,
        "label": tensor.name,
        "namespace": _namespace("backward" if tensor.role == "gradient" else "forward", tensor.module, groups),
        "attrs": _attributes({"role": tensor.role}),
        "incomingEdges": [],
        "inputsMetadata": [],
        "outputsMetadata": [_output(trace, tensor.id, 0)],
    }


def _op_node(
    trace: Trace, op: Op, groups: dict[str, str], sources: dict[str, tuple[str, str]], saved: list[str]
) -> Json:
    about: Json = {"phase": op.phase, "flops": op.flops, "bytes": op.bytes}
    if op.twin is not None:
        about["twin"] = op.twin
    if op.source:
        about["source"] = f"{op.source.file}:{op.source.line} {op.source.text}"
    if saved:
        more = [f"… ({len(saved)} in all)"] if len(saved) > MAX_LISTED else []
        about["saved for backward"] = ", ".join(saved[:MAX_LISTED] + more)
    if trace.error is not None and trace.error.op == op.id:
        about["error"] = trace.error.message
    return {
        "id": op.id,
        "label": op.name,
        "namespace": _namespace(op.phase, op.module, groups),
        "attrs": _attributes(about | {f"attribute {key}": value for key, value in op.attributes.items()}),
        "incomingEdges": [
            {
                "sourceNodeId": sources[tensor][0],
                "sourceNodeOutputId": sources[tensor][1],
                "targetNodeInputId": str(place),
            }
            for place, tensor in enumerate(op.inputs)
        ],
        "inputsMetadata": [
            {"id": str(place), "attrs": _attributes({"name": _short(trace.tensor_by_id[tensor].name)})}
            for place, tensor in enumerate(op.inputs)
        ],
        "outputsMetadata": [_output(trace, tensor, place) for place, tensor in enumerate(op.outputs)],
    }


def _output(trace: Trace, tensor_id: str, place: int) -> Json:
    tensor = trace.tensor_by_id[tensor_id]
    about: Json = {
        "name": tensor.name,
        "role": tensor.role,
        "tensor_shape": f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]",
    }
    if tensor_id in trace.statistics:
        row = trace.statistics[tensor_id]
        moments = {"mean": row.mean, "std": row.std, "min": row.min, "max": row.max}
        about |= {key: f"{value:.4g}" for key, value in moments.items() if value is not None}
        about |= {key: count for key, count in (("NaN", row.nan), ("Inf", row.posinf + row.neginf)) if count}
    return {"id": str(place), "attrs": _attributes(about)}


def _attributes(values: Json) -> list[dict[str, str]]:
    return [{"key": key, "value": str(value)} for key, value in values.items()]


# -------------------------------------------------------------------- node data

GRADIENT = ("#fdf7e6", "#f3c66b", "#d9822b", "#8a3ca5")
"""From the least value to the greatest; the lightness is monotonic, so it is readable without hue."""

NODE_STATISTICS: Mapping[str, str] = {
    "std": "Standard deviation.",
    "mean": "Mean.",
    "norm": "L2 norm.",
    "gradient_norm": "L2 norm of the gradient of the loss.",
    "dead_fraction": "Share of units not above zero for the whole batch.",
    "nan": "Values that are NaN.",
    "time": "Duration in µs.",
    "flops": "Floating point operations.",
    "bytes": "Bytes read plus written.",
}
"""The statistics of nodes, each with its meaning."""


def to_node_data(trace: Trace, statistic: str) -> Json:
    """One of NODE_STATISTICS for every node of `to_model_explorer` that has it, as Model Explorer's node data.

    An op has the statistic of its first output that has one.
    """
    values: dict[str, float | None]
    if statistic == "time":
        values = dict(zip((op.id for op in trace.ops), trace.timing.get("op_us") or (), strict=False))
    elif statistic in ("flops", "bytes"):
        values = {op.id: getattr(op, statistic) for op in trace.ops}
    else:
        made = {output for op in trace.ops for output in op.outputs}
        tensors = _tensor_statistics(trace, statistic)
        values = {tensor: value for tensor, value in tensors.items() if tensor not in made}
        values |= {op.id: next((tensors[each] for each in op.outputs if each in tensors), None) for op in trace.ops}
    stops = [{"stop": place / (len(GRADIENT) - 1), "bgColor": colour} for place, colour in enumerate(GRADIENT)]
    results = {node: {"value": value} for node, value in values.items() if value is not None}
    return {GRAPH: {"results": results, "gradient": stops}}


def _tensor_statistics(trace: Trace, statistic: str) -> dict[str, float]:
    """A statistic of the tensors that have it, by id; `gradient_norm` is the norm of a tensor's gradient."""
    of = {tensor.id: tensor.id for tensor in trace.tensors}
    if statistic == "gradient_norm":
        # If a gradient was accumulated, the last tensor is the sum.
        gradients = {tensor.gradient_of: tensor.id for tensor in trace.tensors if tensor.gradient_of is not None}
        of = {each.id: each.id if each.role == "gradient" else gradients.get(each.id, "") for each in trace.tensors}
        statistic = "norm"
    rows = {tensor: trace.statistics[other] for tensor, other in of.items() if other in trace.statistics}
    figures = {tensor: getattr(row, statistic) for tensor, row in rows.items()}
    return {tensor: float(value) for tensor, value in figures.items() if value is not None}
