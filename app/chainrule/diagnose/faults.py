"""Faults of a pass: the first things to look for if a net does not train.

    failed           the op that raised, and its message
    in_place         an op that overwrites a tensor that another op has saved for its backward
    first_nonfinite  the first tensor with NaN or ±Inf; later ones follow from it and are not listed
    wrong_backward   a custom Function whose backward is not the derivative of its forward (`backward_check`)
    unregistered     parameters that the model uses but does not register: layers in a plain list
    detach           an op at which the graph is cut, so that parameters before it get no gradient
    no_gradient      parameters without a gradient: unused, detached, frozen, or without a path (`no_gradient`)
    no_optimizer …   six kinds that break a training although every number of the pass is right (`training`)
    exploding, vanishing, gradient_drop, dead, saturated    layers that are unhealthy (`verdicts`)

Normal events of a correct net are not faults: a mask of -Inf that a softmax absorbs, 40 % of dead units in a deep relu
net, a branch whose gradient is small compared with the gradient of its residual.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from chainrule.diagnose.evidence import Evidence, KnownParameter
from chainrule.diagnose.no_gradient import NO_GRAPH, parameters, without_gradient
from chainrule.diagnose.passes import Passes, at_line
from chainrule.diagnose.rules import FAULT_RULES
from chainrule.diagnose.steps import CUTS
from chainrule.diagnose.training import training_faults
from chainrule.diagnose.verdicts import figure, layer_faults, nonfinite_layers
from chainrule.trace import ops
from chainrule.trace.graph import Fault, FaultKind, Op, Tensor, Trace

__all__ = ["Evidence", "Fault", "KnownParameter", "find_faults", "with_faults", "with_rule"]

MAX_OF_A_KIND = 8
"""At most this many faults of one kind are listed; the last one says how many more there are."""

WEIGHS_OR_BENDS = ops.LINEAR | ops.ACTIVATIONS

MADE_UNINITIALIZED = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"))
"""Ops whose output is uninitialized memory."""

WRITTEN_IN_PART = frozenset(("all_gather_copy_in", "all_gather", "split_with_sizes_copy"))
"""Ops of sharded training that write into such memory; they may leave a part of it unwritten for now."""

OVERWRITES = frozenset("copy_ zero_ fill_ random_ bernoulli_ exponential_ log_normal_ cauchy_ geometric_".split()) | {
    name for name in vars(nn.init) if name.endswith("_") and not name.startswith("_")
}
"""Ops that write all of their first argument and read none of it."""

REMOVES_INFINITY = frozenset(
    "nan_to_num nan_to_num_ where masked_fill masked_fill_ masked_select getitem setitem_ isfinite isinf isnan".split()
)
"""Ops that remove Inf, or leave it out of their result."""


def find_faults(trace: Trace, evidence: Evidence | None = None, *, goes_back: bool = False) -> tuple[Fault, ...]:
    """The faults of a recorded pass, the most urgent first; empty if it is healthy.

    Args:
        trace: the pass; gradients are compared between its `layers`.
        evidence: facts about the model; without them, parameters without a gradient are not found.
        goes_back: the pass should have a backward pass, so a missing one is a fault.
    """
    passes = Passes(trace) if evidence is None else evidence.passes(trace)
    found = [
        *_failed(passes, evidence),
        *_written_behind_autograd(passes),
        *_first_nonfinite(passes),
        *(evidence.functions if evidence is not None else ()),
        *(_unregistered(passes, evidence.unregistered) if evidence is not None else ()),
        *(passes.once(without_gradient, evidence, goes_back) if evidence is not None else ()),
        *training_faults(passes, evidence or Evidence()),
        *layer_faults(passes),
    ]
    found.sort(key=lambda fault: fault.level != "fault")
    return tuple(with_rule(fault) for fault in _limited(found))


def with_faults(trace: Trace, evidence: Evidence | None = None, *, goes_back: bool = False) -> Trace:
    """The trace with its faults (see `find_faults`), and with the op of its error if only the faults name it.

    Autograd does not say which op's backward raised.
    """
    faults = find_faults(trace, evidence, goes_back=goes_back)
    error = trace.error
    if error is not None and error.op is None:
        found = next((fault.op for fault in faults if fault.kind == "failed"), None)
        error = dataclasses.replace(error, op=found)
    return dataclasses.replace(trace, faults=faults, error=error)


def with_rule(fault: Fault) -> Fault:
    """The fault with the rule of its kind, unless the fault has a rule of its own."""
    rule = None if fault.rule is not None else FAULT_RULES.get(fault.kind)
    return fault if rule is None else dataclasses.replace(fault, rule=f"{rule.rule} ({rule.source})")


def _limited(faults: Sequence[Fault]) -> list[Fault]:
    total, told = Counter(fault.kind for fault in faults), Counter[FaultKind]()
    kept = []
    for fault in faults:
        told[fault.kind] += 1
        left = total[fault.kind] - MAX_OF_A_KIND
        if told[fault.kind] == MAX_OF_A_KIND and left > 0:
            fault = dataclasses.replace(fault, message=f"{fault.message} (and {left} more of this kind)")
        if told[fault.kind] <= MAX_OF_A_KIND:
            kept.append(fault)
    return kept


def _failed(passes: Passes, evidence: Evidence | None) -> list[Fault]:
    error = passes.trace.error
    if error is None:
        return []
    op = passes.op(error.op) if error.op is not None else None
    remedy = None
    more: list[Fault] = []
    if "modified by an inplace operation" in error.message:
        culprits = _overwritten(passes)
        if culprits:
            # If there are several, autograd reached the last one first.
            writer, keeper, tensor = max(culprits, key=lambda each: passes.place[each[1].id])
            op = op or keeper
            name, plain = passes.tensors[tensor].name, writer.name.rstrip("_")
            message = (
                f"{writer.name} changes {name} in place, but {keeper.name}{at_line(keeper)} saved it for its backward"
            )
            remedies = (
                f"Use {plain} instead of {writer.name} (in a module: inplace=False), or change a clone of {name}."
            )
            remedies = f"Write into a clone of {name}." if plain == "setitem" else remedies
            more.append(passes.fault("in_place", message, writer, tensor, remedies))
    elif "is being used in an in-place operation" in error.message:
        remedy = "Write into the tensor under torch.no_grad(), or create a new tensor."
        tensor_id = op.inputs[0] if op is not None and op.inputs else None
        message = f"{op.name if op is not None else 'an op'} writes into a tensor that requires grad, or into its view"
        more.append(passes.fault("in_place", message, op, tensor_id, remedy))
    elif NO_GRAPH in error.message:
        remedy = (
            "The loss depends on no tensor that requires grad: it was detached, computed under torch.no_grad(), or "
            "computed by an op without a derivative."
        )
        known = passes.once(without_gradient, evidence) if evidence is not None else ()
        op = next((passes.op(each.op) for each in known if each.op is not None), None)
        # Without known parameters the cut is a guess: the last detach may have nothing to do with the loss.
        cut = next((each for each in reversed(passes.forward) if each.name in CUTS), None) if not known else None
        if cut is not None:
            message = f"{cut.name} cuts the graph, and no other path leads back from the loss"
            more.append(passes.fault("detach", message, cut, cut.outputs[0], f"Remove {cut.name}."))
    elif op is None and "backward through the graph a second time" not in error.message:
        op = _broken_off_at(passes)
    return [passes.fault("failed", error.message, op, None, remedy), *more]


def _broken_off_at(passes: Passes) -> Op | None:
    """The forward op whose backward raised; None if that is unknown.

    Autograd goes back in order: the backward that raised belongs to the last op that received a gradient and sent none.
    """
    if not passes.has_backward:
        return None
    sent_back = {each for op in passes.forward if op.id in passes.twins for each in op.inputs}
    waiting = [
        op
        for op in passes.forward
        if op.id not in passes.twins and op.id in passes.savers and any(each in sent_back for each in op.outputs)
    ]
    return waiting[-1] if waiting else None


def _written_to(passes: Passes, op: Op) -> tuple[str, bool] | None:
    """The tensor that an in-place op has changed, seen through all views, and whether it did so through .data.

    None for other ops.
    """
    if not op.name.endswith("_") or op.name.endswith("__") or not op.inputs or not op.outputs:
        return None
    tensor, hidden = op.inputs[0], False
    while True:
        maker = passes.maker(tensor)
        if maker is None or maker.name not in ops.VIEWS | {"data", "getitem", "select", "narrow", "chunk", "split"}:
            return tensor, hidden
        hidden = hidden or maker.name == "data"
        tensor = maker.inputs[0]


def _overwritten(passes: Passes) -> list[tuple[Op, Op, str]]:
    """In-place ops that changed a tensor which an earlier op keeps for its backward: (writer, keeper, tensor)."""
    found = []
    for writer in passes.forward:
        tensor, _ = _written_to(passes, writer) or ("", False)
        for keeper in passes.keepers.get(tensor, ()):
            if passes.place[keeper.id] < passes.place[writer.id] and keeper.id not in passes.twins:
                found.append((writer, keeper, tensor))
    return found


def _written_behind_autograd(passes: Passes) -> list[Fault]:
    """Ops that change a tensor through .data before a backward reads it: the gradient is wrong without an error."""
    if not any(op.name == "data" for op in passes.forward):
        return []
    faults = []
    for writer in passes.forward:
        tensor, hidden = _written_to(passes, writer) or ("", False)
        for keeper in passes.keepers.get(tensor, ()) if hidden else ():
            if passes.place[keeper.id] < passes.place[writer.id] < passes.twins.get(keeper.id, -1):
                name = passes.tensors[tensor].name
                message = (
                    f"{writer.name} changes {name} through .data after {keeper.name}{at_line(keeper)} saved it for its "
                    "backward: the gradient is computed from the changed values, and autograd does not notice"
                )
                remedy = "Create a new tensor, or write under torch.no_grad() without .data: autograd notices that."
                faults.append(passes.fault("in_place", message, writer, tensor, remedy))
                break
    return faults


def _unregistered(passes: Passes, found: Sequence[str]) -> list[Fault]:
    """Trainable parameters that are missing in `model.parameters()`."""
    # A frozen teacher may be kept in a list on purpose: no gradient reaches it.
    would = (each for each in found if each in passes.reached or not passes.has_backward)
    # A parameter among the model's arguments, such as an image that is optimized, is an input.
    used = [each for each in map(passes.tensors.get, would) if each is not None and each.role == "parameter"]
    if not used:
        return []
    op = next((passes.op(each) for tensor in used for each in tensor.consumers), None)
    are, them = ("are", "them") if len(used) > 1 else ("is", "it")
    message = (
        f"this pass uses {parameters(len(used))} that {are} missing from model.parameters(): an optimizer of "
        f"model.parameters() never changes {them}"
    )
    remedy = (
        "Parameters in a plain list or dict, or created in forward, are not registered. Keep layers in nn.ModuleList "
        "or nn.ModuleDict and tensors in nn.ParameterList, and create them in __init__."
    )
    return [passes.fault("unregistered", message, op, used[0].id, remedy)]


def _first_nonfinite(passes: Passes) -> list[Fault]:
    table = passes.trace.statistics
    counts = {name: table.column(name) for name in ("nan", "posinf", "neginf")}
    rows = np.flatnonzero(counts["nan"] + counts["posinf"] + counts["neginf"])
    if not rows.size:
        return []
    bad = {table.tensors[row]: int(row) for row in rows}
    excused = _on_purpose(passes, bad, counts)
    first = next((passes.tensors[each] for each in bad if each not in excused), None)
    if first is None:
        return []
    row, n = bad[first.id], table.column("n")[bad[first.id]]
    nan, infinite = counts["nan"][row], counts["posinf"][row] + counts["neginf"][row]
    parts = [f"{_share(count, n)} {word}" for word, count in (("NaN", nan), ("Inf", infinite)) if count]
    message = f"{first.name} is the first tensor that is not finite: {', '.join(parts)}"
    op = passes.maker(first.id)
    remedy = None
    if op is None:
        if first.role in ("parameter", "buffer"):
            op = next(iter(passes.forward_readers(first.id)), None)
            message = f"{first.name} is not finite before the pass begins: {', '.join(parts)}"
            remedy = "Look at the previous step: the optimizer may have written these values."
        else:
            message += f". No op of the pass computed it: it is given as {first.role}"
    else:
        reads = [each for each in op.inputs if each in table and each not in bad]
        found = [end for each in reads for end in (table[each].min, table[each].max)]
        ends = [end for end in found if end is not None] or [0.0]
        largest = max(map(abs, ends))
        masked = [each for each in op.inputs if each in bad]
        if masked:
            names = ", ".join(passes.tensors[each].name for each in masked)
            message += f". {op.name} computed it from {names} (Inf on purpose)"
            if "softmax" in op.name:
                remedy = "The softmax of a row is undefined if all its elements are masked: leave one unmasked."
        elif "ranks" in op.attributes:
            message += f". {op.name} received it from another rank: all that this rank sent is finite"
            remedy = "Open the dumps of all ranks together, to see where it began: chainrule open step.rank*.json"
        elif reads:
            message += f". {op.name} computed it from finite values between {figure(min(ends))} and {figure(max(ends))}"
        if remedy is None:
            remedy = _overflow_remedy(op, first, largest)
    fault = passes.fault("first_nonfinite", message, op, first.id, remedy)
    return [dataclasses.replace(fault, layers=nonfinite_layers(passes))]


def _overflow_remedy(op: Op, tensor: Tensor, largest: float) -> str | None:
    if tensor.dtype == "float16" and largest > 1:
        return "The largest float16 number is 65504: scale the loss, run this op in float32, or use bfloat16."
    if largest > 1e15:
        return "The values grow from layer to layer: use a smaller initialization or a normalization."
    name = re.sub(r"backward\d*$", "", op.name.lower())
    if name not in ("log", "sqrt", "rsqrt", "div", "rdiv", "pow", "reciprocal", "log2", "log10", "log1p"):
        return None
    remedy = f"Keep the input of {name} away from 0: clamp it, or add a small constant."
    if op.phase == "backward":
        remedy += f" A torch.where after {name} does not help: its backward multiplies 0 by Inf, which is NaN."
    return remedy


def _on_purpose(passes: Passes, bad: Mapping[str, int], counts: Mapping[str, Any]) -> frozenset[str]:
    """The non-finite tensors that are not a fault: infinite by design (a mask), removed NaN, or uninitialized memory.

    Infinite by design are constants, tensors that an op fills with an infinite number, sums of two masks, and results
    of such tensors if they are harmless, that is, if the ops that read them return finite results. Three kinds count
    only if they are harmless: inputs, NaN outside parameters and gradients (see `_is_removed`), and Inf that all
    reading ops leave out. A tensor that an op saves for its backward, such as the -Inf of ctc_loss, is never a fault:
    any harm shows in the results of the op.
    """
    purpose: set[str] = set()
    removed: set[str] = set()
    said: set[str] = set()
    unwritten: set[str] = set()
    for identifier, row in bad.items():
        tensor = passes.tensors[identifier]
        op = passes.maker(identifier)
        if op is None:
            is_unwritten = _is_overwritten(passes, identifier)
        else:
            # Uninitialized, or a view of such memory, or written to in part.
            is_view = op.name in ops.VIEWS | WRITTEN_IN_PART or op.name.endswith("_") or op.name == "getitem"
            # FSDP frees memory and allocates it again, and looks at it before it is written.
            is_fsdp = passes.trace.module_by_id[op.module].type == "FSDP" and op.name in ("view", "split")
            is_unwritten = op.name in MADE_UNINITIALIZED or is_fsdp
            is_unwritten = is_unwritten or (is_view and not unwritten.isdisjoint(op.inputs))
        if is_unwritten:
            unwritten.add(identifier)
        elif tensor.role == "saved":
            said.add(identifier)
            purpose.add(identifier)
        elif tensor.role == "gradient" or (op is None and tensor.role == "parameter"):
            pass
        elif counts["nan"][row]:
            if op is None or op.phase == "forward":
                purpose.add(identifier)
                removed.add(identifier)
        elif op is None:
            if tensor.role in ("constant", "buffer") or (tensor.role == "input" and not counts["posinf"][row]):
                purpose.add(identifier)
            if tensor.role in ("constant", "buffer"):
                said.add(identifier)
        elif op.phase == "forward" and op.name not in WEIGHS_OR_BENDS:
            made = [each for each in op.inputs if each in purpose]
            if _names_infinity(op.attributes):
                purpose.add(identifier)
                said.add(identifier)
            elif made or (not counts["posinf"][row] and (op.name == "log" or _adds_masks(passes, op))):
                purpose.add(identifier)
                if any(each in said for each in made):
                    said.add(identifier)
            elif _leave_out(passes.forward_readers(identifier), bad):
                purpose.add(identifier)
                removed.add(identifier)
        if len(purpose) == len(said) and identifier not in purpose and identifier not in unwritten:
            # This tensor is the fault and no earlier one is in doubt: the rest follows from it.
            return frozenset(said | unwritten)
    harmless: set[str] = set()
    for identifier in reversed(list(bad)):
        if identifier in removed:
            if _is_removed(passes, identifier, bad, harmless):
                harmless.add(identifier)
        elif identifier in purpose and passes.tensors[identifier].role != "loss":
            made_of_it = [each for op in passes.forward_readers(identifier) for each in op.outputs]
            if all(each not in bad or each in harmless for each in made_of_it):
                harmless.add(identifier)
    # A tensor filled with Inf is always excused; the fault is the op that turns it into NaN.
    return frozenset((purpose & harmless) | said | unwritten)


def _leave_out(readers: Sequence[Op], bad: Mapping[str, int]) -> bool:
    """Whether all of these ops remove Inf; tanh does not count, although it turns an overflow into 1."""
    return bool(readers) and all(op.name in REMOVES_INFINITY and bad.keys().isdisjoint(op.outputs) for op in readers)


def _is_removed(passes: Passes, identifier: str, bad: Mapping[str, int], harmless: set[str]) -> bool:
    """Whether NaN or Inf in a tensor is harmless: it does not reach the loss, or all its readers return finite values.

    Two kinds of ops return finite values and still do harm: `.long()` and `argmax`, whose integers then mean nothing,
    and `torch.where` after 0 / 0, because the gradient of the quotient is still NaN. A later pass may read a tensor
    that is written in place.
    """
    leads, op = passes.leads_to_gradient, passes.maker(identifier)
    if leads and identifier not in leads:
        return op is None or not op.name.endswith("_")
    readers = [each for each in passes.forward_readers(identifier) if not leads or not leads.isdisjoint(each.outputs)]
    made_of_it = [each for reader in readers for each in reader.outputs]
    integers = {each for each in made_of_it if "int" in passes.tensors[each].dtype}
    if not (bad.keys() & made_of_it <= harmless and integers.isdisjoint(leads or integers)):
        return False
    back = [each.id for each in (*readers, op) if each is not None and each.id in passes.twins]
    received = {each: passes.ops[passes.twins[each]].inputs for each in back}
    if any(bad.keys().isdisjoint(received[each]) > bad.keys().isdisjoint(passes.sent_back[each]) for each in back):
        return False
    return bool(made_of_it)


def _is_overwritten(passes: Passes, identifier: str) -> bool:
    """Whether the first op that reads a tensor overwrites it, like the weight of a lazy module; `mul_` reads it too."""
    first = next(iter(passes.forward_readers(identifier)), None)
    if first is None:
        return False
    if first.name == "_foreach_copy_":
        return identifier in first.inputs[: len(first.inputs) // 2]
    if first.inputs[0] != identifier:
        return first.name == "split_with_sizes_copy"  # it writes all but its first argument
    views = first.outputs if first.name in ops.VIEWS else ()
    return first.name in OVERWRITES or any(_is_overwritten(passes, each) for each in views)


def _adds_masks(passes: Passes, op: Op) -> bool:
    """Whether an op adds to a mask that is filled with the smallest number of its dtype, in place of -Inf."""
    table = passes.trace.statistics
    added = [passes.tensors[each] for each in op.inputs if each in table and "float" in passes.tensors[each].dtype]
    return op.name in ("add", "add_") and any(
        (table[each.id].min or 0) <= torch.finfo(getattr(torch, each.dtype)).min / 2 for each in added
    )


def _names_infinity(attributes: Mapping[str, Any]) -> bool:
    return any(
        each in ("inf", "-inf")
        for value in attributes.values()
        for each in (value if isinstance(value, list) else [value])
    )


def _share(count: float, n: float) -> str:
    return "all" if count == n else f"{figure(100 * count / n)} %" if count / n >= 1e-4 else f"{count:.0f} of {n:.0f}"
