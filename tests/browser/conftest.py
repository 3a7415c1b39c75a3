"""The real server, a real Chromium, and pages that fail the test on any error in their console."""

import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from board_runs import write_runs
from command import command
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright
from training_dumps import write_dumps
from waiting import idle

# chromium.py is shared with screenshots.py, which runs as a script.
sys.path.insert(0, str(Path(__file__).parent))
from chromium import launch
from views import VIEWS

expect.set_options(timeout=60_000)

WIDE = {"width": 1440, "height": 900}
USUAL = {"width": 1280, "height": 720}
"""Playwright's own viewport, of tests whose options name none."""

BLOCKS = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "blocks.py"
"""The user's model that `servers` explores."""

VISITED = "try { localStorage.setItem('chainrule.visited', '1') } catch {}"

OF_A_TAB = ("viewport", "color_scheme", "permissions")
"""Options that one context can have and give back: in another nothing of the page is cached, which takes seconds."""


class Kept:
    """Chromium, contexts by their options and one tab in each, kept from test to test and from file to file.

    To start them takes longer than most tests, and so does the page where nothing of it is in the tab's memory yet.
    Every test loads its page anew all the same.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Browser | None = None
        self._contexts: dict[str, BrowserContext] = {}
        self._tabs: dict[BrowserContext, Page] = {}
        self.is_trusted = True

    def browser(self) -> Browser:
        if self._browser is None:
            self._browser = launch(self._stack.enter_context(sync_playwright()))
            self._stack.callback(self._browser.close)
        return self._browser

    def context(self, options: dict[str, Any]) -> BrowserContext:
        key = json.dumps(options, sort_keys=True)
        if key not in self._contexts:
            self._contexts[key] = self.browser().new_context(**({"viewport": WIDE} | options))
            self._contexts[key].set_default_timeout(60_000)
            # `/` is the chapter's net: the greeting is for a first visit.
            self._contexts[key].add_init_script(VISITED)
        return self._contexts[key]

    def tab(self, context: BrowserContext, empty: str) -> Page:
        """The context's tab, at the address of a page that does next to nothing, and with no other in its history."""
        if not self.is_trusted:
            # A test that has failed may have left a key or a button pressed.
            for each in self._tabs.values():
                each.close()
            self._tabs.clear()
            self.is_trusted = True
        page = self._tabs.get(context)
        if page is None or page.is_closed():
            page = self._tabs[context] = context.new_page()
        # A pointer that an earlier test has left somewhere would point at something.
        page.mouse.move(-1, -1)
        page.goto(empty)
        session = context.new_cdp_session(page)
        session.send("Page.resetNavigationHistory")
        session.detach()
        return page

    def is_tab(self, page: Page) -> bool:
        return page in self._tabs.values()

    def close(self) -> None:
        self._stack.close()
        self._browser = None
        self._contexts.clear()
        self._tabs.clear()


KEPT = Kept()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser before other tests: Playwright keeps an event loop running, and they run their own."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.get_closest_marker("browser") is None:
            KEPT.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure the next test gets another tab."""
    report = yield
    KEPT.is_trusted = KEPT.is_trusted and not report.failed
    return report


@pytest.fixture(scope="session")
def kept() -> Iterator[Kept]:
    yield KEPT
    KEPT.close()


@pytest.fixture(scope="module")
def browser(kept: Kept) -> Browser:
    return kept.browser()


class Explorer:
    """A tab with the explorer in it, and what tests ask of it."""

    def __init__(self, page: Page, url: str, dump_of: Callable[[str], dict[str, Any]]) -> None:
        self.page = page
        self.url = url
        self.dump_of = dump_of
        self.problems: list[str] = []
        self.expected: list[str] = []
        self.is_spent = False
        page.on("console", self._on_message)
        page.on("pageerror", self._on_error)

    def spend(self) -> Page:
        """The page, for what stays with a tab as long as it is there: the next test gets another."""
        self.is_spent = True
        return self.page

    def leave(self) -> None:
        """Hear and answer nothing more."""
        self.page.remove_listener("console", self._on_message)
        self.page.remove_listener("pageerror", self._on_error)
        self.page.unroute_all()

    def _on_message(self, message: ConsoleMessage) -> None:
        self._heard(message.type, f"{message.text} {message.location['url']}")

    def _on_error(self, error: Error) -> None:
        self._heard("error", str(error))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.problems.append(f"{kind}: {text}")

    def open(self, address: str = "/") -> "Explorer":
        """Load the page and wait until it is idle."""
        # Its modules have run by then, and have asked for the first picture.
        self.page.goto(self.url + address, wait_until="domcontentloaded")
        idle(self.page)
        return self

    def dump(self, query: str | None = None) -> dict[str, Any]:
        """The graph dump of a query; of the page's own without one."""
        return self.dump_of(self.page.evaluate("location.search.slice(1)") if query is None else query)

    def figure(self, name: str) -> str:
        """The figure written in a tensor's box."""
        return self.page.locator(f'graph-view .box[data-id="{name}"] .value').text_content() or ""

    def boxes(self) -> dict[str, dict[str, float]]:
        """Rectangles of the boxes on the screen, by id."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll("graph-view .box")].map((box) => {
                const { x, y, width, height } = box.querySelector(".frame").getBoundingClientRect();
                return [box.dataset.id, { x, y, width, height }];
            }))"""
        )

    def idle(self) -> "Explorer":
        idle(self.page)
        return self


@pytest.fixture
def context_options() -> dict[str, Any]:
    """Viewport and media; tests override it by parametrization."""
    return {"viewport": WIDE}


@pytest.fixture
def context(kept: Kept, context_options: dict[str, Any]) -> Iterator[BrowserContext]:
    """A context without pages, cookies, permissions or routes of other tests.

    Its new pages are wide and light: viewport and colours of the test's options are those of `explorer`'s tab.
    """
    context = kept.context({name: value for name, value in context_options.items() if name not in OF_A_TAB})
    if "permissions" in context_options:
        context.grant_permissions(context_options["permissions"])
    yield context
    for page in context.pages:
        if not kept.is_tab(page):
            page.close()
    context.unroute_all()
    context.clear_cookies()
    context.clear_permissions()
    context.grant_permissions([])
    context.set_offline(False)


@pytest.fixture
def explorer(
    kept: Kept,
    context: BrowserContext,
    context_options: dict[str, Any],
    server_url: str,
    dump_of: Callable[[str], dict[str, Any]],
) -> Iterator[Explorer]:
    page = kept.tab(context, f"{server_url}/foundations")
    size = context_options.get("viewport", USUAL)
    if page.viewport_size != size:
        page.set_viewport_size(size)
    if "color_scheme" in context_options:
        page.emulate_media(color_scheme=context_options["color_scheme"])
    explorer = Explorer(page, server_url, dump_of)
    yield explorer
    explorer.leave()
    if explorer.is_spent:
        page.close()
    else:
        if page.viewport_size != WIDE:
            page.set_viewport_size(WIDE)
        if "color_scheme" in context_options:
            page.emulate_media(color_scheme="null")
    assert explorer.problems == []


@pytest.fixture
def chapter(explorer: Explorer) -> Callable[[str], Page]:
    """Opens a page of the chapter, `matmul?m=2`, and waits for its first answer."""

    def open_page(address: str) -> Page:
        # The page explains a refused input; Chromium writes the status into its console too.
        explorer.expected.append("status of 422")
        explorer.page.goto(f"{explorer.url}/foundations/{address}")
        explorer.page.wait_for_selector("body[data-answers]")
        return explorer.page

    return open_page


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, server_url: str) -> Iterator[Callable[[str], str]]:
    """The link of a server by its command. The server starts at the first use of its link."""
    links = {"serve": server_url}
    with ExitStack() as stack:

        def link(name: str) -> str:
            if name not in links:
                if name == "explore":
                    arguments = [f"{BLOCKS}:make"]
                elif name == "runs":
                    arguments = [str(write_runs(tmp_path_factory.mktemp("runs")))]
                else:
                    dumps = write_dumps(tmp_path_factory.mktemp("dumps"))
                    arguments = sorted(map(str, dumps.glob("step*.json")))
                links[name] = stack.enter_context(command(name, *arguments, "--no-browser", "--port", "0"))
            return links[name]

        yield link


@pytest.fixture
def show(explorer: Explorer, servers: Callable[[str], str], request: pytest.FixtureRequest) -> Callable[[str], Page]:
    """Opens a view by its name in `VIEWS`, and waits until it is there."""

    def open_view(name: str) -> Page:
        address, click, server = VIEWS[name]
        page, link = explorer.page, servers(server)
        if address.startswith("/guide/"):
            folder = request.getfixturevalue("guide")
            page.route("**/guide/*", lambda route: route.fulfill(path=folder / urlsplit(route.request.url).path[7:]))
        if "token=" in link:
            # The link brings the token.
            page.goto(link)
            page.goto("about:blank")
        explorer.expected.append("status of 4")
        page.goto(urljoin(link, address))
        if page.locator("body > .explorer").count():
            page.wait_for_selector("run-status[data-seq], [data-source=dump] graph-view .box", state="attached")
            idle(page)
        elif page.locator("run-list, sweep-map").count():
            idle(page)
        elif page.locator("#page-data").count():
            page.wait_for_selector("body[data-answers]")
        elif address == "/docs":
            page.wait_for_selector(".opblock")
        if click:
            page.locator(click).first.click()
            idle(page)
        return page

    return open_view


@pytest.fixture(scope="session")
def dump_of(server_url: str) -> Callable[[str], dict[str, Any]]:
    """The graph dump of a query."""
    return lambda query: fetched(f"{server_url}/api/v1/trace.json?{query}")


@pytest.fixture(scope="session")
def profile_of(server_url: str) -> Callable[[str], dict[str, Any]]:
    """The profile of a query."""
    return lambda query: fetched(f"{server_url}/api/v1/profile.json?{query}")


def fetched(address: str) -> Any:
    with urlopen(address) as answer:
        return json.load(answer)
