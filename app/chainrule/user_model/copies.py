"""Copies of a user's model, its inputs and its loss.

`chainrule.explore` shows a copy, since the model may go on training; `--device` moves a copy.

Deepcopy copies no function. But a loss, a hook or a forward may be a function that holds the model: in its closure, its
defaults, or as a name of its module. The copy gets new functions, which hold the copied model.
"""

from __future__ import annotations

import contextlib
import copy
from collections import defaultdict
from collections.abc import Container
from dataclasses import replace
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chainrule.trace.nested import nested_tensors
from chainrule.user_model.subject import Subject, described

Device = torch.device | str | torch.dtype | None
"""Where a copy is moved to. A dtype casts floating tensors of the model and its inputs, but no targets of the loss."""
Memo = dict[int, Any]
"""By the id of an original, its copy: as deepcopy has it."""


def copied_subject(subject: Subject, device: Device = None) -> Subject:
    """A copy that shares no tensor with the original, moved to `device` or cast to it if one is given.

    Raises:
        ExploreError: it cannot be copied, or not be moved there; says why.
        MemoryLimitError: there is no memory for a copy.
    """
    memo: Memo = {}
    for module in subject.model.modules():
        # deepcopy refuses tensors with a history, and a forward pass may leave some.
        _copy_tensors([each for each in vars(module).values() if not isinstance(each, nn.Module)], memo, device)
    try:
        shells = _shells(subject.model, memo)
        with torch.no_grad():  # so the parameters of a scripted model stay leaves
            model = _deep_copied(subject.model, memo)
        for function, shell in shells:
            _fill(shell, function, memo, device)
        for original, parameter in zip(subject.model.parameters(), model.parameters(), strict=True):
            _copy_gradient_state(original, parameter, memo, device)
    except Exception as error:
        attribute = _uncopied(subject.model)
        message = f"the model cannot be copied{f', because of {attribute}' if attribute else ''}"
        raise subject.told(error, message) from None
    if device is not None and not isinstance(device, torch.dtype):
        with subject.telling(f"the model cannot be moved to {device}"):
            model = model.to(device)
    with subject.telling("the inputs cannot be copied"):
        args, kwargs = copied((subject.args, dict(subject.kwargs)), device)
    with subject.telling("the loss cannot be copied"):
        loss = _rebound(subject.loss, memo, device)
    optimizers = tuple(_holding_copies(each, memo) for each in subject.optimizers)
    return replace(subject, model=model, args=args, kwargs=kwargs, loss=loss, optimizers=optimizers)


def _holding_copies(optimizer: Optimizer, memo: Memo) -> Optimizer:
    """An optimizer of the copied parameters, without its state."""
    made = copy.copy(optimizer)
    made.state = defaultdict(dict)
    made.param_groups = [
        {**group, "params": [memo.get(id(each), each) for each in group["params"]]} for group in optimizer.param_groups
    ]
    return made


def copied(value: Any, device: Device = None) -> Any:
    """A deep copy; its tensors are leaves, on `device` if one is given, and require grad where the originals do.

    Raises:
        Exception: whatever copying something in it raises.
    """
    memo: Memo = {}
    _copy_tensors([value], memo, device)
    return copy.deepcopy(value, memo)


def _deep_copied(module: nn.Module, memo: Memo) -> nn.Module:
    """`copy.deepcopy`, with the copies of functions in `memo`: from Python 3.14 on, deepcopy does not look for them."""
    copied_module = copy.deepcopy(module, memo)

    def put(value: Any) -> Any:
        if type(value) is FunctionType:
            return memo.get(id(value), value)
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
            parts = [put(each) for each in value]
            if any(new is not old for new, old in zip(parts, value, strict=True)):
                return tuple(parts) if type(value) is tuple else type(value)(*parts)
        return value

    for original, made in list(memo.items()):
        if original in (id(made), id(memo)):  # shared with the original; the list that keeps originals alive
            continue
        if type(made) is partial:
            keywords = {name: put(each) for name, each in made.keywords.items()}
            made.__setstate__((put(made.func), put(made.args), keywords, vars(made)))  # type: ignore[attr-defined]
        for holder in (made, getattr(made, "__dict__", None)):
            if isinstance(holder, list | dict):
                for key, each in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
                    if (new := put(each)) is not each:
                        holder[key] = new
    return copied_module


def _copy_tensors(values: list[Any], memo: Memo, device: Device) -> None:
    """Put one copy of each tensor in these values into `memo`."""
    for tensor in nested_tensors(values):
        if id(tensor) not in memo:
            memo[id(tensor)] = _copied_tensor(tensor, device)


def _copied_tensor(tensor: Tensor, device: Device) -> Tensor:
    made = tensor.detach().clone()
    if device is not None and (made.is_floating_point() or not isinstance(device, torch.dtype)):
        made = made.to(device)
    # A forward may test for it.
    made = nn.Parameter(made, requires_grad=False) if isinstance(tensor, nn.Parameter) else made
    return made.requires_grad_(tensor.requires_grad)


def _rebound(value: Any, memo: Memo, device: Device) -> Any:
    """A value, such as a loss, with the model's parts replaced by their copies in `memo`.

    Tensors, modules and containers are copied, functions are made anew. Any other object stays as it is, unless it has
    a part of the model as an attribute.
    """
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, Tensor):
        return memo.setdefault(id(value), _copied_tensor(value, None if isinstance(device, torch.dtype) else device))
    if isinstance(value, nn.Module):
        made = _deep_copied(value, memo)
        return made if device is None else made.to(device)
    if type(value) is tuple:
        parts = tuple(_rebound(each, memo, device) for each in value)
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    if type(value) is list:
        listed: list[Any] = memo.setdefault(id(value), [])  # first, since it may hold itself
        listed += [_rebound(each, memo, device) for each in value]
        return listed
    if type(value) is dict:
        named: dict[Any, Any] = memo.setdefault(id(value), {})
        named.update((key, _rebound(each, memo, device)) for key, each in value.items())
        return named
    if type(value) is MethodType:
        return MethodType(value.__func__, _rebound(value.__self__, memo, device))
    if type(value) is partial:
        keywords = _rebound(value.keywords, memo, device)
        return partial(_rebound(value.func, memo, device), *_rebound(value.args, memo, device), **keywords)
    if type(value) is FunctionType:
        return _rebound_function(value, memo, device)
    parts_of_model = {name: memo[id(each)] for name, each in getattr(value, "__dict__", {}).items() if id(each) in memo}
    if parts_of_model and not isinstance(value, type | ModuleType):
        made = memo.setdefault(id(value), copy.copy(value))
        vars(made).update(parts_of_model)
        return made
    return value


def _rebound_function(function: FunctionType, memo: Memo, device: Device) -> FunctionType:
    if not _holds(function, memo, set()):
        return function
    shell = memo[id(function)] = _shell(function, memo)  # first, since it may hold itself
    _fill(shell, function, memo, device)
    return shell


def _holds(value: Any, parts: Container[int], seen: set[int]) -> bool:
    """Whether a function leads to one of these ids, or to a value that a copy may not share."""
    if id(value) in parts or isinstance(value, Tensor | nn.Module) or type(value) in (list, dict):
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    held: tuple[Any, ...] = ()
    if type(value) is FunctionType:
        if _found_by(value, parts):
            return True
        held = (value.__defaults__, *(value.__kwdefaults__ or {}).values(), *_closed_over(value))
    elif type(value) is tuple:
        held = value
    elif type(value) is partial:
        held = (value.func, *value.args, *value.keywords.values())
    elif type(value) is MethodType:
        held = (value.__self__,)
    elif not isinstance(value, type | ModuleType):
        return any(id(each) in parts for each in getattr(value, "__dict__", {}).values())
    return any(_holds(each, parts, seen) for each in held)


def _closed_over(function: FunctionType) -> list[Any]:
    """The values in a function's closure."""
    found: list[Any] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a name without a value yet
            found.append(cell.cell_contents)
    return found


def _found_by(function: FunctionType, parts: Container[int]) -> dict[str, Any]:
    """The names of a function's module that it uses and that lead to one of these ids, with their values."""
    there = function.__globals__
    found: dict[str, Any] = {}
    seen = {id(function)}

    def look(code: CodeType, name: str | None) -> None:
        """Search a code and the codes inside it; `name` is the function of the module that led here."""
        for each in code.co_names:
            if each not in there:
                continue
            value = there[each]
            if id(value) in parts:
                found[name or each] = there[name or each]
            elif type(value) is FunctionType and value.__globals__ is there and id(value) not in seen:
                seen.add(id(value))
                look(value.__code__, name or each)
        for each in code.co_consts:
            if isinstance(each, CodeType):
                look(each, name)

    look(function.__code__, None)
    return found


def _shells(model: nn.Module, memo: Memo) -> list[tuple[FunctionType, FunctionType]]:
    """The model's functions among attributes and hooks, each with its empty copy, which goes into `memo`."""
    parts = {id(each) for each in (*model.modules(), *model.parameters(), *model.buffers())}
    found: dict[int, FunctionType] = {}
    seen: set[int] = set()

    def look(value: Any) -> None:
        if type(value) is FunctionType and _holds(value, parts, set()):
            found[id(value)] = value
        elif type(value) is partial:
            look((value.func, value.args, value.keywords))
        elif isinstance(value, list | tuple | dict) and id(value) not in seen:
            seen.add(id(value))
            for each in value.values() if isinstance(value, dict) else value:
                look(each)

    for module in model.modules():
        look(vars(module))
    made = [(function, _shell(function, parts)) for function in found.values()]
    memo.update((id(function), shell) for function, shell in made)
    return made


def _uncopied(model: nn.Module) -> str | None:
    """The attribute that cannot be copied, as `encoder.lock (a value of type lock)`; None if all can."""
    modules = dict(model.named_modules())
    for path, module in modules.items():
        for name, value in vars(module).items():
            if isinstance(value, Tensor | nn.Module):
                continue
            try:
                copy.deepcopy(value, {id(each): each for each in (*modules.values(), *nested_tensors([value]))})
            except Exception:
                return f"{f'{path}.' if path else ''}{name} ({described(value)})"
    return None


def _copy_gradient_state(original: Tensor, parameter: Tensor, memo: Memo, device: Device) -> None:
    """Copy `requires_grad` and hooks, which deepcopy drops."""
    if parameter.requires_grad != original.requires_grad:
        parameter.requires_grad_(original.requires_grad)
    if parameter.requires_grad and not parameter._backward_hooks:
        for hook in (original._backward_hooks or {}).values():
            parameter.register_hook(_rebound(hook, memo, device))  # type: ignore[no-untyped-call]


def _shell(function: FunctionType, parts: Container[int]) -> FunctionType:
    """A copy of a function with an empty closure and no defaults; `_fill` sets them."""
    there = function.__globals__
    cells = tuple(CellType() for _ in function.__closure__ or ())
    names = dict(there) if _found_by(function, parts) else there
    made = FunctionType(function.__code__, names, function.__name__, None, cells)
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return made


def _fill(shell: FunctionType, function: FunctionType, memo: Memo, device: Device) -> None:
    shell.__defaults__ = _rebound(function.__defaults__, memo, device)
    shell.__kwdefaults__ = _rebound(function.__kwdefaults__, memo, device)
    if shell.__globals__ is not function.__globals__:
        found = _found_by(function, memo)
        shell.__globals__.update((name, _rebound(value, memo, device)) for name, value in found.items())
    for cell, old in zip(shell.__closure__ or (), function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name without a value yet
            cell.cell_contents = _rebound(old.cell_contents, memo, device)
