"""The controls of the init: ticks in units of the weights' std, snapping, labels, widths."""

import itertools
import math

import pytest

from chainrule.errors import SpecError
from chainrule.spec import ModelSpec
from chainrule.spec.values import widths_text

TICKS = "(m, [unit, n]) => m.snapTicks(unit, n, 1e-4, 1e4).map(({ label, scale }) => [label, scale])"


def test_ticks_stand_where_the_weights_have_that_std(module):
    kaiming = module("lab/scale-slider.js", TICKS, [math.sqrt(2 / 100), 100])
    assert kaiming == [[".01", 0.07071], ["1/√n", 0.7071], ["√2/√n", 1], ["1", 7.071]]
    assert module("lab/scale-slider.js", TICKS, [1, 100]) == [[".01", 0.01], ["1/√n", 0.1], ["√2/√n", 0.1414], ["1", 1]]
    # Many inputs: 1/√n lies below .01. Out of reach: none.
    wide = module("lab/scale-slider.js", TICKS, [1, 40_000])
    assert wide == [["1/√n", 0.005], ["√2/√n", 0.007071], [".01", 0.01], ["1", 1]]
    assert module("lab/scale-slider.js", TICKS, [0, 100]) == []
    assert [label for label, _ in module("lab/scale-slider.js", TICKS, [5e-6, 100])] == [".01"]


@pytest.mark.parametrize(
    ("at", "caught"),
    [(94, 0), (93.9, None), (100, 0), (102.9, 0), (104, None), (106.1, 1), (109, 1), (115, 1), (115.1, None)],
)
def test_the_nearest_tick_catches_and_leaves_room_between_two(module, at, caught):
    """Reach is 6; between two ticks 9 apart a third of the way belongs to each."""
    assert module("lab/scale-slider.js", "(m, at) => m.snap(at, [100, 109], 6)", at) == caught


def test_the_next_tick_is_never_the_one_that_one_stands_on(module):
    script = """(m, [scale, direction]) => m.nextTick(m.snapTicks(1, 100, 1e-4, 1e4), scale, direction)"""
    assert module("lab/scale-slider.js", script, [0.1414, 1]) == 1
    assert module("lab/scale-slider.js", script, [0.1414, -1]) == 0.1
    # √2/√n, typed with all its digits.
    assert module("lab/scale-slider.js", script, [0.14142135, -1]) == 0.1
    assert module("lab/scale-slider.js", script, [0.14142135, 1]) == 1
    assert module("lab/scale-slider.js", script, [1, 1]) is None
    assert module("lab/scale-slider.js", script, [1e-4, -1]) is None


def test_labels_never_overlap_and_the_first_in_rank_stay(module):
    labels = [
        {"left": left, "width": width, "rank": rank}
        for left, width, rank in [(0, 20, 4), (15, 10, 0), (24, 30, 1), (27, 30, 2), (95, 10, 3), (60, 10, 5)]
    ]
    fits = module("lab/scale-slider.js", "(m, labels) => m.fitLabels(labels, 100, 2)", labels)
    assert fits == [False, True, False, True, False, True]
    kept = sorted((label["left"], label["width"]) for label, fit in zip(labels, fits, strict=True) if fit)
    assert all(a + width + 2 <= b for (a, width), (b, _) in itertools.pairwise(kept))


@pytest.mark.parametrize(
    "text",
    ["100,50,1", "100x51", "100x2,50", "7,7,7,1,1", "1,1", "100", "100,", "0,1", "100x0", "100,x2", "1e2,1", "5x20000"],
)
def test_widths_are_read_and_written_as_the_server_does(module, text):
    try:
        widths = ModelSpec.from_query(f"widths={text}").widths
    except SpecError:
        assert module("lab/widths.js", "(m, text) => m.parseWidths(text)", text) is None
        return
    read, written = module(
        "lab/widths.js", "(m, text) => [m.parseWidths(text), m.widthsText(m.parseWidths(text))]", text
    )
    assert tuple(read) == widths
    assert written == widths_text(widths)


@pytest.mark.parametrize(
    ("step", "widths", "value", "result"),
    [
        ("withDepth", [100, 50, 1], 3, [100, 50, 50, 1]),
        ("withDepth", [100, 50, 30, 1], 2, [100, 50, 1]),
        ("withDepth", [100, 50, 1], 1, [100, 1]),
        ("withDepth", [100, 1], 2, [100, 100, 1]),
        ("withDepth", [100, 100, 100], 4, [100] * 5),
        ("withWidth", [100, 50, 30, 1], 20, [100, 20, 20, 1]),
        ("withWidth", [100, 100, 100], 20, [20, 20, 20]),
        ("withWidth", [100, 1], 20, [100, 1]),
    ],
)
def test_depth_and_width_edit_the_widths(module, step, widths, value, result):
    assert module("lab/widths.js", f"(m, [widths, value]) => m.{step}(widths, value)", [widths, value]) == result


def test_the_width_is_stepped_by_tens_and_below_ten_by_ones(module):
    script = "(m, [from, by]) => m.nextWidth(from, by)"
    up = {1: 2, 9: 10, 10: 20, 15: 20, 100: 110}
    down = {100: 90, 95: 90, 20: 10, 11: 10, 10: 9, 2: 1}
    assert {width: module("lab/widths.js", script, [width, 1]) for width in up} == up
    assert {width: module("lab/widths.js", script, [width, -1]) for width in down} == down
