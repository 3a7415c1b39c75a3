"""The README's table of the load battery: every row of it, every figure of a row, and its worst."""

import ast
import re
from pathlib import Path

import pytest
from load_table import FIGURES, HEAD, PLACE, ROWS, pattern, table, worst

from chainrule.settings import Settings

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- figures: make load -->\n")[1]
README = SECTION.split("<!-- /figures -->")[0]
TESTS = {path.stem.removeprefix("test_"): path for path in (ROOT / "tests" / "load").glob("test_*.py")}


def figures_of(row, met=True):
    """A figure for each name that a row's cell wants, such as the battery would keep."""
    for _, name in PLACE.findall("; ".join(ROWS[row].says)):
        yield {"row": row, "name": re.sub(r"\.\*|\(\?:(\w+)\|\w+\)", r"\1", name), "value": 7, "goal": "", "met": met}


def test_every_row_of_the_battery_has_its_row_in_the_table():
    assert set(ROWS) == set(TESTS)
    assert re.findall(r"`make load ONLY=(\w+)`", README) == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_the_readme_leaves_nothing_out(row):
    assert README.startswith(HEAD)
    shown = [line for line in README.splitlines() if f"ONLY={row}`" in line]
    assert len(shown) == 1
    assert pattern(row).fullmatch(shown[0]), shown[0]


@pytest.mark.parametrize("row", ROWS)
def test_every_figure_of_the_table_is_one_that_its_test_keeps(row):
    source = ast.parse(TESTS[row].read_text(encoding="utf-8"))
    kept, samples = [], []
    for node in ast.walk(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "figure":
            first = node.args[0]
            parts = first.values if isinstance(first, ast.JoinedStr) else [first]
            texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            kept.append("".join(".*" if text is None else re.escape(text) for text in texts))
            samples.append("".join(text or "" for text in texts))
    for name in (name for _, name in PLACE.findall("; ".join(ROWS[row].says))):
        example = re.sub(r"\.\*|\(\?:(\w+)\|\w+\)", r"\1", name)
        found = [each for each in kept if re.fullmatch(each, example)] + [
            each for each in samples if re.fullmatch(name, each)
        ]
        assert found, name


@pytest.mark.parametrize("row", ROWS)
def test_settings_that_are_not_the_defaults_are_said(row):
    set_by_tests = set()
    for node in ast.walk(ast.parse(TESTS[row].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "serve":
            set_by_tests |= {keyword.arg for keyword in node.keywords}
    assert set_by_tests <= set(Settings.model_fields)
    said = set(re.findall(r"CHAINRULE_([A-Z_]+)", ROWS[row].settings))
    assert {name.upper() for name in set_by_tests} == said


def test_the_worst_figure_is_shown_and_what_missed_is_said():
    kept = [figure for row in ROWS for figure in figures_of(row)]
    kept += [
        {"row": "sliders", "name": "30 × fifty, a: slowest client", "value": 0.4, "goal": ">= 0.8", "met": False},
        {"row": "aborts", "name": "failed", "value": 2, "goal": "== 0", "met": False},
    ]
    lines = dict(zip(ROWS, table(kept).splitlines()[2:], strict=True))
    assert all(pattern(row).fullmatch(line) for row, line in lines.items())
    assert "7.0 and 0.4 (**missed**)" in lines["sliders"]
    assert lines["aborts"].endswith("; failed (**missed**) |")
    assert "not measured" in table(kept[1:])
    assert not pattern("fuzz").fullmatch(table(kept[1:]).splitlines()[2])


def test_worst_is_the_least_where_more_is_better():
    kept = [{"row": "a", "name": f"n{value}", "value": value, "goal": ">= 1", "met": True} for value in (3, 2, 5)]
    assert worst(kept, "a", "n.*")["value"] == 2
    assert worst([{**each, "goal": "<= 9"} for each in kept], "a", "n.*")["value"] == 5
    assert worst(kept, "b", "n.*") is None


def test_the_kept_figures_lie_where_the_table_is_made():
    assert FIGURES == ROOT / "bench" / "results" / "load.json"
