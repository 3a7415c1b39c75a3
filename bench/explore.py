"""Your own model in the explorer: from the command to the first picture, from an edit to the next, and a long graph.

    python bench/explore.py [--rounds 5]

First byte: from `chainrule serve` to the first byte of a page, which waits for PyTorch. First picture: from
`chainrule explore gpt.py:make` to the end of the frame that shows the graph of twelve GPT-like blocks, in a Chromium
that runs already; against what is needed without Chainrule: import torch, run the file, make the model (`import`), and
one forward and backward pass (`bare`). Event: from an event of the what-if slider to its picture, against a later bare
pass. Retrace: from saving an edit to the frame that shows it.
Long: a model of more than 10,000 ops; from an event of the slider to its picture, as above; from opening a group of
thousands of boxes, and one of a few, to the frame that shows it; and frames per second while it is panned, with the
group open and closed. Each in turns in the same rounds; medians. Prints one table and writes
bench/results/bench-explore.json.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from chainrule.run import environment
from page_graph import SIZE, TOGGLE, TOOLS, WHEEL
from table import Section, render

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FIRST_BYTE_SECONDS = 0.5
FACTOR, EXTRA_SECONDS = 1.5, 0.6
"""The first picture may take the import, so many bare passes and so many seconds."""

RETRACE_SECONDS = 1.5
PAN_SECONDS = 4

EVENT_FACTOR = 2.5
"""A picture of a what-if may take so many bare passes."""

OPENED_MS = 300
PAN_FPS = 30
SLIDES = 10
TOGGLES = 6

FOLD, REST = "reads*1250/forward", "reads*1250.rest/forward"
"""Groups of the long model: its loop, folded to one turn; and in that the other turns, over ten thousand boxes."""

WITHOUT = """
import json, runpy, sys, time
import torch
made = runpy.run_path(sys.argv[1])["make"]()
model, x = made[:2]
loss = made[2] if len(made) > 2 else lambda output: output
imported = time.time()
loss(model(x)).backward()
passed = time.time()
again = []
for _ in range(3):
    began = time.time()
    loss(model(x)).backward()
    again.append(time.time() - began)
print(json.dumps({"imported": imported, "passed": passed, "again": sorted(again)[1]}))
"""

SHOWN = "run-status[data-seq]"
"""Selects an element that exists once a picture is on the screen."""


def without(path: Path) -> tuple[float, float, float]:
    """Seconds to import and make the model, of its first forward and backward pass, and of a later one, without us."""
    began = time.time()
    command = [sys.executable, "-c", WITHOUT, str(path)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return said["imported"] - began, said["passed"] - said["imported"], said["again"]


def explored(path: Path, *options: str) -> AbstractContextManager[str]:
    """`chainrule explore`; the link that it says first."""
    return served("explore", f"{path}:make", "--no-browser", *options)


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """A command that serves; the link that it says first."""
    command = [sys.executable, "-u", "-m", "chainrule", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if match := re.search(r"http://\S+", line):
                    yield match[0]
                    return
            raise SystemExit(f"chainrule {arguments[0]} did not start")
        finally:
            process.terminate()


def first_byte() -> float:
    """Seconds from `chainrule serve` to the first byte of its page."""
    began = time.perf_counter()
    with served("serve", "--port", "0") as link:
        address = urlsplit(link)
        client = HTTPConnection(address.hostname or "", address.port)
        client.request("GET", "/", headers={"accept": "text/html"})
        client.getresponse()
        return time.perf_counter() - began


def end_of_frame(page: Page) -> None:
    """Wait until what the page shows has been painted."""
    page.evaluate(f"async () => {{ ({TOOLS})(); await bench.endOfFrame(); }}")


def first_picture(browser: Browser, path: Path) -> float:
    """Seconds from the command to the graph on the screen."""
    page = browser.new_page(viewport=SIZE)
    began = time.perf_counter()
    with explored(path) as link:
        page.goto(link)
        page.wait_for_selector("graph-view .box")
        page.wait_for_selector(SHOWN)
        end_of_frame(page)
        took = time.perf_counter() - began
        page.close()
    return took


def retraces(browser: Browser, source: Path, rounds: int) -> tuple[list[float], float]:
    """Seconds from an edit to the picture of it, each of another gain of the input; then `what_if` of the last."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / source.name
        text = source.read_text().replace("parents[1]", f"parents[0] / {str(HERE)!r}")
        path.write_text(text)
        page = browser.new_page(viewport=SIZE)
        with explored(path, "--watch") as link:
            page.goto(link)
            page.wait_for_selector("graph-view .box")
            page.wait_for_selector(SHOWN)
            for turn in range(1, rounds + 1):
                time.sleep(1)
                before = page.get_attribute(SHOWN, "data-seq")
                began = time.perf_counter()
                path.write_text(text.replace("GAIN = 1.0", f"GAIN = {1 + turn / 10}"))
                page.wait_for_function(f"() => document.querySelector('{SHOWN}').dataset.seq !== {before!r}")
                end_of_frame(page)
                took.append(time.perf_counter() - began)
            wait = what_if(page)
            page.close()
    return took, wait


def what_if(page: Page) -> float:
    """Milliseconds from an event of the slider to its picture, one after the other."""
    waits = []
    for turn in range(1, SLIDES + 1):
        page.wait_for_timeout(1000)
        waits.append(page.evaluate(SLIDE, 0.1 * turn))
    return statistics.median(waits)


def long_graph(browser: Browser, path: Path) -> dict[str, Any]:
    """The page with a graph of more than 10,000 ops."""
    page = browser.new_page(viewport=SIZE)
    with explored(path) as link:
        page.goto(link)
        page.wait_for_selector("graph-view .box")
        page.wait_for_selector(SHOWN)
        page.evaluate(TOOLS)
        dump = page.request.get(urljoin(link, "/api/v1/model/trace.json")).json()
        wait = what_if(page)
        page.wait_for_timeout(2000)
        closed = page.evaluate(WHEEL, [PAN_SECONDS, "pan"])
        # Toggles open and close in turns; only opening counts.
        few = page.evaluate(TOGGLE, [FOLD, TOGGLES + 1])[::2]
        many = page.evaluate(TOGGLE, [REST, TOGGLES + 1])[::2]
        boxes = page.evaluate("bench.view.drawing.boxes")
        page.wait_for_timeout(1000)
        panned = page.evaluate(WHEEL, [PAN_SECONDS, "pan"])
        page.close()
    return {
        "long_ops": len(dump["ops"]),
        "long_event_to_picture_ms": round(wait, 1),
        "long_pan_fps": round(closed["fps"], 1),
        "long_open_few_ms": round(statistics.median(few), 1),
        "long_open_many_ms": round(statistics.median(many), 1),
        "long_open_boxes": boxes,
        "long_open_pan_fps": round(panned["fps"], 1),
    }


SLIDE = """
async (value) => {
  const slider = document.querySelector('what-if-controls input[type="range"]');
  const status = document.querySelector("run-status");
  const before = status.dataset.seq;
  slider.value = String(value);
  const began = performance.now();
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  while (status.dataset.seq === before) await bench.frame();
  await bench.endOfFrame();
  return performance.now() - began;
}
"""


def measure(rounds: int) -> dict[str, Any]:
    """All figures."""
    gpt = HERE / "own" / "gpt.py"
    imports, passes, later, pictures, bytes_ = [], [], [], [], []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        # Once without the clock: what is read from the disk is read by then.
        without(gpt)
        first_picture(browser, gpt)
        for _ in range(rounds):
            imported, passed, again = without(gpt)
            imports.append(imported)
            passes.append(passed)
            later.append(again)
            pictures.append(first_picture(browser, gpt))
            bytes_.append(first_byte())
        edits, wait = retraces(browser, gpt, rounds)
        long = long_graph(browser, HERE / "own" / "long.py")
        browser.close()
    long["long_bare_s"] = round(statistics.median(without(HERE / "own" / "long.py")[2] for _ in range(rounds)), 3)
    imported, passed, picture = map(statistics.median, (imports, passes, pictures))
    return {
        "first_byte_s": round(statistics.median(bytes_), 3),
        "import_s": round(imported, 3),
        "bare_s": round(passed, 3),
        "first_picture_s": round(picture, 3),
        "event_to_picture_ms": round(wait, 1),
        "later_bare_s": round(statistics.median(later), 3),
        "retrace_s": round(statistics.median(edits), 3),
        **long,
    }


def goals(figures: Mapping[str, Any]) -> dict[str, str]:
    """Figure name → its goal."""
    first = figures["import_s"] + FACTOR * figures["bare_s"] + EXTRA_SECONDS
    return {
        "first_byte_s": f"≤ {FIRST_BYTE_SECONDS:g}",
        "first_picture_s": f"≤ {first:.3g}",
        "retrace_s": f"≤ {RETRACE_SECONDS:g}",
        "long_ops": "> 10000",
        "event_to_picture_ms": f"≤ {EVENT_FACTOR * 1e3 * figures['later_bare_s']:.3g}",
        "long_event_to_picture_ms": f"≤ {EVENT_FACTOR * 1e3 * figures['long_bare_s']:.3g}",
        "long_pan_fps": f"≥ {PAN_FPS}",
        "long_open_few_ms": f"≤ {OPENED_MS}",
        "long_open_many_ms": f"≤ {OPENED_MS}",
        "long_open_pan_fps": f"≥ {PAN_FPS}",
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    figures = measure(parser.parse_args().rounds)
    RESULTS.mkdir(exist_ok=True)
    wanted = goals(figures)
    document = {**figures, "goals": wanted, "environment": dict(environment("cpu"))}
    (RESULTS / "bench-explore.json").write_text(json.dumps(document, indent=2) + "\n")
    rows = [(name, [wanted.get(name, ""), f"{value:g}"]) for name, value in figures.items()]
    print(render([Section("your own model", ("goal", "median"), rows)]))


if __name__ == "__main__":
    main()
