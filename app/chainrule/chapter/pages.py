"""All pages, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from chainrule.chapter.page import Page

ORDER = tuple(
    "neuron arithmetic matmul broadcasting einsum initialization backward styles functions gradcheck extension".split()
)

PAGES: Mapping[str, Page] = {name: import_module(f"chainrule.chapter.{name}").PAGE for name in ORDER}
"""By name, in reading order."""
