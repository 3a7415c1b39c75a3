"""The page of a server that still imports PyTorch."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def starting(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The link that a command prints before its server is ready, and its process."""
    with subprocess.Popen(
        command_line([*arguments, "--port", "0"], fresh=True),
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"},
    ) as run:
        try:
            assert run.stdout is not None
            match = re.search(r"starts at (\S+)", run.stdout.readline())
            assert match
            yield match[1], run
        finally:
            run.terminate()


@pytest.mark.long
def test_the_page_opens_before_pytorch_is_imported_and_becomes_the_explorer(page: Page) -> None:
    with starting("serve") as (link, _):
        answer = page.goto(f"{link}?widths=3,2,1#a=?activation=tanh")
        assert answer is not None
        assert answer.status == 503
        page.wait_for_selector("graph-view", timeout=300_000)
        idle(page)
        # The pinned net is in the fragment.
        assert page.url == f"{link}?widths=3,2,1#a=?activation=tanh"
        expect(page.locator("graph-view .box").first).to_be_attached()


FIRST_PASS = "net.py:make makes its first forward and backward pass."
STOPPED = "Chainrule has stopped. The terminal shows the reason."

MODEL = """
import time
from pathlib import Path
from torch import nn, randn

class Waits(nn.Linear):
    def forward(self, x):
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.01)
            x = x + 0
        return super().forward(x)

def make():
    return Waits(3, 1), randn(2, 3), lambda output: output.mean()
"""


def test_the_page_of_a_model_is_there_while_its_first_pass_runs(page: Page, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    with starting("explore", f"{tmp_path}/net.py:make", "--no-browser") as (link, _):
        page.goto(link)
        said = page.get_by_text(FIRST_PASS)
        said.wait_for(timeout=300_000)
        (tmp_path / "go").touch()
        page.wait_for_selector("graph-view .box", timeout=300_000)
        idle(page)
        expect(said).to_be_hidden()


@pytest.mark.long
@pytest.mark.parametrize("waiting", ["x = x + 0", "pass"], ids=["between ops", "without any op"])
def test_ctrl_c_ends_the_first_pass_of_a_model(page: Page, tmp_path: Path, waiting: str) -> None:
    (tmp_path / "net.py").write_text(MODEL.replace("x = x + 0", waiting))
    with starting("explore", f"{tmp_path}/net.py:make", "--no-browser") as (link, run):
        page.goto(link)
        page.get_by_text(FIRST_PASS).wait_for(timeout=300_000)
        run.send_signal(signal.SIGINT)
        assert run.wait(300) == 128 + signal.SIGINT
        page.get_by_text(STOPPED).wait_for(timeout=300_000)
        expect(page.get_by_text(FIRST_PASS)).to_be_hidden()


@pytest.mark.long
def test_a_model_that_cannot_be_traced_ends_the_server(page: Page, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL.replace("output.mean()", "output"))
    with starting("explore", f"{tmp_path}/net.py:make", "--no-browser") as (link, run):
        page.goto(link)
        page.get_by_text(FIRST_PASS).wait_for(timeout=300_000)
        (tmp_path / "go").touch()
        assert run.wait(300) == 2
        # If the server had the time, it has answered the page.
        answer = page.get_by_role("alert").get_by_text("no scalar loss")
        page.get_by_text(STOPPED).or_(answer).filter(visible=True).first.wait_for(timeout=300_000)
        expect(page.get_by_text(FIRST_PASS)).to_be_hidden()


@pytest.mark.long
def test_a_model_that_cannot_be_traced_can_be_repaired_if_its_file_is_watched(page: Page, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL.replace("output.mean()", "output"))
    with starting("explore", f"{tmp_path}/net.py:make", "--no-browser", "--watch") as (link, _):
        page.goto(link)
        page.get_by_text(FIRST_PASS).wait_for(timeout=300_000)
        (tmp_path / "go").touch()
        page.get_by_role("alert").get_by_text("no scalar loss").wait_for(timeout=300_000)
        expect(page.get_by_text(FIRST_PASS)).to_be_hidden()
        (tmp_path / "net.py").write_text(MODEL)
        page.wait_for_selector("graph-view .box", timeout=300_000)
        idle(page)


def test_the_page_says_that_the_server_has_stopped(page: Page) -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        server = StartingServer(listener, "Chainrule imports PyTorch")
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        expect(page.get_by_role("status")).to_have_text(
            "Chainrule imports PyTorch. The page opens as soon as this is done."
        )
        server.end()
    expect(page.get_by_role("status")).to_have_text(STOPPED)
