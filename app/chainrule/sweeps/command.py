"""The command `chainrule sweep`: its progress in the terminal, and its texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from chainrule.errors import SweepError
from chainrule.sweeps.run import Progress as Done
from chainrule.sweeps.run import executors, probe, run_sweep
from chainrule.sweeps.store import SweepStore
from chainrule.sweeps.sweep import Sweep, duration


def run_command(sweep: Sweep, output: Path, workers: int, scheduler: str | None, say: Callable[[str], None]) -> None:
    """Run a sweep with its progress on standard error, and write its table.

    Raises:
        SweepError: the files cannot be written, the workers fail, or cells have no value.
        KeyboardInterrupt: like the other errors, after a line about the file that keeps the finished cells.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn())
    with (
        SweepStore(output.with_suffix(".sweep"), sweep) as store,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        start, at_once = executors(workers, scheduler)  # after the store, which may be refused
        line = bar.add_task(f"{sweep.cells} cells", total=sweep.cells)

        percent = 0

        def show(done: Done) -> None:
            nonlocal percent
            bar.update(line, completed=done.done, description=progress_text(done))
            if not console.is_terminal and 100 * done.done // done.cells > percent:
                percent = 100 * done.done // done.cells
                console.print(progress_text(done), highlight=False, soft_wrap=True)

        try:
            result = run_sweep(sweep, start=start, workers=at_once, store=store, progress=show)
        except (KeyboardInterrupt, SweepError):
            kept = int(store.read()[0].sum())
            bar.stop()
            console.print(
                f"Stopped: {store.path} keeps {kept} of {sweep.cells} cells. The same command goes on.",
                highlight=False,
                soft_wrap=True,
            )
            raise
    result.save(output)
    say(f"{output}: {sweep.cells} cells; {output.with_suffix('.sweep')} keeps them too")
    if result.reasons:
        reasons = "; ".join(sorted(set(result.reasons.values())))
        raise SweepError(f"{len(result.reasons)} of {sweep.cells} cells have no value: {reasons}")


def progress_text(done: Done) -> str:
    """`412 of 1536 cells · 230/s · 5 s left`."""
    ends = done.seconds_left is None or done.done == done.cells
    left = "" if ends else f" · {duration(done.seconds_left or 0)} left"
    rate = f"{done.rate:.0f}" if done.rate >= 10 else f"{done.rate:.2g}"
    return f"{done.done} of {done.cells} cells · {rate}/s{left}"


def dry_run_text(sweep: Sweep, workers: int) -> str:
    """Cells, operations, memory and time of a sweep, from its specs and a measurement of one stack."""
    estimate = sweep.estimate()
    seconds = estimate.flops / probe(sweep) / workers
    processes = "1 process" if workers == 1 else f"{workers} processes"
    return "\n".join(
        (
            f"{estimate.cells} cells in {len(sweep.stacks)} stacks",
            f"{estimate.flops:.2g} floating point operations",
            f"{estimate.memory_bytes / 2**20:.0f} MiB of memory per process, beside PyTorch",
            f"about {duration(seconds)} with {processes}, as measured here",
        )
    )
