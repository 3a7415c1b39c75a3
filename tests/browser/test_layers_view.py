"""All layers at once: every cell, outline and row of the table is what the dump says, on whatever axis."""

import csv
import html
import io
import itertools
import math
import re

import pytest
from playwright.sync_api import expect
from waiting import expect_when_idle

BINS = 96
# Room beside the columns, for the labels of the values, px.
LEFT, RIGHT = 60, 12
DEEP = "preset=deep-exploding"

# Plotly's input: z of the heatmap as counts, columns by bins, and the lanes.
DRAWN = """() => {
    const { data } = document.querySelector("layers-view .plot");
    const counts = (trace) => trace.z.map((row) => [...row].map((z) => (z === null ? 0 : Math.expm1(z))));
    return {
        cells: counts(data[0]),
        lanes: data.slice(1).map(({ z, hovertext }) => ({ z: [...z[0]], hovertext: hovertext[0] })),
    };
}"""

# How many pixels of each column of cells are painted, by layer, on the canvas.
PAINTED = f"""(columns) => {{
    const canvas = document.querySelector("layers-view .layers");
    const {{ data }} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const [left, right] = [{LEFT}, canvas.width - {RIGHT}];
    return Array.from({{ length: columns }}, (_, column) => {{
        const x = Math.floor(left + ((column + 0.5) / columns) * (right - left));
        let painted = 0;
        for (let y = 0; y < canvas.height; y += 1) painted += data[4 * (y * canvas.width + x) + 3] > 0;
        return painted;
    }});
}}"""


def show(page, query, *changes, then="null"):
    """Give the view the dump of a query as a picture, once per change, then evaluate something, all without a pause."""
    steps = "".join(
        f"""{{
            const picture = pictureOfDump(structuredClone(dump), 1000, "synthetic");
            {change};
            document.querySelector("layers-view").picture = picture;
        }}"""
        for change in changes
    )
    return page.evaluate(
        f"""async (query) => {{
            const {{ pictureOfDump }} = await import("/static/core/picture.js");
            const dump = await (await fetch(`/api/v1/trace.json?${{query}}`)).json();
            {steps}
            return {then};
        }}""",
        query,
    )


@pytest.fixture
def layers(explorer):
    """Opens the layers view and waits until it rests."""

    def open_layers(query="", **view):
        fragment = "&".join(f"{key}={value}" for key, value in {"show": "layers", **view}.items())
        explorer.page.goto(f"{explorer.url}/?{query}#{fragment}")
        explorer.page.wait_for_selector("layers-view.at-rest")
        return explorer

    return open_layers


def column(dump, tensor, statistic):
    statistics = dump["statistics"]
    return statistics[statistic][statistics["tensor"].index(tensor)]


def histogram(dump, tensor):
    statistics = dump["statistics"]
    row = statistics["tensor"].index(tensor)
    parts = statistics["histogram"]
    return parts["low"][row], parts["high"][row], parts["counts"][row]


def activations(dump):
    return [dump["tensors"][0]["id"], *(layer["activation"] for layer in dump["layers"])]


@pytest.mark.long
def test_the_heatmap_shows_every_value_of_every_layer(layers):
    explorer = layers("widths=100x51", range="adaptive")
    dump = explorer.dump()
    cells = explorer.page.evaluate(DRAWN)["cells"]
    assert len(cells) == BINS
    tensors = activations(dump)
    low, high = (pick(histogram(dump, tensor)[end] for tensor in tensors) for end, pick in enumerate((min, max)))
    width = (high - low) / BINS
    for order, tensor in enumerate(tensors):
        values = [row[order] for row in cells]
        assert sum(values) == pytest.approx(column(dump, tensor, "n"), rel=1e-3)
        mean = sum(count * (low + (place + 0.5) * width) for place, count in enumerate(values)) / sum(values)
        assert mean == pytest.approx(column(dump, tensor, "mean"), abs=width)
    assert explorer.page.locator("layers-view .readout").inner_text().startswith("All finite values: ")


@pytest.mark.long
def test_what_is_not_finite_has_lanes_of_its_own(layers):
    explorer = layers(DEEP, axis="log", range="adaptive")
    dump = explorer.dump()
    drawn = explorer.page.evaluate(DRAWN)
    tensors = activations(dump)
    kinds = ("nan", "posinf", "neginf")
    for lane, kind in zip(drawn["lanes"], kinds, strict=True):
        shares = [column(dump, tensor, kind) / column(dump, tensor, "n") for tensor in tensors]
        assert [share or 0 for share in lane["z"]] == pytest.approx(shares), kind
    for order, tensor in enumerate(tensors):
        expected = column(dump, tensor, "n") - sum(column(dump, tensor, kind) for kind in kinds)
        assert sum(row[order] for row in drawn["cells"]) == pytest.approx(expected, rel=1e-3, abs=0.5)
    # NaN is all there is of the last layers, and the canvas says so before Plotly does.
    assert "100 %" in drawn["lanes"][0]["hovertext"][-1]
    assert explorer.page.evaluate(PAINTED, len(tensors))[-1] == 11


def test_a_fixed_range_counts_what_lies_beyond(layers):
    explorer = layers("widths=100x11&init=standard_normal&scale=0.2", range="fixed", form="ridgeline")
    page = explorer.page
    dump = explorer.dump()
    expect(page.locator("layers-view .readout")).to_have_text("Fixed: ±4.00 = 4 × a std of 1")
    lane = (
        "(axis, at) => document.querySelector('layers-view .plot').data.filter((each) => each.yaxis === axis)[at].z[0]"
    )
    above, below = page.evaluate(f"[['y2', 2], ['y3', 0]].map(([axis, at]) => ({lane})(axis, at))")
    assert any(above)
    for order, tensor in enumerate(activations(dump)):
        low, high, counts = histogram(dump, tensor)
        width = (high - low) / len(counts)
        for lane, is_beyond in ((above, lambda edge: edge >= 4), (below, lambda edge: edge <= -4)):
            ends = [(is_beyond(low + at * width), is_beyond(low + (at + 1) * width)) for at in range(len(counts))]
            least = sum(count for count, both in zip(counts, ends, strict=True) if all(both))
            most = sum(count for count, both in zip(counts, ends, strict=True) if any(both))
            assert least - 0.05 <= math.expm1(lane[order] or 0) <= most + 0.05, order


@pytest.mark.long
def test_the_ridgeline_draws_each_layer_beside_its_column(layers):
    explorer = layers("widths=100x11", form="ridgeline")
    ridges, needles = explorer.page.evaluate(
        """() => {
            const numbers = (column) => [...column].filter((each) => each !== null);
            const traces = document.querySelector("layers-view .plot").data;
            const ridges = traces.filter(({ fill }) => fill === "toself");
            const needles = traces.find(({ line }) => line?.width === 2);
            return [ridges.map(({ x, y }) => ({ x: numbers(x), y: numbers(y) })), [...needles.x]];
        }"""
    )
    assert len(ridges) == 11
    # The last stands at the back, so that the tips of those before it lie over its foot.
    for order, ridge in enumerate(reversed(ridges)):
        # Depth grows to the right, and so does each ridge, from the left side of its column.
        assert min(ridge["x"]) == pytest.approx(order - 0.5, abs=0.1)
        assert 0 <= min(ridge["y"]) < max(ridge["y"]) <= 1
    # Half of what relu hands on is exactly zero: a line of that share of its column.
    dump = explorer.dump()
    shares = [column(dump, layer["activation"], "zero_fraction") for layer in dump["layers"][:-1]]
    lengths = [end - start for start, end in zip(needles[0::3], needles[1::3], strict=True)]
    assert lengths == pytest.approx(shares, rel=0.1)


@pytest.mark.long
def test_the_canvas_holds_the_same_cells_in_the_same_place(layers):
    explorer = layers("widths=100x11&activation=tanh", range="adaptive")
    explorer.expected = ["willReadFrequently"]
    page = explorer.page
    same = page.evaluate(
        """() => {
            const canvas = document.querySelector("layers-view .layers");
            const context = canvas.getContext("2d");
            const origin = canvas.getBoundingClientRect();
            const image = document.querySelector("layers-view .plot .heatmaplayer image").getBoundingClientRect();
            const z = document.querySelector("layers-view .plot").data[0].z;
            const [layers, bins] = [z[0].length, z.length];
            let agree = 0;
            for (let bin = 0; bin < bins; bin += 1) {
                for (let layer = 0; layer < layers; layer += 1) {
                    const x = image.left - origin.left + ((layer + 0.5) / layers) * image.width;
                    const y = image.top - origin.top + (1 - (bin + 0.5) / bins) * image.height;
                    const [, , , alpha] = context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data;
                    agree += alpha > 0 === (z[bin][layer] !== null);
                }
            }
            return { agree, cells: layers * bins, filled: z.flat().filter((value) => value !== null).length };
        }"""
    )
    assert same["agree"] == same["cells"]
    assert 0 < same["filled"] < same["cells"]


def test_plotly_says_what_is_under_the_pointer(layers):
    explorer = layers("widths=100x11&activation=tanh")
    page = explorer.page
    frame = page.locator("layers-view .frame").bounding_box()
    page.mouse.move(frame["x"] + frame["width"] * 0.5, frame["y"] + frame["height"] * 0.5)
    page.mouse.move(frame["x"] + frame["width"] * 0.5 + 2, frame["y"] + frame["height"] * 0.5)
    label = page.locator("layers-view .hoverlayer .hovertext")
    expect(label).to_have_text(
        re.compile(r"layer \d+: l\d+−?[\d.]+ to −?[\d.]+about [\d,]+ of 20,000 values, [\d.]+ %")
    )
    expect(page.locator("layers-view .readout")).to_have_text(
        re.compile(r"layer \d+: l\d+ σ [\d.]+, −[\d.]+ to [\d.]+")
    )
    expect(page.locator("layers-view .outline.cursor")).to_be_visible()


@pytest.mark.long
def test_the_table_holds_the_histograms_as_they_were_taken(layers, tmp_path):
    explorer = layers(DEEP)
    page = explorer.page
    dump = explorer.dump()
    with page.expect_download() as download:
        page.locator("layers-view .save summary").click()
        page.locator("layers-view [data-save=csv]").click()
    assert download.value.suggested_filename == "chainrule-activation-histograms.csv"
    download.value.save_as(tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(rows[0]) == ["layer", "name", "bin_low", "bin_high", "count"]
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    expected = {0: dump["tensors"][0]["id"], **{layer["index"]: layer["activation"] for layer in dump["layers"]}}
    for index, tensor in expected.items():
        mine = [row for row in rows if int(row["layer"]) == index]
        assert {row["name"] for row in mine} == {names[tensor]}
        finite = [row for row in mine if math.isfinite(float(row["bin_low"]))]
        low, high, counts = histogram(dump, tensor)
        if low is None:
            assert finite == []
        else:
            assert [int(row["count"]) for row in finite] == counts
            assert (float(finite[0]["bin_low"]), float(finite[-1]["bin_high"])) == (low, high)
            assert all(row["bin_high"] == after["bin_low"] for row, after in itertools.pairwise(finite))
        rest = {row["bin_low"]: int(row["count"]) for row in mine if row not in finite}
        kinds = {"NaN": "nan", "Infinity": "posinf", "-Infinity": "neginf"}
        assert rest == {word: column(dump, tensor, kind) for word, kind in kinds.items() if column(dump, tensor, kind)}
        assert sum(int(row["count"]) for row in mine) == column(dump, tensor, "n")


@pytest.mark.parametrize("form", ["heatmap", pytest.param("ridgeline", marks=pytest.mark.long)])
def test_an_image_has_axes_and_a_title(layers, tmp_path, form):
    explorer = layers("widths=100x6", form=form, of="weight", range="fixed")
    page = explorer.page
    with page.expect_download() as download:
        page.locator("layers-view .save summary").click()
        page.locator("layers-view [data-save=svg]").click()
    assert download.value.suggested_filename == "chainrule-weight-layers.svg"
    download.value.save_as(tmp_path / "image.svg")
    text = html.unescape((tmp_path / "image.svg").read_text())
    for words in (
        "Weights per layer",
        "Chainrule · widths=100x6",
        "Fixed: ±0.566 = 4 × √(2/100)",
        "layer 5: w5",
        "NaN",
        "> 0.566",
        "< −0.566",
    ):
        assert words in text, words
    assert ("values in a bin" in text) == (form == "heatmap")


@pytest.mark.long
def test_a_click_on_a_layer_selects_its_tensor_and_the_graph_goes_there(layers):
    explorer = layers("widths=100x51", fold="off", zoom=12, at="0.05")
    page = explorer.page
    frame = page.locator("layers-view .frame").bounding_box()
    # Column 41 of 51 is layer 40, whose activation is l80.
    x = frame["x"] + LEFT + 40.5 / 51 * (frame["width"] - LEFT - RIGHT)
    page.mouse.click(x, frame["y"] + frame["height"] / 2)
    expect(page.locator("inspector-panel h2").first).to_have_text("l80")
    assert "select=l80" in page.evaluate("location.hash")
    outline = page.locator("layers-view .outline.selected").bounding_box()
    assert outline["x"] <= x <= outline["x"] + outline["width"]

    page.get_by_role("button", name="Graph", exact=True).click()
    expect_when_idle(page, "() => Number(new URLSearchParams(location.hash.slice(1)).get('at')) > 0.5")
    stage = page.locator("graph-view .stage").bounding_box()
    box = explorer.boxes()["l80"]
    assert stage["x"] <= box["x"] < box["x"] + box["width"] <= stage["x"] + stage["width"]


@pytest.mark.long
def test_layers_are_walked_by_keyboard(layers):
    explorer = layers("")
    page = explorer.page
    page.locator("layers-view .frame").focus()
    spoken = page.locator("layers-view [aria-live]")
    for key, name in (("ArrowRight", "x"), ("End", "out"), ("ArrowRight", "out"), ("Home", "x"), ("ArrowRight", "l2")):
        page.keyboard.press(key)
        expect(spoken).to_have_text(re.compile(rf": {name} σ "))
    page.keyboard.press("Enter")
    expect(page.locator("inspector-panel h2").first).to_have_text("l2")
    label = page.locator("layers-view .frame").get_attribute("aria-label")
    assert re.match(r"Heatmap of activations per layer, from x \(std [\d.]+\) to out \(std [\d.]+\)\. ", label)


@pytest.mark.long
def test_options_are_in_the_address_and_come_back_from_it(layers):
    explorer = layers("")
    page = explorer.page
    page.select_option("layers-view select", "weight_gradient")
    for name in ("Ridgeline", "Fit", "Log"):
        page.locator("layers-view").get_by_role("button", name=name, exact=True).click()
    expect(page.locator("layers-view .readout")).to_contain_text("All finite values")
    assert page.evaluate("location.hash") == "#show=layers&form=ridgeline&of=weight_gradient&range=adaptive&axis=log"
    axes = "document.querySelector('layers-view .axes').toDataURL()"
    page.wait_for_selector("layers-view.at-rest")
    before = page.evaluate(axes)
    page.reload()
    page.wait_for_selector("layers-view.at-rest")
    assert page.evaluate(axes) == before
    assert page.locator("layers-view select").input_value() == "weight_gradient"
    pressed = page.locator("layers-view [aria-pressed=true]").all_inner_texts()
    assert pressed == ["Ridgeline", "Fit", "Log"]
    page.go_back()
    expect(page.locator("layers-view button[data-axis=linear]")).to_have_attribute("aria-pressed", "true")


def test_a_layer_that_waits_for_a_guess_gives_nothing_away(layers, tmp_path):
    explorer = layers("", predict="l2.std")
    page = explorer.page
    drawn = page.evaluate(DRAWN)
    assert all(row[1] == 0 for row in drawn["cells"])
    assert all(lane["z"][1] is None for lane in drawn["lanes"])
    painted = page.evaluate(PAINTED, 3)
    assert painted[0] > 100
    assert painted[1] == 0
    page.locator("layers-view .frame").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("layers-view .readout")).to_have_text("layer 1: l2 ?")
    with page.expect_download() as download:
        page.locator("layers-view .save summary").click()
        page.locator("layers-view [data-save=csv]").click()
    download.value.save_as(tmp_path / "table.csv")
    assert "l2" not in (tmp_path / "table.csv").read_text()


def test_the_range_only_grows_while_it_moves_and_then_settles(layers):
    explorer = layers("widths=100x11&activation=tanh", range="adaptive")
    explorer.expected = ["willReadFrequently"]
    page = explorer.page
    query = "widths=100x11&activation=tanh"
    show(page, query, "")
    before = page.evaluate(PAINTED, 11)
    smaller = """
        const { floats } = picture;
        for (const name of ["min", "max", "std"]) floats[name] = floats[name].map((value) => value / 100);
    """
    moving = show(page, query, "", smaller, then=f"({PAINTED})(11)")
    assert max(moving) <= max(before) / 20
    page.wait_for_function(f"(least) => Math.max(...({PAINTED})(11)) > least", arg=0.9 * max(before))


@pytest.mark.long
def test_the_profile_lines_up_with_the_layers(layers):
    explorer = layers("widths=100x11&bias=false")
    page = explorer.page
    page.evaluate(
        """() => document.addEventListener("axis-change", ({ detail }) => {
            window.axis = { positions: Object.fromEntries(detail.positions), width: detail.width };
        })"""
    )
    page.get_by_role("button", name="Ridgeline").click()
    page.get_by_role("button", name="Heatmap").click()
    page.wait_for_function("() => window.axis !== undefined")
    dump = explorer.dump()
    frame = page.locator("layers-view .frame").bounding_box()
    pitch = (frame["width"] - LEFT - RIGHT) / 11
    positions = page.evaluate("window.axis.positions")
    for layer in dump["layers"][:-1]:
        middle = LEFT + (layer["index"] + 0.5) * pitch
        assert (positions[layer["preactivation"]] + positions[layer["activation"]]) / 2 == pytest.approx(
            middle, abs=0.5
        )
    # Back in the graph, its own columns count again.
    page.evaluate("window.axis = undefined")
    page.get_by_role("button", name="Graph", exact=True).click()
    page.wait_for_function("() => window.axis !== undefined && window.axis.width > 0")
