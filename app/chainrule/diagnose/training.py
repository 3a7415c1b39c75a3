"""Faults that break a training although every number of the pass is correct.

no_optimizer       parameters with a gradient that no optimizer holds
leftover_gradient  gradients of an earlier step, to which this backward pass has added
eval_mode          a batch norm or a dropout in eval mode in a training step
untied             an output layer that copies the embedding's values instead of sharing the parameter
broadcast          (n, 1) and (n,) in the loss, which give n × n differences instead of n
softmax            over the batch instead of the classes, twice, or without the logarithm

The first three need the optimizer: a pass without one may not be a training step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch

from chainrule.diagnose.evidence import Evidence, KnownParameter
from chainrule.diagnose.no_gradient import above, named, parts_of
from chainrule.diagnose.passes import Passes, at_line, reads_only_the_shape
from chainrule.trace import ops
from chainrule.trace.graph import Fault, Op

PAIRWISE = frozenset("sub rsub mul div mse_loss l1_loss smooth_l1_loss huber_loss".split())
"""Ops that compare a prediction with a target, or weight it, element by element."""

SAME_ELEMENTS = ops.VIEWS | {"to", "float", "double", "half", "bfloat16", "type_as", "clone"}
"""Ops that return the same elements, possibly in another shape or dtype."""

SAME_PLACES = frozenset("log neg add sub mul div clamp clamp_min to float double contiguous clone".split())
"""Ops that leave each score in its place, between a softmax and the selection of class scores."""

SIZES = frozenset(("pow", "square", "abs"))

ADDS_AXES = frozenset(("unsqueeze", "getitem"))

SOFTMAX = frozenset(("softmax", "log_softmax"))


def training_faults(passes: Passes, evidence: Evidence) -> tuple[Fault, ...]:
    """The faults of the table above; none for a pass that failed or has no backward pass."""
    if passes.trace.error is not None or not passes.has_backward:
        return ()
    return (*passes.once(_of_the_graph, evidence), *_untied(passes, evidence))


def _of_the_graph(passes: Passes, evidence: Evidence) -> tuple[Fault, ...]:
    """The faults that do not depend on the numbers of the pass."""
    found: tuple[Fault, ...] = (*_broadcast(passes, evidence), *_softmax(passes))
    if evidence.optimized is not None:
        optimized = evidence.optimized
        found = (
            *_no_optimizer(passes, evidence, optimized),
            *_leftover_gradient(passes, evidence, optimized),
            *_in_eval_mode(passes, evidence, _learning(evidence, optimized)),
            *found,
        )
    return found


# ------------------------------------------------------------------------------------------------- with the optimizer


def _no_optimizer(passes: Passes, evidence: Evidence, optimized: frozenset[str]) -> Iterator[Fault]:
    """Trainable parameters have a gradient, but no optimizer holds them. One fault, at the first op that reads one.

    No fault: frozen parameters, and parameters of any given optimizer. In the step of a generator, its discriminator
    looks like a forgotten part, so the remedy names both cases.
    """
    lost = [
        each
        for each in evidence.parameters
        if each.requires_grad and each.path in evidence.received and each.path not in optimized
    ]
    if lost:
        who = named(parts_of(lost, evidence.parameters), lost)
        message = f"{who}: no given optimizer holds {_them(lost)}, so no step changes {_them(lost)}"
        remedy = (
            f"Add {_them(lost)} to the optimizer, or freeze {_them(lost)} with requires_grad_(False). If another "
            f"optimizer holds {_them(lost)}, give the recording a list of all optimizers."
        )
        yield _at_first_reader(passes, "no_optimizer", message, remedy, lost)


def _leftover_gradient(passes: Passes, evidence: Evidence, optimized: frozenset[str]) -> Iterator[Fault]:
    """The backward pass added to gradients from before the recording. One fault, at the first parameter.

    No fault: zero_grad() before the backward pass, with None or with zeros, and the sum of batches in one recording.
    """
    left = evidence.leftover & evidence.received & optimized
    lost = [each for each in evidence.parameters if each.path in left]
    if lost:
        who = named(parts_of(lost, evidence.parameters), lost)
        message = f"{who}: .grad was not 0 before the backward pass, which added to it the gradient of this step"
        remedy = (
            "Call optimizer.zero_grad() before the backward pass. To add up the gradients of several batches on "
            "purpose, record all of them in one block. If another optimizer clears these gradients before its own "
            "step, as in a GAN, record both steps in one block."
        )
        yield _at_first_reader(passes, "leftover_gradient", message, remedy, lost)


def _in_eval_mode(passes: Passes, evidence: Evidence, learning: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of both kinds of layers.

    No fault: a net without a learning parameter, for example if an image is optimized through it.
    """
    both = _batch_norm_in_eval_mode, _dropout_in_eval_mode
    return tuple(fault for find in both for fault in find(passes, evidence, learning)) if learning else ()


def _batch_norm_in_eval_mode(passes: Passes, evidence: Evidence, learning: Sequence[str]) -> Iterator[Fault]:
    """Batch norms used their running statistics in a training step. One fault, at the first.

    No fault: a batch norm that is frozen on purpose (no step changes its own parameters, and the model is in training
    mode); and one that no gradient goes through, for example in a frozen backbone.
    """
    evaluating = evidence.evaluating or {}
    own = {path.rpartition(".")[0] for path in learning}
    paths = {path for path, kind in evaluating.items() if kind == "batch norm" and ("" in evaluating or path in own)}
    found: dict[str, Op] = {}
    for op in passes.forward if paths else ():
        path = passes.trace.module_by_id[op.module].path
        if path in paths and op.name == "batch_norm" and not passes.reached.isdisjoint(op.outputs):
            found.setdefault(path, op)
    if found:
        op, more = next(iter(found.values())), len(found) - 1
        message = (
            f"{next(iter(found))}{_and_more(more)}: batch norm in eval mode during a training step. It normalizes with "
            "its running statistics, which do not change, instead of the statistics of the batch"
        )
        remedy = "Call model.train() before the step. To freeze a batch norm, also freeze its weight and bias."
        yield passes.fault("eval_mode", message, op, op.outputs[0], remedy)


def _dropout_in_eval_mode(passes: Passes, evidence: Evidence, learning: Sequence[str]) -> Iterator[Fault]:
    """Dropouts dropped nothing in a training step. One fault, at the op that made the input of the first.

    Such a dropout is not an op: it returns its input. No fault: a dropout that no gradient goes through; and, if the
    model is in training mode, a dropout in a part that is in eval mode and has no learning parameter.
    """
    evaluating = evidence.evaluating or {}
    parts = {part for path in learning for part in above(path)}
    found = {}
    for path, tensor in evidence.came_in.items():
        part = next((each for each in (*above(path), path) if each in evaluating), None)
        if evaluating.get(path) == "dropout" and tensor in passes.reached and (part == "" or part in parts):
            found[path] = tensor
    if found:
        path, tensor = next(iter(found.items()))
        op = passes.maker(tensor) or next(iter(passes.forward_readers(tensor)), None)
        more = _and_more(len(found) - 1)
        message = f"{path or 'the model'}{more}: dropout in eval mode during a training step. It drops nothing"
        remedy = "Call model.train() before the step. To train without dropout, set p=0."
        yield passes.fault("eval_mode", message, op, tensor, remedy)


def _learning(evidence: Evidence, optimized: frozenset[str]) -> list[str]:
    """All paths of the parameters that a step changes."""
    known = (each for each in evidence.parameters if each.requires_grad and each.path in optimized)
    return [path for each in known for path in (each.path, *each.aliases)]


def _and_more(count: int) -> str:
    return f" and {count} more" if count else ""


def _them(found: Sequence[KnownParameter]) -> str:
    return "them" if len(found) > 1 else "it"


def _at_first_reader(passes: Passes, kind: Any, message: str, remedy: str, found: Sequence[KnownParameter]) -> Fault:
    """A fault of parameters at the first op that reads one of them; without an op if a function transform hides it."""
    tensors = {
        each for known in found for name in (known.path, *known.aliases) for each in passes.parameters.get(name, ())
    }
    for op in passes.forward:
        tensor = next((each for each in op.inputs if each in tensors), None)
        if tensor is not None and not reads_only_the_shape(op):
            return passes.fault(kind, message, op, tensor, remedy)
    return passes.fault(kind, message, None, None, remedy)


# ------------------------------------------------------------------------------------------------------ from the graph


def _untied(passes: Passes, evidence: Evidence) -> Iterator[Fault]:
    """An embedding reads one parameter and an output layer another one with the same values: a copy that drifts away.

    All statistics and the histogram are equal. No fault: copied layers, experts or target networks, because these are
    not an embedding and an output layer; constants; and two parameters that share their memory.
    """
    own = {
        each: name
        for name, ids in passes.parameters.items()
        if name not in evidence.on_one_memory
        for each in ids
        if each in passes.reached and len(passes.tensors[each].shape) >= 2
    }
    table = passes.trace.statistics
    looked_up = {each: op for op in passes.forward if op.name == "embedding" for each in op.inputs if each in own}
    weighs: dict[str, Op] = {}
    for op in passes.forward if looked_up else ():
        if op.name in ops.LINEAR:
            for each in op.inputs:
                weighs.setdefault(_behind(passes, each, ops.VIEWS), op)
    for head, op in weighs.items():
        for embedding, reader in looked_up.items():
            if head not in own or own[head] == own[embedding] or head not in table or embedding not in table:
                continue
            shapes = passes.tensors[head].shape, passes.tensors[embedding].shape
            same = shapes[0] in (shapes[1], shapes[1][::-1]) and table[head] == table[embedding]
            if same and (table[head].std or 0) > 0:
                message = (
                    f"{own[head]} and {own[embedding]} are two parameters with the same values: {op.name} reads a copy "
                    f"of the weight of {reader.name}{at_line(reader)}, and each step changes the two independently"
                )
                remedy = f"Share one parameter: {_of_model(own[head])} = {_of_model(own[embedding])}"
                yield passes.fault("untied", message, op, head, remedy)


def _broadcast(passes: Passes, evidence: Evidence) -> Iterator[Fault]:
    """An op of the loss joins (n, 1) with (n,), a prediction with a tensor without a gradient: n × n results, not n.

    The same holds for (n, n, 1) with (n, n), which gives n × n × n, and for (n, 1) with (1, n) if neither is a view.
    No fault: distances of all pairs, if both tensors have a gradient or the same line adds the axis; a kernel of such
    distances, such as exp(-d²) in a discrepancy of two samples; and results that a layer reads afterwards, such as the
    features of a coordinate at n frequencies.
    """
    carrying = passes.reached | (evidence.carrying or set())
    in_loss = _in_loss(passes)
    for op in passes.forward:
        if op.name not in PAIRWISE or len(op.inputs) != 2 or op.id not in passes.twins:
            continue
        wide, column = sorted((passes.tensors[each] for each in op.inputs), key=lambda each: each.shape[-1:] == (1,))
        n, makers = prod(column.shape), [passes.maker(each) for each in (column.id, wide.id)]
        if column.shape == wide.shape or n != prod(wide.shape) or in_loss.isdisjoint(op.outputs):
            continue
        joined = torch.broadcast_shapes(column.shape, wide.shape)  # type: ignore[no-untyped-call]
        if prod(joined) <= n:
            continue
        if column.shape == (*wide.shape, 1):
            is_meant = makers[0] is not None and makers[0].name in ADDS_AXES and makers[0].source == op.source
        elif column.shape == wide.shape[::-1] == (n, 1):
            is_meant = any(maker is not None and maker.name in ADDS_AXES | ops.VIEWS for maker in makers)
        else:
            continue
        if (column.id in carrying) != (wide.id in carrying) and not is_meant and not _is_in_a_kernel(passes, op):
            one, other = (passes.tensors[each] for each in op.inputs)
            message = (
                f"{op.name} of {one.name} {_shape(one.shape)} and {other.name} {_shape(other.shape)} broadcasts to "
                f"{_shape(joined)}: the loss compares {prod(joined)} pairs instead of {n}"
            )
            remedy = f"Give both the same shape: apply squeeze(-1) to {column.name}, or reshape the other tensor."
            yield passes.fault("broadcast", message, op, next(iter(op.outputs), None), remedy)


def _is_in_a_kernel(passes: Passes, op: Op) -> bool:
    """Whether the squares or absolute values of an op's results go into an exponential."""
    pending, seen = [(each, False) for each in op.outputs], set[tuple[str, bool]]()
    while pending:
        tensor, is_size = pending.pop()
        if (tensor, is_size) in seen:
            continue
        seen.add((tensor, is_size))
        for reader in passes.forward_readers(tensor):
            if reader.name == "exp" and is_size:
                return True
            if is_size or reader.name in SIZES or reader.inputs == (tensor, tensor):
                pending += [(each, True) for each in reader.outputs if reader.name in SAME_PLACES | SIZES]
    return False


def _in_loss(passes: Passes) -> set[str]:
    """The tensors that reach a loss without a matrix product or a parameter in between."""
    found = {
        each.id
        for each in passes.tensors.values()
        if each.role == "loss" or (prod(each.shape) == 1 and each.id in passes.reached and each.role != "parameter")
    }
    weights = {each for ids in passes.parameters.values() for each in ids}
    for op in reversed(passes.forward):
        if op.name not in ops.LINEAR and not found.isdisjoint(op.outputs) and weights.isdisjoint(op.inputs):
            found.update(op.inputs)
    return found


def _softmax(passes: Passes) -> Iterator[Fault]:
    """A softmax over the batch with a selection of class scores; a softmax of a softmax; a sigmoid of a sigmoid.

    Also a softmax that nll_loss or kl_div reads as log-probabilities: torch does not warn, and the loss would be -p.
    No fault: scores of all pairs of a batch, compared in both directions; log_softmax of log_softmax, which changes
    nothing; softmaxes over two axes; and a target that is a softmax, such as the output of a teacher.
    """
    for op in passes.forward:
        if not op.inputs or op.id not in passes.twins:
            continue
        if op.name in SOFTMAX and _is_over_the_batch(passes, op):
            rows, columns = passes.tensors[op.inputs[0]].shape
            message = (
                f"{op.name} goes over dimension 0, the batch of {rows}, but the loss selects among the {columns} "
                "scores of each row: these are not the class probabilities of one example"
            )
            yield passes.fault("softmax", message, op, op.outputs[0], "Take the softmax over the classes: dim=1.")
        maker = passes.maker(_behind(passes, op.inputs[0], SAME_ELEMENTS))
        if maker is None or maker.phase != "forward":
            continue
        if maker.name == "softmax" and op.name in SOFTMAX | {"cross_entropy"} and not _over_two_axes(passes, maker, op):
            message = (
                f"{op.name} takes the softmax of the output of softmax{at_line(maker)}: all scores lie between 0 and "
                "1, so the loss stays far from 0 and the gradient is small"
            )
            yield passes.fault("softmax", message, op, op.inputs[0], f"Give {op.name} the logits.")
        elif maker.name == "softmax" and op.name in ("nll_loss", "kl_div"):
            message = (
                f"{op.name} expects logarithms of probabilities, but softmax{at_line(maker)} returns probabilities"
            )
            yield passes.fault("softmax", message, op, op.inputs[0], "Use log_softmax instead of softmax.")
        elif maker.name in ("sigmoid", "sigmoid_") and op.name == "binary_cross_entropy_with_logits":
            message = (
                f"{op.name} takes the sigmoid of the output of {maker.name}{at_line(maker)}: all scores lie between 0 "
                "and 1, so the loss stays far from 0"
            )
            yield passes.fault("softmax", message, op, op.inputs[0], f"Give {op.name} the logits.")


def _is_over_the_batch(passes: Passes, op: Op) -> bool:
    """Whether a softmax goes over dimension 0 of a matrix, and the loss selects one element of each row by index."""
    shape = passes.tensors[op.inputs[0]].shape
    if _dimension(op.attributes, "dim", len(shape)) != 0 or len(shape) != 2 or shape[0] == shape[1]:
        return False
    pending, seen = [op.outputs[0]], set(op.outputs)
    while pending:
        tensor = pending.pop()
        for reader in passes.forward_readers(tensor):
            if reader.inputs[0] == tensor and reader.id in passes.twins and _chooses(passes, reader, shape[0]):
                return True
            same = reader.name in SAME_PLACES and reader.outputs and passes.tensors[reader.outputs[0]].shape == shape
            if same and reader.outputs[0] not in seen:
                seen.add(reader.outputs[0])
                pending.append(reader.outputs[0])
    return False


def _chooses(passes: Passes, op: Op, rows: int) -> bool:
    """Whether an op selects one score of each row."""
    if op.name == "getitem":
        return len(op.inputs) == 3 and all(passes.tensors[each].shape == (rows,) for each in op.inputs[1:])
    if op.name == "gather":
        return _dimension(op.attributes, "dim" if "dim" in op.attributes else "1", 2) == 1
    return op.name == "nll_loss"


def _over_two_axes(passes: Passes, first: Op, second: Op) -> bool:
    """Whether two softmaxes of one tensor go over different dimensions."""
    if first.outputs[0] != second.inputs[0]:
        return False
    rank = len(passes.tensors[first.outputs[0]].shape)
    one = _dimension(first.attributes, "dim", rank)
    other = min(1, rank - 1) if second.name == "cross_entropy" else _dimension(second.attributes, "dim", rank)
    return one is not None and other is not None and one != other


def _dimension(attributes: Mapping[str, Any], name: str, rank: int) -> int | None:
    """A dimension in the arguments of an op, counted from the front."""
    given = attributes.get(name)
    return given % rank if isinstance(given, int) and rank else None


def _behind(passes: Passes, tensor: str, through: frozenset[str]) -> str:
    """The tensor at the start of a chain of these ops that ends in `tensor`."""
    while (maker := passes.maker(tensor)) is not None and maker.name in through and maker.inputs:
        tensor = maker.inputs[0]
    return tensor


def _shape(shape: tuple[int, ...]) -> str:
    return str(tuple(shape))


def _of_model(name: str) -> str:
    """The name of a parameter in code."""
    parts = (f"[{part}]" if part.isdigit() else f".{part}" for part in name.split("."))
    return f"model{''.join(parts)}"
