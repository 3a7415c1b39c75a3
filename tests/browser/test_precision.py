"""`chainrule compare --as` in the page: errors in the inspector, boxes coloured by them, the op that makes them."""

import re
from pathlib import Path

from command import command
from playwright.sync_api import expect

FILE = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "attention.py"


def test_the_page_shows_errors_beside_the_rounding(explorer):
    with command("compare", "--as", "bfloat16", f"{FILE}:unscaled", "--no-browser", "--port", "0") as url:
        page = explorer.page
        page.goto(f"{url}&select=1.softmax")
        expect(page.locator("inspector-panel h2")).to_have_text("1.softmax")
        line = page.locator("inspector-panel .rounding")
        expect(line).to_have_text(re.compile(r"^error [\d.]+ %, rounding of bfloat16 predicts [\d.]+ %$"))
        expect(page.locator("graph-view .legend")).to_contain_text("Error ÷ rounding")
        expect(page.locator("diagnosis-list .state")).to_contain_text("1 fault")
        # A dump has the level of its recording.
        expect(page.locator("graph-toolbar .aten")).to_be_hidden()
        explorer.idle()
