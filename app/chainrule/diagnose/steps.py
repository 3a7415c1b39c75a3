"""The forward pass as steps on the path of the signal: the effect of each op, without the parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from chainrule.trace import ops
from chainrule.trace.graph import Module, Op, Tensor

Does = Literal["embeds", "normalizes", "weighs", "gates", "joins", "scales", "cuts", "passes"]

CUTS = frozenset(("detach", "detach_", "data"))
"""Ops that always cut the graph."""

_NORMALIZES = frozenset("layer_norm batch_norm group_norm instance_norm rms_norm local_response_norm normalize".split())
_NORMALIZATION = re.compile(r"Norm(alization)?(Act)?(\d[dD])?$")
_EMBEDS = frozenset(("embedding", "embedding_bag"))
_GATES = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell multi_head_attention_forward".split())
_JOINS = frozenset(("cat", "concat", "stack"))
_SCALES = frozenset(("mul", "mul_"))


@dataclass(frozen=True, slots=True)
class Step:
    """A forward op with the ids of its inputs and outputs, without parameters and tensors that depend only on them.

    `weight`: the parameter with which it weighs, scales or normalizes. An op that gates stands for several layers.
    """

    op: str
    does: Does
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    weight: str | None


def steps_of(modules: Iterable[Module], tensors: Mapping[str, Tensor], forward: Sequence[Op]) -> list[Step]:
    """The steps of a pass, in order of execution."""
    # A parameter, or a tensor computed only from parameters → the parameter.
    base = {each.id: each.id for each in tensors.values() if each.role == "parameter"}
    still = {each.id for each in tensors.values() if each.role in ("buffer", "constant")}
    types = {module.id: module.type for module in modules}
    found = []
    for op in forward:
        reads = tuple(each for each in op.inputs if each not in base and each not in still)
        parameters = [base[each] for each in op.inputs if each in base]
        if not reads and op.name not in ops.LINEAR:
            if parameters:
                base.update(dict.fromkeys(op.outputs, parameters[0]))
            else:
                still.update(op.outputs)
            continue
        # The others are biases.
        weight = max(parameters, key=lambda each: len(tensors[each].shape), default=None)
        does = _does(op.name, types[op.module], weight)
        # Learned queries are a parameter that is weighed.
        found.append(Step(op.id, does, reads or op.inputs[:1], op.outputs, weight))
    return found


def _does(name: str, module: str, weight: str | None) -> Does:
    if name in _EMBEDS:
        return "embeds"
    if name in _NORMALIZES or _NORMALIZATION.search(module):
        return "normalizes"
    if name in CUTS:
        return "cuts"
    if name in _GATES:
        return "gates"
    if name in _JOINS:
        return "joins"
    if weight is not None and name in ops.LINEAR:
        return "weighs"
    return "scales" if weight is not None and name in _SCALES else "passes"
