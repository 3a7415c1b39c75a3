"""The load battery: every row measures the real server, says its figures, and fails where one misses its goal.

    make load                    all rows, a quarter of an hour
    make load ONLY=health        one row: the name of its file

The figures are printed as a table at the end, and kept in bench/results/load.json; of each row the worst stands in
bench/results/load.md, the table of docs/reliability.md. See `tests/shared/load_table.py`.
"""

from __future__ import annotations

import json
import operator
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import load_table
import pytest
from served import Served

COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}

LOG_LINES = 80
"""Lines of a server's log that a failure shows."""

FIGURES: list[dict[str, object]] = []

LOGS = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak-seconds", type=int, default=int(os.environ.get("SOAK_SECONDS", "600")), help="how long the soak lasts"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every row, and give the soak its time and 300 s more."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.load)
            soak = config.getoption("--soak-seconds", default=600) if item.path.stem == "test_soak" else 0
            item.add_marker(pytest.mark.timeout(300 + soak))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function that keeps one figure of a row, and fails the row where the figure misses its goal."""
    row = request.path.stem.removeprefix("test_")

    def keep(name: str, value: float, unit: str = "", goal: str = "") -> None:
        sign, _, bound = goal.partition(" ")
        met = not goal or COMPARE[sign](value, float(bound))
        value = round(value, 3) if isinstance(value, float) else value
        figure = {"row": row, "name": name, "value": value, "unit": unit, "goal": goal, "met": bool(met)}
        FIGURES.append(figure)
        assert met, f"{row}: {name} is {value} {unit}, and should be {goal}"

    return keep


@pytest.fixture(scope="module")
def serve(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Served]:
    """A function that makes a server with these settings, to be started by `with`; failures show its log."""
    logs = request.node.stash.setdefault(LOGS, [])
    folder = tmp_path_factory.mktemp("servers")

    def make(**settings: object) -> Served:
        logs.append(folder / f"server-{len(logs)}.log")
        return Served(logs[-1], **settings)

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        for node in item.listchain():
            for log in node.stash.get(LOGS, []):
                if log.exists():
                    lines = log.read_text(errors="replace").splitlines()
                    report.sections.append((f"the end of {log.name}", "\n".join(lines[-LOG_LINES:])))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not FIGURES:
        return
    terminalreporter.section("figures")
    rows = [
        (str(each["row"]), str(each["name"]), f"{each['value']:g} {each['unit']}".strip(), str(each["goal"]))
        for each in FIGURES
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for each, row in zip(FIGURES, rows, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(f"{cells}  {'' if each['met'] else 'MISSED'}".rstrip(), red=not each["met"])


def pytest_sessionfinish() -> None:
    """Keep the figures; rows that did not run keep what they had."""
    if not FIGURES:
        return
    results = load_table.FIGURES
    kept = json.loads(results.read_text())["figures"] if results.exists() else []
    measured = {each["row"] for each in FIGURES}
    figures = [each for each in kept if each["row"] in load_table.ROWS.keys() - measured] + FIGURES
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    written = {"written": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "machine": machine, "figures": figures}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(written, indent=1) + "\n")
    load_table.write()
