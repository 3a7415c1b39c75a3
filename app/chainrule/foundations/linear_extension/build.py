"""Builds the extension, and checks what a build requires."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from chainrule.foundations.linear_extension.library import (
    FLAGS,
    NAME,
    ExtensionBuildError,
    digest_path,
    file_digest,
    sources,
    target_path,
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a build needs: whether it is there, where, and what to do where it is not."""

    name: str
    purpose: str
    found: str | None
    remedy: str


def requirements() -> tuple[Requirement, ...]:
    """The requirements of a build for the CPU. Looks at the disk and at PATH only: nothing is run."""
    compiler = _compiler()
    python_header = Path(sysconfig.get_path("include"), "Python.h")
    # Not torch.utils.cpp_extension.include_paths(): importing that takes half a second, and needs setuptools.
    torch_header = Path(torch.__file__).parent / "include" / "torch" / "extension.h"
    return (
        Requirement(
            "C++ compiler",
            "compiles linear.cpp; set CXX to use a compiler other than c++",
            compiler and shutil.which(compiler),
            "install g++ or clang++ (Debian: apt install g++; macOS: xcode-select --install)"
            if compiler
            else "CXX is not a compiler: set it to a compiler, or unset it",
        ),
        Requirement("ninja", "runs the compiler", _which("ninja"), "pip install 'chainrule[extension]'"),
        Requirement(
            "Python's headers",
            "the module is bound to Python",
            str(python_header) if python_header.is_file() else None,
            "install the development files of this Python (Debian: apt install python3-dev)",
        ),
        Requirement(
            "torch's headers",
            "the sources use ATen",
            str(torch_header) if torch_header.is_file() else None,
            "install a torch wheel: this installation came without its headers",
        ),
    )


def cuda_requirements() -> tuple[Requirement, ...]:
    """The further requirements of the CUDA kernels; a CPU build of torch cannot be linked with them."""
    version = torch.version.cuda
    return (
        Requirement("torch with CUDA", "the kernels are linked with it", version, "install a CUDA build of torch"),
        Requirement("nvcc", "compiles linear_cuda.cu", _nvcc(), "install the CUDA toolkit, or set CUDA_HOME"),
        Requirement(
            "GPU",
            "runs the kernels",
            torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "run on a machine with a CUDA device",
        ),
    )


def can_build_cuda() -> bool:
    """Whether all of `cuda_requirements` is met."""
    return all(each.found for each in cuda_requirements())


def build_extension(
    *,
    cuda: bool | None = None,
    force: bool = False,
    verbose: bool = False,
    say: Callable[[str], object] = lambda _line: None,
) -> Path:
    """Compile the extension into this user's cache and return the compiled file; one that is there and loads is kept.

    Takes about half a minute. The file appears in one step, once it is whole. If several builds run at once, one
    compiles and the others wait for it.

    Args:
        cuda: with the CUDA kernels; None: where that can be.
        force: compile even if it is there.
        verbose: let the compiler's commands through to standard output.
        say: called with each line of progress.

    Raises:
        ExtensionBuildError: something is missing, or the compiler failed; the message says what.
    """
    with_cuda = can_build_cuda() if cuda is None else cuda
    needed = (*requirements(), *(cuda_requirements() if with_cuda else ()))
    for each in needed:
        say(f"{each.name:18}{each.found or 'missing'}")
    started = time.monotonic()
    target = target_path(cuda=with_cuda)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(target.parent.with_suffix(".lock")):
            if target.is_file() and not force:
                problem = _elsewhere("library.load_file(Path(sys.argv[1]))", target)
                if problem is None:
                    say(f"{'there already':18}{target}")
                    return target
                say(f"{'does not load':18}{target}: {problem}")
            missing = [f"{each.name} is missing: {each.remedy}" for each in needed if each.found is None]
            if missing:
                raise ExtensionBuildError("\n".join(missing))
            names = ", ".join(path.name for path in sources(cuda=with_cuda))
            say(f"{'compiling':18}{names}; this takes about half a minute and prints nothing")
            # A separate folder, so a killed build leaves no files that disturb the next build.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-", ignore_cleanup_errors=True) as folder:
                _compile(Path(folder), cuda=with_cuda, verbose=verbose)
                made = Path(folder, f"{NAME}.so")
                digest = Path(folder, "digest")
                digest.write_text(file_digest(made), encoding="ascii")
                os.replace(digest, digest_path(target))
                os.replace(made, target)
    except OSError as error:
        raise ExtensionBuildError(f"{error.filename or target}: {error.strerror or error}") from error
    say(f"{'built':18}{target} in {time.monotonic() - started:.0f} s")
    say("A running server without the extension uses it from the next request on; otherwise restart the server.")
    return target


def compile_here(folder: str, *, cuda: bool, verbose: bool) -> None:
    """Compile and load the extension with torch's own tools: FOLDER/chainrule_linear.so.

    Raises:
        ImportError: setuptools is missing, or the compiled file does not load.
        RuntimeError: the compiler failed; the message is its output.
    """
    from torch.utils import cpp_extension

    define = ["-DWITH_CUDA"] if cuda else []
    cpp_extension.load(
        name=NAME,
        sources=[str(path) for path in sources(cuda=cuda)],
        extra_cflags=[*FLAGS, *define],
        extra_cuda_cflags=[*FLAGS, *define],
        build_directory=folder,
        with_cuda=cuda,
        verbose=verbose,
    )


def _compile(folder: Path, *, cuda: bool, verbose: bool) -> None:
    """Compile in another process: torch renames a module that one process compiles a second time."""
    call = f"build.compile_here(sys.argv[1], {cuda=}, {verbose=})"
    problem = _elsewhere(call, folder, stdout=None if verbose else subprocess.DEVNULL)
    if problem is not None:
        raise ExtensionBuildError(f"the compiler failed:\n{problem}")


def _elsewhere(call: str, path: Path, *, stdout: int | None = subprocess.DEVNULL) -> str | None:
    """Make a call in another process of this Python; the message of its error, None if it returns."""
    code = (
        "import subprocess, sys\nfrom pathlib import Path\n"
        "from chainrule.foundations.linear_extension import build, library\n"
        f"try: {call}\n"
        "except ModuleNotFoundError as error: sys.exit(f'{error}: pip install {error.name}')\n"
        "except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error: sys.exit(str(error))"
    )
    # The folder of this Python's scripts on PATH: ninja lies there if pip installed it.
    paths = [os.environ.get("PATH", ""), sysconfig.get_path("scripts")]
    done = subprocess.run(
        # -P: nothing in the current folder is imported.
        [sys.executable, "-P", "-c", code, str(path)],
        env=os.environ | {"PATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else None


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of this name; other processes wait. The system releases it when the process ends."""
    if sys.platform == "win32":
        yield  # two builds at once then both compile: the later one's file stays
        return
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiler() -> str | None:
    """The program that CXX names, without its arguments; None where CXX is no command line."""
    try:
        words = shlex.split(os.environ.get("CXX") or "c++")
    except ValueError:  # a quotation mark that nothing closes
        return None
    return words[0] if words else None


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return (shutil.which("nvcc", path=str(Path(home, "bin"))) if home else None) or shutil.which("nvcc")
