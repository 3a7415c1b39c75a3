"""A training as JSON: the rows of its updates, its scores, its picture of the data, and the data set itself."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import orjson

from chainrule.build import Training
from chainrule.build.data import data_set
from chainrule.dump.json_values import json_number, json_value
from chainrule.run import Retracer, environment
from chainrule.spec import ModelSpec
from chainrule.spec.data import DATA_SETS
from chainrule.stats import COLUMNS
from chainrule.trace import Trace
from chainrule.training.evaluation import (
    Pixels,
    Score,
    confusion_of,
    score_batch,
    score_held_out,
    surface_of,
)
from chainrule.training.events import TrainingEvents

TRAINING_SCHEMA = "chainrule.training/1"

MAX_ROWS = 2000
"""Maximum number of rows in one message, about. If there are more updates, it has every 2nd, 3rd, …, and always the
last and those with an event."""

RECORDED = 200
"""Approximate number of steps of `dump_run` whose layers have statistics."""

PARTS = ("preactivation", "activation", "gradient", "weight", "weight_gradient")
"""The tensors of a layer whose statistics a run holds."""

NORMS = ("weight_norms", "gradient_norms", "update_norms")
"""The columns of the updates that have a value per layer: L2 norms of its weight, of the gradient and of the update."""

STATISTICS = ("mean", "std", "zero_fraction", "nan", "posinf", "neginf", "dead_fraction", "saturation")
"""The columns of their statistics."""


def training_message(events: TrainingEvents, seq: int, told: int) -> str:
    """The live path's message about a training after the frame of its step: update number `told` and all later ones."""
    training = events.training
    return orjson.dumps(
        {
            "type": "training",
            "seq": seq,
            "step": training.step,
            **updates_json(events, told, training.step),
            "batch": score_json(score_batch(training)),
            "held_out": score_json(score_held_out(training)),
            "surface": surface_json(training),
            "confusion": confusion_json(training),
        }
    ).decode()


def updates_json(events: TrainingEvents, start: int, stop: int) -> dict[str, Any]:
    """The updates start … stop − 1: their events, and the steps and columns of their rows."""
    found, training = events.between(start, stop), events.training
    every = max(1, -(-(stop - start) // MAX_ROWS))
    steps = sorted({*range(start, stop, every), *range(stop - 1, start - 1, -1)[:1], *(event.step for event in found)})
    return {
        "rows": _rows_json(training, steps),
        "events": [{"step": event.step, "kind": event.kind, "text": event.text} for event in found],
    }


def _rows_json(training: Training, steps: list[int]) -> dict[str, Any]:
    rows = training.rows[steps]
    norms = rows[:, 2:].reshape(len(steps), len(NORMS), len(training.model.layers))
    return {
        "steps": steps,
        "loss": numbers(rows[:, 0]),
        "gradient_norm": numbers(rows[:, 1]),
        **{name: [numbers(layers) for layers in norms[:, place]] for place, name in enumerate(NORMS)},
    }


def numbers(values: np.ndarray[Any, Any]) -> list[Any]:
    """Numbers with 6 digits, as JSON; NaN and Inf become strings."""
    return [json_number(float(f"{value:.6g}")) for value in values]


def score_json(score: Score | None) -> dict[str, Any] | None:
    """A score as JSON; None stays None."""
    return None if score is None else {"loss": json_number(score.loss), "accuracy": score.accuracy}


def surface_json(training: Training) -> dict[str, Any] | None:
    """The decision surface with its pixels in base64; None for a net without a surface."""
    surface = surface_of(training)
    if surface is None:
        return None
    return {
        "extent": surface.extent,
        "output": pixels_json(surface.output),
        "units": [pixels_json(layer) for layer in surface.units],
    }


def pixels_json(pixels: Pixels) -> dict[str, Any]:
    """{"shape", "base64"}: bytes in row-major order."""
    return {"shape": list(pixels.shape), "base64": base64.b64encode(pixels.tobytes()).decode()}


def confusion_json(training: Training) -> dict[str, Any] | None:
    """The confusions; None if there are none."""
    confusion = confusion_of(training)
    return None if confusion is None else {"counts": confusion.counts, "wrong": confusion.wrong}


def dump_run(spec: ModelSpec) -> bytes:
    """The training of a spec from step 0 to its own step, as `chainrule.training/1`.

    `rows` has every update (at most MAX_ROWS rows), `layers` the statistics of about RECORDED steps, evenly spaced,
    including the first and the last.
    """
    every = max(1, -(-spec.step // RECORDED))
    steps = sorted({*range(0, spec.step, every), spec.step})
    retracer, training = Retracer(), Training(spec)
    retracer.training = training
    traces = []
    scores = []
    for step in steps:
        trace = retracer.trace(spec.replace(step=step))
        traces.append(_layer_columns(trace))
        scores.append((score_batch(training), score_held_out(training)))
    names = [layer.name for layer in training.model.layers]
    layers = {
        part: {
            statistic: [[json_number(layer[place]) for layer in trace[part]] for trace in traces]
            for place, statistic in enumerate(STATISTICS)
        }
        for part in PARTS
    }
    return orjson.dumps(
        {
            "schema": TRAINING_SCHEMA,
            "spec": spec.as_dict(),
            "environment": dict(environment(spec.device)),
            **updates_json(TrainingEvents(training), 0, spec.step),
            "steps": steps,
            "batch": [score_json(batch) for batch, _ in scores],
            "held_out": [score_json(held_out) for _, held_out in scores],
            "layers": {"names": names, **layers},
        }
    )


def _layer_columns(trace: Trace) -> dict[str, list[list[float | None]]]:
    """For each part the statistics of each layer's tensor; None for one that is missing or does not apply."""
    table, columns = trace.statistics, [COLUMNS.index(name) for name in STATISTICS]
    places = {tensor: place for place, tensor in enumerate(table.tensors)}
    found: dict[str, list[list[float | None]]] = {}
    for part in PARTS:
        rows = []
        for layer in trace.layers:
            place = places.get(getattr(layer, part) or "")
            values = [math.nan] * len(columns) if place is None else table.moments[place, columns].tolist()
            rows.append([None if math.isnan(value) else value for value in values])
        found[part] = rows
    return found


def dump_data(name: str, seed: int) -> bytes:
    """A data set: `x` and `y` to train on, and `held_out`."""
    data = data_set(name, seed)
    parts = {"x": data.x, "held_out_x": data.held_out_x}
    rounded = {key: [[round(value, 4) for value in row] for row in each.tolist()] for key, each in parts.items()}
    return orjson.dumps(
        {
            "data": name,
            "seed": seed,
            **DATA_SETS[name]._asdict(),
            **rounded,
            "y": json_value(data.y),
            "held_out_y": json_value(data.held_out_y),
        }
    )
