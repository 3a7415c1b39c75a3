"""Whether the layers are healthy, what theory expects of them, and the remedy."""

import re

import pytest
from figures import percent, significant
from playwright.sync_api import expect
from waiting import expect_when_idle

FIGURES = {
    "preactivation_std": ("preactivation", "std"),
    "activation_mean": ("activation", "mean"),
    "activation_std": ("activation", "std"),
    "gradient_std": ("gradient", "std"),
    "dead_fraction": (None, "dead_fraction"),
    "saturation": (None, "saturation"),
}


def measured(layer, quantity):
    part, statistic = FIGURES[quantity]
    return layer[statistic] if part is None else layer[part][statistic]


def in_band(layer, quantity):
    low, high = layer["expected"][quantity]["band"]
    return low <= measured(layer, quantity) <= high


@pytest.mark.long
def test_a_deep_net_with_many_dead_units_is_healthy(explorer, profile_of):
    """A fixed threshold would sound an alarm at 39 % dead units, which is what a correct net has."""
    explorer.open("/?preset=deep-kaiming")
    page = explorer.page
    layers = profile_of("preset=deep-kaiming")["layers"]
    assert max(layer["dead_fraction"] for layer in layers) > 0.3
    figures = [(layer, name) for layer in layers for name in layer["expected"] if measured(layer, name) is not None]
    within = sum(in_band(*figure) for figure in figures)
    expect(page.locator("diagnosis-list .state")).to_have_text(f"healthy{within} of {len(figures)} in band")
    expect(page.locator("diagnosis-list .trouble:not([hidden])")).to_have_count(0)
    expect(page.locator("diagnosis-list .remedy")).to_have_text("Variance preserved")
    expect(page.locator("diagnosis-list .remedy")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("diagnosis-list .verdict")).to_contain_text("Gradient std, layer 1 over 50")


def test_what_vanishes_is_told_with_its_rule_and_remedied_by_one_click(explorer, profile_of):
    query = "widths=100x51&init=standard_normal&scale=0.1"
    explorer.open(f"/?{query}")
    page = explorer.page
    profile = profile_of(query)
    unhealthy = [layer["index"] for layer in profile["layers"] if layer["health"] == "vanishing"]
    expect(page.locator("diagnosis-list .state")).to_have_text(f"{len(unhealthy)} of 50 layers unhealthy")
    trouble = page.locator('diagnosis-list .trouble[data-health="vanishing"]')
    expect(trouble.locator("h3 b")).to_have_text("vanishing")
    expect(trouble.locator("svg.vanishing")).to_be_visible()
    expect(trouble.locator("h3 .link")).to_have_text(f"layers {unhealthy[0]}–{unhealthy[-1]}")

    # The smallest of all: the activation of the last layer, nine decades below the input.
    last = profile["layers"][-1]
    figure = last["expected"]["activation_std"]
    expect(trouble.locator("dd").nth(0)).to_have_text(f"{significant(last['activation']['std'])} std of out")
    band = "–".join(significant(edge) for edge in figure["band"])
    expect(trouble.locator("dd").nth(1)).to_have_text(f"{significant(figure['value'])} {band}")
    size = last["activation"]["norm"] / last["activation"]["n"] ** 0.5
    source = profile["input"]["norm"] / profile["input"]["n"] ** 0.5
    expect(trouble.locator("summary")).to_have_text(f"activation {significant(size / source)} × the input")
    expect(trouble.locator(".rule").first).to_be_hidden()
    trouble.locator("summary").click()
    rules = profile["rules"]
    expect(trouble.locator(".rule").first).to_contain_text(rules["health"]["vanishing"]["rule"])
    expect(trouble.locator(".rule").first).to_contain_text(rules["health"]["vanishing"]["source"])
    expect(trouble.locator(".rule").last).to_contain_text(rules["expected"]["activation_std"]["rule"])

    trouble.locator("h3 .link").click()
    expect(page.locator("inspector-panel .comparison h3")).to_contain_text(f"Layer {unhealthy[0]}")
    expect(page.locator("inspector-panel .comparison .health")).to_have_text("vanishing")

    # √(2/100): what Kaiming has.
    remedy = page.locator("diagnosis-list .remedy")
    expect(remedy).to_have_text("Preserve variance: ×0.141")
    expect(page.locator("diagnosis-list .remedy-note")).to_have_text("√n·σ(w) = 1.00; should be 1.41")
    remedy.click()
    expect_when_idle(page, "() => location.search.startsWith('?widths=100x51&init=standard_normal&scale=0.141')")
    expect(page.locator("diagnosis-list .state")).to_contain_text("healthy")
    expect(trouble).to_be_hidden()
    expect(remedy).to_have_text("Variance preserved")
    page.go_back()
    expect(trouble).to_be_visible()


def test_where_numbers_end_the_diagnosis_says_so_and_zeros_need_another_scheme(explorer, profile_of):
    explorer.open("/?preset=deep-exploding")
    page = explorer.page
    profile = profile_of("preset=deep-exploding")
    verdict, remedy = page.locator("diagnosis-list .verdict"), page.locator("diagnosis-list .remedy")
    expect(page.locator('diagnosis-list .trouble[data-health="non-finite"]')).to_be_visible()
    expect(page.locator('diagnosis-list .trouble[data-health="non-finite"] dl')).to_be_hidden()
    inf, nan = profile["first_inf_layer"], profile["first_nan_layer"]
    expect(verdict).to_have_text(f"Inf from layer {inf} on, NaN from layer {nan} on.")

    explorer.open("/?init=zeros")
    expect(page.locator('diagnosis-list .trouble[data-health="dead"]')).to_be_visible()
    expect(verdict).to_have_text("All zero from layer 1 on.")
    expect(remedy).to_have_text("Preserve variance: kaiming_normal")
    remedy.click()
    expect_when_idle(page, "() => location.search === ''")
    expect(page.locator("diagnosis-list .state")).to_contain_text("healthy")
    expect(page.locator("spec-controls .slider")).to_be_enabled()


@pytest.mark.parametrize(
    ("name", "index", "quantities"),
    [
        pytest.param("l59", 30, ["preactivation_std"], marks=pytest.mark.long),
        ("l60", 30, ["activation_mean", "activation_std", "dead_fraction"]),
        pytest.param("l60.g", 30, ["gradient_std"], marks=pytest.mark.long),
    ],
)
def test_measured_stands_beside_expected(explorer, profile_of, name, index, quantities):
    explorer.open(f"/?preset=deep-kaiming#select={name}")
    page = explorer.page
    profile = profile_of("preset=deep-kaiming")
    layer = profile["layers"][index - 1]
    comparison = page.locator("inspector-panel .comparison")
    expect(comparison.locator("h3")).to_have_text(f"Layer {index}healthy")
    rows = comparison.locator("tbody tr[data-quantity]")
    expect(rows).to_have_count(len(quantities))
    for order, quantity in enumerate(quantities):
        row = rows.nth(order)
        expect(row).to_have_attribute("data-quantity", quantity)
        written = percent if quantity == "dead_fraction" else significant
        figure = layer["expected"][quantity]
        expect(row.locator("td").nth(0)).to_have_text(written(measured(layer, quantity)))
        expect(row.locator("b")).to_have_text(written(figure["value"]))
        low, high = (written(edge) for edge in figure["band"])
        expect(row.locator("small")).to_have_text(f"{low.removesuffix(' %')}–{high}")
        expect(row.locator(".mark")).to_have_text("✓ in" if in_band(layer, quantity) else "✗ out")
        rule = profile["rules"]["expected"][quantity]
        says = comparison.locator("tr.rule td").nth(order)
        author = re.match(r".*?\b\d{4}\b", rule["source"])[0]
        expect(says).to_have_text(f"{rule['rule']} ({author}).")
        expect(says).to_have_attribute("title", rule["source"])
    band = profile["rules"]["band"]
    comparison.locator(".band-rule summary").click()
    expect(comparison.locator(".band-rule p")).to_have_text(f"{band['rule']} ({band['source']}).")


def test_a_weight_stands_beside_what_it_is_drawn_from(explorer, profile_of):
    explorer.open("/?scale=0.5#select=w2")
    page = explorer.page
    layer = profile_of("scale=0.5")["layers"][1]
    assert layer["weight_std"] == pytest.approx(0.5 * (2 / 50) ** 0.5)
    row = page.locator('inspector-panel .comparison tr[data-quantity="weight_std"]')
    expect(row.locator("td").nth(0)).to_have_text(significant(layer["weight"]["std"]))
    expect(row.locator("b")).to_have_text(significant(layer["weight_std"]))
    expect(row.locator(".mark")).to_be_empty()
    # No layer owns the target.
    explorer.open("/#select=y")
    expect(page.locator("inspector-panel h2")).to_have_text("y")
    expect(page.locator("inspector-panel .comparison")).to_have_count(0)


def test_a_guess_may_come_first(explorer):
    explorer.open("/#select=l2")
    page = explorer.page
    expect(page.locator("inspector-panel .comparison")).to_be_visible()
    page.locator("inspector-panel .guess").click()
    expect_when_idle(page, "() => location.hash.includes('predict=l2.std')")
    assert set(page.locator("inspector-panel .figures div:not([hidden]) dd").all_text_contents()) == {"?"}
    expect(page.locator("inspector-panel histogram-chart")).to_be_hidden()
    expect(page.locator("inspector-panel .veil")).to_contain_text("?")
    # Whatever theory expects would give it away.
    expect(page.locator("inspector-panel .comparison")).to_be_hidden()
    expect(page.locator("diagnosis-list .state")).to_have_text("Judged once the guess is made.")
    expect(page.locator("diagnosis-list .remedy")).to_be_hidden()
    expect(page.locator("inspector-panel .guess")).to_be_disabled()
