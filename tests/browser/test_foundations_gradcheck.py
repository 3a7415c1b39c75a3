"""The page of the gradient check: heatmaps read out their elements, a step is chosen, a mistake is found."""

import pytest
from figures import significant
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("gradcheck?batch=2&n=2")


def answer_of(page, server_url):
    return page.request.get(f"{server_url}/foundations/gradcheck.json?{page.url.partition('?')[2]}").json()


def test_the_verdicts_stand_side_by_side_and_an_element_is_read_out(page, server_url):
    expect(page.locator('.check-card[data-dtype="float64"]')).to_have_attribute("data-passed", "true")
    expect(page.locator('.check-card[data-dtype="float32"]')).to_have_attribute("data-passed", "false")
    expect(page.locator("#why")).to_contain_text("not by its own mistake")
    expect(page.locator(".jacobian")).to_have_count(3)
    inp = answer_of(page, server_url)["checks"]["float64"]["comparisons"][0]
    first = page.locator(".jacobian").first
    first.locator('[data-kind="difference"] canvas').focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(first.locator(".readout")).to_contain_text("∂out[0, 1] / ∂inp[0, 1]: analytic")
    expect(first.locator(".readout")).to_contain_text(f"analytic {significant(inp['analytic']['values'][1][1])},")
    page.select_option("#input-dtype", "float32")
    expect(page.locator("#jacobians-title")).to_have_text("The Jacobians in float32")
    expect(first.locator(".verdict.bad")).to_be_visible()


def test_a_dot_of_the_curve_chooses_the_step(page, server_url):
    steps = answer_of(page, server_url)["steps"]
    dots = page.locator(".curve.float32 circle")
    expect(dots).to_have_count(len(steps["eps"]))
    at = next(index for index, eps in enumerate(steps["eps"]) if abs(eps - 1e-2) < 1e-9)
    dots.nth(at).dispatch_event("click")
    expect(page.locator("#input-eps")).to_have_value("1e-2")
    expect(page.locator(".step-curve .strong")).to_have_text("eps 1e−2")
    assert "eps=1e-2" in page.url


def test_an_exercise_hides_its_line_until_it_is_asked_for(page, server_url):
    page.get_by_role("button", name="Exercise B").click()
    expect(page.locator("#listing-exercise_b")).to_be_visible()
    expect(page.locator("#listing-linear_function")).to_be_hidden()
    expect(page.locator(".jacobian").first.locator(".verdict.bad")).to_be_visible()
    expect(page.locator("#solution")).to_be_empty()
    expect(page.locator("#listing-exercise_b .line.lit")).to_have_count(0)
    page.click("#reveal")
    solution = answer_of(page, server_url)["solution"]
    expect(page.locator("#listing-exercise_b .line.lit")).to_have_attribute("data-line", str(solution["line"]))
    expect(page.locator("#solution")).to_contain_text("grad_output @ weight.t()")
    page.get_by_role("button", name="Exercise C").click()
    expect(page.locator("#solution")).to_be_empty()
