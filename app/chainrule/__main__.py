"""The command line, installed as `chainrule`.

    chainrule serve                      the explorer in the browser
    chainrule explore net.py:make        the explorer on a user's model, made by a function in a file
    chainrule check net.py:make          its faults as a report, for terminals and CI; exit status 1 if it has any
    chainrule open dump.json             the explorer with a graph dump, or with several: the steps of a training
    chainrule compare a.json b.json      the explorer with two dumps and their differences
    chainrule compare --as bfloat16 net.py:make      a user's model in two or more precisions, with errors of rounding
    chainrule trace 'widths=100x51'      one graph dump, the same bytes as over HTTP, except for `timing`
    chainrule export dump.json -o net.svg   a graph dump as a picture, a page, a table or another tool's graph
    chainrule train 'data=moons&widths=2,16,2' --steps 500 --keep first.run      the training of one spec, in a file
    chainrule runs folder                the live page of all runs in a folder
    chainrule runs follow runs           the runs of a folder in the terminal, while they are written
    chainrule runs export first.run -o first.csv      a run, for other tools
    chainrule presets                    the chapter's experiments
    chainrule gradcheck f.py:MyFunction --inputs f.py:make_inputs      check the gradients of a function
    chainrule build-extension            compile the chapter's C++ extension
    chainrule version

Torch and the web framework are imported by the commands that need them, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from chainrule import __version__
from chainrule.errors import ChainruleError
from chainrule.saving import write_file
from chainrule.web.serve import Start, importing, in_thread
from chainrule.web.serve import serve as run_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainrule import Trace
    from chainrule.dump.opened import DumpFile, OpenDump
    from chainrule.settings import Settings
    from chainrule.user_model.model import UserModel

FAILED = 1
"""Exit status of a failure outside the command line."""

USAGE = 2
"""Exit status of a mistake in the command line."""

commands = typer.Typer(
    name="chainrule",
    help="Record one forward and one backward pass of a neural net, and explore it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class RunsGroup(TyperGroup):
    """Runs `show` if the first argument is no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: D102 (typer's)
        return super().parse_args(ctx, args if args and args[0] in {*self.commands, "--help"} else ["show", *args])


run_commands = typer.Typer(
    help="Show, follow and export runs: trainings in files. `runs FOLDER` means `runs show FOLDER`.", cls=RunsGroup
)
commands.add_typer(run_commands, name="runs")

FormatName = StrEnum("FormatName", ["json", "dot", "svg", "html", "model-explorer", "node-data", "pytorch"])
"""The formats of `chainrule trace`."""

ExportName = StrEnum("ExportName", ["json", "dot", "svg", "html", "csv", "model-explorer"])
"""The formats of `chainrule export`."""

RunFormatName = StrEnum("RunFormatName", ["csv", "parquet", "tensorboard"])
"""The formats of `chainrule runs export`."""

RunTableName = StrEnum("RunTableName", ["rows", "steps", "events"])
"""The tables of a run."""

LevelName = StrEnum("LevelName", ["op", "aten", "aot_eager", "inductor"])
"""The levels of a recording."""

SourcesName = StrEnum("SourcesName", ["none", "line", "context"])
ReportName = StrEnum("ReportName", ["text", "json", "github"])
"""The formats of `chainrule check`."""

Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free port.", show_default="8000")]
Insecure = Annotated[
    bool | None, typer.Option("--insecure", help="Accept requests without a token.", show_default=False)
]
FreePort = Annotated[int, typer.Option(help="Port to listen on; 0 takes a free port.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")]
Seed = Annotated[
    int, typer.Option(help="Seed of the random numbers of the file, the factory and the pass.", min=0, max=2**63 - 1)
]
Device = Annotated[
    str | None,
    typer.Option(help="Run a copy of the model and its inputs on this device.", show_default="their own device"),
]
Compile = Annotated[
    bool,
    typer.Option("--compile", help="Also find the places where torch.compile cuts the graph.", show_default=False),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="KEY=VALUE", help="An option of the format, such as level=all for svg."),
]

DUMP_SUFFIXES = (".json", ".json.gz")

COMPARED = "a=dump:0&colour=difference&dump=1"
"""The page's view of two dumps: it shows the second, pins the first, and colours the boxes by the difference."""

PRECISIONS_COMPARED = COMPARED.replace("difference", "precision")
"""The same for one model in several precisions, with the boxes coloured by error ÷ predicted error."""


@commands.command()
def serve(host: Host = None, port: Port = None, insecure: Insecure = None) -> None:
    """Serve the explorer. All other settings are environment variables CHAINRULE_*."""
    _serve(_server_settings(host, port, insecure))


@commands.command()
def explore(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FACTORY",
            help="A function without arguments that returns (model, inputs), (model, inputs, loss_fn) or "
            "(model, inputs, loss_fn, optimizer).",
        ),
    ],
    watch: Annotated[
        bool, typer.Option("--watch", help="Run the file again when it changes.", show_default=False)
    ] = False,
    seed: Seed = 42,
    device: Device = None,
    level: Annotated[
        LevelName,
        typer.Option(
            help="aten shows the ops of PyTorch's dispatcher inside each op; aot_eager and inductor show the graphs of "
            "torch.compile."
        ),
    ] = LevelName.op,
    compile_: Compile = False,
    port: FreePort = 0,
    browser: Browser = True,
) -> None:
    """Explore a model of your own: its graph, the path of its gradient, and the effect of another scale.

    The command runs the file like `python FILE.py`, and one forward and backward pass on a copy of the factory's
    result. Only this machine can open the page. The inputs are a tensor, a tuple of the arguments, or a dict of the
    arguments by name. loss_fn(output) is a scalar; without loss_fn, the output or its `loss` is the scalar. The
    optimizer never runs: it tells the command which parameters a step would change.
    """
    settings = _private_settings(port)
    from chainrule.user_model.code import split_reference

    with _refusing(USAGE):
        file, _ = split_reference(factory)
    task = f"Chainrule imports PyTorch and runs {file.name}"
    with _refusing(), Start(settings, browser=browser, task=task) as start:
        modules = "chainrule.web.main", "chainrule.user_model.watch"
        model = _user_model(factory, file, seed, device, settings, *modules, level=level.value, compiles=compile_)
        from chainrule.user_model.watch import watching

        with watching(model) if watch else contextlib.nullcontext():
            _serve(settings, start=start, model=model, watches=watch)


def _user_model(
    factory: str, file: Path, seed: int, device: str | None, settings: Settings, *modules: str, **options: Any
) -> UserModel:
    """The model of a factory in a file.

    Imports `modules` before the file's folder comes first on the import path, because a file there may have the name
    of a library. `options`: see `open_reference`.
    """
    with importing():
        for each in ("chainrule.user_model.model", *modules):
            importlib.import_module(each)
    import torch

    from chainrule.user_model.code import as_program
    from chainrule.user_model.model import open_reference

    if "threads" in settings.model_fields_set:
        torch.set_num_threads(settings.threads)
    as_program(file)
    return open_reference(factory, seed=seed, device=device, **options)


@commands.command()
def check(
    reference: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:FACTORY",
            help="A factory, as for `chainrule explore`; or a dump, dump.json; or the dumps of all ranks of a step.",
        ),
    ],
    form: Annotated[
        ReportName, typer.Option("--format", help="text, json, or github (annotations for GitHub Actions).")
    ] = ReportName.text,
    seed: Seed = 42,
    device: Device = None,
    compile_: Compile = False,
    output: Output = None,
) -> None:
    """Report the faults of one forward and backward pass, each with its place, line, value, rule and remedy.

    The exit status is 0 without faults, 1 with faults, and 2 for a wrong command line or an unusable factory. The
    command runs the file like `chainrule explore`. The output of the file goes to standard error.
    """
    paths = [Path(each) for each in reference]
    if len(paths) > 1:
        from chainrule.dump.opened import in_order
        from chainrule.dump.ranks import are_ranks
        from chainrule.dump.wire import load

        if not are_ranks(paths):
            _fail("check takes one factory, one dump, or the dumps of all ranks of one step: step.rank0.json …", USAGE)
        recorded = load(_opened(in_order(paths))[0].load())
    elif reference[0].endswith(DUMP_SUFFIXES):
        recorded = _loaded(paths[0])
    else:
        from chainrule.user_model.code import split_reference

        with _refusing(USAGE):
            file, _ = split_reference(reference[0])
        with _refusing(), _printing_to_stderr():
            recorded = in_thread(_user_model(reference[0], file, seed, device, _settings(), compiles=compile_).check)
    with _writing(output):
        _write(f"{recorded.report(form.value)}\n".encode(), output)
    raise typer.Exit(FAILED if recorded.has_faults else 0)


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Send all output inside to standard error: of Python, of libraries in C, and of other processes."""
    ours = sys.stdout
    ours.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ours.flush()
        os.dup2(kept, 1)
        os.close(kept)


@commands.command("open")
def open_dumps(
    dumps: Annotated[
        list[Path], typer.Argument(help="Graph dumps, for example from `chainrule trace` or `trace.json`.")
    ],
    host: Host = None,
    port: Port = None,
    insecure: Insecure = None,
    browser: Browser = True,
) -> None:
    """Open graph dumps in the explorer. Several dumps, such as the steps of a training, get a slider.

    Files whose names differ only in numbers are sorted by these numbers. The files of all ranks of a step, such as
    step.rank0.json and step.rank1.json, are joined: replicas are compared, and the rank is found where NaN began.
    """
    settings = _server_settings(host, port, insecure, is_private=True)
    from chainrule.dump.opened import in_order

    _serve(settings, dump=_opened(in_order(dumps)), browser=browser)


@commands.command()
def compare(
    a: Annotated[
        str,
        typer.Argument(metavar="A.json|FILE.py:FACTORY", help="The graph dump to compare with; with --as, a factory."),
    ],
    b: Annotated[
        list[Path] | None,
        typer.Argument(metavar="B.json", help="The graph dump to look at; several are possible.", show_default=False),
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="PRECISION",
            help="Compare the factory's model with itself in bfloat16, float16, float32, float64, tf32, "
            "autocast-bfloat16, autocast-float16, or as torch.compile runs it with aot_eager or inductor; several are "
            "possible.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 42,
    device: Device = None,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = None,
    browser: Browser = True,
) -> None:
    """Compare graph dumps in the explorer: it pins the first dump and shows how the others differ from it.

    With --as, the command runs one pass of a factory's model as it is (A) and in another precision (B), or in several.
    It reports the first op whose error is larger than rounding predicts, and shows the error of each tensor.
    """
    settings = _server_settings(host, port, insecure, is_private=True)
    if precision:
        if b or a.endswith(DUMP_SUFFIXES):
            _fail("--as compares one model with itself: give FILE.py:FACTORY and no dumps", USAGE)
        dumps = _in_precisions(a, list(dict.fromkeys(precision)), seed, device, settings)
        _serve(settings, dump=dumps, browser=browser, view=PRECISIONS_COMPARED)
        return
    if not b:
        _fail("compare needs at least two dumps; for a model in two precisions, give --as and FILE.py:FACTORY", USAGE)
    dumps = _opened([Path(a), *b])
    if len(dumps) <= len(b):
        _fail("compare needs every dump, but could not open all of them", USAGE)
    _serve(settings, dump=dumps, browser=browser, view=COMPARED)


def _in_precisions(
    factory: str, names: list[str], seed: int, device: str | None, settings: Settings
) -> list[OpenDump | DumpFile]:
    """The dumps of a factory's model as it is and in other precisions. Prints what differs."""
    from chainrule.user_model.code import split_reference

    with _refusing(USAGE):
        from chainrule.precision.formats import dtypes_of, in_words, precision_named

        file, _ = split_reference(factory)
        for each in names:
            precision_named(each)
    with _refusing():
        model = _user_model(factory, file, seed, device, settings, "chainrule.web.main", "chainrule.precision.compare")
        from chainrule.dump.opened import OpenDump
        from chainrule.dump.wire import dump_trace
        from chainrule.precision.compare import compare_precisions
        from chainrule.precision.text import comparison_text

        traces = in_thread(lambda: compare_precisions(model.subject, *names, seed=seed))
        for name, trace in zip(names, traces[1:], strict=True):
            typer.echo(f"{name}\n{comparison_text(trace)}\n" if len(names) > 1 else comparison_text(trace))
        own = in_words(dtypes_of(model.subject))
        return [
            OpenDump.check(f"{model.name} in {each}", dump_trace(trace))
            for each, trace in zip((own, *names), traces, strict=True)
        ]


def _opened(paths: list[Path]) -> list[OpenDump | DumpFile]:
    """Dumps from files. Prints why a file cannot be opened, and opens the others."""
    from chainrule.dump.opened import DumpFile, OpenDump, is_small, names_of

    opened: list[OpenDump | DumpFile] = []
    for path, name in zip(paths, names_of(paths), strict=True):
        try:
            opened.append(OpenDump.read(path) if len(paths) == 1 and is_small(path) else DumpFile.glance(path, name))
        except (OSError, ChainruleError) as error:
            said = error.message if isinstance(error, ChainruleError) else error.strerror
            typer.echo(f"chainrule: {path}: {said}", err=True)
    from chainrule.dump.ranks import NAME, are_ranks, join

    steps = {found["step"] for path in paths if (found := NAME.fullmatch(path.name))}
    if len(steps) > 1:
        typer.echo(f"chainrule: ranks are joined for one step, not for {', '.join(sorted(steps))}", err=True)
    if are_ranks(paths):
        files, problems = join([each for each in opened if isinstance(each, DumpFile)])
        opened = [*files]
        for problem in problems:
            typer.echo(f"chainrule: {problem}", err=True)
    if not opened:
        raise typer.Exit(USAGE)
    return opened


def _server_settings(
    host: str | None, port: int | None, insecure: bool | None, *, is_private: bool = False
) -> Settings:
    """Settings of a server; creates a token if none is set and the server listens beyond loopback, or is private.

    Another user of this machine can reach loopback, and would read what a private server shows.
    """
    given = {"host": host, "port": port, "insecure": insecure} | ({"tokens_file": ""} if is_private else {})
    settings = _settings(**given)
    has_token = settings.token is not None or settings.tokens_file
    if (is_private or not settings.is_loopback) and not has_token and not settings.insecure:
        settings = _settings(**given, token=secrets.token_urlsafe(24))
    return settings


def _private_settings(port: int) -> Settings:
    """Settings of a server for this machine and for those who have its link."""
    settings = _settings(host="127.0.0.1", port=port)
    return _settings(
        host="127.0.0.1",
        port=port,
        tokens_file="",
        token=secrets.token_urlsafe(24) if settings.token is None else None,
        # No other client waits for an answer, so Ctrl-C ends the server at once.
        shutdown_seconds=None if "shutdown_seconds" in settings.model_fields_set else 1,
    )


def _serve(settings: Settings, **options: Any) -> None:
    """Serve until a signal; see `web.serve.serve`."""
    try:
        with _refusing():
            run_server(settings, **options)
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


@commands.command()
def trace(
    query: Annotated[str, typer.Argument(help="A spec, as in the page's address: 'widths=100x51&seed=7'.")] = "",
    form: Annotated[FormatName, typer.Option("--format", help="The format of the output.")] = FormatName.json,
    output: Output = None,
    given: With = None,
    node_data: Annotated[
        bool,
        typer.Option(
            "--node-data",
            help="With model-explorer: create the folder OUTPUT with the graph and a file of node data per statistic.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Trace one spec, and write the trace to standard output or to a file."""
    settings = _settings()
    if node_data and (form.value != "model-explorer" or output is None):
        _fail("--node-data needs --format model-explorer and -o FOLDER", USAGE)
    options = _options(given)
    from chainrule.spec import ModelSpec
    from chainrule.spec.limits import check_limits

    # Before torch is imported, so a wrong spec is an error at once.
    with _refusing(USAGE):
        spec = ModelSpec.from_query(query.removeprefix("?"))
        check_limits(spec, settings, form.value)

    import torch

    from chainrule.export.formats import FORMATS, write_model_explorer

    torch.set_num_threads(settings.threads)
    with _refusing():
        values = FORMATS[form.value].read(options)
        written = b"" if node_data else FORMATS[form.value].render(spec, values)
    with _writing(output):
        if node_data:
            assert output is not None, "checked above"
            write_model_explorer(spec, output)
        else:
            _write(written, output)


@commands.command()
def train(
    query: Annotated[str, typer.Argument(help="A spec, as in the page's address: 'data=moons&widths=2,16,2&lr=0.1'.")],
    keep: Annotated[Path, typer.Option(help="Write the run to this new file.")],
    steps: Annotated[
        int | None, typer.Option(help="Training steps.", min=0, show_default="the step of the spec")
    ] = None,
    every: Annotated[int, typer.Option(help="Number of steps between two records of the statistics.", min=1)] = 10,
) -> None:
    """Train the net of one spec, and keep its losses and statistics in a file."""
    settings = _settings()
    from chainrule.spec import ModelSpec
    from chainrule.spec.limits import check_limits

    with _refusing(USAGE):
        spec = ModelSpec.from_query(query.removeprefix("?"))
        if steps is not None:
            spec = spec.replace(step=steps)
        check_limits(spec, settings)

    import torch

    from chainrule.history.reader import Run
    from chainrule.training.keep import keep_training

    torch.set_num_threads(settings.threads)
    with _refusing():
        keep_training(spec, keep, every)
        run = Run(keep)
        losses, events = run.step_columns()["loss"], run.event_columns()
    typer.echo(f"{keep}: the loss was {losses[0]:.4g} at step 0 and is {losses[-1]:.4g} at step {spec.step}")
    for step, text in zip(events["step"], events["text"], strict=True):
        typer.echo(f"step {step}: {text}")


@commands.command()
def sweep(
    query: Annotated[str, typer.Argument(help="A spec, as in the page's address: 'widths=100x51&activation=tanh'.")],
    over: Annotated[
        list[str],
        typer.Option(
            help="An axis: KEY=FROM:TO:COUNT, KEY=log:FROM:TO:COUNT or KEY=VALUE,VALUE; give several for a map. Keys "
            "are those of a spec, depth and width."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the table to this file: .csv or .parquet.")],
    seeds: Annotated[int, typer.Option(help="Number of seeds: the spec's and the following ones.", min=1)] = 1,
    measure: Annotated[
        str, typer.Option(help="The figure of each net, such as gradient_ratio, activation_std:3 or loss.")
    ] = "gradient_ratio",
    workers: Annotated[
        int, typer.Option(help="Number of worker processes; with 1 the command computes alone.", min=1)
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compute on the workers of this Dask scheduler.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say how many cells there are and what they take, and end.", show_default=False),
    ] = False,
) -> None:
    """Measure many nets: a map over two or more keys of a spec.

    Every finished part is kept beside OUTPUT, in a file with the suffix .sweep. After Ctrl-C, the same command goes on
    where it stopped.
    """
    with _refusing(USAGE):
        from chainrule.spec import ModelSpec

        spec = ModelSpec.from_query(query.removeprefix("?"))
        from chainrule.sweeps.command import dry_run_text, run_command
        from chainrule.sweeps.run import writer_of
        from chainrule.sweeps.sweep import read_sweep

        writer_of(output)
        plan = read_sweep(spec, over, seeds, measure)
        if dry_run:
            typer.echo(dry_run_text(plan, workers))
            return
    try:
        with _refusing(FAILED), _writing(output):
            run_command(plan, output, workers, scheduler, typer.echo)
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


@commands.command()
def export(
    dump: Annotated[Path, typer.Argument(help="A graph dump of a spec or of a recording.")],
    form: Annotated[
        ExportName | None,
        typer.Option("--format", help="The format of the output.", show_default="from the suffix of OUTPUT"),
    ] = None,
    output: Output = None,
    given: With = None,
    sources: Annotated[
        SourcesName,
        typer.Option(
            help="How much source code the file holds: none, the line of each op, or also the lines around it."
        ),
    ] = SourcesName.context,
) -> None:
    """Convert a graph dump to another format, and write it to standard output or to a file."""
    options = _options(given)
    if form is None and output is None:
        _fail("the format is missing; give --format, or -o with a suffix such as .svg", USAGE)
    from chainrule.export.formats import TRACE_FORMATS, format_of

    with _refusing(USAGE):
        chosen = TRACE_FORMATS[form.value] if form is not None else format_of(output or dump)
        values = chosen.read(options)
    from chainrule.trace.privacy import with_sources

    trace = with_sources(_loaded(dump), sources.value)
    if chosen.name == "html":
        values = {**values, "name": dump.name.removesuffix(".gz")}
    assert chosen.write is not None, "every format here can write a trace"
    with _refusing():
        written = chosen.write(trace, values)
    with _writing(output):
        _write(written, output)


@run_commands.command("show")
def show_runs(
    folder: Annotated[Path, typer.Argument(help="The folder with the runs (files *.run).")] = Path("runs"),
    port: FreePort = 0,
    browser: Browser = True,
) -> None:
    """Show all runs of a folder in the browser, with their curves in one chart, while they train.

    The page also shows runs that begin later. Only this machine can open it.
    """
    if folder.exists() and not folder.is_dir():
        _fail(f"{folder}: not a folder; give the folder that contains the runs", USAGE)
    _serve(_private_settings(port), runs=folder, browser=browser)


@run_commands.command("export")
def export_run(
    run: Annotated[Path, typer.Argument(help="The file of a run.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write to this file; for tensorboard, to this folder.")
    ],
    form: Annotated[
        RunFormatName | None,
        typer.Option("--format", help="The format of the output.", show_default="from the suffix of OUTPUT"),
    ] = None,
    table: Annotated[RunTableName, typer.Option(help="The table to write as csv or parquet.")] = RunTableName.rows,
) -> None:
    """Convert the file of a run to CSV, Parquet or event files of TensorBoard."""
    from chainrule.history import Run
    from chainrule.history.export import export

    with _writing(output), _refusing(USAGE):
        export(Run(run), output, form and form.value, table.value)


@run_commands.command("follow")
def follow_runs(
    path: Annotated[Path, typer.Argument(help="The file of a run, or a folder with runs (files *.run).")],
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.", show_default=False)] = False,
) -> None:
    """Show runs in the terminal while they are written, until all have ended, or until Ctrl-C.

    The table shows the last step, the loss and its curve, the learning rate, steps per second, the norm of all
    gradients, the layers with the smallest and the largest update : weight, and the last events. If the output is not a
    terminal, the command prints one line per change instead.
    """
    from rich.console import Console

    from chainrule.history.follow import follow

    try:
        with _refusing(USAGE), _writing(None):
            follow(path, Console(), once=once)
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


def _loaded(dump: Path) -> Trace:
    """The trace of a graph dump."""
    from chainrule.dump.wire import load

    try:
        return load(dump)
    except OSError as error:
        _fail(f"{dump}: {error.strerror}", USAGE)
    except ChainruleError as error:
        _fail(f"{dump}: {error.message}", USAGE)


def _options(given: list[str] | None) -> dict[str, str]:
    """The options of --with, by key."""
    pairs = [pair.partition("=") for pair in given or ()]
    for key, equals, _ in pairs:
        if not equals:
            _fail(f"--with {key}: expected KEY=VALUE", USAGE)
    return {key: value for key, _, value in pairs}


def _write(written: bytes, output: Path | None) -> None:
    """Write to a file, or to standard output."""
    if output is None:
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
    else:
        write_file(output, [written])


@contextlib.contextmanager
def _writing(output: Path | None) -> Iterator[None]:
    """Print an error of writing in one line, and exit."""
    try:
        yield
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except OSError as error:
        _fail(f"{output or 'standard output'}: {error.strerror}", FAILED)


@commands.command()
def presets() -> None:
    """List the experiments of the chapter."""
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
    eps: Annotated[float, typer.Option(help="Step of the central difference.")] = 1e-6,
    atol: Annotated[float, typer.Option(help="Absolute tolerance.")] = 1e-5,
    rtol: Annotated[float, typer.Option(help="Tolerance relative to the numeric value.")] = 1e-3,
    seed: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, help="Seed of torch's generator, set before the inputs are made.")
    ] = 42,
    show: Annotated[
        bool,
        typer.Option("--open", help="Show the Jacobians in the browser, for this machine only.", show_default=False),
    ] = False,
    port: FreePort = 0,
    browser: Browser = True,
) -> None:
    """Check the gradients of a function with finite differences. The command runs the files like `python FILE.py`.

    The exit status is 0 if the gradients are correct, 1 if they are not, and 2 if they cannot be checked. With --open
    the command serves the page until Ctrl-C.

    The check uses one point and float64. It compares the Jacobians, runs forward and backward twice, and tests that a
    grad_output of 0 or None gives gradients of 0. If the inputs have another dtype, backward must agree in that dtype.
    It does not check second derivatives (torch.autograd.gradgradcheck), forward mode and vmap.
    """
    from chainrule.gradcheck.command import check_function
    from chainrule.gradcheck.text import report_text

    with _refusing():
        report = check_function(function, inputs, eps=eps, atol=atol, rtol=rtol, seed=seed)
    typer.echo(report_text(report))
    if show:
        try:
            _serve(_private_settings(port), check=report, browser=browser)
        except typer.Exit as stopped:
            # Ctrl-C closes the page; the exit status is the verdict.
            if stopped.exit_code != 128 + signal.SIGINT:
                raise
    raise typer.Exit(0 if report["passed"] else FAILED)


@commands.command("build-extension")
def build_extension(
    force: Annotated[
        bool, typer.Option("--force", help="Compile even if the extension exists.", show_default=False)
    ] = False,
    cuda: Annotated[
        bool | None,
        typer.Option(
            "--cuda/--no-cuda", help="Compile with or without the CUDA kernels.", show_default="with, if they can run"
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the compiler's commands.", show_default=False)
    ] = False,
) -> None:
    """Compile the chapter's C++ extension, the linear operator, into your cache folder."""
    from chainrule.foundations.linear_extension import ExtensionBuildError
    from chainrule.foundations.linear_extension import build_extension as build

    try:
        build(cuda=cuda, force=force, verbose=verbose, say=typer.echo)
    except ExtensionBuildError as error:
        _fail(str(error), FAILED)


@commands.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by the given options."""
    from chainrule.settings import read_settings

    try:
        return read_settings(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        _fail(str(error), USAGE)


@contextlib.contextmanager
def _refusing(status: int | None = None) -> Iterator[None]:
    """Print an error in one line, and exit with `status`, or with the status of the error's kind."""
    try:
        yield
    except ChainruleError as error:
        _fail(error.message, status or (USAGE if error.status < 500 else FAILED))


def _fail(message: str, status: int) -> NoReturn:
    """Print one line to standard error, and exit."""
    typer.echo(f"chainrule: {message}", err=True)
    raise typer.Exit(status)


def main() -> None:
    """The entry point."""
    commands()


if __name__ == "__main__":
    main()
