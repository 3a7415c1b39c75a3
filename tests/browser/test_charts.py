"""The buttons of the charts: they act in the page, and none sends anything anywhere."""

import pytest
from playwright.sync_api import expect

LOCAL = {"Download plot as a PNG", "Download plot as SVG", "Download plot", "Zoom", "Zoom in", "Zoom out", "Reset axes"}
PAGES = [
    "/#select=l2",
    "/#show=layers",
    "/#show=layers&form=ridgeline",
    "/#show=steps",
    *(f"/foundations/{page}" for page in ("neuron", "matmul", "initialization", "backward", "gradcheck")),
]


@pytest.mark.parametrize("address", PAGES)
def test_every_button_of_every_chart_is_a_local_one(explorer, address):
    page = explorer.page
    page.goto(explorer.url + address)
    page.wait_for_selector("run-status[data-seq], body[data-answers]")
    if "select" in address:
        expect(page.locator("histogram-chart.at-rest").first).to_be_visible()
    elif "layers" in address:
        expect(page.locator("layers-view.at-rest")).to_be_visible()
    titles = page.evaluate(
        "() => [...document.querySelectorAll('.modebar [data-title]')].map((button) => button.dataset.title)"
    )
    assert set(titles) <= LOCAL
    assert bool(titles) == ("select" in address)
    # A link of a chart leads nowhere else.
    outside = "() => [...document.querySelectorAll('.js-plotly-plot a[href]')].map((link) => link.href)"
    assert page.evaluate(outside) == []
