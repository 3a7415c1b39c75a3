"""The page of a neuron and a layer: it computes the typed inputs, and an element shows its terms."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("neuron")


def lit(page, table):
    """Indices of the cells that are lit in one of the layer's tables, by its place."""
    cells = page.locator("#layer figure").nth(table).locator("td[class^=lit]")
    return [cell.get_attribute("data-index") for cell in cells.all()]


def test_weights_move_the_sum_and_relu(page):
    row = page.locator("#neuron tbody tr")
    expect(row.nth(0)).to_have_text("020.50011")
    expect(page.locator("#neuron .total")).to_contain_text("0.500")
    page.fill("#input-weights", "0.5,0.25,-4")
    expect(row.nth(2)).to_have_text("20.500−4−2−1.25")
    expect(page.locator("#neuron .total")).to_contain_text("−0.500")
    expect(page.locator("#relu svg")).to_have_attribute("aria-label", "relu(−0.500) = 0")
    expect(page).to_have_url(re.compile(r"\?weights=0\.5%2C0\.25%2C-4$"))


def test_a_weight_too_few_is_explained_and_a_nan_is_not_hidden(page):
    trap = page.locator("#zip-trap")
    expect(trap).to_be_hidden()
    page.get_by_role("button", name="a weight too few").click()
    expect(trap).to_contain_text("3 inputs and 2 weights: zip stops after 2 pairs and drops the rest of the inputs")
    expect(trap).to_contain_text("would answer 1.50")
    expect(trap.locator("tr.dropped")).to_have_text("20.500dropped")
    expect(page.locator("#input-weights")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#neuron .total")).to_contain_text("0.500")  # the last good answer stays, dimmed
    expect(page.locator("#neuron")).to_have_css("opacity", "0.45")
    expect(page.locator("#relu")).to_have_css("opacity", "0.45")
    expect(page.locator("#layer")).to_have_css("opacity", "1")
    page.fill("#input-b", "5,1,-1,0.5")  # the layer goes on
    expect(page.locator("#layer-sum")).to_have_text("y[0, 0] = 1·1 + 2·0 + 3·(−1) + 5 = 3")
    expect(page.locator("#layer")).to_have_css("opacity", "1")
    page.fill("#input-b", "5")  # until it does not fit either
    expect(page.locator("#layer")).to_have_css("opacity", "0.45")
    page.fill("#input-b", "0,1,-1,0.5")
    page.get_by_role("button", name="a NaN").click()
    expect(trap).to_be_hidden()
    expect(page.locator("#neuron .total")).to_contain_text("nan")
    expect(page.locator("#relu")).to_contain_text("relu would give 0: no comparison with NaN is true")


def test_an_element_of_the_layer_lights_what_makes_it(page):
    tables = page.locator("#layer figure")
    sum_line = page.locator("#layer-sum")
    expect(sum_line).to_have_text("y[0, 0] = 1·1 + 2·0 + 3·(−1) + 0 = −2")
    zip_line = page.locator("#listing-dense .line.lit")
    expect(zip_line).to_have_count(0)
    tables.nth(3).locator('td[data-index="1,2"]').hover()
    expect(sum_line).to_have_text("y[1, 2] = (−1)·2 + 0·(−1) + 2·0 + (−1) = −3")
    assert lit(page, 0) == ["1,0", "1,1", "1,2"]
    assert lit(page, 1) == ["2,0", "2,1", "2,2"]
    assert lit(page, 2) == ["2"]
    assert lit(page, 3) == lit(page, 4) == ["1,2"]
    expect(zip_line).to_have_count(1)
    expect(zip_line).to_contain_text("zip(x[i, :], w[j, :]")
    page.fill("#input-b", "0,1,-2,0.5")
    expect(sum_line).to_have_text("y[1, 2] = (−1)·2 + 0·(−1) + 2·0 + (−2) = −4")
    expect(tables.nth(4).locator('td[data-index="1,2"]')).to_have_text("−4")
    expect(page.locator("#layer-agreement")).to_contain_text("Largest difference of the two: 0: no element differs")
