"""Parameters without a gradient, and the reason, from a trace and its model.

unused                no op has read it
requires_grad=False   it is frozen
detached              it leads to the loss, but the graph is cut: detach, .data, torch.no_grad()
no path               it does not lead to the loss, or only through an op without a derivative

Three cases are most likely intended, and therefore a note:

- Parameters that the optimizer does not hold, while it holds others of the model: the backbone of a linear probe, a
  target net or a teacher inside the module, a head of another phase.
- An unused part of a container, if a sibling with the same shapes is used: another expert was chosen, a block was
  dropped, a branch was not taken. An unused layer outside a container, or with other shapes, is a fault.
- The bias of a layer whose output appears only in derivatives, while its weight learns: the last bias of a Hamiltonian
  net. If a custom Function returns no gradient for a bias, that is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from chainrule.diagnose.evidence import Evidence, KnownParameter
from chainrule.diagnose.passes import Passes, reads_only_the_shape
from chainrule.diagnose.steps import CUTS
from chainrule.trace import ops
from chainrule.trace.graph import Fault, Op

KEEP_WHAT_THEY_READ = (
    ops.LINEAR
    | ops.ACTIVATIONS - {"leaky_relu_", "threshold"}
    | frozenset(("layer_norm", "batch_norm", "group_norm", "rms_norm", "exp", "pow", "sqrt", "log"))
)
"""Ops that save a tensor whenever they have a backward: without a saved tensor there is no graph."""

NO_GRAD = "detached: computed while gradients were off, for example under torch.no_grad()"
"""The reason for parameters that are used in a block without gradients."""

FROZEN = "requires_grad=False"

NO_GRAPH = "does not require grad and does not have a grad_fn"
"""A part of autograd's message about a loss without a graph."""

MAX_NAMED = 4
"""A message names at most this many modules."""

WHOLE = "the whole model"


@dataclass(frozen=True, slots=True)
class Why:
    """Why a parameter has no gradient, and at which op. `cut`: this op cuts the graph."""

    reason: str
    op: str | None = None
    cut: bool = False


def without_gradient(passes: Passes, evidence: Evidence, goes_back: bool = False) -> tuple[Fault, ...]:
    """One fault per op that cuts parameters off, and one per part of the model without a gradient for another reason.

    Empty for a pass that failed, and for a pass without a backward pass, unless it should have one: `goes_back`, or
    a loss without a graph.
    """
    error = passes.trace.error
    if not (passes.has_backward or goes_back) if error is None else NO_GRAPH not in error.message:
        return ()
    tensors = passes.parameters
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
    found = [_judged(_cut_fault(passes, why, lost, evidence), lost, evidence) for why, lost in whys.items() if why.cut]
    for why, lost in whys.items():
        found += [] if why.cut else _lost_faults(passes, why, lost, evidence)
    return tuple(found)


def _judged(fault: Fault, lost: Sequence[KnownParameter], evidence: Evidence) -> Fault:
    """The fault of these parameters; a note if the optimizer holds other parameters, and none of these."""
    if fault.level == "note" or not evidence.optimized or any(each.path in evidence.optimized for each in lost):
        return fault
    return replace(fault, message=f"{fault.message}; no given optimizer holds any of these parameters", level="note")


def _by_block(passes: Passes, whys: Mapping[Why, list[KnownParameter]]) -> dict[Why, list[KnownParameter]]:
    """Merge the reasons of one torch.no_grad() block, in which each layer is a cut, into the block's first op."""
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

    One walk over the forward ops finds the tensors that have a graph. A walk back finds where the graph ends.
    """

    def __init__(self, passes: Passes, evidence: Evidence, trainable: set[str]) -> None:
        self.passes = passes
        self.evidence = evidence
        self._carrying = set(trainable)
        steps = [op for op in passes.forward if not reads_only_the_shape(op)]
        for op in steps:
            if not self._carrying.isdisjoint(op.inputs):
                self._carrying.update(output for output in op.outputs if self._carries(op, output))
        # Tensor → why its gradient is missing: 0 for a cut, 1 for another end, 2 for a backward without a gradient; the
        # place of the op; and the reason. The smallest tuple counts.
        self._whys: dict[str, tuple[int, int, Why]] = {}
        for op in reversed(steps):
            if not self._carrying.isdisjoint(op.inputs):
                self._go_back(op)

    def _go_back(self, op: Op) -> None:
        """Pass the reasons found behind an op on to its inputs."""
        passes, place = self.passes, self.passes.place[op.id]
        behind = [self._whys[output] for output in op.outputs if output in self._carrying and output in self._whys]
        for output in op.outputs:
            if output not in self._carrying and output in passes.leads_to_gradient:
                why = self._stop(op, output)
                # A cut comes first, because it can be removed. An integer never has a derivative.
                behind.append((0 if why.cut else 1, place, why))
        went_back = op.id in passes.twins or not passes.reached.isdisjoint(op.outputs)
        for tensor in self._carrying.intersection(op.inputs):
            whys = [*behind, self._whys[tensor]] if tensor in self._whys else [*behind]
            if went_back and tensor not in passes.reached:
                whys.append((2, place, Why(f"no path: the backward of {op.name} returned no gradient for it", op.id)))
            if whys:
                self._whys[tensor] = min(whys, key=lambda each: each[:2])

    def why(self, ids: Sequence[str]) -> Why:
        """Why a trainable parameter has no gradient; `ids` are the tensors that hold its values."""
        passes = self.passes
        readers = [op for tensor in ids for op in passes.forward_readers(tensor) if not reads_only_the_shape(op)]
        if not readers:
            return Why("unused")
        if passes.leads_to_gradient.isdisjoint(ids):
            op = passes.ops[max(self._dead_ends[each] for each in ids if each in self._dead_ends)[1]]
            where = f"{op.name} cuts the graph" if op.name in CUTS else f"the last op is {op.name}"
            return Why(f"no path: the loss does not depend on it ({where})", op.id)
        whys = [self._whys[each] for each in ids if each in self._whys]
        if whys:
            return min(whys, key=lambda each: each[:2])[2]
        return Why("no path: no op between it and the loss returned a gradient to it", readers[0].id)

    @cached_property
    def _dead_ends(self) -> Mapping[str, tuple[int, int]]:
        """Tensor → place of the last op that depends on it, and of the first cut before that op (else the op's place).

        A chain of layers has one end, where `.item()` or `.numpy()` may take the values out; two branches have two.
        """
        found: dict[str, tuple[int, int]] = {}
        for op in reversed(self.passes.forward):
            place = self.passes.place[op.id]
            last, cut = max((found[each] for each in op.outputs if each in found), default=(place, place))
            for each in op.inputs if not reads_only_the_shape(op) else ():
                found[each] = max((last, place if op.name in CUTS else cut), found.get(each, (-1, -1)))
        return found

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
        # If only the bias of a product is trainable, the product saves nothing.
        return op.id in passes.savers or op.name not in KEEP_WHAT_THEY_READ or reads > 1

    def _stop(self, op: Op, output: str) -> Why:
        if op.name in CUTS:
            return Why("detached", op.id, cut=True)
        dtype = self.passes.tensors[output].dtype
        if not dtype.startswith(("float", "bfloat", "complex")):
            kind = "truth values" if dtype == "bool" else "integers"
            return Why(f"no path: {op.name} returns {kind}, which have no derivative", op.id)
        if self.evidence.carrying is None or output in self.evidence.without_grad:
            return Why(NO_GRAD, op.id, cut=True)
        return Why(f"no path: {op.name} has no derivative", op.id)


def _cut_fault(passes: Passes, why: Why, lost: Sequence[KnownParameter], evidence: Evidence) -> Fault:
    op = passes.op(why.op or "")
    who, verb = named(parts_of(lost, evidence.parameters), lost), "get" if len(lost) > 1 else "gets"
    if why.reason == NO_GRAD:
        message = f"gradients are off from {op.name} on, as under torch.no_grad(): {who} {verb} no gradient"
        out = "Move this code out of the block"
    else:
        message = f"{op.name} cuts the graph: {who} {verb} no gradient through it"
        out = f"Remove {op.name}"
    remedy = f"{out} if these parameters should learn; else freeze them with requires_grad_(False)."
    return passes.fault("detach", message, op, next(iter(op.outputs), None), remedy)


def _lost_faults(passes: Passes, why: Why, lost: Sequence[KnownParameter], evidence: Evidence) -> list[Fault]:
    """The faults of one reason: one per unused part of the model, else one."""
    parts = parts_of(lost, evidence.parameters)
    message, owner = f"{named(parts, lost)}: no gradient, {why.reason}", _owner(next(iter(parts)), lost)
    if why.op is not None:
        op = passes.op(why.op)
        fault = Fault("no_gradient", message, owner, op.id, next(iter(op.outputs), None), op.source)
        if _is_differentiated_only(passes, op, lost, evidence):
            remedy = (
                "The loss contains only derivatives of this layer, which do not depend on its bias: use bias=False."
            )
            fault = replace(fault, remedy=remedy, level="note")
        return [_judged(fault, lost, evidence)]
    if why.reason == FROZEN:
        remedies = [_frozen_remedy(part, inside, passes) for part, inside in parts.items()]
        return [Fault("no_gradient", message, owner, remedy=max(remedies, key=len), level="note")]
    unused = {each.path for each in lost}
    used = {
        path: each.shape
        for each in evidence.parameters
        if each.path not in unused
        for path in (each.path, *each.aliases)
    }
    siblings = _siblings(evidence.containers, used)
    return [
        _judged(
            Fault(
                "no_gradient",
                f"{_counted(part or WHOLE, inside)}: no gradient, unused: no op of this pass reads it",
                _owner(part, inside),
                remedy="Call it, or remove it. It may belong to a branch that this pass did not take.",
                level="note" if _shapes(part, inside) in siblings else "fault",
            ),
            inside,
            evidence,
        )
        for part, inside in parts.items()
    ]


Shapes = tuple[str, frozenset[tuple[str, tuple[int, ...]]]]
"""The container of a part, and the part's parameters: names in it and shapes."""


def _shapes(part: str, inside: Sequence[KnownParameter]) -> Shapes:
    return part.rpartition(".")[0], frozenset((each.path[len(part) :], each.shape) for each in inside)


def _siblings(containers: frozenset[str], used: Mapping[str, tuple[int, ...]]) -> set[Shapes]:
    """The children of containers whose parameters are all used."""
    found: dict[str, list[KnownParameter]] = {}
    for path, shape in used.items():
        for child in above(path):
            if child.rpartition(".")[0] in containers and child:
                found.setdefault(child, []).append(KnownParameter(path, shape, True))
    return {_shapes(child, inside) for child, inside in found.items()}


def _is_differentiated_only(passes: Passes, op: Op, lost: Sequence[KnownParameter], evidence: Evidence) -> bool:
    """Whether these are the bias of a layer whose output appears only in derivatives, while its weight learns.

    Only for ops of torch: their backward returns both gradients on request, a custom Function's may not.
    """
    if op.name not in ops.LINEAR or op.id not in passes.twins or not passes.ops[passes.twins[op.id]].name[-1].isdigit():
        return False
    others = {name for name, ids in passes.parameters.items() if not set(ids).isdisjoint(op.inputs)}
    learns = any(each.path in evidence.received for each in evidence.parameters if each.path in others)
    return learns and all(len(each.shape) == 1 and each.path in others for each in lost)


def _frozen_remedy(part: str, inside: Sequence[KnownParameter], passes: Passes) -> str:
    whole = f"model.{part}" if part else "model"
    remedy = f"It is frozen. To train it, call {whole}.requires_grad_()"
    for op in passes.forward:
        path, given = passes.trace.module_by_id[op.module].path, op.attributes
        moves = op.name in ops.NORMALIZATIONS and given.get("training", given.get("use_input_stats")) is True
        if moves and any(each.path.startswith(f"{path}.") for each in inside):
            return f"{remedy}. The running statistics of {path} still change in training mode: call {whole}.eval()"
    return remedy


def parts_of(
    lost: Sequence[KnownParameter], everything: Sequence[KnownParameter]
) -> Mapping[str, list[KnownParameter]]:
    """The largest modules that lost all their parameters, and lost parameters outside them, in order."""
    missing = {each.path for each in lost}
    kept = {
        prefix
        for each in everything
        for path in ((each.path, *each.aliases) if each.path not in missing else ())
        for prefix in above(path)
    }
    found: dict[str, list[KnownParameter]] = {}
    for each in lost:
        part = next((prefix for prefix in above(each.path) if prefix not in kept), each.path)
        found.setdefault(part, []).append(each)
    return found


def above(path: str) -> list[str]:
    """The paths of the modules that hold a parameter, outermost first: "", "encoder", "encoder.0"."""
    names = path.split(".")
    return [".".join(names[:depth]) for depth in range(len(names))]


def _owner(part: str, inside: Sequence[KnownParameter]) -> str:
    """The path of a part's module: the part itself, or the module of a parameter."""
    return part.rpartition(".")[0] if any(each.path == part for each in inside) else part


def named(parts: Iterable[str], lost: Sequence[KnownParameter]) -> str:
    """The first parts of the model that hold these parameters, and the number of parameters."""
    names = list(parts)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return _counted(", ".join(name or WHOLE for name in names[:MAX_NAMED]) + more, lost)


def _counted(name: str, lost: Sequence[KnownParameter]) -> str:
    """A name with the number of lost parameters, unless it is the one parameter's name."""
    return name if [each.path for each in lost] == [name] else f"{name} ({parameters(len(lost))})"


def parameters(count: int) -> str:
    """`1 parameter`, or `4 parameters`: tensors, not their elements."""
    return f"{count} parameter{'' if count == 1 else 's'}"
