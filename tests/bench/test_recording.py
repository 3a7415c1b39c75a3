"""The code of `make bench` on stand-ins, without measuring anything: ratios, turns, failures."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

# The files of a bench import each other as scripts do, by their names.
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import recording
import turns
from models import NAMES, Case
from peers import PEERS
from turns import Candidate, MeasurementError, ratio_to, take_turns

pytestmark = pytest.mark.smoke


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    return Case(model, torch.randn(4, 3), torch.randn(4, 1))


def steady(seconds, **facts):
    return Candidate(lambda _: seconds, facts)


def failing(_):
    raise MeasurementError("RecursionError: maximum recursion depth exceeded")


def test_slow_candidates_get_fewer_rounds_and_a_failing_one_stops_nobody():
    candidates = {"bare": steady(0.25), "slow": steady(50.0), "quick": steady(0.5), "broken": Candidate(failing)}
    take_turns(candidates, "bare", calls=2, seconds=10)
    assert {name: len(each.times) for name, each in candidates.items()} == {
        "bare": 20,
        "slow": turns.MIN_ROUNDS,
        "quick": 10,
        "broken": 0,
    }
    assert candidates["broken"].failure == "RecursionError: maximum recursion depth exceeded"
    assert ratio_to(candidates["slow"], candidates["bare"]) == (200, 200, 200)
    assert ratio_to(candidates["broken"], candidates["bare"]) is None


KNOWN = {
    "bare": lambda: steady(0.5),
    "trace": lambda: steady(1.0, tensors=20, json_kb=13.2, kernel="native"),
    "no_compiler": lambda: steady(2.0, tensors=20, json_kb=13.2, kernel="torch"),
    "torchlens": lambda: steady(25.0),
    "torchviz": lambda: Candidate(failing),
}


@pytest.fixture
def run_main(tmp_path, monkeypatch, capsys):
    """Runs `main` on stand-ins; gives its exit status, what it prints, and the folder of its results."""

    def child(script, *_, **settings):
        if script == "memory.py":
            return {"bare_mb": 5.0, "trace_mb": 1.0, "json_mb": 0.1}
        dtypes = dict.fromkeys(("float32", "float64", "bfloat16", "float16"), 2.0 if settings else 0.5)
        return {"kernel": "native", "ns_per_element": dtypes, "floor_ratio": dtypes}

    def run(*arguments, child=child, **instead):
        @contextmanager
        def stand_ins(model, groups):
            names = [name for group, _ in groups for name in group]
            yield {name: instead[name](model) if name in instead else KNOWN[name]() for name in names}

        monkeypatch.setattr(recording, "workers", stand_ins)
        monkeypatch.setattr(recording, "child", child)
        monkeypatch.setattr(recording, "RESULTS", tmp_path)
        monkeypatch.setattr(recording, "CALLS", {})
        monkeypatch.setattr(recording, "PEERS", {name: PEERS[name] for name in ("torchlens", "torchviz")})
        monkeypatch.setattr(sys, "argv", ["recording.py", "--seconds", "1", *arguments])
        try:
            recording.main()
            status = 0
        except SystemExit as error:
            status = error.code
        return status, capsys.readouterr().out, tmp_path

    return run


def test_main_prints_one_table_and_writes_flat_figures(run_main):
    status, printed, results = run_main()
    figures = json.loads((results / "bench.json").read_text())
    assert status == 0
    assert [figures[name] for name in NAMES] == [2] * 5
    assert (figures["M1_low"], figures["M1_high"], figures["M1_no_compiler"]) == (2, 2, 4)
    assert (figures["M1_bare_ms"], figures["M1_tensors"], figures["M1_json_kb"]) == (500, 20, 13.2)
    assert figures["M1_kernel"] == "native"
    assert figures["kernel_ns_per_element"] == 0.5
    assert figures["kernel_floor_ratio_dram"] == 0.5
    assert figures["kernel_ns_per_element_float16_no_compiler"] == 2
    assert figures["torchlens_M5"] == 50
    assert figures["torchviz_M1"] is None
    assert figures["torchviz_M1_failure"] == "RecursionError: maximum recursion depth exceeded"
    assert [figures[f"layer_us_{depth}"] for depth in (10, 30, 100, 300, 1000)] == [5e4, 16666.7, 5e3, 1666.7, 500]
    assert figures["environment"]["torch"] == torch.__version__
    assert all(not isinstance(value, (dict, list)) for name, value in figures.items() if name != "environment")
    assert "torchviz fails on M5: RecursionError: maximum recursion depth exceeded" in printed


def test_a_failure_of_our_own_is_a_row_and_the_others_are_written(run_main):
    status, _, results = run_main(trace=lambda model: Candidate(failing) if model == "M2" else KNOWN["trace"]())
    figures = json.loads((results / "bench-partial.json").read_text())
    assert status == 1
    assert not (results / "bench.json").exists()
    assert figures["M2_failure"] == "RecursionError: maximum recursion depth exceeded"
    assert [figures[each] for each in NAMES] == [2, None, 2, 2, 2]
