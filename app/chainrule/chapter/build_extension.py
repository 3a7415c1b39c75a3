"""Building the C++ extension, for the command line: it says what it does."""

from __future__ import annotations

import time
from collections.abc import Callable

from chainrule.foundations.linear_extension import build as builder
from chainrule.foundations.linear_extension.library import ExtensionBuildError as BuildError
from chainrule.foundations.linear_extension.library import sources, target_path

__all__ = ["BuildError", "build"]


def build(say: Callable[[str], None], *, cuda: bool | None = None, force: bool = False, verbose: bool = False) -> None:
    """Build the extension where it is not built, telling `say` line by line what is done.

    Args:
        say: takes a line.
        cuda: see `build_extension`.
        force: see `build_extension`.
        verbose: see `build_extension`.

    Raises:
        BuildError: something is missing, or the compiler failed.
    """
    with_cuda = builder.can_build_cuda() if cuda is None else cuda
    for each in (*builder.requirements(), *(builder.cuda_requirements() if with_cuda else ())):
        say(f"{each.name:18}{each.found or 'missing'}")
    target = target_path(cuda=with_cuda)
    if target.is_file() and not force:
        say(f"{'there already':18}{target}")
        return
    if all(each.found for each in builder.requirements()):
        names = ", ".join(path.name for path in sources(cuda=with_cuda))
        say(f"{'compiling':18}{names}, without a word for half a minute or so")
    started = time.monotonic()
    built = builder.build_extension(cuda=with_cuda, force=force, verbose=verbose)
    say(f"{'built':18}{built} in {time.monotonic() - started:.0f} s")
    say("A server that runs already takes it up with the next request.")
