"""The page's ES modules as one script: for a page without a server, and for a JavaScript engine without a loader.

Every module becomes a function that is called once and returns the module's exports; it comes after the modules that it
imports. Only the forms that occur in `static/`, as `format.js` lays them out, are known; each begins its line:

    import { a, b as c } from "./x.js";    import "./x.js";
    export function, export function*, export async function, export class, export const NAME =
    export { a, b as c };    export { a } from "./x.js";

Anything else is an error. A comment that begins its line is left out.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from chainrule.errors import RenderError

COMMENT = re.compile(r"^[ \t]*(?:/\*(?:[^*]|\*(?!/))*\*/|//[^\n]*)\n?", re.MULTILINE)
STATEMENT = re.compile(
    r"""
    ^import\s(?:\{(?P<names>[^{}]*)\}\sfrom\s)?"(?P<source>[^"]*)";
  | ^export\s\{(?P<exported>[^{}]*)\}(?:\sfrom\s"(?P<origin>[^"]*)")?;
  | ^export\s(?=(?:(?:async\s)?function\*?|class|const)\s(?P<name>[\w$]+))
  | (?P<unknown>^(?:import|export)\b.* | \bimport\(.*)
    """,
    re.VERBOSE | re.MULTILINE,
)
NAME = re.compile(r"([\w$]+)(?:\s+as\s+([\w$]+))?")


def bundle(entry: Path, *, served: bool = False) -> str:
    """A module and all that it imports, as one JavaScript expression whose value is an object of its exports.

    `served`: the bundle has the address of `entry`, so `import.meta.url` keeps every module's own address; else it is
    `""`.

    Raises:
        RenderError: a module cannot be read, has an unknown form, or imports itself through others.
    """
    order = sorted_modules(entry)
    names = {path: f"$module{position}" for position, path in enumerate(order)}
    parts = []
    for path in order:
        relative = Path(os.path.relpath(path, entry.resolve().parent)).as_posix()
        address = f'new URL("{relative}", import.meta.url).href' if served else '""'
        parts.append(f"const {names[path]} = (() => {{\n{_as_function(path, names, address)}\n}})();")
    return '(() => {\n"use strict";\n' + "\n".join(parts) + f"\nreturn {names[order[-1]]};\n}})()"


def sorted_modules(entry: Path) -> list[Path]:
    """`entry` and the modules that it needs, each after its imports, in a browser's order. Raises RenderError."""
    order: dict[Path, None] = {}

    def visit(path: Path, above: tuple[Path, ...]) -> None:
        if path in above:
            circle = [*above[above.index(path) :], path]
            raise RenderError("modules import each other: " + " → ".join(each.name for each in circle))
        if path not in order:
            for match in STATEMENT.finditer(_source(path)):
                if address := match["source"] or match["origin"]:
                    visit(_target(path, address), (*above, path))
            order[path] = None

    visit(entry.resolve(), ())
    return list(order)


def _source(path: Path) -> str:
    try:
        state = path.stat()
        return _without_comments(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise RenderError(f"{path.name}: {error.strerror}") from None


@lru_cache(maxsize=512)
def _without_comments(path: Path, *_: int) -> str:
    """Cached: a module is read by every entry that needs it."""
    return COMMENT.sub("", path.read_text(encoding="utf-8"))


def _target(path: Path, address: str) -> Path:
    if not address.startswith("."):
        raise RenderError(f"{path.name} imports {address!r}, which is not a module beside it")
    return (path.parent / address).resolve()


def _as_function(path: Path, names: dict[Path, str], address: str) -> str:
    """A module as the body of a function; `address` replaces `import.meta.url`."""
    exports: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if match["unknown"]:
            form = match["unknown"][:80]
            raise RenderError(f"{path.name}: {form!r} is a form of import or export that Chainrule does not support")
        if match["name"]:
            exports.append(match["name"])
        elif match["exported"] is not None:
            origin = f"{names[_target(path, match['origin'])]}." if match["origin"] else ""
            exports.extend(f"{alias}: {origin}{name}" for name, alias in _pairs(match["exported"]))
        elif match["names"] is not None:
            bound = ", ".join(f"{name}: {alias}" for name, alias in _pairs(match["names"]))
            return f"const {{ {bound} }} = {names[_target(path, match['source'])]};"
        return ""

    body = STATEMENT.sub(replaced, _source(path).replace("import.meta.url", address))
    return f"{body.strip()}\nreturn {{ {', '.join(exports)} }};"


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a, b as c` as [("a", "a"), ("b", "c")]."""
    return [(name, alias or name) for name, alias in NAME.findall(names)]
