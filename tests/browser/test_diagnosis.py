"""Whether the layers are healthy, what theory expects of them, and the remedy."""

import re

import pytest
from figures import percent, significant
from playwright.sync_api import expect
from waiting import expect_when_idle

from chainrule.trace.report import WORDS

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
    expect(page.locator("diagnosis-list .fault")).to_have_count(0)
    expect(page.locator("diagnosis-list .remedy")).to_have_text("Variance preserved")
    expect(page.locator("diagnosis-list .remedy")).to_have_attribute("aria-disabled", "true")
    expect(page.locator("diagnosis-list .gradient")).to_contain_text("Gradient std, layer 1 over 50")


def layers_text(layers):
    """Layers as the page writes those of a fault without gaps."""
    first, last = layers[0], layers[-1]
    assert list(layers) == list(range(first, last + 1))
    return f"layer {first}" if first == last else f"layers {first}–{last}"


def agrees(page, dump, profile):
    """The header, the list and the words of the layers are those of the server's faults."""
    faults = dump["faults"]
    unhealthy = [layer["index"] for layer in profile["layers"] if layer["health"] is not None]
    figures = [
        (layer, name) for layer in profile["layers"] for name in layer["expected"] if measured(layer, name) is not None
    ]
    state = page.locator("diagnosis-list .state")
    if faults:
        plural = "s" if len(faults) > 1 else ""
        of = f"{len(unhealthy)} of {len(profile['layers'])} layers unhealthy"
        expect(state).to_have_text(f"{len(faults)} fault{plural}, {of}")
    else:
        assert unhealthy == []
        expect(state).to_have_text(f"healthy{sum(in_band(*each) for each in figures)} of {len(figures)} in band")
    items = page.locator("diagnosis-list .fault")
    expect(items).to_have_count(len(faults))
    for item, fault in zip(items.all(), faults, strict=True):
        expect(item).to_have_attribute("data-kind", fault["kind"])
        expect(item.locator(".kind b")).to_have_text(WORDS[fault["kind"]])
        expect(item.locator(".said")).to_have_text(fault["message"])
        expect(item.locator(".kind .link")).to_have_text(layers_text(fault["layers"]))
        expect(item.locator(".place")).to_have_text(f"{fault['source']['file']}:{fault['source']['line']}")
        expect(item.locator(".mend")).to_have_text(fault["remedy"])
        expect(item.locator(".rule")).to_be_hidden()
        item.locator("summary").click()
        expect(item.locator(".rule")).to_have_text(fault["rule"])
        item.locator(".kind .link").click()
        first = profile["layers"][fault["layers"][0] - 1]
        expect(page.locator("inspector-panel .comparison h3")).to_contain_text(f"Layer {first['index']}")
        expect(page.locator("inspector-panel .comparison .health")).to_have_text(first["health"])


@pytest.mark.parametrize(
    "query",
    [
        "scale=7",
        pytest.param("preset=deep-vanishing", marks=pytest.mark.long),
        pytest.param("activation=tanh&scale=9", marks=pytest.mark.long),
        pytest.param("preset=deep-exploding", marks=pytest.mark.long),
    ],
)
def test_header_list_and_inspector_say_what_the_server_says(explorer, dump_of, profile_of, query):
    page = explorer.open(f"/?{query}").page
    dump = dump_of(query)
    assert dump["faults"]
    agrees(page, dump, profile_of(query))
    # The fault's own place is a click away as well.
    fault = dump["faults"][0]
    page.locator("diagnosis-list .fault .said").first.click()
    (name,) = [tensor["name"] for tensor in dump["tensors"] if tensor["id"] == fault["tensor"]]
    expect(page.locator("inspector-panel h2")).to_have_text(name)


@pytest.mark.long
def test_the_header_follows_the_slider(explorer, dump_of, profile_of):
    page = explorer.open("/").page
    agrees(page, dump_of(""), profile_of(""))
    page.fill("#spec-scale", "7")
    page.press("#spec-scale", "Enter")
    explorer.idle()
    agrees(page, dump_of("scale=7"), profile_of("scale=7"))
    assert "healthy" not in page.locator("diagnosis-list .state").inner_text().replace("unhealthy", "")
    spoken = page.locator("#announcer")
    (fault,) = dump_of("scale=7")["faults"]
    expect(spoken).to_contain_text(f"1 fault, 1 of 2 layers unhealthy. exploding: {fault['message']}")
    page.fill("#spec-scale", "1")
    page.press("#spec-scale", "Enter")
    explorer.idle()
    agrees(page, dump_of(""), profile_of(""))
    expect(spoken).to_contain_text(re.compile(r"\. healthy, \d of 9 in band$"))


@pytest.mark.long
def test_a_trained_net_has_no_bands_to_explain(explorer):
    page = explorer.open("/").page
    state = page.locator("diagnosis-list .state")
    expect(state).to_have_attribute("title", re.compile(r"^8 of 9 values lie in the bands"))
    explorer.open("/?step=5")
    expect(state).to_contain_text("no theory for this pass")
    expect(state).to_have_attribute("title", "")


@pytest.mark.long
def test_header_note_and_inspector_have_one_band(explorer, profile_of):
    """In this draw the std of l1 is 10.33: outside of theory's band by chance."""
    query = "preset=randn&seed=13"
    page = explorer.open(f"/?{query}#select=l1").page
    layer = profile_of(query)["layers"][0]
    figure = layer["expected"]["preactivation_std"]
    assert layer["preactivation"]["std"] > figure["band"][1]
    std, value, low, high = map(significant, (layer["preactivation"]["std"], figure["value"], *figure["band"]))
    row = page.locator("inspector-panel .comparison tr[data-quantity=preactivation_std]")
    expect(row.locator("td").first).to_have_text(std)
    expect(row.locator("small")).to_have_text(f"{low}–{high}")
    expect(row.locator(".mark")).to_have_text("✗ out")
    note = page.locator("experiment-note")
    expect(note).to_contain_text(f"l1 std {std} (chapter 10.0544, theory {value}, band {low}–{high} ✗ out)")
    agrees(page, explorer.dump(), profile_of(query))


@pytest.mark.long
def test_a_remedy_is_one_click(explorer):
    explorer.open("/?widths=100x51&init=standard_normal&scale=0.1")
    page = explorer.page
    faults = page.locator("diagnosis-list .fault")
    expect(faults.first).to_be_visible()
    # √(2/100): what Kaiming has.
    remedy = page.locator("diagnosis-list .remedy")
    expect(remedy).to_have_text("Preserve variance: ×0.141")
    expect(page.locator("diagnosis-list .remedy-note")).to_have_text("√n·σ(w) = 1.00; should be 1.41")
    remedy.click()
    expect_when_idle(page, "() => location.search.startsWith('?widths=100x51&init=standard_normal&scale=0.141')")
    expect(page.locator("diagnosis-list .state")).to_contain_text("healthy")
    expect(faults).to_have_count(0)
    expect(remedy).to_have_text("Variance preserved")
    page.go_back()
    expect(faults.first).to_be_visible()

    explorer.open("/?init=zeros")
    expect(faults.first.locator(".said")).to_contain_text("it is 0 from layer 1 on")
    expect(remedy).to_have_text("Preserve variance: kaiming_normal")
    remedy.click()
    expect_when_idle(page, "() => location.search === ''")
    expect(page.locator("diagnosis-list .state")).to_contain_text("healthy")
    expect(page.locator("spec-controls .slider")).to_be_enabled()


@pytest.mark.long
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
    expect(page.locator("diagnosis-list .state")).to_have_text("The verdict follows after your guess.")
    expect(page.locator("diagnosis-list .remedy")).to_be_hidden()
    expect(page.locator("inspector-panel .guess")).to_be_disabled()
