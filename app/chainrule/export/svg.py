"""The picture of a trace without a browser: the page's own layout and drawing, run in an embedded JavaScript engine.

The engine is an optional dependency, the extra `render`. Each process keeps one, in a process of its own; its code can
access nothing outside.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from chainrule import stopping
from chainrule.dump.wire import dump_trace
from chainrule.errors import ChainruleError, MemoryLimitError, MissingExtraError, RenderError
from chainrule.export.engine_process import IS_MISSING
from chainrule.export.options import invalid_parameter, option
from chainrule.memory import memory_errors
from chainrule.page import assets
from chainrule.page.modules import bundle
from chainrule.trace.graph import Trace

SECONDS = 30.0
"""The time limit of a drawing."""

STEP = 0.05
"""A drawing is cancelled within so many seconds after the request to stop."""

MAX_MEMORY = 1 << 29
"""Bytes of the engine's heap: half of a pass's default limit, and twice the need of the largest picture of a pass."""

ENTRY = "core/takeaway/headless.js"

VIEW_OPTIONS = (
    option(
        "level",
        "layer",
        "The open groups: all except the innermost (layer), all, or the groups above a depth (a number).",
        pattern="layer|all|[0-9]{1,4}",
        words="layer, all or a number",
    ),
    option(
        "toggled",
        "",
        "Ids of groups that are open instead of closed, or closed instead of open, separated by commas.",
        pattern=r"[^\x00-\x1f]{0,2000}",
        words="ids such as layers.0/forward, separated by commas",
    ),
    option("fold", "auto", "Fold repeated blocks into one.", choices=("auto", "on", "off")),
    option(
        "statistic",
        "std",
        "The statistic in a tensor's box; none draws only the structure, without numbers and histograms.",
        choices=("std", "mean", "none"),
    ),
    option("scheme", "light", "The colours.", choices=("light", "dark")),
    option(
        "bins",
        "shared",
        "The axis of the histograms: shared by all tensors of a kind, or own for each tensor.",
        choices=("shared", "own"),
    ),
)

MAX_NAMED = 8
"""The number of unknown groups that an error names."""


def to_svg(
    trace: Trace,
    *,
    level: str = "layer",
    toggled: Sequence[str] = (),
    fold: str = "auto",
    statistic: str = "std",
    scheme: str = "light",
    bins: str = "shared",
) -> str:
    """The graph of a trace as an SVG document; VIEW_OPTIONS describe the arguments.

    Raises:
        RequestError: an argument is not allowed, or no group has an id in `toggled`.
        MissingExtraError: the extra `render` is not installed.
        RenderError: the page's code failed or took too long.
        MemoryLimitError: it took too much memory, or its process ended.
        ChainruleError: the work was stopped.
    """
    given = {"level": level, "fold": fold, "statistic": statistic, "scheme": scheme, "bins": bins}
    options = {each.name: each for each in VIEW_OPTIONS}
    wishes = {name: options[name].read(value) for name, value in given.items()}
    dump = dump_trace(trace).decode()
    stopping.check()
    unknown = _engine.call("unknownGroups", dump, list(toggled)) if toggled else ()
    if unknown:
        more = ", …" if len(unknown) > MAX_NAMED else ""
        raise invalid_parameter(
            f"toggled: unknown group {', '.join(repr(str(name)[:40]) for name in [*unknown][:MAX_NAMED])}{more}; "
            f"expected {options['toggled'].allowed}",
            field="toggled",
        )
    return str(_engine.call("renderSvg", dump, {**wishes, "toggled": list(toggled)}))


class Engine:
    """The engine with the page's modules in it, in a process of its own that begins when it is first needed.

    Callers wait in short steps, so that their work can be stopped. A drawing that is stopped, or takes too long or too
    much memory, ends with its process, and the next call begins another.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        self._owner = 0
        self._stamp: object = None
        self._has_run = False

    def call(self, function: str, *arguments: Any) -> Any:
        """Call an export of `core/takeaway/headless.js` with JSON arguments. Raises the errors of `to_svg`."""
        while not self._turn.acquire(timeout=STEP):
            stopping.check()
        try:
            with memory_errors():
                self._make_ready()
                self._has_run = True
                called = f"chainrule.{function}(...{json.dumps(arguments, separators=(',', ':'))})"
                return json.loads(self._ask(f"JSON.stringify({called})"))
        finally:
            self._turn.release()

    def _make_ready(self) -> None:
        """Begin the process with the current modules, unless it runs."""
        stamp = assets.digest(assets.static())
        # A process that was forked must not use the pipes of its parent.
        if self._process is not None and self._owner == os.getpid() and stamp == self._stamp:
            return
        self.close()
        script = bundle(assets.static() / ENTRY)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("engine_process.py")), str(MAX_MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal is for us
        )
        self._owner, self._answers = os.getpid(), queue.SimpleQueue()
        self._reader = threading.Thread(
            target=_read, args=(cast(BinaryIO, self._process.stdout), self._answers), daemon=True
        )
        self._reader.start()
        self._ask(f"var chainrule = {script}; 0")
        self._stamp = stamp

    def _ask(self, code: str) -> str:
        """The value of an expression."""
        try:
            answer = self._answer_to(code.encode())
        except BaseException:
            self.close()
            raise
        kind, said = answer[:1], answer[1:]
        if kind == "m":
            self.close()
            raise MemoryLimitError(f"drawing the graph took more than {MAX_MEMORY >> 20} MiB of memory")
        if kind == "e":
            raise RenderError(f"the graph cannot be drawn: {said.strip().splitlines()[0]}")
        return said

    def _answer_to(self, code: bytes) -> str:
        process = self._process
        assert process is not None, "it is ready"
        assert process.stdin is not None, "a pipe"
        ends = time.monotonic() + SECONDS
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(len(code).to_bytes(8, "little") + code)
            process.stdin.flush()
        while True:
            stopping.check()
            if time.monotonic() >= ends:
                raise RenderError(f"drawing the graph took more than {SECONDS:g} seconds")
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=STEP)
                if answer is None:
                    raise _ended(process.wait())
                return answer.decode()

    def rest(self) -> None:
        """Free the unused memory of its heap, unless it draws: 75 of 77 MiB after sixty pictures.

        It takes 20 ms, and the next picture 30 ms more.
        """
        if self._turn.acquire(blocking=False):
            try:
                process = self._process
                if process is not None and process.stdin is not None and self._has_run:
                    self._has_run = False
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.write(bytes(8))
                        process.stdin.flush()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the process; the next call begins another."""
        process, self._process, self._stamp, self._has_run = self._process, None, None, False
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        if self._reader is not None and self._reader.is_alive():
            self._reader.join()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None, "it has both"
                pipe.close()


def _read(pipe: BinaryIO, answers: queue.SimpleQueue[bytes | None]) -> None:
    """Put all answers of a process into a queue, and None at its end."""
    try:
        while len(head := pipe.read(8)) == 8:
            answers.put(pipe.read(int.from_bytes(head, "little")))
    finally:
        answers.put(None)


def _ended(status: int) -> ChainruleError:
    """Why the process ended."""
    if status == IS_MISSING:
        return MissingExtraError(
            "drawing without a browser needs an optional dependency: pip install 'chainrule[render]'", limit="render"
        )
    return MemoryLimitError(
        f"the process that draws the graph ended with status {status}; most likely, the host ran out of memory"
    )


_engine = Engine()
rest_engine = _engine.rest
atexit.register(_engine.close)


_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")


def as_wishes(values: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `to_svg` from the texts of options. In `toggled`, commas separate ids; %2C is a comma in an id.

    `expansionOf` in `static/core/graph/expansion.js` reads them likewise.
    """
    toggled = tuple(_unescaped(each) for each in values.get("toggled", "").split(",") if each)
    return {**values, "toggled": toggled}


def _unescaped(text: str) -> str:
    try:
        return text if _MALFORMED.search(text) else unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
