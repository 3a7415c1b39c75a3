"""The buttons of the charts: they act in the page, and none sends anything anywhere."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from views import EVERY_VIEW
from waiting import idle

LOCAL = {"Download plot as a PNG", "Download plot as SVG", "Download plot", "Zoom", "Zoom in", "Zoom out", "Reset axes"}

CHARTS = """() => [...document.querySelectorAll(".js-plotly-plot")].map((chart) => ({
    buttons: [...chart.querySelectorAll("[data-title]")].map((button) => button.dataset.title),
    links: [...chart.querySelectorAll("a[href]")].map((link) => link.href),
    // What would make Plotly's own buttons for its cloud.
    cloud: ["plotlyServerURL", "showSendToCloud", "showEditInChartStudio", "sendData"].filter((name) =>
        chart._context[name] && (name !== "sendData" || chart._context.plotlyServerURL)),
}))"""

OPENED = {
    "graph": 'graph-view .box[data-id="l2"] .frame',
    "steps": "steps-view li .link",
    "heatmap": "layers-view .frame",
    "landing": "layer-profile .frame",
    "coloured": "layer-table td .link",
    "compared": "comparison-table td .link",
    "own": 'graph-view .box[data-id="embed.linear"] .frame',
    "dumps": 'graph-view .box[data-id="body.2.weight"] .frame',
    "dumps-compared": 'comparison-table td .link:has-text("weight")',
}
"""Scene → the selector of the element that a test clicks to see the histogram of a tensor."""


def check(page, names):
    """Every chart that an element of these names draws is Plotly's, and local."""
    drawn = page.locator(names).locator("visible=true")
    for chart in drawn.all():
        expect(chart).to_have_class("at-rest")
    charts = page.evaluate(CHARTS)
    assert len(charts) >= drawn.count()
    for chart in charts:
        assert set(chart["buttons"]) <= LOCAL
        assert (chart["links"], chart["cloud"]) == ([], [])
    return charts


@pytest.mark.long
@pytest.mark.parametrize("view", EVERY_VIEW)
def test_every_button_of_every_chart_is_a_local_one(show, view):
    page = show(view)
    page.locator("main details:not([open], .menu) > summary").evaluate_all(
        "(all) => all.forEach((each) => each.click())"
    )
    if page.locator("body > .explorer").count():
        idle(page)
    check(page, "histogram-chart, layers-view:not(:has(.is-empty))")


@pytest.mark.long
@pytest.mark.parametrize("view", OPENED)
def test_no_button_of_a_tensors_histogram_leads_elsewhere(show, view):
    page = show(view)
    page.locator(OPENED[view]).first.click()
    expect(page.locator("histogram-chart")).to_be_visible()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    [chart] = [each for each in check(page, "histogram-chart") if each["buttons"]]
    page.locator("histogram-chart").hover()
    for title in chart["buttons"]:
        page.locator(f'.modebar [data-title="{title}"]').click()
    here = urlsplit(page.url).netloc
    assert [url for url in asked if not url.startswith(("blob:", "data:")) and urlsplit(url).netloc != here] == []
    assert len(page.context.pages) == 1
