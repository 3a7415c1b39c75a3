"""The chapter's experiments: one click each, and what was printed stands beside what is measured."""

import json
import re
from urllib.request import urlopen

import pytest
from figures import significant
from playwright.sync_api import expect
from waiting import expect_when_idle

from chainrule.spec.presets import PRESET_BY_NAME, PRESETS


def column(dump, name, statistic):
    tensor = next(tensor["id"] for tensor in dump["tensors"] if tensor["name"] == name)
    statistics = dump["statistics"]
    return statistics[statistic][statistics["tensor"].index(tensor)]


def percent(fraction):
    return f"{100 * fraction:.0f} %" if fraction in (0, 1) else f"{100 * fraction:.1f} %"


@pytest.fixture
def chosen(explorer):
    """Opens the page and clicks a preset in its menu; the note above the graph."""

    def choose(name, opened="/?seed=1"):
        explorer.open(opened)
        page = explorer.page
        page.locator("spec-presets summary").click()
        page.locator(f'[data-preset="{name}"]').click()
        query = page.locator(f'[data-preset="{name}"]').get_attribute("data-query")
        expect_when_idle(page, "(query) => location.search.slice(1) === query", query)
        return page.locator("experiment-note")

    return choose


# Preset, statistics of its tensor with what the chapter printed of each, words of its theory.
NUMBERS = [
    ("randn", {"std": "10.0544"}, "√100 = 10"),
    pytest.param("scaled", {"std": "1.0231"}, "theory 1", marks=pytest.mark.long),
    pytest.param("scaled-relu", {"mean": "0.3758", "std": "0.6150"}, "0.5838", marks=pytest.mark.long),
    ("kaiming-relu", {"mean": "0.5720", "std": "0.8259"}, "0.8256"),
    pytest.param("deep-linear", {"std": "1.0150"}, "RMS 1", marks=pytest.mark.long),
    ("deep-relu", {"mean": None, "std": None}, "2.46e-8"),
    pytest.param("deep-kaiming", {"std": None}, "0.8256", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "printed", "theory"), NUMBERS)
def test_the_note_shows_what_was_printed_beside_what_is_measured(explorer, chosen, name, printed, theory):
    preset = PRESET_BY_NAME[name]
    note = chosen(name).inner_text()
    dump = explorer.dump()
    for statistic, chapter in printed.items():
        value = column(dump, preset.focus, statistic)
        figure = re.search(rf"{preset.focus} [^|]*?{statistic} {re.escape(significant(value))}( \([^)]*\))", note, re.S)
        assert figure, (statistic, note)
        if chapter is not None:
            assert f"chapter {chapter}" in figure[1]
        if statistic in preset.band:
            low, high = preset.band[statistic]
            assert low <= value <= high
            assert f"band {significant(low)}–{significant(high)} ✓" in figure[1]
    assert theory in note
    if name == "deep-relu":
        assert "chapter: entries of about 1e-8" in note


def test_where_numbers_end_is_told_with_its_band(explorer, server_url, chosen):
    note = chosen("deep-exploding").inner_text()
    with urlopen(f"{server_url}/api/v1/profile.json?preset=deep-exploding") as answer:
        profile = json.load(answer)
    assert f"first Inf at layer {profile['first_inf_layer']} (band 37–39 ✓)" in note
    assert f"first NaN at {profile['first_nan_layer']} (band 38–40 ✓)" in note
    dump = explorer.dump()
    share = column(dump, "out", "nan") / column(dump, "out", "n")
    assert f"NaN {percent(share)} (chapter nan)" in note
    assert "theory: std 10^l after layer l" in note


def test_zeros_are_counted(explorer, chosen):
    note = chosen("deep-vanishing").inner_text()
    assert f"out zeros {percent(column(explorer.dump(), 'out', 'zero_fraction'))} (band 100 % ✓)" in note
    assert "std 0 (chapter 0, band 0 ✓)" in note


def test_a_figure_outside_its_band_says_so(explorer, module):
    dump = explorer.dump_of("")
    preset = {"name": "p", "focus": "l2", "statistic": "std", "theory": "", "printed": "0.5", "band": {"std": [0, 0.5]}}
    answer = module(
        "lab/experiment.js",
        """(m, { dump, preset }) => import("/static/core/picture.js").then(
            ({ pictureOfDump }) => m.experiment(pictureOfDump(dump, 1, "key"), preset))""",
        {"dump": dump, "preset": preset},
    )
    (figure,) = answer["figures"]
    assert (figure["isInside"], figure["band"], figure["printed"]) == (False, "0–0.500", "0.5")


@pytest.mark.long
def test_another_seed_is_another_run_of_the_experiment(explorer):
    explorer.open("/?init=standard_normal&seed=3")
    value = column(explorer.dump(), "l1", "std")
    expect(explorer.page.locator("experiment-note")).to_contain_text(f"l1 std {significant(value)} (chapter 10.0544")
    expect(explorer.page.locator('[data-preset="randn"]')).to_have_attribute("aria-current", "true")
    explorer.open("/?init=standard_normal&batch=100")
    expect(explorer.page.locator("experiment-note")).not_to_contain_text("chapter")
    expect(explorer.page.locator("spec-presets [aria-current]")).to_have_count(0)


def test_the_menu_lists_all_and_is_walked_by_keyboard(explorer):
    explorer.open()
    page = explorer.page
    menu = page.locator("spec-presets")
    expect(menu.locator("summary")).to_contain_text("Kaiming weights, after relu")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    lines = menu.locator("[data-preset]").all_inner_texts()
    assert len(lines) == len(PRESETS) == 9
    for preset, line in zip(PRESETS, lines, strict=True):
        assert preset.title in line
        assert (preset.printed if preset.printed != "–" else preset.theory) in line
    assert menu.locator("[aria-current]").all_inner_texts() == [lines[3]]

    page.keyboard.press("Tab")
    expect(menu.locator('[data-preset="randn"]')).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(menu.locator('[data-preset="scaled"]')).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(menu.locator('[data-preset="deep-kaiming"]')).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu.locator("[data-preset]").first).to_be_hidden()
    expect(menu.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect_when_idle(page, "() => location.search === '?init=standard_normal'")
    expect(menu.locator("summary")).to_contain_text("Standard normal weights")
    expect(menu.locator("[data-preset]").first).to_be_hidden()


def test_going_back_goes_back_to_the_experiment_before(explorer, chosen):
    note = chosen("randn", "/")
    expect(note).to_contain_text("10.0544")
    explorer.page.go_back()
    expect(note).to_contain_text("0.8259")
    explorer.page.go_forward()
    expect(note).to_contain_text("10.0544")


@pytest.mark.long
@pytest.mark.parametrize("name", ["kaiming-relu", "deep-exploding", "deep-relu"])
def test_the_note_takes_one_line_where_there_is_room(explorer, name):
    page = explorer.open(f"/?preset={name}").page
    assert page.locator("experiment-note").bounding_box()["height"] <= 36
    expect(page.locator("experiment-note strong")).to_be_hidden()
