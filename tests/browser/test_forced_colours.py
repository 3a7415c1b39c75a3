"""Where the system sets the colours, what is pressed, chosen, focused or drawn stays apart from what is not."""

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import expect

pytestmark = pytest.mark.long

SYSTEM = {"light": ((255, 255, 255), (0, 0, 0)), "dark": ((0, 0, 0), (255, 255, 255))}
"""The system's ground and ink, as Chromium emulates them."""


@pytest.fixture(params=SYSTEM)
def scheme(request):
    return request.param


@pytest.fixture
def context_options(scheme):
    return {"viewport": {"width": 1440, "height": 900}, "forced_colors": "active", "color_scheme": scheme}


def background(control):
    return control.evaluate("(control) => getComputedStyle(control).backgroundColor")


def words(control):
    return control.evaluate("(control) => getComputedStyle(control).color")


def image_of(locator):
    return Image.open(io.BytesIO(locator.screenshot())).convert("RGB")


def luminance(colour):
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """WCAG's contrast of two colours."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def rgb(text, ground=None):
    """The colour that `rgb(1, 2, 3)`, `rgba(1, 2, 3, 0.8)` or `#010203` names; the ground where nothing covers it."""
    if text.startswith("#"):
        return tuple(bytes.fromhex(text[1:]))
    return ground if text == "rgba(0, 0, 0, 0)" else tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize(
    ("view", "pressed", "other"),
    [
        ("graph", ".header [data-show=graph]", ".header [data-show=layers]"),
        ("compared", "#pin", "#help-button"),
        ("heatmap", "layers-view [data-form=heatmap]", "layers-view [data-form=ridgeline]"),
        ("lesson", "lesson-column [aria-pressed=true]", "lesson-column [aria-pressed=false]"),
        ("own", "layer-profile [aria-pressed=true]", "layer-profile [aria-pressed=false]"),
        ("gradcheck", ".button[aria-pressed=true]", ".button[aria-pressed=false]"),
    ],
)
def test_a_pressed_button_differs(show, scheme, view, pressed, other):
    page = show(view)
    check_chosen(page.locator(pressed).first, page.locator(other).first, SYSTEM[scheme][0])


def check_chosen(chosen, other, ground):
    colours = [rgb(background(control), ground) for control in (chosen, other)]
    assert contrast(*colours) > 3
    assert contrast(colours[0], rgb(words(chosen))) >= 4.5


def test_the_selected_tab_differs(show, explorer, scheme):
    explorer.page.set_viewport_size({"width": 390, "height": 844})
    page = show("graph")
    chosen, other = (page.get_by_role("tab", selected=selected).first for selected in (True, False))
    check_chosen(chosen, other, SYSTEM[scheme][0])


@pytest.mark.parametrize(
    ("view", "control"),
    [
        ("graph", "#pin"),
        ("graph", "#spec-scale"),
        ("graph", "spec-controls .slider"),
        ("graph", "details.lessons summary"),
        ("steps", "steps-view input[type=range]"),
        ("heatmap", "layers-view .frame"),
        ("matmul", "#window td[tabindex]"),
        ("foundations", "main a"),
    ],
)
def test_what_has_the_focus_has_a_ring(show, scheme, view, control):
    page = show(view)
    # The page shows a ring to those who use the keyboard.
    page.keyboard.press("Tab")
    page.locator(control).first.focus()
    style, width, colour = page.locator(control).first.evaluate(
        "(control) => { const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(control);"
        " return [outlineStyle, parseFloat(outlineWidth), outlineColor]; }"
    )
    assert (style, width) == ("solid", 2)
    assert contrast(rgb(colour), SYSTEM[scheme][0]) > 3


@pytest.mark.parametrize("slider", ["spec-controls .slider", "steps-view input[type=range]"])
def test_a_slider_shows_its_track_and_its_thumb(show, scheme, slider):
    page = show("steps")
    image, ground = image_of(page.locator(slider)), SYSTEM[scheme][0]
    middle = image.height // 2
    row = [image.getpixel((x, middle)) for x in range(4, image.width - 4)]
    assert min(contrast(colour, ground) for colour in row[:5] + row[-5:]) > 1.5
    # Above the track there is the thumb alone.
    above = [contrast(image.getpixel((x, middle - 5)), ground) > 3 for x in range(image.width)]
    assert 5 <= sum(above) <= 20


def test_drawings_have_the_ground_and_the_ink_of_the_system(show, scheme):
    page = show("graph")
    ground, ink = SYSTEM[scheme]
    palette = page.evaluate("async () => (await import('/static/core/colours.js')).readPalette()")
    assert (rgb(palette["paper"]), rgb(palette["ink"])) == (ground, ink)
    for hue in ("forward", "backward", "parameter", "warning"):
        assert contrast(rgb(palette[hue]), ground) > 3, hue
    for box in ("l1", "l1.g", "w1", "loss"):
        frame = page.locator(f'graph-view .box[data-id="{box}"] .frame')
        assert contrast(rgb(frame.evaluate("(frame) => getComputedStyle(frame).stroke")), ground) > 3
    page.locator('graph-view .box[data-id="l1"] .frame').click()
    expect(page.locator('graph-view .box[data-id="l1"] .frame')).to_have_css("stroke-width", "3px")


def test_canvases_are_drawn_again_with_the_colours_of_the_system(explorer, show, scheme):
    ground, ink = SYSTEM[scheme]
    page = show("heatmap")

    def drawn():
        image = image_of(page.locator("layers-view .frame"))
        return {colour: count for count, colour in image.getcolors(1 << 24)}

    # Most of the picture is the ground, and the numbers at its axis have the ink.
    colours = drawn()
    assert max(colours, key=colours.get) == ground
    assert ink in colours
    assert sum(count for colour, count in colours.items() if max(colour) - min(colour) > 60) > 1000
    page.emulate_media(forced_colors="none")
    explorer.idle()
    assert ink not in drawn()
    page.emulate_media(forced_colors="active")
    explorer.idle()
    assert ink in drawn()
