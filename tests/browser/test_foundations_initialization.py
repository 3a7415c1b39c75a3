"""The page of layers and initialization: an input is changed, and what the page says of it moves."""

import json
import re
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("initialization")


def layer_figures(page):
    return page.locator("#layer tbody td.measured").all_text_contents()


def test_a_scheme_moves_the_histograms_the_stack_and_the_address(page, server_url):
    assert layer_figures(page)[1] == "9.75"
    expect(page.locator("#stack-says")).to_have_text(
        re.compile("The first Inf appears in layer 3[789], the first NaN in layer (38|39|40).")
    )
    assert page.locator("#stack-figure circle.lane").count() > 10
    page.get_by_role("button", name="Kaiming, √(2 / n_in)").click()
    expect(page.locator("#layer tbody td.measured").nth(1)).to_have_text("1.38")
    assert "init=kaiming_normal" in page.url
    with urlopen(f"{server_url}/foundations/initialization.json?init=kaiming_normal") as answer:
        assert json.load(answer)["layer"]["l1"]["std"] == pytest.approx(1.38, abs=0.005)
    page.get_by_label("relu after every layer").check()
    expect(page.locator("#stack-says")).to_contain_text("After 50 layers the standard deviation is 0.155")
    assert page.locator("#stack-figure circle.measured").count() == 50
    assert page.locator("#stack-figure circle.lane").count() == 0
    expect(page.locator("#stack-link")).to_have_attribute(
        "href", "/?widths=100x51&last_activation=true&bias=false&init=kaiming_normal&scale=1&batch=200&seed=42"
    )


def test_an_experiment_beside_what_the_chapter_printed_is_run_above(page):
    row = page.locator("[data-experiment='deep-vanishing'][data-figure='mean']")
    assert (
        page.locator("[data-experiment='kaiming-relu'][data-figure='std'] td.number").first.text_content() == "0.8259"
    )
    row.get_by_role("button", name="run it above").click()
    expect(page.locator("#stack-says")).to_have_text(re.compile("From layer 4[4567] on every value is exactly 0."))
    expect(page.locator("#input-scale")).to_have_value("0.01")
    assert page.locator("#window td").all_text_contents() == ["0"] * 25


def test_past_a_limit_is_said_beside_the_control(explorer, page):
    explorer.expected = ["422"]
    before = layer_figures(page)
    page.fill("#input-depth", "65")
    expect(page.locator("#input-depth-note")).to_have_text("depth: '65' is not an integer from 1 to 64")
    assert layer_figures(page) == before
    page.fill("#input-depth", "3")
    expect(page.locator("#input-depth-note")).to_have_text("")
    expect(page.locator("#stack-says")).to_contain_text("After 3 layers")
    page.fill("#input-batch", "1")
    page.fill("#input-hidden", "2")
    # torch's std of two elements is √2 times as large.
    expect(page.locator("#sample-std")).to_contain_text("Of the 2 elements of l1 that is")
    population, sample = page.evaluate(
        "() => [document.querySelectorAll('#layer td.measured')[1].textContent,"
        " /is ([0-9.]+) in place/.exec(document.getElementById('sample-std').textContent)[1]]"
    )
    assert float(sample) / float(population) == pytest.approx(2**0.5, rel=0.01)
