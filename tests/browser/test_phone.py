"""Every view on a phone: what belongs to it is there, and nothing is wider than the screen."""

import pytest
from playwright.sync_api import expect

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}], ids=["phone"]),
]

COMPARED = "/?preset=deep-exploding#a=?preset=deep-relu"
NO_LAYERS = "The program two_outputs has no layers."


@pytest.mark.parametrize(
    ("address", "tab", "shown", "text"),
    [
        (COMPARED, "Inspector", "comparison-table", "A"),
        ("/#show=steps&step=4", None, "steps-view", "saves"),
        ("/#show=steps&step=4", "Profile", "layer-profile", "Std per layer"),
        ("/?program=two_outputs", "Profile", "layer-profile", NO_LAYERS),
        ("/?program=two_outputs", "Layers", "layers-view", NO_LAYERS),
        ("/?program=two_outputs", "Model", "#spec-program", "two_outputs"),
        *((f"/?preset={name}", "Graph", "experiment-note strong", "") for name in ("kaiming-relu", "deep-relu")),
    ],
)
def test_a_view_fits(explorer, address, tab, shown, text):
    page = explorer.open(address).page
    if tab is not None:
        page.get_by_role("tab", name=tab, exact=True).click()
    expect(page.locator(shown).first).to_be_visible()
    expect(page.locator(shown).first).to_contain_text(text)
    expect(page.locator("#help-button")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for panel in page.locator(".panel:visible").all():
        assert panel.evaluate("(panel) => panel.scrollWidth <= panel.clientWidth")


def test_the_profile_is_drawn_after_the_steps(explorer):
    page = explorer.open("/#show=steps").page
    page.get_by_role("tab", name="Profile", exact=True).click()
    explorer.idle()
    assert page.locator("layer-profile .frame").bounding_box()["height"] > 200
    dots = page.locator("layer-profile .dots.forward").evaluate_all("(all) => all.map((each) => each.getBBox().width)")
    assert max(dots) > 100


def test_a_list_chooses_the_statistic_of_the_profile(explorer):
    page = explorer.open("/#tab=profile").page
    expect(page.locator("layer-profile .segmented")).to_be_hidden()
    page.locator("layer-profile select").select_option("dead_fraction")
    expect(page.locator("layer-profile h2")).to_have_text("Dead units")
    explorer.idle()
    assert "statistic=dead_fraction" in page.evaluate("location.hash")


def test_both_halves_of_a_broad_graph_are_in_sight(explorer):
    page = explorer.open("/?program=matmul&rung=loops#level=1").page
    expect(page.locator("graph-view .box")).not_to_have_count(0)
    explorer.idle()
    for box in explorer.boxes().values():
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_no_minimap_covers_the_boxes(explorer):
    page = explorer.open("/?preset=deep-relu#fold=off&level=1").page
    explorer.idle()
    page.get_by_role("button", name="Zoom in").click()
    explorer.idle()
    expect(page.locator("graph-view .minimap")).to_be_hidden()
