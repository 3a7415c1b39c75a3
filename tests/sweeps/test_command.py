"""`chainrule sweep`, as a user runs it."""

import csv
import os
import re
import signal
import sqlite3
import subprocess

import pytest
from command import ENVIRONMENT, chainrule, command_line

from chainrule.spec import ModelSpec
from chainrule.sweeps.run import sweep

NET = "widths=16,16,1&activation=tanh&init=lecun_normal&bias=false&batch=16&dtype=float64"
OVER = ["scale=0.1:2:8", "depth=2:9:8"]
OPTIONS = [f"--over={OVER[0]}", f"--over={OVER[1]}", "--measure=loss_ratio"]


def kept(path):
    """The number of cells that the file of a sweep keeps, seen by another process."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0) as file:
            return file.execute("SELECT count(*) FROM cell").fetchone()[0]
    except sqlite3.OperationalError:
        return None
    finally:
        if "file" in locals():
            file.close()


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_the_command_writes_the_table(tmp_path):
    result = chainrule(
        "sweep",
        "widths=10x4",
        "--over=scale=0.5:2:3",
        "--over=depth=2,3",
        "--seeds=2",
        "-o",
        "map.csv",
        folder=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[-1].startswith("12 of 12 cells · ")
    assert result.stdout == "map.csv: 12 cells; map.sweep keeps them too\n"
    table = rows(tmp_path / "map.csv")
    assert table[0] == ["scale", "depth", "seed", "gradient_ratio"]
    expected = sweep("widths=10x4", ["scale=0.5:2:3", "depth=2,3"], seeds=2)
    assert [float(row[3]) for row in table[1:]] == expected.values.reshape(-1).tolist()


def test_a_dry_run_says_what_the_sweep_takes(tmp_path):
    result = chainrule("sweep", f"{NET}&step=50", *OPTIONS, "-o", "map.csv", "--dry-run", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    cells, flops, memory, time = result.stdout.splitlines()
    assert cells == "64 cells in 8 stacks"
    assert flops.endswith(" floating point operations")
    assert memory.endswith(" MiB of memory per process, beside PyTorch")
    assert time.startswith("about ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["widths=3x3", "--over=scal=1,2", "-o", "a.csv"], "over: scal: unknown key"),
        (["widths=3x3", "--over=scale=1,2", "-o", "a.png"], "a.png: the suffix is .png; it must be .csv or .parquet"),
        (["widhts=3", "--over=scale=1,2", "-o", "a.csv"], "widhts: unknown key"),
        (["widths=3x3", "--over=scale=1:2:1000000000", "-o", "a.csv"], "over: 1000000000 cells, about"),
        pytest.param(
            ["widths=3x3", "--over=scale=1,2", "-o", "a.csv", "--scheduler=tcp://127.0.0.1:1"],
            "scheduler: tcp://127.0.0.1:1 does not answer",
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_bad_input_is_one_line(tmp_path, arguments, says):
    result = chainrule("sweep", *arguments, folder=tmp_path, fresh=any("scheduler" in each for each in arguments))
    assert result.returncode in (1, 2)
    assert result.stderr.startswith(f"chainrule: {says}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize(("stop", "workers"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_a_stopped_command_goes_on_where_it_was(tmp_path, stop, workers):
    arguments = ["sweep", f"{NET}&step=2000", *OPTIONS, "-o", "map.csv", f"--workers={workers}"]
    # A new process: a copy of the tests' process could not start workers.
    process = subprocess.Popen(
        command_line(arguments, fresh=True), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    path = tmp_path / "map.sweep"
    assert re.match(r"\d+ of 64 cells · ", process.stderr.readline())
    process.send_signal(stop)
    _, said = process.communicate(timeout=600)
    assert process.returncode != 0, said
    before = kept(path)
    assert before
    if stop == signal.SIGINT:
        assert process.returncode == 128 + signal.SIGINT
        assert said.splitlines()[-1] == f"Stopped: map.sweep keeps {before} of 64 cells. The same command goes on."
    result = chainrule(*arguments, folder=tmp_path, fresh=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stderr.split()[0]) > before
    expected = sweep(ModelSpec.from_query(f"{NET}&step=2000"), OVER, measure="loss_ratio")
    expected.save(tmp_path / "expected.csv")
    assert (tmp_path / "map.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()


@pytest.mark.long
def test_ctrl_c_while_the_workers_start_is_one_line(tmp_path):
    """Ctrl-C in a terminal goes to the command and to its workers."""
    arguments = ["sweep", f"{NET}&step=1000", *OPTIONS, "-o", "map.csv", "--workers=2"]
    process = subprocess.Popen(
        command_line(arguments, fresh=True),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # The file appears before the workers start.
    while not (tmp_path / "map.sweep-wal").exists():
        assert process.poll() is None, process.stderr.read()
    while not subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, check=False).stdout:
        assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGINT, said
    assert re.fullmatch(
        r"(.* cells · .*\n)*Stopped: map\.sweep keeps \d+ of 64 cells\. The same command goes on\.\n", said
    )
