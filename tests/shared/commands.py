"""`chainrule` servers in forked processes, with deadlines that a busy machine does not reach."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from command import command_line

PATIENT = {"CHAINRULE_DEADLINE_SECONDS": "60", "CHAINRULE_LIVE_DEADLINE_SECONDS": "60"}


@contextmanager
def command(*arguments: str, **settings: str) -> Iterator[str]:
    """The link that `chainrule ARGUMENTS` prints, while it runs; `settings` are environment variables.

    Raises:
        AssertionError: it ended without a link.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    with subprocess.Popen(
        command_line(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=inherited | PATIENT | settings,
    ) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if match := re.search(r"http://\S+", line):
                break
        else:
            raise AssertionError(f"the command ended without a link:\n{''.join(said)}")
        # Later output must not fill the pipe.
        rest = threading.Thread(target=process.stdout.read)
        rest.start()
        try:
            yield match[0].rstrip("/")
        finally:
            process.terminate()
            rest.join()
