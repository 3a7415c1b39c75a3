"""Runs a user's file, as `python FILE.py` would, and again after an edit; finds the line in it that raised.

An error is one line with its place, `model.py:12: …`, and no traceback. Torch is imported only where it is needed, so
that a missing file is reported at once.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import linecache
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from chainrule.errors import ChainruleError, ExploreError, MemoryLimitError, in_words

MAX_NAMED = 12
"""Names that an error message lists."""

RUNNING = "chainrule_run_"
"""The prefix of a user's file as a module: `if __name__ == "__main__"` does not hold."""

_loading = threading.RLock()


def split_reference(reference: str) -> tuple[Path, str]:
    """`f.py:make` → the file and the name.

    Raises:
        ExploreError: it has another form, or there is no such file.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file or not all(part.isidentifier() for part in name.split(".")):
        raise ExploreError(f"{reference}: expected FILE.py:NAME")
    # Without `..`, as in the paths of Python's modules, with which it is compared.
    path = Path(os.path.abspath(file))
    if path.is_dir():
        raise ExploreError(f"{file} is a folder; expected FILE.py:NAME")
    if not path.is_file():
        raise ExploreError(f"{file}: file not found")
    return path, name


_LOADED: dict[Path, ModuleType] = {}


def load(reference: str) -> Any:
    """The value of a name in a file. A file runs once, even if it is named twice.

    Raises:
        ExploreError: the file does not run, or does not define the name.
    """
    path, name = split_reference(reference)
    module = _LOADED[path] if path in _LOADED else _LOADED.setdefault(path, run_file(path))
    return named(module, name, path)


def named(module: ModuleType, name: str, path: Path) -> Any:
    """The value of a name, dotted or not, in a module that was run from `path`.

    Raises:
        ExploreError: the module does not define the name; the message lists its names.
    """
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = [each for each in vars(found) if not each.startswith("_")] if hasattr(found, "__dict__") else []
            raise ExploreError(
                f"{shown_path(path)}: unknown name {name}"
                + (f"; the file defines {', '.join(there[:MAX_NAMED])}" if there else "")
            ) from None
    return found


def run_file(path: Path) -> ModuleType:
    """Run a file as a module, from its current source; import a file of a package through the package.

    Raises:
        ExploreError: it does not run.
        MemoryLimitError: there was no memory left for it.
    """
    if path.suffix != ".py":
        raise ExploreError(f"{shown_path(path)}: not a Python file")
    package = _package_of(path)
    if package:
        return _import_from(package, path)
    name = f"{RUNNING}{path.stem}"
    # Without a loader: it would use a cached .pyc if an edit within the same second keeps the size of the file.
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and others look themselves up there
    try:
        with telling("the import failed", path.parent, shown_path(path)):
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def _import_from(package: tuple[str, ...], path: Path) -> ModuleType:
    name = ".".join((*package, path.stem))
    with telling("the import failed", home_of(path), shown_path(path)):
        module = importlib.import_module(name)
        if not os.path.samefile(str(module.__file__), path):
            raise ImportError(
                f"import {name} gives another file, {module.__file__}: "
                "it comes first on the import path, or is already imported"
            )
    return module


def as_program(path: Path) -> None:
    """Set the process up as `python FILE.py` does: the file's folder first on the import path, and no arguments.

    For a file in a package, as `python -m` does: first comes the folder that holds the package. The file's folder comes
    last, for files that import their neighbours by name; first, a neighbour could hide a library of the same name.
    """
    sys.argv = [str(path)]
    package = _package_of(path)
    if package:
        sys.path.insert(0, str(home_of(path).parent))
        sys.path.append(str(path.parent))
    else:
        sys.path.insert(0, str(path.parent))


def home_of(path: Path) -> Path:
    """The folder of the user's files: the file's folder, or its outermost package."""
    return path.parents[max(0, len(_package_of(path)) - 1)]


def _package_of(path: Path) -> tuple[str, ...]:
    """The names of the packages around a file, outermost first; empty for a file without one."""
    names: list[str] = []
    for folder in path.parents:
        if not folder.name.isidentifier() or not (folder / "__init__.py").is_file():
            break
        names.insert(0, folder.name)
    return tuple(names) if path.stem.isidentifier() and path.stem != "__init__" else ()


class UserFile:
    """A file that runs again after each edit, with the files that it imports from its folder, or outermost package."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))
        self.folder = home_of(self.path)
        self._stamps: dict[Path, Stamp] = {}
        self._neighbours: dict[Path, Stamp] = {}

    def run(self) -> ModuleType:
        """Run it, and all that it imports from its folder, as they stand now.

        Raises:
            ExploreError: it does not run; what was imported before is then still there.
            MemoryLimitError: there was no memory left for it.
        """
        from chainrule.trace import sources

        with _loading:
            importlib.invalidate_caches()
            linecache.checkcache()
            sources._around.cache_clear()  # the lines of files that have changed
            # Before it runs, so that a write meanwhile counts as a change.
            began = time.time_ns()
            known = self._stamps = {file: _stamp(file) for file in self.files}
            known = dict(known)
            self._neighbours = self._look_around()
            before = {name: sys.modules.pop(name) for name in self._imported()}
            writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # see `run_file`
            try:
                return run_file(self.path)
            except BaseException:
                for name in self._imported():
                    del sys.modules[name]
                sys.modules.update(before)
                raise
            finally:
                sys.dont_write_bytecode = writes
                for file in self.files:
                    # A file that was imported during the run may have been written to since.
                    stamp = _stamp(file)
                    if file not in known:
                        self._stamps[file] = stamp if stamp is None or stamp[1] < began else None

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and the files that it has imported from its folder."""
        imported = (getattr(sys.modules.get(name), "__file__", None) for name in self._imported())
        return tuple(sorted({self.path, *(Path(file) for file in imported if file is not None)}))

    @property
    def has_changed(self) -> bool:
        """Whether one of the files has changed since it ran; for a file imported since then, since the last look."""
        changed = False
        for file in self.files:
            now = _stamp(file)
            changed = changed or self._stamps.setdefault(file, now) != now
        return changed

    @property
    def has_new_neighbours(self) -> bool:
        """Whether any file beside it has changed: a file that could not be imported may be there now."""
        return self._look_around() != self._neighbours

    def _look_around(self) -> dict[Path, Stamp]:
        folders = {self.folder, self.path.parent}
        return {file: _stamp(file) for folder in folders for form in ("*.py", "*/*.py") for file in folder.glob(form)}

    def _imported(self) -> list[str]:
        """The imported modules from the folder: Python files, or folders of them."""
        found = []
        # A copy, made in one step: another thread may import meanwhile.
        for name, module in sys.modules.copy().items():
            file = getattr(module, "__file__", None)
            # A folder without __init__.py is a module without a file. Not by getattr: torch.classes raises at any name.
            folders = list(vars(module).get("__path__", ())) if file is None and isinstance(module, ModuleType) else []
            inside = [each for each in folders if isinstance(each, str) and is_users(each, self.folder)]
            if isinstance(file, str) and file.endswith(".py") and is_users(file, self.folder):
                inside.append(file)
            if inside and name != "__main__":
                found.append(name)
        return found


Stamp = tuple[int, int, int] | None
"""Inode, time of writing and size of a file; None if it does not exist."""


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def is_users(file: str, folder: Path | None) -> bool:
    """Whether a file is the user's: not installed, and in the folder if one is given."""
    if folder is None:
        return not file.startswith("<frozen") and not _is_installed(file)
    if file.startswith("<"):  # "<string>": generated code, torch's for example
        return False
    return os.path.abspath(file).startswith(os.path.join(folder, "")) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python's library, an installed package, or this package."""
    path = os.path.abspath(file)
    return path.startswith(_libraries()) or not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts)


@lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    from chainrule.trace import sources

    found = {os.path.abspath(sysconfig.get_path(each)) + os.sep for each in ("stdlib", "platstdlib")}
    return (*sorted(found), sources.TORCH_FOLDER, sources.PACKAGE_FOLDER)


# ------------------------------------------------------------------------------------------------------------- places


def shown_path(path: Path | str) -> str:
    """A path as it is typed: from the folder that the command runs in, if it lies there."""
    return str(path).removeprefix(os.path.join(os.getcwd(), ""))


def place_of(function: object) -> str | None:
    """`file:line` of a function or class; None if it has no Python code, or is installed."""
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    if isinstance(function, type):
        with contextlib.suppress(OSError, TypeError):
            file, (_, line) = inspect.getsourcefile(function), inspect.getsourcelines(function)
            return f"{shown_path(file)}:{line}" if file is not None and not _is_installed(file) else None
    if not isinstance(code, CodeType) or _is_installed(code.co_filename):
        return None
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}"


def raised_at(error: BaseException, folder: Path | None) -> str | None:
    """`file:line` of the innermost frame in the user's code; None if no frame is.

    `folder` has the user's files; None: any that are not installed, such as a notebook's cell.
    """
    if isinstance(error, SyntaxError) and error.filename is not None and is_users(error.filename, folder):
        return f"{shown_path(error.filename)}:{error.lineno}"
    places = [
        f"{shown_path(frame.filename)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users(frame.filename, folder)
    ]
    return places[-1] if places else None


@contextmanager
def telling(what: str, folder: Path | None, place: str, kind: type[ChainruleError] = ExploreError) -> Iterator[None]:
    """Turn any error of the user's code into one line: the place, what happened, and the error.

    Without a line of the user's in `folder`, see `raised_at`, it names `place`.

    Raises:
        ExploreError: or `kind`: the code raised, or ended the process.
        MemoryLimitError: it ran out of memory.
    """
    try:
        yield
    except ChainruleError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise told(error, what, folder, place, kind) from None


class Interrupted(BaseException):
    """The file has changed while it ran. Not an Exception, which the file may catch."""


def is_interrupt(error: BaseException) -> bool:
    """Whether the error is not one of the running code: Ctrl-C, which only the main thread gets, or `Interrupted`."""
    is_ctrl_c = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    return is_ctrl_c or isinstance(error, Interrupted)


def told(
    error: BaseException, what: str, folder: Path | None, place: str, kind: type[ChainruleError] = ExploreError
) -> ChainruleError:
    """The error that `telling` raises. Drops the original's frames, with all tensors in them."""
    from chainrule.memory import out_of_memory

    at = raised_at(error, folder) or place
    prefix = f"{at}: " if at else ""
    memory = out_of_memory(error)
    if memory is not None:
        kind, what = MemoryLimitError, f"{what}: the {memory} ran out of memory"
    found = kind(f"{prefix}{what}: {in_words(error)}")
    reached: BaseException | None = error
    while reached is not None:
        reached.__traceback__ = None
        reached = reached.__cause__ or reached.__context__
    return found


def call_of(function: Callable[..., Any]) -> str:
    """A function's name with its arguments, for a message."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        return f"{name}{inspect.signature(function)}"
    except (TypeError, ValueError):
        return f"{name}(…)"
