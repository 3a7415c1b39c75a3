"""The page on a bad day: servers that die or have no place for it, lines that break, delay or fall silent."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fault_proxy import FaultProxy
from figures import significant
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from served import Served

BROKEN = ("WebSocket connection to 'ws://", "Failed to load resource: net::ERR_")
"""Beginnings of Chromium's console messages about a failed connection, which no option turns off."""

HEAVY = {"widths": "1024x14", "batch": 1024}
"""Within the limits of the suite's server, and a second's work or more."""

NO_SOCKET = "window.WebSocket = class extends WebSocket { constructor() { super('ws://127.0.0.1:9/'); } }"

MOVES = """() => {
    const controls = document.querySelector("spec-controls");
    const status = document.querySelector("run-status");
    window.seen = [];
    const see = () => seen.push(Number(status.dataset.seq));
    new MutationObserver(see).observe(status, { attributeFilter: ["data-seq"] });
    window.set = (change, moving = false) =>
        controls.dispatchEvent(new CustomEvent("spec-change", { detail: { change, moving }, bubbles: true }));
    window.drag = () => {
        let step = 0;
        window.dragging = setInterval(() => set({ scale: 2 + 0.01 * (step++ % 200) }, true), 10);
    };
    window.release = (scale) => {
        clearInterval(window.dragging);
        set({ scale });
    };
}"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has little to give and wants a token."""
    log = tmp_path_factory.mktemp("small") / "small.log"
    with Served(log, max_sockets=1, live_deadline_seconds=0.4, token="the-first-token") as server:
        yield server


@pytest.fixture
def proxy(server_url: str) -> Iterator[FaultProxy]:
    """A line to the suite's own server, for faults of the line."""
    with FaultProxy([("127.0.0.1", urlsplit(server_url).port)]) as proxy:
        yield proxy


class Tab:
    """A tab with the explorer in it, by whatever way it gets there; whatever but broken connections fails its test."""

    def __init__(self, watched: Any) -> None:
        self.page: Page = watched.page
        self.watched = watched

    def open(self, url: str) -> "Tab":
        self.page.goto(url)
        self.page.wait_for_selector("run-status[data-seq]")
        self.page.evaluate(MOVES)
        return self

    def expect_state(self, state: str) -> None:
        expect(self.page.locator("run-status")).to_have_attribute("data-connection", state)

    def expect_picture(self, **spec: float | str) -> None:
        """The figures on the screen are those that the API gives for a spec."""
        query = "&".join(f"{key}={value}" for key, value in spec.items())
        dump = self.watched.dump(query)
        l1 = next(tensor["id"] for tensor in dump["tensors"] if tensor["name"] == "l1")
        std = dump["statistics"]["std"][dump["statistics"]["tensor"].index(l1)]
        # A spec gets into the address once the server has taken it.
        self.page.wait_for_function("(query) => location.search === query", arg=f"?{query}")
        expect(self.page.locator("run-status .loss")).to_have_text(significant(dump["loss"]))
        expect(self.page.locator('graph-view .box[data-id="l1"] .value')).to_have_text(significant(std))

    def seen(self) -> list[int]:
        """The numbers of the pictures that were shown."""
        return self.page.evaluate("seen")

    def wait_for_pictures(self, count: int) -> None:
        """Wait until so many more have been shown."""
        shown = len(self.seen()) + count
        self.page.wait_for_function("(shown) => seen.length >= shown", arg=shown)

    def set(self, **change: float | str) -> None:
        self.page.evaluate("(change) => set(change)", change)


@pytest.fixture
def tab(explorer: Any, context: BrowserContext) -> Iterator[Callable[[], Tab]]:
    """A function that makes a tab of its own; its context is the test's."""
    tabs: list[Tab] = []

    def make() -> Tab:
        # Its console is watched as the explorer's.
        tabs.append(Tab(type(explorer)(context.new_page(), "", explorer.dump_of)))
        tabs[-1].watched.expected.extend(BROKEN)
        return tabs[-1]

    yield make
    for each in tabs:
        each.page.close()
        assert each.watched.problems == []


# ----------------------------------------------------------------------------------------------------------- the server


@pytest.mark.long
def test_a_second_tab_without_a_socket_gets_its_pictures_all_the_same(small, tab):
    server = small
    first = tab().open(f"{server.url}/?token={server.settings['token']}")
    first.expect_state("live")
    second = tab().open(f"{server.url}/?scale=2")
    second.expect_state("fetch")
    second.expect_picture(scale=2)
    second.set(scale=3)
    second.expect_picture(scale=3)
    expect(second.page.locator("run-status .connection")).to_have_text("no live connection")
    first.page.goto("about:blank")
    second.expect_state("live")  # a socket that was refused is tried again after up to 15 s
    second.expect_picture(scale=3)


@pytest.mark.long
def test_what_takes_too_long_is_said_and_the_next_change_works(small, tab):
    server = small
    page = tab().open(f"{server.url}/?token={server.settings['token']}&scale=2")
    page.expect_state("live")
    loss = page.page.locator("run-status .loss").text_content()
    page.set(**HEAVY)
    expect(page.page.locator("run-status .error")).to_contain_text("CHAINRULE_LIVE_DEADLINE_SECONDS")
    # The picture stands, and so does what was set.
    assert page.page.locator("run-status .loss").text_content() == loss
    assert page.page.evaluate("location.search") == "?scale=2"
    expect(page.page.locator("#spec-widths")).to_have_value(HEAVY["widths"])
    page.set(widths="100,50,1", batch=20)
    page.expect_picture(scale=2, batch=20)
    expect(page.page.locator("run-status .error")).to_be_hidden()
    page.expect_state("live")


@pytest.mark.long
def test_another_token_is_asked_for_and_what_was_set_is_not_lost(small, tab, context):
    server = small
    page = tab().open(f"{server.url}/?token={server.settings['token']}")
    # A server that still imports PyTorch answers 503.
    page.watched.expected += ["status of 401", "status of 503"]
    page.expect_state("live")
    server.kill()
    page.expect_state("reconnecting")
    page.set(scale=3)
    server.settings["token"] = "the-second-token"
    server.start()
    page.expect_state("locked")
    expect(page.page.locator("run-status .error")).to_contain_text("Open the link")
    opener = context.new_page()
    opener.goto(f"{server.url}/foundations?token=the-second-token")
    # As when one comes back to the tab.
    page.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.expect_picture(scale=3)
    page.expect_state("live")
    expect(page.page.locator("run-status .error")).to_be_hidden()


@pytest.mark.long
def test_a_busy_server_is_left_alone_as_long_as_it_says_and_then_asked_for_the_newest(proxy, tab):
    page = tab()
    page.watched.expected += ["status of 503", "Content Security Policy"]
    page.page.add_init_script(NO_SOCKET)
    page.open(f"http://{proxy.address}/?scale=2")
    page.expect_state("fetch")
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query)["scale"][0])
        if len(asked) > 2:
            route.continue_()
            return
        body = {"error": {"code": "busy", "message": "cpu is busy and 8 requests wait"}}
        route.fulfill(status=503, headers={"retry-after": "1"}, json=body)

    page.page.route("**/api/v1/trace.json*", answer)
    page.set(scale=3)
    page.expect_state("busy")
    # Before the first rest, of a second, is over.
    began = page.page.evaluate(
        """() => {
            const now = performance.now();
            for (const scale of [4, 5, 6]) set({ scale });
            return now;
        }"""
    )
    expect(page.page.locator("run-status .connection")).to_have_text("server is busy, trying again")
    page.expect_picture(scale=6)
    # The last of them was asked a second after each refusal, and none of the others at all.
    assert asked == ["3", "6", "6"]
    assert page.page.evaluate("performance.now()") - began > 1000
    expect(page.page.locator("run-status .error")).to_be_empty()
    page.expect_state("fetch")


# ------------------------------------------------------------------------------------------------------------- the line


@pytest.mark.long
def test_a_network_that_goes_and_comes(proxy, tab, context):
    page = tab().open(f"http://{proxy.address}/")
    context.set_offline(True)
    proxy.drop_all()
    page.expect_state("offline")
    page.set(scale=3)
    context.set_offline(False)
    page.expect_picture(scale=3)
    page.expect_state("live")


# -------------------------------------------------------------------------------------------------- of specs that wait

LIVE = """async () => {
    const { Live } = await import("/static/core/live.js");
    window.log = [];
    window.sockets = [];
    window.WebSocket = class extends EventTarget {
        constructor() { super(); sockets.push(this); }
        send(text) {
            const { seq, spec, type } = JSON.parse(text);
            log.push(type ?? `sent ${seq} ×${spec.scale}`);
        }
        close() {}
    };
    const listener = {
        picture: ({ seq, spec }) => log.push(`picture ${seq} ×${spec.scale}`),
        error: ({ code }, { scale }) => log.push(`${code} ×${scale}`),
        theory() {},
        state: (state) => log.push(state),
    };
    window.live = new Live(listener, () => "");
    window.receive = (data) => sockets.at(-1).dispatchEvent(new MessageEvent("message", { data }));
    window.tell = (message) => receive(JSON.stringify(message));
    window.answer = (seq) => {
        const header = new DataView(new ArrayBuffer(48));
        "CRF1".split("").forEach((letter, at) => header.setUint8(at, letter.charCodeAt(0)));
        [seq, 1, 0, 64, 8].forEach((value, at) => header.setUint32(4 + 4 * at, value, true));
        header.setUint32(44, 4, true);
        receive(header.buffer);
    };
    window.opened = () => {
        sockets.at(-1).dispatchEvent(new Event("open"));
        const parts = { modules: [], ops: [], tensors: [], saved: [], layers: [], sources: {} };
        tell({ type: "topology", topology: 1, trace: { ...parts, statistics: { tensor: [] } } });
    };
    live.start();
    live.request({ scale: 1 });
    opened();
}"""


class Wire:
    """The live path by itself, on a clock and with a socket that the test holds in its hands."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def run(self, script: str) -> list[str]:
        """Its actions since the last call."""
        return self.page.evaluate(f"() => {{ {script}; return log.splice(0); }}")

    def after(self, ms: int) -> list[str]:
        """Its actions in that time."""
        self.page.clock.run_for(ms)
        return self.run("")


@pytest.fixture
def wire(browser: Browser, server_url: str) -> Iterator[Wire]:
    # Of its own: a clock that stands still does so in all pages of a context, those of later tests too.
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server_url}/static/icon.svg")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.evaluate(LIVE)
    wire = Wire(page)
    assert wire.run("") == ["live", "sent 1 ×1"]
    yield wire
    context.close()


def test_the_newest_spec_follows_before_an_answer_comes(wire):
    assert wire.run("live.request({ scale: 2 }); live.request({ scale: 3 })") == []
    assert wire.after(10) == []
    assert wire.after(10) == ["sent 2 ×3"]
    # An answer that comes all the same is shown, and one to what was overtaken is not.
    assert wire.run("answer(1)") == ["picture 1 ×1"]
    assert wire.run("live.request({ scale: 4 })") == []
    assert wire.after(15) == ["sent 3 ×4"]
    assert wire.run("answer(3)") == ["picture 3 ×4"]
    assert wire.run("answer(2)") == []
    # Nothing waits, nothing is in flight: the next is sent at once.
    assert wire.run("live.request({ scale: 5 })") == ["sent 4 ×5"]


def test_a_server_that_takes_its_time_is_waited_for_and_that_is_said(wire):
    for order in range(15):
        assert wire.after(2000) == ["ping"]
        assert wire.run("tell({ type: 'pong' })") == ([] if order else ["computing"])
    assert wire.run("answer(1)") == ["live", "picture 1 ×1"]
    # No ping is sent while no request is in flight.
    assert wire.after(60_000) == []
    assert wire.run("log.push(sockets.length)") == [1]


@pytest.mark.long
def test_a_server_that_knows_no_ping_is_there_all_the_same(wire):
    assert wire.after(2000) == ["ping"]
    assert wire.run("tell({ type: 'error', seq: null, error: { code: 'bad_message', message: 'what?' } })") == []
    assert wire.after(1500) == []
    assert wire.run("answer(1)") == ["picture 1 ×1"]


@pytest.mark.long
def test_a_socket_that_says_nothing_is_given_up(wire):
    assert wire.after(2000) == ["ping"]
    assert wire.after(2000) == ["reconnecting"]
    wire.after(300)
    assert wire.run("log.push(sockets.length); opened()") == [2, "live", "sent 2 ×1"]
    # A late message on the first socket is ignored.
    assert wire.run("sockets[0].dispatchEvent(new MessageEvent('message', { data: 'x' }))") == []
    assert wire.run("answer(2)") == ["picture 2 ×1"]


def test_work_that_a_server_on_its_way_out_gives_back_is_given_to_the_next(wire):
    stopped = "{ code: 'stopped', message: 'stopped: the server is shutting down' }"
    assert wire.run(f"tell({{ type: 'error', seq: 1, error: {stopped} }})") == ["reconnecting"]
    wire.after(300)
    assert wire.run("opened()") == ["live", "sent 2 ×1"]


def test_the_network_makes_the_page_look_and_nothing_else(wire):
    """A machine without a network still reaches a server of its own."""
    assert wire.run("answer(1)") == ["picture 1 ×1"]
    assert wire.run("dispatchEvent(new Event('offline'))") == ["ping"]
    assert wire.run("tell({ type: 'pong' })") == []
    assert wire.after(60_000) == []
