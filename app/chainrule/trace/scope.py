"""Named scopes: how plain functions say which module they belong to, so that they group like layers do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

current_scopes: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("current_scopes", default=())
"""The (path, type) pairs entered so far, outermost first."""


@contextmanager
def scope(path: str, type: str) -> Iterator[None]:  # noqa: A002 (the field's word)
    """Ops recorded inside belong to module `path` of kind `type`, e.g. `scope("layers.0", "lin")`.

    Costs nothing and changes nothing when no recording is under way.
    """
    token = current_scopes.set((*current_scopes.get(), (path, type)))
    try:
        yield
    finally:
        current_scopes.reset(token)
