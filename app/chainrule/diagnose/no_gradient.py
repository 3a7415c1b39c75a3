"""Parameters that got no gradient, and why, from a trace and its model.

unused                no op has read it
requires_grad=False   it is frozen
detached              it leads to the loss, but the graph is cut: detach, .data, torch.no_grad()
no path               it does not lead to the loss, or only through an op without a derivative
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from chainrule.diagnose.passes import Passes, reads_only_the_shape
from chainrule.trace import ops
from chainrule.trace.graph import Fault, Op, Trace

CUTS = frozenset(("detach", "detach_", "data"))
"""Ops that always cut the graph."""

KEEP_WHAT_THEY_READ = (
    ops.LINEAR
    | ops.ACTIVATIONS - {"leaky_relu_", "threshold"}
    | frozenset(("layer_norm", "batch_norm", "group_norm", "rms_norm", "exp", "pow", "sqrt", "log"))
)
"""Ops that save a tensor whenever they have a backward: without a saved tensor there is no graph."""

NO_GRAD = "detached: computed while gradients were off, as under torch.no_grad()"
"""The reason for parameters that are used in a block without gradients."""

FROZEN = "requires_grad=False"

MAX_NAMED = 4
"""A message names at most this many modules."""

WHOLE = "the whole model"

_WATCHED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class KnownParameter:
    """One parameter of a model: its first path, and the `aliases` of a tied one."""

    path: str
    shape: tuple[int, ...]
    requires_grad: bool
    aliases: tuple[str, ...] = ()


class Evidence:
    """Facts about a recorded model that its trace does not hold: all parameters, and which tensors had a graph.

    A recording with `record(model, on_tensor=evidence.watch)` collects the latter. Without it, the place where
    `torch.no_grad()` cut the graph follows from the tensors that ops saved, and not all ops save one.
    """

    def __init__(self, parameters: Iterable[KnownParameter] = ()) -> None:
        self.parameters = tuple(parameters)  # of the model, each once
        self.carrying: set[str] | None = None  # ids of tensors that required grad when recorded; None without `watch`
        self.without_grad: set[str] = set()  # ids of the tensors that were recorded while gradients were off
        self.unregistered: tuple[str, ...] = ()  # ids of parameters that the model uses but does not register
        self.functions: tuple[Fault, ...] = ()  # of the custom Functions that it calls, see `function_calls`
        self.received: frozenset[str] = frozenset()  # paths of parameters with a gradient, whichever thread computed it
        self._undecided: list[tuple[str, weakref.ref[torch.Tensor]]] = []
        self._told: tuple[object, tuple[Fault, ...]] | None = None
        self._passes: Passes | None = None

    def watch(self, identifier: str, tensor: torch.Tensor) -> None:
        """Note whether a tensor requires grad when it is recorded."""
        if self.carrying is None:
            self.carrying = set()
        if self._undecided:
            self._look_again()
        if tensor.requires_grad:
            self.carrying.add(identifier)
        elif not torch.is_grad_enabled():
            self.without_grad.add(identifier)
            # Gradients are also off in a custom Function's forward; its outputs require grad after it returns.
            self._undecided.append((identifier, weakref.ref(tensor)))

    def _look_again(self) -> None:
        recent, self._undecided = self._undecided[-_WATCHED_AT_ONCE:], []
        for identifier, reference in recent:
            tensor = reference()
            if tensor is not None and tensor.requires_grad and self.carrying is not None:
                self.carrying.add(identifier)
            elif tensor is not None:
                self._undecided.append((identifier, reference))

    def faults(self, trace: Trace, goes_back: bool = False) -> tuple[Fault, ...]:
        """The faults of `without_gradient`, computed once per recording: repetitions have the same ops."""
        if self._told is None or self._told[0] is not trace.ops:
            self._told = (trace.ops, without_gradient(trace, self, goes_back))
        return self._told[1]

    def passes(self, trace: Trace) -> Passes:
        """The trace as a graph; a repetition of a recording reuses its lookups."""
        known = self._passes
        self._passes = Passes(trace) if known is None or known.trace.ops is not trace.ops else known.again(trace)
        return self._passes


def evidence_of(model: object) -> Evidence:
    """Evidence with the parameters of a model; without any if it is no nn.Module."""
    if not isinstance(model, nn.Module):
        return Evidence()
    paths: dict[nn.Parameter, list[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        paths.setdefault(parameter, []).append(path)
    return Evidence(
        KnownParameter(
            first,
            () if isinstance(parameter, nn.parameter.UninitializedParameter) else tuple(parameter.shape),
            parameter.requires_grad,
            tuple(aliases),
        )
        for parameter, (first, *aliases) in paths.items()
        if parameter.is_floating_point() or parameter.is_complex()
    )


@dataclass(frozen=True, slots=True)
class Why:
    """Why a parameter has no gradient, and at which op. `cut`: this op cuts the graph."""

    reason: str
    op: str | None = None
    cut: bool = False


def without_gradient(trace: Trace, evidence: Evidence, goes_back: bool = False) -> tuple[Fault, ...]:
    """One fault per op that cuts parameters off, and one per part of the model without a gradient, with the reason.

    Empty for a pass that broke off, and for one without a backward pass unless it was meant to have one: `goes_back`.
    """
    passes = evidence.passes(trace)
    if trace.error is not None or not (passes.has_backward or goes_back):
        return ()
    tensors: dict[str, list[str]] = {}
    for tensor in trace.tensors:
        if tensor.role == "parameter":
            tensors.setdefault(tensor.name, []).append(tensor.id)
    trainable = {each for known in evidence.parameters if known.requires_grad for each in tensors.get(known.path, ())}
    search = _Search(passes, evidence, trainable)
    whys: dict[Why, list[KnownParameter]] = {}
    for parameter in evidence.parameters:
        ids = [each for name in (parameter.path, *parameter.aliases) for each in tensors.get(name, ())]
        if parameter.path in evidence.received or any(each in passes.reached for each in ids):
            continue
        why = Why(FROZEN) if not parameter.requires_grad else search.why(ids)
        whys.setdefault(why, []).append(parameter)
    whys = _by_block(passes, whys)
    faults = [_cut_fault(passes, why, lost) for why, lost in whys.items() if why.cut]
    for why, lost in whys.items():
        faults += _lost_faults(passes, why, lost, evidence)
    return tuple(faults)


def _by_block(passes: Passes, whys: Mapping[Why, list[KnownParameter]]) -> dict[Why, list[KnownParameter]]:
    """Merge the reasons of one torch.no_grad() block, where each layer cuts off its own, into the block's first op."""
    merged = {why: lost for why, lost in whys.items() if why.reason != NO_GRAD}
    block: Why | None = None
    place = -1
    for why in sorted((why for why in whys if why.reason == NO_GRAD), key=lambda why: passes.place[why.op or ""]):
        before, place = place, passes.place[why.op or ""]
        if block is None or any(op.id in passes.twins for op in passes.ops[before:place]):
            block = why
        merged.setdefault(block, []).extend(whys[why])
    return merged


class _Search:
    """Finds why parameters have no gradient, for all at once.

    One walk over the forward ops finds which tensors have a graph, a walk back finds where the graph ends.
    """

    def __init__(self, passes: Passes, evidence: Evidence, trainable: set[str]) -> None:
        self.passes = passes
        self.evidence = evidence
        self._carrying = set(trainable)
        steps = [op for op in passes.forward if not reads_only_the_shape(op)]
        for op in steps:
            if not self._carrying.isdisjoint(op.inputs):
                self._carrying.update(output for output in op.outputs if self._carries(op, output))
        # Tensor → why its gradient is missing: 0 for a cut, 1 for another end, 2 for a backward that gave none; its
        # place; and the reason. The least counts.
        self._whys: dict[str, tuple[int, int, Why]] = {}
        for op in reversed(steps):
            if not self._carrying.isdisjoint(op.inputs):
                self._go_back(op)

    def _go_back(self, op: Op) -> None:
        """Hand the reasons behind an op on to its inputs."""
        passes, place = self.passes, self.passes.place[op.id]
        behind = [self._whys[output] for output in op.outputs if output in self._carrying and output in self._whys]
        for output in op.outputs:
            if output not in self._carrying and output in passes.leads_to_gradient:
                why = self._stop(op, output)
                # A cut comes first: it can be removed, while an integer has no derivative by nature.
                behind.append((0 if why.cut else 1, place, why))
        went_back = op.id in passes.twins or not passes.reached.isdisjoint(op.outputs)
        for tensor in self._carrying.intersection(op.inputs):
            whys = [*behind, self._whys[tensor]] if tensor in self._whys else [*behind]
            if went_back and tensor not in passes.reached:
                whys.append((2, place, Why(f"no path: the backward of {op.name} gave none for it", op.id)))
            if whys:
                self._whys[tensor] = min(whys, key=lambda each: each[:2])

    def why(self, ids: Sequence[str]) -> Why:
        """Why the tensors with these ids, all of one trainable parameter, have no gradient."""
        passes = self.passes
        readers = [op for tensor in ids for op in passes.forward_readers(tensor) if not reads_only_the_shape(op)]
        if not readers:
            return Why("unused")
        if passes.leads_to_gradient.isdisjoint(ids):
            return Why("no path: nothing that is computed from it leads to the loss", readers[0].id)
        whys = [self._whys[each] for each in ids if each in self._whys]
        if whys:
            return min(whys, key=lambda each: each[:2])[2]
        return Why("no path: no op on its way to the loss has gone back to it", readers[0].id)

    def _carries(self, op: Op, output: str) -> bool:
        """Whether the graph continues from an op's inputs to one of its outputs."""
        passes = self.passes
        if output in passes.reached or op.id in passes.twins:
            return True
        dtype = passes.tensors[output].dtype
        if op.name in CUTS or not dtype.startswith(("float", "bfloat", "complex")):
            return False
        if self.evidence.carrying is not None:
            return output in self.evidence.carrying
        reads = next((place for place, each in enumerate(op.inputs) if each in self._carrying), 0)
        # A product whose bias alone is trainable saves nothing.
        return op.id in passes.savers or op.name not in KEEP_WHAT_THEY_READ or reads > 1

    def _stop(self, op: Op, output: str) -> Why:
        if op.name in CUTS:
            return Why("detached", op.id, cut=True)
        dtype = self.passes.tensors[output].dtype
        if not dtype.startswith(("float", "bfloat", "complex")):
            kind = "truth values" if dtype == "bool" else "integers"
            return Why(f"no path: {op.name} gives {kind}, which have no derivative", op.id)
        if self.evidence.carrying is None or output in self.evidence.without_grad:
            return Why(NO_GRAD, op.id, cut=True)
        return Why(f"no path: {op.name} has no derivative", op.id)


def _cut_fault(passes: Passes, why: Why, lost: Sequence[KnownParameter]) -> Fault:
    op = passes.op(why.op or "")
    verb = "get" if len(lost) > 1 else "gets"
    if why.reason == NO_GRAD:
        message = f"from {op.name} on gradients were off, as under torch.no_grad(): {parameters(len(lost))} {verb} none"
        out = "Take it out of that block"
    else:
        message = f"{op.name} cuts the graph: {parameters(len(lost))} before it {verb} no gradient through it"
        out = "Leave it out"
    remedy = f"{out}, if what comes before is to learn; else freeze that with requires_grad_(False)."
    return passes.fault("detach", message, op, next(iter(op.outputs), None), remedy)


def _lost_faults(passes: Passes, why: Why, lost: Sequence[KnownParameter], evidence: Evidence) -> list[Fault]:
    """The faults of one reason: one if it has an op, else one per part of the model."""
    parts = _parts(lost, evidence.parameters)
    if why.op is not None:
        op = passes.op(why.op)
        names = list(parts)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        who = _counted(", ".join(name or WHOLE for name in names[:MAX_NAMED]) + more, lost)
        message = f"{who}: no gradient, {why.reason}"
        tensor = next(iter(op.outputs), None)
        return [Fault("no_gradient", message, _owner(names[0], lost), op.id, tensor, op.source)]
    reason = "unused: no op of this pass has read it" if why.reason == "unused" else why.reason
    return [
        Fault(
            "no_gradient",
            f"{_counted(part or WHOLE, inside)}: no gradient, {reason}",
            _owner(part, inside),
            remedy=_remedy(why.reason, part, inside, passes),
            level="note" if why.reason == FROZEN else "fault",
        )
        for part, inside in parts.items()
    ]


def _remedy(reason: str, part: str, inside: Sequence[KnownParameter], passes: Passes) -> str:
    if reason == "unused":
        return "Call it, or remove it. It may stand in a branch that was not taken this time."
    whole = f"model.{part}" if part else "model"
    remedy = f"Frozen. If it is to learn: {whole}.requires_grad_()"
    for op in passes.forward:
        path, given = passes.trace.module_by_id[op.module].path, op.attributes
        moves = op.name in ops.NORMALIZATIONS and given.get("training", given.get("use_input_stats")) is True
        if moves and any(each.path.startswith(f"{path}.") for each in inside):
            return (
                f"{remedy}. Its normalization still learns: the running statistics of {path} move; call {whole}.eval()"
            )
    return remedy


def _parts(lost: Sequence[KnownParameter], everything: Sequence[KnownParameter]) -> Mapping[str, list[KnownParameter]]:
    """The largest modules that lost all their parameters, and lost parameters outside them, in order."""
    missing = {each.path for each in lost}
    kept = {
        prefix
        for each in everything
        for path in ((each.path, *each.aliases) if each.path not in missing else ())
        for prefix in _above(path)
    }
    found: dict[str, list[KnownParameter]] = {}
    for each in lost:
        part = next((prefix for prefix in _above(each.path) if prefix not in kept), each.path)
        found.setdefault(part, []).append(each)
    return found


def _above(path: str) -> list[str]:
    """The paths of the modules that hold a parameter, outermost first: "", "encoder", "encoder.0"."""
    names = path.split(".")
    return [".".join(names[:depth]) for depth in range(len(names))]


def _owner(part: str, inside: Sequence[KnownParameter]) -> str:
    """The path of a part's module: the part itself, or the module of a parameter."""
    return part.rpartition(".")[0] if any(each.path == part for each in inside) else part


def _counted(name: str, lost: Sequence[KnownParameter]) -> str:
    """A name with the number of lost parameters, unless it is the one parameter's name."""
    return name if [each.path for each in lost] == [name] else f"{name} ({parameters(len(lost))})"


def parameters(count: int) -> str:
    """`1 parameter`, or `4 parameters`: tensors, not their elements."""
    return f"{count} parameter{'' if count == 1 else 's'}"
