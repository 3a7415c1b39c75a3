"""An executed notebook: its output holds the page, which shows the graph in Chromium."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from notebooks import execute
from playwright.sync_api import expect, sync_playwright

# The browser tests start theirs so, too.
sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
from chromium import launch

CELLS = (
    "import chainrule, torch\n"
    "from torch import nn\n"
    "torch.manual_seed(0)\n"
    "model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))\n"
    "x = torch.randn(8, 6)",
    "chainrule.explore(model, x, loss=lambda output: output.pow(2).mean())",
    # The kernel's child processes, and whether the pass left a gradient.
    "import json, os\n"
    "print(json.dumps({\n"
    "    'pid': os.getpid(),\n"
    "    'children': open(f'/proc/self/task/{os.getpid()}/children').read().split(),\n"
    "    'gradient': model[0].weight.grad is not None,\n"
    "}))",
)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The outputs of the cells, and the file that a browser would write."""
    folder = tmp_path_factory.mktemp("notebook")
    noted, browser = folder / "opened.txt", folder / "browser.py"
    browser.write_text("import sys\nopen(sys.argv[1], 'a').write(sys.argv[2])\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER", f"{sys.executable} {browser} {noted} %s")
        return execute(CELLS, folder), noted


def test_the_output_is_the_page_in_a_frame(executed):
    (output,) = executed[0][1]
    assert output["output_type"] == "execute_result"
    data = output["data"]
    assert data["text/plain"].startswith("<View of Sequential at http://127.0.0.1:")
    assert data["text/html"].startswith("<iframe ")
    assert data["text/html"].isascii()
    assert len(data["text/html"]) < 3_000_000


def test_no_browser_was_opened_and_no_process_is_left(executed):
    outputs, noted = executed
    left = json.loads(outputs[2][0]["text"])
    assert not noted.exists()
    assert left["children"] == []
    assert left["gradient"] is False
    with pytest.raises(ProcessLookupError):
        os.kill(left["pid"], 0)


@pytest.mark.long
@pytest.mark.browser
def test_the_output_shows_the_graph(executed):
    html = executed[0][1][0]["data"]["text/html"]
    with ThreadPoolExecutor(1) as thread:
        # A thread has one Playwright at a time, and this one may have that of the tests before.
        problems, requests = thread.submit(look_at, html).result()
    assert problems == []
    assert [url for url in requests if not url.startswith(("about:", "data:", "blob:"))] == []


def look_at(html):
    """Show an output in a new page; return its errors and the addresses it requested."""
    problems, requests = [], []
    with sync_playwright() as playwright, launch(playwright) as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 800})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        # As in a saved notebook without its kernel.
        page.set_content(f"<!doctype html><body>{html}</body>")
        frame = page.frame_locator("iframe")
        # A selection shows although this page has no address to write it to.
        frame.locator('graph-view .box[data-id="0.weight"]').click(timeout=20_000)
        expect(frame.locator("inspector-panel")).to_contain_text("Highlight connected boxes")
        assert page.locator("a", has_text="Live view").get_attribute("href").startswith("http://127.0.0.1:")
        assert page.frames[-1].evaluate("self.origin") == "null", "its code reaches nothing of the notebook's"
    return problems, requests
