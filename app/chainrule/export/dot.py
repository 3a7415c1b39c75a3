"""A trace as a Graphviz graph: `chainrule trace --format dot | dot -Tsvg`.

Ops are boxes, tensors ellipses, modules nested clusters. Blue is the forward pass, red the backward pass, yellow a
parameter; dashed lines lead from saved tensors to the backward op that reads them. Forward runs from left to right,
backward from right to left.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from chainrule.trace.graph import Module, Op, Tensor, Trace

FORWARD, BACKWARD, PARAMETER, SAVED = "#1f77b4", "#d62728", "#b58900", "#888888"

LINE_BREAK = re.compile(r"\r\n|\r|\n")
IMPOSSIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
"""Characters that Graphviz's output, XML for example, cannot hold."""


def to_dot(trace: Trace) -> str:
    """The graph in Graphviz' language, one statement per line."""
    made = {output for op in trace.ops if op.phase == "backward" for output in op.outputs}
    # The tensors that the backward pass makes, and its first gradient.
    backward = made | {tensor.id for tensor in trace.tensors if tensor.role == "gradient"}
    lines = [
        "digraph trace {",
        "rankdir=LR;",
        'node [fontname="sans-serif", fontsize=10];',
        'edge [arrowsize=0.6, color="#555555"];',
        *_clusters(trace, backward),
        *_edges(trace, backward),
        "}",
    ]
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    r"""A quoted string that Graphviz shows as `text`.

    Inside quotes only `\"` is an escape, but labels give a backslash a meaning of its own (`\N` is the node's name), so
    each is doubled; `&` would begin an entity. Line breaks become `\n`; IMPOSSIBLE characters become U+FFFD.
    """
    escaped = IMPOSSIBLE.sub("\ufffd", text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + LINE_BREAK.sub(r"\\n", escaped) + '"'


def _clusters(trace: Trace, backward: set[str]) -> Iterator[str]:
    """Every node inside its module's cluster. Written without recursion: hierarchies may be deep."""
    children: defaultdict[str | None, list[Module]] = defaultdict(list)
    for module in trace.modules:
        children[module.parent].append(module)
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for op in trace.ops:
        nodes[op.module].append(_op_node(trace, op))
    for tensor in trace.tensors:
        color = PARAMETER if tensor.role == "parameter" else BACKWARD if tensor.id in backward else FORWARD
        nodes[tensor.module].append(_tensor_node(trace, tensor, color))

    open_clusters: list[Iterator[Module]] = [iter(children[None])]
    while open_clusters:
        for module in open_clusters[-1]:
            yield f"subgraph {quote('cluster_' + module.id)} {{"
            yield f'label={quote(_module_label(module))}; fontname="sans-serif"; fontsize=10; color="#bbbbbb";'
            yield from nodes[module.id]
            open_clusters.append(iter(children[module.id]))
            break
        else:
            open_clusters.pop()
            if open_clusters:
                yield "}"


def _edges(trace: Trace, backward: set[str]) -> Iterator[str]:
    """The edges of reads, writes and saved tensors.

    Edges of the backward pass are written in reverse, with the arrow at the tail: Graphviz then lays the pass out from
    right to left. Edges from the forward to the backward pass do not affect the layout.
    """
    for op in trace.ops:
        for tensor in op.inputs:
            if op.phase == "forward":
                yield f"{quote(tensor)} -> {quote(op.id)};"
            elif tensor in backward:
                yield f"{quote(op.id)} -> {quote(tensor)} [dir=back];"
            else:
                yield f"{quote(tensor)} -> {quote(op.id)} [constraint=false];"
        for tensor in op.outputs:
            if op.phase == "forward":
                yield f"{quote(op.id)} -> {quote(tensor)};"
            else:
                yield f"{quote(tensor)} -> {quote(op.id)} [dir=back];"
    backward_of = {op.twin: op.id for op in reversed(trace.ops) if op.twin is not None}
    for saved in trace.saved:
        reader = backward_of.get(saved.op, saved.op)
        yield f'{quote(saved.tensor)} -> {quote(reader)} [style=dashed, color="{SAVED}", constraint=false];'


def _op_node(trace: Trace, op: Op) -> str:
    color = FORWARD if op.phase == "forward" else BACKWARD
    failed = trace.error is not None and trace.error.op == op.id
    style = "filled" if failed else "solid"
    where = f"{op.source.file}:{op.source.line}\n{op.source.text}" if op.source else op.name
    return (
        f'{quote(op.id)} [shape=box, style={style}, color="{color}", fillcolor="#ffcccc", '
        f"label={quote(op.name)}, tooltip={quote(where)}];"
    )


def _tensor_node(trace: Trace, tensor: Tensor, color: str) -> str:
    label = f"{tensor.name}\n{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
    if tensor.id in trace.statistics:
        row = trace.statistics[tensor.id]
        if row.mean is not None and row.std is not None:
            label += f"\nmean {row.mean:.3g}, std {row.std:.3g}"
        if row.n and (bad := row.nan + row.posinf + row.neginf):
            label += f"\n{bad} of {row.n} not finite"
    return f'{quote(tensor.id)} [shape=ellipse, color="{color}", label={quote(label)}, tooltip={quote(tensor.role)}];'


def _module_label(module: Module) -> str:
    return f"{module.path} {module.type}".strip()
