"""Reloads a model when one of its files changes.

The user's file runs in a thread of its own: if it runs for ever, the next change interrupts it and runs it anew.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchfiles import watch

from chainrule.errors import ExploreError
from chainrule.user_model.code import Interrupted
from chainrule.user_model.model import UserModel

logger = logging.getLogger(__name__)

DEBOUNCE_MS = 200
"""Changes within this time count as one: an editor writes a file in several steps."""

STEP_MS = 25
"""A change is over after this time without another."""

LOOK_MS = 500
"""The files are also looked at in this interval: for changes before watching began, file systems without events, and
files that a forward pass imports."""

JOIN_SECONDS = 1.0
"""The longest wait for a reload to end."""

SLOW_SECONDS = 10.0
"""After this time the page says that the file is still running."""


class Reloads:
    """Reloads a model, one reload at a time, each in a thread of its own."""

    def __init__(self, model: UserModel) -> None:
        self.model = model
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._is_told = False

    def look(self) -> None:
        """Begin a reload if the model's files have changed; first interrupt one that takes too long."""
        if self._thread is None or not self._thread.is_alive():
            if self.model.has_changed:
                self._begin()
        elif time.monotonic() - self._began <= SLOW_SECONDS:
            pass  # an interrupted import could leave half a library
        elif self.model.has_changed:
            self._began = time.monotonic()  # it gets as long to end as it got to run
            self._interrupt(self._thread)
        elif not self._is_told:
            self._is_told = True
            self.model.still_reloads(
                ExploreError(
                    f"{self.model.name} is still running after {SLOW_SECONDS:g} seconds; the model before stays. "
                    "The next change of the file interrupts it and runs the file again"
                )
            )

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._reload, name="chainrule-reload", daemon=True)
        self._began, self._is_told = time.monotonic(), False
        self._thread.start()

    def _reload(self) -> None:
        try:
            self.model.reload()
        except Interrupted:
            logger.info("%s was interrupted to run again", self.model.name)
        except Exception:
            logger.exception("%s could not be reloaded", self.model.name)

    def _interrupt(self, thread: threading.Thread) -> None:
        """Raise `Interrupted` in the thread, between two instructions of Python. A call of C has to return first."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted))


@contextmanager
def watching(model: UserModel) -> Iterator[None]:
    """Inside, reload the model, in another thread, whenever one of its files changes."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(Reloads(model), over), name="chainrule-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_SECONDS)


def _watch(reloads: Reloads, over: threading.Event) -> None:
    model = reloads.model
    while not over.is_set():
        try:
            _watch_folders(_folders(model), reloads, over)
        except (OSError, RuntimeError) as error:  # watchfiles raises both
            logger.warning("%s cannot be watched, so its files are read from time to time: %s", model.name, error)
            while not over.wait(LOOK_MS / 1000):
                reloads.look()


def _watch_folders(folders: frozenset[Path], reloads: Reloads, over: threading.Event) -> None:
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
        reloads.look()
        if _folders(reloads.model) != folders:
            return


def _folders(model: UserModel) -> frozenset[Path]:
    return frozenset(file.parent for file in model.files if file.parent.is_dir())
