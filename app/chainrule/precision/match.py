"""Matches the tensors of two traces of one model, as `static/core/lab/match.js` does for the page.

Ops match by phase, module path, name and occurrence, backward ops through their forward ops. So an op that only one
trace has, such as the cast of autocast, shifts nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from chainrule.trace.compiled import Written
from chainrule.trace.graph import Op, Tensor, Trace

T = TypeVar("T", Op, Tensor)


def matched_tensors(a: Trace, b: Trace, written: Mapping[str, tuple[Written, int]] | None = None) -> dict[str, str]:
    """Id of a tensor of `b` → id of the same tensor of `a`, of the same shape.

    `written`: if `b` ran compiled, id of its tensors → the op that has this output in `a`, see `Tracer.written`.
    """
    ops = {} if written is not None else _matched_ops(a, b)
    of_a = {op.id: op for op in a.ops}
    found: dict[str, str] = {} if written is None else _as_written(a, b, written)

    casts: dict[str, str] = {}
    for op in b.ops:
        if op.id not in ops:
            continue
        others = of_a[ops[op.id]].outputs
        for mine, other in zip(op.outputs, others, strict=False):
            here, there = b.tensor_by_id[mine], a.tensor_by_id[other]
            if here.shape != there.shape or (here.role == "saved" and len(others) != len(op.outputs)):
                continue
            # A gradient belongs to the tensor that it is the gradient of, whichever op makes it.
            if here.gradient_of is None and there.gradient_of is None:
                found[mine] = other
            elif here.gradient_of is None:  # autocast casts it afterwards
                casts[mine] = other

    def leaf(tensor: Tensor) -> object:
        is_leaf = tensor.producer is None and tensor.gradient_of is None
        return (tensor.role, tensor.name) if is_leaf else None

    def pair(key_a: Callable[[Tensor], object], key_b: Callable[[Tensor], object]) -> None:
        taken = set(found.values())
        open_a = (each for each in a.tensors if each.id not in taken)
        open_b = (each for each in b.tensors if each.id not in found)
        pairs = _paired(open_a, open_b, key_a, key_b)
        for here, there in pairs.items():
            if b.tensor_by_id[here].shape == a.tensor_by_id[there].shape:
                found[here] = there

    pair(leaf, leaf)
    pair(lambda each: each.gradient_of, lambda each: found.get(each.gradient_of or ""))
    return casts | found


def _as_written(a: Trace, b: Trace, written: Mapping[str, tuple[Written, int]]) -> dict[str, str]:
    paths = {module.id: module.path for module in a.modules}
    outputs: dict[Written, list[str]] = defaultdict(list)
    for op in a.ops:
        if op.phase == "forward" and op.outputs:
            outputs[paths[op.module], op.name].append(op.outputs[0])
    found = {}
    for here, (op_written, number) in written.items():
        there = outputs[op_written][number : number + 1]
        if there and _same_rows(a.tensor_by_id[there[0]].shape, b.tensor_by_id[here].shape):
            found[here] = there[0]
    return found


def _same_rows(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether the shapes are equal, except that a compiler may merge leading dimensions."""
    return a[-1:] == b[-1:] and math.prod(a) == math.prod(b)


def _matched_ops(a: Trace, b: Trace) -> dict[str, str]:
    def forward(trace: Trace, *, phase: str = "forward") -> Callable[[Op], object]:
        path = {module.id: module.path for module in trace.modules}
        return lambda op: (path[op.module], op.name) if op.phase == phase and op.twin is None else None

    ops = _paired(a.ops, b.ops, forward(a), forward(b))
    ops |= _paired(
        a.ops,
        b.ops,
        lambda op: None if op.twin is None else (op.twin, op.name),
        lambda op: (ops[op.twin], op.name) if op.twin in ops else None,
    )
    return ops | _paired(a.ops, b.ops, forward(a, phase="backward"), forward(b, phase="backward"))


def _paired(
    a: Iterable[T], b: Iterable[T], key_a: Callable[[T], object], key_b: Callable[[T], object]
) -> dict[str, str]:
    """Pairs the first of `b` with a key with the first of `a` with this key, and so on; None is no key."""
    waiting: Mapping[object, deque[str]] = defaultdict(deque)
    for each in a:
        waiting[key_a(each)].append(each.id)
    keys = ((each.id, key_b(each)) for each in b)
    return {id_: waiting[key].popleft() for id_, key in keys if key is not None and waiting.get(key)}
