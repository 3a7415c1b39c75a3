"""On every page and view, wide and narrow, axe-core finds nothing, and each target of the pointer is large enough."""

from contextlib import suppress

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error
from views import EVERY_VIEW

# Else it would fetch the style sheets again, from addresses of its own.
OPTIONS = {"resultTypes": ["violations"], "preload": False}

SIZES = pytest.mark.parametrize(
    "context_options",
    [
        pytest.param({"viewport": {"width": 1440, "height": 900}}, id="wide", marks=pytest.mark.long),
        pytest.param({"viewport": {"width": 390, "height": 844}}, id="narrow"),
    ],
)

SMALL_TARGETS = r"""() => {
    const kinds = "button, a[href], input, select, textarea, summary, [role=tab], [role=option]";
    const text = (element) => element.textContent.replace(/\s+/g, " ").trim().slice(0, 40);
    // A link in a sentence is as high as its line.
    const isInSentence = (link) => {
        let line = link;
        while (getComputedStyle(line).display === "inline") line = line.parentElement;
        if (line === link) return false;
        const rest = line.cloneNode(true);
        for (const other of rest.querySelectorAll(kinds)) other.remove();
        return /\p{L}{2}/u.test(rest.textContent);
    };
    // What lies over the page covers it for a while.
    const top = document.querySelector("dialog[open], .menu[open] > .menu-list") ?? document;
    const targets = [...top.querySelectorAll(kinds)].filter((each) =>
        each.checkVisibility({ visibilityProperty: true }) && each.closest("svg, .visually-hidden") === null
        && getComputedStyle(each).pointerEvents !== "none" && !isInSentence(each));
    const problems = targets.flatMap((target) => {
        target.scrollIntoView({ block: "center", inline: "center" });
        const { x, y, width, height } = target.getBoundingClientRect();
        if (width < 23.9 || height < 23.9) return [`${target.localName} ${text(target)}: ${width} × ${height}`];
        // Nothing else lies over its middle.
        const corners = [[-11, -11], [11, -11], [-11, 11], [11, 11]];
        const others = corners.map(([right, down]) =>
            document.elementFromPoint(x + width / 2 + right, y + height / 2 + down)?.closest(kinds));
        const over = others.find((other) => other != null && !target.contains(other) && !other.contains(target));
        return over === undefined ? [] : [`${target.localName} ${text(target)}: under ${over.localName} ${text(over)}`];
    });
    return { count: targets.length, problems };
}"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
@SIZES
@pytest.mark.parametrize("view", EVERY_VIEW)
def test_axe_finds_no_violation(explorer, show, view, scheme):
    explorer.spend().emulate_media(color_scheme=scheme)
    violations = Axe().run(show(view), options=OPTIONS).response["violations"]
    told = [(each["id"], node["html"][:120]) for each in violations for node in each["nodes"]]
    assert told == []


@SIZES
@pytest.mark.parametrize("view", EVERY_VIEW)
def test_targets_are_24_pixels_wide_and_high(show, view):
    """WCAG 2.2, 2.5.8. The boxes of the drawing are excepted: they are as large as the zoom makes them."""
    assert show(view).evaluate(SMALL_TARGETS)["problems"] == []


SLIDERS = {"steps": [(24, 24), (24, 24)], "training": [(24, 24), (24, 24)], "own": [(24, 24)], "dumps": [(24, 40)]}


@pytest.mark.long
@SIZES
@pytest.mark.parametrize("view", SLIDERS)
def test_thumbs_of_sliders_are_24_pixels_wide_and_high(show, view):
    page = show(view)
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    # A thumb is in a shadow tree of the browser's own.
    nodes = session.send("DOM.getFlattenedDocument", {"depth": -1, "pierce": True})["nodes"]
    sizes = []
    for thumb in nodes:
        if thumb.get("attributes", [])[:2] != ["id", "thumb"]:
            continue
        with suppress(Error):  # the slider of this thumb is hidden
            box = session.send("DOM.getBoxModel", {"nodeId": thumb["nodeId"]})["model"]
            sizes.append((box["width"], box["height"]))
    session.detach()
    assert sizes == SLIDERS[view]
