"""The code of `make bench`, on stand-ins: what it makes of times and failures, without measuring anything."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from chainrule.stats import StatisticsSlab
from chainrule.wire import load

# The files of a bench import each other as scripts do, by their names.
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import breakdown
import recording
import turns
import worker
from models import NAMES, Case
from peers import PEERS
from table import WIDTH, Section, render, times
from timing import interleave, quartiles, ratio
from turns import Candidate, MeasurementError, Worker, ratio_to, take_turns

pytestmark = pytest.mark.smoke

STAND_IN = """
import json, os, sys, time
names = sys.argv[2:]
if "absent" in names:
    print(json.dumps({"failure": "ModuleNotFoundError: No module named 'absent'"}), flush=True)
    sys.exit()
print(json.dumps({name: {"version": os.environ.get("CHAINRULE_KERNEL", "none")} for name in names}), flush=True)
for line in sys.stdin:
    name, calls = line.split()
    if name == "dies":
        os._exit(3)
    while name == "hangs":
        time.sleep(1)
    print(json.dumps({"seconds": int(calls) / 4}), flush=True)
"""


@pytest.fixture
def _stand_in(tmp_path, monkeypatch):
    """Worker processes that measure nothing and import no torch."""
    script = tmp_path / "worker.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(turns, "WORKER", script)


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    return Case(model, torch.randn(4, 3), torch.randn(4, 1))


def steady(seconds, **facts):
    return Candidate(lambda _: seconds, facts)


def failing(_):
    raise MeasurementError("RecursionError: maximum recursion depth exceeded")


def test_ratio_is_the_median_over_rounds_with_the_quartiles():
    measured = {"a": [2.0, 6.0, 8.0, 40.0, 3.0], "b": [1.0, 2.0, 2.0, 4.0, 1.0]}
    assert ratio(measured, "a", "b") == (3, 3, 4)
    assert quartiles([1, 2, 3, 4]) == (2.5, 1.75, 3.25)
    assert quartiles([7]) == (7, 7, 7)


def test_interleaved_candidates_run_equally_often_in_alternating_order(monkeypatch):
    monkeypatch.setattr("gc.collect", lambda: 0)  # slow among all that the tests have imported
    ran = []
    measured = interleave({"a": lambda: ran.append("a"), "b": lambda: ran.append("b")}, {}, 0, min_rounds=2)
    assert "".join(ran) == "aabb" + "ba" + "ab"
    assert [len(each) for each in measured.values()] == [2, 2]


def test_only_rounds_that_both_have_measured_count():
    one = Candidate(failing, times={0: 4.0, 2: 9.0, 5: 8.0})
    assert ratio_to(one, Candidate(failing, times={0: 2.0, 1: 7.0, 2: 3.0, 5: 1.0})) == (3, 2.5, 5.5)
    assert ratio_to(one, Candidate(failing, times={1: 7.0})) is None


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


@pytest.mark.usefixtures("_stand_in")
def test_a_process_answers_for_its_candidates(monkeypatch):
    monkeypatch.setenv("CHAINRULE_KERNEL", "of the user")
    groups = [
        ({"bare": "bare"}, {}),
        ({"fallback": "trace"}, {"CHAINRULE_KERNEL": "torch"}),
        ({"absent": "absent"}, {}),
    ]
    with turns.workers("M1", groups) as candidates:
        take_turns(candidates, "bare", calls=2, seconds=1)
    assert candidates["bare"].times == {0: 0.5, 1: 0.5, 2: 0.5}
    assert candidates["bare"].facts == {"version": "none"}
    assert candidates["fallback"].facts == {"version": "torch"}
    assert candidates["absent"].failure == "ModuleNotFoundError: No module named 'absent'"


@pytest.mark.usefixtures("_stand_in")
def test_a_process_that_dies_or_hangs_is_a_failure(monkeypatch):
    process = Worker("M1", ["dies", "hangs"])
    process.answer()
    with pytest.raises(MeasurementError, match="ended with exit code 3"):
        process.run("dies", 1)
    process.close()
    process = Worker("M1", ["hangs"])
    process.answer()
    monkeypatch.setattr(turns, "LIMIT", 0.05)
    with pytest.raises(MeasurementError, match=r"no answer within 0\.05 s"):
        process.run("hangs", 1)
    process.close()


def test_a_failure_is_told_by_type_and_first_line_of_its_cause():
    assert (
        worker.reason(RuntimeError("Error in dot:\n\n  no such file\nmore"))
        == "RuntimeError: Error in dot: no such file"
    )
    assert worker.reason(RecursionError()) == "RecursionError"
    error = RuntimeError("see below")
    error.__cause__ = ValueError("too deep\nsource: …")
    assert worker.reason(error) == "ValueError: too deep"


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_says_so(name, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, PEERS[name].package, None)
    with pytest.raises(ModuleNotFoundError, match=PEERS[name].package):
        worker.prepare(name, tiny)


def test_our_candidate_is_the_whole_trace(tiny):
    run, facts = worker.prepare("trace", tiny)
    dump = run()
    trace = load(dump)
    assert {op.phase for op in trace.ops} == {"forward", "backward"}
    assert facts["tensors"] == len(trace.statistics)
    assert facts["json_kb"] == pytest.approx(len(dump) / 1e3, abs=0.2)


def test_main_prints_one_table_and_writes_flat_figures(tmp_path, monkeypatch, capsys):
    @contextmanager
    def stand_ins(_, groups):
        known = {
            "bare": steady(0.5),
            "trace": steady(1.0, tensors=20, json_kb=13.2, kernel="native"),
            "no_compiler": steady(2.0, tensors=20, json_kb=13.2, kernel="torch"),
            "torchlens": steady(25.0, version="1.2.3"),
            "torchviz": Candidate(failing, {"version": "0.0.3"}),
        }
        yield {name: known[name] for group, _ in groups for name in group}

    def child(script, *_, **settings):
        if script == "memory.py":
            return {"bare_mb": 5.0, "trace_mb": 1.0, "json_mb": 0.1}
        dtypes = dict.fromkeys(("float32", "float64", "bfloat16", "float16"), 2.0 if settings else 0.5)
        return {"kernel": "native", "ns_per_element": dtypes, "floor_ratio": dtypes}

    monkeypatch.setattr(recording, "workers", stand_ins)
    monkeypatch.setattr(recording, "child", child)
    monkeypatch.setattr(recording, "RESULTS", tmp_path)
    monkeypatch.setattr(recording, "CALLS", {})
    monkeypatch.setattr(sys, "argv", ["recording.py", "--seconds", "0", "--peers", "torchlens,torchviz"])
    recording.main()

    figures = json.loads((tmp_path / "bench.json").read_text())
    assert [figures[name] for name in NAMES] == [2] * 5
    assert (figures["M1_low"], figures["M1_high"], figures["M1_no_compiler"]) == (2, 2, 4)
    assert (figures["M1_bare_ms"], figures["M1_tensors"], figures["M1_json_kb"]) == (500, 20, 13.2)
    assert figures["M1_kernel"] == "native"
    assert figures["kernel_ns_per_element"] == 0.5
    assert figures["kernel_floor_ratio_dram"] == 0.5
    assert figures["kernel_ns_per_element_float16_no_compiler"] == 2
    assert figures["torchlens_M5"] == 50
    assert figures["torchlens_version"] == "1.2.3"
    assert figures["torchviz_M1"] is None
    assert figures["torchviz_M1_failure"] == "RecursionError: maximum recursion depth exceeded"
    assert [figures[f"layer_us_{depth}"] for depth in (10, 30, 100, 300, 1000)] == [5e4, 16666.7, 5e3, 1666.7, 500]
    assert figures["environment"]["torch"] == torch.__version__
    assert all(not isinstance(value, (dict, list)) for name, value in figures.items() if name != "environment")

    printed = capsys.readouterr().out
    assert "torchviz fails on M5: RecursionError: maximum recursion depth exceeded" in printed
    assert max(map(len, printed.splitlines())) <= WIDTH
    (row,) = [line for line in printed.splitlines() if line.startswith("torchviz  ")]
    assert row.split() == ["torchviz"] + ["fails"] * 5


def test_a_failure_of_our_own_ends_the_bench():
    candidates = {"bare": steady(1.0), "trace": Candidate(failing)}
    take_turns(candidates, "bare", 1, 0)
    with pytest.raises(SystemExit, match="M1: RecursionError"):
        recording.model_figures("M1", candidates)


def test_names_are_checked():
    read = recording.names_of(NAMES)
    assert read("M1,M4") == ["M1", "M4"]
    assert read("none") == []
    with pytest.raises(recording.argparse.ArgumentTypeError, match="'M9' is none of M1, M2"):
        read("M9")


def test_the_table_aligns_and_wraps():
    text = render([Section("title", ["a", "b"], [("row", ["1", ""])], ["word " * 60])])
    assert text.splitlines()[1:3] == [f"{'title':34}{'a':>12}{'b':>12}", f"{'row':34}{'1':>12}{'':>12}"]
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert [times(1.866), times(45.12), times(112.4), times(None)] == ["1.87×", "45.1×", "112×", ""]


def test_the_floor_computes_what_the_bare_pass_does_and_leaves_no_hook(tiny):
    hooks = torch.nn.modules.module._global_forward_hooks
    before = len(hooks)
    tiny.bare()
    expected = [parameter.grad.clone() for parameter in tiny.model.parameters()]
    breakdown.under_empty_hooks(tiny)
    assert len(hooks) == before
    assert all(map(torch.equal, expected, (parameter.grad for parameter in tiny.model.parameters())))


def test_statistics_are_left_out_and_come_back(tiny):
    real = StatisticsSlab.take
    with breakdown.without_statistics():
        assert StatisticsSlab.take is not real
        blind = worker.record(tiny)
    assert StatisticsSlab.take is real
    seeing = worker.record(tiny)
    assert [op.name for op in blind.ops] == [op.name for op in seeing.ops]
    assert len(blind.statistics) == len(seeing.statistics)
