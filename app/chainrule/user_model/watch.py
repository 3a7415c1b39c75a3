"""Reloads a model when one of its files changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchfiles import watch

from chainrule.user_model.model import UserModel

logger = logging.getLogger(__name__)

DEBOUNCE_MS = 200
"""Changes within this time count as one: an editor writes a file in several steps."""

STEP_MS = 25
"""A change is over after this time without another."""

LOOK_MS = 500
"""The files are also looked at in this interval: for changes before watching began, file systems without events, and
files that a forward pass imports."""

JOIN_SECONDS = 5.0
"""The longest wait for a reload to end."""


@contextmanager
def watching(model: UserModel) -> Iterator[None]:
    """Inside, reload the model, in another thread, whenever one of its files changes."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(model, over), name="chainrule-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_SECONDS)


def _watch(model: UserModel, over: threading.Event) -> None:
    while not over.is_set():
        try:
            _watch_folders(_folders(model), model, over)
        except OSError as error:
            logger.warning("%s cannot be watched, so its files are read from time to time: %s", model.name, error)
            while not over.wait(LOOK_MS / 1000):
                _look(model)


def _watch_folders(folders: frozenset[Path], model: UserModel, over: threading.Event) -> None:
    """Reload on changes in these folders, until there are other folders to watch or watching ends."""
    # Folders, not files: an editor may replace a file by another.
    for _ in watch(
        *folders,
        watch_filter=lambda _, path: path.endswith(".py"),
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=over,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    ):
        _look(model)
        if _folders(model) != folders:
            return


def _look(model: UserModel) -> None:
    if model.has_changed:
        try:
            model.reload()
        except Exception:
            logger.exception("%s could not be reloaded", model.name)


def _folders(model: UserModel) -> frozenset[Path]:
    return frozenset(file.parent for file in model.files if file.parent.is_dir())
