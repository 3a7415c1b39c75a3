"""Finding one's way in the graph, colouring it and taking it away: the toolbar, the address and the Share menu."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, expect


def boxes(explorer: Any) -> Locator:
    return explorer.page.locator("graph-view .box")


def fragment(explorer: Any) -> str:
    return str(explorer.page.evaluate("location.hash"))


def test_a_search_counts_goes_to_what_it_finds_and_opens_what_hides_it(explorer: Any) -> None:
    page = explorer.open("/").page
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search the graph")
    expect(search).to_be_focused()
    found = page.locator("#search-found")

    search.fill("op:matmul")
    in_dump = [op["id"] for op in explorer.dump()["ops"] if op["name"] == "matmul"]
    expect(found).to_have_text(str(len(in_dump)))
    assert page.locator(f'graph-view .box[data-id="{in_dump[0]}"]').count() == 0, "its layer is closed"

    search.press("Enter")
    expect(found).to_have_text(f"1 of {len(in_dump)}")
    expect(page.locator(f'graph-view .box.selected[data-id="{in_dump[0]}"]')).to_be_visible()
    assert f"select={in_dump[0]}" in fragment(explorer)
    search.press("Shift+Enter")
    expect(page.locator(f'graph-view .box.selected[data-id="{in_dump[-1]}"]')).to_be_visible()

    # A search by figures follows the slider.
    search.fill("std>1000")
    expect(found).to_have_text("nothing")
    page.get_by_role("button", name="Whole range").click()
    page.locator("spec-controls input[type=range]").first.evaluate(
        "(slider) => { slider.value = slider.max; slider.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    expect(found).to_have_text(re.compile(r"^\d+$"))
    search.fill("/(/")
    expect(search).to_have_attribute("aria-invalid", "true")
    assert "(" in (found.get_attribute("title") or "")
    # The problem can be read to its end.
    assert found.evaluate("(found) => found.scrollWidth <= found.clientWidth && found.clientHeight > 0")
    search.press("Escape")
    expect(found).to_have_text("")
    explorer.idle()
    assert "q=" not in fragment(explorer)


@pytest.mark.long
def test_the_address_holds_expansion_overlay_and_view_and_history_goes_through_them(explorer: Any) -> None:
    page = explorer.open("/").page
    closed = boxes(explorer).count()
    page.get_by_label("Depth of the graph").select_option("all")
    expect(page.locator('graph-view .box[data-id="n0"]')).to_be_visible()
    opened = explorer.idle().boxes()
    assert len(opened) > closed

    page.get_by_label("Colour of the boxes").select_option("flops")
    expect(page.locator("graph-view .legend")).to_be_visible()
    explorer.idle()
    assert "level=all" in fragment(explorer)
    assert "colour=flops" in fragment(explorer)

    page.keyboard.press("Escape")
    page.reload()
    page.wait_for_selector('graph-view .box[data-id="n0"]')
    expect(page.locator("graph-view .legend")).to_be_visible()
    again = explorer.idle().boxes()
    assert again.keys() == opened.keys()
    for name, box in opened.items():
        assert again[name] == pytest.approx(box, abs=1), name

    page.go_back()
    expect(page.locator("graph-view .legend")).to_be_hidden()
    page.go_back()
    expect(page.locator('graph-view .box[data-id="n0"]')).to_have_count(0)
    page.go_forward()
    expect(page.locator('graph-view .box[data-id="n0"]')).to_be_visible()


def test_colours_follow_the_numbers_and_a_held_range_stays(explorer: Any) -> None:
    page = explorer.open("/#colour=std").page
    legend = page.locator("graph-view .legend")
    expect(legend).to_contain_text("std")
    fill = "(id) => getComputedStyle(document.querySelector(`graph-view .box[data-id='${id}'] .frame`)).fill"
    assert page.evaluate(fill, "l1") != page.evaluate(fill, "w1")

    page.get_by_role("button", name="Hold range").click()
    explorer.idle()
    held = re.search(r"span=([^&]+)", fragment(explorer))
    assert held is not None
    before = legend.inner_text()
    page.locator("spec-controls input[type=range]").first.press("PageUp")
    explorer.idle()
    assert legend.inner_text() == before
    assert page.evaluate("document.querySelector('graph-toolbar [aria-pressed=true]') !== null")


def saved(explorer: Any, button: str, folder: Path) -> Path:
    page = explorer.page
    page.locator("#share summary").click()
    with page.expect_download() as download:
        page.locator(button).click()
    target = folder / download.value.suggested_filename
    download.value.save_as(target)
    page.keyboard.press("Escape")
    return target


def test_the_picture_can_be_taken_away(explorer: Any, tmp_path: Path) -> None:
    explorer.open("/?widths=20,9,1&scale=9#select=l1")
    svg = saved(explorer, "#save-svg", tmp_path)
    root = ElementTree.fromstring(svg.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    written = {text.strip() for text in root.itertext()}
    assert {"x", "l1", "l2", "Relu", "loss", "exploding"} <= written
    assert "Chainrule · widths=20,9,1, scale=9" in written
    assert explorer.figure("l1") in written
    png = saved(explorer, "#save-png", tmp_path)
    with Image.open(png) as image:
        assert image.size == tuple(round(2 * float(root.attrib[side])) for side in ("width", "height"))
        # The caption stands in the last lines, on paper.
        caption = image.convert("L").crop((0, image.height - 2 * 24, image.width // 2, image.height))
        assert caption.getextrema() == (pytest.approx(0x49, abs=8), 255)
    assert svg.name == "chainrule-20-9-1.svg"


@pytest.mark.long
def test_one_file_shows_the_same_without_a_server(explorer: Any, context: BrowserContext, tmp_path: Path) -> None:
    page = explorer.open("/?widths=20,9,1#select=l1&level=all&colour=std").page
    page.wait_for_selector('graph-view .box[data-id="n0"]')
    here = {name: explorer.figure(name) for name in ("l1", "l2", "out.g")}
    drawn = set(explorer.boxes())
    file = saved(explorer, "#save-html", tmp_path)

    # The explorer itself would miss its server, and say so in the console.
    page.goto("about:blank")
    context.set_offline(True)
    other = context.new_page()
    problems: list[str] = []
    other.on("pageerror", lambda error: problems.append(str(error)))
    requested: list[str] = []
    other.on("request", lambda request: requested.append(request.url))
    other.goto(file.as_uri())
    other.wait_for_selector('graph-view .box[data-id="n0"]')
    for name, figure in here.items():
        expect(other.locator(f'graph-view .box[data-id="{name}"] .value')).to_have_text(figure)
    ids = "[...document.querySelectorAll('graph-view .box')].map((box) => box.dataset.id)"
    assert set(other.evaluate(ids)) == drawn
    expect(other.locator("graph-view .box.selected")).to_have_attribute("data-id", "l1")
    expect(other.locator("inspector-panel")).to_contain_text("l1")
    other.locator('graph-view .box[data-id="l2"]').click()
    expect(other.locator("inspector-panel h2")).to_have_text("l2")
    assert problems == []
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []
    context.set_offline(False)


@pytest.mark.long
def test_repeated_layers_fold_into_one_box_that_says_the_worst_that_theory_finds_in_it(explorer: Any) -> None:
    page = explorer.open("/?preset=deep-relu#fold=off").page
    unfolded = boxes(explorer).count()
    page.get_by_role("button", name="Fold repeats").click()
    fold = page.locator('graph-view .box.forward[data-id*="*50"]')
    expect(fold.locator(".badge")).to_have_text("vanishing")
    expect(fold).to_contain_text("×")
    assert boxes(explorer).count() < unfolded / 4
    explorer.idle()
    expect(fold).to_have_attribute("aria-label", re.compile("vanishing in 50 of its tensors"))
    # However long after the drawing theory comes, or goes.
    page.evaluate("() => { document.querySelector('graph-view').screen.theory = null; }")
    expect(fold).not_to_have_attribute("aria-label", re.compile("vanishing"))


@pytest.mark.long
def test_what_is_dropped_on_the_page_has_no_link_and_leaves_nothing_of_the_graph_before(
    explorer: Any, tmp_path: Path
) -> None:
    page = explorer.open("/#select=l2&toggled=layers.0/forward&reach=up1").page
    file = tmp_path / "other.json"
    file.write_text(json.dumps(explorer.dump("widths=7,5,3,1&seed=4")))
    page.set_input_files("dump-opener input[type=file]", file)
    page.wait_for_selector("body[data-source=dump]")
    explorer.idle()
    assert not re.search("select|toggled|reach", fragment(explorer))
    page.locator("#share summary").click()
    expect(page.locator("#save-dump")).to_be_visible()
    expect(page.locator("#copy-link")).to_be_hidden()
    expect(page.locator("dump-note")).to_contain_text("other.json")
    expect(page.locator("dump-note")).to_contain_text(explorer.figure("loss"))
