"""The layers view without its page: bins, axes, ticks, colours, columns, ranges, tables."""

import csv
import io
import itertools
import math
import re

import pytest
from node import ROOT

BINS = 96

DEEP = "preset=deep-exploding"

# A histogram on an axis, from plain numbers.
SPREAD = """async (module, { source, low, high, zeros, kind, from, to, threshold }) => {
    const { ValueAxis, BINS } = await import("/static/core/lab/value-axis.js");
    const axis = new ValueAxis(kind, from, to, threshold);
    const into = new Float64Array(BINS);
    const rest = module.spread(Uint32Array.from(source), low, high, zeros, axis, into);
    return { ...rest, counts: [...into], edges: [...axis.edges] };
}"""


def column(dump, tensor, statistic):
    statistics = dump["statistics"]
    return statistics[statistic][statistics["tensor"].index(tensor)]


def overlap(source, low, high, zeros, edges):
    """The counts of `source` over other edges, bin by bin and by area; exact zeros, if any, at zero."""
    width = (high - low) / len(source)
    counts = list(source)
    spread = [0.0] * (len(edges) - 1)
    if zeros:
        counts[min(len(source) - 1, int(-low / width))] -= zeros
        spread[max(index for index, edge in enumerate(edges[:-1]) if edge <= 0)] += zeros
    for index, count in enumerate(counts):
        start, end = low + index * width, low + (index + 1) * width
        for target, (a, b) in enumerate(itertools.pairwise(edges)):
            spread[target] += count * max(0.0, min(end, b) - max(start, a)) / width
    return spread


@pytest.mark.parametrize("kind", ["linear", "log"])
@pytest.mark.parametrize(
    ("low", "high", "zeros"),
    [(-3.0, 5.0, 0), (0.0, 7.3, 90), (-2.0, 0.0, 25), (0.4, 0.6, 0), (-1e-3, 1e-3, 7), (-900.0, 900.0, 0)],
)
def test_counts_are_spread_by_overlap_and_none_is_lost(module, kind, low, high, zeros):
    source = [
        (index * 37) % 101 + (100 if low + (high - low) * (index + 1) / 64 >= 0 >= low else 0) for index in range(64)
    ]
    view = {"source": source, "low": low, "high": high, "zeros": zeros}
    result = module(
        "lab/layer-histograms.js", SPREAD, view | {"kind": kind, "from": -4.0, "to": 8.0, "threshold": 0.01}
    )
    assert sum(result["counts"]) + result["below"] + result["above"] == pytest.approx(sum(source), rel=1e-12)
    assert result["counts"] == pytest.approx(overlap(source, low, high, zeros, result["edges"]), rel=1e-9, abs=1e-9)
    outside = [overlap(source, low, high, 0, edges)[0] for edges in ([-1e9, -4.0], [8.0, 1e9])]
    assert [result["below"], result["above"]] == pytest.approx(outside, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["linear", "log"])
@pytest.mark.parametrize(
    ("value", "where"), [(0.0, "inside"), (0.3, "inside"), (-4.0, 0), (4.0, 95), (4.5, "above"), (-9.0, "below")]
)
def test_equal_values_are_one_bin(module, kind, value, where):
    view = {"source": [500] + [0] * 63, "low": value, "high": value, "zeros": 500 if value == 0 else 0}
    result = module(
        "lab/layer-histograms.js", SPREAD, view | {"kind": kind, "from": -4.0, "to": 4.0, "threshold": 0.01}
    )
    held = {index: count for index, count in enumerate(result["counts"]) if count}
    outside = {name: result[name] for name in ("below", "above") if result[name]}
    if where in ("below", "above"):
        assert (held, outside) == ({}, {where: 500})
        return
    assert list(held.values()) == [500]
    assert outside == {}
    (index,) = held
    assert result["edges"][index] <= value <= result["edges"][index + 1]
    assert where in ("inside", index)


@pytest.mark.parametrize(
    ("low", "high", "threshold"),
    [(-4.0, 4.0, 1e-3), (-3.4e38, 3.4e38, 1e-45), (-1.7e308, 1.7e308, 1e-320), (0.2, 0.7, 0.1), (-1e-44, 1e-44, 1e-45)],
)
@pytest.mark.parametrize("kind", ["linear", "log"])
def test_the_axis_is_monotonic_and_inverts_itself(module, kind, low, high, threshold):
    script = """(m, [kind, low, high, threshold]) => {
        const axis = new m.ValueAxis(kind, low, high, threshold);
        const places = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1];
        return { edges: [...axis.edges], back: places.map((place) => axis.place(axis.value(place))), places,
                 bins: [low, high, axis.edges[40], 2 * low - high, 2 * high - low].map((value) => axis.binOf(value)) };
    }"""
    answer = module("lab/value-axis.js", script, [kind, low, high, threshold])
    edges = answer["edges"]
    assert (edges[0], edges[-1]) == (low, high)
    assert edges == sorted(set(edges))
    assert answer["back"] == pytest.approx(answer["places"], abs=1e-9)
    assert answer["bins"][:3] == [0, BINS - 1, 40]
    if math.isfinite(2 * high - low):
        assert answer["bins"][3:] == [-1, BINS]


def test_ticks_are_decades_on_both_sides_or_round_numbers(module):
    script = """(m, [kind, low, high, threshold, from, to]) =>
        new m.ValueAxis(kind, low, high, threshold).ticks(from, to, 400, 26).map(({ text }) => text)"""

    def ticks(*axis, part=(0, 1)):
        return module("lab/value-axis.js", script, [*axis, *part])

    assert set(ticks("linear", -4, 4, 1)) == {"−4", "−3", "−2", "−1", "0", "1", "2", "3", "4"}
    assert set(ticks("linear", -3e38, 3e38, 1)) >= {"−2e38", "0", "2e38"}
    assert set(ticks("linear", 0, 0.05, 1)) >= {"0", "0.01", "0.05"}
    log = ticks("log", -4, 4, 1e-3)
    assert {"0", "1", "−1", "0.1", "−0.1", "0.01", "−0.01"} <= set(log)
    assert {text.removeprefix("−") for text in log if text.startswith("−")} == {
        text for text in log if text[0] not in "−0"
    } | {text for text in log if text.startswith("0.")}
    wide = ticks("log", -3e38, 3e38, 1)
    assert {"10³⁰", "−10³⁰", "0"} <= set(wide)
    # A range without a decade has round numbers.
    assert len(ticks("log", 0.31, 0.69, 0.1)) >= 3
    assert set(ticks("linear", -4, 4, 1, part=(0.5, 0.75))) >= {"0", "0.2", "1", "2"}


def test_columns_run_in_depth_and_begin_with_the_input_where_there_is_one(module, dump_of):
    script = """async (m, dump) => {
        const { pictureOfDump } = await import("/static/core/picture.js");
        const picture = pictureOfDump(dump, 1, "k");
        const of = ["activation", "preactivation", "gradient", "weight", "weight_gradient"];
        const columns = (each) => m.layerColumns(picture, each).map(({ index, name }) => [index, name]);
        return Object.fromEntries(of.map((each) => [each, columns(each)]));
    }"""
    columns = module("lab/layer-histograms.js", script, dump_of(""))
    assert columns == {
        "activation": [[0, "x"], [1, "l2"], [2, "out"]],
        "preactivation": [[1, "l1"], [2, "out"]],
        "gradient": [[0, "x.g"], [1, "l2.g"], [2, "out.g"]],
        "weight": [[1, "w1"], [2, "w2"]],
        "weight_gradient": [[1, "w1.g"], [2, "w2.g"]],
    }


@pytest.mark.parametrize("style", ["layer_function", "module"])
def test_a_fixed_range_is_four_healthy_stds(module, dump_of, style):
    script = """async (m, [dump, of]) => {
        const { pictureOfDump } = await import("/static/core/picture.js");
        const picture = pictureOfDump(dump, 1, "k");
        return m.fixedRange(picture, m.layerColumns(picture, of), of);
    }"""

    def fixed(query, of):
        return module("lab/layer-histograms.js", script, [dump_of(f"style={style}&{query}"), of])

    for scale in (1, 30):
        assert fixed(f"scale={scale}", "activation")["high"] == 4
        # The narrower of the two layers, 50 → 1, has the larger weights, √(2/50) = 0.2.
        weights = fixed(f"scale={scale}", "weight")
        assert (weights["low"], weights["high"]) == pytest.approx((-0.8, 0.8))
        assert "√(2/50)" in weights["rule"]
    dump = dump_of(f"style={style}&widths=100x6")
    last = dump["layers"][-1]
    assert fixed("widths=100x6", "gradient")["high"] == pytest.approx(4 * column(dump, last["gradient"], "std"))
    assert fixed("widths=100x6", "weight_gradient")["high"] == pytest.approx(
        4 * column(dump, last["weight_gradient"], "std")
    )
    assert fixed(DEEP, "gradient") is None


def test_cells_of_a_table_are_quoted_where_they_must_be(module):
    table = [["a", 'say "x"', "b,c", "d\ne"], [0.1, 1e-45, 3.4028234663852886e38, -0.5]]
    text = module("lab/csv.js", "(m, table) => m.csv(table)", table)
    assert text == 'a,"say ""x""","b,c","d\ne"\r\n0.1,1e-45,3.4028234663852886e+38,-0.5\r\n'
    assert [float(cell) for cell in next(itertools.islice(csv.reader(io.StringIO(text, newline="")), 1, 2))] == table[1]


def luminance(hex_colour):
    parts = [int(hex_colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_more_is_always_darker_or_always_lighter(module, scheme):
    light, dark = (ROOT / "static/css/tokens.css").read_text().split("@media (prefers-color-scheme: dark)")
    tokens = dict(re.findall(r"--([\w-]+): (#\w{6})", light if scheme == "light" else dark))
    script = """(m, [paper, hue, ink]) => {
        const bytes = new Uint8Array(m.rampPixels(m.rampStops(paper, hue, ink)).buffer);
        const hex = (byte) => byte.toString(16).padStart(2, "0");
        const colour = (shade) => `#${[...bytes.subarray(4 * shade, 4 * shade + 3)].map(hex).join("")}`;
        const shades = Array.from({ length: 255 }, (_, shade) => colour(shade + 1));
        return { shades, first: bytes[3], second: bytes[7] };
    }"""
    for hue in ("forward", "backward", "parameter"):
        ramp = module("colours.js", script, [tokens["paper"], tokens[hue], tokens["ink"]])
        assert (ramp["first"], ramp["second"]) == (0, 255)
        shades = [luminance(shade) for shade in ramp["shades"]]
        # Bytes are rounded: neighbours may be the same shade.
        assert shades[::8] == sorted(shades[::8], reverse=scheme == "light")
        # One value differs from none, and the most from a few.
        contrast = sorted([luminance(tokens["paper"]) + 0.05, shades[-1] + 0.05])
        assert contrast[1] / contrast[0] > 5
        assert tokens["paper"] not in ramp["shades"]
