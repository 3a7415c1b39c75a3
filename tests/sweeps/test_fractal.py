"""The border between training and divergence is a fractal: J. Sohl-Dickstein 2024, arXiv 2402.06184."""

import numpy as np
import pytest

from chainrule.spec import ModelSpec
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.run import run_sweep
from chainrule.sweeps.sweep import read_sweep

SIDE = 96
# Each lies in the one before.
ZOOMS = [
    ("0.1:0.6", "0.3:3"),
    ("0.2769:0.3472", "1.1106:1.4855"),
    ("0.31945:0.32871", "1.26295:1.31022"),
]


def box_dimension(trained):
    """The slope of the number of boxes with a piece of the border, by the size of the boxes."""
    border = np.zeros_like(trained)
    border[:-1] |= trained[:-1] != trained[1:]
    border[:, :-1] |= trained[:, :-1] != trained[:, 1:]
    sizes = [1, 2, 4, 8, 16]
    counts = [border.reshape(SIDE // size, size, SIDE // size, size).any((1, 3)).sum() for size in sizes]
    return -np.polyfit(np.log(sizes), np.log(counts), 1)[0]


def test_boxes_of_a_straight_line_have_dimension_1():
    column, row = np.mgrid[:SIDE, :SIDE]
    assert box_dimension(column > 0.7 * row) == pytest.approx(1, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize(("scale", "lr"), ZOOMS)
def test_the_border_has_a_published_dimension_at_every_zoom(scale, lr):
    spec = ModelSpec.from_query(next(each.spec for each in MAP_PRESETS if each.name == "fractal"))
    plan = read_sweep(spec, [f"scale=log:{scale}:{SIDE}", f"lr=log:{lr}:{SIDE}"], measure="loss_ratio")
    trained = run_sweep(plan).values[..., 0] < 1
    assert 1.17 <= box_dimension(trained) <= 1.98
