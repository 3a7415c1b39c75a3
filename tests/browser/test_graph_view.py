"""The graph on the screen: groups that open where they are, what is drawn of thousands of boxes, keys, words for it."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect
from waiting import expect_when_idle, next_frame

ALL_OPEN = "/?widths=100x51#level=all&fold=off"

# How many pixels of a canvas in a part of the stage are painted.
PAINTED = """(selector) => {
    const canvas = document.querySelector(selector);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let painted = 0;
    for (let place = 3; place < data.length; place += 4) painted += data[place] > 0;
    return painted;
}"""

VIEW = "document.querySelector('graph-view')"


def corner(explorer: Any, name: str) -> tuple[float, float]:
    box = explorer.boxes()[name]
    return box["x"], box["y"]


def focused(explorer: Any) -> str:
    return str(explorer.page.evaluate("document.activeElement.dataset.id ?? ''"))


def number(pattern: str, text: str | None) -> float:
    found = re.search(pattern, text or "")
    assert found is not None, text
    return float(found[1])


# The least size of the words in boxes, px of the screen, and whether there are any.
LEAST_WORDS = """() => {
    const words = [...document.querySelectorAll("graph-view .box :is(text, tspan)")].filter((each) =>
        [...each.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim() !== ""));
    const sizes = words.map((each) => parseFloat(getComputedStyle(each).fontSize) * Math.abs(each.getScreenCTM().d
        || each.getScreenCTM().b));
    return [sizes.length > 0, Math.min(Infinity, ...sizes)];
}"""


@pytest.mark.long
@pytest.mark.parametrize("address", ["/", "/#level=all", "/?widths=20x6#level=all&fold=off", ALL_OPEN])
def test_words_in_boxes_are_legible_or_left_out(explorer: Any, address: str) -> None:
    any_words, least = explorer.open(address).page.evaluate(LEAST_WORDS)
    assert any_words
    assert least >= 8.99


OUTSIDE = """() => [...document.querySelectorAll("graph-view .box:not(.open)")].flatMap((box) => {
    const frame = box.querySelector(".frame").getBBox();
    return [...box.querySelectorAll(":scope > text")].filter((text) => {
        const words = text.getBBox();
        return words.height > 0 && (words.y < frame.y - 1 || words.y + words.height > frame.y + frame.height + 1.5);
    }).map((text) => `${text.textContent} in ${box.dataset.id}`);
})"""


@pytest.mark.long
@pytest.mark.parametrize(
    "address", ["/", "/?program=matmul&rung=loops", "/#toggled=layers.0/forward", "/?preset=deep-relu"]
)
def test_no_word_crosses_the_frame_of_its_box(explorer: Any, address: str) -> None:
    assert explorer.open(address).page.evaluate(OUTSIDE) == []


@pytest.mark.long
def test_layers_keep_their_names_before_tensors_keep_their_numbers(explorer: Any) -> None:
    page = explorer.open("/?widths=50x6&activation=sigmoid").page
    names = page.locator("graph-view .box.leaf.forward .name").all_text_contents()
    assert sorted(set(names)) == ["Lin", "Mse", "sigmoid"]


@pytest.mark.long
def test_a_net_folds_where_its_words_would_not_fit(explorer: Any) -> None:
    """12 layers have 51 columns of at least 16 px; 20 layers would have strips without words."""
    for layers, folds in ((12, 0), (20, 1), (50, 1), (64, 1)):
        page = explorer.open(f"/?widths=50x{layers + 1}&last_activation=true").page
        expect(page.locator(f'graph-view .box.forward[data-id*="*{layers}"]')).to_have_count(folds)


@pytest.mark.long
@pytest.mark.parametrize("half", ["forward", pytest.param("backward", marks=pytest.mark.long)])
def test_a_group_opens_and_closes_where_it_is(explorer: Any, half: str) -> None:
    page = explorer.open().page
    name = f"layers.2/{half}"
    group = page.locator(f'graph-view .box[data-id="{name}"]')
    before = corner(explorer, name)
    assert group.get_attribute("aria-expanded") == "false"
    expect(group.locator(".name tspan")).to_have_text(["Lin", "layer 2"])
    group.hover()
    group.locator(".toggle").click()
    explorer.idle()
    expect(group).to_have_attribute("aria-expanded", "true")
    expect(group.locator(".name")).to_have_text("layer 2 · Lin")
    # It moves up or down only, until both halves are in view.
    assert corner(explorer, name)[0] == pytest.approx(before[0], abs=1)
    assert "toggled=layers.2/forward" in page.evaluate("location.hash")
    # Its contents stand inside its frame, the other half opens as well, and everything else stays drawn.
    inner = explorer.boxes()
    frame = inner[name]
    ops = [op["id"] for op in explorer.dump("")["ops"] if op["phase"] == half and op["id"] in inner]
    assert ops
    for box in (inner[op] for op in ops):
        assert frame["x"] < box["x"] < box["x"] + box["width"] < frame["x"] + frame["width"]
        assert frame["y"] < box["y"] < box["y"] + box["height"] < frame["y"] + frame["height"]
    for each in ("layers.2/forward", "layers.2/backward"):
        expect(page.locator(f'graph-view .box.open[data-id="{each}"]')).to_have_count(1)
    assert {"x", "l1.g", "loss"} <= inner.keys()

    group.locator(".toggle").click()
    explorer.idle()
    expect(group).to_have_attribute("aria-expanded", "false")
    assert corner(explorer, name) == pytest.approx(before, abs=1)


def test_groups_are_opened_and_left_by_keyboard(explorer: Any) -> None:
    page = explorer.open("/#select=layers.0/forward").page
    page.locator('graph-view .box[data-id="layers.0/forward"]').focus()
    before = corner(explorer, "layers.0/forward")
    page.keyboard.press("e")
    expect(page.locator('graph-view .box.open[data-id="layers.0/forward"]')).to_be_focused()
    explorer.idle()
    assert corner(explorer, "layers.0/forward")[0] == pytest.approx(before[0], abs=1)
    page.locator('graph-view .box[data-id="n0"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator("graph-view .box.selected")).to_have_attribute("data-id", "n0")
    # The box around a hidden op shows it.
    page.keyboard.press("u")
    assert focused(explorer) == "layers.0/forward"
    page.keyboard.press("Space")
    expect(page.locator('graph-view .box.holds-selection[data-id="layers.0/forward"]')).to_be_focused()
    assert page.locator("graph-view .box[tabindex='0']").count() == 1

    width = explorer.idle().boxes()["x"]["width"]
    page.keyboard.press("+")
    expect_when_idle(page, "() => location.hash.includes('zoom=')")
    # The worker lays out the columns anew when they spread.
    assert explorer.idle().boxes()["x"]["width"] > width
    page.keyboard.press("0")
    expect_when_idle(page, "() => !location.hash.includes('zoom=')")


@pytest.mark.long
def test_of_thousands_of_boxes_those_that_can_be_read_are_elements(explorer: Any) -> None:
    explorer.expected = ["willReadFrequently"]
    page = explorer.open(ALL_OPEN).page
    page.wait_for_function(f"() => {VIEW}.drawing.boxes > 1300")
    explorer.idle()
    count = "document.querySelectorAll('graph-view .box').length"
    # It begins where it can be read; fit, all of it is in sight, drawn as plain shapes.
    assert page.evaluate(f"{VIEW}.viewBox().width < {VIEW}.drawing.width / 3")
    page.get_by_role("button", name="Fit to the panel (0)").click()
    explorer.idle()
    assert page.evaluate(count) < 50
    assert page.evaluate(PAINTED, "graph-view .ground") > 5000
    assert page.evaluate(f"{VIEW}.viewBox().width >= {VIEW}.drawing.width - 0.5")
    assert page.locator("graph-view .minimap").is_hidden()
    # A click finds what is too small to be an element.
    stage = page.locator("graph-view .stage").bounding_box()
    place = page.evaluate(
        f"""() => {{
            const {{ drawing }} = {VIEW};
            const view = {VIEW}.viewBox();
            const box = drawing.kind.findIndex((kind, box) => kind === 1 && box > 1000);
            const [x, y, w, h] = drawing.rect.subarray(4 * box, 4 * box + 4);
            return [(x + w / 2 - view.x) / view.width, (y + h / 2 - view.y) / view.height];
        }}"""
    )
    page.mouse.click(stage["x"] + place[0] * stage["width"], stage["y"] + place[1] * stage["height"])
    expect(page.locator("graph-view .box.selected")).to_have_count(1)

    # One that is far away is walked to all the same.
    page.evaluate(f"() => {VIEW}.screen.zoomTo('x')")
    page.wait_for_selector('graph-view .box[data-id="x"]')
    explorer.idle()
    assert 5 < page.evaluate(count) < 1300
    assert page.locator('graph-view .box[data-id="loss"]').count() == 0
    page.locator('graph-view .box[data-id="x"]').focus()
    page.keyboard.press("End")
    assert focused(explorer) == "loss"
    expect(page.locator('graph-view .box[data-id="loss"]')).to_be_in_viewport()
    # As many as a reader can use, and how many there are besides.
    page.wait_for_function("() => document.querySelectorAll('graph-view table tbody tr').length === 500")
    expect(page.locator("graph-view .twin-table")).to_contain_text(re.compile(r"and [\d,]+ more tensors"))
    dump = explorer.dump()
    forward = sum(op["phase"] == "forward" for op in dump["ops"])
    summary = f"{forward} ops forward, {len(dump['ops']) - forward:,} backward"
    expect(page.locator("graph-view .twin-table p").first).to_contain_text(summary)


def test_panning_moves_what_is_drawn_and_draws_nothing(explorer: Any) -> None:
    page = explorer.open(f"{ALL_OPEN}&zoom=20&at=0.4").page
    page.wait_for_selector("graph-view .minimap:not([hidden])")
    before = explorer.boxes()
    assert before
    view = page.evaluate(f"{VIEW}.viewBox()")
    page.evaluate(
        """() => {
            window.changes = 0;
            new MutationObserver((changes) => { window.changes += changes.length; })
                .observe(document.querySelector("graph-view svg"), { subtree: true, childList: true, attributes: true })
        }"""
    )
    stage = page.locator("graph-view .stage").bounding_box()
    x, y = stage["x"] + stage["width"] / 2, stage["y"] + 8
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x - 10 * step, y)
    next_frame(page)
    page.mouse.up()
    page.wait_for_function(f"(x) => Math.abs({VIEW}.viewBox().x - x) > 1", arg=view["x"])
    moved = explorer.idle().boxes()
    assert page.evaluate("window.changes") == 0
    for name, box in before.items():
        assert moved[name]["x"] == pytest.approx(box["x"] - 80, abs=1), name
        assert moved[name]["y"] == pytest.approx(box["y"], abs=1), name
    # The frame on the minimap is what is seen, and goes where it is drawn to.
    window = page.locator("graph-view .minimap i").bounding_box()
    minimap = page.locator("graph-view .minimap canvas").bounding_box()
    seen = page.evaluate(f"{VIEW}.viewBox()")
    width = page.evaluate(f"{VIEW}.drawing.width")
    assert (window["x"] - minimap["x"]) / minimap["width"] == pytest.approx(seen["x"] / width, abs=0.02)
    page.mouse.click(minimap["x"] + 0.75 * minimap["width"], minimap["y"] + minimap["height"] / 2)
    page.wait_for_function(f"(x) => {VIEW}.viewBox().x > x", arg=0.6 * width)
    middle = page.evaluate(f"(() => {{ const {{ x, width }} = {VIEW}.viewBox(); return x + width / 2; }})()")
    assert middle / width == pytest.approx(0.75, abs=0.02)
    explorer.idle()
    at = number(r"at=([\d.]+)", page.evaluate("location.hash"))
    assert at == pytest.approx(0.75, abs=0.03)


@pytest.mark.long
def test_the_wheel_magnifies_around_the_pointer_and_the_trail_leads_out(explorer: Any) -> None:
    page = explorer.open("/#level=all").page
    page.wait_for_selector('graph-view .box.open[data-id="layers.0/forward"]')
    expect(page.locator("graph-view .trail")).to_be_hidden()
    page.evaluate(f"() => {VIEW}.screen.zoomTo('layers.0/backward')")
    explorer.idle()
    frame = explorer.boxes()["layers.0/backward"]
    stage = page.locator("graph-view .stage").bounding_box()
    middle = [frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2]
    assert middle == pytest.approx([stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2], abs=2)
    x, y = frame["x"] + 0.3 * frame["width"], frame["y"] + 0.4 * frame["height"]
    page.mouse.move(x, y)
    for _ in range(8):
        page.mouse.wheel(0, -100)
        next_frame(page)
    after = explorer.idle().boxes()["layers.0/backward"]
    assert after["width"] > 1.8 * frame["width"]
    place = [(x - after["x"]) / after["width"], (y - after["y"]) / after["height"]]
    assert place == pytest.approx([0.3, 0.4], abs=0.01)
    trail = page.locator("graph-view .trail")
    expect(trail.get_by_role("button")).to_have_text(["model", "layer 1 · Lin"])
    trail.get_by_role("button", name="model").click()
    expect(trail).to_be_hidden()
    assert "zoom=" not in page.evaluate("location.hash")


@pytest.mark.long
def test_what_is_pointed_out_stands_out_and_what_is_coloured_can_be_read(explorer: Any) -> None:
    page = explorer.open("/").page
    page.evaluate(f"() => {{ {VIEW}.screen.lit = new Set(['l1', 'l2', 'layers.1/forward']); }}")
    lit = page.locator("graph-view .box.lit").evaluate_all("(boxes) => boxes.map((box) => box.dataset.id)")
    assert sorted(lit) == ["l1", "l2", "layers.1/forward"]
    assert page.locator("graph-view .box.dimmed").count() == page.locator("graph-view .box").count() - 3
    # Between the three of them.
    assert page.locator("graph-view .edge:not(.dimmed)").count() == 2
    page.evaluate(f"() => {{ {VIEW}.screen.lit = null; }}")
    assert page.locator("graph-view .dimmed").count() == 0

    legend = {"title": "std", "unit": "", "low": 0.01, "high": 10, "isLog": True, "stops": ["#000000", "#ffffff"]}
    page.evaluate(
        f"""(legend) => {{
            const fill = (kind, index) => (kind === "tensor" ? (index % 2 ? "#102030" : "#f0e080") : null);
            {VIEW}.paintwork = {{ fill, width: () => 4, legend: {{ ...legend, words: [] }} }};
        }}""",
        legend,
    )
    expect(page.locator("graph-view .legend")).to_contain_text("std")
    assert page.locator("graph-view .legend").inner_text().split() == ["std", "0.0100", "10.0", "log"]
    styles = page.locator("graph-view .box.tensor").evaluate_all(
        """(boxes) => boxes.map((box) => [
            getComputedStyle(box.querySelector(".frame")).fill,
            getComputedStyle(box.querySelector(".value")).fill,
        ])"""
    )
    ink = {"rgb(16, 32, 48)": "rgb(255, 255, 255)", "rgb(240, 224, 128)": "rgb(20, 23, 26)"}
    assert {fill for fill, _ in styles} == ink.keys()
    assert all(text == ink[fill] for fill, text in styles)
    assert page.locator("graph-view .edge").first.evaluate("(edge) => getComputedStyle(edge).strokeWidth") == "4px"
    page.evaluate(f"() => {{ {VIEW}.paintwork = null; }}")
    expect(page.locator("graph-view .legend")).to_be_hidden()
    assert page.locator("graph-view .on-dark, graph-view .on-light").count() == 0


def test_a_closed_group_sums_up_what_it_holds(explorer: Any) -> None:
    page = explorer.open("/?preset=deep-exploding#fold=on").page
    fold = page.locator('graph-view .box.branch.forward[data-id*="*"]').first
    expect(fold).to_be_visible()
    explorer.idle()
    dump = explorer.dump()
    parameters = sum(
        tensor["shape"][0] * (tensor["shape"][1] if len(tensor["shape"]) > 1 else 1)
        for tensor in dump["tensors"]
        if tensor["role"] == "parameter"
    )
    label = fold.get_attribute("aria-label")
    repeats = int(number(r"(\d+) times", label))
    assert repeats >= 48
    assert f"× {repeats}" in fold.text_content()
    shown = number(r"([\d.]+) k parameters", label) * 1000
    assert 0.9 * parameters < shown <= parameters
    # Some of its layers overflow: the box says so in a word.
    expect(fold.locator(".badge text")).to_have_text(re.compile("NaN|Inf"))
    assert re.search(r"(NaN|Inf) in \d+ of its tensors", label or "")
    fold.dblclick()
    expect(page.locator('graph-view .box.open.forward[data-id*="*"]').first).to_be_attached()
    expect(page.locator("graph-view .box.branch.forward").first).to_contain_text("more")


def test_headers_outside_their_frames_are_in_the_room(explorer: Any) -> None:
    page = explorer.open("/?widths=100x4#level=all").page
    page.set_viewport_size({"width": 1440, "height": 560})
    page.get_by_role("button", name="Fit to the panel (0)").click()
    explorer.idle()
    stage = page.locator("graph-view .stage").bounding_box()
    heads = page.locator("graph-view .box.open > :is(.name, .toggle)").evaluate_all(
        """(heads) => heads.map((head) => [head, head.getBoundingClientRect()])
            .filter(([head, { height }]) => height > 0 && head.getAttribute("visibility") !== "hidden")
            .map(([, { top, bottom }]) => [top, bottom])"""
    )
    assert len(heads) > 10
    assert min(top for top, _ in heads) >= stage["y"]
    assert max(bottom for _, bottom in heads) <= stage["y"] + stage["height"]


@pytest.mark.long
def test_the_tree_of_boxes_is_that_of_the_frames_in_the_order_of_execution(explorer: Any) -> None:
    page = explorer.open("/#level=all").page
    page.wait_for_selector('graph-view .box.open[data-id="layers.0/forward"]')
    items = page.locator("graph-view .box").evaluate_all(
        """(boxes) => Object.fromEntries(boxes.map((box) => [
            box.dataset.id,
            ["level", "posinset", "setsize"].map((name) => Number(box.getAttribute(`aria-${name}`))),
        ]))"""
    )
    top = [item for item in items.values() if item[0] == 1]
    assert items["x"] == [1, 1, len(top)]
    assert sorted(place for _, place, _ in top) == list(range(1, len(top) + 1))
    assert {size for _, _, size in top} == {len(top)}
    assert items["layers.0/forward"][:2] == [1, 2]
    inner = ["n0", "w1", "layers.0.matmul", "n1", "b1"]
    assert [items[name] for name in inner] == [[2, place, 5] for place in range(1, 6)]
    # As a reader meets them: what stands first in the document is drawn beneath the rest, and that is the frames.
    session = page.context.new_cdp_session(explorer.spend())
    nodes = {node["nodeId"]: node for node in session.send("Accessibility.getFullAXTree")["nodes"]}
    tree = next(node for node in nodes.values() if node["role"]["value"] == "tree")
    waiting, read = [tree["nodeId"]], []
    while waiting:
        node = nodes[waiting.pop()]
        if node.get("role", {}).get("value") == "treeitem":
            read.append(node["name"]["value"].split(",")[0])
        waiting.extend(reversed(node["childIds"]))
    assert read[:9] == ["x", "Lin", "matmul", "w1", "layers.0.matmul", "add", "b1", "l1", "Relu"]
    name = page.locator('graph-view .box[data-id="layers.1/forward"]').get_attribute("aria-label")
    assert "1 op," in name


@pytest.mark.long
def test_a_model_without_ops_says_so(explorer: Any, tmp_path: Any) -> None:
    page = explorer.open("/").page
    expect(page.locator("graph-view .nothing")).to_be_hidden()
    dump = explorer.dump("widths=5,4&batch=6")
    for name in ("ops", "tensors", "saved", "layers"):
        dump[name] = []
    statistics = dump["statistics"]
    for columns in (statistics, statistics["histogram"]):
        columns.update({name: [] for name, value in columns.items() if isinstance(value, list)})
    dump["sources"], dump["values"] = {}, {}
    dump["timing"] = {name: [] if isinstance(value, list) else value for name, value in dump["timing"].items()}
    path = tmp_path / "empty.json"
    path.write_text(json.dumps(dump))
    page.set_input_files("dump-opener input[type=file]", path)
    expect(page.locator("graph-view .nothing")).to_have_text("Nothing was recorded: the model ran no op.")
