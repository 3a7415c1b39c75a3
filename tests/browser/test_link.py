"""Links to the server on a page of another site, as mail, courses and chats have them."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page
from served import Metrics, Served

TOKEN = "a-token-of-some-length"
OWN_HOST = "chainrule-0123abcd.localhost"
VIEW = "widths=10,5,1"
PAGE = """<!doctype html><link rel="icon" href="data:,"><title>A course</title>
<a id="token" href="{url}/?token={token}&{view}">the link that the server printed</a>
<a id="view" href="{url}/?{view}">a view</a>
<a id="trace" href="{url}/api/v1/trace.json?{view}">data</a>
"""

LOAD = """async (address) => {
    let seed = 0;
    for (const tag of ["img", "script", "iframe"]) {
        await new Promise((done) => {
            const element = document.createElement(tag);
            element.onload = element.onerror = done;
            element.src = address + ++seed;
            document.body.append(element);
        });
    }
    await fetch(address + ++seed, { mode: "no-cors" }).catch(() => null);
}"""
"""Has a page load four answers as parts of itself, and waits until it has or has not got them."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that wants a token."""
    folder = tmp_path_factory.mktemp("server")
    with Served(folder / "log.txt", token=TOKEN, allowed_hosts=OWN_HOST) as server:
        yield server


@pytest.fixture
def page_of(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Serves the page with links to a server, and gives its address: to a browser `localhost` is another site."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def start(url: str) -> str:
            (tmp_path / "index.html").write_text(PAGE.format(url=url, token=TOKEN, view=VIEW))
            return f"http://localhost:{server.server_port}/"

        yield start
        server.shutdown()


def follow(page: Page, link: str) -> int:
    """Click a link; the status of what it led to."""
    with page.expect_navigation() as navigation:
        page.click(link)
    return navigation.value.status


def counted(url: str) -> tuple[float, float]:
    """Requests that a server has refused because of their origin, and those it has computed."""
    metrics = Metrics(httpx.get(f"{url}/metrics").raise_for_status().text)
    return metrics.total("rejected_total", code="origin_not_allowed"), metrics.total("work_accepted_total")


@pytest.mark.long
def test_a_link_admits_from_wherever_it_is_clicked(
    context: BrowserContext, guarded: Served, page_of: Callable[[str], str]
) -> None:
    elsewhere = page_of(guarded.url)
    page = context.new_page()
    page.goto(elsewhere)
    assert follow(page, "#view") == 401
    page.goto(elsewhere)
    assert follow(page, "#token") == 200
    assert page.url == f"{guarded.url}/?{VIEW}"
    # The picture, over a WebSocket that needs the cookie too.
    page.wait_for_selector("run-status[data-seq]")
    (cookie,) = context.cookies()
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Lax", True)
    for link in ("#view", "#trace"):
        page.goto(elsewhere)
        assert follow(page, link) == 200, link


class Noting(BaseHTTPRequestHandler):
    """Notes the cookies that it gets."""

    def do_GET(self) -> None:
        self.server.noted.append(self.headers.get("cookie", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b'<!doctype html><link rel="icon" href="data:,">')

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.mark.long
@pytest.mark.parametrize(("host", "is_sent"), [("127.0.0.1", True), (OWN_HOST, False)])
def test_a_host_name_of_its_own_keeps_the_session_from_other_programs(
    context: BrowserContext, guarded: Served, host: str, is_sent: bool
) -> None:
    own, page = guarded.url.replace("127.0.0.1", host), context.new_page()
    page.goto(f"{own}/?token={TOKEN}&{VIEW}")
    assert page.url == f"{own}/?{VIEW}"
    page.wait_for_selector("run-status[data-seq]")
    with ThreadingHTTPServer(("127.0.0.1", 0), Noting) as other:
        other.noted = []  # type: ignore[attr-defined]
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{other.server_port}/")
        other.shutdown()
        assert ["chainrule_" in cookies for cookies in other.noted] == [is_sent]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("host", "seed"), [("localhost", 5), ("127.0.0.1", 6)])
def test_a_page_elsewhere_leads_to_data_and_has_none_computed(
    context: BrowserContext, server_url: str, page_of: Callable[[str], str], host: str, seed: int
) -> None:
    """Without a token; another port of the same address is another origin too."""
    page = context.new_page()
    page.goto(page_of(server_url).replace("localhost", host))
    refused, computed = counted(server_url)
    # The browser keeps every answer from the page: what was answered, the server knows.
    page.evaluate(LOAD, f"{server_url}/api/v1/trace.json?{VIEW}&seed=")
    assert counted(server_url) == (refused + 4, computed)
    # The browser may keep an answer, so each case asks for its own.
    page.evaluate("(seed) => { document.querySelector('#trace').href += `&seed=${seed}`; }", seed)
    assert follow(page, "#trace") == 200
    assert counted(server_url) == (refused + 4, computed + 1)
