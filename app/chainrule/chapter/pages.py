"""All pages, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from chainrule.chapter.page import Page

ORDER = (
    "neuron",
    "arithmetic",
    "matmul",
    "broadcasting",
    "einsum",
    "initialization",
    "backward",
    "styles",
    "functions",
    "gradcheck",
    "extension",
)

PAGES: Mapping[str, Page] = {
    name: import_module(f"chainrule.chapter.{name}").PAGE
    for name in ORDER
    if find_spec(f"chainrule.chapter.{name}") is not None
}
"""By name, in reading order."""
