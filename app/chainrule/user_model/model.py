"""The subject of today: a model that its owner may change while others look at it.

make() ─▶ Subject ─▶ tracers        reload(): make() again; whoever listens is told, and asks for a new tracer
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from chainrule.errors import ChainruleError, ExploreError
from chainrule.run import available_devices
from chainrule.spec.values import Key
from chainrule.trace import Trace
from chainrule.user_model.code import OwnFile, call_of, named, place_of, shown_path, split_reference, telling
from chainrule.user_model.parameters import groups_of
from chainrule.user_model.seeded import seeded
from chainrule.user_model.subject import WANTED, Subject, described, make_subject
from chainrule.user_model.tracer import OwnTracer
from chainrule.user_model.what_if import WHAT_IF_KEYS, WhatIf, check_group


class OwnModel:
    """A subject, and the ways to another. All of it may be called from any thread.

    Attributes:
        name: what the page calls it.
        seed: of the random numbers that making it and tracing it draw.
        file: the file that it comes from; None for a model of a notebook.
        subject: the last one that could be made, on the device that was asked for.
        version: counts the subjects, from 1.
        problem: why the newest attempt at one failed, MemoryLimitError included; None if it did not.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Subject],
        seed: int = 42,
        device: str | None = None,
        *,
        file: OwnFile | None = None,
    ) -> None:
        """Make the first subject.

        Args:
            name: what the page calls it.
            make: makes a subject, anew each time; what it draws is drawn from `seed`.
            seed: see there.
            device: where a copy of each is to run; None: where it is, and then none is made.
            file: the file that the subject comes from, where it comes from one.

        Raises:
            ExploreError: there is none, or no such device.
            MemoryLimitError: there was no memory for it.
        """
        self.name = name
        self.seed = seed
        self._make = make
        self._to = None if device is None else check_device(device)
        self.file = file
        self._lock = threading.Lock()
        self._reloading = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._checked: OwnTracer | None = None
        self.problem: ChainruleError | None = None
        self.version = 1
        self.subject = self._made()
        self.groups = groups_of(self.subject.model)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of a what-if; the choices of `group` are `groups`."""
        return WHAT_IF_KEYS

    @property
    def device(self) -> str:
        """Which of the server's devices computes it: "cuda", or "cpu" for any other."""
        kind = self.subject.device.type
        return kind if kind in available_devices() else "cpu"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it comes from, as far as they have been imported; none for a model of a notebook."""
        return () if self.file is None else self.file.files

    @property
    def has_changed(self) -> bool:
        """Whether one of its files is another than when it was run; where that has failed, or any file beside them."""
        if self.file is None:
            return False
        return self.file.has_changed or (self.problem is not None and self.file.has_new_neighbours)

    def read(self, values: Mapping[str, object]) -> WhatIf:
        """A what-if of this model, from strings or JSON values.

        Raises:
            SpecError: see `WhatIf.parse`; also for a group that the model has not.
        """
        what_if = WhatIf.parse(values, device=self.device)
        check_group(what_if.group, self.groups)
        return what_if

    def tracer(self) -> OwnTracer:
        """A new tracer of the subject of now; it goes on tracing that one after a reload."""
        with self._lock:
            checked, self._checked = self._checked, None
            return checked if checked is not None else OwnTracer(self.subject, self.seed)

    def check(self) -> Trace:
        """Trace the subject of now once, to know what is wrong with it before anybody looks.

        The next tracer that is asked for has that behind it.

        Raises:
            ExploreError, MemoryLimitError, ChainruleError: see `OwnTracer.trace`.
        """
        tracer = self.tracer()
        trace = tracer.trace()
        with self._lock:
            if tracer.subject is self.subject:
                self._checked = tracer
        return trace

    def reload(self) -> None:
        """Make the subject anew, and tell whoever listens.

        On failure the last good one stays, and `problem` says why.
        """
        with self._reloading:
            subject, problem = None, None
            try:
                subject = self._made()
                groups = groups_of(subject.model)
            except ChainruleError as error:
                problem = error
            with self._lock:
                self.problem = problem
                if subject is not None:
                    self.subject, self.groups = subject, groups
                    self.version += 1
                    self._checked = None
                listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each reload, failed ones included, in the thread of that; what is returned ends it."""
        with self._lock:
            self._listeners.append(callback)

        def end() -> None:
            with self._lock:
                if callback in self._listeners:
                    self._listeners.remove(callback)

        return end

    def _made(self) -> Subject:
        with seeded(self.seed):
            subject = self._make()
        # Model, inputs and what the loss holds: whichever of them is there already.
        return subject if self._to is None else subject.copied(self._to)


def open_reference(reference: str, *, seed: int = 42, device: str | None = None) -> OwnModel:
    """The model that `path/to/file.py:factory` makes; a reload runs the file anew, and what it imports from its folder.

    Args:
        reference: the file and the function in it, which returns `(model, inputs)` or `(model, inputs, loss_fn)`.
        seed: of the random numbers that the file, the factory and the passes draw.
        device: where a copy of the model and of its inputs runs; None: where they are.

    Raises:
        ExploreError: there is nothing to run; the message says where and why.
        MemoryLimitError: there was no memory for it.
    """
    path, name = split_reference(reference)
    file = OwnFile(path)
    to = None if device is None else check_device(device)

    def make() -> Subject:
        module = file.run()
        factory = named(module, name, path)
        place = place_of(factory) or shown_path(path)
        if isinstance(factory, nn.Module) or not callable(factory):
            raise ExploreError(f"{place}: {name} is {described(factory)}, not a function that returns it; {WANTED}")
        if inspect.iscoroutinefunction(factory):
            raise ExploreError(f"{place}: {name} is an async function; a factory is called, and not awaited")
        try:
            inspect.signature(factory).bind()
        except TypeError:
            raise ExploreError(f"{place}: {call_of(factory)} takes arguments; a factory is called with none") from None
        except ValueError:  # of some builtins nothing is known
            pass
        with telling(f"{name}() raised", file.folder, place):
            made = factory()
        return make_subject(made, name, file.folder, place=place, device=to)

    return OwnModel(f"{path.name}:{name}", make, seed, device, file=file)


def check_device(device: str) -> torch.device:
    """The device, if torch has it on this machine.

    Raises:
        ExploreError: it is no device, or not here; says which are.
    """
    there = ", ".join(available_devices())
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ExploreError(f"device {device}: torch has no such device here; it has {there}", field="device") from None
    return found
