"""The run as JSON: its rows and statistics are those of the traces."""

import json

import numpy as np
import pytest

from chainrule.build import Training
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.training import wire
from chainrule.training.events import TrainingEvents
from chainrule.training.wire import PARTS, STATISTICS, dump_data, dump_run, training_message, updates_json
from chainrule.watching.events import Detector, Event


@pytest.mark.parametrize("query", ["step=7", "widths=2,9,2&data=moons&loss=cross_entropy&step=7&optimizer=adam"])
def test_a_run_holds_the_figures_of_its_traces(query):
    spec = ModelSpec.from_query(query)
    run = json.loads(dump_run(spec))
    assert run["schema"] == "chainrule.training/1"
    assert run["spec"] == spec.as_dict()
    assert run["steps"] == list(range(8))
    assert run["rows"]["steps"] == list(range(7))
    assert run["layers"]["names"] == ["layer 1", "layer 2"]
    for step in (0, 4, 7):
        trace = trace_spec(spec.replace(step=step))
        assert run["batch"][step]["loss"] == pytest.approx(trace.loss, rel=1e-5)
        if step < 7:
            assert run["rows"]["loss"][step] == pytest.approx(trace.loss, rel=1e-5)
        for part in PARTS:
            for name in STATISTICS:
                found = run["layers"][part][name][step]
                tensors = [getattr(layer, part) for layer in trace.layers]
                expected = [None if t is None else getattr(trace.statistics[t], name) for t in tensors]
                assert found == expected, (part, name)


def test_a_long_run_is_thinned(monkeypatch):
    monkeypatch.setattr(wire, "MAX_ROWS", 10)
    monkeypatch.setattr(wire, "RECORDED", 5)
    run = json.loads(dump_run(ModelSpec.parse({"widths": "3,2,1", "step": 33})))
    assert run["rows"]["steps"] == [0, 4, 8, 12, 16, 20, 24, 28, 32]
    assert run["steps"] == [0, 7, 14, 21, 28, 33]
    training = Training(ModelSpec.parse({"widths": "3,2,1"}))
    training.go_to(33)
    events = TrainingEvents(training)
    assert updates_json(events, 12, 33)["rows"]["steps"] == [12, 15, 18, 21, 24, 27, 30, 32]
    events._found.append(Event(13, "loss_spike", "high"))
    assert updates_json(events, 12, 33)["rows"]["steps"] == [12, 13, 15, 18, 21, 24, 27, 30, 32]


def test_a_run_that_diverges_is_valid_json():
    run = json.loads(dump_run(ModelSpec.parse({"lr": 1e9, "step": 60})))
    assert run["rows"]["loss"][-1] in ("NaN", "Infinity")
    assert run["batch"][-1]["loss"] in ("NaN", "Infinity")


def test_a_run_tells_its_events_and_a_message_those_of_its_updates():
    spec = ModelSpec.parse({"lr": 1e9, "step": 30})
    events = json.loads(dump_run(spec))["events"]
    assert [event["kind"] for event in events].count("nonfinite") == 1
    training = Training(spec)
    training.go_to(30)
    told = TrainingEvents(training)
    first, second = (json.loads(training_message(told, 1, start))["events"] for start in (0, 30))
    assert (first, second) == (events, [])


def test_events_compare_the_updates_of_the_weights(monkeypatch):
    training = Training(ModelSpec.parse({"widths": "3,4,2", "lr": 0.1}))
    training.go_to(1)
    seen = []
    monkeypatch.setattr(Detector, "update", lambda *given: seen.append(given[2:]) or [])
    TrainingEvents(training).between(0, 1)
    ((lr, updates, weights),) = seen
    before, after = (training.go_to(step).leaves["w2"].detach().double().clone() for step in (0, 1))
    assert (lr, updates.keys(), weights.keys()) == (0.1, {"layer 1", "layer 2"}, {"layer 1", "layer 2"})
    assert updates["layer 2"] == pytest.approx((after - before).norm().item(), rel=1e-5)
    assert weights["layer 2"] == pytest.approx(before.norm().item(), rel=1e-5)


def test_a_data_set_as_json():
    data = json.loads(dump_data("digits", 3))
    assert (data["features"], data["classes"], data["samples"], data["held_out"]) == (64, 10, 1437, 360)
    assert np.shape(data["x"]) == (1437, 64)
    assert np.shape(data["held_out_x"]) == (360, 64)
    assert len(data["y"]) == 1437
    assert len(data["held_out_y"]) == 360
