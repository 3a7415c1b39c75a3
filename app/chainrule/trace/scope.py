"""Named scopes: a plain function names the module that its ops belong to, so that they group like layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

current_scopes: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("current_scopes", default=())
"""The (path, type) pairs entered so far, outermost first."""

LOSS = "loss"
"""The path of a loss function's scope."""


@contextmanager
def scope(path: str, type: str) -> Iterator[None]:  # noqa: A002 (the field's word)
    """Ops recorded inside belong to module `path` of kind `type`, e.g. `scope("layers.0", "lin")`."""
    token = current_scopes.set((*current_scopes.get(), (path, type)))
    try:
        yield
    finally:
        current_scopes.reset(token)


def loss_scope(loss: Callable[..., Any]) -> AbstractContextManager[None]:
    """The scope of a loss function: its path is `loss`, its kind the function's name."""
    name = getattr(loss, "__name__", type(loss).__name__)
    return scope(LOSS, LOSS if name == "<lambda>" else name)
