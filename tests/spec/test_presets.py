from functools import cache

import pytest
from figures import bands_of

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
    assert preset.statistic in {*bands_of_theory(preset), *preset.band, "nan"}


def test_no_two_presets_are_one_page():
    specs = [ModelSpec.parse({"preset": preset.name}).query() for preset in PRESETS]
    assert len(set(specs)) == len(specs)


@EVERY
def test_a_figure_has_one_band(preset):
    assert bands_of_theory(preset).keys().isdisjoint(preset.band)


@cache
def traced(name, seed):
    return trace_spec(ModelSpec.parse({**PRESET_BY_NAME[name].spec, "seed": seed}))


def bands_of_theory(preset):
    return bands_of(traced(preset.name, 42), preset.focus)


def measure(name, seed):
    """The figures that a band may bound: statistics of the focus, and the layers of the first overflow."""
    trace = traced(name, seed)
    row = trace.statistics[trace.tensor_by_name[PRESET_BY_NAME[name].focus].id]
    layers = [trace.statistics[layer.preactivation] for layer in trace.layers]
    return {
        "mean": row.mean,
        "std": row.std,
        "zero_fraction": row.zero_fraction,
        "first_inf_layer": next((index for index, layer in enumerate(layers, 1) if layer.posinf + layer.neginf), None),
        "first_nan_layer": next((index for index, layer in enumerate(layers, 1) if layer.nan), None),
    }


@pytest.mark.smoke
@pytest.mark.parametrize("preset", [each for each in PRESETS if each.band], ids=lambda preset: preset.name)
def test_the_preset_s_seed_is_in_its_own_band(preset):
    measured = measure(preset.name, 42)
    for name, (low, high) in preset.band.items():
        assert low <= measured[name] <= high, (name, measured)


@pytest.mark.long
@EVERY
def test_nineteen_of_twenty_seeds_are_in_the_band(preset):
    measured = [measure(preset.name, seed) for seed in SEEDS]
    for name, (low, high) in {**bands_of_theory(preset), **preset.band}.items():
        values = [figures[name] for figures in measured]
        assert sum(low <= value <= high for value in values) >= 19, (name, values)
