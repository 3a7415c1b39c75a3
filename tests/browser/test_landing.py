"""A first visit opens on a task that the slider solves; later visits, and links, go where they point."""

import pytest
from playwright.sync_api import expect
from waiting import idle

GREETING = "Keep the signal alive through 50 layers"


@pytest.fixture
def newcomer(kept, explorer):
    """A page in a context that has not been here."""
    context = kept.browser().new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(explorer.url, wait_until="domcontentloaded")
    idle(page)
    yield page
    context.close()


def test_a_newcomer_sees_fifty_layers_and_one_task(newcomer):
    expect(newcomer.get_by_role("heading", name=GREETING)).to_be_visible()
    expect(newcomer.locator("layers-view .frame")).to_be_visible()
    assert newcomer.evaluate("location.search").startswith("?widths=100x51")
    assert newcomer.evaluate("location.hash") == "#show=layers&lesson=signal.1"


@pytest.mark.long
def test_the_task_is_solved_by_dragging(newcomer):
    column = newcomer.locator("lesson-column")
    expect(column).to_contain_text("Now try it in the picture.")
    slider = newcomer.locator("spec-controls .slider")
    slider.focus()
    for _ in range(5):
        newcomer.keyboard.press("PageUp")
        idle(newcomer)
        if "Done" in column.inner_text():
            break
    expect(column).to_contain_text("✓ Done")
    expect(column).to_contain_text("Each layer multiplies the standard deviation")
    newcomer.get_by_role("button", name="Next").click()
    expect(newcomer.get_by_role("heading", name="Which scale keeps the signal?")).to_be_visible()
    idle(newcomer)
    newcomer.go_back()
    expect(newcomer.get_by_role("heading", name=GREETING)).to_be_visible()


@pytest.mark.long
def test_the_net_of_the_chapter_is_one_click_away(newcomer):
    newcomer.get_by_role("button", name="Chapter").click()
    expect(newcomer.locator("lesson-column")).to_be_hidden()
    expect(newcomer.get_by_role("button", name="Chapter")).to_have_attribute("aria-pressed", "true")


@pytest.mark.long
def test_the_second_visit_opens_the_chapter(newcomer):
    newcomer.goto(newcomer.evaluate("location.origin"), wait_until="domcontentloaded")
    idle(newcomer)
    expect(newcomer.locator("lesson-column")).to_be_hidden()
    assert newcomer.evaluate("location.search + location.hash") == ""


@pytest.mark.long
@pytest.mark.parametrize("address", ["/?seed=1", "/#show=steps"])
def test_a_link_goes_where_it_points(kept, explorer, address):
    context = kept.browser().new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(explorer.url + address, wait_until="domcontentloaded")
    idle(page)
    expect(page.locator("lesson-column")).to_be_hidden()
    assert page.evaluate("location.pathname + location.search + location.hash") == address
    context.close()


@pytest.mark.long
def test_teacher_mode_leaves_the_lesson_the_controls_and_the_picture(newcomer):
    newcomer.keyboard.press("p")
    for selector in ("lesson-column", "spec-controls", "layers-view"):
        expect(newcomer.locator(selector)).to_be_visible()
    for selector in ("#panel-inspector", "#panel-profile", "graph-toolbar"):
        expect(newcomer.locator(selector)).to_be_hidden()
    assert newcomer.evaluate("location.hash").endswith("&mode=teach")
    newcomer.keyboard.press("p")
    expect(newcomer.locator("#panel-profile")).to_be_visible()
