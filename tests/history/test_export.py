"""A run for other tools: what they read is what the run holds."""

import csv
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from chainrule.__main__ import RunFormatName, RunTableName, commands
from chainrule.errors import MissingExtraError, RequestError
from chainrule.history import Run, RunWriter
from chainrule.history.export import FORMATS, TABLES, export

COLUMNS = ("mean", "min", "max", "norm")
VALUES = np.random.default_rng(0).standard_normal((3, 1000))


@pytest.fixture
def run(tmp_path):
    """Three steps of one weight, with the statistics and the histograms of VALUES."""
    with RunWriter(tmp_path / "first.run", COLUMNS) as writer:
        for step, values in enumerate(VALUES):
            writer.add_step(step, loss=1 / (1 + step), seconds=2.0)
            moments = np.array([[values.mean(), values.min(), values.max(), np.linalg.norm(values)]])
            counts = np.histogram(values, 64)[0].astype(np.uint32)
            writer.add_rows(step, [("0", "weight")], moments, counts[None])
        writer.add_event(2, "spike", "the loss is high")
    return Run(tmp_path / "first.run")


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv(run, tmp_path):
    export(run, tmp_path / "new" / "rows.csv")
    rows = read_csv(tmp_path / "new" / "rows.csv")
    assert list(rows[0]) == ["step", "layer", "part", *COLUMNS]
    assert [(row["step"], row["layer"], row["part"]) for row in rows] == [
        (str(step), "0", "weight") for step in range(3)
    ]
    assert [float(row["norm"]) for row in rows] == [np.linalg.norm(values) for values in VALUES]
    export(run, tmp_path / "steps.csv", table="steps")
    assert [row["loss"] for row in read_csv(tmp_path / "steps.csv")] == ["1.0", "0.5", str(1 / 3)]
    export(run, tmp_path / "events.csv", table="events")
    assert read_csv(tmp_path / "events.csv") == [
        {"step": "2", "kind": "spike", "text": "the loss is high", "op": "", "node": "", "batch": "", "good_step": ""}
    ]


@pytest.mark.parametrize("table", TABLES)
def test_parquet(table, run, tmp_path):
    from pyarrow.parquet import read_table

    export(run, tmp_path / "first.parquet", table=table)
    found = read_table(tmp_path / "first.parquet").to_pydict()
    assert found == {name: list(values) for name, values in TABLES[table](run).items()}


def test_tensorboard_reads_scalars_and_histograms(run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    export(run, tmp_path / "board", "tensorboard")
    read = EventAccumulator(str(tmp_path / "board"), {"scalars": 0, "histograms": 0, "tensors": 0})
    read.Reload()
    tags = read.Tags()
    assert {"loss", "seconds", "norm/0/weight"} <= {*tags["scalars"]}
    losses = read.Scalars("loss")
    assert [each.step for each in losses] == [0, 1, 2]
    assert [each.value for each in losses] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [each.wall_time - run.started for each in losses] == pytest.approx([2, 4, 6])
    for values, found in zip(VALUES, read.Histograms("histogram/0/weight"), strict=True):
        histogram = found.histogram_value
        assert (histogram.num, histogram.min, histogram.max) == (1000, values.min(), values.max())
        assert histogram.sum == pytest.approx(values.sum())
        assert histogram.sum_squares == pytest.approx((values**2).sum())
        counts, edges = np.histogram(values, 64)
        np.testing.assert_array_equal(histogram.bucket, counts)
        np.testing.assert_allclose(histogram.bucket_limit, edges[1:], atol=1e-12)


def test_the_command(run, tmp_path):
    def command(*arguments):
        return CliRunner().invoke(commands, ["runs", "export", *map(str, arguments)], catch_exceptions=False)

    assert command(run.path, "-o", tmp_path / "a.csv", "--table", "steps").exit_code == 0
    export(run, tmp_path / "b.csv", table="steps")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert command(run.path, "-o", tmp_path / "board", "--format", "tensorboard").exit_code == 0
    assert len(list((tmp_path / "board").iterdir())) == 1
    wrong = command(tmp_path / "a.csv", "-o", tmp_path / "c.csv")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        f"chainrule: {tmp_path / 'a.csv'}: the file is not a run of schema chainrule.run/1\n",
    )
    wrong = command(run.path, "-o", tmp_path / "c.xlsx")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "chainrule: format: 'xlsx' is not one of csv, parquet, tensorboard\n",
    )
    assert {each.value for each in RunFormatName} == {*FORMATS}
    assert {each.value for each in RunTableName} == {*TABLES}


def test_errors(run, tmp_path, monkeypatch):
    with pytest.raises(RequestError, match="table: 'losses' is not one of steps, rows, events"):
        export(run, tmp_path / "a.csv", table="losses")
    for module in ("pyarrow", "tensorboard.compat.proto.event_pb2"):
        monkeypatch.setitem(sys.modules, module, None)
    for form in ("parquet", "tensorboard"):
        with pytest.raises(MissingExtraError, match=rf"chainrule\[{form}\]"):
            export(run, tmp_path / "a", form)
