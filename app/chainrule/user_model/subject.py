"""The subject: a model, its inputs and its loss, as a factory returned them, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from chainrule.diagnose.evidence import optimizers_of
from chainrule.errors import ChainruleError, ExploreError
from chainrule.trace.nested import named_tensors, nested_tensors
from chainrule.user_model.code import place_of, telling, told

RETURNED = "(model, inputs), (model, inputs, loss_fn) or (model, inputs, loss_fn, optimizer)"

WANTED = f"expected {RETURNED}"


@dataclass(frozen=True)
class Subject:
    """One forward and backward pass that can be run: `loss(model(*args, **kwargs))`.

    Attributes:
        model: a tracer runs it, and puts it back after each pass.
        args: its positional inputs.
        kwargs: its inputs by keyword.
        loss: makes a scalar of the model's output; None: the output's `loss`, or the output itself, is the scalar.
        optimizers: those that train it; looked at, never run.
        autocast: model and loss run under autocast to this dtype.
        name: its name on the page.
        folder: the folder of its file; None for a model of a notebook.
        place: `file:line` of the factory, for messages; may be empty.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], Any] | None = None
    name: str = "model"
    folder: Path | None = None
    place: str = ""
    optimizers: tuple[Optimizer, ...] = ()
    autocast: torch.dtype | None = None

    @property
    def prefix(self) -> str:
        """The place, as a message begins."""
        return f"{self.place}: " if self.place else ""

    def telling(self, what: str) -> AbstractContextManager[None]:
        """Turn an error of the user's code into one line, see `code.telling`."""
        return telling(what, self.folder, self.place)

    def told(self, error: BaseException, what: str) -> ChainruleError:
        """The error that `telling` raises."""
        return told(error, what, self.folder, self.place)

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


def make_subject(
    made: object,
    name: str,
    folder: Path | None = None,
    *,
    place: str = "",
    device: torch.device | str | None = None,
) -> Subject:
    """Check the value of a factory: `(model, inputs)`, then a `loss_fn` or None, then an optimizer or a list of them.

    The inputs are a tensor, a tuple (positional) or a dict (keywords). If they will be moved to a `device`, they may be
    on several now.

    Raises:
        ExploreError: it cannot be run and traced; the message begins with the place.
    """
    prefix = f"{place}: " if place else ""
    if not isinstance(made, tuple | list) or len(made) not in (2, 3, 4):
        raise ExploreError(f"{prefix}{name} returned {described(made)}; {WANTED}")
    model, given, loss, optimizer = (*made, None, None)[:4]
    if not isinstance(model, nn.Module):
        raise ExploreError(
            f"{prefix}{name} returned {described(model)} for the model; {WANTED}, where model is a torch.nn.Module"
        )
    if loss is not None and not callable(loss):
        raise ExploreError(
            f"{prefix}{name} returned {described(loss)} for the loss; {WANTED}, where loss_fn(output) is a scalar"
        )
    try:
        optimizers = optimizers_of(optimizer)
    except TypeError as error:
        raise ExploreError(f"{prefix}{name}: {error}") from None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Tensor):
        args = (given,)
    elif type(given) is tuple:  # a named tuple, such as a packed sequence, is one input
        args = given
    elif isinstance(given, Mapping) and all(isinstance(each, str) for each in given):
        kwargs = dict(given)
    else:
        raise ExploreError(
            f"{prefix}{name} returned {described(given)} for the inputs; "
            "expected a tensor, a tuple of the arguments, or a dict of the arguments by name"
        )
    # A compiled module hides its ops; the original module shows them.
    model = getattr(model, "_orig_mod", model)
    subject = Subject(model, args, kwargs, loss, name, folder, place, optimizers)
    return check_subject(subject, moves=device is not None)


def check_subject(subject: Subject, *, moves: bool = False) -> Subject:
    """Check a subject as far as possible before it runs, and return it; if it `moves`, its devices may differ.

    Raises:
        ExploreError: it has no parameter that requires grad, its forward does not take its inputs, or they are on
            another device; the message begins with the place, if there is one.
    """
    prefix = subject.prefix
    if not isinstance(subject.model, nn.Module):
        raise ExploreError(f"{prefix}the model is {described(subject.model)}; expected a torch.nn.Module")
    _check_arguments(subject)
    _check_loss(subject)
    _check_parameters(subject)
    if not moves:
        _check_devices(subject)
    return subject


def _check_arguments(subject: Subject) -> None:
    """Raise ExploreError if the model's forward does not take these inputs, by number or by name."""
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
            f"{subject.prefix}{type(model).__name__}.forward{signature}{f', at {at},' if at else ''} "
            f"does not take these inputs: {error}"
        ) from None


def _check_loss(subject: Subject) -> None:
    """Raise ExploreError if the loss cannot be called with the output alone."""
    loss = subject.loss
    if isinstance(loss, type):
        raise ExploreError(
            f"{subject.prefix}the loss is {described(loss)}; expected loss_fn, where loss_fn(output) is a scalar"
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
            f"{f'{at}: ' if at else subject.prefix}the loss, {name}{inspect.signature(function)}, gets only the "
            f"output: {error}; bind the other arguments: lambda output: loss(output, target)"
        ) from None
    except ValueError:  # some builtins have no signature
        return


def _check_parameters(subject: Subject) -> None:
    parameters = dict(subject.model.named_parameters())
    for name, parameter in parameters.items():
        if is_lazy(parameter):
            raise ExploreError(
                f"{subject.prefix}parameter {name} is lazy and has no values yet: call the model once in the factory"
            )
        if parameter.is_meta:
            raise ExploreError(f"{subject.prefix}parameter {name} is on the meta device: it has a shape, but no values")
    if not any(each.requires_grad for each in (*parameters.values(), *subject.inputs)):
        none = (
            f"none of its {len(parameters)} parameters requires grad"
            if parameters
            else "it has no parameters, and no input requires grad"
        )
        raise ExploreError(
            f"{subject.prefix}{type(subject.model).__name__}: {none}, so there is no gradient; call "
            "requires_grad_(True)"
        )


def _check_devices(subject: Subject) -> None:
    """Raise ExploreError if the model is on one device, and an input on another."""
    own = {each.device for each in (*subject.model.parameters(), *subject.model.buffers())}
    if len(own) != 1:  # a model on several devices moves its inputs itself
        return
    (device,) = own
    for name, tensor in named_tensors(subject.args, subject.kwargs):
        # A number may be anywhere.
        if tensor.device != device and tensor.dim():
            raise ExploreError(
                f"{subject.prefix}the model is on {device}, but {name} {_shape(tensor)} is on {tensor.device}; "
                f"move one of them, or both with --device {device}"
            )


# -------------------------------------------------------------------------------------------------------------- loss


def scalar_loss(subject: Subject, output: Any, result: Any) -> Tensor:
    """The scalar loss: `result`, the value of the subject's loss; without a loss, from the model's `output`.

    Raises:
        ExploreError: not exactly one scalar; the message describes the output, and how to give a loss.
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
        f"{subject.prefix}no scalar loss: the model returns {described(output)}; "
        f"give {given}, where loss_fn(output) is a scalar, or inputs for which the output has a loss"
    )


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point()


def described(value: object) -> str:
    """A value in words, short enough for a message."""
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
