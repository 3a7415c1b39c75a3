"""Rendering of the Jinja templates."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from chainrule.page import assets
from chainrule.page.static_addresses import current_digest


def render(template: str, **context: Any) -> str:
    """A template as text; every value is escaped, and a name the context lacks is an error.

    In a template `static("css/base.css")` is the address of a file that a browser may keep.
    """
    # One digest for a whole page.
    prefix = f"/static/~{current_digest()}/"
    return _environment().get_template(template).render(context, static=lambda name: prefix + name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(assets.templates()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Data keep the order they are given in: the spec's keys stand in the order of their table.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "ensure_ascii": False}
    return environment
