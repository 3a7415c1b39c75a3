"""A recording: modules, ops and tensors, and the trace that holds them.

A *module* is a place in the model's hierarchy. An *op* is one call, in phase forward or backward. A *tensor* is one
value. Ids (`m0`, `n0`, `t0`) count in order of execution, so two traces of one spec have the same ids. A trace is
small and immutable; it holds no `torch.Tensor` and may outlive the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from chainrule.stats import StatisticsTable
from chainrule.trace.report import FORMATS, short_repr

Phase = Literal["forward", "backward"]

Role = Literal[
    "input",
    "target",
    "parameter",
    "buffer",
    "constant",
    "preactivation",
    "activation",
    "intermediate",
    "loss",
    "gradient",
    "saved",
]
"""The role of a tensor in the model. `constant`: made outside the recording and neither input, parameter nor buffer;
`intermediate`: any other op output; `saved`: made by an op for its backward alone, such as a mask."""


@dataclass(frozen=True, slots=True)
class Module:
    """A place in the hierarchy: an nn.Module, a scratch layer object, a named scope or a custom Function."""

    id: str
    path: str
    type: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """The line of user code that made an op; `file` is relative to the package or the model, never absolute."""

    file: str
    line: int
    text: str
    function: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """Consecutive lines of a source file, joined by line breaks; `line` is the number of the first."""

    line: int
    text: str


@dataclass(frozen=True)
class Op:
    """One call. `twin`: the forward op of a backward op. `bytes`: read plus written."""

    id: str
    name: str
    phase: Phase
    module: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    twin: str | None
    flops: int
    bytes: int
    source: Source | None


@dataclass(frozen=True)
class Tensor:
    """One value. `gradient_of`: the tensor whose gradient of the loss this is; `note`: why it has no statistics.

    A tensor that the loss's backward does not reach has the gradient of the last backward that does. The gradients of
    other roots, as du/dt in a physics-informed net, are of no tensor; they are named `u.g 2`.
    """

    id: str
    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    module: str
    producer: str | None
    consumers: tuple[str, ...]
    gradient_of: str | None
    note: str | None = None


@dataclass(frozen=True)
class Saved:
    """`op` keeps `tensor` for its backward."""

    tensor: str
    op: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The op where a recording broke, if it is known, and the error's message."""

    op: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a model: the ids of its tensors, None for those it lacks. `layers.py` defines a layer."""

    index: int
    name: str
    preactivation: str | None
    activation: str | None
    gradient: str | None
    weight: str | None
    weight_gradient: str | None
    bias: str | None
    bias_gradient: str | None


FaultKind = Literal[
    "failed",
    "in_place",
    "first_nonfinite",
    "wrong_backward",
    "unregistered",
    "detach",
    "no_gradient",
    "no_optimizer",
    "leftover_gradient",
    "eval_mode",
    "untied",
    "broadcast",
    "softmax",
    "exploding",
    "vanishing",
    "gradient_drop",
    "dead",
    "saturated",
    "starts_at_zero",
    "replicas",
    "graph_break",
    "recompilation",
    "precision",
]
"""The kinds of faults; `diagnose.rules` has the rule of each."""

Level = Literal["fault", "note", "unchecked"]
"""`fault`: it breaks the training, or will; `note`: it is most likely on purpose; `unchecked`: a check was not made."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a pass, and its place, if it has one.

    `module` is a path ("" for the model; it need not have run), `op` and `tensor` are ids. `remedy` repairs it.
    `layers`: the indices of the layers that it makes unhealthy. `rule`: the criterion, and its source.
    """

    kind: FaultKind
    message: str
    module: str | None = None
    op: str | None = None
    tensor: str | None = None
    source: Source | None = None
    remedy: str | None = None
    level: Level = "fault"
    layers: tuple[int, ...] = ()
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class PrecisionErrors:
    """The errors of a pass in one precision, measured against the same pass in another; see `chainrule.precision`.

    `name`: the precision of this trace. The run in `of` is measured against the run in `against`, the more precise one.
    Entry i of `error` (relative, in the norm; of probabilities, the root mean square over the elements) and of
    `expected` (what rounding predicts) belongs to the tensor with id `tensor[i]`. `differing`: id of a tensor of
    integers or bools → elements that differ, and compared elements.
    """

    name: str
    of: str
    against: str
    tensor: tuple[str, ...]
    error: tuple[float, ...]
    expected: tuple[float, ...]
    differing: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, repr=False)
class Trace:
    """One recorded forward and backward pass.

    `loss`: of several backward passes, the last root with one element whose backward reaches parameters: adds to the
    `.grad` of leaves, or gives the gradients of parameters. Passes that add up in `.grad` have their sum as a
    parameter's gradient. It may be Inf or NaN.

    `sources`: file, as an op's source names it → the lines of ops, with a few around them.
    """

    modules: Sequence[Module]
    ops: Sequence[Op]
    tensors: Sequence[Tensor]
    saved: Sequence[Saved]
    statistics: StatisticsTable
    loss: float | None = None
    error: Failure | None = None
    layers: tuple[Layer, ...] = ()
    faults: tuple[Fault, ...] = ()
    sources: Mapping[str, tuple[Snippet, ...]] = field(default_factory=dict)
    spec: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] = field(default_factory=dict)
    precision: PrecisionErrors | None = None

    @property
    def has_faults(self) -> bool:
        """Whether a fault was found; notes and checks that were not made are none."""
        return any(fault.level == "fault" for fault in self.faults)

    def report(self, format: str = "text") -> str:  # noqa: A002 (as in the command line)
        """The findings: place, line, figure, rule and remedy of each, and what was not checked.

        Args:
            format: "text" for a terminal, "json" (schema `chainrule.report/1`), or "github" for annotations of GitHub
                Actions, with files as seen from the current directory.

        Raises:
            ValueError: another format.
        """
        if format not in FORMATS:
            raise ValueError(f"format: {format!r} is not one of {', '.join(FORMATS)}")
        return FORMATS[format](self)

    def __repr__(self) -> str:
        return short_repr(self)

    @cached_property
    def tensor_by_name(self) -> Mapping[str, Tensor]:
        """Tensors by name; the first in order of execution, where several share it."""
        return {tensor.name: tensor for tensor in reversed(self.tensors)}

    @cached_property
    def tensor_by_id(self) -> Mapping[str, Tensor]:
        """Tensors by id."""
        return {tensor.id: tensor for tensor in self.tensors}

    @cached_property
    def module_by_id(self) -> Mapping[str, Module]:
        """Modules by id."""
        return {module.id: module for module in self.modules}
