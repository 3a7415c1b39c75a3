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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from chainrule.foundations.linear_extension.library import (
    NAME,
    ExtensionBuildError,
    digest_path,
    file_digest,
    sources,
    target_path,
)

COMPILATION = "chainrule.foundations.linear_extension.compilation"
"""The module that is run to compile."""


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
            "compiles linear.cpp; CXX names another one than c++",
            compiler and shutil.which(compiler),
            "install g++ or clang++ (Debian: apt install g++; macOS: xcode-select --install)"
            if compiler
            else "CXX names no compiler: set it to one, or unset it",
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


def check_requirements(*, cuda: bool) -> None:
    """Check the requirements of a build, with or without CUDA kernels.

    Raises:
        ExtensionBuildError: something is missing; the message says what.
    """
    missing = [each for each in (*requirements(), *(cuda_requirements() if cuda else ())) if each.found is None]
    if missing:
        raise ExtensionBuildError("\n".join(f"{each.name} is missing: {each.remedy}" for each in missing))


def build_extension(
    *,
    cuda: bool | None = None,
    force: bool = False,
    verbose: bool = False,
    tell: Callable[[str, str], None] = lambda _step, _what: None,
) -> Path:
    """Compile the extension into this user's cache and return the compiled file; one that is there and loads is kept.

    Takes about half a minute. The file appears in one step, once it is whole. If several builds run at once, one
    compiles and the others wait for it.

    Args:
        cuda: with the CUDA kernels; None: where that can be.
        force: compile even if it is there.
        verbose: let the compiler's commands through to standard output.
        tell: called with each step ("there already", "does not load", "compiling", "built") and what it is about.

    Raises:
        ExtensionBuildError: something is missing, or the compiler failed; the message says what.
    """
    with_cuda = can_build_cuda() if cuda is None else cuda
    target = target_path(cuda=with_cuda)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(target.parent.with_suffix(".lock")):
            if target.is_file() and not force:
                problem = load_problem(target)
                if problem is None:
                    tell("there already", str(target))
                    return target
                tell("does not load", f"{target}: {problem}")
            check_requirements(cuda=with_cuda)
            names = ", ".join(path.name for path in sources(cuda=with_cuda))
            tell("compiling", f"{names}, without a word for half a minute or so")
            # A folder of its own: a build that was killed leaves nothing that the next would stumble over.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-", ignore_cleanup_errors=True) as folder:
                _compile(Path(folder), cuda=with_cuda, verbose=verbose)
                made = Path(folder, f"{NAME}.so")
                digest = Path(folder, "digest")
                digest.write_text(file_digest(made), encoding="ascii")
                os.replace(digest, digest_path(target))
                os.replace(made, target)
    except OSError as error:
        raise ExtensionBuildError(f"{error.filename or target}: {error.strerror or error}") from error
    tell("built", str(target))
    return target


def load_problem(path: Path) -> str | None:
    """Why a compiled file does not load, tried in another process; None where it does."""
    done = _python(
        "-c", "import sys, pathlib, chainrule.foundations.linear_extension.library as library\n"
        "try: library.load_file(pathlib.Path(sys.argv[1]))\n"
        "except ImportError as error: sys.exit(str(error))", str(path),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return None if done.returncode == 0 else done.stderr.strip() or f"it ends the process: {done.returncode}"


def _compile(folder: Path, *, cuda: bool, verbose: bool) -> None:
    """Compile into a folder: in another process, for torch renames what one process compiles a second time."""
    options = [f"--{name}" for name, is_on in (("cuda", cuda), ("verbose", verbose)) if is_on]
    done = _python(
        "-m", COMPILATION, str(folder), *options,
        stdout=None if verbose else subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise ExtensionBuildError(f"the compiler failed:\n{done.stderr.strip() or f'exit status {done.returncode}'}")


def _python(*arguments: str, stdout: int | None) -> subprocess.CompletedProcess[str]:
    """Run this Python, with the folder of its scripts on PATH: ninja lies there where it was installed with pip."""
    paths = [os.environ.get("PATH", ""), sysconfig.get_path("scripts")]
    return subprocess.run(
        # -P: nothing in the folder that somebody happens to stand in is imported.
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )


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
