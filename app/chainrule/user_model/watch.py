"""A model whose file has changed is made anew."""

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
"""Changes that follow one another so closely are one: an editor writes a file in several steps."""

STEP_MS = 25
"""After so long without another change it is over."""

LOOK_MS = 500
"""So often the files are looked at even if nothing was heard of them: what changes before they are watched, or on a
file system that says nothing; and what a forward pass imports comes late."""

JOIN_SECONDS = 5.0
"""How long the end of a reload is waited for."""


@contextmanager
def watching(own: UserModel) -> Iterator[None]:
    """Inside, a change of any file that the model comes from has it made anew, in a thread of its own."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(own, over), name="chainrule-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(JOIN_SECONDS)


def _watch(own: UserModel, over: threading.Event) -> None:
    while not over.is_set():
        try:
            _watch_folders(_folders(own), own, over)
        except OSError as error:
            logger.warning("%s is looked at now and then, for it cannot be watched: %s", own.name, error)
            while not over.wait(LOOK_MS / 1000):
                _look(own)


def _watch_folders(folders: frozenset[Path], own: UserModel, over: threading.Event) -> None:
    """Reload on changes in these folders, until there are others to watch or all is over."""
    # Folders, and not files: an editor may put another file in the place of one.
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
        _look(own)
        if _folders(own) != folders:
            return


def _look(own: UserModel) -> None:
    if own.has_changed:
        try:
            own.reload()
        except Exception:
            # The next edit is waited for all the same.
            logger.exception("%s could not be made anew", own.name)


def _folders(own: UserModel) -> frozenset[Path]:
    return frozenset(file.parent for file in own.files if file.parent.is_dir())
