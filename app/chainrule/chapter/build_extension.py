"""Building the C++ extension for the command line, with messages about its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from chainrule.foundations.linear_extension import build as builder
from chainrule.foundations.linear_extension.library import ExtensionBuildError as BuildError

__all__ = ["BuildError", "build"]


def build(say: Callable[[str], None], *, cuda: bool | None = None, force: bool = False, verbose: bool = False) -> None:
    """Build the extension if it is not built or does not load, and pass each line of progress to `say`.

    Raises:
        BuildError: something is missing, or the compiler failed.
    """
    with_cuda = builder.can_build_cuda() if cuda is None else cuda
    for each in (*builder.requirements(), *(builder.cuda_requirements() if with_cuda else ())):
        say(f"{each.name:18}{each.found or 'missing'}")
    started = time.monotonic()

    def tell(step: str, what: str) -> None:
        took = f" in {time.monotonic() - started:.0f} s" if step == "built" else ""
        say(f"{step:18}{what}{took}")
        if step == "built":
            say("A running server that had none takes it up with its next request; one that had one, once restarted.")

    builder.build_extension(cuda=with_cuda, force=force, verbose=verbose, tell=tell)
