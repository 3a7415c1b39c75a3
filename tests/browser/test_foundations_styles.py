"""The page of the five styles: code side by side, and numbers that move with the inputs."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chapter):
    return chapter("styles")


def test_two_styles_side_by_side(page):
    assert page.locator("#code thead th").all_text_contents() == [
        "functions",
        "classes",
        "LayerFunction",
        "autograd.Function",
        "nn.Module",
    ]
    page.select_option("#input-compare", "autograd_function to module")
    expect(page.locator("#code thead th")).to_have_text(["autograd.Function", "nn.Module"])
    expect(page.locator("#steps li")).to_have_count(1)
    # Nothing is left of the gradients.
    assert page.locator("#counts td.backward").last.text_content() == "0"
    assert page.locator("#code td.nothing").first.text_content() == "autograd"
    # A row's two cells begin at one height.
    tops = [box["y"] for box in (cell.bounding_box() for cell in page.locator("#code tbody tr:nth-child(2) td").all())]
    assert max(tops) - min(tops) < 1


def test_a_scale_that_overflows_sets_them_apart(page):
    expect(page.locator("#agreement-says")).to_contain_text("the order of the additions differs")
    page.get_by_role("button", name="gradients that overflow").click()
    expect(page.locator("#agreement-says")).to_contain_text("torch's own relu puts 0 there")
    rows = page.locator("#agreement tbody tr")
    assert rows.filter(has_text="functions").locator("[data-leaf='b1']").text_content() == "50 NaN"
    assert rows.filter(has_text="nn.Module").locator("[data-leaf='b1']").text_content() == "36 NaN, 14 Inf"
    page.select_option("#input-dtype", "float64")
    expect(page.locator("#agreement-says")).not_to_contain_text("NaN")


def test_what_goes_wrong_is_run(page):
    expect(page.locator("#misprint .raised")).to_have_text("AttributeError: 'Lin' object has no attribute 'inp'")
    expect(page.locator("#forgotten .raised")).to_contain_text("cannot assign parameters before Module.__init__() call")
    page.fill("#input-hidden", "7")
    expect(page.locator("#models tbody tr").last).to_contain_text("layers.0.weight (7, 100)")
    explorer_links = page.locator("#explorer a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert explorer_links[-1] == "/?widths=100%2C7%2C1&batch=200&seed=42&dtype=float32&style=module"
