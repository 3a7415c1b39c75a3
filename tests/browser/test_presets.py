"""The chapter's experiments: one click each, and what was printed stands beside what is measured."""

from itertools import pairwise

import pytest
from figures import percent, significant, statistic
from playwright.sync_api import expect
from waiting import expect_when_idle

from chainrule.spec.presets import PRESET_BY_NAME, PRESETS


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


# Preset, layer and part that its tensor is, statistics with what the chapter printed of each.
NUMBERS = [
    ("randn", (1, "preactivation"), {"std": "10.0544"}),
    pytest.param("scaled-relu", (1, "activation"), {"mean": "0.3758", "std": "0.6150"}, marks=pytest.mark.long),
    ("kaiming-relu", (1, "activation"), {"mean": "0.5720", "std": "0.8259"}),
    ("deep-relu", (50, "activation"), {"std": None}),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "place", "printed"), NUMBERS)
def test_the_note_shows_what_was_printed_beside_what_is_measured(explorer, chosen, profile_of, name, place, printed):
    preset = PRESET_BY_NAME[name]
    note = chosen(name)
    index, part = place
    layer = profile_of(f"preset={name}")["layers"][index - 1]
    for column, chapter in printed.items():
        value = layer[part][column]
        assert value == statistic(explorer.dump(), preset.focus, column)
        figure = layer["expected"][f"{part}_{column}"]
        low, high = figure["band"]
        expected = f"theory {significant(figure['value'])}, band {significant(low)}–{significant(high)}"
        mark = "✓ in" if low <= value <= high else "✗ out"
        before = "" if chapter is None else f"chapter {chapter}, "
        expect(note).to_contain_text(f"{column} {significant(value)} ({before}{expected} {mark})")
    if name == "deep-relu":
        expect(note).to_contain_text("chapter: entries of about 1e-8")


@pytest.mark.long
def test_where_numbers_end_is_told_with_its_band(explorer, profile_of, chosen):
    note = chosen("deep-exploding")
    profile = profile_of("preset=deep-exploding")
    expect(note).to_contain_text(f"first Inf at layer {profile['first_inf_layer']} (band 37–39 ✓ in)")
    expect(note).to_contain_text(f"first NaN at {profile['first_nan_layer']} (band 38–40 ✓ in)")
    dump = explorer.dump()
    share = statistic(dump, "out", "nan") / statistic(dump, "out", "n")
    expect(note).to_contain_text(f"NaN {percent(share)} (chapter nan)")
    note = chosen("deep-vanishing")
    zeros = percent(statistic(explorer.dump(), "out", "zero_fraction"))
    expect(note).to_contain_text(f"out zeros {zeros} (band 100 % ✓ in)")
    expect(note).to_contain_text("std 0 (chapter 0, band 0 ✓ in)")


@pytest.mark.long
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
    note = page.locator("experiment-note")
    expect(note).to_contain_text("10.0544")
    page.go_back()
    expect(note).to_contain_text("0.8259")
    # Another seed is another run of the experiment, another batch another experiment.
    explorer.open("/?init=standard_normal&seed=3")
    value = statistic(explorer.dump(), "l1", "std")
    expect(note).to_contain_text(f"l1 std {significant(value)} (chapter 10.0544")
    expect(menu.locator('[data-preset="randn"]')).to_have_attribute("aria-current", "true")
    explorer.open("/?init=standard_normal&batch=100")
    expect(note).not_to_contain_text("chapter")
    expect(menu.locator("[aria-current]")).to_have_count(0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["kaiming-relu", "deep-exploding", "deep-relu"])
def test_the_note_takes_one_line_where_there_is_room(explorer, name):
    page = explorer.open(f"/?preset={name}").page
    assert page.locator("experiment-note").bounding_box()["height"] <= 36
    expect(page.locator("experiment-note strong")).to_be_hidden()


WIDTHS = [{"viewport": {"width": width, "height": 768}} for width in (900, 1024, 1199, 1200, 1440)]


@pytest.mark.long
@pytest.mark.parametrize("context_options", WIDTHS, ids=lambda options: str(options["viewport"]["width"]))
def test_the_name_of_a_preset_leaves_room_for_the_header(explorer):
    page = explorer.open("/?preset=deep-kaiming").page
    edges = page.locator(".header > *:visible").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    )
    assert all(right <= left + 0.5 for (_, right), (left, _) in pairwise(edges))
    assert edges[-1][1] <= page.viewport_size["width"]
    wordmark = page.locator(".wordmark").evaluate("(mark) => mark.scrollWidth - mark.clientWidth")
    assert wordmark <= 0
