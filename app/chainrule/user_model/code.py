"""A file of the user's is run, as `python FILE.py` would, and run anew after an edit; where in it something was raised.

What goes wrong in it is told with its place, `model.py:12: …`, and in the words of what was raised: never with a
traceback of ours.

Torch is imported only where it is needed: a file that is not there is told at once.
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

__all__ = [
    "UserFile",
    "as_program",
    "call_of",
    "in_words",
    "is_interrupt",
    "is_users",
    "load",
    "named",
    "place_of",
    "raised_at",
    "run_file",
    "shown_path",
    "split_reference",
    "telling",
    "told",
]

MOST_NAMED = 12
"""So many names an error message lists."""

RUNNING = "chainrule_run_"
"""What the name of a module begins with that is a file of the user's: `if __name__ == "__main__"` does not hold."""

_loading = threading.RLock()


def split_reference(reference: str) -> tuple[Path, str]:
    """`f.py:make` → the file and the name.

    Raises:
        ExploreError: it has another form, or there is no such file.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file or not all(part.isidentifier() for part in name.split(".")):
        raise ExploreError(f"{reference}: wanted is FILE.py:NAME")
    # Without `..`: by its path a file is told to be the user's, and Python's modules have theirs without.
    path = Path(os.path.abspath(file))
    if path.is_dir():
        raise ExploreError(f"{file}: a folder; wanted is FILE.py:NAME")
    if not path.is_file():
        raise ExploreError(f"{file}: there is no such file")
    return path, name


_LOADED: dict[Path, ModuleType] = {}


def load(reference: str) -> Any:
    """What a file calls by a name. A file that is named twice is run once.

    Raises:
        ExploreError: the file does not run, or has nothing of that name.
    """
    path, name = split_reference(reference)
    module = _LOADED[path] if path in _LOADED else _LOADED.setdefault(path, run_file(path))
    return named(module, name, path)


def named(module: ModuleType, name: str, path: Path) -> Any:
    """What a module that was run from `path` calls by a name, dotted or not.

    Raises:
        ExploreError: it has nothing of that name; lists what there is.
    """
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = [each for each in vars(found) if not each.startswith("_")] if hasattr(found, "__dict__") else []
            raise ExploreError(
                f"{shown_path(path)}: there is no {name}"
                + (f"; there is {', '.join(there[:MOST_NAMED])}" if there else "")
            ) from None
    return found


def run_file(path: Path) -> ModuleType:
    """Run a file as a module of its own, from its source as it stands now; one of a package as the package imports it.

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
    # Not by a loader: that would take the code of a cached .pyc for an edit of the same second and the same size.
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and others look themselves up there
    try:
        with telling("it does not import", path.parent, shown_path(path)):
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except ChainruleError:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def _import_from(package: tuple[str, ...], path: Path) -> ModuleType:
    name = ".".join((*package, path.stem))
    with telling("it does not import", home_of(path), shown_path(path)):
        module = importlib.import_module(name)
        if not os.path.samefile(str(module.__file__), path):
            raise ImportError(
                f"{name} is {module.__file__}, which comes first on the import path or is imported already"
            )
    return module


def as_program(path: Path) -> None:
    """Have the process be as `python FILE.py` has it: the file's folder first on the import path, and no arguments.

    Of a file in a package it is as `python -m` has it: first is the folder that holds the package. Its own comes last:
    who runs it as a file imports its neighbours by their names, and one of these may be called as a library is.
    """
    sys.argv = [str(path)]
    package = _package_of(path)
    if package:
        sys.path.insert(0, str(home_of(path).parent))
        sys.path.append(str(path.parent))
    else:
        sys.path.insert(0, str(path.parent))


def home_of(path: Path) -> Path:
    """The folder whose files are the user's: that of the file, or of the whole package that it is in."""
    return path.parents[max(0, len(_package_of(path)) - 1)]


def _package_of(path: Path) -> tuple[str, ...]:
    """The names of the package that a file is a module of, outermost first; none of one by itself."""
    names: list[str] = []
    for folder in path.parents:
        if not folder.name.isidentifier() or not (folder / "__init__.py").is_file():
            break
        names.insert(0, folder.name)
    return tuple(names) if path.stem.isidentifier() and path.stem != "__init__" else ()


class UserFile:
    """A file that is run anew after each edit, and with it what it imports from its own folder.

    Attributes:
        path: the file.
        folder: where it lies; of one in a package, where the package does.
    """

    def __init__(self, path: Path) -> None:
        """Take a file; nothing runs yet."""
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
            sources._around.cache_clear()  # what stands around a line of a file that has changed
            # Before it runs: what is written meanwhile has changed since.
            began = time.time_ns()
            self._stamps = {file: _stamp(file) for file in self.files}
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
                    # What has only now been imported may have been written to since.
                    stamp = _stamp(file)
                    self._stamps.setdefault(file, stamp if stamp is None or stamp[1] < began else None)

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and those that it has imported from its folder."""
        imported = (getattr(sys.modules[name], "__file__", None) for name in self._imported())
        return tuple(sorted({self.path, *(Path(file) for file in imported if file is not None)}))

    @property
    def has_changed(self) -> bool:
        """Whether one of them is another than when it was run. Of one that was imported since, that begins now."""
        changed = False
        for file in self.files:
            now = _stamp(file)
            changed = changed or self._stamps.setdefault(file, now) != now
        return changed

    @property
    def has_new_neighbours(self) -> bool:
        """Whether any file beside it is another than when it was run: one that could not be imported may be there."""
        return self._look_around() != self._neighbours

    def _look_around(self) -> dict[Path, Stamp]:
        folders = {self.folder, self.path.parent}
        return {file: _stamp(file) for folder in folders for form in ("*.py", "*/*.py") for file in folder.glob(form)}

    def _imported(self) -> list[str]:
        """The modules that lie in the folder: of the user's, and written in Python, or a folder of such."""
        found = []
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            # A folder without __init__.py is a module without a file; what was imported from it are its attributes.
            # Not by getattr: torch.classes, for one, raises at any name.
            folders = list(vars(module).get("__path__", ())) if file is None and isinstance(module, ModuleType) else []
            inside = [each for each in folders if isinstance(each, str) and is_users(each, self.folder)]
            if isinstance(file, str) and file.endswith(".py") and is_users(file, self.folder):
                inside.append(file)
            if inside and name != "__main__":
                found.append(name)
        return found


Stamp = tuple[int, int, int] | None
"""What changes with a file: which one it is, when it was written, its size; None where there is none."""


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def is_users(file: str, folder: Path) -> bool:
    """Whether a file is the user's: it lies in the folder, and is of no installed package, nor one of ours."""
    if file.startswith("<"):  # "<string>": code that somebody has put together, torch say
        return False
    return os.path.abspath(file).startswith(os.path.join(folder, "")) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    """Whether a file is of Python's own library, of an installed package, or one of ours."""
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
    """`file:line` where a function or a class is defined; None for what has no code in Python, or is installed."""
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
    """`file:line` of the innermost frame that is the user's; None if there is none.

    Args:
        error: what was raised.
        folder: where the user's files lie; None: wherever is no installed package, a notebook's cell, say.
    """
    if isinstance(error, SyntaxError) and error.filename is not None and _is_users(error.filename, folder):
        return f"{shown_path(error.filename)}:{error.lineno}"
    places = [
        f"{shown_path(frame.filename)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_users(frame.filename, folder)
    ]
    return places[-1] if places else None


def _is_users(file: str, folder: Path | None) -> bool:
    if folder is not None:
        return is_users(file, folder)
    return not file.startswith("<frozen") and not _is_installed(file)


@contextmanager
def telling(what: str, folder: Path | None, place: str, kind: type[ChainruleError] = ExploreError) -> Iterator[None]:
    """Make one line of whatever the user's code raises inside: the place, what happened, and the error itself.

    Args:
        what: what happened, `it does not import`.
        folder: see `raised_at`.
        place: the place to name if no line of the user's was running.
        kind: the error to raise.

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


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody has pressed Ctrl-C, which is no error of the code that ran; it reaches the main thread alone."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def told(
    error: BaseException, what: str, folder: Path | None, place: str, kind: type[ChainruleError] = ExploreError
) -> ChainruleError:
    """What `telling` raises for an error, which loses the frames that it went through, with all tensors in them."""
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
    """A function's name with its arguments, as a message quotes it."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        return f"{name}{inspect.signature(function)}"
    except (TypeError, ValueError):
        return f"{name}(…)"
