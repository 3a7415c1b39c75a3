"""What a recording consists of: modules, ops and tensors, and the trace that holds them.

Three kinds of thing, never confused. A *module* is a place in the model's hierarchy. An *op* is one call, in phase
forward or backward. A *tensor* is one value. Ids (`m0`, `n0`, `t0`) count in order of execution, so two traces of one
spec have the same ids. Nothing here holds a `torch.Tensor`: a trace is small, immutable and free to outlive the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from chainrule.stats import StatisticsTable

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
"""What a tensor is to the model. `constant`: made outside the recording and neither input, parameter nor buffer;
`intermediate`: any other op output; `saved`: made by an op only to be kept for its backward (a mask, say)."""

ROLES: tuple[Role, ...] = get_args(Role)
"""All roles."""


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


@dataclass(frozen=True, slots=True)
class Op:
    """One call. `twin`: the forward op that a backward op is the backward of. `bytes`: read plus written."""

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


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value. `gradient_of`: the tensor whose gradient of the loss this is; `note`: why it has no statistics."""

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


@dataclass(frozen=True, slots=True)
class Saved:
    """`op` keeps `tensor` for its backward."""

    tensor: str
    op: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a recording broke: the op that raised (if the recorder knows it) and what it said."""

    op: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a model: the ids of its tensors (None where there is none). `layers.py` says what a layer is."""

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
    "unregistered",
    "detach",
    "no_gradient",
    "gradient_drop",
    "dead",
    "saturated",
]
"""What can be at fault. `failed`: forward or backward raised; `first_nonfinite`: where the first NaN or Inf was made;
`unregistered`: parameters that the model runs with and does not know of;
`detach`: where the graph is cut; `no_gradient`: parameters that got none; `gradient_drop`: where it falls tenfold."""

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
"""All kinds of fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a pass, and its place, as far as it has one.

    Attributes:
        kind: what it is.
        message: what was found, and why.
        module: path of the module it concerns, "" for the model itself; it need not have run.
        op: id of the op.
        tensor: id of the tensor.
        source: the line of user code.
        remedy: what would mend it; None where that is not known.
    """

    kind: FaultKind
    message: str
    module: str | None = None
    op: str | None = None
    tensor: str | None = None
    source: Source | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Trace:
    """One forward and backward pass, recorded.

    `loss` is the number itself, non-finite included; None without one. `sources`: file, as an op's source names it →
    the lines that ops come from, with a few around them.
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

    @cached_property
    def tensor_by_name(self) -> Mapping[str, Tensor]:
        """Tensors by name; of several with one name, the first in order of execution."""
        return {tensor.name: tensor for tensor in reversed(self.tensors)}

    @cached_property
    def tensor_by_id(self) -> Mapping[str, Tensor]:
        """Tensors by id."""
        return {tensor.id: tensor for tensor in self.tensors}

    @cached_property
    def module_by_id(self) -> Mapping[str, Module]:
        """Modules by id."""
        return {module.id: module for module in self.modules}
