"""Runs in files: written, thinned, killed, damaged, and read meanwhile."""

import json
import logging
import math
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import chainrule
from chainrule.errors import RunError
from chainrule.history import Run, RunWriter, writer
from chainrule.history.schema import STEP_COLUMNS

WRITING = Path(__file__).with_name("writing.py")
COLUMNS = ("mean", "min", "max", "norm")
TENSORS = [("0", "activation"), ("0", "weight"), ("2", "activation")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "first.run"


def figures(step, count=3):
    """Figures that differ from step to step, and whose extremes lie inside of a run."""
    generator = np.random.default_rng(step)
    return generator.standard_normal((count, len(COLUMNS)))


def counts(step):
    return np.random.default_rng(step).integers(0, 9, (len(TENSORS), 64), np.uint32)


def write(path, steps, **options):
    with RunWriter(path, COLUMNS, model="net", **options) as run:
        for step in steps:
            run.add_step(step, loss=float(step), lr=0.1, seconds=0.5, gradient_norm=2.0)
            run.add_rows(step, TENSORS, figures(step), counts(step))
    return Run(path)


def test_what_is_written_is_read(path):
    with RunWriter(path, COLUMNS, spec={"seed": 7}, environment={"torch": "2"}, rank=1, world=2) as run:
        run.add_step(0, loss=2.5, lr=0.1, seconds=0.25, gradient_norm=3.0)
        run.add_step(3, loss=math.nan, gradient_norm=math.inf)
        run.add_rows(0, TENSORS, figures(0), counts(0))
        run.add_rows(3, TENSORS[:1], figures(3, 1))
        run.add_event(3, "nonfinite", "the loss is NaN", "0", node="log", batch=7, good_step=2, rng={"cpu": b"\0state"})
        run.add_trace(3, b'{"a": 1}')
    read = Run(path)
    assert (read.name, read.spec, read.model, read.environment) == ("first", {"seed": 7}, None, {"torch": "2"})
    assert (read.rank, read.world, read.columns, read.ended) == (1, 2, COLUMNS, "complete")
    steps = read.step_columns()
    assert tuple(steps) == STEP_COLUMNS
    assert (steps["step"], steps["lr"], steps["gradient_norm"]) == ([0, 3], [0.1, None], [3.0, math.inf])
    assert steps["loss"][0] == 2.5
    assert math.isnan(steps["loss"][1])
    rows = read.row_columns()
    assert list(zip(rows["step"], rows["layer"], rows["part"], strict=True)) == [
        (0, *TENSORS[0]),
        (0, *TENSORS[1]),
        (0, *TENSORS[2]),
        (3, *TENSORS[0]),
    ]
    found = np.stack([rows[name] for name in COLUMNS], 1)
    np.testing.assert_array_equal(found, np.concatenate((figures(0), figures(3, 1))))
    np.testing.assert_array_equal(read.row_columns(layer="0", part="weight")["norm"], figures(0)[1:2, 3])
    histograms = read.histograms(0)
    assert list(histograms) == TENSORS
    np.testing.assert_array_equal(histograms[TENSORS[2]], counts(0)[2])
    assert (read.histogram_steps, read.histograms(3)) == ([0], {})
    (event,) = zip(*read.event_columns().values(), strict=True)
    assert event == (3, "nonfinite", "the loss is NaN", "0", "log", 7, 2)
    assert read.rng_states(3) == {"cpu": b"\0state"}
    assert read.rng_states(2) == {}
    assert (read.trace_steps, read.trace(3)) == ([3], b'{"a": 1}')
    with pytest.raises(RunError, match=r"step 1 has no trace; the steps with a trace are 3"):
        read.trace(1)
    assert [each.name for each in path.parent.iterdir()] == ["first.run"], "a run that has ended is one file"


def test_a_run_is_read_while_it_is_written(path):
    with RunWriter(path, COLUMNS) as run:
        read = Run(path)
        assert (read.ended, read.step_columns()["step"]) == (None, [])
        run.add_step(0, loss=1.0)
        run.add_rows(0, TENSORS, figures(0))
        while not read.step_columns()["step"]:
            pass  # the writer's thread commits it
        assert len(read.row_columns()["step"]) == 3
        run.add_step(1)
        run.flush()
        assert read.step_columns()["step"] == [0, 1]
    assert read.ended == "complete"


def test_an_exception_ends_a_run(path):
    run = RunWriter(path, COLUMNS)
    run.add_step(0, loss=1.0)
    with pytest.raises(ValueError, match="no batch"), run:
        raise ValueError("no batch")
    assert Run(path).ended == "ValueError: no batch"
    assert Run(path).step_columns()["loss"] == [1.0]
    with pytest.raises(RunError, match="the run is closed"):
        run.add_step(1)


def test_the_end_of_the_process_commits_what_waits(path):
    code = f"from chainrule.history import RunWriter; RunWriter({str(path)!r}, ['mean']).add_step(4, loss=0.5)"
    subprocess.run([sys.executable, "-c", code], check=True)
    read = Run(path)
    assert (read.ended, read.step_columns()["loss"]) == ("the process ended", [0.5])


@pytest.mark.parametrize("limit", [writer.LIMIT, 400_000], ids=["whole", "thinned"])
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.long)])
def test_a_killed_process_leaves_a_run_with_all_that_was_committed(limit, kills, tmp_path):
    chance = random.Random(limit + kills)
    for number in range(kills):
        path = tmp_path / f"{number}.run"
        with subprocess.Popen([sys.executable, WRITING, path, str(limit)], stdout=subprocess.PIPE) as process:
            last = 0
            for _ in range(chance.randrange(1, 60)):
                last = int(process.stdout.readline())
            process.kill()
        read = Run(path)
        assert read.ended is None
        steps = read.step_columns()["step"]
        assert steps == list(range(len(steps)))
        assert steps[-1] >= last
        rows = read.row_columns()
        assert rows["step"][-1] >= last
        assert rows["mean"].tolist() == rows["norm"].tolist() == [float(step) for step in rows["step"]]
        if limit == writer.LIMIT:
            assert rows["step"] == [step for step in steps for _ in range(8)][: len(rows["step"])]
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_thinning_keeps_the_limit_the_extremes_and_the_events(path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_PENDING", 80_000)
    monkeypatch.setattr(writer, "DELETED_AT_ONCE", 7)
    count, limit = 3000, 400_000
    with RunWriter(path, COLUMNS, limit=limit) as run:
        for step in range(count):
            run.add_step(step, loss=float(step))
            run.add_rows(step, TENSORS, figures(step), counts(step))
            if step in (500, 1234):
                run.add_event(step, "spike", "the loss is high")
    # What waits is written before the size is measured, and once more while rows are deleted.
    assert path.stat().st_size < 1.05 * (limit + 2 * writer.MAX_PENDING)
    read = Run(path)
    assert read.step_columns()["step"] == list(range(count)), "the curve of the loss is whole"
    rows = read.row_columns()
    assert len(rows["step"]) < count
    everything = np.stack([figures(step) for step in range(count)])
    for tensor, (layer, part) in enumerate(TENSORS):
        own = read.row_columns(layer, part)
        for place, name in enumerate(COLUMNS):
            assert own[name].min() == everything[:, tensor, place].min()
            assert own[name].max() == everything[:, tensor, place].max()
    assert [rows["step"].count(step) for step in (500, 1234)] == [3, 3]
    # The newest steps are dense, whenever the last thinning was. Some 140 of the older ones fit into half of the room:
    # every 32nd step, or every 64th.
    kept = sorted(set(rows["step"]))
    assert kept[-50:] == list(range(count - 50, count))
    assert max(np.diff(kept)) <= 64
    for step in read.histogram_steps:
        for (layer, part), found in read.histograms(step).items():
            np.testing.assert_array_equal(found, counts(step)[TENSORS.index((layer, part))])


def test_the_losses_of_very_many_steps_are_thinned_too(path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_STEPS", 100)
    monkeypatch.setattr(writer, "MAX_PENDING", 10 * writer.RECORD)
    with RunWriter(path, COLUMNS, limit=0) as run:
        for step in range(1000):
            run.add_step(step, loss=math.sin(step))
    losses = Run(path).step_columns()["loss"]
    assert len(losses) <= 120
    assert (min(losses), max(losses)) == (
        min(map(math.sin, range(1000))),
        max(map(math.sin, range(1000))),
    )


def test_a_second_writer_is_refused(path):
    with RunWriter(path, COLUMNS) as run:
        run.add_step(0)
        with pytest.raises(RunError, match=r"first\.run: the file exists, and Chainrule never overwrites a run"):
            RunWriter(path, COLUMNS)
    assert Run(path).step_columns()["step"] == [0]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/first\.run: "):
        RunWriter(tmp_path / "file" / "first.run", COLUMNS)


def test_a_file_that_cannot_be_made_leaves_nothing_in_the_way_of_a_second_try(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(writer, "PRAGMAS", (*writer.PRAGMAS, "max_page_count = 1"))
        with pytest.raises(RunError, match="database or disk is full"):
            RunWriter(path, COLUMNS)
    assert list(path.parent.iterdir()) == []
    with RunWriter(path, COLUMNS) as run:
        run.add_step(0, loss=1.0)
    assert Run(path).step_columns()["loss"] == [1.0]


def test_a_full_disk_is_said_once_and_the_training_goes_on(path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "PRAGMAS", (*writer.PRAGMAS, "max_page_count = 40"))
    with caplog.at_level(logging.WARNING), RunWriter(path, COLUMNS) as run:
        for step in range(200):
            run.add_step(step, loss=1.0)
            run.add_rows(step, TENSORS, figures(step), counts(step))
            run.flush()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: database or disk is full; the training continues, but the rest of the run is not written"
    ]
    assert run.failure == "database or disk is full"
    read = Run(path)
    steps = read.step_columns()["step"]
    assert 0 < len(steps) < 200
    assert steps == list(range(len(steps)))
    assert read.row_columns()["step"] == [step for step in steps for _ in TENSORS]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_child_process_does_not_touch_its_parents_run(path):
    code = f"""
import os
from chainrule.history import RunWriter
run = RunWriter({str(path)!r}, ["mean"])
run.add_step(0, loss=1.0)
child = os.fork()
if child:
    os.waitpid(child, 0)
    run.add_step(1, loss=2.0)
else:
    run.add_step(9, loss=9.0)
    run.flush()
    run.close()
    os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    assert Run(path).step_columns()["loss"] == [1.0, 2.0]


def test_several_threads_write(path):
    with RunWriter(path, COLUMNS) as run:

        def some(first):
            for step in range(first, 400, 4):
                run.add_rows(step, TENSORS, figures(step))
                run.add_step(step)

        threads = [threading.Thread(target=some, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = Run(path)
    assert read.step_columns()["step"] == list(range(400))
    rows = read.row_columns()
    assert rows["step"] == [step for step in range(400) for _ in TENSORS]
    np.testing.assert_array_equal(rows["mean"], np.concatenate([figures(step)[:, 0] for step in range(400)]))


def test_layers_may_change_between_steps(path):
    with RunWriter(path, COLUMNS) as run:
        run.add_rows(0, TENSORS[:2], figures(0, 2))
        run.add_rows(1, TENSORS[2:], figures(1, 1))
    rows = Run(path).row_columns()
    assert list(zip(rows["layer"], rows["part"], strict=True)) == TENSORS


def damaged(path, kind):
    write(path, range(300))
    if kind == "cut":
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    elif kind == "overwritten":
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(bytes(8192))
    elif kind == "text":
        path.write_text("step,loss\n" * 100)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "missing":
        path.unlink()
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE run" if kind == "other" else "UPDATE run SET schema = 'chainrule.run/2'")
        connection.close()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut", "the file is cut short or damaged"),
        ("overwritten", "the file is cut short or damaged"),
        ("text", "the file is not a run of schema chainrule.run/1"),
        ("empty", "the file is not a run of schema chainrule.run/1"),
        ("other", "the file is not a run of schema chainrule.run/1"),
        ("missing", "file not found"),
        ("version", "the file has schema chainrule.run/2; this version of Chainrule reads chainrule.run/1"),
    ],
)
def test_a_file_that_is_no_run_is_an_error_in_one_line(kind, message, path):
    damaged(path, kind)
    with pytest.raises(RunError) as caught:
        Run(path)
    assert caught.value.message == f"{path}: {message}"


@pytest.mark.long
def test_flipped_bytes_are_read_or_refused_in_one_line(path):
    """SQLite does not notice most of them: a text that is no UTF-8, a row with too few numbers, an unknown tensor."""
    with RunWriter(path, COLUMNS, spec={"seed": 7}) as run:
        for step in range(4):
            run.add_step(step, loss=float(step), lr=0.1)
            run.add_rows(step, TENSORS, figures(step), counts(step))
        run.add_event(3, "nonfinite", "the loss is NaN", rng={"cpu": b"state"})
        run.add_trace(3, b'{"a": 1}')
    whole = path.read_bytes()
    chance = random.Random(0)
    seen = set()
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(20):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        path.write_bytes(broken)
        for read in (
            lambda: Run(path).progress(),
            lambda: Run(path).steps,
            lambda: Run(path).rows,
            lambda: Run(path).events,
            lambda: Run(path).histograms(2),
            lambda: Run(path).trace(3),
            lambda: Run(path).rng_states(3),
        ):
            try:
                read()
                seen.add("read")
            except RunError as error:
                seen.add(error.message.removeprefix(f"{path}: "))
    assert {"read", "the file is cut short or damaged"} <= seen


def test_a_folder_leaves_out_what_it_cannot_read(tmp_path):
    write(tmp_path / "b.run", range(2))
    (tmp_path / "a.run").write_text("no run")
    with pytest.warns(UserWarning, match=r"a\.run: the file is not a run"):
        found = chainrule.runs(tmp_path)
    assert [run.name for run in found] == ["b"]


def test_more_tables_and_columns_of_a_later_version_are_no_obstacle(path):
    write(path, range(3))
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE run ADD COLUMN author TEXT")
        connection.execute("ALTER TABLE step ADD COLUMN accuracy")
        connection.execute("CREATE TABLE cell (id)")
    connection.close()
    assert Run(path).step_columns()["loss"] == [0.0, 1.0, 2.0]


def test_the_runs_of_a_folder_as_tables(tmp_path):
    write(tmp_path / "b.run", range(2))
    write(tmp_path / "a.run", range(3))
    runs = chainrule.runs(tmp_path)
    assert [run.name for run in runs] == ["b", "a"], "in the order of their start"
    assert runs.steps.run.tolist() == ["b"] * 2 + ["a"] * 3
    assert runs.steps.step.tolist() == [0, 1, 0, 1, 2]
    assert runs.rows.columns.tolist() == ["run", "step", "layer", "part", *COLUMNS]
    assert len(runs.rows) == 15
    assert runs.events.empty
    alone = chainrule.runs(tmp_path / "a.run")
    pd.testing.assert_frame_equal(alone.steps.drop(columns="run"), alone[0].steps)
    assert alone[0].rows.dtypes["norm"] == np.float64


def test_without_pandas_a_table_is_a_list_of_dicts(path, monkeypatch):
    write(path, range(2))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (runs,) = chainrule.runs(path)
    assert runs.steps == [
        {"step": step, "loss": float(step), "lr": 0.1, "seconds": 0.5, "gradient_norm": 2.0} for step in range(2)
    ]
    assert runs.rows[0] == {"step": 0, "layer": "0", "part": "activation"} | dict(
        zip(COLUMNS, figures(0)[0].tolist(), strict=True)
    )
    assert runs.events == []


def test_history_needs_no_torch():
    code = "import sys, chainrule; chainrule.runs; assert not {'torch', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_spec_is_json(path):
    with RunWriter(path, COLUMNS, spec={"widths": [3, 1]}):
        pass
    with sqlite3.connect(path) as connection:
        (spec,) = connection.execute("SELECT spec FROM run").fetchone()
    connection.close()
    assert json.loads(spec) == {"widths": [3, 1]}


def test_the_example_of_the_guide_runs(path):
    text = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
    names = {}
    exec(text.split("## Read a run")[1].split("```python\n")[1].split("```")[0], names)
    with RunWriter(path, COLUMNS) as run:
        for step in range(3):
            run.add_rows(step, [("0", "weight_gradient"), ("0", "weight")], figures(step, 2))
    assert names["largest_gradients"](path).to_dict() == {"0": max(figures(step, 2)[0, 3] for step in range(3))}
