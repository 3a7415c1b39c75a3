"""The command `chainrule` in a process that is forked from one with torch in it, or is `fresh`."""

import atexit
import functools
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

FORKED = Path(__file__).with_name("forked.py")
PATIENT = {"CHAINRULE_DEADLINE_SECONDS": "60", "CHAINRULE_LIVE_DEADLINE_SECONDS": "60"}
"""Deadlines that a busy machine does not reach."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}


@functools.cache
def _socket():
    """Path of the socket of the server that forks."""
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/forked"
    server = subprocess.Popen(
        [sys.executable, FORKED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    )

    def end():
        server.stdin.close()
        server.wait(20)
        server.stdout.close()
        folder.cleanup()

    atexit.register(end)
    assert server.stdout.readline() == b"ready\n"
    return path


def command_line(arguments, fresh=False):
    if fresh:
        return [sys.executable, "-m", "chainrule", *map(str, arguments)]
    return [sys.executable, "-I", "-S", FORKED, _socket(), *map(str, arguments)]


def chainrule(*arguments, text=True, fresh=False, folder=None, **environment):
    return subprocess.run(
        command_line(arguments, fresh),
        capture_output=True,
        text=text,
        timeout=300,
        cwd=folder,
        env=ENVIRONMENT | environment,
    )


@contextmanager
def serving(*arguments, command="serve", fresh=False, folder=None, stderr=subprocess.PIPE, **environment):
    """A server on a free port; gives its process and the link that it printed when it was ready."""
    process = subprocess.Popen(
        command_line([command, "--port", "0", *arguments], fresh),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"} | environment,
    )
    try:
        link = None
        said = []
        while link is None and (line := process.stdout.readline()):
            said.append(line)
            link = re.search(r" is at (http://\S+)", line)
        assert link, "".join(said) + (process.stderr.read() if process.stderr else "")
        yield process, link[1]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=300)


@contextmanager
def command(name, *arguments, **settings):
    """The link that `chainrule NAME ARGUMENTS` prints, while it runs; `settings` are environment variables."""
    with serving(*arguments, command=name, stderr=None, **PATIENT | settings) as (_, link):
        yield link.rstrip("/")
