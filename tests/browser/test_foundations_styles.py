"""The page of the five styles: code side by side, and numbers that move with the inputs."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("styles")


def test_two_styles_side_by_side(page):
    expect(page.locator("#code thead th")).to_have_text(["functions", "classes"])
    # A line stands beside the one it comes from, and what has not changed beside itself.
    by_hand = page.locator("#code tr", has=page.locator("td.left", has_text="accumulate(w, inp.t() @ out.g)"))
    expect(by_hand.locator("td.right")).to_contain_text("accumulate(self.w, self.inp.t() @ self.out.g)")
    tops = [cell.bounding_box()["y"] for cell in by_hand.locator("td").all()]
    assert max(tops) - min(tops) < 1
    same = page.locator("#code tr.same").first.locator("td").all_text_contents()
    assert same == ["def accumulate(tensor: Tensor, gradient: Tensor) -> None:"] * 2
    page.select_option("#input-compare", "autograd_function to module")
    expect(page.locator("#code thead th")).to_have_text(["autograd.Function", "nn.Module"])
    expect(page.locator("#steps li")).to_have_count(1)
    # Nothing is left of the gradients.
    assert page.locator("#counts td.backward").last.text_content() == "0"
    assert page.locator("#code td.nothing").first.text_content() == "autograd"
    page.select_option("#input-compare", "all five")
    expect(page.locator("#code thead th")).to_have_count(5)
    # A row's cells begin at one height, and no name is broken or cut off.
    tops = [box["y"] for box in (cell.bounding_box() for cell in page.locator("#code tbody tr:nth-child(2) td").all())]
    assert max(tops[:5]) - min(tops[:5]) < 1
    cut = "cells => cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"
    assert page.locator("#code td").evaluate_all(cut) == []
    arrows = page.locator("#code .whole").evaluate_all("all => all.map((each) => each.getClientRects().length)")
    assert set(arrows) == {1}
    assert len(arrows) > 40


@pytest.mark.long
def test_a_scale_that_overflows_sets_them_apart(page):
    expect(page.locator("#agreement-says")).to_contain_text("the order of the additions differs")
    page.get_by_role("button", name="gradients that overflow").click()
    expect(page.locator("#agreement-says")).to_contain_text("torch's own relu puts 0 there")
    rows = page.locator("#agreement tbody tr")
    assert rows.filter(has_text="functions").locator("[data-leaf='b1']").text_content() == "50 NaN"
    assert rows.filter(has_text="nn.Module").locator("[data-leaf='b1']").text_content() == "36 NaN, 14 Inf"
    expect(page.locator("#agreement-says")).to_contain_text("in functions, classes, LayerFunction, autograd.Function;")
    page.select_option("#input-dtype", "float64")
    expect(page.locator("#agreement-says")).not_to_contain_text("NaN")
    page.select_option("#input-dtype", "float32")
    page.fill("#input-scale", "1e12")
    # Inf is not a number that is the same but for rounding.
    expect(page.locator("#agreement-says")).to_contain_text("±Inf, the same ones in every style. ")
    page.get_by_role("button", name="a loss that overflows").click()
    expect(page.locator("#agreement-says")).to_contain_text("The loss overflows; its gradients do not need it.")
    expect(page.locator("#agreement tr[data-style='module'] [data-leaf='w1'] .relative")).to_contain_text("e-7")


def test_what_goes_wrong_is_run(page):
    expect(page.locator("#misprint .raised")).to_have_text("AttributeError: 'Lin' object has no attribute 'inp'")
    expect(page.locator("#forgotten .raised")).to_contain_text("cannot assign parameters before Module.__init__() call")
    page.fill("#input-hidden", "7")
    expect(page.locator("#models tbody tr").last).to_contain_text("layers.0.weight (7, 100)")
    explorer_links = page.locator("#explorer a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert explorer_links[-1] == "/?widths=100%2C7%2C1&batch=200&seed=42&dtype=float32&style=module"
