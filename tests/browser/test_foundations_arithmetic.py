"""The page of elementwise arithmetic: operators, reductions, float32's digits, and a mismatch explained in place."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("arithmetic")


def test_operands_and_operator_move_the_result_and_its_digits(page):
    row = page.locator('#operators tr[data-operator="lt"]')
    expect(row).to_contain_text("[False, True, True]")
    expect(page.locator("#item .item")).to_have_text("(a + b).mean().item() = 9.666666984558105")
    expect(page.locator("#item")).to_contain_text("9.66666698455810546875, exactly")
    page.fill("#input-a", "10,6,-5")
    expect(page.locator("#item .item")).to_have_text("(a + b).mean().item() = 9.333333015441895")
    row.get_by_role("button").click()
    expect(row).to_have_class("chosen")
    expect(page.locator("#operation figcaption").last).to_contain_text("a < b")
    expect(page.locator("#refused-mean")).to_contain_text("Got: Bool")
    expect(page).to_have_url(re.compile(r"\?a=10%2C6%2C-5&op=lt$"))
    page.locator('#operation figure:last-of-type td[data-index="2"]').hover()
    expect(page.locator("#element-sum")).to_have_text("a < b at [2]: −5 < 7 = True")
    expect(page.locator("#operation td.lit, #operation td.lit-2")).to_have_text(["−5", "7"])


def test_a_rounded_sum_is_not_called_the_rounding_of_the_ratio(page):
    item = page.locator("#item")
    plot = item.locator("svg")
    expect(item).to_contain_text("the ratio goes on, and 24 digits are kept")
    expect(plot).to_contain_text("the nearest float32")
    page.get_by_role("button", name="1e8 + 1 − 1e8").click()
    expect(item).to_contain_text("add up to 1, and there are 3")
    expect(item).to_contain_text("the sum was already rounded to 0, 1.00 below it")
    said = "The float32 nearest to the ratio 0.3333333333333333 … is 0.3333333432674408; mean() gives 0, because"
    expect(plot).to_have_attribute("aria-label", f"{said} the sum was already rounded")
    expect(plot.locator("text.stored")).to_have_text(["0", "what mean() gives"])
    page.get_by_role("button", name="16777216 + 1").click()
    expect(item).to_contain_text("the sum was already rounded to 16777216, 1.00 below it")
    expect(item).to_contain_text("the ratio has 25 digits, of which 24 are kept")
    expect(item).not_to_contain_text("goes on")
    expect(plot.locator("text.exact")).to_have_text("8388608.5")
    said = "The ratio 8388608.5 lies halfway between two float32 numbers; 8388608 is the even one"
    expect(plot).to_have_attribute("aria-label", said)


def test_a_mismatch_is_explained_where_it_happens_and_goes_away(page):
    product = page.locator("#product")
    message = "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0"
    expect(product).to_contain_text(f"RuntimeError: {message}")
    expect(product.locator("td.misfit")).to_have_text(["3", "2"])
    page.fill("#input-n", "1,2,3;4,5,6;1,1,1")
    expect(product.locator("figure").last.locator("td")).to_have_text("1 4 9 16 25 36 7 8 9".split())
    page.fill("#input-b", "1,2")
    expect(page.locator("#operation")).to_contain_text("must match the size of tensor b (2)")
    expect(product.locator("figure")).to_have_count(3)  # the rest of the page goes on
    page.fill("#input-b", "1,two")
    expect(page.locator("#input-b-note")).to_contain_text("'two' is no number")
