"""A real server in a process of its own, for benches of the page and for its pictures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def server(*arguments: str) -> Iterator[tuple[str, int]]:
    """The address of `chainrule ARGUMENTS --port 0` with its default settings, and its process id.

    Raises:
        SystemExit: it ended without saying where it listens.
    """
    command = [sys.executable, "-u", "-m", "chainrule", *arguments, "--port", "0"]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as process:
        try:
            for line in process.stdout or ():
                if match := re.search(r" is at (http://\S+)", line):
                    yield match[1].rstrip("/"), process.pid
                    return
            raise SystemExit("the server did not start")
        finally:
            process.terminate()
