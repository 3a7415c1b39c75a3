import statistics
from functools import cache

import pytest

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.presets import PRESET_BY_NAME, PRESETS

SEEDS = range(20)
EVERY = pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)


@EVERY
def test_a_preset_is_well_formed(preset):
    spec, default = ModelSpec.parse({"preset": preset.name}), ModelSpec()
    assert ModelSpec.from_query(spec.query()) == spec
    changed = {name for name in ModelSpec.model_fields if getattr(spec, name) != getattr(default, name)}
    assert changed == set(preset.spec)
    assert preset.statistic in {*preset.band, "nan"}


@cache
def measure(name, seed):
    """The figures that a band may bound: statistics of the focus, and the layers of the first overflow."""
    preset = PRESET_BY_NAME[name]
    trace = trace_spec(ModelSpec.parse({**preset.spec, "seed": seed}))
    row = trace.statistics[trace.tensor_by_name[preset.focus].id]
    layers = [trace.statistics[layer.preactivation] for layer in trace.layers]
    return {
        "mean": row.mean,
        "std": row.std,
        "zero_fraction": row.zero_fraction,
        "first_inf_layer": next((index for index, layer in enumerate(layers, 1) if layer.posinf + layer.neginf), None),
        "first_nan_layer": next((index for index, layer in enumerate(layers, 1) if layer.nan), None),
    }


@pytest.mark.smoke
@EVERY
def test_the_preset_s_seed_is_in_the_band(preset):
    measured = measure(preset.name, 42)
    for name, (low, high) in preset.band.items():
        assert low <= measured[name] <= high, (name, measured)


@pytest.mark.long
@EVERY
def test_twenty_seeds_are_about_the_band(preset):
    measured = [measure(preset.name, seed) for seed in SEEDS]
    for name, (low, high) in preset.band.items():
        values = [figures[name] for figures in measured]
        assert low <= statistics.median(values) <= high, (name, values)
        assert sum(low <= value <= high for value in values) >= 0.8 * len(values), (name, values)
