"""The process of a server: its socket, its limits, its start and its end. Torch and uvicorn are imported in `serve`."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from chainrule import __version__
from chainrule.errors import ChainruleError

if TYPE_CHECKING:
    from pathlib import Path

    from chainrule.dump.opened import DumpFile, OpenDump
    from chainrule.settings import Settings
    from chainrule.trace import Trace
    from chainrule.user_model.model import UserModel

T = TypeVar("T")

LAST_SECONDS = 3
"""After CHAINRULE_SHUTDOWN_SECONDS and these the process ends, even if something still computes."""

FIRST_PASS_SECONDS = 0.5
"""The same before the first pass of a model has ended: nobody has seen anything that could be finished."""

LOOKUP_SECONDS = 0.5
"""The longest wait for the system's answer to a host name: without a network it may take much longer."""


class AddressError(ChainruleError):
    """The server cannot listen on an address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        in_use = f"port {port} on {host} is in use; choose another with --port or CHAINRULE_PORT"
        other = f"cannot listen on {host} port {port}: {error.strerror}"
        super().__init__(in_use if error.errno == errno.EADDRINUSE else other)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address. It does not listen: a proxy whose connection is refused tries another replica.

    Raises:
        AddressError: the port is in use, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            if os.name == "posix":
                # So that the port of a server that has just stopped is free; on Windows two could share one.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            stack.pop_all()
    except OSError as error:
        raise AddressError(host, port, error) from None
    return listener


class Start:
    """A server from its bound socket until it is ready.

    On a loopback address it answers and opens the browser at once, see `starting`. On others it does not listen before:
    a proxy whose connection is refused tries another replica.

    Args:
        settings: of the server.
        address: the path and the fragment of its page.
        browser: whether to open the page in a browser.
        task: the work that the start waits for, as a sentence without its full stop.

    Raises:
        AddressError: the server cannot listen.
    """

    def __init__(
        self, settings: Settings, address: str = "", *, browser: bool = False, task: str = "Chainrule imports PyTorch"
    ) -> None:
        self._settings, self._browser, self._server = settings, browser, None
        self.listener = bind(settings.host, settings.port)
        self._link = _link(settings, self.listener, address)
        if settings.is_loopback:
            from chainrule.web.starting import StartingServer

            self.listen()
            self._server = StartingServer(self.listener, task)
            print(f"Chainrule {__version__} starts at {self._link}", flush=True)
            self._browse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_answers()
        self.listener.close()

    def listen(self) -> None:
        """Listen. Raises AddressError."""
        try:
            self.listener.listen(128)
        except OSError as error:  # another server was faster
            raise AddressError(self._settings.host, self.listener.getsockname()[1], error) from None

    def end_answers(self) -> None:
        """From now on connections wait for the server. A second call does nothing."""
        if self._server is not None:
            self._server.end()
            self._server = None

    def tell(self) -> None:
        """Say that the server is ready."""
        print(f"Chainrule {__version__} is at {self._link}", flush=True)
        if not self._settings.is_loopback:
            self._browse()

    def _browse(self) -> None:
        if self._browser:
            browse(self._link)


def serve(
    settings: Settings,
    start: Start | None = None,
    *,
    dump: OpenDump | Sequence[OpenDump | DumpFile] | None = None,
    check: dict[str, Any] | None = None,
    model: UserModel | None = None,
    watches: bool = False,
    runs: Path | None = None,
    browser: bool = False,
    view: str = "",
) -> None:
    """Serve until a signal.

    `start` is given if the server has one already; else `browser` opens the page in a browser, and `view` is the
    fragment of its address. The server of a `model` is ready when its first pass has ended. If it cannot be traced, the
    server ends, unless it `watches` the file: an edit may repair the model. For the others see `create_app`.

    Raises:
        AddressError: it cannot listen.
        ChainruleError: the model cannot be traced.
    """
    # Before anything slow is imported, so that a port in use is an error at once.
    path = "gradcheck" if check is not None else "runs" if runs is not None else ""
    start = start or Start(settings, path + (view and f"#{view}"), browser=browser)
    # The first process of a container has no default for SIGTERM, and uvicorn's handler comes with uvicorn.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    # For a user's model this is imported already, and its garbage is to be collected.
    with importing() if model is None else contextlib.nullcontext():
        import asyncio

        import torch

        from chainrule.settings import SPARE_DESCRIPTORS
        from chainrule.stats import kernel_name
        from chainrule.web.main import Server, ServerConfig, configure_logging, create_app

    if model is None or "threads" in settings.model_fields_set:
        torch.set_num_threads(settings.threads)
    configure_logging(settings)
    raise_descriptor_limit(settings.max_connections + SPARE_DESCRIPTORS)

    failure: ChainruleError | None = None
    is_first = model is not None  # whether the first pass has not ended

    def stop() -> None:
        server.should_exit = True

    def first_pass(outcome: Trace | ChainruleError | None) -> None:
        nonlocal failure, is_first
        is_first = False
        error = outcome if outcome is None or isinstance(outcome, ChainruleError) else outcome.error
        if isinstance(error, ChainruleError) and not watches:
            failure = error
            if server.started:
                stop()
            return
        if error is not None:
            print(f"chainrule: {error.message}", file=sys.stderr, flush=True)
        start.tell()

    def started() -> None:
        level = logging.INFO if kernel_name() == "native" else logging.WARNING
        logging.getLogger("chainrule").log(level, "the %s kernel computes the statistics", kernel_name())
        if model is None:
            # Last, so that it is the last line of a long log.
            start.tell()
        elif failure is not None:
            # In a later turn of the loop: uvicorn shuts down only a server that has started.
            asyncio.get_running_loop().call_soon(stop)

    def ending() -> None:
        seconds = FIRST_PASS_SECONDS if is_first else settings.shutdown_seconds + LAST_SECONDS
        threading.Thread(target=end_after, args=(seconds, 128 + server.ended_by, not is_first), daemon=True).start()

    config = ServerConfig(create_app(settings, dump, check, model, runs, first_pass), settings)
    # The collector no longer walks the imported objects (50 layers: the slowest of 25 frames went from 166 ms to 76).
    gc.collect()
    gc.freeze()
    # A pass makes thousands of objects, and nearly all go with their last reference. With thirty sockets, collecting
    # every few passes took a tenth of the time.
    gc.set_threshold(20_000, 20, 20)
    if settings.is_loopback:
        start.end_answers()
    else:
        start.listen()
    signal.signal(signal.SIGTERM, before)
    server = Server(config, started, ending)
    server.run(sockets=[start.listener])
    if failure is not None:
        raise failure


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Keep the garbage collector from walking the objects that are imported inside, now and later: they stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def in_thread(compute: Callable[[], T]) -> T:
    """Compute in a thread, as the server does: with its stack size, and on the default device.

    The thread's pool of torch threads ends with it. A pool of the main thread would stay, beside that of the server's
    thread; with more threads than cores they do not spin, and a pass of 12,500 small ops takes four times as long.
    """
    from concurrent.futures import Future

    import torch

    from chainrule.memory import STACK_BYTES

    device, found = torch.get_default_device(), Future[T]()

    def run() -> None:
        try:
            with contextlib.nullcontext() if device == torch.get_default_device() else device:
                found.set_result(compute())
        except BaseException as error:
            found.set_exception(error)

    usual = threading.stack_size(STACK_BYTES)
    threading.Thread(target=run, name="chainrule-check", daemon=True).start()  # daemon: Ctrl-C ends it
    threading.stack_size(usual)
    return found.result()


def browse(address: str) -> None:
    """Open an address in a browser, if there is one; in a thread, since a browser in the terminal would not return."""

    def visit() -> None:
        import webbrowser

        # The link is on the screen in any case.
        with contextlib.suppress(Exception):
            webbrowser.open(on_own_host(address))

    threading.Thread(target=visit, daemon=True).start()


def on_own_host(address: str) -> str:
    """An address of this machine under the name OWN_HOST, if the system resolves it.

    A browser sends the cookies of a host to all servers of the host, so under 127.0.0.1 other programs get them too.
    """
    from chainrule.settings import OWN_HOST, is_loopback

    parts, found = urlsplit(address), queue.SimpleQueue[set[str]]()

    def look_up() -> None:
        with contextlib.suppress(OSError):
            found.put({str(place[0]) for *_, place in socket.getaddrinfo(OWN_HOST, parts.port)})

    threading.Thread(target=look_up, daemon=True).start()
    try:
        known = found.get(timeout=LOOKUP_SECONDS)
    except queue.Empty:
        return address
    is_same = parts.hostname in known and all(map(is_loopback, known))
    return parts._replace(netloc=f"{OWN_HOST}:{parts.port}").geturl() if is_same else address


def raise_descriptor_limit(wanted: int) -> None:
    """Raise the limit of open files to `wanted`, as far as the system allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end_after(seconds: float, status: int, warns: bool) -> None:
    """End the process after a while: torch cannot be interrupted within an op, and Python waits for its threads."""
    time.sleep(seconds)
    if warns:
        logging.getLogger("chainrule").warning("a computation did not stop in time; it ends with the process")
    logging.shutdown()
    os._exit(status)


def _link(settings: Settings, listener: socket.socket, address: str) -> str:
    """The address to open, with the token if there is one; `address` is its path and fragment."""
    host, port = listener.getsockname()[:2]
    # A server on every address is on loopback too.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    path, mark, fragment = address.partition("#")
    link = f"http://{f'[{host}]' if ':' in host else host}:{port}/{path}"
    token = "" if settings.token is None else f"?token={settings.token.get_secret_value()}"
    return f"{link}{token}{mark}{fragment}"
