"""The picture moves with the slider: one axis for all tensors of a kind, kept while the scale changes."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageChops
from waiting import idle

CHANGE = """(scale) => document.querySelector("spec-controls").dispatchEvent(
    new CustomEvent("spec-change", { bubbles: true, detail: { change: { scale }, moving: true } }))"""


def drag(page, scale):
    page.evaluate(CHANGE, scale)
    idle(page)


def changed(one, two):
    """The share of pixels that differ by more than 8 of 255."""
    first, second = (Image.open(io.BytesIO(each)).convert("RGB") for each in (one, two))
    differences = ImageChops.difference(first, second).convert("L").histogram()
    return sum(differences[9:]) / sum(differences)


@pytest.mark.parametrize(
    ("view", "centre", "least"),
    [("", "graph-view", 0.2), ("#fold=off", "graph-view", 0.1), ("#show=layers", "layers-view .frame", 0.2)],
)
def test_fifty_layers_move_when_the_scale_does(explorer, view, centre, least):
    page = explorer.open(f"/?preset=deep-kaiming{view}").page
    before = page.locator(centre).screenshot()
    drag(page, 0.7)
    assert changed(before, page.locator(centre).screenshot()) > least


def test_fit_each_gives_every_histogram_its_own_axis(explorer):
    page = explorer.open("/").page
    drag(page, 0.01)
    shared = page.locator("graph-view").screenshot()
    button = page.get_by_role("button", name="Fit each")
    button.click()
    idle(page)
    assert page.evaluate("location.hash") == "#bins=own"
    assert button.get_attribute("aria-pressed") == "true"
    assert changed(shared, page.locator("graph-view").screenshot()) > 0.005


def test_the_outline_of_the_start_goes_when_the_drag_has_ended(explorer):
    page = explorer.open("/").page
    drag(page, 0.5)
    during = page.locator("graph-view").screenshot()
    page.evaluate(CHANGE.replace("moving: true", "moving: false"), 0.5)
    idle(page)
    assert changed(during, page.locator("graph-view").screenshot()) > 0.002
