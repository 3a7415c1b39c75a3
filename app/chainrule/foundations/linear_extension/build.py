"""What building the extension takes, and the build itself."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from chainrule.foundations.linear_extension.library import (
    FLAGS,
    NAME,
    ExtensionBuildError,
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
    """What a build for the CPU needs. Looks at the disk and at PATH only: nothing is run."""
    compiler = shlex.split(os.environ.get("CXX") or "c++")[0]
    python_header = Path(sysconfig.get_path("include"), "Python.h")
    # Not torch.utils.cpp_extension.include_paths(): importing that takes half a second, and needs setuptools.
    torch_header = Path(torch.__file__).parent / "include" / "torch" / "extension.h"
    return (
        Requirement(
            "C++ compiler",
            "compiles linear.cpp; CXX names another one than c++",
            shutil.which(compiler),
            "install g++ or clang++ (Debian: apt install g++; macOS: xcode-select --install)",
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
    """What the CUDA kernels need besides. A CPU build of torch cannot be linked against, whatever else is there."""
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


def build_extension(*, cuda: bool | None = None, force: bool = False, verbose: bool = False) -> Path:
    """Compile the extension into this user's cache and return the compiled file; one that is there is kept.

    Takes half a minute or so. The file appears in one step, once it is whole.

    Args:
        cuda: with the CUDA kernels; None: where that can be.
        force: compile even if it is there.
        verbose: let the compiler's commands through to standard output.

    Raises:
        ExtensionBuildError: something is missing, or the compiler failed; the message says what.
    """
    with_cuda = can_build_cuda() if cuda is None else cuda
    missing = [each for each in (*requirements(), *(cuda_requirements() if with_cuda else ())) if each.found is None]
    if missing:
        raise ExtensionBuildError("\n".join(f"{each.name} is missing: {each.remedy}" for each in missing))
    target = target_path(cuda=with_cuda)
    if target.is_file() and not force:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own: a build that was killed leaves no lock that the next would wait for.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-", ignore_cleanup_errors=True) as folder:
            _compile(Path(folder), cuda=with_cuda, verbose=verbose)
            os.replace(Path(folder, f"{NAME}.so"), target)
    except OSError as error:
        raise ExtensionBuildError(f"{error.filename or target}: {error.strerror or error}") from error
    return target


def _compile(folder: Path, *, cuda: bool, verbose: bool) -> None:
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise ExtensionBuildError(
            f"torch.utils.cpp_extension does not import ({error}): pip install setuptools"
        ) from error
    define = ["-DWITH_CUDA"] if cuda else []
    with _tools_on_path():
        try:
            cpp_extension.load(
                name=NAME,
                sources=[str(path) for path in sources(cuda=cuda)],
                extra_cflags=[*FLAGS, *define],
                extra_cuda_cflags=[*FLAGS, *define],
                build_directory=str(folder),
                with_cuda=cuda,
                verbose=verbose,
            )
        except (RuntimeError, ImportError, subprocess.SubprocessError) as error:
            raise ExtensionBuildError(f"the compiler failed:\n{error}") from error


@contextlib.contextmanager
def _tools_on_path() -> Iterator[None]:
    """PATH with the folder of this Python's scripts: ninja lies there where it was installed with pip."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([before, sysconfig.get_path("scripts")])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return (shutil.which("nvcc", path=str(Path(home, "bin"))) if home else None) or shutil.which("nvcc")
