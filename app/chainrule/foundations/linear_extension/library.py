"""Where the compiled extension lies, and how it is loaded.

Loading never builds: a compiler runs only when somebody calls `build.build_extension`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor

NAME = "chainrule_linear"
"""Name of the Python module that the extension is."""

FOLDER = Path(__file__).parent
HEADER, SOURCE, CUDA_SOURCE = FOLDER / "linear.h", FOLDER / "linear.cpp", FOLDER / "linear_cuda.cu"

FLAGS = ("-O3",)


class ExtensionNotBuiltError(RuntimeError):
    """There is no compiled extension for these sources, this torch and this Python."""

    def __init__(self, reason: str = "the C++ extension is not built") -> None:
        super().__init__(f"{reason}: run `chainrule build-extension`")


class ExtensionBuildError(RuntimeError):
    """The extension cannot be built; the message says what is missing, or what the compiler said."""


class Extension(Protocol):
    """What the compiled module offers."""

    with_cuda: bool
    """Whether it has the CUDA kernels."""

    def forward(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`inp @ weightᵀ + bias`."""

    def backward(
        self, grad_output: Tensor, inp: Tensor, weight: Tensor, needs_input_grad: list[bool]
    ) -> tuple[Tensor | None, ...]:
        """The gradients of inp, weight and bias; None where `needs_input_grad` says False."""


def cache_folder() -> Path:
    """The folder of this user that compiled extensions are kept in; `XDG_CACHE_HOME` moves it."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "chainrule" / "extensions"


def sources(*, cuda: bool) -> tuple[Path, ...]:
    """What is compiled, with or without CUDA kernels; they all include HEADER."""
    return (SOURCE, CUDA_SOURCE) if cuda else (SOURCE,)


@lru_cache(maxsize=2)
def build_digest(*, cuda: bool) -> str:
    """Digest of all that the compiled file depends on: the sources, the flags, torch and Python."""
    digest = hashlib.sha256()
    for path in (HEADER, *sources(cuda=cuda)):
        digest.update(path.read_bytes())
    for fact in (*FLAGS, torch.__version__, str(torch.version.cuda), str(sysconfig.get_config_var("SOABI"))):
        digest.update(b"\0" + fact.encode())
    return digest.hexdigest()[:16]


def target_path(*, cuda: bool) -> Path:
    """Where the compiled file lies once it is built, with or without CUDA kernels."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return cache_folder() / f"{NAME}-{build_digest(cuda=cuda)}-{'cuda' if cuda else 'cpu'}" / f"{NAME}{suffix}"


def extension_path() -> Path | None:
    """The compiled file that `load_extension` would load, the one with CUDA kernels first; None: it is not built."""
    return next((path for cuda in (True, False) if (path := target_path(cuda=cuda)).is_file()), None)


@lru_cache(maxsize=1)
def load_extension() -> Extension:
    """The compiled extension; once loaded it stays for the life of the process, and it is never built here.

    Raises:
        ExtensionNotBuiltError: it is not built, or the file does not load.
    """
    path = extension_path()
    if path is None:
        raise ExtensionNotBuiltError
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None, "its name ends as those of extension modules do"
    assert spec.loader is not None, "a file has one"
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ExtensionNotBuiltError(f"the C++ extension does not load ({error})") from error
    return cast(Extension, module)
