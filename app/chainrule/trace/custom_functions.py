"""Where a custom autograd.Function begins and ends: `apply`, caught for the threads that are being recorded.

`apply` is replaced below `Function`, where `super().apply` looks it up, so that an alias made earlier
(`linear = LinearFunction.apply`) is seen as well. During a recording compiled code runs uncompiled: torch's compiler
would compile the recorder too, and fail.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction

from chainrule.errors import TraceError

Watcher = Callable[[type, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Of (function, run, args, kwargs): returns `run(*args, **kwargs)`, where `run` is the `apply` of a custom Function."""

_lock = threading.Lock()
_watchers: dict[int, Watcher] = {}
_while_watched = contextlib.ExitStack()


def watch(thread: int, watcher: Watcher) -> None:
    """Let `watcher` run the custom Functions of a thread; other threads' are not touched.

    Raises:
        TraceError: the thread is being recorded already.
    """
    with _lock:
        if thread in _watchers:
            raise TraceError("this thread is being recorded already: recordings do not nest")
        if not _watchers:
            _SingleLevelFunction.apply = classmethod(_observed_apply)  # type: ignore[attr-defined]
            if "torch._dynamo" in sys.modules:  # its import takes seconds; until then nothing is compiled
                _while_watched.enter_context(torch.compiler.set_stance("force_eager"))
        _watchers[thread] = watcher


def unwatch(thread: int) -> None:
    """End `watch`."""
    with _lock:
        del _watchers[thread]
        if not _watchers:
            del _SingleLevelFunction.apply  # type: ignore[attr-defined]
            _while_watched.close()


def _observed_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    run = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
    watcher = _watchers.get(threading.get_ident())
    return run(*args, **kwargs) if watcher is None else watcher(cls, run, args, kwargs)
