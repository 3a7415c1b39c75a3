"""The chapter's experiments come out as the theory says: at the preset's seed, and over twenty others."""

import statistics
from functools import cache

import pytest
import torch

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.presets import PRESETS

SEEDS = range(20)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for each other on a busy machine take longer than the work itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


PRESET = {preset.name: preset for preset in PRESETS}


@cache
def measure(name, seed):
    """The figures of one pass that a band can be for: the statistics of the focus, and where overflow begins."""
    preset = PRESET[name]
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
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_the_presets_own_seed_lies_in_the_band(preset):
    measured = measure(preset.name, 42)
    for name, (low, high) in preset.band.items():
        assert low <= measured[name] <= high, (name, measured)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_twenty_seeds_lie_about_the_band(preset):
    measured = [measure(preset.name, seed) for seed in SEEDS]
    for name, (low, high) in preset.band.items():
        values = [figures[name] for figures in measured]
        assert low <= statistics.median(values) <= high, (name, values)
        inside = sum(low <= value <= high for value in values)
        assert inside >= 0.8 * len(values), (name, values)


# The figures of the chapter's table, written down here once more: a preset must not move its own goalposts.
REFERENCE = {
    "randn": {"std": (9.66, 10.34)},
    "scaled": {"std": (0.966, 1.034)},
    "scaled-relu": {"mean": (0.379, 0.419), "std": (0.562, 0.607)},
    "kaiming-relu": {"mean": (0.536, 0.592), "std": (0.794, 0.859)},
    "deep-linear": {"std": (0.56, 1.69)},
    "deep-relu": {"std": (2.7e-9, 6.6e-8)},
    "deep-kaiming": {"std": (0.089, 2.22)},
}


def test_the_bands_are_the_references():
    bands = {preset.name: dict(preset.band) for preset in PRESETS}
    for name, band in REFERENCE.items():
        assert bands[name] == band


@pytest.mark.parametrize(
    ("name", "statistic", "median", "spread"),
    [
        ("randn", "std", 10.0, 1.01),
        ("scaled-relu", "mean", 0.3989, 1.03),
        ("scaled-relu", "std", 0.5838, 1.02),
        ("kaiming-relu", "mean", 0.5642, 1.03),
        ("kaiming-relu", "std", 0.8256, 1.02),
        ("deep-linear", "std", 0.922, 1.35),
        ("deep-kaiming", "std", 0.450, 1.9),
        ("deep-relu", "std", 0.450 / 2**25, 1.9),
    ],
)
def test_the_median_over_seeds_is_the_theorys(name, statistic, median, spread):
    """The standard error of the median of twenty is 1.25 σ/√20; `spread` is three of them, as a factor."""
    values = [measure(name, seed)[statistic] for seed in SEEDS]
    assert median / spread <= statistics.median(values) <= median * spread


def test_fifty_standard_normal_layers_overflow_where_float32_ends():
    """std 10^l: at layer 38 the first values pass 3.4e38, one layer later Inf - Inf, and two later nothing is left."""
    trace = trace_spec(ModelSpec.parse({"preset": "deep-exploding"}))
    rows = [trace.statistics[layer.preactivation] for layer in trace.layers]
    for index, row in enumerate(rows[:35], start=1):
        assert row.nan == row.posinf == row.neginf == 0
        assert 10**index / 5 < row.std < 10**index * 5
    first_inf = next(index for index, row in enumerate(rows, 1) if row.posinf + row.neginf)
    first_nan = next(index for index, row in enumerate(rows, 1) if row.nan)
    all_nan = next(index for index, row in enumerate(rows, 1) if row.nan == row.n)
    assert 37 <= first_inf <= 39
    assert first_inf <= first_nan <= 40
    assert first_nan <= all_nan <= 42
    assert all(row.nan == row.n and row.mean is None for row in rows[all_nan:])


def test_fifty_small_layers_vanish_where_float32_ends():
    trace = trace_spec(ModelSpec.parse({"preset": "deep-vanishing"}))
    rows = [trace.statistics[layer.preactivation] for layer in trace.layers]
    for index, row in enumerate(rows[:35], start=1):
        assert 10**-index / 5 < row.std < 10**-index * 5
    all_zero = next(index for index, row in enumerate(rows, 1) if row.zero_fraction == 1)
    assert 44 <= all_zero <= 48
    assert all(row.zero_fraction == 1 and row.std == 0 for row in rows[all_zero:])


@pytest.mark.parametrize(("scale", "expected"), [(0.09, 0.00515), (0.095, 0.0769), (0.105, 11.47), (0.11, 117.4)])
def test_the_knife_edge(scale, expected):
    """Without relu the std after 50 layers is (10 s)^50 times what it is at s = .1, of the very same draw."""
    at_edge = measure("deep-linear", 42)["std"]
    trace = trace_spec(ModelSpec.parse({"preset": "deep-linear", "scale": scale}))
    ratio = trace.statistics[trace.tensor_by_name["out"].id].std / at_edge
    assert ratio == pytest.approx((10 * scale) ** 50, rel=1e-4)
    assert ratio == pytest.approx(expected, rel=1e-3)
