"""The page of maps: a map fills, a cell leads to its net, a rectangle to a finer map, and what is refused is said."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect
from pyarrow import parquet
from waiting import idle

MAP = "/map?widths=8x6&batch=16&x=scale=0.5:2:9&y=depth=2:6:5&seeds=2&measure=gradient_ratio"


@pytest.fixture
def page(explorer):
    """The page of `MAP`, as soon as all is computed."""
    return explorer.open(MAP).page


def readout(page):
    return page.locator("#readout")


def point(page, x, y):
    """Where a share of the plot across and from below lies on the screen; its margins are those of `draw.js`."""
    box = page.locator("sweep-map canvas").bounding_box()
    left, top, right, bottom = box["x"] + 52, box["y"] + 66, box["x"] + box["width"] - 16, box["y"] + box["height"] - 38
    return left + x * (right - left), bottom - y * (bottom - top)


def keys(page):
    return {name: value for name, [value] in parse_qs(urlsplit(page.url).query).items()}


def test_a_map_fills_and_a_click_opens_the_net_of_the_median(page):
    expect(page.locator("#progress")).to_have_text("90 nets")
    expect(page.locator("#sentence")).to_contain_text("median of 2 seeds")
    page.mouse.move(*point(page, 2.5 / 9, 1.5 / 5))
    idle(page)
    text = readout(page).text_content()
    found = re.match(r"scale 0.875, depth 3: median (\S+), from (\S+) to \S+; seed (\d+): (\S+), (\d+): (\S+)$", text)
    median, low, *seeds = found.groups()
    assert median == low
    seed = {seeds[1]: seeds[0], seeds[3]: seeds[2]}[median]
    page.mouse.click(*point(page, 2.5 / 9, 1.5 / 5))
    page.wait_for_url("**/?*")
    idle(page)
    assert {"widths": "8x4", "scale": "0.875", "batch": "16"}.items() <= keys(page).items()
    assert keys(page).get("seed", "42") == seed
    expect(page.locator("graph-view .box").first).to_be_attached()
    assert page.locator("a[data-map]").first.get_attribute("href") == "/map?" + urlsplit(page.url).query
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.go_back()
    idle(page)
    expect(page.locator("#progress")).to_have_text("90 nets")
    assert not any("sweeps" in url for url in asked)


def test_arrow_keys_point_and_enter_opens(page):
    page.locator("sweep-map canvas").focus()
    for key in "ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "End":
        page.keyboard.press(key)
    idle(page)
    expect(readout(page)).to_contain_text("scale 2, depth 4: median")
    expect(page.locator("sweep-slices figure")).to_have_count(2)
    expect(page.locator("sweep-slices")).to_contain_text("Along scale, at depth 4")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?*")
    idle(page)
    assert {"widths": "8x5", "scale": "2"}.items() <= keys(page).items()


def test_a_rectangle_is_computed_anew_and_back_shows_the_former_map(page):
    before = page.url
    page.mouse.move(*point(page, 0.25, 0.3))
    page.mouse.down()
    page.mouse.move(*point(page, 0.75, 0.7), steps=3)
    page.mouse.up()
    idle(page)
    axes = keys(page)
    low, high, count = axes["x"].removeprefix("scale=").split(":")
    assert 0.8 < float(low) < 0.9
    assert 1.5 < float(high) < 1.7
    assert count == "9"
    assert axes["y"] == "depth=3:5:3"
    expect(page.locator("#progress")).to_have_text("54 nets")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.go_back()
    idle(page)
    assert page.url == before
    expect(page.locator("#progress")).to_have_text("90 nets")
    assert not any("sweeps" in url for url in asked)


def test_pan_and_the_wheel_move_the_view_only(page):
    before = page.url
    page.mouse.move(*point(page, 0, 0))
    page.mouse.wheel(0, -600)
    idle(page)
    page.get_by_role("button", name="Pan", exact=True).click()
    page.mouse.move(*point(page, 0.9, 0.5))
    page.mouse.down()
    page.mouse.move(*point(page, 0.1, 0.5), steps=3)
    page.mouse.up()
    page.mouse.move(*point(page, 0.01, 0.01))
    idle(page)
    assert re.match(r"scale (1|0\.6875|0\.875), depth 2", readout(page).text_content())
    page.get_by_role("button", name="Reset").click()
    page.mouse.move(*point(page, 0.99, 0.99))
    idle(page)
    expect(readout(page)).to_contain_text("scale 2, depth 6")
    assert page.url == before


def test_an_error_is_shown_and_the_map_stays(explorer, page):
    explorer.expected.append("status of 422")
    before = page.url
    field = page.get_by_role("textbox", name="X axis: values")
    field.fill("0.5:nonsense:3")
    field.press("Enter")
    idle(page)
    expect(page.locator("sweep-form [role=alert]")).to_contain_text("nonsense")
    expect(page.locator("#toggle")).to_have_text("Start")
    assert page.url == before
    page.mouse.move(*point(page, 0.5, 0.5))
    idle(page)
    expect(readout(page)).to_contain_text("scale 1.25, depth 4: median")
    field.fill("0.5:2:5")
    field.press("Enter")
    idle(page)
    expect(page.locator("sweep-form [role=alert]")).to_be_hidden()
    expect(page.locator("#progress")).to_have_text("50 nets")
    assert keys(page)["x"] == "scale=0.5:2:5"


def test_an_answer_that_breaks_off_goes_on(explorer):
    page = explorer.page
    # The first answer breaks off after its first task; the next says what is left.
    starts = []

    def answer(route):
        starts.append(route.request.post_data_json["start"])
        text = route.fetch().text()
        lines = text.splitlines(keepends=True)
        if len(starts) == 1:
            plan, first, *_ = lines
            route.fulfill(status=200, content_type="application/x-ndjson", body=plan + first + lines[2][:20])
        else:
            route.fulfill(status=200, content_type="application/x-ndjson", body=text)

    page.route("**/api/v1/sweeps", answer)
    # Another seed: the page keeps the maps that it has.
    page.goto(f"{explorer.url}{MAP}&seed=7")
    expect(page.locator("#progress")).to_have_text("90 nets")
    idle(page)
    assert starts == [0, 1]
    page.mouse.move(*point(page, 0.5, 0.5))
    idle(page)
    expect(readout(page)).to_contain_text("scale 1.25, depth 4: median")


def test_files_and_the_command(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    header, *lines = download.value.path().read_text().splitlines()
    assert header == "scale,depth,seed,gradient_ratio"
    assert len(lines) == 90
    assert lines[0].startswith("0.5,2,42,")
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    assert "image-rendering:pixelated" in download.value.path().read_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as download:
        page.get_by_role("button", name="Parquet").click()
    table = parquet.read_table(download.value.path()).to_pydict()
    assert list(table) == ["scale", "depth", "seed", "gradient_ratio"]
    assert f"{table['gradient_ratio'][7]}" in lines[7]
    expect(page.locator("#command")).to_contain_text("--over scale=0.5:2:9 --over depth=2:6:5 --seeds 2")


def svg(page):
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    return download.value.path().read_text()


def test_contours_and_the_spread_of_the_seeds(page):
    before = svg(page)
    page.get_by_role("checkbox", name="Contours").check()
    idle(page)
    assert svg(page).count("<path") + svg(page).count("<polyline") > before.count("<path") + before.count("<polyline")
    page.get_by_role("checkbox", name="Contours").uncheck()
    page.get_by_role("button", name="Spread").click()
    idle(page)
    assert "median" in before
    assert "largest ÷ smallest of the seeds" in svg(page)
    assert svg(page) != before


@pytest.mark.long
def test_stop_keeps_what_has_arrived_and_start_goes_on(explorer):
    page = explorer.page
    # Many short stacks: the first nets come soon on a busy machine, and Stop comes before the last ones.
    page.goto(f"{explorer.url}/map?widths=8x6&batch=16&step=200&x=scale=0.5:2:9&y=depth=2:40:39&measure=loss")
    # The map fills: some nets are there, then more.
    expect(page.locator("#progress")).to_have_text(re.compile(r"^[1-9]\d* of 351 nets"))
    some = int(page.locator("#progress").text_content().split()[0])
    page.wait_for_function("least => parseInt(document.querySelector('#progress').textContent) > least", arg=some)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#progress")).to_have_text(re.compile(r"Stopped: [1-9]\d* of 351 nets"))
    idle(page)
    stopped = int(page.locator("#progress").text_content().split()[1])
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#progress")).to_have_text(re.compile(r"\d+ of 351 nets"))
    page.wait_for_function(
        "least => Number(document.querySelector('#progress').textContent.match(/\\d+/)?.[0]) > least", arg=stopped
    )
    page.get_by_role("button", name="Stop").click()
    idle(page)
