"""The command line, installed as `chainrule`.

    chainrule serve                      the explorer in the browser
    chainrule open dump.json             the explorer with a graph dump in it
    chainrule trace 'widths=100x51'      one graph dump, the same bytes as over HTTP but for `timing`
    chainrule presets                    the chapter's experiments
    chainrule gradcheck f.py:MyFunction --inputs f.py:make_inputs      are the gradients of a function right?
    chainrule build-extension            compile the chapter's C++ extension
    chainrule version

Torch and the web framework are imported by the commands that need them, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from chainrule import __version__

if TYPE_CHECKING:
    from chainrule.page.opened import OpenDump
    from chainrule.settings import Settings

FAILED = 1
"""Exit status when something outside the command line is in the way."""

USAGE = 2
"""Exit status when what was asked for makes no sense."""

commands = typer.Typer(
    name="chainrule",
    help="Run one forward and one backward pass of a neural net, record all of it, and look at it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class FormatName(StrEnum):
    """What `chainrule trace` can write."""

    JSON = "json"
    DOT = "dot"
    SVG = "svg"
    HTML = "html"
    MODEL_EXPLORER = "model-explorer"
    NODE_DATA = "node-data"
    PYTORCH = "pytorch"


Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.", show_default="8000")]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="Listen beyond loopback without a token.", show_default=False)
]


@commands.command()
def serve(host: Host = None, port: Port = None, insecure: Insecure = None) -> None:
    """Serve the explorer. Every other setting is an environment variable CHAINRULE_*."""
    _serve(_server_settings(host, port, insecure))


@commands.command("open")
def open_dump(
    dump: Annotated[Path, typer.Argument(help="A graph dump, as `chainrule trace` and `trace.json` write it.")],
    host: Host = None,
    port: Port = None,
    insecure: Insecure = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Serve the explorer with a graph dump in it."""
    settings = _server_settings(host, port, insecure)
    from chainrule.errors import DumpError
    from chainrule.page.opened import OpenDump

    try:
        opened = OpenDump.read(dump)
    except OSError as error:
        _fail(f"{dump}: {error.strerror}", USAGE)
    except DumpError as error:
        _fail(f"{dump}: {error.message}", USAGE)
    _serve(settings, opened, browse=browser)


def _server_settings(host: str | None, port: int | None, insecure: bool | None) -> Settings:
    """Settings of a server, with a token of its own where it listens beyond loopback and none is set."""
    settings = _settings(host=host, port=port, insecure=insecure)
    if not settings.is_loopback and settings.token is None and not settings.insecure:
        settings = _settings(host=host, port=port, insecure=insecure, token=secrets.token_urlsafe(24))
    return settings


def _serve(
    settings: Settings,
    dump: OpenDump | None = None,
    *,
    check: dict[str, Any] | None = None,
    browse: bool = False,
) -> None:
    """Serve until told to stop; `browse` opens the page once it is there: the explorer, or that of a gradient check."""
    # The port is taken before anything slow is imported: a port in use is said at once, and who connects early waits.
    listener = _listen(settings.host, settings.port)

    import torch
    import uvicorn
    from uvicorn.config import WS_PROTOCOLS

    from chainrule.main import create_app
    from chainrule.stats import kernel_name

    torch.set_num_threads(settings.threads)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            level = logging.INFO if kernel_name() == "native" else logging.WARNING
            logging.getLogger("uvicorn.error").log(level, "Statistics are taken by the %s kernel", kernel_name())
            # Last of all, so that in a log of many lines it is the one at the end.
            address = link(settings, listener, "" if check is None else "gradcheck")
            typer.echo(f"Chainrule {__version__} is at {address}")
            if browse:
                # A browser that runs in the terminal would keep it; the server does not wait for it.
                threading.Thread(target=_browse, args=(address,), daemon=True).start()

    config = uvicorn.Config(
        create_app(settings, dump, check),
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        # The older implementation is deprecated; frames are numbers, which hardly shrink for the time it takes.
        ws="websockets-sansio" if "websockets-sansio" in WS_PROTOCOLS else "websockets",
        ws_per_message_deflate=False,
        ws_max_size=settings.max_body_bytes,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    # What is imported stays: taken out of the collector's sight it no longer stops a frame now and then to be walked
    # (50 layers: the slowest of 25 frames went from 166 ms to 76, the median stayed at 75).
    gc.collect()
    gc.freeze()
    try:
        Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


def _browse(address: str) -> None:
    """Open an address in a browser, if there is one."""
    import webbrowser

    # Whatever is wrong with the browser: the link stands on the screen.
    with contextlib.suppress(Exception):
        webbrowser.open(address)


@commands.command()
def trace(
    query: Annotated[str, typer.Argument(help="A spec as in the page's address: 'widths=100x51&seed=7'.")] = "",
    form: Annotated[FormatName, typer.Option("--format", help="What to write.")] = FormatName.JSON,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="KEY=VALUE", help="An option of the format, such as level=all of svg."),
    ] = None,
    node_data: Annotated[
        bool,
        typer.Option(
            "--node-data",
            help="With model-explorer: make the folder OUTPUT, with the graph and one file of node data per statistic.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Trace one spec and write it, to standard output unless told otherwise."""
    settings = _settings()
    if node_data and (form is not FormatName.MODEL_EXPLORER or output is None):
        _fail("--node-data goes with --format model-explorer and with -o, which names a folder", USAGE)
    pairs = [pair.partition("=") for pair in given or ()]
    for key, equals, _ in pairs:
        if not equals:
            _fail(f"--with {key}: what is wanted is KEY=VALUE", USAGE)
    from chainrule.errors import ChainruleError
    from chainrule.limits import check_limits
    from chainrule.spec import ModelSpec

    try:
        # Before torch is imported: a mistake is told at once.
        spec = ModelSpec.from_query(query.removeprefix("?"))
        check_limits(spec, settings)
    except ChainruleError as error:
        _fail(error.message, USAGE)

    import torch

    from chainrule.formats import FORMATS, write_model_explorer

    torch.set_num_threads(settings.threads)
    written = b""
    try:
        values = FORMATS[form.value].read({key: value for key, _, value in pairs})
        if not node_data:
            written = FORMATS[form.value].render(spec, values)
    except ChainruleError as error:
        _fail(error.message, USAGE if error.status < 500 else FAILED)
    try:
        if node_data:
            assert output is not None, "checked above"
            write_model_explorer(spec, output)
        elif output is None:
            sys.stdout.buffer.write(written)
            sys.stdout.buffer.flush()
        else:
            output.write_bytes(written)
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except OSError as error:
        _fail(f"{output or 'standard output'}: {error.strerror}", FAILED)


@commands.command()
def presets() -> None:
    """List the chapter's experiments."""
    from chainrule.presets import PRESETS
    from chainrule.spec import ModelSpec

    for preset in PRESETS:
        typer.echo(f"{preset.name:15} {preset.title}")
        typer.echo(f"{'':15} {preset.focus} {preset.statistic}: {preset.theory}; the chapter printed {preset.printed}")
        typer.echo(f"{'':15} {ModelSpec.parse(preset.spec).query() or 'the default spec'}")


@commands.command()
def gradcheck(
    function: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A torch.autograd.Function, or a callable.")],
    inputs: Annotated[
        str,
        typer.Option(metavar="FILE.py:NAME", help="A function without arguments that returns a tuple of the inputs."),
    ],
    eps: Annotated[float, typer.Option(help="Half the width of the difference.")] = 1e-6,
    atol: Annotated[float, typer.Option(help="Absolute tolerance.")] = 1e-5,
    rtol: Annotated[float, typer.Option(help="Tolerance relative to the numeric value.")] = 1e-3,
    seed: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, help="Of torch's generator, before the inputs are made.")
    ] = 42,
    show: Annotated[
        bool, typer.Option("--open", help="Show the Jacobians in the browser, served on loopback.", show_default=False)
    ] = False,
    port: Annotated[int, typer.Option(help="Port for --open; 0 takes any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="With --open, start a browser.")] = True,
) -> None:
    """Hold a function's gradients against differences of it. The files named are run, as `python FILE.py` would.

    Exit status 0: the gradients are right; 1: they are not; 2: it cannot be checked. With --open it is the same, once
    Ctrl-C has stopped the server.

    Checked are, at one point and in float64: the Jacobians; that forward and backward are repeatable; and that
    grad_output = 0 or none at all gives gradients of 0. Where the inputs have another dtype backward is to say the same
    in it. Not checked: second derivatives (torch.autograd.gradgradcheck), forward mode, vmap.
    """
    from chainrule.errors import CheckError
    from chainrule.gradcheck import check_function, report_text

    try:
        report = check_function(function, inputs, eps=eps, atol=atol, rtol=rtol, seed=seed)
    except CheckError as error:
        _fail(error.message, USAGE)
    typer.echo(report_text(report))
    if show:
        try:
            _serve(_settings(host="127.0.0.1", port=port), check=report, browse=browser)
        except typer.Exit as stopped:
            # Ctrl-C is how one closes the page: the verdict stands.
            if stopped.exit_code != 128 + signal.SIGINT:
                raise
    raise typer.Exit(0 if report["passed"] else FAILED)


@commands.command("build-extension")
def build_extension(
    force: Annotated[bool, typer.Option("--force", help="Compile even if it is there.", show_default=False)] = False,
    cuda: Annotated[
        bool | None,
        typer.Option("--cuda/--no-cuda", help="With the CUDA kernels, or without.", show_default="where they can run"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the compiler's commands.", show_default=False)
    ] = False,
) -> None:
    """Compile the chapter's C++ extension, the linear operator, into this user's cache."""
    from chainrule.chapter.build_extension import BuildError, build

    try:
        build(typer.echo, cuda=cuda, force=force, verbose=verbose)
    except BuildError as error:
        _fail(str(error), FAILED)


@commands.command()
def version() -> None:
    """Say which version this is."""
    typer.echo(__version__)


def link(settings: Settings, listener: socket.socket, path: str = "") -> str:
    """The complete address to open: where the server listens, and the page, with the token if there is one."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        # Every address leads here; the one that always works is this machine's own.
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/{path}"
    return address if settings.token is None else f"{address}?token={settings.token.get_secret_value()}"


def _settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by the options that were given."""
    from chainrule.settings import read_settings

    try:
        return read_settings(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        _fail(str(error), USAGE)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, or one clear line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            # A server that was just stopped does not keep its port; on Windows this would let two share one.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _fail(f"port {port} on {host} is in use; choose another with --port or CHAINRULE_PORT", FAILED)
        _fail(f"cannot listen on {host} port {port}: {error.strerror}", FAILED)
    return listener


def _fail(message: str, status: int) -> NoReturn:
    """One line on standard error, and out."""
    typer.echo(f"chainrule: {message}", err=True)
    raise typer.Exit(status)


def main() -> None:
    """The entry point."""
    commands()


if __name__ == "__main__":
    main()
