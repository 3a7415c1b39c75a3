"""Which module an op belongs to: the paths of a model's own objects, found once before the recording starts."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from chainrule.trace.journal import address, local_part
from chainrule.trace.nested import named_tensors

TARGETS = frozenset(("label", "labels", "target", "targets", "y"))
"""Arguments of a model with one of these names are targets, all others inputs."""

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, torch.dtype, torch.device)
_MAX_OBJECTS = 100_000


class Owners:
    """The objects of a model with their paths, and its tensors with their names."""

    def __init__(self, model: object) -> None:
        """Walk `model`: an nn.Module by its registrations, any other object by its attributes, lists and dicts."""
        self.path: dict[int, str] = {}
        self.type: dict[str, str] = {}
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], str, str]] = {}
        self.sharded: list[tuple[str, weakref.ref[torch.Tensor]]] = []  # the DTensors among the parameters
        self._shards: dict[int, tuple[str, str]] = {}  # the address of a shard's elements → name and role
        self.root_type = type(model).__name__ if model is not None else "function"
        if hasattr(model, "__code__"):
            self.root_type = getattr(model, "__name__", "function")
        # While the objects are held, their ids are not reused.
        self._held: list[object] = []
        for path, part in _parts(model):
            self._add(path, part)

    def _add(self, path: str, part: object) -> None:
        if isinstance(part, torch.Tensor):
            self.name_tensor(part, path, "parameter")
            if local_part(part) is not part:
                self.sharded.append((path, weakref.ref(part)))
                self._add_shard(part, f"{path} shard", "constant")
                self._add_shard(part.grad, f"{path}.grad shard", "gradient")
            return
        if id(part) not in self.path:
            self.path[id(part)] = path
            self._held.append(part)
        self.type.setdefault(path, type(part).__name__)
        if isinstance(part, nn.Module):
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    self.name_tensor(buffer, _join(path, name), "buffer")

    def path_of(self, module: nn.Module) -> str:
        """The path of a module; its class's name if it is not part of the model, as a loss may be."""
        if id(module) not in self.path:
            self._add(type(module).__name__, module)
        return self.path[id(module)]

    def release(self) -> None:
        """Let go of the model."""
        self._held.clear()

    def name_tensor(self, tensor: torch.Tensor, name: str, role: str) -> None:
        """Set name and role of a leaf tensor, unless it has them."""
        if self.describe(tensor) is None:
            self.rename_tensor(tensor, name, role)

    def name_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Name the arguments of a model, unless they have names."""
        for name, tensor in named_tensors(args, kwargs):
            self.name_tensor(tensor, name, "target" if name in TARGETS else "input")

    def rename_tensor(self, tensor: torch.Tensor, name: str, role: str) -> None:
        """Set name and role of a leaf tensor."""
        self._tensors[id(tensor)] = (weakref.ref(tensor), name, role)

    def describe(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """Name and role of a tensor of the model; None for any other tensor."""
        reference, name, role = self._tensors.get(id(tensor), (None, "", ""))
        if reference is not None and reference() is tensor:
            return name, role
        return self._shards.get(address(tensor) or 0) if self._shards else None

    def _add_shard(self, tensor: torch.Tensor | None, name: str, role: str) -> None:
        """FSDP reads a shard through views of its own: they are known by their address."""
        if tensor is not None and (start := address(local_part(tensor))):
            self._shards[start] = name, role


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parts(model: object) -> Iterator[tuple[str, Any]]:
    """Every owner and tensor reachable from `model` as (path, object), each object once.

    The parts of an nn.Module come in torch's order, whose first path counts; those of any other object breadth first.
    """
    if model is None or hasattr(model, "__code__"):
        return
    if isinstance(model, nn.Module):
        for path, module in model.named_modules():
            yield path, module
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield _join(path, name), parameter
        return
    seen = {id(model)}
    queue: list[tuple[str, Any]] = [("", model)]
    for path, part in queue:
        if len(queue) > _MAX_OBJECTS:
            return
        yield path, part
        if isinstance(part, torch.Tensor):
            continue
        for name, child in _children(part):
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((_join(path, name), child))


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """The children that can lead to ops or parameters: tensors, modules, containers, objects of user classes."""
    if isinstance(part, nn.Module):
        named: Any = (*part._parameters.items(), *part._modules.items())
    elif isinstance(part, (list, tuple)):
        named = ((str(index), child) for index, child in enumerate(part))
    elif isinstance(part, dict):
        named = ((str(key), child) for key, child in part.items() if isinstance(key, (str, int)))
    else:
        named = getattr(part, "__dict__", {}).items()
    for name, child in named:
        is_object = hasattr(child, "__dict__") and not hasattr(child, "__code__") and not hasattr(child, "__path__")
        if not isinstance(child, _PLAIN) and (is_object or isinstance(child, (torch.Tensor, list, tuple, dict))):
            yield name, child
