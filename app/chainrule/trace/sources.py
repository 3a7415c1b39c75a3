"""Which line of the user's code is being executed: found by walking frames, remembered per code object."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import groupby
from types import CodeType, FrameType

import torch

from chainrule.errors import plain_text
from chainrule.trace.graph import Snippet, Source
from chainrule.trace.privacy import masked

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
RECORDER_FOLDER = os.path.dirname(__file__) + os.sep
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep
RECORDING_FILE = os.path.join(PACKAGE_FOLDER, "recording.py")
USER_MODEL_FOLDER = os.path.join(PACKAGE_FOLDER, "user_model") + os.sep

_INSTALLED = f"{os.sep}site-packages{os.sep}"


@cache
def is_user_file(file: str) -> bool | None:
    """Whether a file is neither torch's nor the recorder's.

    None for those of `user_model`, which runs a user's model: none of its callers is the user's code.
    """
    if file.startswith(USER_MODEL_FOLDER):
        return None
    return not file.startswith((TORCH_FOLDER, RECORDER_FOLDER, RECORDING_FILE, "<frozen"))


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame, from `frame` outwards, that is neither torch's nor the recorder's.

    None in a user's model that consists of torch's modules alone.
    """
    while frame is not None:
        known = is_user_file(frame.f_code.co_filename)
        if known is None:
            return None
        if known:
            return frame
        frame = frame.f_back
    return None


def is_backward_code(code: CodeType) -> bool:
    """Whether a function has the name of a backward written by hand: backward, bwd, …_grad.

    Not torch's functions, nor the user's `zero_grad` and `no_grad`.
    """
    return _is_name_of_backward(code.co_name) and not code.co_filename.startswith(TORCH_FOLDER)


@cache
def _is_name_of_backward(name: str) -> bool:
    return (name in ("backward", "bwd") or name.endswith("_grad")) and name not in ("zero_grad", "no_grad")


def describe_source(code: CodeType, line: int, model_folder: str | None) -> Source:
    """The source of a line: its text stripped and masked, its file relative."""
    text = masked(linecache.getline(code.co_filename, line).strip())
    return Source(relative_file(code.co_filename, model_folder), line, text, code.co_qualname)


CONTEXT = 3
"""Lines of a snippet before and after the line of an op."""


def snippets(places: Iterable[tuple[CodeType, int]], model_folder: str | None) -> Mapping[str, tuple[Snippet, ...]]:
    """The lines around places in code, by relative file name, sorted; of two files with one name, the first's."""
    lines: dict[str, set[int]] = {}
    for code, line in places:
        lines.setdefault(code.co_filename, set()).add(line)
    found: dict[str, tuple[Snippet, ...]] = {}
    for file, numbers in lines.items():
        name = relative_file(file, model_folder)
        if name not in found and (around := _around(file, tuple(sorted(numbers)))):
            found[name] = around
    return dict(sorted(found.items()))


@lru_cache(maxsize=256)
def _around(file: str, numbers: tuple[int, ...]) -> tuple[Snippet, ...]:
    """The lines of a file near some of its lines; consecutive lines are one snippet."""
    text = linecache.getlines(file)
    near = sorted({line for number in numbers for line in range(number - CONTEXT, number + CONTEXT + 1)})
    existing = [line for line in near if 1 <= line <= len(text)]
    runs = [[line for _, line in run] for _, run in groupby(enumerate(existing), lambda each: each[1] - each[0])]
    return tuple(Snippet(run[0], "\n".join(masked(text[line - 1].rstrip()) for line in run)) for run in runs)


def relative_file(file: str, model_folder: str | None) -> str:
    """`file` without this machine's folders, which a dump must not contain."""
    file = plain_text(file)
    if file.startswith(PACKAGE_FOLDER):
        return "chainrule/" + file[len(PACKAGE_FOLDER) :].replace(os.sep, "/")
    if model_folder is not None and file.startswith(plain_text(model_folder) + os.sep):
        return file[len(model_folder) + 1 :].replace(os.sep, "/")
    _, installed, rest = file.rpartition(_INSTALLED)
    return rest.replace(os.sep, "/") if installed else os.path.basename(file)


def model_folder(model: object) -> str | None:
    """The folder of the file that defines the model's class or function, if it has one."""
    definition = model if hasattr(model, "__code__") else type(model)
    module = sys.modules.get(getattr(definition, "__module__", ""))
    file = getattr(module, "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file else None
