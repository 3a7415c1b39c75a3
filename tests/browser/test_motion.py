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
    [
        ("", "graph-view", 0.2),
        pytest.param("#fold=off", "graph-view", 0.1, marks=pytest.mark.long),
        ("#show=layers", "layers-view .frame", 0.2),
    ],
)
def test_fifty_layers_move_when_the_scale_does(explorer, view, centre, least):
    page = explorer.open(f"/?preset=deep-kaiming{view}").page
    before = page.locator(centre).screenshot()
    drag(page, 0.7)
    assert changed(before, page.locator(centre).screenshot()) > least


@pytest.mark.long
def test_the_colours_of_an_overlay_keep_their_range_while_the_scale_changes(explorer):
    page = explorer.open("/?preset=deep-kaiming#fold=off&colour=std").page
    legend, box = page.locator("graph-view .legend-scale"), page.locator('graph-view .box[data-id="l20"] .frame').first
    colour = "frame => getComputedStyle(frame).fill"
    before, fill = legend.inner_text(), box.evaluate(colour)
    drag(page, 0.7)
    assert legend.inner_text() == before
    assert box.evaluate(colour) != fill
    page.get_by_role("button", name="Fit each").click()
    drag(page, 0.8)
    assert legend.inner_text() != before


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


@pytest.mark.long
def test_the_outline_of_the_start_goes_when_the_drag_has_ended(explorer):
    page = explorer.open("/").page
    drag(page, 0.5)
    during = page.locator("graph-view").screenshot()
    page.evaluate(CHANGE.replace("moving: true", "moving: false"), 0.5)
    idle(page)
    assert changed(during, page.locator("graph-view").screenshot()) > 0.002


# Animations as they begin: of which box, for how long, from where, and whether the page counted as idle.
WATCH = """() => {
    window.motions = [];
    const { animate } = Element.prototype;
    Element.prototype.animate = function (way, options) {
        const animation = animate.call(this, way, options);
        const motion = { id: this.closest(".box")?.dataset.id ?? "", from: way[0].transform ?? "", ms: options.duration,
            isOver: false, idle: [] };
        const look = () => motion.idle.push(document.body.hasAttribute("data-idle"));
        look();
        animation.finished.then(() => { look(); motion.isOver = true; });
        window.motions.push(motion);
        return animation;
    };
}"""


def rect_of(page, name):
    return page.locator(f'graph-view .box[data-id="{name}"] .frame').bounding_box()


def toggle(page, name):
    group = page.locator(f'graph-view .box[data-id="{name}"]')
    if group.get_attribute("aria-expanded") == "false":
        group.hover()
    group.locator(".toggle").click()
    idle(page)


def test_boxes_move_when_a_group_opens_and_closes_and_the_page_is_busy_until_then(explorer):
    page = explorer.open("/").page
    page.evaluate(WATCH)
    for _ in ("opens", "closes"):
        toggle(page, "layers.0/forward")
        motions = page.evaluate("window.motions.splice(0)")
        assert {"layers.0/forward", "layers.0/backward", "x", "l1.g"} <= {motion["id"] for motion in motions}
        assert all(motion["isOver"] and motion["ms"] <= 200 for motion in motions)
        assert not any(any(motion["idle"]) for motion in motions)
    explorer.spend()


@pytest.mark.long
def test_what_a_group_holds_grows_out_of_its_box(explorer):
    page = explorer.open("/").page
    page.evaluate(WATCH)
    closed = rect_of(page, "layers.0/forward")
    toggle(page, "layers.0/forward")
    start = next(m["from"] for m in page.evaluate("window.motions") if m["id"] == "n0")
    # The first frame, put beside the last: where the box of the op begins on the screen.
    begins = page.evaluate(
        """([name, from]) => {
            const root = document.querySelector(`graph-view .box[data-id="${name}"]`);
            root.style.transform = from;
            const { x, y, right, bottom } = root.querySelector(".frame").getBoundingClientRect();
            root.style.transform = "";
            return [x, y, right, bottom];
        }""",
        ["n0", start],
    )
    assert closed["x"] <= begins[0] < begins[2] <= closed["x"] + closed["width"]
    assert closed["y"] <= begins[1] < begins[3] <= closed["y"] + closed["height"]
    explorer.spend()


@pytest.mark.long
def test_nothing_moves_for_a_reader_who_asked_for_less_motion(explorer):
    page = explorer.open("/").page
    page.emulate_media(reduced_motion="reduce")
    page.evaluate(WATCH)
    toggle(page, "layers.0/forward")
    assert page.evaluate("window.motions") == []
    explorer.spend()


@pytest.mark.long
@pytest.mark.parametrize("name", ["layers.0", "layers.1", "layers.2", "loss"])
def test_both_halves_of_an_opened_group_are_in_view_and_nothing_is_magnified(explorer, name):
    page = explorer.open("/").page
    before = page.evaluate("document.querySelector('graph-view').viewBox().width")
    toggle(page, f"{name}/forward")
    stage = page.locator("graph-view .stage").bounding_box()
    for half in ("forward", "backward"):
        frame = rect_of(page, f"{name}/{half}")
        assert stage["x"] <= frame["x"]
        assert frame["x"] + frame["width"] <= stage["x"] + stage["width"] + 0.5
        assert stage["y"] <= frame["y"]
        assert frame["y"] + frame["height"] <= stage["y"] + stage["height"] + 0.5
    assert page.evaluate("document.querySelector('graph-view').viewBox().width") >= before - 0.5
