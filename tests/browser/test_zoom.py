"""Every page and view at 720 × 450 px, which is 1440 × 900 at a zoom of 200 %: nothing is out of reach."""

import pytest
from playwright.sync_api import expect
from views import EVERY_VIEW

pytestmark = pytest.mark.parametrize("context_options", [{"viewport": {"width": 720, "height": 450}}], ids=["zoomed"])

PICTURES = "graph-view .stage, layers-view .frame, layer-profile .frame"

BEYOND = """() => [...document.querySelectorAll("button, a[href], input, select, summary")].filter((control) =>
    control.checkVisibility({ visibilityProperty: true })
        && control.closest("svg, .visually-hidden, .skip, .skip-link") === null
).filter((control) => {
    // Whatever scrolls brings it into view.
    control.scrollIntoView({ block: "nearest", inline: "nearest" });
    const { left, right, top, bottom } = control.getBoundingClientRect();
    return left < -1 || right > innerWidth + 1 || top < -1 || (bottom > innerHeight + 1 && bottom - top < innerHeight);
}).map((control) => `${control.localName} ${control.textContent.trim()}`)"""


@pytest.mark.parametrize("view", EVERY_VIEW)
def test_no_control_is_out_of_reach(show, view):
    page = show(view)
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    assert page.evaluate(BEYOND) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "view", "graph coloured heatmap steps ratio landing teacher prediction mistake own dumps".split()
)
def test_a_picture_has_half_of_the_screen(show, view):
    page = show(view)
    pictures = page.locator(PICTURES).locator("visible=true")
    expect(pictures).to_have_count(1)
    pictures.scroll_into_view_if_needed()
    expect(pictures).to_be_in_viewport(ratio=0.99)
    assert pictures.bounding_box()["height"] >= 225


@pytest.mark.long
def test_the_slider_and_the_picture_of_a_lesson_are_in_sight_together(show):
    page = show("landing")
    slider, picture = page.locator("spec-controls .slider"), page.locator("layers-view .frame")
    below = picture.bounding_box()["y"] + picture.bounding_box()["height"]
    assert below - slider.bounding_box()["y"] <= 450


@pytest.mark.long
def test_a_long_menu_scrolls(explorer):
    page = explorer.open("/").page
    page.locator("#share summary").click()
    last = page.get_by_role("link", name="API documentation")
    last.scroll_into_view_if_needed()
    expect(last).to_be_in_viewport(ratio=1)
    assert page.evaluate("scrollY") == 0
