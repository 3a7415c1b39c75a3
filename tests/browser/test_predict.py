"""Prediction mode: nothing on the page tells the figure before a guess, and everything does after it."""

import re

import pytest
from figures import significant, statistic
from playwright.sync_api import expect
from waiting import expect_when_idle

# Text that a person can read or hear: shown text and labels. One entry per place.
SAID = """() => {
    const places = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const { parentElement: at, data } = walker.currentNode;
        if (at.closest("script, noscript") !== null || data.trim() === "") continue;
        if (at.checkVisibility() || at.closest("title") !== null) places.push([at.localName, data]);
    }
    for (const element of document.querySelectorAll("body *")) {
        for (const { name, value } of element.attributes) {
            const speaks = /^(title|alt|placeholder|label|aria-(label|valuetext|description))$/.test(name);
            if (speaks && value !== "") places.push([`${element.localName} ${name}`, value]);
        }
        if (element.matches("input, output, select")) places.push([element.localName, element.value]);
    }
    return places;
}"""

# Sends an element's event.
EMIT = "([type, detail]) => document.body.dispatchEvent(new CustomEvent(type, { detail, bubbles: true }))"


def number(text):
    """Matches a figure where it stands as a number of its own, and is no time."""
    return re.compile(rf"(?<![\d.,]){re.escape(text)}(?![\d.]|e-?\d| [mµ]?s\b)")


def places_of(page, text):
    """Places of a figure on the page."""
    return [(where, said) for where, said in page.evaluate(SAID) if number(text).search(said)]


def look_everywhere(explorer, tensor, text):
    """Every view in turn, the pointer over the profile and the box, the menu of presets, run A pinned."""
    page = explorer.page
    found = []

    def look(where):
        found.extend((where, *place) for place in places_of(page, text))

    look("as opened")
    frame = page.locator("layer-profile svg").bounding_box()
    for step in range(25):
        page.mouse.move(frame["x"] + frame["width"] * (step + 0.5) / 25, frame["y"] + frame["height"] / 4)
        said = page.locator("layer-profile").inner_text()
        found.extend(("pointer over the profile", said) for _ in number(text).finditer(said))
    page.mouse.move(5, 5)
    for shown in ("mean", "dead_fraction", "saturation", "ratio", "std"):
        page.evaluate(EMIT, ["statistic-change", {"statistic": shown}])
        look(f"statistic {shown}")
    explorer.idle()
    look("at rest")
    page.locator(".header [data-show=layers]").click()
    explorer.idle()
    look("layers")
    page.locator(".header [data-show=graph]").click()
    page.locator("spec-presets summary").click()
    look("presets")
    page.keyboard.press("Escape")
    page.locator("#pin").click()
    expect(page.locator("comparison-table")).to_be_visible()
    explorer.idle()
    look("compared to itself")
    page.evaluate(EMIT, ["box-select", {"id": tensor}])
    expect(page.locator("inspector-panel h2")).to_have_text(tensor)
    explorer.idle()
    look("inspected")
    page.locator("#pin").click()
    return found


@pytest.mark.parametrize(
    ("query", "figure"),
    [
        ("", "l2.std"),
        pytest.param("", "l1.g.std", marks=pytest.mark.long),
        pytest.param("", "w1.std", marks=pytest.mark.long),
        pytest.param("", "loss.mean", marks=pytest.mark.long),
        pytest.param("preset=deep-relu", "out.std", marks=pytest.mark.long),
    ],
)
def test_nothing_tells_the_figure_before_a_guess(explorer, query, figure):
    tensor, column = figure.rsplit(".", 1)
    explorer.open(f"/?{query}#predict={figure}")
    page = explorer.page
    secret = significant(statistic(explorer.dump(query), tensor, column))
    assert look_everywhere(explorer, tensor, secret) == []

    page.fill("#guess", "0.5")
    page.keyboard.press("Enter")
    expect(page.locator("prediction-prompt")).to_contain_text(f"measured {secret}")
    explorer.idle()
    assert len(places_of(page, secret)) >= 3


@pytest.mark.long
@pytest.mark.parametrize(("query", "figure"), [("", "l2.std"), ("widths=100x51", "l50.std")])
def test_the_box_is_covered_and_its_canvas_too(explorer, query, figure):
    explorer.expected = ["willReadFrequently"]
    tensor = figure.split(".")[0]
    shape = """(id) => {
        const canvas = document.querySelector("graph-view canvas");
        const frame = document.querySelector(`graph-view .box[data-id="${id}"] .frame`).getBoundingClientRect();
        const origin = canvas.getBoundingClientRect();
        const [x, y] = [frame.x - origin.x, frame.y - origin.y].map(Math.round);
        const { data } = canvas.getContext("2d").getImageData(x, y, Math.round(frame.width), Math.round(frame.height));
        return Array.from(data).join();
    }"""
    seen = []
    for scale in ("scale=0.5", "scale=2"):
        explorer.open(f"/?{query}&{scale}&activation=tanh&init=lecun_normal#fold=off&predict={figure}")
        # Too narrow for text at 50 layers: there it is the canvas alone that speaks.
        assert explorer.figure(tensor) in ("?", "")
        assert "hidden until you guess" in explorer.page.get_attribute(
            f'graph-view .box[data-id="{tensor}"]', "aria-label"
        )
        seen.append(explorer.page.evaluate(shape, tensor))
    assert seen[0] == seen[1]


@pytest.mark.long
def test_a_guess_reveals_stays_and_joins_the_link(explorer, profile_of):
    explorer.open("/#predict=l2.std")
    page = explorer.page
    prompt = page.locator("prediction-prompt")
    expect(prompt).to_contain_text("What will the std of l2 be?")
    assert explorer.figure("l2") == "?"

    # The typed text stays while new pictures arrive.
    page.locator("#guess").focus()
    page.keyboard.type("about ")
    seq = page.get_attribute("run-status", "data-seq")
    for scale in (3, 1):
        page.evaluate(EMIT, ["spec-change", {"change": {"scale": scale}, "moving": True}])
    page.wait_for_function("(seq) => document.querySelector('run-status').dataset.seq !== seq", arg=seq)
    page.keyboard.type("one")
    page.get_by_role("button", name="Reveal").click()
    expect(prompt.get_by_role("alert")).to_have_text("about one is not a number: write it like 0.8 or 1e-3.")
    expect(page.locator("#guess")).to_have_attribute("aria-invalid", "true")
    assert explorer.figure("l2") == "?"

    page.fill("#guess", "0.5")
    expect(prompt.get_by_role("alert")).to_be_empty()
    page.keyboard.press("Enter")
    std = statistic(explorer.dump(""), "l2", "std")
    theory = profile_of("")["layers"][0]["expected"]["activation_std"]
    band = "–".join(significant(edge) for edge in theory["band"])
    told = (
        f"l2.std: your guess 0.5 · measured {significant(std)} (×{significant(std / 0.5)})"
        f" · theory {significant(theory['value'])} ({band})"
    )
    expect(prompt.locator(".answer")).to_have_text(told)
    assert explorer.figure("l2") == significant(std)
    explorer.idle()
    assert page.evaluate("location.hash") == "#predict=l2.std&guess=0.5"

    page.reload()
    expect(prompt.locator(".answer")).to_have_text(told)

    # The guess stays when the model changes; what was measured does not.
    page.fill("#spec-scale", "2")
    page.keyboard.press("Enter")
    expect_when_idle(page, "() => location.search === '?scale=2'")
    std = statistic(explorer.dump("scale=2"), "l2", "std")
    expect(prompt.locator(".answer")).to_contain_text(f"your guess 0.5 · measured {significant(std)}")

    prompt.get_by_role("button", name="guess again").click()
    expect(page.locator("#guess")).to_be_focused()
    assert explorer.figure("l2") == "?"
    explorer.idle()
    assert page.evaluate("location.hash") == "#predict=l2.std"
    page.keyboard.type("1.7")
    page.keyboard.press("Enter")
    expect(prompt.get_by_role("button", name="guess again")).to_be_focused()
    page.keyboard.press("Escape")
    expect(prompt).to_be_hidden()
    explorer.idle()
    assert page.evaluate("location.hash") == ""

    page.go_back()
    expect(prompt).to_contain_text("your guess 1.7")
    page.go_back()
    expect(page.locator("#guess")).to_be_visible()
    page.go_forward()
    expect(prompt).to_contain_text("your guess 1.7")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("l99.std", "Unknown tensor: l99. Tensors: x, w1–w2, b1–b2, l1–l2, out, y, loss;"),
        ("l2.variance", "l2.variance: expected a tensor and a statistic, such as l2.std."),
        pytest.param("l1.saturation", "l1 has no saturation", marks=pytest.mark.long),
    ],
)
def test_a_figure_that_is_not_there_is_named_and_nothing_is_hidden(explorer, figure, message):
    explorer.open(f"/#predict={figure}")
    page = explorer.page
    expect(page.locator("prediction-prompt")).to_contain_text(message)
    assert explorer.figure("l2") == significant(statistic(explorer.dump(""), "l2", "std"))
    assert "?" not in page.locator("graph-view .value").all_text_contents()
    page.get_by_role("button", name="End the prediction").click()
    expect(page.locator("prediction-prompt")).to_be_hidden()


@pytest.mark.long
def test_an_experiment_can_be_guessed_first(explorer):
    explorer.open()
    page = explorer.page
    note = page.locator("experiment-note")
    expect(note).to_contain_text("0.8259")
    # The question stands before its answer.
    assert note.inner_text().index("Guess first") < note.inner_text().index("0.8259")
    note.get_by_role("button", name="Guess first").click()
    expect(page.locator("#guess")).to_be_focused()
    for given_away in ("0.8259", "0.8256", "0.794"):
        expect(note).not_to_contain_text(given_away)
    assert note.get_attribute("title") == ""
    explorer.idle()
    assert page.evaluate("location.hash") == "#predict=l2.std"

    # Another experiment is another question.
    page.locator("spec-presets summary").click()
    page.locator('[data-preset="randn"]').click()
    expect_when_idle(page, "() => location.search === '?init=standard_normal'")
    assert page.evaluate("location.hash") == ""
    expect(page.locator("prediction-prompt")).to_be_hidden()
    # One choice, one entry of the history.
    page.go_back()
    expect_when_idle(page, "() => location.search === '' && location.hash === '#predict=l2.std'")
    expect(page.locator("#guess")).to_be_visible()
    assert explorer.figure("l2") == "?"
