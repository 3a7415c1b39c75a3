"""Whether this runs in a notebook or at a prompt. IPython is not imported: its shell would have done so."""

from __future__ import annotations

import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel."""
    shell = _ipython()
    return shell is not None and hasattr(shell, "kernel")


def is_interactive() -> bool:
    """Whether this runs at the prompt of Python or IPython."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _ipython() is not None


def _ipython() -> Any:
    """The running IPython shell, or None."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
