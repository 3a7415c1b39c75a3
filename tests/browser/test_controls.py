"""The controls of the init: ticks in units of the weights' std, snapping, steppers, and that nothing jumps."""

import itertools
import math
import re

import pytest
from figures import significant
from playwright.sync_api import expect
from waiting import expect_when_idle


def ticks_of(page):
    """Label → centre of its mark on the screen."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("spec-controls .tick")]
            .map((tick) => {
                const { x, width } = tick.getBoundingClientRect();
                const share = tick.matches(".start") ? 0 : tick.matches(".end") ? 1 : 0.5;
                return [tick.textContent, x + share * width];
            }))"""
    )


def grip(page):
    """Where the thumb of the slider can be taken, and the height to move it along."""
    box = page.locator("spec-controls .slider").bounding_box()
    fill = float(
        page.evaluate("getComputedStyle(document.querySelector('spec-controls .slider')).getPropertyValue('--fill')")
    )
    return box["x"] + 12 + fill * (box["width"] - 24), box["y"] + box["height"] / 2


def drag(page, to, *, steps=12):
    start, height = grip(page)
    page.mouse.move(start, height)
    page.mouse.down()
    page.mouse.move(to, height, steps=steps)
    page.mouse.up()


@pytest.mark.long
def test_the_weights_of_a_late_step_say_no_std_of_their_distribution(explorer):
    page = explorer.open("/?step=5").page
    expect(page.locator("spec-controls .sigma")).to_have_text(f"σ {explorer.figure('w1')}")
    expect(page.locator("spec-controls .drawn")).to_have_text("")
    expect(page.locator("spec-controls .tick")).to_have_count(0)
    page.evaluate("history.pushState(null, '', '/?step=0'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.locator("spec-controls .drawn")).to_have_text(f"σ(w1) {significant(math.sqrt(2 / 100))}")


@pytest.mark.long
def test_the_scale_says_which_std_results(explorer):
    explorer.open()
    page = explorer.page
    expect(page.locator("spec-controls .drawn")).to_have_text(f"σ(w1) {significant(math.sqrt(2 / 100))}")
    expect(page.locator("spec-controls .where")).to_have_text("layer 1, n = 100")
    assert page.locator("spec-controls .tick").all_text_contents() == ["1/√n", "√2/√n"]
    titles = [tick.get_attribute("title") for tick in page.locator("spec-controls .tick").all()]
    assert "1/√n = 0.100 for n = 100: ×0.7071" in titles[0]
    assert "√(2/n) = 0.141 for n = 100: ×1." in titles[1]

    # The weights of the layer that is selected.
    page.locator('graph-view .box[data-id="w2.g"]').click()
    expect(page.locator("spec-controls .where")).to_have_text("layer 2, n = 50")
    expect(page.locator("spec-controls .drawn")).to_have_text(f"σ(w2) {significant(math.sqrt(2 / 50))}")
    expect(page.locator("spec-controls .sigma")).to_have_text(f"σ {explorer.figure('w2')}")
    page.keyboard.press("Escape")
    expect(page.locator("spec-controls .where")).to_have_text("layer 1, n = 100")

    page.select_option("#spec-init", "standard_normal")
    expect(page.locator("spec-controls .drawn")).to_have_text("σ(w1) 1.00")
    page.get_by_role("button", name="Whole range").click()
    expect(page.locator('spec-controls .tick[data-scale="0.1414"]')).to_have_text("√2/√n")

    # If the scale has no effect, there are no ticks.
    page.select_option("#spec-init", "zeros")
    expect(page.locator("spec-controls .slider")).to_be_disabled()
    expect(page.locator("#spec-scale")).to_be_disabled()
    expect(page.locator("#spec-scale-note")).to_have_text("Zeros stay zero at every scale.")
    expect(page.locator("spec-controls .tick")).to_have_count(0)


@pytest.mark.long
def test_the_pointer_snaps_to_a_tick(explorer):
    explorer.open("/?scale=30")
    page = explorer.page
    ticks = ticks_of(page)
    drag(page, ticks["1"] + 2.5)
    expect(page.locator("#spec-scale")).to_have_value("7.071")
    expect_when_idle(page, "() => location.search === '?scale=7.071'")
    # The thumb stands at the tick, not where it was let go.
    assert grip(page)[0] == pytest.approx(ticks["1"], abs=0.5)
    drag(page, ticks["√2/√n"] + 2.5)
    expect(page.locator("#spec-scale")).to_have_value("1")
    expect_when_idle(page, "() => location.search === ''")
    drag(page, ticks["1/√n"] - 2.5)
    expect(page.locator("#spec-scale")).to_have_value("0.7071")
    drag(page, ticks[".01"] + 5)
    assert 0.0708 < float(page.input_value("#spec-scale")) < 0.12
    # Alt lets the thumb pass.
    page.keyboard.down("Alt")
    drag(page, ticks["1"] + 2)
    page.keyboard.up("Alt")
    assert 7.071 < float(page.input_value("#spec-scale")) < 10
    explorer.idle()
    page.locator("spec-controls .tick", has_text="1/√n").locator("span").first.click()
    expect(page.locator("#spec-scale")).to_have_value("0.7071")
    expect_when_idle(page, "() => location.search === '?scale=0.7071'")


@pytest.mark.long
def test_the_slider_has_equal_steps_near_one_and_the_whole_range_one_button_away(explorer):
    explorer.open("/?init=standard_normal&widths=100,50,1")
    page = explorer.page
    slider, scale, button = page.locator("spec-controls .slider"), page.locator("#spec-scale"), "spec-controls .range"
    box = slider.bounding_box()

    def at(share):
        return box["x"] + 12 + share * (box["width"] - 24)

    # No tick is near: the value is the place of the thumb.
    for share, value in [(0, 0.5), (0.2, 0.8), (0.4, 1.1), (0.8, 1.7), (1, 2)]:
        drag(page, at(share))
        assert float(page.input_value("#spec-scale")) == pytest.approx(value, abs=0.011)
        assert grip(page)[0] == pytest.approx(at(share), abs=1.1)
    explorer.idle()
    expect(page.locator(button)).to_have_text("Whole range")
    # Labels are in one unit, the std of the weights.
    labels = page.locator("spec-controls .ticks > :not(.mute)").all_text_contents()
    assert sorted(labels) == ["0.5", "1", "1.5", "2"]

    # The button keeps the value.
    page.click(button)
    expect(scale).to_have_value("2")
    assert grip(page)[0] < at(0.75)
    page.click(button)
    assert grip(page)[0] == pytest.approx(at(1), abs=0.5)
    # A value outside shows the whole range by itself, and the thumb that a person holds stays on it.
    scale.fill("30")
    scale.press("Enter")
    expect(page.locator(button)).to_have_text("×0.5 to ×2")
    expect(page.locator(button)).to_have_attribute("aria-disabled", "true")
    slider.press("Home")
    expect(scale).to_have_value("0.0001")
    slider.press("End")
    expect(scale).to_have_value("10000")
    scale.fill("2")
    scale.press("Enter")
    explorer.idle()
    # A value from elsewhere leads back.
    expect(page.locator(button)).to_have_text("Whole range")
    page.click(button)
    for key, value in [("ArrowRight", "2.02"), ("ArrowLeft", "2"), ("PageUp", "2.2"), ("PageDown", "2")]:
        slider.press(key)
        expect(scale).to_have_value(value)
    expect(slider).to_have_attribute("aria-valuetext", "times 2, σ(w1) 2.00")
    explorer.idle()


@pytest.mark.long
@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}])
@pytest.mark.parametrize("scale", [1, 30])
def test_nothing_of_the_slider_is_clipped_on_a_phone(explorer, scale):
    page = explorer.open(f"/?scale={scale}").page
    boxes = page.evaluate(
        """() => [...document.querySelectorAll(
            "spec-controls .slider, spec-controls .ticks > :not(.mute) > span, spec-controls .range")]
            .map((part) => part.getBoundingClientRect()).map(({ left, right, height }) => [left, right, height])"""
    )
    assert len(boxes) > 4
    assert all(left >= 0 and right <= 390 for left, right, _ in boxes)
    assert boxes[-1][2] >= 24


def test_the_keyboard_goes_from_tick_to_tick_and_never_snaps(explorer):
    explorer.open()
    page = explorer.page
    slider, scale = page.locator("spec-controls .slider"), page.locator("#spec-scale")
    slider.focus()
    for key, value in [("]", "7.071"), ("]", "7.071"), ("[", "1"), ("[", "0.7071"), ("Control+ArrowLeft", "0.07071")]:
        page.keyboard.press(key)
        expect(scale).to_have_value(value)
    page.keyboard.press("Control+ArrowUp")
    expect(scale).to_have_value("0.7071")
    page.keyboard.press("ArrowRight")
    expect(scale).to_have_value("0.714")
    page.keyboard.press("ArrowLeft")
    expect(scale).to_have_value("0.707")
    expect(slider).to_have_attribute("aria-valuetext", "times 0.707, σ(w1) 0.100")
    expect_when_idle(page, "() => location.search === '?scale=0.707'")


@pytest.mark.long
@pytest.mark.parametrize(
    "query", ["init=standard_normal", "init=xavier_uniform&widths=7,900,3", "init=lecun_normal&widths=1024,10"]
)
def test_the_labels_under_the_slider_never_overlap(explorer, query):
    explorer.open(f"/?{query}")
    boxes = explorer.page.evaluate(
        """() => [...document.querySelectorAll("spec-controls .ticks > :not(.mute) > span")]
            .map((label) => label.getBoundingClientRect()).map(({ left, right }) => [left, right])"""
    )
    row = explorer.page.locator("spec-controls .ticks").bounding_box()
    boxes.sort()
    assert len(boxes) >= 2
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(boxes))
    assert row["x"] <= boxes[0][0]
    assert boxes[-1][1] <= row["x"] + row["width"]


@pytest.mark.long
def test_depth_and_width_have_steppers(explorer):
    explorer.open()
    page = explorer.page
    page.locator("spec-controls .more summary").click()
    widths, depth, width = (page.locator(f"#spec-{name}") for name in ("widths", "depth", "width"))
    expect(depth).to_have_value("2")
    expect(width).to_have_value("50")
    page.get_by_role("button", name="More depth").click()
    expect(widths).to_have_value("100,50x2,1")
    page.get_by_role("button", name="Less width").click()
    expect(widths).to_have_value("100,40x2,1")
    expect_when_idle(page, "() => location.search === '?widths=100,40x2,1'")
    width.press("ArrowUp")
    expect(widths).to_have_value("100,50x2,1")
    # A text that is no number changes nothing.
    depth.fill("many")
    depth.press("Enter")
    expect(depth).to_have_value("3")
    page.get_by_role("button", name="50 layers").click()
    expect(depth).to_have_value("50")
    widths.fill("784,100,30,10")
    widths.press("Enter")
    expect(width).to_have_value("")
    expect(width).to_have_attribute("placeholder", "mixed")
    widths.fill("100,1")
    widths.press("Enter")
    expect(width).to_be_disabled()
    expect(depth).to_have_value("1")
    page.select_option("#spec-dtype", "float16")
    expect(page.locator("#spec-dtype-note")).to_contain_text("65504")


# The place of everything in the left panel but the faults, which come last and may grow. On a narrow screen
# the diagnosis is one line.
PLACES = """() => [...document.querySelectorAll(`spec-controls :is(.field, .ticks > *, .unit, .more), run-status,
        diagnosis-list, ${innerWidth < 900 ? ".tabs" : "diagnosis-list :is(.state, .preserve, .gradient)"}`)]
    .filter((element) => element.checkVisibility())
    .map((element) => {
        const { x, y } = element.getBoundingClientRect();
        return [element.localName.includes("-") ? element.localName : element.classList[0], x, y];
    })"""


@pytest.mark.long
@pytest.mark.parametrize(
    "viewport",
    [(1440, 900), pytest.param((1024, 768), marks=pytest.mark.long), pytest.param((390, 844), marks=pytest.mark.long)],
)
def test_nothing_jumps_while_the_slider_moves(explorer, viewport):
    explorer.page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
    explorer.open("/?preset=deep-kaiming#select=l97")
    page = explorer.page
    page.get_by_role("button", name="Whole range").click()
    explorer.idle()
    places = page.evaluate(PLACES)
    page.locator("spec-controls .slider").focus()
    # Down to all zero, up through healthy to non-finite.
    for key, steps in [("Home", 1), ("Shift+ArrowRight", 20), ("End", 1), ("Shift+ArrowLeft", 20)]:
        for _ in range(steps):
            page.keyboard.press(key)
            assert page.evaluate(PLACES) == places
        explorer.idle()
        assert page.evaluate(PLACES) == places


@pytest.mark.long
def test_a_click_on_the_track_is_a_step_of_the_history(explorer):
    page = explorer.open().page
    entries = page.evaluate("history.length")
    box = page.locator("spec-controls .slider").bounding_box()
    page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + box["height"] / 2)
    explorer.idle()
    assert "scale=" in page.url
    assert page.evaluate("history.length") == entries + 1
    page.go_back()
    expect(page.locator("#spec-scale")).to_have_value("1")


def test_a_refused_value_does_not_hold_up_the_slider(explorer):
    page = explorer.open("/?widths=100x11&scale=2.5").page
    page.fill("#spec-scale", "abc")
    page.press("#spec-scale", "Enter")
    expect(page.locator('[data-key="scale"]')).to_have_class(re.compile("at-fault"))
    # Keys go on from the thumb.
    page.locator("spec-controls .slider").press("ArrowRight")
    explorer.idle()
    scale = float(page.input_value("#spec-scale"))
    assert 2.5 < scale < 2.6

    page.locator("spec-controls .more summary").click()
    page.fill("#spec-depth", "123456789")
    page.press("#spec-depth", "Enter")
    expect(page.locator('[data-key="widths"]')).to_have_class(re.compile("at-fault"))
    expect(page.locator("#spec-widths")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#spec-widths-note")).not_to_be_empty()
    page.locator("spec-controls .slider").press("PageUp")
    explorer.idle()
    assert page.evaluate("new URLSearchParams(location.search).get('widths')") == "100x11"
    assert float(page.input_value("#spec-scale")) > scale
    expect(page.locator('[data-key="widths"]')).not_to_have_class(re.compile("at-fault"))


@pytest.mark.long
def test_what_waits_for_a_guess_is_not_told_by_the_slider(explorer):
    page = explorer.open("/#predict=w1.std").page
    expect(page.locator("spec-controls .sigma").first).to_contain_text("?")
    told = page.locator("spec-controls").evaluate("(root) => root.outerHTML")
    assert "0.141" not in told
    assert page.locator("spec-controls .tick").count() == 0
    page = explorer.open("/#predict=l2.std").page
    expect(page.locator("spec-controls .tick")).to_have_count(2)
