"""A folder of runs for the live page: changes, files that are not runs, and thinning that keeps extremes."""

import math
import os

import numpy as np
import pytest

from chainrule.errors import NotFoundError
from chainrule.history import Run, RunWriter, board, writer
from chainrule.history.board import Board, steps_after, table_after

COLUMNS = ("std", "norm")
LAYERS = ["l1", "l2", "l3"]


def write(path, losses, rows=None):
    """A run with these losses; `rows` are the figures of the part activation (steps, layers, columns)."""
    with RunWriter(path, COLUMNS, model="net") as run:
        for step, loss in enumerate(losses):
            run.add_step(step, loss=loss, gradient_norm=1.0)
            if rows is not None:
                run.add_rows(step, [(layer, "activation") for layer in LAYERS], rows[step])
    return Run(path)


def test_a_folder_is_listed_in_the_order_of_starts_with_the_errors_of_its_files(tmp_path):
    assert Board(tmp_path / "missing").listing() == []
    for name in ("b", "a"):
        write(tmp_path / f"{name}.run", [2.0, 1.0])
    whole = (tmp_path / "a.run").read_bytes()
    (tmp_path / "cut.run").write_bytes(whole[:5000])
    (tmp_path / "other.run").write_text("no database")
    (tmp_path / "notes.txt").write_text("not listed")
    found = {run["name"]: run for run in Board(tmp_path).listing()}
    assert list(found) == ["b", "a", "cut", "other"]
    assert (found["b"]["step"], found["b"]["loss"], found["b"]["ended"], found["b"]["error"]) == (
        1,
        1.0,
        "complete",
        None,
    )
    assert found["cut"]["error"] == "the file is cut short or damaged"
    assert found["other"]["error"] == "the file is not a run of schema chainrule.run/1"


def test_a_run_that_is_written_changes_its_state_and_others_are_not_read_again(tmp_path, monkeypatch):
    write(tmp_path / "done.run", [1.0])
    read = []
    monkeypatch.setattr(board, "Run", lambda path: read.append(path.stem) or Run(path))
    runs = Board(tmp_path)
    with RunWriter(tmp_path / "now.run", COLUMNS, model="net") as run:
        run.add_step(0, loss=3.0)
        run.flush()
        before = runs.listing()[1]
        run.add_step(1, loss=2.0)
        run.add_event(1, "loss_spike", "the loss is 2")
        run.flush()
        after = runs.listing()[1]
    assert (before["step"], before["events"], before["ended"]) == (0, 0, None)
    assert (after["step"], after["events"], after["loss"]) == (1, 1, 2.0)
    assert before["state"] != after["state"]
    assert read.count("done") == 1


@pytest.mark.parametrize(
    ("losses", "diverged"),
    [
        ([1.0, 2.0], None),
        ([1.0, math.nan, 2.0], None),
        ([1.0, math.nan, 2.0, math.inf, math.nan], 3),
        ([math.nan], 0),
        ([1.0, None], None),
    ],
)
def test_a_run_diverges_where_no_finite_loss_follows(tmp_path, losses, diverged):
    assert write(tmp_path / "x.run", losses).progress()["diverged"] == diverged


@pytest.mark.parametrize("name", ["../x", "x.run", "/etc/passwd", "", "X"])
def test_a_name_is_no_path(tmp_path, name):
    folder = tmp_path / "runs"
    write(tmp_path / "x.run", [1.0])
    write(folder / "y.run", [1.0])
    with pytest.raises(NotFoundError, match="the folder has no run"):
        Board(folder).find(name)
    assert Board(folder).find("y").name == "y"


def test_the_runs_written_last_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "MAX_RUNS", 2)
    for place, name in enumerate("abc"):
        write(tmp_path / f"{name}.run", [1.0])
        os.utime(tmp_path / f"{name}.run", (0, 1000 - place))
    assert [run["name"] for run in Board(tmp_path).listing()] == ["a", "b"]


def test_thinned_steps_keep_extremes_ends_and_where_nan_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "MAX_POINTS", 200)
    losses = np.random.default_rng(0).standard_normal(3000)
    losses[777], losses[1234] = 50, -50
    losses[2500:] = math.nan
    run = write(tmp_path / "x.run", losses.tolist())
    thinned = steps_after(run, -1)
    assert 60 < len(thinned["step"]) <= 200
    assert {0, 777, 1234, 2999} <= set(thinned["step"])
    assert 2500 <= min(step for step, loss in zip(thinned["step"], thinned["loss"], strict=True) if loss != loss) < 2600
    assert run.progress()["diverged"] == 2500
    assert all(np.array_equal(loss, losses[step], True) for step, loss in zip(*list(thinned.values())[:2], strict=True))
    assert steps_after(run, 2998)["step"] == [2999]


def test_a_table_has_a_figure_per_step_and_layer_and_keeps_its_extremes(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).uniform(1, 2, (400, 3, 2))
    rows[123, 1, 0], rows[300, 2, 0] = 9, math.inf
    run = write(tmp_path / "x.run", [1.0] * 400, rows)
    steps, layers, values = table_after(run, "activation", "std", 396)
    assert (steps, layers) == ([397, 398, 399], LAYERS)
    assert np.array_equal(values, rows[397:, :, 0])
    monkeypatch.setattr(board, "MAX_COLUMNS", 20)
    steps, _, values = table_after(run, "activation", "std", -1)
    assert len(steps) == 20
    assert {123, 300} <= set(steps)
    assert np.array_equal(values, rows[steps, :, 0])
    for part, statistic in (("gradient", "std"), ("activation", "ratio"), ("activation", "x")):
        with pytest.raises(NotFoundError):
            table_after(run, part, statistic, -1)


def test_the_ratio_is_the_norm_of_the_update_over_that_of_the_weight(tmp_path):
    with RunWriter(tmp_path / "x.run", COLUMNS, model="net") as run:
        keys = [("0.weight", "weight"), ("0.bias", "weight"), ("0.bias", "update"), ("0.weight", "update")]
        run.add_rows(0, keys, np.array([[0, 4.0], [0, 0.0], [0, 3.0], [0, 2.0]]))
        run.add_rows(1, keys[:2], np.array([[0, 4.0], [0, 1.0]]))  # its update is not recorded
    steps, layers, values = table_after(Run(tmp_path / "x.run"), "update", "ratio", -1)
    assert (steps, layers) == ([0], ["0.bias", "0.weight"])
    assert values == [[math.inf, 0.5]]


def test_a_value_that_is_not_finite_is_another_than_one_that_is_not_known(tmp_path):
    columns = ("norm", "dead_fraction", "nan", "posinf", "neginf")
    updates = {
        "finite": [2, 0.5, 0, 0, 0],
        "nan": [2, 0.5, 1, 1, 0],
        "inf": [math.nan, math.nan, 0, 3, 0],
        "neginf": [2, 0.5, 0, 0, 1],
        "empty": [math.nan, math.nan, 0, 0, 0],
        "zero": [0, 1, 0, 0, 0],
    }
    weights = [[4, math.nan, 0, 0, 0]] * 5 + [[0, math.nan, 0, 0, 0]]
    keys = [(layer, part) for part in ("update", "weight") for layer in updates]
    with RunWriter(tmp_path / "x.run", columns, model="net") as run:
        run.add_rows(0, keys, np.array([*updates.values(), *weights]))
        run.add_rows(1, keys[:1], np.array([updates["finite"]]))
    for statistic, expected in (
        ("norm", [[2, math.nan, math.inf, math.inf, None, 0], [2, *[None] * 5]]),
        ("ratio", [[0.5, math.nan, math.inf, math.inf, None, None]]),
        ("dead_fraction", [[0.5, 0.5, None, 0.5, None, 1], [0.5, *[None] * 5]]),
        ("nan", [[0, 1, 0, 0, 0, 0], [0, *[None] * 5]]),
    ):
        np.testing.assert_equal(table_after(Run(tmp_path / "x.run"), "update", statistic, -1)[2], expected, statistic)


def test_steps_of_which_thinning_has_left_few_layers_are_no_columns_and_their_extremes_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_PENDING", 80_000)
    rows = np.random.default_rng(0).uniform(1, 2, (4000, 3, 2))
    rows[1001, 1, 0], rows[2003, 2, 0], rows[2003, 0, 0] = 9, -7, 8  # odd steps are removed
    keys = [(layer, "activation") for layer in LAYERS]
    with RunWriter(tmp_path / "x.run", COLUMNS, model="net", limit=150_000) as run:
        for step, figures in enumerate(rows):
            run.add_rows(step, keys, figures)
    run = Run(tmp_path / "x.run")
    left = np.unique(run.row_columns()["step"], return_counts=True)
    assert sum(left[1] < 3) > 5, "thinning has left some layers of some steps"
    for most in (len(left[0]), 100):
        monkeypatch.setattr(board, "MAX_COLUMNS", most)
        steps, _, values = table_after(run, "activation", "std", -1)
        assert len(steps) <= most
        assert not any(None in row for row in values)
        table = np.array(values)
        assert (table[:, 0].max(), table[:, 1].max(), table[:, 2].min()) == (8, 9, -7)
        # A column stands for the steps up to the next one.
        for extreme, place in ((1001, table[:, 1].argmax()), (2003, table[:, 2].argmin())):
            assert steps[place] <= extreme < steps[place + 1]


def test_a_step_that_a_scaler_skips_is_a_column_although_it_has_no_updates(tmp_path):
    keys = [(layer, part) for part in ("activation", "update") for layer in LAYERS]
    with RunWriter(tmp_path / "x.run", COLUMNS, model="net") as run:
        for step in range(5):
            own = keys[:3] if step == 2 else keys
            run.add_rows(step, own, np.full((len(own), 2), 100.0 if step == 2 else float(step)))
        run.add_event(2, "overflow", "a gradient contains NaN or Inf")
    steps, _, values = table_after(Run(tmp_path / "x.run"), "activation", "std", -1)
    assert (steps, [row[0] for row in values]) == ([0, 1, 2, 3, 4], [0, 1, 100, 3, 4])


@pytest.mark.parametrize(
    ("first", "layers"), [(6, (1, 1, 3, 3, 1, 1)), (0, (3, 2, 3))], ids=["begin and end", "is not called"]
)
def test_steps_that_thinning_has_not_cut_are_columns_whatever_layers_they_have(tmp_path, first, layers):
    keys = [(layer, part) for part in ("weight", "update", "activation") for layer in LAYERS]
    with RunWriter(tmp_path / "x.run", COLUMNS, model="net") as run:
        for step, count in enumerate(layers):
            own = keys[first : 6 + count]
            run.add_rows(step, own, np.full((len(own), 2), float(step)))
    steps, _, values = table_after(Run(tmp_path / "x.run"), "activation", "std", -1)
    assert steps == list(range(len(layers)))
    assert values == [[step] * count + [None] * (3 - count) for step, count in enumerate(layers)]
