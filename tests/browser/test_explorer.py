"""The explorer as a person meets it: what it shows is what the dump says, whatever is done to it."""

import json
import re

import pytest
from figures import significant
from playwright.sync_api import Route, WebSocketRoute, expect
from waiting import expect_when_idle, next_frame

CHAPTER = {"x", "w1", "b1", "l1", "l2", "w2", "b2", "out", "y", "loss"}
GRADIENTS = {f"{name}.g" for name in CHAPTER - {"y", "loss"}}

# The page's policy forbids this address: a socket that cannot be had.
NO_SOCKET = "window.WebSocket = class extends WebSocket { constructor() { super('ws://127.0.0.1:9/'); } }"

# How high the picture is filled over each column of pixels, in the plot of one box.
COLUMN_HEIGHTS = """(id) => {
    const canvas = document.querySelector("graph-view canvas");
    const frame = document.querySelector(`graph-view .box[data-id="${id}"] .frame`).getBoundingClientRect();
    const origin = canvas.getBoundingClientRect();
    const scale = canvas.width / origin.width;
    const [x, y] = [frame.x - origin.x, frame.y - origin.y].map((value) => Math.round(value * scale));
    const [width, height] = [frame.width, frame.height].map((value) => Math.round(value * scale));
    const { data } = canvas.getContext("2d").getImageData(x, y, width, height);
    return Array.from({ length: width }, (_, column) => {
        let filled = 0;
        for (let row = 0; row < height; row += 1) filled += data[4 * (row * width + column) + 3] > 200;
        return filled;
    });
}"""


def column(dump, name, statistic):
    tensor = next(tensor["id"] for tensor in dump["tensors"] if tensor["name"] == name)
    statistics = dump["statistics"]
    return statistics[statistic][statistics["tensor"].index(tensor)]


def correlation(left, right):
    n = len(left)
    mean_left, mean_right = sum(left) / n, sum(right) / n
    product = sum((a - mean_left) * (b - mean_right) for a, b in zip(left, right, strict=True))
    return product / (sum((a - mean_left) ** 2 for a in left) ** 0.5 * sum((b - mean_right) ** 2 for b in right) ** 0.5)


def test_it_opens_with_the_complete_picture(explorer):
    explorer.open()
    shown = {name for name in explorer.boxes() if "/" not in name}
    assert shown == CHAPTER | GRADIENTS
    dump = explorer.dump("")
    for name in ("x", "w1", "l1", "l2", "w2", "out", "y", "out.g", "l2.g", "l1.g", "x.g", "w1.g"):
        assert explorer.figure(name) == significant(column(dump, name, "std")), name
    assert explorer.figure("loss") == significant(dump["loss"])
    assert explorer.page.locator("run-status .loss").text_content() == significant(dump["loss"])
    assert explorer.page.title() == "Chainrule"
    rows = explorer.page.locator("graph-view table tbody tr").all_text_contents()
    assert len(rows) == len(CHAPTER | GRADIENTS)
    assert next(row for row in rows if row.startswith("l1pre")).endswith(explorer.figure("l1"))
    assert explorer.page.locator("a[data-trace=dot]").get_attribute("href") == "/api/v1/trace.dot"


@pytest.mark.long
def test_every_tensor_has_its_histogram_on_the_canvas(explorer):
    explorer.expected = ["willReadFrequently"]
    explorer.open()
    for name in (CHAPTER | GRADIENTS) - {"loss", "b2", "b2.g"}:
        assert sum(explorer.page.evaluate(COLUMN_HEIGHTS, name)) > 20, name

    # The bars of x have the outline of its counts: heights go with the square root.
    dump = explorer.dump("")
    row = dump["statistics"]["tensor"].index(next(t["id"] for t in dump["tensors"] if t["name"] == "x"))
    counts = dump["statistics"]["histogram"]["counts"][row]
    drawn = explorer.page.evaluate(COLUMN_HEIGHTS, "x")
    filled = [index for index, height in enumerate(drawn) if height > 0]
    plot = drawn[filled[0] : filled[-1] + 1]
    expected = [counts[int(index / len(plot) * len(counts))] ** 0.5 for index in range(len(plot))]
    assert correlation(plot, expected) > 0.97


def test_dragging_the_scale_moves_everything_in_proportion(explorer):
    explorer.open("/?scale=0.1")
    page = explorer.page
    page.evaluate(
        """() => {
            window.seen = [];
            const status = document.querySelector("run-status");
            new MutationObserver(() => window.seen.push(Number(status.dataset.seq)))
                .observe(status, { attributes: true, attributeFilter: ["data-seq"] });
        }"""
    )
    before = float(explorer.figure("l1"))
    entries = page.evaluate("history.length")

    position = page.evaluate(
        """async () => {
            const { sliderScale } = await import("/static/core/scales.js");
            const scale = sliderScale(1e-4, 1e4);
            return [scale.position(0.1), scale.position(3)].map((position) => (position + 1) / 2);
        }"""
    )
    slider = page.locator("spec-controls .slider")
    box = slider.bounding_box()
    thumb = 24
    start, end = (box["x"] + thumb / 2 + share * (box["width"] - thumb) for share in position)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(start, middle)
    page.mouse.down()
    for step in range(1, 21):
        page.mouse.move(start + (end - start) * step / 20, middle)
        if step % 5 == 0:
            page.wait_for_function("(count) => window.seen.length >= count", arg=step // 5)
        else:
            next_frame(page)
    page.mouse.up()
    explorer.idle()

    scale = float(page.input_value("#spec-scale"))
    assert scale == pytest.approx(3, rel=0.06)
    after = float(explorer.figure("l1"))
    # Three digits are shown: half a unit of the third, on both figures.
    assert after / before == pytest.approx(scale / 0.1, rel=0.01)
    assert page.evaluate("new URLSearchParams(location.search).get('scale')") == page.input_value("#spec-scale")
    dump = explorer.dump()
    assert dump["spec"]["scale"] == scale
    for name in ("w1", "l1", "l2", "out", "l1.g", "w1.g"):
        assert explorer.figure(name) == significant(column(dump, name, "std")), name
    assert page.locator("spec-controls .sigma").text_content() == f"σ {significant(column(dump, 'w1', 'std'))}"

    seen = page.evaluate("window.seen")
    assert len(seen) > 3
    assert seen == sorted(set(seen))
    # The whole drag is one step of the history.
    assert page.evaluate("history.length") == entries + 1
    page.go_back()
    expect(page.locator("#spec-scale")).to_have_value("0.1")
    expect(page.locator('graph-view .box[data-id="l1"] .value')).to_have_text(significant(before))


# Notes the last request on the socket.
WATCH_SOCKET = """() => {
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (text) {
        const asked = JSON.parse(text);
        if (asked.spec) window.asked = asked;
        send.call(this, text);
    };
}"""

MOVE = """(scale) => {
    const detail = { change: { scale }, moving: true };
    document.querySelector("spec-controls").dispatchEvent(new CustomEvent("spec-change", { detail, bubbles: true }));
}"""

# As the browser does with a page that nobody sees: no frame begins, and what was asked for waits for the next.
HIDE = """() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    window.held = [];
    window.heldBack = window.requestAnimationFrame;
    window.requestAnimationFrame = (callback) => window.held.push(callback);
    document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = """() => {
    delete document.hidden;
    window.requestAnimationFrame = window.heldBack;
    for (const callback of window.held) requestAnimationFrame(callback);
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.long
def test_what_came_while_the_page_was_hidden_is_shown_with_it(explorer):
    page = explorer.open().page
    page.evaluate(WATCH_SOCKET)

    def move(scale):
        page.evaluate(MOVE, scale)
        # A picture has come once its spec is in the address.
        expect(page).to_have_url(re.compile(rf"\?scale={scale}$"))

    def expect_picture(scale):
        expect(page.locator("run-status")).to_have_attribute("data-seq", str(page.evaluate("window.asked.seq")))
        dump = explorer.dump(f"scale={scale}")
        assert page.locator("run-status .loss").text_content() == significant(dump["loss"])
        assert explorer.figure("l1") == significant(column(dump, "l1", "std"))

    before = page.get_attribute("run-status", "data-seq")
    page.evaluate(HIDE)
    for scale in (2, 3, 5):
        move(scale)
    # Not drawn where nobody sees it.
    assert page.get_attribute("run-status", "data-seq") == before
    page.evaluate(SHOW)
    expect_picture(5)
    # And what comes after it as ever.
    move(7)
    expect_picture(7)


def test_the_address_holds_the_state(explorer):
    explorer.open("/?init=xavier_normal&seed=7#select=l2&statistic=mean")
    page = explorer.page
    page.select_option("#spec-activation", "tanh")
    expect_when_idle(page, "() => location.search === '?activation=tanh&init=xavier_normal&seed=7'")
    page.locator('graph-view .box[data-id="w1.g"]').click()
    explorer.idle()
    assert page.evaluate("location.search") == "?activation=tanh&init=xavier_normal&seed=7"
    assert page.evaluate("location.hash") == "#select=w1.g&statistic=mean"
    shown = {name: explorer.figure(name) for name in CHAPTER | GRADIENTS}
    inspected = page.locator("inspector-panel .figures").inner_text()

    page.reload()
    page.wait_for_selector('graph-view .box.selected[data-id="w1.g"]')
    assert {name: explorer.figure(name) for name in CHAPTER | GRADIENTS} == shown
    assert page.locator("inspector-panel .figures").inner_text() == inspected
    assert page.input_value("#spec-activation") == "tanh"

    page.go_back()
    expect(page.locator('graph-view .box[data-id="l2"]')).to_have_class(re.compile("selected"))
    page.go_back()
    expect(page.locator("#spec-activation")).to_have_value("relu")


def test_the_graph_is_walked_by_keyboard(explorer):
    explorer.open()
    page = explorer.page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("link", name="Skip to the graph").focus()
    page.keyboard.press("Enter")

    def focused():
        return page.evaluate("document.activeElement.dataset.id")

    assert focused() == "x"
    assert page.evaluate("location.hash") == ""
    keys = ("ArrowRight", "ArrowUp", "ArrowDown", "ArrowRight", "ArrowDown")
    for key, expected in zip(keys, ("layers.0/forward", "w1", "layers.0/forward", "l1", "l1.g"), strict=True):
        page.keyboard.press(key)
        assert focused() == expected
    page.keyboard.press("Enter")
    expect(page.locator("inspector-panel h2")).to_have_text("l1.g")
    assert page.evaluate("location.hash") == "#select=l1.g"
    page.keyboard.press("End")
    assert focused() == "loss"
    page.keyboard.press("Home")
    assert focused() == "x"
    page.keyboard.press("Escape")
    expect(page.locator("inspector-panel h2")).to_have_text("Overview")
    label = page.locator('graph-view .box[data-id="l1"]').get_attribute("aria-label")
    assert re.fullmatch(r"l1, preactivation, 200 × 50, mean [−\d.e-]+, std [\d.]+", label)


@pytest.mark.long
def test_the_model_switch(explorer):
    explorer.open("/#fold=off")
    page = explorer.page
    page.get_by_role("button", name="50 layers").click()
    page.wait_for_selector('graph-view .box[data-id="l97"]')
    expect(page.get_by_role("button", name="50 layers")).to_have_attribute("aria-pressed", "true")
    assert page.locator("layer-table tbody tr").count() == 1 + 49 * 2 + 1
    # Fit to width, all of it is in sight, and each dot of the profile stands under its tensor.
    stage = page.locator("graph-view .stage").bounding_box()
    for name, box in explorer.boxes().items():
        assert box["x"] >= stage["x"], name
        assert box["x"] + box["width"] <= stage["x"] + stage["width"], name
    page.get_by_role("button", name="Chapter").click()
    page.wait_for_function("() => document.querySelectorAll('graph-view .box.tensor').length === 18")


def test_the_profile_stands_under_the_graph(explorer):
    explorer.open()
    dots = explorer.page.evaluate(
        """() => {
            const origin = document.querySelector("layer-profile svg").getBoundingClientRect().x;
            const paths = [...document.querySelectorAll("layer-profile .dots.forward")];
            const starts = (path) => [...path.getAttribute("d").matchAll(/M([\\d.]+) [\\d.]+a([\\d.]+)/g)];
            return paths.flatMap((path) => starts(path).map(([, x, r]) => origin + Number(x) + Number(r)));
        }"""
    )
    boxes = explorer.boxes()
    expected = [boxes[name]["x"] + boxes[name]["width"] / 2 for name in ("l1", "x", "l2", "out")]
    assert dots == pytest.approx(expected, abs=1)


def test_a_bad_value_is_told_at_its_control_and_the_picture_stays(explorer):
    explorer.open()
    page = explorer.page
    seq = page.get_attribute("run-status", "data-seq")
    page.fill("#spec-scale", "1e9")
    page.keyboard.press("Enter")
    expect(page.locator("#spec-scale-note")).to_contain_text("scale")
    expect(page.locator("#spec-scale-note")).to_contain_text("10000")
    expect(page.locator("#spec-scale")).to_have_attribute("aria-invalid", "true")
    assert page.get_attribute("run-status", "data-seq") == seq
    assert page.evaluate("location.search") == ""

    page.fill("#spec-scale", "2")
    page.keyboard.press("Enter")
    expect_when_idle(page, "() => location.search === '?scale=2'")
    expect(page.locator("#spec-scale-note")).to_be_empty()
    assert page.locator("#spec-scale").get_attribute("aria-invalid") is None


@pytest.mark.long
def test_a_bad_address_opens_the_default_model_and_says_so(explorer):
    explorer.expected = ["422"]
    explorer.open("/?widths=0")
    page = explorer.page
    expect(page.get_by_role("alert").first).to_contain_text("widths")
    expect(page.locator("#spec-widths")).to_have_attribute("aria-invalid", "true")
    assert set(explorer.boxes()) >= CHAPTER
    page.select_option("#spec-activation", "tanh")
    expect(page.locator(".page-error[role=alert]")).to_have_count(0)
    expect_when_idle(page, "() => location.search === '?activation=tanh'")


@pytest.mark.long
def test_what_means_nothing_is_disabled(explorer):
    explorer.open("/?bias_std=0.5")
    page = explorer.page
    page.locator("spec-controls .more summary").click()
    page.locator("#spec-bias").uncheck()
    expect(page.locator("#spec-bias_std")).to_be_disabled()
    expect_when_idle(page, "() => location.search === '?bias=false'")
    expect(page.locator('graph-view .box[data-id="b1"]')).to_have_count(0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["l2", "b1"])
def test_the_inspector_says_what_the_dump_says(explorer, name):
    explorer.open(f"/#select={name}")
    page = explorer.page
    dump = explorer.dump("")
    tensor = next(tensor for tensor in dump["tensors"] if tensor["name"] == name)
    expect(page.locator("inspector-panel h2")).to_have_text(name)
    expect(page.locator("inspector-panel .chip")).to_have_text(tensor["role"])
    for label, statistic in [("mean", "mean"), ("std", "std"), ("min", "min"), ("max", "max"), ("L2 norm", "norm")]:
        shown = page.locator(f'inspector-panel [data-figure="{label}"] dd')
        expect(shown).to_have_text(significant(column(dump, name, statistic)))
    zeros = column(dump, name, "zero_fraction")
    expect(page.locator('inspector-panel [data-figure="zeros"] dd')).to_have_text(
        f"{zeros * 100:.{0 if zeros in (0, 1) else 1}f} %"
    )
    facts = page.locator("inspector-panel .facts").inner_text()
    assert " × ".join(map(str, tensor["shape"])) in facts
    assert tensor["dtype"] in facts
    # At rest Plotly takes over, with the same 64 bins.
    page.wait_for_selector("histogram-chart.at-rest .barlayer")
    drawn = page.evaluate("document.querySelector('histogram-chart .plot').data[0].customdata.map(([count]) => count)")
    assert len(drawn) == 64
    assert sum(int(count.replace(",", "")) for count in drawn) == column(dump, name, "n")


@pytest.mark.parametrize("style", ["functions", "module"])
def test_ops_are_written_as_the_chapter_does(explorer, style):
    explorer.open(f"/?style={style}#select=layers.0/forward")
    page = explorer.page
    transposed = "ᵀ" if style == "module" else ""
    expect(page.locator("inspector-panel .formula code").first).to_have_text(f"l1 = x @ w1{transposed} + b1")
    expect(page.locator("inspector-panel .formula .shapes").first).to_contain_text("(200×50) = (200×100) @ ")
    expect(page.locator("inspector-panel .source .place").first).to_contain_text(".py:")
    page.locator("inspector-panel .facts .link").first.click()
    page.wait_for_selector('graph-view .box.selected[data-id="layers.0/backward"]')
    formulas = page.locator("inspector-panel .formula code:first-child").all_text_contents()
    assert f"x.g = l1.g @ w1{'' if transposed else 'ᵀ'}" in formulas
    assert "b1.g = sum(l1.g, dim=0)" in formulas


def test_it_comes_back_after_the_connection_was_lost(explorer):
    page = explorer.spend()
    sockets: list[WebSocketRoute] = []
    asked: list[dict] = []

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        sockets.append(socket)
        # The second connection is where the last spec must be asked for again.
        number = len(sockets)
        socket.on_message(
            lambda message: (asked.append({"socket": number} | json.loads(message)), server.send(message))
        )

    page.route_web_socket(re.compile("/api/v1/live"), relay)
    explorer.open("/?scale=3")
    seq = int(page.get_attribute("run-status", "data-seq"))
    sockets[0].close(code=1012)
    page.wait_for_function(f"() => Number(document.querySelector('run-status').dataset.seq) > {seq}")
    expect(page.locator("run-status")).to_have_attribute("data-connection", "live")
    assert asked[-1]["socket"] == 2
    assert float(asked[-1]["spec"]["scale"]) == 3
    assert explorer.figure("l1") == significant(column(explorer.dump("scale=3"), "l1", "std"))


def test_names_are_never_markup(explorer):
    page = explorer.spend()
    explorer.expected = ["Content Security Policy"]
    page.add_init_script(NO_SOCKET)
    hostile = "<img src=x onerror='window.executed=1'>"

    def answer(route: Route) -> None:
        dump = route.fetch().json()
        for tensor in dump["tensors"]:
            if tensor["name"] == "l1":
                tensor["name"] = hostile
        for module in dump["modules"]:
            module["type"] = hostile
        for op in dump["ops"]:
            op["name"] = hostile
        route.fulfill(json=dump)

    page.route(re.compile(r"/api/v1/trace\.json"), answer)
    explorer.open()
    page.locator("layer-table .link", has_text="onerror").click()
    expect(page.locator("inspector-panel h2")).to_have_text(hostile)
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.executed") is None


@pytest.mark.long
@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}, "has_touch": True}])
def test_on_a_narrow_screen_all_of_it_turns_vertical(explorer):
    explorer.open()
    page = explorer.page
    boxes = explorer.boxes()
    chain = ["x", "layers.0/forward", "l1", "layers.1/forward", "l2", "layers.2/forward", "out", "loss/forward"]
    tops = [boxes[name]["y"] for name in chain]
    assert tops == sorted(tops)
    for name in ("x", "l1", "l2", "out"):
        assert boxes[f"{name}.g"]["y"] == pytest.approx(boxes[name]["y"], abs=1)
        assert boxes[f"{name}.g"]["x"] > boxes[name]["x"] + boxes[name]["width"]
    for name, box in boxes.items():
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 390, name
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for tab, panel in [
        ("Layers", "layers-view canvas"),
        ("Profile", "layer-profile svg"),
        ("Inspector", "inspector-panel"),
        ("Model", "#spec-widths"),
    ]:
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.locator(panel).first).to_be_visible()
        expect(page.locator("graph-view")).to_be_hidden()
        expect(page.locator("spec-controls .slider")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("tab", name="Graph", exact=True).click()
    explorer.idle()  # laid out anew for the room there is now
    page.locator('graph-view .box[data-id="l2"]').tap()
    page.get_by_role("tab", name="Inspector", exact=True).click()
    expect(page.locator("inspector-panel h2")).to_have_text("l2")
    page.reload()
    expect(page.locator("inspector-panel h2")).to_have_text("l2")
