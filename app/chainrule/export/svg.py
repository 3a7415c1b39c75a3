"""The picture of a trace without a browser: the page's own layout and drawing, run in an embedded JavaScript engine.

The engine is an optional dependency, the extra `render`. Each process keeps one; its code can access nothing outside.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from chainrule import stopping
from chainrule.dump.wire import dump_trace
from chainrule.errors import MemoryLimitError, MissingExtraError, RenderError
from chainrule.export.options import invalid_parameter, option
from chainrule.memory import memory_errors
from chainrule.page import assets
from chainrule.page.modules import bundle
from chainrule.trace.graph import Trace

if TYPE_CHECKING:
    from py_mini_racer import MiniRacer

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

NO_KEYS = "--no-memory-protection-keys"
"""V8 locks its memory with the processor's keys, and a thread that is older than V8 has none: it would crash."""

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
        MemoryLimitError: it took too much memory.
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
    """The embedded engine with the page's modules in it, made when it is first needed.

    It runs its event loop in a separate thread, since a notebook's thread has a running loop already. Callers wait in
    short steps, so that their work can be stopped.

    Its heap is limited: an error is raised at the limit. If the whole process runs out of memory (RLIMIT_AS, a
    container), V8 may end the process, which cannot be caught.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._context: MiniRacer | None = None
        self._stamp: object = None
        self._has_run = False
        self._was_cancelled = False

    def call(self, function: str, *arguments: Any) -> Any:
        """Call an export of `core/takeaway/headless.js` with JSON arguments. Raises the errors of `to_svg`."""
        racer = import_engine()
        while not self._turn.acquire(timeout=STEP):
            stopping.check()
        try:
            with memory_errors():
                return self._call(racer, function, arguments)
        finally:
            self._turn.release()

    def _call(self, racer: Any, function: str, arguments: tuple[Any, ...]) -> Any:
        try:
            context = self._ready(racer)
            self._has_run = True
            if self._was_cancelled:
                # V8 may apply the cancellation to the next call: let that be an empty one.
                with contextlib.suppress(racer.JSEvalException):
                    self._wait(context.eval_cancelable("0"))
            called = f"chainrule.{function}(...{json.dumps(arguments, separators=(',', ':'))})"
            return json.loads(self._wait(context.eval_cancelable(f"JSON.stringify({called})")))
        except racer.JSOOMException:
            self.close()
            raise MemoryLimitError(f"drawing the graph took more than {MAX_MEMORY >> 20} MiB of memory") from None
        except racer.JSEvalException as error:
            raise RenderError(f"the graph cannot be drawn: {str(error).strip().splitlines()[0]}") from error

    def _ready(self, racer: Any) -> MiniRacer:
        """The engine with the current modules."""
        stamp = assets.digest(assets.static())
        if self._context is None or stamp != self._stamp:
            self.close()
            script = bundle(assets.static() / ENTRY)
            self._start()
            self._context = context = self._wait(_in_loop(racer.MiniRacer))
            context.set_hard_memory_limit(MAX_MEMORY)
            self._wait(context.eval_cancelable(f"var chainrule = {script}; 0"))
            self._stamp = stamp
        return self._context

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="render", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread = loop, thread

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine in the event loop; it is cancelled when this thread's work is stopped."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        ends = time.monotonic() + SECONDS
        try:
            while not wait([future], timeout=STEP).done:
                stopping.check()
                if time.monotonic() >= ends:
                    raise RenderError(f"drawing the graph took more than {SECONDS:g} seconds")
            return future.result()
        finally:
            self._was_cancelled = future.cancel()

    def rest(self) -> None:
        """Free the unused memory of its heap, unless it draws: 75 of 77 MiB after sixty pictures.

        It takes 20 ms, and the next picture 30 ms more.
        """
        if self._turn.acquire(blocking=False):
            try:
                # A cancelled drawing may still be running: this call would wait for it.
                if self._context is not None and self._has_run and not self._was_cancelled:
                    self._has_run = False
                    self._context.low_memory_notification()
            finally:
                self._turn.release()

    def close(self) -> None:
        """Close the engine and its thread; the next call makes new ones."""
        loop, thread, context = self._loop, self._thread, self._context
        self._loop = self._thread = self._context = self._stamp = None
        self._has_run = self._was_cancelled = False
        if loop is None or thread is None:
            return
        if context is not None:
            asyncio.run_coroutine_threadsafe(_in_loop(context.close), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _in_loop(work: Callable[[], Any]) -> Any:
    return work()


_engine = Engine()
rest_engine = _engine.rest
# At exit, the garbage collector sometimes waits for ever for the engine's thread.
atexit.register(_engine.close)


def import_engine() -> Any:
    """The module `py_mini_racer`, its library loaded.

    Raises:
        MissingExtraError: the extra `render` is not installed.
    """
    try:
        import py_mini_racer
    except ImportError:
        raise MissingExtraError(
            "drawing without a browser needs an optional dependency: pip install 'chainrule[render]'", limit="render"
        ) from None
    with contextlib.suppress(py_mini_racer.LibAlreadyInitializedError):
        py_mini_racer.init_mini_racer(flags=(*py_mini_racer.DEFAULT_V8_FLAGS, NO_KEYS))
    return py_mini_racer


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
