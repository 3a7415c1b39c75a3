"""The command line, installed as `chainrule`.

    chainrule serve                      the explorer in the browser
    chainrule explore net.py:make        the explorer on a model of one's own, made by a function in a file
    chainrule open dump.json             the explorer with a graph dump in it, or with many: the steps of a training
    chainrule compare a.json b.json      the explorer with two of them, and where they differ
    chainrule trace 'widths=100x51'      one graph dump, the same bytes as over HTTP but for `timing`
    chainrule export dump.json -o net.svg   a graph dump as a picture, a page, a table or another tool's graph
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
import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from chainrule import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chainrule.dump.opened import DumpFile, OpenDump
    from chainrule.settings import Settings
    from chainrule.user_model.model import OwnModel

T = TypeVar("T")

FAILED = 1
"""Exit status when something outside the command line is in the way."""

USAGE = 2
"""Exit status when what was asked for makes no sense."""

LAST_SECONDS = 3
"""How long after CHAINRULE_SHUTDOWN_SECONDS the process has ended, even if something still computes."""

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


class ExportName(StrEnum):
    """What `chainrule export` can write."""

    JSON = "json"
    DOT = "dot"
    SVG = "svg"
    HTML = "html"
    CSV = "csv"
    MODEL_EXPLORER = "model-explorer"


Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.", show_default="8000")]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="Listen beyond loopback without a token.", show_default=False)
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")]

COMPARED = "a=dump:0&colour=difference&dump=1"
"""The page's view of two dumps: the second, with the first pinned and the boxes coloured by how far they are apart."""


@commands.command()
def serve(host: Host = None, port: Port = None, insecure: Insecure = None) -> None:
    """Serve the explorer. Every other setting is an environment variable CHAINRULE_*."""
    _serve(_server_settings(host, port, insecure))


@commands.command()
def explore(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FACTORY",
            help="A function without arguments that returns (model, inputs) or (model, inputs, loss_fn).",
        ),
    ],
    watch: Annotated[
        bool, typer.Option("--watch", help="Run the file again when it changes.", show_default=False)
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of what the file, the factory and the pass draw.", min=0, max=2**63 - 1)
    ] = 42,
    device: Annotated[
        str | None,
        typer.Option(help="Run a copy of the model and its inputs there.", show_default="where they are"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.")] = 0,
    browser: Browser = True,
) -> None:
    """Serve the explorer on a model of your own: its graph, where its gradient goes, and what another scale would do.

    The file is run, as `python FILE.py` would, and one forward and backward pass on a copy of what the factory returns:
    by this command alone, and for this machine alone. The inputs are a tensor, a tuple of the arguments, or a dict of
    them by name; loss_fn(output) is a scalar. Without it the output is, or it has one as its `loss`.
    """
    settings = _settings(host="127.0.0.1", port=port)
    given: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    if settings.token is None:
        given["token"] = secrets.token_urlsafe(24)
    if "shutdown_seconds" not in settings.model_fields_set:
        given["shutdown_seconds"] = 1  # nobody else waits for an answer: Ctrl-C is to end it now
    settings = _settings(**given)
    from chainrule.errors import ChainruleError
    from chainrule.user_model.code import split_reference

    try:
        file, _ = split_reference(factory)
    except ChainruleError as error:
        _fail(error.message, USAGE)
    with contextlib.closing(_bind(settings.host, settings.port)) as listener:
        own = _own_model(factory, file, seed, device, settings)
        with _watching(own) if watch else contextlib.nullcontext():
            _serve(settings, own=own, browse=browser, listener=listener)


def _own_model(factory: str, file: Path, seed: int, device: str | None, settings: Settings) -> OwnModel:
    """What a factory in a file makes, traced once; what of that has failed is one line, and what can be shown is."""
    # Before the file's folder comes first on the import path: a file in it may be called as a library is.
    with _importing():
        for each in ("chainrule.web.main", "chainrule.user_model.watch"):
            importlib.import_module(each)
    import torch

    from chainrule.errors import ChainruleError
    from chainrule.user_model.code import as_program
    from chainrule.user_model.model import open_reference

    if "threads" in settings.model_fields_set:
        torch.set_num_threads(settings.threads)
    try:
        as_program(file)
        own = open_reference(factory, seed=seed, device=device)
        broken = _in_thread(own.check).error
    except ChainruleError as error:
        _fail(error.message, USAGE if error.status < 500 else FAILED)
    if broken is not None:
        # It is shown as far as it went.
        typer.echo(f"chainrule: {broken.message}", err=True)
    return own


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """What is imported inside is there to stay: the garbage collector walks it neither meanwhile nor ever after."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _in_thread(compute: Callable[[], T]) -> T:
    """What is computed in a thread that then ends, as the server's computes: with its stack, and on the default device.

    Torch's own threads end with it. Were they left to the main thread, there would be more of them than cores once the
    server's thread has its own, and they would no longer spin while they wait for one another: a pass of 12,500 small
    ops then takes four times as long.
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
    # Whoever does not want to wait for it ends the process.
    threading.Thread(target=run, name="chainrule-check", daemon=True).start()
    threading.stack_size(usual)
    return found.result()


def _watching(own: OwnModel) -> contextlib.AbstractContextManager[None]:
    from chainrule.user_model.watch import watching

    return watching(own)


@commands.command("open")
def open_dumps(
    dumps: Annotated[list[Path], typer.Argument(help="Graph dumps, as `chainrule trace` and `trace.json` write them.")],
    host: Host = None,
    port: Port = None,
    insecure: Insecure = None,
    browser: Browser = True,
) -> None:
    """Serve the explorer with a graph dump in it; of several, such as the steps of a training, with a scrubber.

    Files that differ in numbers alone stand in the order of those numbers.
    """
    settings = _server_settings(host, port, insecure)
    from chainrule.dump.opened import in_order

    _serve(settings, _opened(in_order(dumps)), browse=browser)


@commands.command()
def compare(
    a: Annotated[Path, typer.Argument(help="The graph dump to compare to.")],
    b: Annotated[list[Path], typer.Argument(help="The graph dump to look at, or several.")],
    host: Host = None,
    port: Port = None,
    insecure: Insecure = None,
    browser: Browser = True,
) -> None:
    """Serve the explorer with graph dumps in it, the first of them pinned: the others are told by what differs."""
    settings = _server_settings(host, port, insecure)
    dumps = _opened([a, *b])
    if len(dumps) <= len(b):
        _fail("there is nothing to compare without all of them", USAGE)
    _serve(settings, dumps, browse=browser, view=COMPARED)


def _opened(paths: list[Path]) -> list[OpenDump | DumpFile]:
    """Dumps from files. Of several each that cannot be opened is told by its name, and the others are opened."""
    from chainrule.dump.opened import DumpFile, OpenDump, names_of
    from chainrule.errors import DumpError

    opened: list[OpenDump | DumpFile] = []
    for path, name in zip(paths, names_of(paths), strict=True):
        try:
            opened.append(OpenDump.read(path) if len(paths) == 1 else DumpFile.glance(path, name))
        except OSError as error:
            typer.echo(f"chainrule: {path}: {error.strerror}", err=True)
        except DumpError as error:
            typer.echo(f"chainrule: {path}: {error.message}", err=True)
    if not opened:
        raise typer.Exit(USAGE)
    return opened


def _server_settings(host: str | None, port: int | None, insecure: bool | None) -> Settings:
    """Settings of a server, with a token of its own where it listens beyond loopback and none is set."""
    settings = _settings(host=host, port=port, insecure=insecure)
    if not settings.is_loopback and settings.token is None and not settings.insecure:
        settings = _settings(host=host, port=port, insecure=insecure, token=secrets.token_urlsafe(24))
    return settings


def _serve(
    settings: Settings,
    dump: OpenDump | Sequence[OpenDump | DumpFile] | None = None,
    *,
    check: dict[str, Any] | None = None,
    own: OwnModel | None = None,
    browse: bool = False,
    view: str = "",
    listener: socket.socket | None = None,
) -> None:
    """Serve until told to stop; `browse` opens the page once it is there: the explorer, or that of a gradient check.

    `view` is the fragment that the explorer opens with; `listener` has the address, if somebody has bound it already.
    """
    # The port is taken before anything slow is imported, so that a port in use is said at once. Who connects early is
    # refused: a proxy then asks another replica, and a page asks again.
    taken = listener or _bind(settings.host, settings.port)
    # The first process of a container has no default for SIGTERM, and uvicorn's handler comes with uvicorn.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    # With a model of one's own it is imported already, and what that has left behind is first to be collected.
    with _importing() if own is None else contextlib.nullcontext():
        import torch

        from chainrule.settings import SPARE_DESCRIPTORS
        from chainrule.stats import kernel_name
        from chainrule.web.main import Server, ServerConfig, configure_logging, create_app

    if own is None or "threads" in settings.model_fields_set:
        torch.set_num_threads(settings.threads)
    configure_logging(settings)
    _raise_descriptor_limit(settings.max_connections + SPARE_DESCRIPTORS)

    class ChainruleServer(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            level = logging.INFO if kernel_name() == "native" else logging.WARNING
            logging.getLogger("chainrule").log(level, "statistics are taken by the %s kernel", kernel_name())
            # Last of all, so that in a log of many lines it is the one at the end.
            address = link(settings, taken, "" if check is None else "gradcheck") + (view and f"#{view}")
            typer.echo(f"Chainrule {__version__} is at {address}")
            if browse:
                # A browser that runs in the terminal would keep it; the server does not wait for it.
                threading.Thread(target=_browse, args=(address,), daemon=True).start()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            threading.Thread(target=_end_after, args=(settings.shutdown_seconds + LAST_SECONDS,), daemon=True).start()
            await super().shutdown(sockets)

    config = ServerConfig(create_app(settings, dump, check, own), settings)
    # What is imported stays: taken out of the collector's sight it no longer stops a frame now and then to be walked
    # (50 layers: the slowest of 25 frames went from 166 ms to 76, the median stayed at 75).
    gc.collect()
    gc.freeze()
    # A pass makes thousands of objects, nearly all of which go with their last reference. To walk what thirty sockets
    # keep, every few passes, took a tenth of the time.
    gc.set_threshold(20_000, 20, 20)
    _listen(taken)
    signal.signal(signal.SIGTERM, before)
    try:
        ChainruleServer(config).run(sockets=[taken])
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


def _raise_descriptor_limit(wanted: int) -> None:
    """Have the system allow this process as many open files, or as many as it may ask for."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Where it is not allowed the connections make do with fewer.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _end_after(seconds: float) -> None:
    """End the process after a while, whatever it does.

    Torch cannot be interrupted within an op, and Python waits for every thread that computes before it ends.
    """
    time.sleep(seconds)
    logging.getLogger("chainrule").warning("computing did not stop in time; it ends with the process")
    logging.shutdown()
    os._exit(128 + signal.SIGTERM)


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
    options = _options(given)
    from chainrule.errors import ChainruleError
    from chainrule.spec import ModelSpec
    from chainrule.spec.limits import check_limits

    try:
        # Before torch is imported: a mistake is told at once.
        spec = ModelSpec.from_query(query.removeprefix("?"))
        check_limits(spec, settings, form.value)
    except ChainruleError as error:
        _fail(error.message, USAGE)

    import torch

    from chainrule.export.formats import FORMATS, write_model_explorer

    torch.set_num_threads(settings.threads)
    written = b""
    try:
        values = FORMATS[form.value].read(options)
        if not node_data:
            written = FORMATS[form.value].render(spec, values)
    except ChainruleError as error:
        _fail(error.message, USAGE if error.status < 500 else FAILED)
    with _writing(output):
        if node_data:
            assert output is not None, "checked above"
            write_model_explorer(spec, output)
        else:
            _write(written, output)


@commands.command()
def export(
    dump: Annotated[Path, typer.Argument(help="A graph dump, of a spec or of a recording.")],
    form: Annotated[
        ExportName | None,
        typer.Option("--format", help="What to write.", show_default="as the suffix of OUTPUT says"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="KEY=VALUE", help="An option of the format, such as level=all of svg."),
    ] = None,
) -> None:
    """Write a graph dump in another form, to standard output unless told otherwise."""
    options = _options(given)
    if form is None and output is None:
        _fail("--format says what to write, or the suffix of the file that -o names", USAGE)
    from chainrule.dump.wire import load
    from chainrule.errors import ChainruleError
    from chainrule.export.formats import TRACE_FORMATS, format_of

    try:
        chosen = TRACE_FORMATS[form.value] if form is not None else format_of(output or dump)
        values = chosen.read(options)
        trace = load(dump)
    except OSError as error:
        _fail(f"{dump}: {error.strerror}", USAGE)
    except ChainruleError as error:
        _fail(f"{dump}: {error.message}" if error.code == "invalid_dump" else error.message, USAGE)
    if chosen.name == "html":
        values = {**values, "name": dump.name}
    assert chosen.write is not None, "no format of a trace is of a spec alone"
    try:
        written = chosen.write(trace, values)
    except ChainruleError as error:
        _fail(error.message, USAGE if error.status < 500 else FAILED)
    with _writing(output):
        _write(written, output)


def _options(given: list[str] | None) -> dict[str, str]:
    """What was given by --with."""
    pairs = [pair.partition("=") for pair in given or ()]
    for key, equals, _ in pairs:
        if not equals:
            _fail(f"--with {key}: what is wanted is KEY=VALUE", USAGE)
    return {key: value for key, _, value in pairs}


def _write(written: bytes, output: Path | None) -> None:
    """Write to a file, or to standard output."""
    if output is None:
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
    else:
        output.write_bytes(written)


@contextlib.contextmanager
def _writing(output: Path | None) -> Iterator[None]:
    """Where something is written: what stands in its way is one line, and out."""
    try:
        yield
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except OSError as error:
        _fail(f"{output or 'standard output'}: {error.strerror}", FAILED)


@commands.command()
def presets() -> None:
    """List the chapter's experiments."""
    from chainrule.spec import ModelSpec
    from chainrule.spec.presets import PRESETS

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
    from chainrule.gradcheck.command import check_function, report_text

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


def _bind(host: str, port: int) -> socket.socket:
    """A socket with an address of its own, or one clear line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            # A server that was just stopped does not keep its port; on Windows this would let two share one.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        _no_address(host, port, error)
    return listener


def _listen(listener: socket.socket) -> None:
    """Take connections from now on, or say in one line that another server was faster."""
    try:
        listener.listen(128)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        _no_address(host, port, error)


def _no_address(host: str, port: int, error: OSError) -> NoReturn:
    """Say why an address cannot be listened on, and out."""
    if error.errno == errno.EADDRINUSE:
        _fail(f"port {port} on {host} is in use; choose another with --port or CHAINRULE_PORT", FAILED)
    _fail(f"cannot listen on {host} port {port}: {error.strerror}", FAILED)


def _fail(message: str, status: int) -> NoReturn:
    """One line on standard error, and out."""
    typer.echo(f"chainrule: {message}", err=True)
    raise typer.Exit(status)


def main() -> None:
    """The entry point."""
    commands()


if __name__ == "__main__":
    main()
