"""`chainrule compare --as` in the page: errors in the inspector, boxes coloured by them, the op that makes them."""

import json
import re
from pathlib import Path

import pytest
from command import command
from playwright.sync_api import expect

from chainrule.precision.findings import percent

FILE = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "attention.py"


@pytest.mark.long
def test_the_page_shows_errors_beside_the_rounding(explorer):
    with command("compare", "--as", "bfloat16", f"{FILE}:unscaled", "--no-browser", "--insecure", "--port", "0") as url:
        page = explorer.page
        page.goto(f"{url}&select=1.softmax")
        expect(page.locator("inspector-panel h2")).to_have_text("1.softmax")
        line = page.locator("inspector-panel .rounding")
        expect(line).to_have_text(re.compile(r"^error [\d.]+ %, rounding of bfloat16 predicts [\d.]+ %$"))
        expect(page.locator("graph-view .legend")).to_contain_text("Error ÷ rounding")
        expect(page.locator("diagnosis-list .state")).to_contain_text("1 fault")
        # A dump has the level of its recording.
        expect(page.locator("graph-toolbar .recording")).to_be_hidden()
        explorer.idle()


@pytest.mark.long
def test_one_page_has_all_precisions(explorer):
    names = ("bfloat16", "autocast-bfloat16", "float64")
    choices = [each for name in names for each in ("--as", name)]
    with command("compare", *choices, f"{FILE}:unscaled", "--no-browser", "--insecure", "--port", "0") as url:
        page = explorer.page
        page.goto(f"{url}&select=1.softmax")
        chosen = page.locator("dump-scrubber strong")
        expect(chosen).to_have_text("bfloat16")
        # Precisions have no order in time: there is nothing to play.
        expect(page.locator("dump-scrubber .controls button:visible")).to_have_count(2)
        series = page.locator("tensor-over-steps")
        expect(series.locator("h2")).to_have_text("1.softmax in 4 precisions")
        expect(series.locator("thead th")).to_have_text(["precision", "error", "predicted", "NaN, Inf"])
        rows = [["float32", "–", "–", "0"]]
        for index, name in enumerate(names, 1):
            dump = json.loads(page.evaluate(f"fetch('/api/v1/dump.json?index={index}').then((got) => got.text())"))
            tensor = next(each["id"] for each in dump["tensors"] if each["name"] == "1.softmax")
            at = dump["precision"]["tensor"].index(tensor)
            rows.append(
                [
                    name,
                    *(percent(dump["precision"][each][at]).replace("e-0", "e-") for each in ("error", "expected")),
                    "0",
                ]
            )
        for row, cells in enumerate(rows):
            expect(series.locator("tbody tr").nth(row).locator("th, td")).to_have_text(cells)
        expect(series.locator(".note")).to_have_text("float64: the error of float32 against it")
        series.get_by_role("button", name="autocast-bfloat16", exact=True).click()
        expect(chosen).to_have_text("autocast-bfloat16")
        expect(page.locator("inspector-panel .rounding")).to_have_text(
            f"error {rows[2][1]}, rounding of autocast-bfloat16 predicts {rows[2][2]}"
        )
        # Run A has no errors; the choice of the colour stays.
        series.get_by_role("button", name="float32", exact=True).click()
        expect(chosen).to_have_text("float32")
        expect(page.get_by_label("Colour of the boxes")).to_have_value("precision")
        expect(page.locator("inspector-panel .rounding")).to_be_hidden()
        explorer.idle()
