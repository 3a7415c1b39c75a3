import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.sweeps.conduct import Outcome
from chainrule.sweeps.run import run_sweep, sweep
from chainrule.sweeps.store import SweepStore
from chainrule.sweeps.sweep import read_sweep

NET = ModelSpec.from_query("widths=6x4&batch=8")
PLAN = read_sweep(NET, ["scale=0.5:2:6", "depth=2:4:3"], 2, "activation_std")


KILLED = Path(__file__).parents[1] / "shared" / "killed.py"


class StoppedError(Exception):
    pass


def stop(_):
    raise StoppedError


@pytest.mark.long
def test_a_stopped_sweep_goes_on_with_what_is_missing(tmp_path):
    # Long enough for several tasks.
    plan = read_sweep(NET.replace(step=1000), ["scale=0.5:2:6", "depth=2:4:3"], 2, "loss")
    expected = run_sweep(plan)
    with pytest.raises(StoppedError), SweepStore(tmp_path / "a.sweep", plan) as store:
        run_sweep(plan, store=store, progress=stop)
    with SweepStore(tmp_path / "a.sweep", plan) as store:
        known = int(store.read()[0].sum())
        assert 0 < known < plan.cells
        seen = []
        found = run_sweep(plan, store=store, progress=seen.append)
    assert found.values.tobytes() == expected.values.tobytes()
    assert seen[0].done > known
    assert seen[-1].done == plan.cells
    with SweepStore(tmp_path / "a.sweep", plan) as store:
        again = run_sweep(plan, store=store, progress=stop)  # has nothing to compute
    assert again.values.tobytes() == expected.values.tobytes()


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_process_leaves_all_finished_cells(kills, tmp_path):
    command = [sys.executable, KILLED, "sweep", tmp_path / "a.sweep", str(kills)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"whole {kills}\n"


def test_every_number_comes_back(tmp_path):
    values = np.array([np.nan, np.inf, -np.inf, 1 / 3, 5e-324, 0.0])
    cells = np.arange(6)
    with SweepStore(tmp_path / "a.sweep", PLAN) as store:
        store.add(Outcome(0, cells, values, 1.0, 1.0))
        store.add(Outcome(1, cells + 6, None, 0.0, 1.0, "failed 3 times: no memory"))
        known, found, reasons = store.read()
    assert known.sum() == 12
    np.testing.assert_array_equal(found[:6], values)
    assert reasons == dict.fromkeys(range(6, 12), "failed 3 times: no memory")
    with SweepStore(tmp_path / "a.sweep", PLAN) as store:
        # Cells that failed are tried again.
        assert store.read()[0].sum() == 6


def test_a_file_of_another_sweep_is_refused(tmp_path):
    path = tmp_path / "a.sweep"
    SweepStore(path, PLAN).close()
    with pytest.raises(SweepError, match=r"a\.sweep: the file holds another sweep, with other values of over, seeds"):
        SweepStore(path, read_sweep(NET, ["scale=0.5:2:7", "depth=2:4:3"], 3, "activation_std"))


def test_a_file_of_other_versions_is_refused(tmp_path):
    path = tmp_path / "a.sweep"
    SweepStore(path, PLAN).close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE sweep SET versions = replace(versions, ?, '2.0.1')", (torch.__version__,))
    file.close()
    with pytest.raises(
        SweepError,
        match=rf"a\.sweep: computed with .*torch 2\.0\.1.*, and this is .*torch {re.escape(torch.__version__)}",
    ):
        SweepStore(path, PLAN)


def test_a_second_writer_is_refused(tmp_path):
    with (
        SweepStore(tmp_path / "a.sweep", PLAN),
        pytest.raises(SweepError, match=r"a\.sweep: another process writes the file"),
    ):
        SweepStore(tmp_path / "a.sweep", PLAN)


def test_a_file_that_is_no_sweep_is_refused(tmp_path):
    path = tmp_path / "a.sweep"
    path.write_bytes(b"not SQLite at all, and long enough to be read as such" * 40)
    with pytest.raises(SweepError, match=r"a\.sweep: the file is not a sweep"):
        SweepStore(path, PLAN)
    with pytest.raises(SweepError, match="the file cannot be opened"):
        SweepStore(tmp_path / "no" / "a.sweep", PLAN)


def test_a_full_disk_ends_the_sweep_and_keeps_the_file(tmp_path):
    path = tmp_path / "a.sweep"
    with SweepStore(path, PLAN) as store:
        store.add(Outcome(0, np.arange(6), np.ones(6), 1.0, 1.0))
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        reason = "x" * 10_000
        with pytest.raises(SweepError, match=r"a\.sweep: database or disk is full"):
            store.add(Outcome(1, np.arange(6, 12), None, 0.0, 1.0, reason))
    with SweepStore(path, PLAN) as store:
        assert store.read()[0].sum() == 6


def test_the_python_function_keeps_its_cells(tmp_path):
    first = sweep(NET, ["scale=1,2"], keep=tmp_path / "b.sweep")
    with sqlite3.connect(tmp_path / "b.sweep") as file:
        assert file.execute("SELECT count(*) FROM cell").fetchone() == (2,)
    file.close()
    assert (
        sweep("widths=6x4&batch=8", ["scale=1,2"], keep=tmp_path / "b.sweep").values.tolist() == first.values.tolist()
    )
