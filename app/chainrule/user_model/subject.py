"""What is to be run: a model, its inputs and its loss, as a factory returned them, checked before anything runs."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from chainrule.errors import ExploreError
from chainrule.trace.nested import named_tensors, nested_tensors
from chainrule.user_model.code import place_of, telling, told

WANTED = "wanted is (model, inputs) or (model, inputs, loss_fn)"


@dataclass(frozen=True)
class Subject:
    """One forward and backward pass that can be run: `loss(model(*args, **kwargs))`.

    Attributes:
        model: never changed by anything that is made of it, nor are the inputs.
        args: its positional inputs.
        kwargs: its inputs by keyword.
        loss: makes a scalar of the model's output; None: the output's `loss`, or the output itself, is the scalar.
        name: what the page calls it.
        folder: the folder of its file; None for a model of a notebook, say.
        place: `file:line` of the factory, for messages; may be empty.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Any] | None = None
    name: str = "model"
    folder: Path | None = None
    place: str = ""

    @property
    def device(self) -> torch.device:
        """Where it runs: the device of the first parameter, else of the first input, else the CPU."""
        for tensor in (*self.model.parameters(), *self.inputs):
            return tensor.device
        return torch.device("cpu")

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors among its inputs, those inside lists, tuples and dicts included."""
        return nested_tensors([*self.args, *self.kwargs.values()])

    def copied(self, device: torch.device | str | None = None) -> Subject:
        """The same on tensors of its own, moved to `device` if one is given.

        What the loss holds of the model (for a penalty on its weights, say), and of tensors, it then holds of the copy;
        and so does a function that the model has as an attribute or a hook.

        Raises:
            ExploreError: it cannot be copied, or not be moved there; says why.
            MemoryLimitError: there is no memory for a copy.
        """
        memo: dict[int, Any] = {}
        for module in self.model.modules():
            # torch copies no tensor that has a history: one that a forward has left behind, say.
            _copy_tensors([each for each in vars(module).values() if not isinstance(each, nn.Module)], memo, device)
        with self._copying():
            # A function is none that deepcopy copies: it would go on computing with the model itself.
            shells = _shells(self.model, memo)
            with torch.no_grad():  # of a scripted one the parameters would come of an op
                model = copy.deepcopy(self.model, memo)
            for function, shell in shells:
                _fill(shell, function, memo, device)
            for original, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
                _alike(original, parameter, memo, device)
        if device is not None:
            with telling(f"the model cannot be moved to {device}", self.folder, self.place):
                model = model.to(device)
        with telling("the inputs cannot be copied", self.folder, self.place):
            args, kwargs = copied((self.args, dict(self.kwargs)), device)
        with telling("the loss cannot be copied", self.folder, self.place):
            loss = _rebound(self.loss, memo, device)
        return replace(self, model=model, args=args, kwargs=kwargs, loss=loss)

    @contextmanager
    def _copying(self) -> Iterator[None]:
        """Whatever keeps the model from being copied is told with the attribute that does."""
        try:
            yield
        except Exception as error:
            what = _uncopied(self.model)
            message = f"the model cannot be copied{f': {what} cannot' if what else ''}"
            raise told(error, message, self.folder, self.place) from None


def make_subject(
    made: object,
    name: str,
    folder: Path | None = None,
    *,
    place: str = "",
    device: torch.device | str | None = None,
) -> Subject:
    """What a factory returned, checked: `(model, inputs)` or `(model, inputs, loss_fn)`.

    Args:
        made: what it returned. The inputs are a tensor, a tuple (positional) or a dict (keywords).
        name: what the page calls it.
        folder: where its file lies.
        place: `file:line` of the factory.
        device: where all of it is going to be moved; so it may lie in several places before.

    Raises:
        ExploreError: it is nothing that can be run and traced; the message begins with the place.
    """
    prefix = f"{place}: " if place else ""
    if not isinstance(made, tuple | list) or len(made) not in (2, 3):
        raise ExploreError(f"{prefix}{name} returned {described(made)}; {WANTED}")
    model, given, loss = (*made, None)[:3]
    if not isinstance(model, nn.Module):
        raise ExploreError(
            f"{prefix}{name} returned {described(model)} for the model; {WANTED}, where model is a torch.nn.Module"
        )
    if loss is not None and not callable(loss):
        raise ExploreError(
            f"{prefix}{name} returned {described(loss)} for the loss; {WANTED}, where loss_fn(output) is a scalar"
        )
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Tensor):
        args = (given,)
    elif type(given) is tuple:  # a named one, a packed sequence say, is an input by itself
        args = given
    elif isinstance(given, Mapping) and all(isinstance(each, str) for each in given):
        kwargs = dict(given)
    else:
        raise ExploreError(
            f"{prefix}{name} returned {described(given)} for the inputs; "
            "wanted is a tensor, a tuple of the arguments, or a dict of them by name"
        )
    # What is compiled shows nothing of what it computes; the module that it was compiled from does, and is the same.
    model = getattr(model, "_orig_mod", model)
    return check_subject(Subject(model, args, kwargs, loss, name, folder, place), moves=device is not None)


def check_subject(subject: Subject, *, moves: bool = False) -> Subject:
    """The subject itself, once it is known that it can be run, as far as that can be known before.

    Args:
        subject: it.
        moves: it is going to be moved to one device; until then it may lie in several places.

    Raises:
        ExploreError: it has no parameter that requires grad, its forward does not take its inputs, or they are on
            another device; the message begins with the place, if there is one.
    """
    prefix = f"{subject.place}: " if subject.place else ""
    if not isinstance(subject.model, nn.Module):
        raise ExploreError(f"{prefix}the model is {described(subject.model)}; wanted is a torch.nn.Module")
    _check_arguments(subject, prefix)
    _check_loss(subject, prefix)
    _check_parameters(subject, prefix)
    if not moves:
        _check_devices(subject, prefix)
    return subject


def _check_arguments(subject: Subject, prefix: str) -> None:
    """Raise ExploreError if the model's forward does not take as many inputs, or not by these names."""
    model = subject.model
    if model._forward_pre_hooks:  # they may give it others
        return
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*subject.args, **subject.kwargs)
    except TypeError as error:
        at = place_of(model.forward)
        raise ExploreError(
            f"{prefix}{type(model).__name__}.forward{signature}{f', at {at},' if at else ''} "
            f"does not take these inputs: {error}"
        ) from None


def _check_loss(subject: Subject, prefix: str) -> None:
    """Raise ExploreError if the loss cannot be called with the output alone."""
    loss = subject.loss
    if isinstance(loss, type):
        raise ExploreError(
            f"{prefix}the loss is {described(loss)}; wanted is loss_fn, where loss_fn(output) is a scalar"
        )
    if loss is None or (isinstance(loss, nn.Module) and loss._forward_pre_hooks):
        return
    function = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        at = place_of(function)
        name = type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", type(loss).__name__)
        raise ExploreError(
            f"{f'{at}: ' if at else prefix}the loss, {name}{inspect.signature(function)}, is called with the output "
            f"alone: {error}; give the rest by a function: lambda output: loss(output, target)"
        ) from None
    except ValueError:  # of some builtins nothing is known
        return


def _check_parameters(subject: Subject, prefix: str) -> None:
    parameters = dict(subject.model.named_parameters())
    for name, parameter in parameters.items():
        if is_lazy(parameter):
            raise ExploreError(
                f"{prefix}parameter {name} has no values yet: call the model once before it is returned (it is lazy)"
            )
        if parameter.is_meta:
            raise ExploreError(f"{prefix}parameter {name} is on the meta device: it has a shape and no values")
    if not any(each.requires_grad for each in (*parameters.values(), *subject.inputs)):
        none = (
            f"none of its {len(parameters)} parameters requires grad, such as {next(iter(parameters))}"
            if parameters
            else "it has no parameters, and no input requires grad"
        )
        raise ExploreError(
            f"{prefix}{type(subject.model).__name__}: {none}: there is no gradient to look at; "
            "requires_grad_(True) asks for one"
        )


def _check_devices(subject: Subject, prefix: str) -> None:
    """Raise ExploreError if the model is on one device, and an input on another."""
    own = {each.device for each in (*subject.model.parameters(), *subject.model.buffers())}
    if len(own) != 1:  # one that is spread over several devices moves its inputs itself
        return
    (device,) = own
    for name, tensor in named_tensors(subject.args, subject.kwargs):
        # A number may be anywhere.
        if tensor.device != device and tensor.dim():
            raise ExploreError(
                f"{prefix}the model is on {device}, and {name} {_shape(tensor)} is on {tensor.device}; "
                f"move one of them, or both with --device {device}"
            )


# -------------------------------------------------------------------------------------------------------------- loss


def scalar_loss(subject: Subject, output: Any, result: Any) -> Tensor:
    """The scalar that the backward pass starts from.

    Args:
        subject: what was run.
        output: what its model put out.
        result: what its loss made of that; without a loss it is not looked at.

    Raises:
        ExploreError: there is none, or more than one; says what there is instead, and what is wanted.
    """
    if subject.loss is not None:
        if _is_scalar(result):
            return result  # type: ignore[no-any-return]
        at = place_of(subject.loss) or subject.place
        raise ExploreError(f"{f'{at}: ' if at else ''}no scalar loss: loss_fn(output) is {described(result)}")
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is None and type(output) in (tuple, list):
        scalars = [each for each in output if _is_scalar(each)]
        found = scalars[0] if len(scalars) == 1 else None
    if found is None:
        found = output
    if _is_scalar(found):
        return found  # type: ignore[no-any-return]
    given = "(model, inputs, loss_fn)" if subject.place else "loss=loss_fn"
    raise ExploreError(
        f"{f'{subject.place}: ' if subject.place else ''}no scalar loss: the model puts out {described(output)}; "
        f"give {given}, where loss_fn(output) is a scalar, or inputs with which its output has a loss"
    )


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point()


def described(value: object) -> str:
    """What a value is, in words short enough for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {_shape(value)}" + ("" if value.is_floating_point() else f" and {value.dtype}")
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, tuple | list) and len(value) <= 4:
        inside = ", ".join(described(each) if isinstance(each, Tensor) else type(each).__name__ for each in value)
        return f"a {type(value).__name__} of {len(value)}" + (f" ({inside})" if value else "")
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, nn.Module):
        return f"a model of type {type(value).__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {', '.join(str(each) for each in list(value)[:8])}"
    return f"a value of type {type(value).__name__}"


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


# ------------------------------------------------------------------------------------------------------------- copies


def copied(value: Any, device: torch.device | str | None = None) -> Any:
    """A deep copy; its tensors are leaves, on `device` if one is given, and require grad where the originals do.

    Raises:
        Exception: whatever copying something in it raises.
    """
    memo: dict[int, Any] = {}
    _copy_tensors([value], memo, device)
    return copy.deepcopy(value, memo)


def _copy_tensors(values: list[Any], memo: dict[int, Any], device: torch.device | str | None) -> None:
    """Have `memo` say what takes the place of the tensors in these values: of each one copy, wherever it stands."""
    for tensor in nested_tensors(values):
        if id(tensor) not in memo:
            memo[id(tensor)] = _copied_tensor(tensor, device)


def _copied_tensor(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    made = tensor.detach().clone()
    if device is not None:
        made = made.to(device)
    # A forward may ask which it is.
    made = nn.Parameter(made, requires_grad=False) if isinstance(tensor, nn.Parameter) else made
    return made.requires_grad_(tensor.requires_grad)


def _rebound(value: Any, memo: dict[int, Any], device: torch.device | str | None) -> Any:
    """A loss that holds copies: of the model's parts those in `memo`, and of tensors, modules and containers new ones.

    A plain function is made anew over what it has closed over, and over what of the model it finds in its own module.
    An object of which nothing is known stays what it is, unless it has the model, or a part of it, as an attribute.
    """
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, Tensor):
        return memo.setdefault(id(value), _copied_tensor(value, device))
    if isinstance(value, nn.Module):
        made = copy.deepcopy(value, memo)
        return made if device is None else made.to(device)
    if type(value) is tuple:
        parts = tuple(_rebound(each, memo, device) for each in value)
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    if type(value) is list:
        listed: list[Any] = memo.setdefault(id(value), [])  # before what it holds: that may be itself
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


def _rebound_function(function: FunctionType, memo: dict[int, Any], device: torch.device | str | None) -> FunctionType:
    if not _holds(function, memo, set()):
        return function
    shell = memo[id(function)] = _shell(function, memo)  # before what it holds: that may be itself
    _fill(shell, function, memo, device)
    return shell


def _holds(value: Any, parts: Container[int], seen: set[int]) -> bool:
    """Whether a function, or what it holds, leads to one of these ids, or to what a copy may not share."""
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
    """The values that a function has closed over: a name may have none yet."""
    found: list[Any] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    return found


def _found_by(function: FunctionType, parts: Container[int]) -> dict[str, Any]:
    """What a function finds in its own module, by its name there: what has one of these ids, and functions that do."""
    there = function.__globals__
    found: dict[str, Any] = {}
    seen = {id(function)}

    def look(code: CodeType, name: str | None) -> None:
        """Look through a code, and the codes in it; what it finds is on account of `name`, which stands for it."""
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


def _shells(model: nn.Module, memo: dict[int, Any]) -> list[tuple[FunctionType, FunctionType]]:
    """The functions that a model has as attributes and hooks, each with what takes its place, and `memo` says so."""
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
    """The attribute of a model that cannot be copied, as `encoder.lock (a value of type lock)`; None if all can be."""
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


def _alike(original: Tensor, parameter: Tensor, memo: dict[int, Any], device: torch.device | str | None) -> None:
    """Have a parameter of a copy want a gradient as the model's does, and give it its hooks: torch copies none."""
    if parameter.requires_grad != original.requires_grad:
        parameter.requires_grad_(original.requires_grad)
    if parameter.requires_grad and not parameter._backward_hooks:
        for hook in (original._backward_hooks or {}).values():
            parameter.register_hook(_rebound(hook, memo, device))  # type: ignore[no-untyped-call]


def _shell(function: FunctionType, parts: Container[int]) -> FunctionType:
    """The same function, of which `_fill` says what it holds and finds."""
    there = function.__globals__
    cells = tuple(CellType() for _ in function.__closure__ or ())
    names = dict(there) if _found_by(function, parts) else there
    made = FunctionType(function.__code__, names, function.__name__, None, cells)
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return made


def _fill(shell: FunctionType, function: FunctionType, memo: dict[int, Any], device: torch.device | str | None) -> None:
    shell.__defaults__ = _rebound(function.__defaults__, memo, device)
    shell.__kwdefaults__ = _rebound(function.__kwdefaults__, memo, device)
    if shell.__globals__ is not function.__globals__:
        found = _found_by(function, memo)
        shell.__globals__.update((name, _rebound(value, memo, device)) for name, value in found.items())
    for cell, old in zip(shell.__closure__ or (), function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name that has no value yet
            cell.cell_contents = _rebound(old.cell_contents, memo, device)
