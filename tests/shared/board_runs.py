"""A folder of runs as trainings leave it: two end well, one diverges and has graphs, two files are no runs."""

import math

import numpy as np

from chainrule.dump.wire import dump_trace
from chainrule.history import RunWriter
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

SPEC = ModelSpec.from_query("widths=2,16,2&loss=cross_entropy&data=moons&lr=0.1")
COLUMNS = ("std", "norm", "dead_fraction", "nan")
LAYERS = ("l1", "l2")
PARTS = ("activation", "weight", "update")

DIVERGES = 37
SPIKES = 22
SENTENCE = "forward: the output of l2 is NaN or Inf"


def write_steps(run, steps, loss):
    """Steps with losses and the statistics of layers; the norm of an update is 1/1000 of that of its weight."""
    for step in steps:
        run.add_step(step, loss(step), 0.1, gradient_norm=1 / (1 + step))
        figures = np.full((len(PARTS), len(LAYERS), len(COLUMNS)), math.nan)
        figures[..., 0] = [1 + step, 2 + step]
        figures[..., 1] = [[1], [1000], [1]]
        figures[..., 3] = math.isnan(loss(step))
        if math.isnan(loss(step)):
            figures[..., :3] = math.nan
        run.add_rows(step, [(layer, part) for part in PARTS for layer in LAYERS], figures.reshape(-1, len(COLUMNS)))


def write_runs(folder):
    for name, scale in (("first", 1.0), ("half", 0.5)):
        with RunWriter(folder / f"{name}.run", COLUMNS, spec=SPEC.replace(scale=scale).as_dict()) as run:
            write_steps(run, range(120), lambda step, scale=scale: scale / (1 + step))
    with RunWriter(folder / "nan.run", COLUMNS, model="Net(\n  (l1): Linear(in_features=2, out_features=16)\n)") as run:
        write_steps(run, range(80), lambda step: math.nan if step >= DIVERGES else 2.0 + (step == SPIKES) * 50)
        for step, seed in ((SPIKES, 1), (DIVERGES, 2)):
            run.add_trace(step, dump_trace(trace_spec(ModelSpec.from_query(f"widths=3,2,1&batch=2&seed={seed}"))))
        run.add_event(SPIKES, "loss_spike", "the loss is 52; the median of the last 22 steps is 2")
        run.add_event(DIVERGES, "nonfinite", SENTENCE, "l2")
    (folder / "cut.run").write_bytes((folder / "first.run").read_bytes()[:5000])
    (folder / "text.run").write_text("no database")
    return folder
