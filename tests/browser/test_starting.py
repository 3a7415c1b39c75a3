"""The page of a server that still imports PyTorch."""

import re
import subprocess
from collections.abc import Iterator

import pytest
from command import ENVIRONMENT, command_line
from playwright.sync_api import Browser, Page, expect
from waiting import idle

from chainrule.web.serve import bind
from chainrule.web.starting import StartingServer


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of its own: the page's first answer is an error."""
    page = browser.new_page()
    yield page
    page.close()


def test_the_page_opens_before_pytorch_is_imported_and_becomes_the_explorer(page: Page) -> None:
    command = command_line(["serve", "--port", "0"], fresh=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}
    ) as run:
        try:
            assert run.stdout is not None
            match = re.search(r"starts at (\S+)", run.stdout.readline())
            assert match
            answer = page.goto(f"{match[1]}?widths=3,2,1#a=?activation=tanh")
            assert answer is not None
            assert answer.status == 503
            page.wait_for_selector("graph-view", timeout=300_000)
            idle(page)
            # The pinned net is in the fragment.
            assert page.url == f"{match[1]}?widths=3,2,1#a=?activation=tanh"
            expect(page.locator("graph-view .box").first).to_be_attached()
        finally:
            run.terminate()


def test_the_page_says_that_the_server_has_stopped(page: Page) -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        server = StartingServer(listener, "Chainrule imports PyTorch")
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        expect(page.get_by_role("status")).to_have_text(
            "Chainrule imports PyTorch. The page opens as soon as this is done."
        )
        server.end()
    expect(page.get_by_role("status")).to_have_text("Chainrule has stopped. The terminal shows the reason.")
