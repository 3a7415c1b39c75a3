"""How fast a net trains with the statistics of every step, against the bare loop, and how fast any step is reached.

    python bench/training.py

Prints a table: steps a second of the bare loop and of a traced one with its training message, their ratio, the
median and longest time from one random step to another of a training of STEPS steps, and the pictures a second that the
page shows while it plays the training, in a real server and a real Chromium.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

from chainrule.build import Training
from chainrule.spec import ModelSpec
from chainrule.web.live import LabTracer

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch
from serving import server

STEPS = 1000
SCRUBS = 40
NETS = {
    "chapter's net": "",
    "50 layers of 100": "widths=100x51",
    "spirals": "widths=2,20,20,2&data=spirals&loss=cross_entropy&lr=0.1",
    "digits": "widths=64,50,10&data=digits&loss=cross_entropy&lr=0.1",
}


PLAY_SECONDS = 5

COUNT = """async (seconds) => {
  let count = 0;
  const status = document.querySelector("run-status");
  new MutationObserver(() => (count += 1)).observe(status, { attributes: true, attributeFilter: ["data-seq"] });
  const began = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  return (count * 1000) / (performance.now() - began);
}"""


def pictures_per_second(page: Page, url: str, query: str) -> float:
    """Pictures per second of the page while it plays a training from step 0."""
    page.goto(f"{url}/?{query}#show=training")
    page.wait_for_selector("body[data-idle]")
    page.locator("training-bar .play").click()
    found: float = page.evaluate(COUNT, PLAY_SECONDS)
    return found


def main() -> None:
    """Print the table."""
    with server("serve") as (url, _), sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        pictures = {name: pictures_per_second(page, url, query) for name, query in NETS.items()}
    torch.set_num_threads(1)
    print(f"{'':18} {'bare/s':>8} {'traced/s':>9} {'ratio':>6} {'scrub ms':>9} {'longest':>8} {'pictures/s':>11}")
    for name, query in NETS.items():
        spec = ModelSpec.from_query(query)
        training = Training(spec, checkpoint_bytes=0)
        training.go_to(20)
        count = 100 if "50" in name else 400
        began = time.perf_counter()
        training.go_to(20 + count)
        bare = count / (time.perf_counter() - began)

        tracer = LabTracer()
        for step in range(20):
            tracer.trace(spec.replace(step=step))
        began = time.perf_counter()
        for step in range(20, 20 + count):
            tracer.trace(spec.replace(step=step))
            tracer.aside(step)
        traced = count / (time.perf_counter() - began)

        tracer.trace(spec.replace(step=STEPS))
        chosen = random.Random(0)
        times = []
        for _ in range(SCRUBS):
            began = time.perf_counter()
            tracer.trace(spec.replace(step=chosen.randrange(STEPS)))
            times.append((time.perf_counter() - began) * 1e3)
        median, longest = statistics.median(times), max(times)
        figures = f"{bare:8.0f} {traced:9.0f} {bare / traced:6.1f} {median:9.1f} {longest:8.1f} {pictures[name]:11.1f}"
        print(f"{name:18} {figures}")


if __name__ == "__main__":
    main()
