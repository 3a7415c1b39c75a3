"""The passes step by step: what is kept for the backward pass, as autograd keeps it, and the scrubber over it."""

from playwright.sync_api import expect
from waiting import expect_when_idle


def test_the_scrubber_plays_steps_and_lights(explorer):
    explorer.open("/?style=module#show=steps&step=3")
    page = explorer.page
    view = page.locator("steps-view")
    slider = view.get_by_role("slider", name="Step")
    expect(slider).to_have_attribute("aria-valuetext", "step 4 of 22: relu")
    expect(view.locator(".formulas")).to_have_text("l2 = relu(l1)")
    expect(view.locator(".sentence")).to_have_text("relu reads l1 and writes l2. It saves l2 for the backward pass.")
    expect(view.locator(".lists")).to_contain_text("saves")
    expect(view.locator(".alive")).to_contain_text("x")

    slider.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", "step 21 of 22: MmBackward0")
    expect(view.locator("h2 .chip")).to_have_text("backward")
    expect(view.locator(".lists .mark").first).to_have_text("saved")
    expect_when_idle(page, "() => location.hash.includes('step=20')")

    # A click on the curve goes where it is; playing goes on from there, to the end, and stops.
    box = view.locator(".curve").bounding_box()
    page.mouse.click(box["x"] + 17.5 / 22 * box["width"], box["y"] + box["height"] / 2)
    expect(slider).to_have_attribute("aria-valuetext", "step 18 of 22: TBackward0")
    view.get_by_label("Speed").select_option("30")
    slider.focus()
    page.keyboard.press("Space")
    expect(view.get_by_role("button", name="Play (space)")).to_be_visible()
    expect(slider).to_have_attribute("aria-valuetext", "step 22 of 22: TBackward0")

    # New numbers, the same step.
    before = view.locator(".lists .figure").first.inner_text()
    page.fill("#spec-scale", "2")
    page.keyboard.press("Enter")
    expect(view.locator(".lists .figure").first).not_to_have_text(before)
    expect(slider).to_have_attribute("aria-valuetext", "step 22 of 22: TBackward0")
    view.locator(".lists .link").first.click()
    expect_when_idle(page, "() => location.hash.includes('select=')")


NAMES = {"x", "w1", "l1", "l2", "out", "l2.g", "loss.g"}


def test_boxes_fill_as_they_are_computed(explorer):
    """Before its step a tensor's box has no figure; leaves have theirs from the start."""
    explorer.open("/?style=module#show=steps&step=3")
    page = explorer.page

    def has_figure(name):
        return page.locator(f'graph-view .box[data-id="{name}"] .value').text_content() != ""

    def filled():
        return {name for name in NAMES if has_figure(name)}

    assert filled() == {"x", "w1", "l1", "l2"}
    page.locator("steps-view").get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    explorer.idle()
    assert filled() == {"x", "w1"}
    page.keyboard.press("End")
    explorer.idle()
    assert filled() == NAMES
