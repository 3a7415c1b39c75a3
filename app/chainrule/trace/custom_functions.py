"""Where a custom autograd.Function begins and ends: `apply`, caught for the threads that are being recorded.

`apply` is replaced below `Function`, where `super().apply` looks it up, so that an alias made earlier
(`linear = LinearFunction.apply`) is seen as well. From torch 2.15 on, `Function.apply` is a C function that looks
nothing up. There it is replaced when this module is imported, and an alias that was made before is not seen.

During a recording nothing is compiled, because torch's compiler would compile the recorder too, and fail. Compiled code
runs uncompiled, except at the level of a compiler.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch.autograd.function import Function, _SingleLevelFunction

from chainrule.errors import TraceError

Watcher = Callable[[type, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Of (function, run, args, kwargs): returns `run(*args, **kwargs)`, where `run` is the `apply` of a custom Function."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A call of a custom Function that has returned: its last op, its module's path, and the line that calls it."""

    op: str | None
    module: str
    line: tuple[CodeType, int] | None
    seconds: float


OnFunction = Callable[[type, Sequence[Any]], Callable[[Applied], None] | None]
"""Of (function, arguments), called before each call of a custom Function; what it returns is called after it."""

_lock = threading.Lock()
_watchers: dict[int, Watcher] = {}
_while_watched = contextlib.ExitStack()


def watch(thread: int, watcher: Watcher, *, runs_compiled: bool = False) -> None:
    """Let `watcher` run the custom Functions of a thread; other threads' are not touched.

    `runs_compiled`: what has been compiled before runs as it was compiled.

    Raises:
        TraceError: the thread is being recorded already.
    """
    with _lock:
        if thread in _watchers:
            raise TraceError("this thread is already being recorded; recordings cannot be nested")
        if not _watchers:
            if _looks_up:
                _SingleLevelFunction.apply = classmethod(_observed_apply)  # type: ignore[attr-defined]
            if "torch._dynamo" in sys.modules:  # its import takes seconds; until then nothing is compiled
                stance = "eager_on_recompile" if runs_compiled else "force_eager"
                _while_watched.enter_context(torch.compiler.set_stance(stance))
        _watchers[thread] = watcher


def unwatch(thread: int) -> None:
    """End `watch`."""
    with _lock:
        del _watchers[thread]
        if not _watchers:
            if _looks_up:
                del _SingleLevelFunction.apply  # type: ignore[attr-defined]
            _while_watched.close()


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Inside, a recording of this thread, if there is one, does not see what it calls."""
    thread = threading.get_ident()
    watcher = _watchers.get(thread)
    if watcher is None:
        yield
        return
    _watchers[thread] = lambda _, run, args, kwargs: run(*args, **kwargs)
    try:
        with torch._C.DisableTorchFunction():
            yield
    finally:
        _watchers[thread] = watcher


def _observed_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    run = super(_SingleLevelFunction if _looks_up else Function, cls).apply  # type: ignore[misc]
    watcher = _watchers.get(threading.get_ident())
    return run(*args, **kwargs) if watcher is None else watcher(cls, run, args, kwargs)


_observed_apply.__name__ = "apply"  # by which torch's compiler knows it
_looks_up = isinstance(vars(Function)["apply"], classmethod)
if not _looks_up:
    Function.apply = classmethod(_observed_apply)  # type: ignore[method-assign, assignment]
