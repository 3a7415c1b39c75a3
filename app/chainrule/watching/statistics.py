"""The statistics of one step: from hooks on the leaf modules, and from the parameters before and after the update."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks, register_module_forward_hook
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from chainrule.stats import COLUMNS, COUNT_COLUMNS, StatisticsSlab, unsupported
from chainrule.trace.journal import local_part

FloatArray = npt.NDArray[np.float64]

SAMPLE = 2**16
"""For a parameter with more elements, the update is computed from a sample of this size."""

RUN = 64
"""The sample consists of evenly spaced runs of this many neighbouring elements."""

LEAST_BATCH = 16
"""In a smaller batch, healthy units of a ReLU are often 0 for all examples."""

PARTS = ("activation", "gradient", "weight", "weight_gradient", "update")
"""The tensors of a layer or parameter that have statistics."""

_MIDDLES: dict[type[nn.Module], float] = {nn.Tanh: 0.0, nn.Softsign: 0.0, nn.Sigmoid: 0.5}
_FRACTIONS = ("zero_fraction", "dead_fraction", "saturation")
_SCALED = [COLUMNS.index(name) for name in COLUMNS if name not in (*COUNT_COLUMNS, *_FRACTIONS)]
_COUNTS = [COLUMNS.index(name) for name in COUNT_COLUMNS]
_NONFINITE = [COLUMNS.index(name) for name in COUNT_COLUMNS if name != "n"]
_NORM, _DEAD = COLUMNS.index("norm"), COLUMNS.index("dead_fraction")


class Members:
    """The leaf modules and the parameters of a model, by name.

    Attributes:
        leaves: module that calls no other module → its path; the model itself has the name of its class.
        rectifiers: leaves whose units can die.
        middles: leaf whose units can saturate → the middle of its range.
        parameters: (name, parameter) pairs.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules: list[nn.Module] = []
        self._ids: list[int] = []  # of the parameters
        self.leaves: dict[nn.Module, str] = {}
        self.rectifiers: set[nn.Module] = set()
        self.middles: dict[nn.Module, float] = {}
        self.parameters: list[tuple[str, nn.Parameter]] = []
        self._receive: Callable[[nn.Module, Any], None] = lambda *_: None

        def hook(module: nn.Module, _: Any, output: Any) -> None:
            # Statistics would cut a compiled graph, and so change its numbers, or become ops of a traced one.
            if not torch.compiler.is_compiling() and torch._C._get_tracing_state() is None:
                self._receive(module, output)

        self._hook = hook
        self._handle = register_module_forward_hook(hook)
        self.stop_listening()
        self.look_at_modules()
        self.look_at_parameters()

    def listen(self, receive: Callable[[nn.Module, Any], None]) -> None:
        """Call `receive(module, output)` after each call of any module.

        The hook is the same one each time, with the same number: torch.compile would compile again for another one.
        """
        self._receive = receive
        _global_forward_hooks[self._handle.id] = self._hook

    def stop_listening(self) -> None:
        """Remove the hook of `listen`."""
        self._handle.remove()

    def look_at_modules(self) -> None:
        """Look again, because the model may have changed. Takes about 0.5 µs per module if it has not."""
        modules = [self._model]
        for module in modules:  # grows
            modules += [child for child in module._modules.values() if child is not None]
        if [id(each) for each in modules] == [id(each) for each in self._modules]:
            return
        self._modules = modules
        # A parametrized layer has its parametrizations as a child. MultiheadAttention does not call its child.
        self.leaves = {
            each: path or type(each).__name__
            for path, each in self._model.named_modules()
            if set(each._modules.keys()) <= {"parametrizations"} or isinstance(each, nn.MultiheadAttention)
        }
        self.rectifiers = {each for each in self.leaves if isinstance(each, (nn.ReLU, nn.ReLU6))}
        self.middles = {each: _MIDDLES[type(each)] for each in self.leaves if type(each) in _MIDDLES}

    def look_at_parameters(self) -> None:
        """Look again at the parameters of the modules. In a pass, sharded ones are replaced by whole ones."""
        ids = [id(each) for module in self._modules for each in module._parameters.values()]
        if ids != self._ids:
            self._ids = ids
            self.parameters = list(self._model.named_parameters())


class StepStatistics:
    """The statistics of one step. Its hooks stay until `end`.

    A module that is called several times has the statistics of its first call. If gradients accumulate, this is the
    first batch.

    Args:
        members: the modules and parameters of the model.
        has_histograms: whether the rows have histograms.
    """

    def __init__(self, members: Members, *, has_histograms: bool) -> None:
        self._members, self._has_histograms = members, has_histograms
        expected = 2 * len(members.leaves) + 3 * len(members.parameters)
        self._slab = StatisticsSlab(max(expected, 1), only_moments=not has_histograms)
        self._rows: dict[str, dict[str, int]] = {part: {} for part in PARTS}  # part → layer → row
        self._dividers: dict[int, float] = {}  # row → the divisor of its numbers
        self._repeats: dict[int, float] = {}  # row → elements of the tensor ÷ elements of its sample
        self._rectifiers: list[tuple[str, int]] = []
        self._updated: list[tuple[str, torch.Tensor]] = []  # the optimizer's parameters that have a gradient
        self._negatives: list[torch.Tensor] = []  # their negated samples, copied before the update
        self._has_looked = False  # at the modules, which may change until the forward pass
        self._takers = [self._take]  # of the hooks of gradients; none when the step is over
        self._handles: list[RemovableHandle] = []
        members.listen(self._forward)

    def end(self, scale: float = 1) -> None:
        """Remove the hooks; later gradients are ignored. `scale`: the divisor of the gradients of outputs."""
        if not self._takers:
            return
        self._takers.clear()
        self._members.stop_listening()
        for handle in self._handles:
            handle.remove()
        self._look()
        self._members.look_at_parameters()
        if scale != 1:
            self._dividers = dict.fromkeys(self._rows["gradient"].values(), scale)

    def _look(self) -> None:
        if not self._has_looked:
            self._has_looked = True
            self._members.look_at_modules()

    def forget_gradients(self) -> None:
        """Leave out the gradients of outputs, which may hold what the scaler would have discarded."""
        self._rows["gradient"] = {}

    def _forward(self, module: nn.Module, output: Any) -> None:
        self._look()
        path = self._members.leaves.get(module)
        if path is None or not torch.is_grad_enabled():
            return
        if isinstance(output, tuple) and output:  # the states of a recurrent layer follow its output
            output = output[0]
        if not isinstance(output, torch.Tensor):
            return
        row = self._take(self._rows["activation"], path, output)
        if row < 0:
            return
        local = local_part(output)
        if module in self._members.rectifiers:
            if local.dim() > 1 and local.numel():
                self._slab.write_dead_fraction(row, local)
                if local.size(0) >= LEAST_BATCH:
                    self._rectifiers.append((path, row))
        elif (middle := self._members.middles.get(module)) is not None and local.numel():
            self._slab.write_saturation(row, local, middle)
        if output.requires_grad:
            self._hook(output, path)

    def _hook(self, output: torch.Tensor, path: str) -> None:
        """`output.register_hook`, which takes three times as long, because of the handle that it returns."""
        takers, rows = self._takers, self._rows["gradient"]

        def hook(gradient: torch.Tensor) -> None:
            for take in takers:
                take(rows, path, gradient)

        node = output.grad_fn
        if node is not None and output._backward_hooks is None:
            output._backward_hooks = OrderedDict(((hook, hook),))  # type: ignore[arg-type]  # torch's: int
            node._register_hook_dict(output)
        else:
            # A parameter outlives the step, so its hook is removed.
            self._handles.append(output.register_hook(hook))  # type: ignore[no-untyped-call]

    def _take(self, rows: dict[str, int], layer: str, tensor: torch.Tensor) -> int:
        """The row with the statistics of a tensor; -1 if it has none, or the layer has a row already."""
        known = self._slab.take_named(tensor, rows, layer)
        if known is not None:
            return known
        tensor = local_part(tensor)
        if layer in rows or not tensor.is_floating_point() or unsupported(tensor) is not None:
            return -1
        row = self._slab.take(tensor)
        rows[layer] = row
        return row

    def _take_all(self, rows: dict[str, int], tensors: dict[str, torch.Tensor]) -> None:
        """Take tensors by name. `rows` is empty and gets their rows, in their order."""
        self._slab.take_group(tensors, rows)
        left = [name for name in tensors if name not in rows]
        for name in left:
            self._take(rows, name, tensors[name])
        if 0 < len(left) < len(tensors):  # the last ones are behind the others
            in_order = {name: rows[name] for name in tensors if name in rows}
            rows.clear()
            rows |= in_order

    @torch.no_grad()
    def take_parameters(self, optimizer: Optimizer) -> None:
        """Take the parameters, and their gradients as the optimizer sees them; of DTensors the part of this rank.

        Also copies the parameters before the update, while they are in the cache: in full, or samples of SAMPLE
        elements.
        """
        # A fused optimizer divides by the scale itself.
        scale = getattr(optimizer, "grad_scale", None)
        divider = 1.0 if scale is None else float(scale)
        gradients = self._rows["weight_gradient"]
        given = {name: each.grad for name, each in self._members.parameters if each.grad is not None}
        self._take_all(self._rows["weight"], dict(self._members.parameters))
        self._take_all(gradients, given)
        if divider != 1:
            self._dividers |= dict.fromkeys(gradients.values(), divider)
        # Another optimizer changes its parameters at another time.
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        self._updated = [
            (name, local_part(each)) for name, each in self._members.parameters if name in given and id(each) in own
        ]
        samples = [_sample(parameter) for _, parameter in self._updated]
        if _are_plain(samples):
            self._negatives = list(torch._foreach_neg(samples))
        else:
            self._negatives = [each.neg() for each in samples]

    @torch.no_grad()
    def take_updates(self) -> None:
        """Take the changes that the optimizer made to the parameters, and release the copies."""
        updates = self._rows["update"]
        samples = [_sample(parameter) for _, parameter in self._updated]  # the optimizer may have given it other memory
        if _are_plain(samples):
            torch._foreach_add_(self._negatives, samples)
        else:
            for negative, sample in zip(self._negatives, samples, strict=True):
                negative.add_(sample)
        self._take_all(updates, {name: each for (name, _), each in zip(self._updated, self._negatives, strict=True)})
        for (name, parameter), update in zip(self._updated, self._negatives, strict=True):
            if name in updates and update.numel() != parameter.numel():
                self._repeats[updates[name]] = parameter.numel() / update.numel()
        self._updated, self._negatives = [], []

    @property
    def keys(self) -> list[tuple[str, str]]:
        """(layer, part) of each tensor, part by part."""
        return [(layer, part) for part, rows in self._rows.items() for layer in rows]

    def _places(self) -> list[int]:
        return [row for rows in self._rows.values() for row in rows.values()]

    @property
    def _moments(self) -> FloatArray:
        """The slab's rows, divided by the scale, and scaled from a sample to the whole parameter."""
        found = self._slab.moments
        moments = found if found.flags.writeable else found.copy()  # a copy each time, of several blocks
        for row, divider in self._dividers.items():
            moments[row, _SCALED] /= divider
        for row, repeats in self._repeats.items():
            moments[row, _COUNTS] *= repeats
            moments[row, _NORM] *= math.sqrt(repeats)
        if moments is found:
            self._dividers, self._repeats = {}, {}
        return moments

    @property
    def moments(self) -> FloatArray:
        """(tensors, len(COLUMNS)), in the order of `keys`."""
        return self._moments[self._places()]

    @property
    def histograms(self) -> npt.NDArray[np.uint32] | None:
        """(tensors, BINS), in the order of `keys`, or None."""
        return self._slab.counts[self._places()] if self._has_histograms else None

    def norms(self, part: str) -> dict[str, float]:
        """Layer → L2 norm of its part; NaN if the part contains NaN or Inf."""
        rows = self._rows[part]
        moments = self._moments[list(rows.values())]
        norms = np.where(moments[:, _NONFINITE].any(1), math.nan, moments[:, _NORM])
        return dict(zip(rows, norms.tolist(), strict=True))

    def dead_fractions(self) -> list[tuple[str, float]]:
        """(layer, dead fraction) of each rectifier with a batch of at least LEAST_BATCH."""
        moments = self._slab.moments
        return [(path, float(moments[row, _DEAD])) for path, row in self._rectifiers]

    def first_nonfinite(self, loss: float | None) -> tuple[str, str | None] | None:
        """The place of the first NaN or Inf in words, and the path of the module or the name of the parameter."""
        # Beyond its rows a slab holds any bits, of which numpy may warn.
        bad = set(np.flatnonzero(self._moments[: self._slab.rows, _NONFINITE].any(1)).tolist())
        first: dict[str, str] = {}
        for part, rows in self._rows.items() if bad else ():
            if place := next((layer for layer, row in rows.items() if row in bad), None):
                first[part] = place
        if not first and (loss is None or math.isfinite(loss)):
            return None
        kinds = {path: type(module).__name__ for module, path in self._members.leaves.items()}
        if name := first.get("weight"):
            return f"the parameter {name} contains NaN or Inf before the pass: an earlier update wrote it", name
        if path := first.get("activation"):
            number = list(self._rows["activation"]).index(path) + 1
            return (
                f"forward: the output of {path} ({kinds[path]}), module {number} of the pass, contains NaN or Inf",
                path,
            )
        if loss is not None and not math.isfinite(loss):
            known = "the outputs of all modules are finite" if self._rows["activation"] else "no module has statistics"
            return f"forward: the loss is NaN or Inf, but {known}", None
        if path := first.get("gradient"):
            return f"backward: the gradient of the output of {path} ({kinds[path]}) contains NaN or Inf", path
        if name := first.get("weight_gradient"):
            return f"backward: the gradient of the parameter {name} contains NaN or Inf", name
        return None


def _are_plain(tensors: list[torch.Tensor]) -> bool:
    """Whether there are tensors, and none is of a subclass, which may lack the ops on lists."""
    return bool(tensors) and {type(each) for each in tensors} <= {torch.Tensor, nn.Parameter}


def _sample(parameter: torch.Tensor) -> torch.Tensor:
    """A view of SAMPLE elements in evenly spaced runs; the parameter itself if it is small or has gaps."""
    size = parameter.numel()
    if size <= SAMPLE or not parameter.is_contiguous():
        return parameter
    runs = SAMPLE // RUN
    return parameter.view(-1)[: size // runs * runs].view(runs, -1)[:, :RUN]
