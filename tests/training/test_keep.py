"""The run of a spec: its rows are the statistics of the traces of its steps."""

import math
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.build import Training
from chainrule.dump.wire import load
from chainrule.errors import RunError, SpecError
from chainrule.history import Run
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.stats import COLUMNS
from chainrule.training.keep import keep_training
from chainrule.training.wire import PARTS


def train(*arguments):
    return CliRunner().invoke(commands, ["train", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("query", ["", "widths=2,9,2&data=moons&loss=cross_entropy&optimizer=adam&lr=0.05"])
def test_a_run_holds_the_figures_of_its_traces(query, tmp_path):
    done = train(query, "--steps", 25, "--keep", tmp_path / "first.run", "--every", 2)
    assert done.exit_code == 0
    assert re.fullmatch(r".*first\.run: the loss was \S+ at step 0 and is \S+ at step 25\n", done.output)
    spec = ModelSpec.from_query(query).replace(step=25)
    run = Run(tmp_path / "first.run")
    assert (run.spec, run.columns, run.ended) == (spec.as_dict(), COLUMNS, "complete")
    assert run.environment["device"] == "cpu"
    steps, training = run.step_columns(), Training(spec)
    training.go_to(25)
    assert steps["step"] == list(range(26))
    assert steps["loss"] == [*training.rows[:, 0].tolist(), trace_spec(spec).loss]
    assert steps["gradient_norm"] == [*training.rows[:, 1].tolist(), None]
    assert steps["lr"] == [spec.lr] * 26
    assert sorted(set(run.row_columns()["step"])) == [*range(0, 25, 2), 25]
    assert run.histogram_steps == [0, 20, 25]
    for step in (0, 8, 25):
        trace = trace_spec(spec.replace(step=step))
        histograms = run.histograms(step)
        for layer in trace.layers:
            for part in PARTS:
                rows = run.row_columns(layer.name, part)
                tensor = getattr(layer, part)
                assert (step in rows["step"]) == (tensor is not None)
                if tensor is None:
                    continue
                place = trace.statistics.row_of[tensor]
                found = [rows[name][rows["step"].index(step)] for name in COLUMNS]
                np.testing.assert_array_equal(found, trace.statistics.moments[place])
                if step in (0, 25):
                    np.testing.assert_array_equal(histograms[layer.name, part], trace.statistics.counts[place])


def test_the_command_prints_the_events(tmp_path):
    done = train("widths=2,16,2&data=moons&lr=1e9", "--steps", 5, "--keep", tmp_path / "first.run")
    first, second = done.output.splitlines()
    assert first.endswith("at step 0 and is nan at step 5")
    assert second.startswith("step 1: loss is the first tensor that is not finite")


def test_units_that_die_and_gradients_that_explode_are_events(tmp_path):
    train("widths=2,20x2,2&loss=cross_entropy&data=spirals&lr=30", "--steps", 60, "--keep", tmp_path / "first.run")
    run = Run(tmp_path / "first.run")
    events = run.event_columns()
    rows = run.row_columns("layer 2", "activation")
    dead = [step for step, fraction in zip(rows["step"], rows["dead_fraction"], strict=True) if fraction > 0.5]
    place = events["op"].index("layer 2")
    assert (events["kind"][place], events["step"][place]) == ("dead_units", dead[0])
    assert "gradient_explosion" in events["kind"]


def test_the_last_step_is_judged_and_an_event_tells_the_last_recorded_good_step(tmp_path):
    keep_training(ModelSpec.parse({"lr": 1e9, "step": 1}), tmp_path / "first.run")
    (event,) = zip(*Run(tmp_path / "first.run").event_columns().values(), strict=True)
    assert (event[0], event[1], event[-1]) == (1, "nonfinite", 0)
    keep_training(ModelSpec.parse({"lr": 1e3, "step": 60}), tmp_path / "second.run", every=4)
    events = Run(tmp_path / "second.run").event_columns()
    place = events["kind"].index("nonfinite")
    assert events["good_step"][place] == (events["step"][place] - 1) // 4 * 4


def test_a_norm_whose_square_overflows_is_no_nan():
    training = Training(ModelSpec.parse({"widths": "3,4,2"}))
    training.go_to(1)
    gradients = [torch.full_like(each, 1e25) for each in training._parameters]
    training._add_row(torch.tensor(1.0), gradients, gradients)
    elements = sum(each.numel() for each in gradients)
    assert training.rows[1, 1] == pytest.approx(1e25 * math.sqrt(elements))


def test_an_update_is_how_a_weight_changes(tmp_path):
    spec = ModelSpec.parse({"widths": "3,4,2", "step": 3, "lr": 0.1})
    keep_training(spec, tmp_path / "first.run", every=1)
    run, training = Run(tmp_path / "first.run"), Training(spec)
    weights = [training.go_to(step).leaves["w1"].detach().double().numpy().copy() for step in range(4)]
    rows = run.row_columns("layer 1", "update")
    assert rows["step"] == [0, 1, 2]
    np.testing.assert_allclose(rows["norm"], np.linalg.norm(np.diff(weights, axis=0), axis=(1, 2)), rtol=1e-5)


def test_the_step_with_the_first_nan_has_its_update(tmp_path):
    spec = ModelSpec.parse({"widths": "10,20,1", "step": 12, "lr": 1e5})
    keep_training(spec, tmp_path / "first.run", every=1)
    run = Run(tmp_path / "first.run")
    [step] = run.event_columns()["step"][:1]
    training = Training(spec)
    before, after = (training.go_to(each).leaves["w1"].detach().double().clone() for each in (step, step + 1))
    rows = run.row_columns("layer 1", "update")
    norm = rows["norm"][rows["step"].index(step)]
    change = (after - before).norm().item()
    assert norm == pytest.approx(change, rel=1e-5) if math.isfinite(change) else norm is None or norm != 0


def test_a_run_that_diverges_is_kept(tmp_path):
    keep_training(ModelSpec.parse({"lr": 1e9, "step": 60}), tmp_path / "first.run")
    run = Run(tmp_path / "first.run")
    losses = np.array(run.step_columns()["loss"])
    assert not np.isfinite(losses[-1])
    norms = np.array([math.nan if norm is None else norm for norm in run.step_columns()["gradient_norm"]])
    first = int(np.argmin(np.isfinite(losses + norms)))
    events = run.event_columns()
    place = events["kind"].index("nonfinite")
    assert events["step"][place] == events["batch"][place] == first
    assert "is the first tensor that is not finite" in events["text"][place]
    assert run.trace_steps == [first - 1, first]
    trace = load(run.trace(first))
    assert events["node"][place] in {op.id for op in trace.ops}
    assert [fault.kind for fault in load(run.trace(first - 1)).faults].count("first_nonfinite") == 0


def test_mistakes(tmp_path):
    keep = tmp_path / "first.run"
    with pytest.raises(SpecError, match="program: 'neuron' cannot be trained; only mlp can"):
        keep_training(ModelSpec.parse({"program": "neuron"}), keep)
    assert not keep.exists()
    assert train("step=2", "--keep", keep).exit_code == 0
    with pytest.raises(RunError, match="the file exists"):
        keep_training(ModelSpec(), keep)
    again = train("step=2", "--keep", keep)
    assert again.exit_code == 2
    assert "the file exists, and Chainrule never overwrites a run" in again.stderr
    wrong = train("program=neuron", "--steps", 3, "--keep", tmp_path / "other.run")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("chainrule: ")
