"""A style sheet and all that it imports, as one. The only known form is `@import "x.css";` on its own line."""

from __future__ import annotations

import re
from pathlib import Path

from chainrule.errors import RenderError

IMPORT = re.compile(r'^@import "([^"]+)";$', re.MULTILINE)


def inline(path: Path) -> str:
    """A style sheet with the text of its imports in their places, recursively.

    Raises:
        RenderError: one cannot be read, or imports itself through others.
    """
    return _inlined(path.resolve(), ())


def has_imports(path: Path) -> bool:
    """Whether a style sheet imports another one."""
    return IMPORT.search(path.read_text(encoding="utf-8")) is not None


def _inlined(path: Path, above: tuple[Path, ...]) -> str:
    if path in above:
        circle = [*above[above.index(path) :], path]
        raise RenderError("style sheets import each other: " + " → ".join(each.name for each in circle))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RenderError(f"{path.name}: {error.strerror}") from None
    return IMPORT.sub(lambda match: _inlined((path.parent / match[1]).resolve(), (*above, path)).rstrip("\n"), text)
