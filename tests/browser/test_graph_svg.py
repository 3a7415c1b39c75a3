"""Saved pictures and pages, opened as files: every label inside its box, nothing loaded, nothing missing."""

import re

import pytest
from playwright.sync_api import expect
from reference_models import MODELS, VIEWS

from chainrule.diagnose.profile import theory
from chainrule.export.html import to_html
from chainrule.export.svg import to_svg
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

CLIPPED = """() => [...document.querySelectorAll("#boxes > g, #frames > g")].flatMap((group) => {
    const box = group.querySelector("rect").getBBox();
    return [...group.querySelectorAll("text")].flatMap((text) => {
        const words = text.getBBox();
        const isBadge = group.querySelectorAll("rect").length > 1 && text === group.lastElementChild;
        const inside = words.x >= box.x - 0.5 && words.x + words.width <= box.x + box.width + 0.5
            && words.y >= box.y - 1 && words.y + words.height <= box.y + box.height + 1.5;
        return inside || isBadge ? [] : [`${text.textContent} in ${group.querySelector("title").textContent}`];
    });
})"""


@pytest.fixture
def open_file(context, tmp_path):
    """Opens a text as a file; the page, and whatever it asked of anyone."""

    def show(text, name):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        page = context.new_page()
        asked, problems = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        return page, asked, problems

    return show


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_no_label_of_a_saved_graph_leaves_its_box(open_file, name):
    trace = MODELS[name]()
    for statistic in ("std", "none"):
        page, asked, problems = open_file(to_svg(trace, statistic=statistic, **VIEWS[name]), f"{name}.svg")
        assert page.evaluate("document.querySelectorAll('#boxes text').length") > 10
        assert page.evaluate(CLIPPED) == []
        assert len(asked) == 1
        assert problems == []


def test_a_page_saved_as_one_file_opens_without_a_server(open_file, server_url):
    page, asked, problems = open_file(to_html(MODELS["chapter"](), view="select=l1"), "net.html")
    expect(page.locator('graph-view .box[data-id="l1"].selected')).to_have_count(1)
    expect(page.locator('graph-view .box[data-id="l1"] .value')).to_have_text("1.38")
    # Arrows come from the layout, which runs in the page itself here.
    assert page.locator("graph-view .edge").count() > 10
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []
    assert problems == []
    # Whoever finds a way to write markup into it: no other script runs, and nothing is sent.
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.body.dataset.stolen = 1";
            document.body.append(script);
        }"""
    )
    assert page.locator("body[data-stolen]").count() == 0
    send = "(url) => fetch(url, { mode: 'no-cors' }).then(() => 'sent', () => 'refused')"
    assert page.evaluate(send, f"{server_url}/healthz") == "refused"


@pytest.mark.long
@pytest.mark.parametrize("scale", [1, 7])
def test_a_page_saved_as_one_file_has_the_verdict_of_its_trace(open_file, scale):
    trace = trace_spec(ModelSpec(scale=scale))
    page, _, problems = open_file(to_html(trace, view="select=l2"), "net.html")
    state, items = page.locator("diagnosis-list .state"), page.locator("diagnosis-list .fault")
    expect(items).to_have_count(len(trace.faults))
    health = theory(trace).layers[0].health or "healthy"
    expect(page.locator("inspector-panel .comparison .health")).to_have_text(health)
    if scale == 1:
        expect(state).to_have_text(re.compile(r"^healthy\d of 9 in band$"))
    else:
        expect(state).to_have_text("1 fault, 1 of 2 layers unhealthy")
        expect(items.locator(".said")).to_have_text(trace.faults[0].message)
        expect(page.locator("graph-view .box.forward .badge")).to_have_text(health)
    # Nothing can be changed in a file.
    expect(page.locator("diagnosis-list .remedy")).to_be_hidden()
    assert problems == []
