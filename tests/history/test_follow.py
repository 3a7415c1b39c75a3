"""Runs in a terminal: the figures are those of the file, and lines come as it is written."""

import io
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.errors import RunError
from chainrule.history import Run, RunWriter
from chainrule.history.follow import follow
from chainrule.history.summary import Curve, Summary, scaled, update_ratios

COLUMNS = ("mean", "norm")
LAYERS = [f"layers.{number}" for number in range(8)]
PARTS = ("weight", "update")
TENSORS = [(f"{layer}.{name}", part) for layer in LAYERS for name in ("weight", "bias") for part in PARTS]


def write_steps(run, first, last, loss=None):
    """Steps with rows at each tenth; the layer n has a ratio of 2^-n, at first, which halves every ten steps."""
    for step in range(first, last):
        run.add_step(
            step,
            loss=8 / (1 + step) if loss is None else loss,
            lr=0.25,
            seconds=0.125,
            gradient_norm=3.0 if step % 10 == 0 else None,
        )
        if step % 10 == 0:
            norms = [
                2.0 if part == "weight" else 2.0 * 2.0 ** -(number + step // 10)
                for number in range(8)
                for part in PARTS * 2
            ]
            run.add_rows(step, TENSORS, np.array([[0.0, norm] for norm in norms]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "first.run"


def console(**options):
    return Console(file=io.StringIO(), **{"width": 150, "force_terminal": False} | options)


def test_a_curve_has_the_means_of_its_cells():
    curve, values = Curve(8), np.random.default_rng(0).standard_normal(50)
    for step, value in enumerate(values):
        curve.add(step, None if step in (3, 20) else value)
    values[[3, 20]] = math.nan
    steps, means = zip(*curve.points, strict=True)
    assert steps == tuple(3.5 + 8 * cell for cell in range(7))
    np.testing.assert_allclose(means, [np.nanmean(values[at : at + 8]) for at in range(0, 50, 8)])


def test_a_sparkline_marks_what_is_not_finite():
    curve = Curve(8)
    for step, value in enumerate([4.0, 3.0, None, 1.0, math.nan, math.inf, 2.0]):
        curve.add(step, value)
    assert curve.sparkline == "█▆▁××▃"
    assert Curve().sparkline == ""


def test_an_axis_is_logarithmic_if_the_values_span_much():
    assert scaled([1.0, 2.0, 3.0]) == ([0, 0.5, 1], 1.0, 3.0)
    heights, *_ = scaled([1.0, 10.0, 100.0, math.nan])
    assert heights == [0, pytest.approx(0.5), 1, None]
    assert scaled([0.0, 50.0, 100.0])[0] == [0, 0.5, 1]
    assert scaled([0.0, 1.0, 10.0, 100.0])[0] == [0, 0, pytest.approx(0.5), 1]
    assert scaled([5.0, 5.0])[0] == [0.5, 0.5]
    assert scaled([-1.7e308, 1.7e308])[0] == [0.5, 0.5], "their difference is Inf"


def test_the_ratio_of_a_layer_joins_its_parameters():
    weights = {
        "0.weight": 3.0,
        "0.bias": 4.0,
        "1.bias": 0.0,
        "scale": 2.0,
        "2.weight": 9.0,
        "3.bias": math.nan,
        "4.a": 1.0,
    }
    updates = {"0.weight": 0.3, "0.bias": 0.4, "1.bias": 1.0, "scale": 1.0, "3.bias": 1.0, "4.a": 1e300}
    assert update_ratios(weights, updates) == {"0": pytest.approx(0.1), "scale": 0.5}


def test_a_summary_reads_only_what_is_new(path, monkeypatch):
    parts, whole = Summary(), Summary()
    with RunWriter(path, COLUMNS, model="net") as run:
        write_steps(run, 0, 25)
        run.flush()
        parts.read(Run(path))
        run.add_event(27, "loss_spike", "the loss is 9")
        write_steps(run, 25, 60)
        run.add_rows(59, [("layers.0.weight", "weight")], np.ones((1, 2)))
        run.flush()
        read = []
        step_columns = Run.step_columns
        monkeypatch.setattr(Run, "step_columns", lambda own, after: read.append(after) or step_columns(own, after))
        parts.read(Run(path))
        assert read == [24]
    whole.read(Run(path), all_rows=True)
    parts.read(Run(path))
    assert (parts.step, parts.loss, parts.lr, parts.gradient_norm) == (59, 8 / 60, 0.25, 3.0)
    assert parts.steps_per_second == 8
    assert parts.losses.points == whole.losses.points == [(step, 8 / (1 + step)) for step in range(60)]
    assert parts.events == [(27, "loss_spike", "the loss is 9")]
    assert parts.ended == "complete"
    assert parts.ratios == {f"layers.{number}": pytest.approx(2.0 ** -(number + 5)) for number in range(8)}
    assert [layer for layer, _ in parts.smallest] == ["layers.7", "layers.6", "layers.5"]
    assert [layer for layer, _ in parts.largest] == ["layers.0", "layers.1", "layers.2"]
    assert [value for _, value in whole.ratio_curves[2].points] == pytest.approx([2.0**-ten for ten in range(6)])


def test_lines_follow_a_run_until_it_ends(path):
    run = RunWriter(path, COLUMNS, model="net")
    write_steps(run, 0, 11)
    run.flush()

    def go_on():
        yield
        write_steps(run, 11, 40)
        run.add_event(39, "loss_spike", "the loss is 9")
        run.flush()
        yield
        run.close("KeyboardInterrupt")
        yield

    went = go_on()
    next(went)
    out = console()
    follow(path, out, wait=lambda: next(went))
    assert out.file.getvalue().splitlines() == [
        "first  step 10  loss 0.7273  lr 0.25  steps/s 8  gradient norm 3  "
        "update : weight 0.0039 (layers.7) to 0.5 (layers.0)",
        "first  step 39  loss 0.2  lr 0.25  steps/s 8  gradient norm 3  "
        "update : weight 0.00098 (layers.7) to 0.12 (layers.0)",
        "first  step 39  loss_spike: the loss is 9",
        "first  KeyboardInterrupt",
    ]


def test_a_terminal_has_a_table_that_waits_for_runs(tmp_path):
    out, frames = console(force_terminal=True, color_system=None), []

    def wait():
        frames.append(out.file.getvalue())
        if len(frames) == 1:
            (tmp_path / "broken.run").write_text("no run")
        else:
            with RunWriter(tmp_path / "second.run", COLUMNS, model="net") as run:
                write_steps(run, 0, 20)

    follow(tmp_path, out, wait=wait)
    assert "has no runs yet" in frames[0]
    assert "the file is not a run of schema chainrule.run/1" in frames[1]
    shown = out.file.getvalue()[len(frames[1]) :]
    assert "layers.7: 0.0039" in shown
    assert "complete" in shown


def once(path):
    return CliRunner().invoke(commands, ["runs", "follow", str(path), "--once"])


def test_a_table_once(tmp_path):
    for name, loss in (("a", 1.5), ("b", math.nan)):
        with RunWriter(tmp_path / f"{name}.run", COLUMNS, model="net") as run:
            write_steps(run, 0, 12, loss)
            run.add_event(3, "nonfinite", f"[bold] the loss of {name}")
    found = once(tmp_path)
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0].split() == ["run", "step", "loss", "lr", "steps/s", "gradient", "norm", "state"]
    assert lines[1].split() == ["a", "11", "1.5", "▅" * 12, "0.25", "8", "3", "complete"]
    assert lines[2].split() == ["b", "11", "nan", "×" * 12, "0.25", "8", "3", "complete"]
    assert "a    3     nonfinite: [bold] the loss of a" in found.stdout


def test_a_killed_run_is_silent(path):
    run = RunWriter(path, COLUMNS, model="net")
    write_steps(run, 0, 12)
    run.flush()
    assert "running" in once(path).stdout
    for each in path.parent.iterdir():
        os.utime(each, (0, 0))
    assert "silent for" in once(path).stdout
    run.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.run", "file not found"),
        ("empty", "the folder has no runs (files *.run)"),
        ("text.run", "the file is not a run of schema"),
    ],
)
def test_mistakes(name, message, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.run").write_text("no run")
    found = once(tmp_path / name)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_file_that_is_damaged_meanwhile_is_an_error(path, is_terminal):
    run = RunWriter(path, COLUMNS, model="net")

    def wait():
        run.close()
        path.write_text("no run")

    with pytest.raises(RunError, match=r"first\.run: the file is not a run of schema"):
        follow(path, console(force_terminal=is_terminal), wait=wait)
    with pytest.raises(RunError, match="file not found"):
        follow(path.with_name("nowhere.run"), console())


def test_following_needs_no_torch(path):
    with RunWriter(path, COLUMNS, model="net") as run:
        write_steps(run, 0, 3)
    code = (
        "import sys; from chainrule.__main__ import commands\n"
        "commands(['runs', 'follow', sys.argv[1]], standalone_mode=False)\n"
        "assert not {'torch', 'pandas'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("first  complete\n")
