"""Saved files are whole: after a kill, on a full disk, with several writers, and through links and pipes."""

import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import orjson
import pytest
from torch import nn

import chainrule
from chainrule import ModelSpec, recording
from chainrule.errors import RequestError
from chainrule.saving import plain_cell, replacing, write_file

KILLED = Path(__file__).parent / "shared" / "killed.py"
SAVING = """
import resource, signal, sys
import chainrule
trace = chainrule.trace_spec(chainrule.ModelSpec.from_query("widths=100x11"))
path, limit = sys.argv[1], int(sys.argv[2])
# A file cannot grow beyond it, as on a full disk.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for _ in range(3):
    print("saved", chainrule.save(trace, path))
print("trained")
"""


@pytest.fixture(scope="module")
def trace():
    return chainrule.trace_spec(ModelSpec.from_query("widths=5,4,1"))


@pytest.fixture(autouse=True)
def _nothing_is_told(monkeypatch):
    monkeypatch.setattr(recording, "_told", set())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_process_leaves_a_whole_file(kills, tmp_path):
    command = [sys.executable, KILLED, "save", tmp_path / "step.json", str(kills)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"whole {kills}\n"


def test_a_full_disk_keeps_the_last_file_and_the_training_goes_on(trace, tmp_path):
    path = chainrule.save(trace, tmp_path / "step.json")
    before = path.read_bytes()
    limit = str(len(before) // 2)
    done = subprocess.run([sys.executable, "-c", SAVING, path, limit], capture_output=True, text=True, check=True)
    assert done.stdout == "saved None\nsaved None\nsaved None\ntrained\n"
    assert done.stderr.count("step.json was not saved: OSError: File too large") == 1
    assert path.read_bytes() == before
    assert names(tmp_path) == ["step.json"]


def test_one_failure_of_a_kind_is_one_warning_and_strict_raises(trace, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.warns(UserWarning, match=r"file/a\.json was not saved: FileExistsError: File exists\.") as caught:
        assert [chainrule.save(trace, file / name) for name in ("a.json", "b.json")] == [None, None]
    assert [each.filename for each in caught] == [__file__]
    with pytest.warns(UserWarning, match=r"a\.pt was not saved: RequestError: a\.pt: unknown suffix"):
        assert chainrule.save(trace, tmp_path / "a.pt") is None
    with pytest.raises(FileExistsError):
        chainrule.save(trace, file / "a.json", strict=True)
    with pytest.raises(RequestError, match="unknown suffix"):
        chainrule.save(trace, tmp_path / "a.pt", strict=True)
    net = nn.Linear(2, 1)
    with chainrule.record(net) as recorded:
        pass
    with pytest.raises(FileExistsError):
        recorded.save(file / "a.json", strict=True)
    recording._told.clear()
    with pytest.warns(UserWarning, match=r"b\.pt: unknown suffix") as caught:
        assert [recorded.save(tmp_path / name) for name in ("b.pt", "c.pt", "d.pt")] == [None, None, None]
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings(action="error"):
        assert recorded.save(tmp_path / "c.pth") is None
    assert names(tmp_path) == ["file"]


def test_several_writers_never_tear_a_read(tmp_path):
    path, ended = tmp_path / "step.json", threading.Event()
    contents = [orjson.dumps([number] * 200_000) for number in range(3)]
    write_file(path, [contents[0]])

    def write(content):
        while not ended.is_set():
            write_file(path, [content])

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for each in writers:
        each.start()
    try:
        assert all(path.read_bytes() in contents for _ in range(300))
    finally:
        ended.set()
        for each in writers:
            each.join()
    assert names(tmp_path) == ["step.json"]


def test_permissions_and_links_stay(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link.json"
    folder.mkdir()
    path = folder / "a.json"
    before = os.umask(0o027)
    try:
        write_file(path, [b"1"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        link.symlink_to(path)
        write_file(link, [b"2"])
    finally:
        os.umask(before)
    assert (path.read_bytes(), link.is_symlink()) == (b"2", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert names(folder) == ["a.json"]


def test_pipes_and_devices_are_written_as_they_are(tmp_path):
    write_file(Path(os.devnull), [b"1"])
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, [b"123"])
    reader.join()
    assert read == [b"123"]
    assert pipe.is_fifo()


def test_standard_output_is_written_as_it_is():
    code = (
        "import pathlib; from chainrule.saving import write_file; write_file(pathlib.Path('/dev/stdout'), [b'written'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"written"


def test_a_file_that_may_not_be_written_stays(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b"1")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    with pytest.raises(PermissionError):
        write_file(path, [b"2"])
    assert (path.read_bytes(), names(tmp_path)) == (b"1", ["a.json"])


def test_an_error_leaves_no_file(tmp_path):
    path = tmp_path / ("a" * 240 + ".json")

    def interrupted():
        with replacing(path) as made:
            made.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []
    write_file(path, [b"whole"])
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-a", "-"])
def test_a_formula_in_a_cell_is_text(text):
    assert plain_cell(text) == f"'{text}"


@pytest.mark.parametrize("cell", ["", "a=b", "-0.5", "+1e-45", "-Infinity", -1, -0.5, None, "layers.0"])
def test_other_cells_stay(cell):
    assert plain_cell(cell) == cell
