"""Two runs: A is pinned, B moves on, and a table says where they part. The link holds both."""

import json
import re
from urllib.request import urlopen

import pytest
from figures import percent, significant
from playwright.sync_api import expect
from waiting import expect_when_idle

PLACE = "location.search + location.hash"


def table(page):
    """Cells of the table's rows by phase and layer: name, A, B, contrast."""
    expect(page.locator("comparison-table tbody tr").first).to_be_visible()
    lines = page.evaluate(
        """() => [...document.querySelectorAll("comparison-table tbody tr:not(.section)")].map((line) =>
            [line.parentElement.className, ...[...line.cells].map((cell) => cell.textContent)])"""
    )
    return {(phase, layer): cells for phase, layer, *cells in lines}


def moved_to(explorer, change, query):
    """Change the spec as a control would, and wait until that is what is shown."""
    explorer.page.evaluate(
        """(change) => document.body.dispatchEvent(
            new CustomEvent("spec-change", { detail: { change, moving: false }, bubbles: true }))""",
        change,
    )
    expect_when_idle(explorer.page, "(query) => location.search === query", query)


def check(explorer, a, b):
    """Every figure of the table for std is that of the two profiles."""
    losses = explorer.page.locator("comparison-table tbody.loss td")
    for place, run in ((2, a), (3, b)):
        expect(losses.nth(place)).to_have_text(significant(run["loss"]))
    rows = table(explorer.page)
    for one, other in zip(a["layers"], b["layers"], strict=True):
        for phase, kind in (("forward", "activation"), ("backward", "gradient")):
            _, left, right, contrast = rows[phase, str(one["index"])]
            stds = one[kind]["std"], other[kind]["std"]
            assert (left, right) == tuple(map(significant, stds))
            assert contrast == f"×{significant(stds[1] / stds[0])}"


@pytest.mark.long
def test_what_is_pinned_stays_while_the_other_is_dragged(explorer, profile_of):
    page = explorer.open().page
    page.get_by_role("button", name="Pin A").click()
    comparison = page.locator("comparison-table")
    expect(comparison).to_be_visible()
    expect(page.locator("inspector-panel")).to_be_hidden()
    expect(comparison.locator(".specs")).to_contain_text("the same run as A")
    explorer.idle()
    assert page.evaluate(PLACE) == "#a=?"
    a = profile_of("")
    check(explorer, a, a)

    slider = page.locator("spec-controls .slider")
    slider.focus()
    entries = page.evaluate("history.length")
    table_before = page.evaluate_handle("() => document.querySelector('comparison-table table')")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    explorer.idle()
    scale = page.input_value("#spec-scale")
    assert float(scale) == pytest.approx(1.12)
    assert page.evaluate(PLACE) == f"?scale={scale}#a=?"
    assert page.evaluate("history.length") <= entries + 12
    # Built once: while B moves its texts do, and nothing else.
    assert page.evaluate("(table) => table.isConnected", table_before)
    expect(comparison.locator(".specs div").nth(1)).to_have_text(f"Bscale {scale}")
    b = profile_of(f"scale={scale}")
    check(explorer, a, b)
    page.reload()
    expect(comparison).to_be_visible()
    explorer.idle()
    check(explorer, a, b)

    page.get_by_role("button", name="Swap").click()
    expect_when_idle(page, f"() => {PLACE} === '#a=?scale={scale}'")
    check(explorer, b, a)
    expect(page.locator("#spec-scale")).to_have_value("1")
    page.go_back()
    expect_when_idle(page, f"() => {PLACE} === '?scale={scale}#a=?'")
    check(explorer, a, b)
    page.go_forward()
    expect_when_idle(page, f"() => {PLACE} === '#a=?scale={scale}'")

    page.locator('comparison-table [data-tensor="l2.g"] button').click()
    expect(page.locator("inspector-panel h2")).to_have_text("l2.g")
    expect(comparison).to_be_hidden()
    expect(page.locator('graph-view .box[data-id="l2.g"]')).to_have_class(re.compile("selected"))
    page.keyboard.press("Escape")
    expect(comparison).to_be_visible()
    page.get_by_role("button", name="Unpin").click()
    expect(comparison).to_be_hidden()
    expect(page.locator("inspector-panel")).to_be_visible()
    explorer.idle()
    assert page.evaluate(PLACE) == ""


@pytest.mark.long
def test_specs_are_told_apart_by_what_differs(explorer):
    explorer.open("/?init=lecun_normal&seed=7#a=?activation=tanh%26seed=7")
    specs = explorer.page.locator("comparison-table .specs div")
    expect(specs.nth(0).locator("dd")).to_have_text("activation tanh, init kaiming_normal open A")
    expect(specs.nth(1).locator("dd")).to_have_text("activation relu, init lecun_normal")
    link = specs.nth(0).get_by_role("link", name="open A")
    assert link.get_attribute("href") == "/?activation=tanh&seed=7"

    # Programs without layers have their losses to compare: the table names what it holds.
    explorer.open("/?program=my_relu#a=?program=exp")
    expect(explorer.page.locator("comparison-table caption")).to_have_text("Loss")
    assert list(table(explorer.page)) == [("loss", "")]


@pytest.mark.long
@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (390, 844)])
def test_no_bar_lies_over_a_figure(explorer, size):
    page = explorer.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    explorer.open("/?widths=100x11&scale=1.2#tab=inspector&a=?widths=100x11%26scale=0.001")
    gaps = page.locator("comparison-table .contrast").evaluate_all(
        """(cells) => cells.filter((cell) => cell.checkVisibility()).flatMap((cell) => {
            const [bar, text] = [...cell.children].map((part) => part.getBoundingClientRect());
            return bar.width > 0 ? [text.left - bar.right] : [];
        })"""
    )
    assert min(gaps, default=0) >= 0
    assert gaps or size[0] == 1024


@pytest.mark.long
def test_bars_point_to_where_the_runs_part(explorer):
    explorer.open("/?widths=100x11&scale=1.2#a=?widths=100x11")
    bars = explorer.page.locator("comparison-table .forward .contrast")
    # Each layer multiplies by 1.2 once more: the bars grow in equal steps up to a whole one.
    shares = bars.evaluate_all("(bars) => bars.map(({ style }) => Number(style.getPropertyValue('--share')))")
    assert shares == pytest.approx([layer / 10 for layer in range(1, 11)], abs=0.002)
    expect(explorer.page.locator("comparison-table .less")).to_have_count(0)
    explorer.open("/?widths=100x11#a=?widths=100x11%26scale=1.2")
    expect(explorer.page.locator("comparison-table .forward .contrast.less")).to_have_count(10)


@pytest.mark.long
@pytest.mark.parametrize(
    "a",
    [
        "?scale=0",
        *(pytest.param(a, marks=pytest.mark.long) for a in ("?widths=100x1000", "?nonsense=1", "?preset=x", "scale=0")),
    ],
)
def test_a_bad_run_in_the_link_is_told_and_the_page_works(explorer, a):
    explorer.expected = ["422"]
    explorer.open(f"/?scale=2#a={a}")
    page = explorer.page
    expect(page.locator("run-status .error")).to_contain_text("Run A: ")
    explorer.idle()
    expect(page.locator("run-status .error")).to_contain_text(re.split("[?=]", a.lstrip("?"))[0])
    assert page.evaluate("location.search + location.hash") == "?scale=2"
    expect(page.locator("#pin")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("comparison-table")).to_be_hidden()
    moved_to(explorer, {"scale": 3}, "?scale=3")
    expect(page.locator("run-status .error")).to_be_hidden()


@pytest.mark.long
def test_a_busy_server_is_asked_again_for_run_a(explorer):
    explorer.expected = ["503"]
    page = explorer.page
    busy = [True]

    def answer(route):
        if not busy:
            route.continue_()
            return
        body = {"error": {"code": "busy", "message": "too many requests wait"}}
        route.fulfill(status=503, content_type="application/json", body=json.dumps(body))

    page.route("**/api/v1/profile.json?scale=0.5", answer)
    explorer.open("/?scale=2#a=?scale=0.5")
    expect(page.locator("run-status .error")).to_have_text("Run A: too many requests wait")
    busy.clear()
    expect(page.locator("comparison-table")).to_be_visible()
    expect(page.locator("run-status .error")).to_be_hidden()
    assert page.evaluate("location.hash") == "#a=?scale=0.5"


@pytest.mark.long
def test_layers_that_one_run_lacks_are_blank_and_what_is_not_finite_is_told_in_words(explorer, profile_of):
    explorer.open("/?widths=100x4#a=?widths=100x6")
    rows = table(explorer.page)
    deep = profile_of("widths=100x6")["layers"]
    assert [layer for phase, layer in rows if phase == "forward"] == ["1", "2", "3", "4", "5"]
    for layer in ("4", "5"):
        std = deep[int(layer) - 1]["activation"]["std"]
        assert rows["forward", layer] == ["", significant(std), "", ""]
    assert all(rows["forward", "3"])

    explorer.open("/?preset=deep-exploding#a=?widths=100x51%26activation=linear%26bias=false")
    rows = table(explorer.page)
    a = profile_of("widths=100x51&activation=linear&bias=false")["layers"]
    assert rows["forward", "50"] == ["out", significant(a[49]["activation"]["std"]), "NaN", "–"]
    assert rows["forward", "38"][2] == "Inf"
    assert explorer.page.locator("comparison-table .warning").first.text_content() in ("Inf", "NaN")
    assert rows["loss", ""][2] == "NaN"


def away(one, other, unit=""):
    return f"{'+' if other > one else ''}{significant(other - one)}{unit}"


@pytest.mark.parametrize(
    ("statistic", "figure_of", "written", "contrast"),
    [
        ("mean", lambda layer: layer["activation"]["mean"], significant, away),
        (
            "ratio",
            lambda layer: layer["gradient_to_weight_ratio"],
            significant,
            lambda a, b: f"×{significant(b / a)}",
        ),
        (
            "dead_fraction",
            lambda layer: layer["dead_fraction"],
            percent,
            lambda a, b: away(100 * a, 100 * b, " pp"),
        ),
    ],
)
def test_every_statistic_of_the_profile_is_compared(explorer, profile_of, statistic, figure_of, written, contrast):
    a, b = profile_of("widths=100x11"), profile_of("widths=100x11&seed=2")
    explorer.open(f"/?widths=100x11&seed=2#a=?widths=100x11&statistic={statistic}")
    rows = table(explorer.page)
    assert statistic != "dead_fraction" or not any(phase == "backward" for phase, _ in rows)
    for layer, layer_b in zip(a["layers"], b["layers"], strict=True):
        one, other = figure_of(layer), figure_of(layer_b)
        cells = rows["forward", str(layer["index"])][1:]
        if one is None:
            assert cells == ["–", "–", "–"]
        elif one != other:
            assert cells == [written(one), written(other), contrast(one, other)]


# Copies

SAID_NEXT = """(button) => ({
    said: new Promise((say) => {
        new MutationObserver(() => say(button.textContent)).observe(button, { childList: true });
    }),
})"""
"""The next label of a button, which may stay for a moment only."""


@pytest.fixture
def copied(explorer):
    """Opens an address, chooses something in the share menu, and reads the clipboard."""

    def copy(address, entry):
        explorer.open(address)
        page = explorer.page
        page.locator("#share summary").click()
        button = page.get_by_role("button", name=entry)
        told = button.evaluate_handle(SAID_NEXT)
        button.click()
        assert told.evaluate("({ said }) => said") == "Copied"
        return page.evaluate("navigator.clipboard.readText()")

    return copy


CLIPBOARD = [{"permissions": ["clipboard-read", "clipboard-write"]}]


@pytest.mark.long
@pytest.mark.parametrize("context_options", CLIPBOARD)
def test_link_and_script_are_copied_as_they_stand(explorer, copied, server_url, context_options):
    assert context_options["permissions"]
    text = copied("/?scale=2#select=l2&a=?scale=0.5%26seed=3&predict=l1.std&guess=1", "Copy link to this view")
    assert text == f"{server_url}/?scale=2#select=l2&predict=l1.std&guess=1&a=?scale=0.5%26seed=3"
    assert text == explorer.page.evaluate("location.href")
    text = copied("/?activation=tanh&scale=1.5", "Copy as PyTorch")
    with urlopen(f"{server_url}/api/v1/trace.py?activation=tanh&scale=1.5") as answer:
        assert text == answer.read().decode()


@pytest.mark.long
@pytest.mark.parametrize("context_options", CLIPBOARD)
def test_the_command_that_is_copied_gets_the_dump_and_brings_the_token(explorer, copied, server_url, context_options):
    assert context_options["permissions"]
    text = copied("/?preset=deep-relu&seed=3", "Copy as curl")
    url = re.fullmatch(r"curl -s '([^']+)'", text)[1]
    assert url.startswith(f"{server_url}/api/v1/trace.json?")
    with urlopen(url) as answer:
        assert json.load(answer)["spec"] == explorer.dump()["spec"]
    # As a server with a token would have it in the page.
    explorer.spend().add_init_script(
        """const { parse } = JSON;
        JSON.parse = (text) => {
            const value = parse(text);
            if (value?.needs_token === false) value.needs_token = true;
            return value;
        };"""
    )
    text = copied("/?scale=2", "Copy as curl")
    assert text.startswith('curl -s -H "Authorization: Bearer $CHAINRULE_TOKEN" \'http://')
