"""The picture of a trace without a browser: the page's own layout and drawing, run in an embedded JavaScript engine.

The engine is an optional dependency, the extra `render`. One is kept per process; what runs in it has no access to
anything but the text that it is given.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from chainrule.errors import MissingExtraError, RenderError, RequestError
from chainrule.export.modules import bundle, newest_change
from chainrule.export.options import Option
from chainrule.page import assets
from chainrule.trace.graph import Trace
from chainrule.wire import dump_trace

if TYPE_CHECKING:
    from py_mini_racer import MiniRacer

SECONDS = 30.0
"""Longer than this no picture is drawn for."""

MOST_MEMORY = 1 << 30
"""Bytes the engine may take."""

ENTRY = "core/takeaway/headless.js"

VIEW_OPTIONS = (
    Option(
        "level",
        "layer",
        "Which groups are open: all but the innermost (layer), every one (all), or those less deep than a number.",
        pattern="layer|all|[0-9]{1,4}",
        allowed="layer, all or a number",
    ),
    Option(
        "toggled",
        "",
        "Ids of groups that are otherwise than the level says, separated by commas.",
        pattern=r"[^\x00-\x1f]{0,2000}",
        allowed="ids such as layers.0/forward, separated by commas",
    ),
    Option("fold", "auto", "Whether repeated blocks are folded into one.", choices=("auto", "on", "off")),
    Option(
        "statistic",
        "std",
        "The figure in a tensor's box; none draws the structure, without figures and histograms.",
        choices=("std", "mean", "none"),
    ),
    Option("scheme", "light", "The colours.", choices=("light", "dark")),
)

MOST_NAMED = 8
"""So many unknown groups are named."""


def to_svg(
    trace: Trace,
    *,
    level: str = "layer",
    toggled: Sequence[str] = (),
    fold: str = "auto",
    statistic: str = "std",
    scheme: str = "light",
) -> str:
    """The graph of a trace as an SVG document.

    Args:
        trace: what to draw.
        level: which groups are open: `layer` (all but the innermost), `all`, or a number: those less deep than that.
        toggled: ids of groups, such as `layers.0/forward`, that are otherwise than the level says.
        fold: whether repeated blocks are folded into one: auto, on, off.
        statistic: the figure in a tensor's box: std, mean, or none for the structure without figures and histograms.
        scheme: light or dark.

    Raises:
        RequestError: a value is not one of its key's, or no group has an id in `toggled`; names the key, the value and
            what is allowed.
        MissingExtraError: the extra `render` is not installed.
        RenderError: the page's code failed or took too long.
    """
    given = {"level": level, "fold": fold, "statistic": statistic, "scheme": scheme}
    options = {option.name: option for option in VIEW_OPTIONS}
    wishes = {name: options[name].read(value) for name, value in given.items()}
    dump = dump_trace(trace).decode()
    unknown = _engine.call("unknownGroups", dump, list(toggled)) if toggled else ()
    if unknown:
        more = ", …" if len(unknown) > MOST_NAMED else ""
        raise RequestError(
            f"toggled: no group is called {', '.join(repr(str(name)[:40]) for name in [*unknown][:MOST_NAMED])}{more}; "
            f"what is allowed is {options['toggled'].allowed}",
            status=422,
            code="invalid_parameter",
            field="toggled",
        )
    return str(_engine.call("renderSvg", dump, {**wishes, "toggled": list(toggled)}))


class Engine:
    """The embedded engine with the page's modules in it, made when it is first needed.

    It lives in a thread of its own: in one with a running event loop, a notebook's say, it would wait for that loop.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "render")
        self._context: MiniRacer | None = None
        self._stamp: object = None

    def call(self, function: str, *arguments: Any) -> Any:
        """What a function that `core/takeaway/headless.js` exports makes of arguments that JSON can hold.

        Raises:
            MissingExtraError, RenderError: see `to_svg`.
        """
        return self._thread.submit(self._call, _import_engine(), function, arguments).result()

    def _call(self, racer: Any, function: str, arguments: tuple[Any, ...]) -> Any:
        try:
            context = self._ready(racer)
            return context.call(f"chainrule.{function}", *arguments, timeout_sec=SECONDS, max_memory=MOST_MEMORY)
        except racer.JSTimeoutException:
            raise RenderError(f"drawing the graph took more than {SECONDS:g} seconds") from None
        except racer.JSOOMException:
            self.close()
            raise RenderError(f"drawing the graph took more than {MOST_MEMORY >> 20} MiB of memory") from None
        except racer.JSEvalException as error:
            raise RenderError(f"the graph cannot be drawn: {str(error).strip().splitlines()[0]}") from error

    def _ready(self, racer: Any) -> MiniRacer:
        """The engine with the modules as they are now."""
        stamp = newest_change(assets.static())
        if self._context is None or stamp != self._stamp:
            self.close()
            script = bundle(assets.static() / ENTRY)
            context: MiniRacer = racer.MiniRacer()
            context.eval(f"var chainrule = {script}; 0", timeout_sec=SECONDS)
            self._context, self._stamp = context, stamp
        return self._context

    def close(self) -> None:
        """Let go of the engine; the next call makes another."""
        if self._context is not None:
            self._context.close()
        self._context = None


_engine = Engine()
# Left to the garbage collector of an interpreter that is going down, an engine at times waits for ever for its thread.
atexit.register(_engine.close)


def _import_engine() -> Any:
    try:
        import py_mini_racer
    except ImportError:
        raise MissingExtraError(
            "drawing without a browser needs an optional dependency: pip install 'chainrule[render]'", limit="render"
        ) from None
    return py_mini_racer


_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")


def as_wishes(values: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `to_svg` from the texts of options, as `expansionOf` of `static/core/graph/expansion.js` reads them.

    Ids stand between commas; a comma in one is written %2C and a percent sign %25.
    """
    toggled = tuple(_unescaped(each) for each in values.get("toggled", "").split(",") if each)
    return {**values, "toggled": toggled}


def _unescaped(text: str) -> str:
    try:
        return text if _MALFORMED.search(text) else unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
