"""The page of broadcasting: the rules step by step, the virtual copy, and the trap behind a guess."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("broadcasting")


def test_shapes_are_compared_and_copied_virtually(page):
    expect(page.locator(".aligned td.rule")).to_have_text(["b missing → 1", "a stretched", "b stretched"])
    expect(page.locator(".aligned td.result")).to_have_text(["3", "4", "5"])
    page.fill("#input-a", "[10,20,30]")
    page.fill("#input-b", "[[1],[2]]")
    expect(page.locator(".aligned td.rule")).to_have_text(["a missing → 1", "b stretched"])
    expect(page.locator('[data-expanded-stride="a"]')).to_have_text("(0, 1)")
    expect(page.locator('[data-expanded-stride="b"]')).to_have_text("(1, 0)")
    seen = page.locator("#copies .tensor", has_text="as it is read")
    expect(seen.first.locator("td.ghost")).to_have_text(["10", "20", "30"])
    expect(seen.last.locator("td.ghost")).to_have_text(["1", "1", "2", "2"])
    expect(page).to_have_url(re.compile(re.escape("?a=%5B10%2C20%2C30%5D&")))
    page.locator("#copies .tensor").last.locator('td[data-index="1,2"]').hover()
    expect(page.locator("#element")).to_have_text("result[1, 2] = a[2] + b[1, 0] = 30 + 2 = 32")
    expect(page.locator("#copies td.lit")).to_have_text(["30", "30"])
    expect(page.locator("#copies td.lit-2")).to_have_text(["2", "2"])


@pytest.mark.long
def test_shapes_that_do_not_fit_are_explained_in_place(page):
    page.fill("#input-b", "4,2")
    expect(page.locator("#steps")).to_contain_text(
        "RuntimeError: The size of tensor a (5) must match the size of tensor b (2) at non-singleton dimension 2"
    )
    expect(page.locator(".aligned td.at-fault")).to_have_text(["5", "2", "✕"])
    expect(page.locator(".aligned td.not-compared")).to_have_count(2)
    expect(page.locator("#input-b-note")).to_contain_text("must match the size")
    # Sections that use other inputs go on: their figures follow, and only this section's are dimmed.
    page.fill("#input-c", "10,20,40")
    expect(page.locator("#ways-copies .tensor").nth(2).locator("td").first).to_have_text("11")
    expect(page.locator("#ways-copies .tensor").nth(2).locator("td").nth(2)).to_have_text("43")
    page.fill("#input-mean", "nothing")
    expect(page.locator("#input-mean-note")).to_contain_text("'nothing' is not a number")
    expect(page.locator("section[data-stale] h2")).to_have_text(["Two shapes", "With a scalar"])
    expect(page.locator(".aligned td.at-fault")).to_have_text(["5", "2", "✕"])
    for figure, opacity in {"#copies": "0.45", "#ways": "1", "#normalized": "0.45"}.items():
        expect(page.locator(figure)).to_have_css("opacity", opacity)
    page.fill("#input-mean", "4")
    expect(page.locator("#normalized .tensor").last.locator("td").nth(3)).to_have_text("0")
    expect(page.locator("section[data-stale] h2")).to_have_text(["Two shapes"])
    page.fill("#input-b", "4,[")
    expect(page.locator("#input-b-note")).to_contain_text("is not a shape such as 3,1,5")
    page.fill("#input-b", "2147483648,1,1,1")
    expect(page.locator("#steps .outcome")).to_contain_text("(2147483648, 3, 1, 5)")
    expect(page.locator("#copies")).to_contain_text("Too large for a picture")
    expect(page.locator("#input-b-note")).to_be_empty()
    expect(page.locator("section[data-stale]")).to_have_count(0)


@pytest.mark.long
def test_the_trap_waits_for_a_guess(page):
    expect(page.locator("#trap")).to_be_empty()
    expect(page.locator("#trap-sources")).to_be_hidden()
    page.fill("#guess-shape", "(200, 1)")
    page.fill("#guess-loss", "0.01")
    page.keyboard.press("Enter")
    verdict = page.locator("#trap .verdict")
    expect(verdict).to_contain_text("is (200, 200). You said (200, 1).")
    expect(verdict).to_contain_text("The loss is another: ")
    expect(page.locator("#trap")).to_contain_text("twice the covariance")
    expect(page.locator("#trap")).to_contain_text("It prefers a net that says the mean")
    expect(page.locator("#trap-sources")).to_be_visible()
    # An empty prediction is not judged, and a shape may be written in more than one way.
    page.fill("#guess-loss", "")
    for shape in ("200 x 200", "200×200", "[200, 200]", "200 200"):
        page.fill("#guess-shape", shape)
        page.keyboard.press("Enter")
        expect(verdict).to_have_text("The shape is right: (200, 1) − (200,) is (200, 200).")
    page.fill("#guess-shape", "two")
    page.keyboard.press("Enter")
    expect(verdict).to_contain_text("You said “two”.")
    # A guess belongs to its predictions.
    page.fill("#input-noise", "100")
    expect(page.locator("#trap")).to_contain_text("either loss prefers the mean")
    expect(page.locator("#trap")).not_to_contain_text("training on it would lead there")
    expect(verdict).to_have_count(0)
    page.fill("#input-n", "30")
    expect(page.locator("#trap .facts tr", has_text="pred − targ")).to_contain_text("(30, 30)")
    expect(page.locator("#trap .facts tr", has_text="its memory")).to_contain_text("3.60 kB")
