"""`chainrule.explore(model, *inputs)`: the explorer on a model of this process, in a browser or in a notebook.

    explore ─▶ Subject ─▶ UserModel ─▶ server, in a thread, on loopback, with a token ─▶ View
                                                                                         ├─ url: the live page
                                                                                         ├─ trace, save()
                                                                                         └─ in a notebook: a frame

A notebook's frame holds the whole page with its trace: no server's headers can block it, it stays in the saved
notebook, and it works where the kernel runs on another machine than the browser.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import html
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from chainrule.diagnose.evidence import optimizers_of
from chainrule.export.html import to_html
from chainrule.notebook import in_notebook, is_interactive
from chainrule.recording import save
from chainrule.settings import read_settings
from chainrule.trace import Trace
from chainrule.user_model.copies import copied_subject
from chainrule.user_model.model import UserModel
from chainrule.user_model.subject import Subject, check_subject
from chainrule.web.serve import browse

HOST = "127.0.0.1"
"""Only this machine can reach a view."""

FRAME_HEIGHT = 640
"""Height of a notebook's frame in CSS pixels, enough for graph and profile."""

CLOSE_SECONDS = 10.0
"""How long closing waits for the server."""

FRAME = """\
<iframe title="{title}" srcdoc="{page}" width="100%" height="{height}" style="border: 0" \
sandbox="allow-scripts allow-downloads" allow="clipboard-write"></iframe>
<p>{note}</p>
"""
"""The frame is sandboxed: the page cannot reach the notebook."""


def explore(
    model: nn.Module,
    *inputs: Any,
    loss: Callable[[Any], Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    seed: int = 42,
    port: int = 0,
    browser: bool = True,
) -> View:
    """Show one forward and backward pass of a model, and the effect of scaling or redrawing its parameters.

    Everything runs on a copy: the model, its gradients and buffers, and torch's generators stay unchanged. A notebook
    shows the view as the cell's output. Elsewhere a browser opens; a script then waits until Ctrl-C closes the view, an
    interactive prompt does not. A new view replaces the last one.

    Args:
        model: the model.
        inputs: its positional arguments.
        loss: makes a scalar from the model's output; by default the output's `loss`, or the output itself.
        kwargs: its keyword arguments.
        optimizer: the optimizer that trains it, or a list of them; it is looked at and never run.
        seed: for torch's generators during the pass.
        port: the server's; 0 takes any free one.
        browser: whether to open one; without it a script does not wait.

    Raises:
        ExploreError: no scalar loss, no parameter that requires grad, or inputs on another device.
        MemoryLimitError: memory ran out.
        OSError: the port is in use.
        TypeError: `optimizer` is something else.
    """
    # A compiled model hides its ops; the model that it was compiled from shows them.
    model = getattr(model, "_orig_mod", model)
    subject = Subject(
        model, inputs, dict(kwargs or {}), loss, name=type(model).__name__, optimizers=optimizers_of(optimizer)
    )
    check_subject(subject)
    # A copy: the model may go on training meanwhile.
    subject = copied_subject(subject)
    view = View(UserModel(subject.name, lambda: subject, seed=seed), port)
    _replace(view)
    if browser and not in_notebook():
        browse(view.url)
        if not is_interactive():
            print(f"Chainrule is at {view.url} until Ctrl-C closes it", flush=True)
            view.wait()
    return view


class View:
    """A page on a model and its server, until it is closed or the process ends.

    Attributes:
        url: the live page's address, with its token.
        trace: the trace of the model without changes.
    """

    def __init__(self, own: UserModel, port: int = 0) -> None:
        """Serve the model on a port; 0 takes any free one.

        Raises:
            ChainruleError: the model cannot be traced.
            OSError: the port is in use.
        """
        # The web framework is slow to import.
        from chainrule.web.main import Server, ServerConfig, create_app

        token = secrets.token_urlsafe(24)
        settings = read_settings(host=HOST, port=port, token=token, shutdown_seconds=1)
        app = create_app(settings, own=own)
        self._listener = socket.create_server((HOST, port))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}/?token={token}"
        self._name = own.name
        self._loop = Future[asyncio.AbstractEventLoop]()
        self._server = Server(ServerConfig(app, settings), lambda: self._loop.set_result(asyncio.get_running_loop()))
        # It does not keep the process: a view ends with the program that shows it.
        self._thread = threading.Thread(target=self._run, name="chainrule", daemon=True)
        atexit.register(self.close)
        try:
            self._thread.start()
            # In the device's thread, which uses the same pass for the page's first picture.
            trace = asyncio.run_coroutine_threadsafe(app.state.model.trace(own.read({})), self._loop.result())
            self.trace: Trace = trace.result()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        try:
            with self._listener:
                self._server.run(sockets=[self._listener])
        finally:
            if not self._loop.done():
                # `__init__` must not wait for ever.
                self._loop.set_exception(RuntimeError("the server did not start"))

    def wait(self) -> None:
        """Wait until Ctrl-C, or another thread, closes the view."""
        with contextlib.suppress(KeyboardInterrupt):
            # On Windows nothing interrupts an endless join.
            while self._thread.is_alive():
                self._thread.join(0.5)
        self.close()

    def close(self) -> None:
        """Stop the server; the trace stays."""
        self._server.should_exit = True
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)
        atexit.unregister(self.close)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace to a file in its suffix's format. Raises the errors of `chainrule.save` with `strict`."""
        save(self.trace, path, strict=True)
        return Path(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<View of {self._name} at {self.url}>"

    def _repr_html_(self) -> str:
        """A notebook cell's output: the page with the trace in it, and a link to the live page."""
        # ASCII is the same in every encoding that the outer page may have.
        page = html.escape(to_html(self.trace, name=f"{self._name}.json")).encode("ascii", "xmlcharrefreplace").decode()
        if self._thread.is_alive() and not self._server.should_exit:
            address = html.escape(self.url)
            note = (
                f'<a href="{address}" target="_blank" rel="noreferrer">Live view</a>, where its parameters can be '
                "scaled and redrawn: on this machine, as long as the kernel runs."
            )
        else:
            note = "The live view is closed."
        title = html.escape(f"Chainrule: {self._name}")
        return FRAME.format(title=title, page=page, height=FRAME_HEIGHT, note=note)


_lock = threading.Lock()
_current: View | None = None


def _replace(view: View) -> None:
    """Make this the process' only view."""
    global _current
    with _lock:
        before, _current = _current, view
    if before is not None:
        before.close()
