"""`chainrule.explore(model, *inputs)`: the explorer on a model in this process, in the browser or in a notebook.

    explore ─▶ Subject ─▶ OwnModel ─▶ server, in a thread, on loopback, with a token ─▶ View
                                                                                         ├─ url: the live page
                                                                                         ├─ trace, save()
                                                                                         └─ in a notebook: a frame

The frame of a notebook holds the whole page, with the trace in it: no header of any server can block it, it stays in
the saved notebook, and it shows where the notebook's own machine is not the browser's.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import html
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torch import nn

from chainrule.export.html import to_html
from chainrule.recording import save
from chainrule.settings import read_settings
from chainrule.trace import Trace
from chainrule.user_model.model import OwnModel
from chainrule.user_model.subject import Subject, check_subject

if TYPE_CHECKING:
    from chainrule.web.main import Server

HOST = "127.0.0.1"
"""A view is for this machine alone."""

FRAME_HEIGHT = 640
"""Of a notebook's frame, in CSS pixels: the graph and the profile beneath it."""

CLOSE_SECONDS = 10.0
"""How long the server may take to end; it then ends with the process."""

FRAME = """\
<iframe title="{title}" srcdoc="{page}" width="100%" height="{height}" style="border: 0" \
sandbox="allow-scripts allow-downloads" allow="clipboard-write"></iframe>
<p>{note}</p>
"""
"""The page has an origin of its own: its code reaches nothing of the notebook's."""


def explore(
    model: nn.Module,
    *inputs: Any,
    loss: Callable[[Any], Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 42,
    port: int = 0,
    browser: bool = True,
) -> View:
    """Show one forward and backward pass of a model, and what becomes of it when its parameters are scaled or redrawn.

    Everything runs on a copy: the model, its gradients and buffers, and the state of torch's generators stay as they
    are. In a notebook the result shows itself as the cell's output. Elsewhere a browser is opened: at a prompt one can
    go on meanwhile, and a script waits until Ctrl-C closes the view. There is one view at a time: it replaces the last.

    Args:
        model: what is run.
        inputs: its positional arguments.
        loss: makes a scalar of what the model returns; unless given, that has a `loss`, or is the scalar.
        kwargs: its arguments by keyword.
        seed: of torch's generators while the pass runs.
        port: to listen on; 0 takes any free one.
        browser: without one nothing is opened and nothing waits.

    Raises:
        ExploreError: no pass can be made: no scalar loss, nothing that requires grad, or inputs on another device.
        MemoryLimitError: memory ran out.
        OSError: the port is in use.
    """
    # What is compiled shows nothing of what it computes; what it was compiled from does, and is the same.
    model = getattr(model, "_orig_mod", model)
    subject = check_subject(Subject(model, inputs, dict(kwargs or {}), loss, name=type(model).__name__))
    # Of now: the model may go on training while one looks at it.
    subject = subject.copied()
    view = View(OwnModel(subject.name, lambda: subject, seed=seed), port)
    _replace(view)
    if browser and not in_notebook():
        threading.Thread(target=_browse, args=(view.url,), daemon=True).start()
        if not is_interactive():
            print(f"Chainrule is at {view.url} until Ctrl-C closes it", flush=True)
            view.wait()
    return view


class View:
    """A page on a model, and the server behind it, until it is closed or the process ends.

    Attributes:
        url: the live page's address, with the token that opens it.
        trace: of the model as it was given.
    """

    def __init__(self, own: OwnModel, port: int = 0) -> None:
        """Serve it.

        Args:
            own: what is shown.
            port: to listen on; 0 takes any free one.

        Raises:
            ChainruleError: the model cannot be traced.
            OSError: the port is in use.
        """
        # With the web framework, which takes its time to import.
        from chainrule.web.main import ServerConfig, create_app

        token = secrets.token_urlsafe(24)
        settings = read_settings(host=HOST, port=port, token=token, shutdown_seconds=1)
        app = create_app(settings, own=own)
        listener = socket.create_server((HOST, port))
        self.url = f"http://{HOST}:{listener.getsockname()[1]}/?token={token}"
        self._name = own.name
        self._served = _Served(ServerConfig(app, settings), listener)
        atexit.register(self.close)
        try:
            self._served.start()
            # In the server's own thread for computing, which makes the page's first picture of the same pass.
            self.trace: Trace = self._served.wait_for(app.state.model.trace(own.read({})))
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until Ctrl-C, or another thread, closes the view."""
        with contextlib.suppress(KeyboardInterrupt):
            self._served.join()
        self.close()

    def close(self) -> None:
        """Stop the server. What has been traced stays."""
        self._served.stop()
        atexit.unregister(self.close)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace to a file, in the format that its suffix says; see `chainrule.save`."""
        return save(self.trace, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<View of {self._name} at {self.url}>"

    def _repr_html_(self) -> str:
        """The output of a notebook's cell: the page with the trace in it, and the way to the live one."""
        # In ASCII: whatever encoding the page around it is read in.
        page = html.escape(to_html(self.trace, name=f"{self._name}.json")).encode("ascii", "xmlcharrefreplace").decode()
        if self._served.is_alive():
            address = html.escape(self.url)
            note = (
                f'<a href="{address}" target="_blank" rel="noreferrer">Live view</a>, where its parameters can be '
                "scaled and redrawn: on this machine, as long as the kernel runs."
            )
        else:
            note = "The live view is closed."
        title = html.escape(f"Chainrule: {self._name}")
        return FRAME.format(title=title, page=page, height=FRAME_HEIGHT, note=note)


class _Served:
    """A server in a thread of its own."""

    def __init__(self, config: Any, listener: socket.socket) -> None:
        self._listener = listener
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = self._make(config)
        # It does not keep the process: a view ends with the program that shows it.
        self._thread = threading.Thread(target=self._run, name="chainrule", daemon=True)

    def _make(self, config: Any) -> Server:
        from chainrule.web.main import Server

        served = self

        class ViewServer(Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                served._loop = asyncio.get_running_loop()
                served._ready.set()

        return ViewServer(config)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._listener.close()
            # Whoever waits for it to begin is not to wait for ever.
            self._ready.set()

    def start(self) -> None:
        """Begin to serve; back when it does."""
        self._thread.start()
        self._ready.wait()

    def wait_for(self, coroutine: Any) -> Any:
        """What a coroutine of the server gives."""
        assert self._loop is not None, "it has started"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive() and not self._server.should_exit

    def join(self) -> None:
        """Wait for its end."""
        # Not for ever at once: on Windows nothing interrupts that.
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        """End it, and wait a while until it has ended."""
        self._server.should_exit = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)
        elif self._thread.ident is None:
            self._listener.close()


_lock = threading.Lock()
_current: View | None = None


def _replace(view: View) -> None:
    """The view is the process' one and only from now on."""
    global _current
    with _lock:
        before, _current = _current, view
    if before is not None:
        before.close()


def in_notebook() -> bool:
    """Whether what is returned is shown as the output of a notebook's cell."""
    shell = _ipython()
    return shell is not None and hasattr(shell, "kernel")


def is_interactive() -> bool:
    """Whether a person types what is run, at Python's prompt or at IPython's."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or _ipython() is not None


def _ipython() -> Any:
    """The shell of IPython that runs this, if one does. It is not imported: who has not, does not run in it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _browse(address: str) -> None:
    # Whatever is wrong with the browser: the link stands on the screen.
    with contextlib.suppress(Exception):
        webbrowser.open(address)
