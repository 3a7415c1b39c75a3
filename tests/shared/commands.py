"""`chainrule` commands in processes forked from one that has imported it: a server starts in a tenth of a second."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["commands", "chainrule.web.main", "chainrule.user_model", "torch", "uvicorn"])

PATIENT = {"CHAINRULE_DEADLINE_SECONDS": "60", "CHAINRULE_LIVE_DEADLINE_SECONDS": "60"}
"""Settings that a busy machine does not run into."""


@contextmanager
def command(*arguments: str, **settings: str) -> Iterator[str]:
    """The link that `chainrule ARGUMENTS` prints, while it runs; `settings` are environment variables.

    Raises:
        AssertionError: it ended without a link.
    """
    read, write = PROCESSES.Pipe(duplex=False)
    own = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    environment = own | PATIENT | settings
    process = PROCESSES.Process(target=run, args=(write, os.getcwd(), arguments, environment))
    process.start()
    write.close()
    said = []
    try:
        with os.fdopen(os.dup(read.fileno()), encoding="utf-8") as output:
            for line in output:
                said.append(line)
                if match := re.search(r"http://\S+", line):
                    link = match[0].rstrip("/")
                    break
            else:
                raise AssertionError(f"the command ended without a link:\n{''.join(said)}")
            # Later output must not fill the pipe.
            rest = threading.Thread(target=output.read)
            rest.start()
            try:
                yield link
            finally:
                process.terminate()
                rest.join()
    finally:
        process.kill()
        process.join()
        process.close()
        read.close()


def run(output: Connection, folder: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    from chainrule.__main__ import main

    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["chainrule", *arguments]
    main()
