"""Finds and loads the compiled extension.

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
    """There is no compiled extension for these sources, this torch and this Python, or none that loads.

    The message is for the user of this machine; `public` is the message without the machine's paths.
    """

    def __init__(self, reason: str = "the C++ extension is not built", detail: str = "") -> None:
        remedy = "run `chainrule build-extension`"
        super().__init__(f"{reason} ({detail}): {remedy}" if detail else f"{reason}: {remedy}")
        self.public = f"{reason}: {remedy}"


class ExtensionBuildError(RuntimeError):
    """The extension cannot be built; the message says what is missing, or what the compiler said."""


class Extension(Protocol):
    """The compiled module."""

    __file__: str

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
    """The source files, with or without CUDA kernels; they all include HEADER."""
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
    """The path of the compiled file, built or not, with or without CUDA kernels."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return cache_folder() / f"{NAME}-{build_digest(cuda=cuda)}-{'cuda' if cuda else 'cpu'}" / f"{NAME}{suffix}"


def digest_path(path: Path) -> Path:
    """The path of a compiled file's digest, beside it."""
    return path.with_name(f"{path.name}.sha256")


def file_digest(path: Path) -> str:
    """The digest of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def extension_paths() -> tuple[Path, ...]:
    """The compiled files that are there, in the order in which `load_extension` tries them: with CUDA kernels first."""
    return tuple([path for cuda in (True, False) if (path := target_path(cuda=cuda)).is_file()])


def extension_path() -> Path | None:
    """The first of `extension_paths`; None: it is not built."""
    return next(iter(extension_paths()), None)


@lru_cache(maxsize=1)
def load_extension() -> Extension:
    """The compiled extension, kept for the life of the process. Raises ExtensionNotBuiltError if none loads."""
    problems = []
    for path in extension_paths():
        try:
            return load_file(path)
        except ImportError as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise ExtensionNotBuiltError("the C++ extension does not load", "; ".join(problems))
    raise ExtensionNotBuiltError


def load_file(path: Path) -> Extension:
    """The extension in one compiled file. Raises ImportError: it does not load, or its digest is another.

    The digest comes first: loading a library that was cut short would end the process.
    """
    try:
        is_whole = digest_path(path).read_text(encoding="ascii") == file_digest(path)
    except (OSError, ValueError) as error:
        raise ImportError(f"its digest cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not is_whole:
        raise ImportError("the file is damaged")
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None, "its name ends as those of extension modules do"
    assert spec.loader is not None, "a file has one"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Extension, module)
