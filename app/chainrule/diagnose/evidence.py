"""Facts about the model and the optimizer that a trace does not hold, gathered while the pass runs.

`chainrule.record`, `trace_model` and a tracer of `user_model` give their recording an `Evidence` as its witness.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from traceback import walk_stack

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from chainrule.diagnose.passes import Passes
from chainrule.trace.graph import Fault, Trace
from chainrule.trace.journal import address, out_of_sight, version_of

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)

_WATCHED_AT_ONCE = 64

Mark = tuple[weakref.ref[Tensor], int] | None
"""The state of a `.grad`: the tensor and its number of writes."""


@dataclass(frozen=True, slots=True)
class KnownParameter:
    """One parameter of a model: its first path, and the `aliases` of a tied one."""

    path: str
    shape: tuple[int, ...]
    requires_grad: bool
    aliases: tuple[str, ...] = ()


def _paths(model: nn.Module) -> dict[nn.Parameter, list[str]]:
    """The parameters of a model, each with its paths."""
    paths: dict[nn.Parameter, list[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        paths.setdefault(parameter, []).append(path)
    return paths


def _known(paths: Mapping[nn.Parameter, Sequence[str]]) -> tuple[KnownParameter, ...]:
    return tuple(
        KnownParameter(
            first,
            () if isinstance(parameter, nn.parameter.UninitializedParameter) else tuple(parameter.shape),
            parameter.requires_grad,
            tuple(aliases),
        )
        for parameter, (first, *aliases) in paths.items()
        if parameter.is_floating_point() or parameter.is_complex()
    )


def optimizers_of(optimizer: object) -> tuple[Optimizer, ...]:
    """The optimizers in an argument: one, several in a list or tuple, or None.

    Raises:
        TypeError: anything else.
    """
    found = tuple(optimizer) if isinstance(optimizer, list | tuple) else () if optimizer is None else (optimizer,)
    for each in found:
        if not isinstance(each, Optimizer):
            raise TypeError(
                f"the optimizer is of type {type(each).__name__}; expected a torch.optim.Optimizer or a list of them"
            )
    return found


def names_of(optimizers: Sequence[Optimizer]) -> Mapping[str, str]:
    """The optimizers as an entry of a trace's environment: {"optimizer": "AdamW"}; empty without an optimizer."""
    return {"optimizer": ", ".join(type(each).__name__ for each in optimizers)} if optimizers else {}


def filled(gradients: Iterable[tuple[str, Tensor | None]]) -> set[str]:
    """The names of the gradients that hold a number other than 0."""
    found = []
    with torch.no_grad(), DisableTorchFunction(), out_of_sight():
        for name, gradient in gradients:
            if gradient is not None:
                own = _local(gradient)
                found.append((name, (own._values() if own.is_sparse else own).any()))
        # Read only now: a device computes all of them, and the first read waits once.
        return {name for name, is_filled in found if is_filled}


class Evidence:
    """Facts about a recorded pass that its trace does not hold.

    As the witness of a recording (`trace.record`) it notes which tensors had a graph. Between `begins` and `ended` it
    also gathers facts about the model and its optimizers.

    Attributes:
        parameters: the parameters of the model, each once.
        carrying: ids of the tensors that required grad when they were recorded; None without a recording. Without it,
            the saved tensors of ops show where `torch.no_grad()` cut the graph, but not all ops save a tensor.
        without_grad: ids of the tensors that were recorded while gradients were off.
        unregistered: ids of parameters that the model uses and that are neither registered in it nor optimized.
        functions: the faults of the custom Functions that the model calls, see `function_calls`.
        received: paths of the parameters that got a gradient from a backward pass, in any thread.
        optimized: paths of the parameters that an optimizer holds; None if no optimizer is known.
        leftover: paths of the parameters whose gradient was not 0 before the pass, and grew in it.
        containers: paths of the lists, dicts and sequences of modules.
        on_one_memory: paths of the parameters that share their memory with another parameter.
        evaluating: path of a module that was in eval mode when the first backward pass began → "batch norm" or
            "dropout" if it computes something else in training, otherwise ""; None if no optimizer is known.
        came_in: path of a dropout → id of the input of its first call.
    """

    follows: tuple[type[nn.Module], ...] = (_DropoutNd,)

    def __init__(self, parameters: Iterable[KnownParameter] = ()) -> None:
        self.parameters = tuple(parameters)
        self.carrying: set[str] | None = None
        self.without_grad: set[str] = set()
        self.unregistered: tuple[str, ...] = ()
        self.functions: tuple[Fault, ...] = ()
        self.received: set[str] = set()
        self.optimized: frozenset[str] | None = None
        self.leftover: set[str] = set()
        self.containers: frozenset[str] = frozenset()
        self.on_one_memory: frozenset[str] = frozenset()
        self.evaluating: Mapping[str, str] | None = None
        self.came_in: dict[str, str] = {}
        self._undecided: list[tuple[str, weakref.ref[Tensor]]] = []
        self._passes: Passes | None = None
        self._forget()

    def _forget(self) -> None:
        self._model: nn.Module | None = None
        self._optimizers: tuple[Optimizer, ...] = ()
        self._own: dict[str, nn.Parameter] = {}
        self._registered: set[int] = set()
        self._modules: set[int] = set()
        self._strangers: dict[int, tuple[str, Tensor]] = {}
        self._marks: dict[str, Mark] = {}
        self._first_marks: dict[str, Mark] = {}
        self._at_risk: set[str] = set()  # paths of gradients that the running backward pass may add to

    # ---------------------------------------------------------------- of the model and its optimizers

    def begins(self, model: object, optimizers: Sequence[Optimizer] = (), *, clears: bool = False) -> None:
        """The pass of a model is about to begin; a model that is not an nn.Module gives no further facts.

        `clears`: the gradients will be cleared before the pass, and count as left over if they are not 0 now.
        """
        if isinstance(model, nn.Module):
            self._model, self._optimizers = model, tuple(optimizers)
            self._own = dict(model.named_parameters())
            self._registered = {id(each) for each in self._own.values()}
            self._marks = self._first_marks = self._marked()
            with DisableTorchFunction():
                starts = {path: address(each) for path, each in self._own.items() if type(each) is nn.Parameter}
            times = Counter(starts.values())
            self.on_one_memory = frozenset(path for path, start in starts.items() if start and times[start] > 1)
            if clears and self._optimizers:
                self.leftover = filled((path, each.grad) for path, each in self._own.items())

    def backward_begins(self) -> None:
        """A backward pass that adds to `.grad` is about to begin."""
        if self._model is None:
            return
        before, self._marks = self._first_marks, self._marked()
        self._at_risk = set()
        if self._optimizers:
            if self.evaluating is None:
                modules = self._model.named_modules()
                self.evaluating = {path: _only_in_training(each) for path, each in modules if not each.training}
            held = self._held()
            with DisableTorchFunction():
                self._at_risk = filled(
                    (path, parameter.grad)
                    for path, parameter in self._own.items()
                    if id(parameter) in held and not _changed(before[path], parameter.grad)
                )

    def backward_ended(self) -> None:
        """The backward pass is over."""
        with DisableTorchFunction():
            now = {path for path, each in self._own.items() if _changed(self._marks[path], each.grad)}
        self.received |= now
        self.leftover |= now & self._at_risk

    def ended(self) -> None:
        """The pass is over: complete the facts, and release the model."""
        model = self._model
        if model is None:
            return
        held = self._held()
        # After the first run lazy parameters have shapes, and layers have registered the parameters that they create.
        paths = _paths(model)
        self.parameters = _known(paths)
        self.containers = frozenset(path for path, each in model.named_modules() if isinstance(each, CONTAINERS))
        with DisableTorchFunction():
            for parameter, (path, *_) in paths.items():
                mark, gradient = self._marks.get(path), parameter.grad
                if gradient is not None and (mark is None or mark[0]() is not gradient):
                    self.received.add(path)  # assigned by hand, or the parameter is new
        if self._optimizers:
            self.optimized = frozenset(path for each, (path, *_) in paths.items() if id(each) in held)
        known = {id(each) for each in paths} | held
        self.unregistered = tuple(identifier for key, (identifier, _) in self._strangers.items() if key not in known)
        self._forget()

    def _marked(self) -> dict[str, Mark]:
        with DisableTorchFunction():
            return {path: _mark(each.grad) for path, each in self._own.items()}

    def _held(self) -> set[int]:
        """The ids of the optimizers' parameters."""
        return {id(each) for every in self._optimizers for group in every.param_groups for each in group["params"]}

    # ---------------------------------------------------------------- of the tensors and modules, as they come

    def watch(self, identifier: str, tensor: Tensor) -> None:
        """Note whether a tensor requires grad when it is recorded, and whether it is an unregistered parameter.

        A parameter that forward creates appears again under the id of its values.
        """
        if self.carrying is None:
            self.carrying = set()
        if self._undecided:
            self._look_again()
        if tensor.requires_grad:
            self.carrying.add(identifier)
            if id(tensor) not in self._registered and self._is_stranger(tensor):
                self._strangers[id(tensor)] = identifier, tensor
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

    def _is_stranger(self, tensor: Tensor) -> bool:
        """Whether a leaf is a parameter that a method of the model reads and that no module of the model registers.

        A discriminator or a loss is called outside of the model, so its parameters do not count. While a module runs,
        another parameter may replace its own, for example with torch.func.functional_call or FSDP2.
        """
        if self._model is None or not isinstance(tensor, nn.Parameter):
            return False
        if not self._modules:
            self._modules = {id(each) for each in self._model.modules()}
        inside = False
        for frame, _ in walk_stack(None):
            code = frame.f_code
            module = frame.f_locals.get("self") if code.co_argcount and code.co_varnames[0] == "self" else None
            if isinstance(module, nn.Module) and id(module) in self._modules:
                inside = True
                if any(each is tensor for each in module._parameters.values()):
                    return False
        return inside

    def module_begins(self, path: str, given: str) -> None:
        """A dropout runs for the first time, with the tensor of this id as its input."""
        self.came_in[path] = given

    def passes(self, trace: Trace) -> Passes:
        """The trace as a graph; a repeated recording reuses its lookups."""
        known = self._passes
        self._passes = Passes(trace) if known is None or known.trace.ops is not trace.ops else known.again(trace)
        return self._passes


def _local(gradient: Tensor) -> Tensor:
    """The part of a sharded gradient (FSDP2) that this process holds; any other gradient itself."""
    own: Tensor = getattr(gradient, "_local_tensor", gradient)
    return own


def _mark(gradient: Tensor | None) -> Mark:
    return None if gradient is None else (weakref.ref(gradient), version_of(_local(gradient)))


def _changed(mark: Mark, gradient: Tensor | None) -> bool:
    """Whether a gradient was replaced or written to since its mark."""
    if gradient is None:
        return False
    return mark is None or mark[0]() is not gradient or mark[1] != version_of(_local(gradient))


def _only_in_training(module: nn.Module) -> str:
    if isinstance(module, _BatchNorm) and module.running_mean is not None:
        return "batch norm"
    return "dropout" if isinstance(module, _DropoutNd) and module.p > 0 else ""
