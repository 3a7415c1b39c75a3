"""Options of a format: how a trace is written, not what is traced."""

from __future__ import annotations

from functools import partial

from chainrule.errors import RequestError
from chainrule.spec.values import Key, Kind

invalid_parameter = partial(RequestError, status=422, code="invalid_parameter")


def option(
    name: str, default: str, doc: str, *, choices: tuple[str, ...] = (), pattern: str = "", words: str = ""
) -> Key:
    """One of the choices, or a text that matches a pattern, which `words` describes."""
    kind: Kind = "choice" if choices else "text"
    return Key(name, default, kind, doc, choices, pattern=pattern, words=words, error=invalid_parameter)
