"""The profile of the layers: what it draws against the dump, what it says of ±Inf and NaN, and how it is walked."""

import re

import pytest
from figures import significant
from playwright.sync_api import expect
from waiting import UNTIL_IDLE, expect_when_idle

DEEP = "widths=100x51&last_activation=true&bias=false"
EXPLODING = "preset=deep-exploding"

CAUSES = """(m, dump) => import("/static/core/picture.js").then(({ pictureOfDump }) =>
    m.firstNonFinite(pictureOfDump(dump, 1, "k")))"""


# Gives the element a theory by hand, as the live path would.
WITH_THEORY = """async ([query, without]) => {
    const profile = await (await fetch(`/api/v1/profile.json?${query}`)).json();
    if (without !== null) profile.layers[without].expected = {};
    document.querySelector("layer-profile").theory = { ...profile, seq: 1 };
}"""

PATHS = """(selector) =>
    [...document.querySelectorAll(`layer-profile ${selector}`)].map((path) => path.getAttribute("d"))"""


def hover_layer(page, layer):
    """Move to the activation of a layer by keyboard: from the last one back."""
    chart = page.locator("layer-profile svg")
    chart.focus()
    chart.press("Home")
    for _ in range(layer):
        chart.press("ArrowRight")


@pytest.mark.long
def test_the_statistic_is_chosen_and_stays_in_the_address(explorer):
    explorer.open(f"/?{DEEP}")
    page = explorer.page
    for statistic, title in [
        ("mean", "Mean per layer"),
        ("dead_fraction", "Dead units"),
        ("saturation", "Saturation"),
        ("ratio", "Gradient : weight"),
        ("std", "Std per layer"),
    ]:
        button = page.locator(f'layer-profile button[data-statistic="{statistic}"]')
        button.click()
        expect(page.locator("layer-profile h2")).to_have_text(title)
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(page.locator("layer-profile [aria-pressed=true]")).to_have_count(1)
        in_address = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('statistic')")
        assert in_address == (None if statistic == "std" else statistic)


@pytest.mark.long
def test_dead_units_stand_on_a_scale_of_shares(explorer, profile_of):
    explorer.open(f"/?{DEEP}#statistic=dead_fraction")
    page = explorer.page
    assert page.locator("layer-profile .tick").all_text_contents()[:5] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    (dots,) = page.evaluate(PATHS, ".dots.forward.activation")
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)a", dots)]
    shares = [layer["dead_fraction"] for layer in profile_of(DEEP)["layers"]]
    ticks = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("layer-profile .tick")]
            .map((tick) => [tick.textContent, Number(tick.getAttribute("y")) - 3.5]))"""
    )
    expected = [ticks["0 %"] + share * (ticks["100 %"] - ticks["0 %"]) for share in shares]
    assert heights == pytest.approx(expected, abs=0.1)
    # The gradients are not of this kind: the whole height is the activations'.
    assert page.evaluate(PATHS, ".dots.backward.activation") == [""]
    assert ticks["0 %"] - ticks["100 %"] > 120


@pytest.mark.long
@pytest.mark.parametrize(
    ("activation", "statistic", "words"),
    [
        ("tanh", "dead_fraction", "tanh has no dead units: its output is 0 only for the input 0."),
        ("relu", "saturation", "relu does not saturate: its output is not bounded"),
    ],
)
def test_what_does_not_apply_says_so(explorer, activation, statistic, words):
    explorer.open(f"/?activation={activation}#statistic={statistic}")
    expect(explorer.page.locator("layer-profile .empty")).to_contain_text(words)
    assert words in explorer.page.locator("layer-profile svg").get_attribute("aria-label")


@pytest.mark.long
def test_the_ratio_has_its_line_of_reference(explorer, profile_of):
    explorer.open("/#statistic=ratio")
    page = explorer.page
    expect(page.locator("layer-profile .reference text")).to_have_text("usual: 0.001 at learning rate 1 (Karpathy)")
    ratio = profile_of("")["layers"][0]["gradient_to_weight_ratio"]
    chart = page.locator("layer-profile svg")
    chart.focus()
    chart.press("ArrowRight")
    expect(page.locator("layer-profile .readout")).to_have_text(f"layer 1: w1 ∇:W {significant(ratio)}")
    chart.press("Enter")
    expect_when_idle(page, "() => location.hash.includes('select=w1.g')")


def test_theory_is_drawn_and_told(explorer, profile_of):
    explorer.open(f"/?{DEEP}")
    page = explorer.page
    page.evaluate(WITH_THEORY, [DEEP, None])
    layers = profile_of(DEEP)["layers"]
    (line,) = page.evaluate(PATHS, ".theory.forward.activation")
    (band,) = page.evaluate(PATHS, ".range.forward.activation")
    (gradient,) = page.evaluate(PATHS, ".theory.backward.activation")
    assert len(re.findall("[ML]", line)) == len(re.findall("[ML]", gradient)) == 50
    assert len(re.findall("[ML]", band)) == 100
    (rings,) = page.evaluate(PATHS, ".outside.forward.activation")
    inside = [
        low <= layer["activation"]["std"] <= high
        for layer in layers
        for low, high in [layer["expected"]["activation_std"]["band"]]
    ]
    assert rings.count("M") == inside.count(False) > 0
    for part in ("theory", "19 of 20 draws", "outside"):
        expect(page.locator("layer-profile .key span", has_text=part)).to_be_visible()

    hover_layer(page, 7)
    expected = layers[6]["expected"]
    std, gradient_std = expected["activation_std"], expected["gradient_std"]
    said = " · ".join(
        f"{name} σ {significant(layers[6][part]['std'])}, expected {significant(of['value'])} "
        f"({significant(of['band'][0])}–{significant(of['band'][1])})"
        for name, part, of in [("layer 7: l14", "activation", std), ("gradient", "gradient", gradient_std)]
    )
    expect(page.locator("layer-profile .readout")).to_have_text(said)
    label = page.locator("layer-profile svg").get_attribute("aria-label")
    assert f"expected {significant(layers[-1]['expected']['activation_std']['value'])} (" in label

    # A layer without theory breaks the line.
    page.evaluate(WITH_THEORY, [DEEP, 20])
    (line,) = page.evaluate(PATHS, ".theory.forward.activation")
    assert (line.count("M"), line.count("L")) == (2, 47)


@pytest.mark.long
def test_where_inf_and_nan_begin_is_marked_and_told(explorer, module, dump_of):
    explorer.open(f"/?{EXPLODING}#fold=off")
    page = explorer.page
    causes = module("lab/non-finite.js", CAUSES, dump_of(EXPLODING))
    lines = page.locator("layer-profile .cause")
    texts = [f"First {kind} in {causes[kind.lower()]['text']}" for kind in ("Inf", "NaN")]
    expect(lines).to_have_text(texts)
    for kind, layer in (("Inf", 38), ("NaN", 39)):
        mark = page.locator(f'layer-profile .cause-mark[data-kind="{kind}"]')
        expect(mark.locator("text")).to_have_text(f"first {kind}")
        expect(mark).to_have_attribute("visibility", "visible")
        rule = mark.locator("line").get_attribute("x1")
        box = explorer.boxes()[f"l{layer}"]
        left = page.locator("layer-profile svg").bounding_box()["x"]
        assert float(rule) + left == pytest.approx(box["x"] + box["width"] / 2, abs=1)
    hover_layer(page, 38)
    expect(lines.first).to_have_class(re.compile("current"))
    expect(lines.last).not_to_have_class(re.compile("current"))
    assert all(text in page.locator("layer-profile svg").get_attribute("aria-label") for text in texts)
    # A pass that is finite again has none.
    page.get_by_role("button", name="Chapter").click()
    expect(lines).to_have_count(0)
    expect(page.locator("layer-profile .causes")).to_be_hidden()


@pytest.mark.long
def test_the_lines_of_causes_wait_until_the_slider_rests(explorer, dump_of):
    """They take room from the chart: while the slider moves nothing may jump."""
    explorer.open(f"/?{DEEP}")
    dumps = [dump_of(f"{EXPLODING}&scale={scale}") for scale in (0.1, 1, 0.9)]
    seen = explorer.page.evaluate(
        """async ([finite, ...dumps]) => {
            const { pictureOfDump } = await import("/static/core/picture.js");
            const element = document.querySelector("layer-profile");
            const [causes, chart] = [".causes", ".frame"].map((name) => element.querySelector(name));
            const marked = () => element.querySelectorAll(".cause-mark[visibility=visible]").length;
            const state = () => [marked(), causes.className, causes.textContent, chart.clientHeight];
            element.picture = pictureOfDump(finite, 1, "one graph");
            const states = [state()];
            for (const dump of dumps) {
                element.picture = pictureOfDump(dump, 1, "one graph");
                states.push(state());
                await (UNTIL_IDLE)();
                states.push(state());
            }
            return states;
        }""".replace("UNTIL_IDLE", UNTIL_IDLE),
        dumps,
    )
    marks, classes, texts, heights = zip(*seen, strict=True)
    assert marks == (0, 2, 2, 2, 2)
    assert classes == ("causes", "causes stale", "causes", "causes stale", "causes")
    assert texts[0] == texts[1] == "" != texts[2] == texts[3] != texts[4]
    assert heights[0] == heights[1] > heights[2] == heights[3] == heights[4]


@pytest.mark.long
def test_gradients_stand_upright_and_the_axes_stay_while_the_slider_is_held(explorer):
    page = explorer.open("/?preset=deep-vanishing").page
    (dots,) = page.evaluate(PATHS, ".dots.backward.activation")
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)a", dots)]
    # The gradient vanishes on its way back to the first layer: there it is lowest.
    assert heights[0] > heights[25] > heights[-1]
    ticks = """() => [...document.querySelectorAll("layer-profile .tick")]
        .map((tick) => [tick.textContent, tick.getAttribute("y")])"""
    side = page.evaluate(ticks)
    places = {text: float(y) for text, y in side[len(side) // 2 :]}
    assert places["NaN"] < places["Inf"] < min(heights) < max(heights) <= places["0"] - 3.4

    explorer.open(f"/?{DEEP}")
    before = page.evaluate(ticks)
    slider = page.locator("spec-controls .slider").bounding_box()
    page.mouse.move(slider["x"] + 9 + (slider["width"] - 18) / 3, slider["y"] + 12)
    page.mouse.down()
    for share in (0.32, 0.3, 0.335):
        page.mouse.move(slider["x"] + 9 + share * (slider["width"] - 18), slider["y"] + 12)
        explorer.idle()
    grown = page.evaluate(ticks)
    assert grown != before
    page.mouse.move(slider["x"] + 9 + (slider["width"] - 18) / 3, slider["y"] + 12)
    explorer.idle()
    assert page.evaluate(ticks) == grown
    page.mouse.up()
    explorer.idle()
    assert page.input_value("#spec-scale") == "1"
    assert page.evaluate(ticks) == before


@pytest.mark.long
def test_a_pinned_run_stands_beside(explorer, profile_of):
    explorer.open(f"/?{DEEP}#a=?{DEEP.replace('&', '%26')}%26seed=7")
    page = explorer.page
    there = profile_of(f"{DEEP}&seed=7")["layers"]
    expect(page.locator("layer-profile .key span", has=page.locator("i.box"))).to_be_visible()
    for side in ("forward", "backward"):
        (squares,) = page.evaluate(PATHS, f".run-dots.{side}.activation")
        assert squares.count("z") == (51 if side == "forward" else 50)
    expect(page.locator("layer-profile .key span", has_text="A").last).to_have_text("A")
    hover_layer(page, 3)
    readout = page.locator("layer-profile .readout")
    expect(readout).to_contain_text(f", A {significant(there[2]['activation']['std'])} · gradient")
    expect(readout).to_contain_text(f", A {significant(there[2]['gradient']['std'])}")

    # Only as deep as the model in the page.
    explorer.open(f"/#a=?{DEEP.replace('&', '%26')}")
    expect(page.locator("layer-profile .key span", has_text="A, the first 2 of 50 layers")).to_be_visible()
    (squares,) = page.evaluate(PATHS, ".run-dots.forward.activation")
    assert squares.count("z") == 3
    # A's gradients are ten decades smaller, and the axis holds them.
    (dots,) = page.evaluate(PATHS, ".run-dots.backward.activation")
    assert dots.count("z") == 2


@pytest.mark.long
def test_a_figure_that_waits_for_a_guess_is_a_question_mark(explorer):
    explorer.open("/#predict=l2.std")
    page = explorer.page
    expect(page.locator("layer-profile .question[visibility=visible]")).to_have_count(1)
    (dots,) = page.evaluate(PATHS, ".dots.forward.activation")
    assert dots.count("M") == 2  # x and out


def test_the_layers_are_walked_by_keyboard(explorer):
    explorer.open()
    page = explorer.page
    chart, readout = page.locator("layer-profile svg"), page.locator("layer-profile .readout")
    chart.focus()
    for key, begins in [
        ("ArrowRight", "input: x σ"),
        ("ArrowRight", "layer 1: l2 σ"),
        ("ArrowUp", "layer 1: l1 σ"),
        ("ArrowRight", "layer 2: out σ"),
        ("ArrowRight", "layer 2: out σ"),
        ("Home", "input: x σ"),
        ("End", "layer 2: out σ"),
        ("ArrowLeft", "layer 1: l2 σ"),
    ]:
        chart.press(key)
        expect(readout).to_have_text(re.compile(f"^{begins} "))
    expect(readout).to_have_attribute("aria-live", "polite")
    chart.press("Enter")
    expect_when_idle(page, "() => location.hash === '#select=l2'")
    chart.press("Escape")
    expect(readout).to_contain_text("measured" if page.locator("layer-profile .hollow").count() == 0 else "activation")
    # The first Escape left the chart, not the selection.
    assert page.evaluate("location.hash") == "#select=l2"
