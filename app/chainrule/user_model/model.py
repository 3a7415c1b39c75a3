"""The current subject: its file may change while the page shows it.

make() ─▶ Subject ─▶ tracers        reload(): make() again, and call the listeners, which ask for a new tracer
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from chainrule.errors import ChainruleError, ExploreError
from chainrule.run import available_devices
from chainrule.trace import Trace
from chainrule.user_model.code import UserFile, call_of, named, place_of, shown_path, split_reference, telling
from chainrule.user_model.copies import copied_subject
from chainrule.user_model.parameters import groups_of
from chainrule.user_model.seeded import seeded
from chainrule.user_model.subject import RETURNED, Subject, described, make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WHAT_IF_KEYS, WhatIf, check_group


class UserModel:
    """The current subject, and how to make the next. Its methods may be called from any thread.

    `keys` are those of its what-ifs. `version` counts the subjects from 1; `problem` is why the last attempt to make
    one failed: the subject before stays. `file` is None for a model of a notebook.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Subject],
        seed: int = 42,
        device: str | None = None,
        *,
        file: UserFile | None = None,
        level: str = "op",
        compiles: bool = False,
    ) -> None:
        """Make the first subject: `make` is called with the generators seeded, and a copy of it runs on `device`.

        `level` is the level of the recording where a what-if names none; `compiles`: see `Tracer`.

        Raises:
            ExploreError: it cannot be made, or there is no such device.
            MemoryLimitError: there was no memory for it.
        """
        self.name = name
        self.seed = seed
        self._make = make
        self._to = None if device is None else check_device(device)
        self.file = file
        self.keys = tuple(replace(key, default=level) if key.name == "recording" else key for key in WHAT_IF_KEYS)
        self._compiles = compiles
        self._lock = threading.Lock()
        self._reloading = threading.Lock()
        self._is_making = False  # the next subject
        self._listeners: list[Callable[[], None]] = []
        self._checked: Tracer | None = None
        self.problem: ChainruleError | None = None
        self.version = 1
        self.subject = self._made()
        self.groups = groups_of(self.subject.model)

    @property
    def device(self) -> str:
        """The server's device that computes it: "cuda", or "cpu" for any other."""
        kind = self.subject.device.type
        return kind if kind in available_devices() else "cpu"

    @property
    def files(self) -> tuple[Path, ...]:
        """Its files, as far as they have been imported."""
        return () if self.file is None else self.file.files

    @property
    def has_changed(self) -> bool:
        """Whether one of its files has changed since it ran; after a failure, or any file beside them."""
        if self.file is None:
            return False
        failed = self.problem is not None and not self._is_making
        return self.file.has_changed or (failed and self.file.has_new_neighbours)

    def read(self, values: Mapping[str, object]) -> WhatIf:
        """A what-if of this model, from strings or JSON values.

        Raises:
            SpecError: see `WhatIf.parse`; also for a group that the model does not have.
        """
        defaults = {key.name: key.default for key in self.keys}
        what_if = WhatIf.parse({**defaults, **values}, device=self.device)
        check_group(what_if.group, self.groups)
        return what_if

    def tracer(self) -> Tracer:
        """A new tracer of the current subject, which it keeps after a reload."""
        with self._lock:
            checked, self._checked = self._checked, None
            return checked if checked is not None else Tracer(self.subject, self.seed, compiles=self._compiles)

    def check(self) -> Trace:
        """Trace the current subject once, to know its faults before the page is opened. `tracer` then returns this one.

        Raises:
            ExploreError, MemoryLimitError, ChainruleError: see `Tracer.trace`.
        """
        tracer = self.tracer()
        trace = tracer.trace(self.read({}))
        with self._lock:
            if tracer.subject is self.subject:
                self._checked = tracer
        return trace

    def reload(self) -> None:
        """Make the subject again, and call the listeners. On failure the last subject stays, and `problem` says why."""
        with self._reloading:
            subject, problem, self._is_making = None, None, True
            try:
                subject = self._made()
                groups = groups_of(subject.model)
            except ChainruleError as error:
                problem = error
            except BaseException:
                self._is_making = False
                raise
            with self._lock:
                self.problem, self._is_making = problem, False
                if subject is not None:
                    self.subject, self.groups = subject, groups
                    self.version += 1
                    self._checked = None
            self._tell()

    def still_reloads(self, problem: ChainruleError) -> None:
        """Set `problem` and call the listeners, unless the reload has just ended."""
        with self._lock:
            if not self._is_making:
                return
            self.problem = problem
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each reload, even a failed one, in its thread. Returns a function that ends this."""
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
        return subject if self._to is None else copied_subject(subject, self._to)


def open_reference(
    reference: str, *, seed: int = 42, device: str | None = None, level: str = "op", compiles: bool = False
) -> UserModel:
    """The model of `path/to/file.py:factory`. A reload runs the file again, and its imports from its folder.

    `level` and `compiles`: see `UserModel`.

    Raises:
        ExploreError: it cannot be made; the message has the place.
        MemoryLimitError: there was no memory for it.
    """
    path, name = split_reference(reference)
    file = UserFile(path)
    title = f"{path.name}:{name}"
    to = None if device is None else check_device(device)

    def make() -> Subject:
        module = file.run()
        factory = named(module, name, path)
        place = place_of(factory) or shown_path(path)
        if isinstance(factory, nn.Module) or not callable(factory):
            raise ExploreError(f"{place}: {name} is {described(factory)}; expected a function that returns {RETURNED}")
        if inspect.iscoroutinefunction(factory):
            raise ExploreError(f"{place}: {name} is an async function; expected a function without async")
        try:
            inspect.signature(factory).bind()
        except TypeError:
            raise ExploreError(
                f"{place}: {call_of(factory)} takes arguments; expected a function without arguments"
            ) from None
        except ValueError:  # some builtins have no signature
            pass
        with telling(f"{name}() raised", file.folder, place):
            made = factory()
        return replace(make_subject(made, name, file.folder, place=place, device=to), name=title)

    return UserModel(title, make, seed, device, file=file, level=level, compiles=compiles)


def check_device(device: str) -> torch.device:
    """The device, if torch has it on this machine.

    Raises:
        ExploreError: it is not available; the message names the available devices.
    """
    there = ", ".join(available_devices())
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ExploreError(f"device: {device} is not available; this machine has {there}", field="device") from None
    return found
