"""Where a custom autograd.Function begins and ends: `apply`, caught for the threads that are being recorded.

During a recording compiled code runs uncompiled: torch's compiler would compile the recorder too, and fail.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.autograd.function import _SingleLevelFunction

from chainrule.errors import TraceError


class FunctionWatcher(Protocol):
    """Runs `apply` in a thread that is being recorded."""

    def run_function(
        self, function: type, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return `run(*args, **kwargs)`, where `run` is the `apply` of a custom `function`."""


class _Active:
    """The running watchers by thread; `Function.apply` of other threads passes through.

    `apply` is replaced below `Function`, where `super().apply` looks it up, so that an alias made earlier
    (`linear = LinearFunction.apply`) is seen as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: dict[int, FunctionWatcher] = {}

    def add(self, thread: int, watcher: FunctionWatcher) -> None:
        with self._lock:
            if thread in self._watchers:
                raise TraceError("this thread is being recorded already: recordings do not nest")
            if not self._watchers:
                _SingleLevelFunction.apply = classmethod(_observed_apply)  # type: ignore[attr-defined]
                self._uncompiled = _uncompiled()
                self._uncompiled.__enter__()
            self._watchers[thread] = watcher

    def remove(self, thread: int) -> None:
        with self._lock:
            del self._watchers[thread]
            if not self._watchers:
                del _SingleLevelFunction.apply  # type: ignore[attr-defined]
                self._uncompiled.__exit__(None, None, None)

    def get(self, thread: int) -> FunctionWatcher | None:
        return self._watchers.get(thread)


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    # Its import takes seconds; until then nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _observed_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    run = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
    watcher = active.get(threading.get_ident())
    if watcher is None:
        return run(*args, **kwargs)
    return watcher.run_function(cls, run, args, kwargs)


active = _Active()
