"""Each lesson, walked through from the menu: its steps open their views, take answers, and wait for the picture."""

import pytest
from playwright.sync_api import expect
from waiting import idle

from chainrule.lessons import LESSONS, read_lessons

BUILT_IN = read_lessons(LESSONS)
SHORT = ("vanish",)
"""The other lessons belong to the long tail."""

CHANGE = """(change) => document.querySelector("spec-controls").dispatchEvent(
    new CustomEvent("spec-change", { bubbles: true, detail: { change, moving: false } }))"""

CHANGES = {
    "signal.1": {"scale": 1},
    "signal.3": {"scale": 0.1},
    "neuron.1": {"seed": 2},
    "matmul.2": {"rung": "@"},
    "vanish.2": {"activation": "tanh"},
    "explode.1": {"widths": "100x51"},
    "explode.2": {"scale": 1.05},
    "lecun.2": {"init": "lecun_normal", "scale": 1},
    "kaiming.2": {"scale": 1.43},
    "tanh.2": {"scale": 1.667},
    "dead-units.2": {"scale": 0.1},
    "nan.2": {"scale": 0.2},
    "training.2": {"scale": 1},
    "training.3": {"optimizer": "adam", "lr": 0.003},
}
"""Step → the change of the spec that solves it."""

BOXES = {"neuron.2": "w.g", "chain-rule.1": "w1.g"}


def solve(page, place):
    if place in BOXES:
        page.locator(f'graph-view .box[data-id="{BOXES[place]}"] .frame').first.click()
    elif place == "chain-rule.3":
        page.locator("steps-view").get_by_role("slider").fill("10")
    else:
        page.evaluate(CHANGE, CHANGES[place])


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(each, marks=() if each.name in SHORT else pytest.mark.long, id=each.name) for each in BUILT_IN],
)
def test_a_lesson(explorer, lesson):
    page = explorer.open("/").page
    column = page.locator("lesson-column")
    page.locator("details.lessons summary").click()
    page.get_by_role("button", name=lesson.title, exact=True).click()
    for number, step in enumerate(lesson.steps, 1):
        place = f"{lesson.name}.{number}"
        expect(column.get_by_role("heading")).to_have_text(step.title)
        expect(column.locator(".place")).to_have_text(f"{lesson.title} · step {number} of {len(lesson.steps)}")
        idle(page)
        assert f"lesson={place}" in page.evaluate("location.hash")
        answers = column.locator(".answers button")
        assert answers.count() == len(step.answers)
        if step.answers:
            right = next(order for order, answer in enumerate(step.answers) if answer.is_right)
            answers.nth(right).click()
            expect(column.locator(".said")).to_have_text("Yes.")
        if step.until:
            expect(column.locator(".task")).to_have_text("Now try it in the picture.")
            solve(page, place)
            expect(column.locator(".task")).to_have_text("✓ Done")
        else:
            expect(column.locator(".task")).to_have_count(0)
        column.get_by_role(
            "button", name="End of the lesson" if number == len(lesson.steps) else "Next", exact=True
        ).click()
    expect(column).to_be_hidden()


@pytest.mark.long
def test_a_wrong_answer_shows_the_right_one_and_stays_in_the_link(explorer):
    page = explorer.open("/#lesson=signal.2").page
    page.locator("lesson-column .answers button").first.click()
    expect(page.locator("lesson-column .said")).to_have_text("No. The marked answer is correct.")
    expect(page.locator("lesson-column .is-right")).to_have_text("by 10, the square root of 100")
    page.reload()
    expect(page.locator("lesson-column [aria-pressed=true]")).to_have_text("by 1, the standard deviation of a weight")


@pytest.mark.long
@pytest.mark.parametrize("open_at", ["about:blank", "/"])
def test_a_link_that_names_a_step_and_no_spec_opens_the_view_of_the_step(explorer, open_at):
    explorer.page.goto(explorer.url + open_at if open_at == "/" else open_at)
    page = explorer.open("/#lesson=signal.2&answer=1").page
    expect(page.locator("layers-view .frame")).to_be_visible()
    expect(page.locator("#spec-init")).to_have_value("standard_normal")
    assert page.evaluate("location.search").startswith("?widths=100x51&")
    assert page.evaluate("location.hash") == "#show=layers&lesson=signal.2&answer=1"
    # A spec in the link is the link's own.
    explorer.open("/?seed=1#lesson=signal.2")
    assert page.evaluate("location.search + location.hash") == "?seed=1#lesson=signal.2"


@pytest.mark.long
@pytest.mark.parametrize(
    ("width", "height", "mode"), [(390, 844, ""), (720, 450, ""), (720, 450, "teach"), (768, 1024, "")]
)
def test_on_a_small_screen_the_task_the_slider_and_the_picture_are_in_view(explorer, width, height, mode):
    page = explorer.page
    page.set_viewport_size({"width": width, "height": height})
    explorer.open(f"/#lesson=signal.1&mode={mode}")
    for part in ("lesson-column strong", "lesson-column footer button", "spec-controls input[type=range]"):
        expect(page.locator(part).first).to_be_in_viewport(ratio=1)
        # Nothing lies over it.
        assert page.locator(part).first.evaluate("""(element) => {
            const { x, y, width, height } = element.getBoundingClientRect();
            const top = document.elementFromPoint(x + width / 2, y + height / 2);
            return element.contains(top) || (top?.contains(element) ?? false);
        }""")
    assert height - page.locator("layers-view .frame").bounding_box()["y"] >= 50


@pytest.mark.long
def test_the_explanation_is_scrolled_into_view_and_the_buttons_stay(explorer):
    page = explorer.page
    page.set_viewport_size({"width": 1440, "height": 600})
    explorer.open("/#lesson=signal.2")
    column = page.locator("lesson-column")
    column.locator(".answers button").nth(1).click()
    explanation = column.locator("[aria-live] .text p").first
    expect(explanation).to_be_in_viewport(ratio=1)
    expect(column.get_by_role("button", name="Next", exact=True)).to_be_in_viewport(ratio=1)
    column.evaluate("(element) => element.scrollTo(0, 0)")
    expect(column.get_by_role("heading")).to_be_in_viewport(ratio=1)
    expect(column.get_by_role("button", name="Next", exact=True)).to_be_in_viewport(ratio=1)
