"""The graph in the page: a real server, a real Chromium, dumps opened as a person would open them.

toggle: from the click that opens or closes a group, in a graph that is all open, to the end of the frame that shows it.
pan, zoom: frames per second while the wheel turns in every frame, with about 500 boxes on the screen. Memory: what the
page's process has to itself after garbage collection.
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch
from serving import server

SIZE = {"width": 1440, "height": 900}
LAYOUT_TIMEOUT_MS = 60_000
TOGGLES = 20
SECONDS = 4

TOOLS = """
() => {
  // Tasks that are posted in a frame's callbacks run after the frame has been painted.
  const channel = new MessageChannel();
  const after = [];
  channel.port1.onmessage = () => after.shift()();
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const endOfFrame = async () => {
    await frame();
    await new Promise((resolve) => {
      after.push(resolve);
      channel.port2.postMessage(null);
    });
  };
  const view = document.querySelector("graph-view");
  const drawn = () => new Promise((resolve) => view.addEventListener("drawing-change", resolve, { once: true }));
  window.bench = { view, frame, endOfFrame, drawn };
}
"""

TOGGLE = """
async ([id, times]) => {
  const { view, endOfFrame, drawn } = bench;
  const waits = [];
  for (let turn = 0; turn < times; turn += 1) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    const began = performance.now();
    const next = drawn();
    view.dispatchEvent(new CustomEvent("group-toggle", { detail: { id }, bubbles: true }));
    await next;
    await endOfFrame();
    waits.push(performance.now() - began);
  }
  return waits;
}
"""

WHEEL = """
async ([seconds, kind]) => {
  const { view, frame } = bench;
  const stage = view.querySelector(".stage");
  const area = stage.getBoundingClientRect();
  const frames = [];
  const began = performance.now();
  for (let step = 0; performance.now() - began < seconds * 1000; step += 1) {
    const wave = Math.sin(step / 20);
    const turn = kind === "pan" ? { deltaX: 30 * wave, deltaY: 0 } : { deltaX: 0, deltaY: 40 * wave, ctrlKey: true };
    const at = { clientX: area.x + area.width / 2, clientY: area.y + area.height / 2 };
    stage.dispatchEvent(new WheelEvent("wheel", { ...turn, ...at, bubbles: true, cancelable: true }));
    frames.push(await frame());
  }
  const gaps = frames.slice(1).map((time, index) => time - frames[index]).sort((a, b) => a - b);
  return { fps: (frames.length * 1000) / (performance.now() - began), worst: gaps[Math.floor(gaps.length * 0.95)] };
}
"""

ON_SCREEN = """
() => {
  const { rect, boxes } = bench.view.drawing;
  const { x, y, width, height } = bench.view.viewBox();
  let count = 0;
  for (let box = 0; box < boxes; box += 1) {
    const [left, top, w, h] = rect.subarray(4 * box, 4 * box + 4);
    if (left < x + width && left + w > x && top < y + height && top + h > y) count += 1;
  }
  return count;
}
"""


def open_dump(context: BrowserContext, url: str, fragment: str) -> Page:
    """The page with the server's dump in it, laid out."""
    page = context.new_page()
    page.goto(f"{url}/#{fragment}")
    page.wait_for_selector("graph-view .box", state="attached", timeout=LAYOUT_TIMEOUT_MS)
    page.evaluate(TOOLS)
    page.wait_for_function(
        "(least) => (bench.view.drawing?.boxes ?? 0) >= least", arg=100, timeout=LAYOUT_TIMEOUT_MS, polling=200
    )
    page.wait_for_timeout(2000)
    return page


def private_mb(browser: Browser) -> float:
    """Memory that the largest page process shares with nobody."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [private_of(process["id"]) for process in processes if process["type"] == "renderer"]
    session.detach()
    return max(sizes)


def private_of(process: int) -> float:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except FileNotFoundError:
        return 0.0
    kilobytes = [int(size) for size in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)]
    return sum(kilobytes) / 1024


def browser_figures(large: Path, medium: Path, group: str) -> dict[str, Any]:
    """The page's figures.

    Args:
        large: a dump of about 75,000 boxes when all open.
        medium: one of some hundred boxes.
        group: id of the group of `large` that is closed and opened.
    """
    with sync_playwright() as playwright:
        browser = launch(playwright)
        context = browser.new_context(viewport=SIZE)
        with server("open", str(medium), "--no-browser", "--insecure") as (url, _):
            # A little closer than all of it, so that there is somewhere to go.
            page = open_dump(context, url, "level=all&fold=off&zoom=1.2&at=0.5")
            on_screen = page.evaluate(ON_SCREEN)
            near = {kind: page.evaluate(WHEEL, [SECONDS, kind]) for kind in ("pan", "zoom")}
            page.close()
        browser.close()

        # A process of its own: what an earlier page has left behind does not count.
        browser = launch(playwright)
        context = browser.new_context(viewport=SIZE)
        with server("open", str(large), "--no-browser", "--insecure") as (url, _):
            page = open_dump(context, url, "level=all&fold=off")
            boxes = page.evaluate("bench.view.drawing.boxes")
            waits = page.evaluate(TOGGLE, [group, TOGGLES])
            far = {kind: page.evaluate(WHEEL, [SECONDS, kind]) for kind in ("pan", "zoom")}
            session = context.new_cdp_session(page)
            session.send("HeapProfiler.collectGarbage")
            page.wait_for_timeout(500)
            memory = private_mb(browser)
        browser.close()
    return {
        "boxes_75k": boxes,
        "toggle_ms_75k": round(statistics.median(waits), 1),
        "toggle_ms_75k_worst": round(max(waits), 1),
        "page_memory_mb": round(memory, 1),
        "on_screen": on_screen,
        "pan_fps_500": round(near["pan"]["fps"], 1),
        "zoom_fps_500": round(near["zoom"]["fps"], 1),
        "pan_fps_75k": round(far["pan"]["fps"], 1),
        "zoom_fps_75k": round(far["zoom"]["fps"], 1),
    }
