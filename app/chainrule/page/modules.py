"""The page's ES modules as one script: for a page without a server, and for a JavaScript engine without a loader.

Every module becomes a function that is called once and returns the module's exports; it comes after the modules that it
imports. Only the forms that occur in `static/` are known:

    import { a, b as c } from "./x.js";    import "./x.js";    import.meta.url
    export function, export function*, export async function, export class, export const NAME =
    export { a, b as c };    export { a } from "./x.js";

Anything else is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from chainrule.errors import RenderError

TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<string> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
  | (?P<word> [\w$]+ )
  | (?P<space> \s+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(`|\$\{)", re.DOTALL)
BEFORE_REGEX = frozenset("( , = : [ ! & | ? { } ; + - * % ~ ^ < > return typeof case of in void delete do else".split())
"""After these tokens a slash begins a regular expression; after others it divides."""

IMPORT = re.compile(r"import\s*(?:\{(?P<names>[^{}]*)\}\s*from\s*)?(?P<place>[\"'])")
EXPORT_NAMES = re.compile(r"export\s*\{(?P<names>[^{}]*)\}\s*(?:from\s*(?P<place>[\"'])|;)")
EXPORT_DECLARATION = re.compile(r"export\s+(?=(?:async\s+)?(?:function\b\s*\*?|class\b|const\b)\s*(?P<name>[\w$]+))")
EXPORT_CONST = re.compile(r"export\s+const\s+[\w$]+\s*=")
STATEMENT = re.compile(r"(?<![\w$.])(?:import|export)(?![\w$])(?!\s*:)")
META_URL = re.compile(r"(?<![\w$.])import\.meta\.url\b")
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
    entry = entry.resolve()
    pending: list[tuple[Path, Iterator[Path]]] = [(entry, iter(_imports(entry)))]
    while pending:
        path, imports = pending[-1]
        open_paths = [each for each, _ in pending]
        for wanted in imports:
            if wanted in open_paths:
                circle = [*open_paths[open_paths.index(wanted) :], wanted]
                raise RenderError("modules import each other: " + " → ".join(each.name for each in circle))
            if wanted not in order:
                pending.append((wanted, iter(_imports(wanted))))
                break
        else:
            pending.pop()
            order[path] = None
    return list(order)


def mask(source: str) -> tuple[str, str]:
    """A source without comments, and the same with blanks inside strings, templates and regular expressions.

    Both have the same length. A comment of several lines leaves a line break, which may end a statement.
    """
    code: list[str] = []
    masked: list[str] = []
    before = ";"
    braces: list[int] = []
    """The number of open braces in each open `${`."""
    position = 0

    def put(text: str, shown: str) -> None:
        code.append(text)
        masked.append(shown)

    def template(start: int) -> int:
        """Copy a template's text from `start` up to its code or its end."""
        match = TEMPLATE.match(source, start)
        if match is None:
            raise RenderError("a template does not end")
        put(match[0], " " * (len(match[0]) - len(match[1])) + match[1])
        if match[1] == "${":
            braces.append(0)
        return match.end()

    while position < len(source):
        match = REGEX.match(source, position) if source[position] == "/" and before in BEFORE_REGEX else None
        if match:
            put(match[0], "/" + " " * (len(match[0]) - 2) + "/")
            position, before = match.end(), "/"
            continue
        match = TOKEN.match(source, position)
        assert match, "the last alternative takes any character"
        kind, text = match.lastgroup, match[0]
        position = match.end()
        if kind == "comment":
            replacement = "\n" if "\n" in text else " "
            put(replacement, replacement)
            continue
        if kind == "string":
            put(text, text[0] + " " * (len(text) - 2) + text[0])
        elif text == "`":
            put(text, text)
            position = template(position)
            before = "`" if not (code[-1].endswith("${")) else "{"
            continue
        else:
            put(text, text)
            if braces and text == "{":
                braces[-1] += 1
            elif braces and text == "}":
                braces[-1] -= 1
                if braces[-1] < 0:
                    braces.pop()
                    position = template(position)
                    before = "`" if not (code[-1].endswith("${")) else "{"
                    continue
        if kind != "space":
            before = text
    return "".join(code), "".join(masked)


def _imports(path: Path) -> list[Path]:
    code, masked = _read(path)
    found = []
    for match in STATEMENT.finditer(masked):
        statement = IMPORT.match(masked, match.start()) or EXPORT_NAMES.match(masked, match.start())
        if statement and statement["place"]:
            found.append(_target(path, code, statement.end()))
    return found


def _read(path: Path) -> tuple[str, str]:
    try:
        state = path.stat()
        return _masked(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise RenderError(f"{path.name}: {error.strerror}") from None
    except RenderError as error:
        raise RenderError(f"{path.name}: {error.message}") from None


@lru_cache(maxsize=512)
def _masked(path: Path, *_: int) -> tuple[str, str]:
    """Cached: a module is read several times, and by every entry that needs it."""
    return mask(path.read_text(encoding="utf-8"))


def _target(path: Path, code: str, start: int) -> Path:
    """The module named by the string whose content begins at `start`."""
    address = code[start : re.compile("[\"']").search(code, start).start()]  # type: ignore[union-attr]
    if not address.startswith("."):
        raise RenderError(f"{path.name} imports {address!r}, which is not a module beside it")
    return (path.parent / address).resolve()


def _as_function(path: Path, names: dict[Path, str], address: str) -> str:
    """A module as the body of a function; `address` replaces `import.meta.url`."""
    code, masked = _read(path)
    out: list[str] = []
    exports: list[str] = []
    done = 0
    for meta in reversed(list(META_URL.finditer(masked))):
        code = code[: meta.start()] + address + code[meta.end() :]
        # Both keep the same length, and the blanks hide no import or export.
        masked = masked[: meta.start()] + " " * len(address) + masked[meta.end() :]
    for match in STATEMENT.finditer(masked):
        start = match.start()
        if start < done:
            continue
        out.append(code[done:start])
        if statement := IMPORT.match(masked, start):
            source = names[_target(path, code, statement.end())]
            if statement["names"] is not None:
                pairs = _split(path, statement["names"])
                bound = ", ".join(name if name == alias else f"{name}: {alias}" for name, alias in pairs)
                out.append(f"const {{ {bound} }} = {source};")
            done = _end(path, masked, statement.end() + 1)
        elif statement := EXPORT_NAMES.match(masked, start):
            done = statement.end()
            if statement["place"]:
                source = names[_target(path, code, statement.end())]
                exports += [f"{alias}: {source}.{name}" for name, alias in _split(path, statement["names"])]
                done = _end(path, masked, statement.end() + 1)
            else:
                exports += [f"{alias}: {name}" for name, alias in _split(path, statement["names"])]
        elif statement := EXPORT_DECLARATION.match(masked, start):
            constant = masked.startswith("const", statement.end())
            if constant and (not EXPORT_CONST.match(masked, start) or _declares_several(masked, statement.end())):
                raise _unknown(path, code, start)
            exports.append(statement["name"])
            done = statement.end()
        else:
            raise _unknown(path, code, start)
    out.append(code[done:])
    return "".join(out).strip() + f"\nreturn {{ {', '.join(exports)} }};"


def _split(path: Path, names: str) -> list[tuple[str, str]]:
    """`a, b as c` as [("a", "a"), ("b", "c")]."""
    pairs = []
    for each in filter(None, map(str.strip, names.split(","))):
        match = NAME.fullmatch(each)
        if match is None:
            raise RenderError(f"{path.name}: {each!r} is not a name")
        pairs.append((match[1], match[2] or match[1]))
    return pairs


def _end(path: Path, masked: str, start: int) -> int:
    """One past the semicolon of the statement whose string's content begins before `start`."""
    end = re.compile("[\"']\\s*;").search(masked, start - 1)
    if end is None:
        raise RenderError(f"{path.name}: an import does not end with a semicolon")
    return end.end()


def _declares_several(masked: str, start: int) -> bool:
    """Whether the declaration that begins at `start` declares several names."""
    depth = 0
    for letter in masked[start:]:
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and letter in ",;":
            return letter == ","
    return False


def _unknown(path: Path, code: str, start: int) -> RenderError:
    line = code[start:].splitlines()[0]
    return RenderError(f"{path.name}: {line[:80]!r} is a form of import or export that is not known here")


def newest_change(folder: Path) -> int:
    """The latest modification time of the modules in a folder, in ns."""
    return max((path.stat().st_mtime_ns for path in folder.rglob("*.js")), default=0)
