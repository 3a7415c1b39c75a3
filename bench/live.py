"""How the picture follows the slider: 50 layers of 100 units, batch 200, in a real server and a real Chromium.

    python bench/live.py [--settings 120] [--seconds 5] [--events 5000] [--rounds 60] [--profile]

event → picture: from an `input` event of the scale slider to the end of the frame that paints the picture of exactly
that value, one setting at a time, in every arrangement of the page. Sustained: a value every 8 ms, faster than it can
follow; pictures painted per second, and the time from the last value to its picture. Server ratio: computing a recorded
picture against the bare forward and backward pass of the same spec, in turns; by hand, and with autograd's backward
(style=module). Refusals: the slowest of some mistaken
requests, each the best of five. Memory: what 5000 more slider events leave behind.

The end of a frame is the end of the main thread's part: script, style, layout, paint. A page cannot measure what
follows. --profile adds the time of each phase. Prints one table and writes bench/results/bench-live.json. Run it
on an idle machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from websockets.sync.client import connect

from chainrule.build import build_model
from chainrule.dump.wire import FRAME_HEADER, FRAME_MAGIC
from chainrule.run import environment
from chainrule.spec import ModelSpec
from timing import ratio

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch
from serving import server

RESULTS = Path(__file__).parent / "results"
QUERY = "widths=100x51&last_activation=true&bias=false"
ARRANGEMENTS = {"": "", "_heatmap": "show=layers", "_ridgeline": "show=layers&form=ridgeline"}
"""Suffix of the figure's name → fragment of the address."""

SPAN = 0.2
"""How far from its middle the slider is set, of 1: between ×1.1 and ×1.4, where float32 holds all 50 layers."""

EVERY_MS = 8
PAUSE_MS = (30, 150)
"""Between two settings, at random: in step with the frames of the screen they would all wait alike."""

AT_REST_MS = 2500
"""Long enough for layout, theory and Plotly to be done."""

GOALS = {"event_to_picture_ms_median": 25, "event_to_picture_ms_p95": 50, "server_ratio": 2, "server_ratio_module": 2}

REFUSED = {
    "/api/v1/trace.json?scale=0": 422,
    "/api/v1/trace.json?scale=1e30": 422,
    "/api/v1/trace.json?widths=0": 422,
    "/api/v1/trace.json?widths=100x100000": 422,
    "/api/v1/trace.json?widht=3": 422,
    "/api/v1/trace.json?preset=deep-kaimign": 422,
    "/api/v1/tensor.json?name=l2&rows=5:0": 422,
    "/api/v1/nothing.json": 404,
}

# --------------------------------------------------------------------------------------------------------- in the page

INSTRUMENT = """
(() => {
  const now = () => performance.now();

  // The frame that was asked for last; of the one that began last, when it was asked for and when it began, and whether
  // its callbacks still run.
  let [latest, asked, began, isInFrame] = [0, 0, 0, false];
  const frame = requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => {
    const at = (latest = now());
    return frame((time) => {
      [asked, began, isInFrame] = [at, now(), true];
      atEndOfFrame(() => (isInFrame = false));
      callback(time);
    });
  };

  // What was sent under which number, and when its answer came.
  const records = new Map();
  window.WebSocket = class extends WebSocket {
    constructor(...address) {
      super(...address);
      this.addEventListener("message", ({ data }) => {
        if (typeof data === "string") return;
        const header = new DataView(data);
        const record = records.get(header.getUint32(4, true));
        if (record !== undefined) Object.assign(record, { received: now(), compute: header.getFloat64(32, true) });
      });
    }
    send(text) {
      const { seq, spec } = JSON.parse(text);
      records.set(seq, { scale: spec.scale, sent: now() });
      super.send(text);
    }
  };

  // Tasks that are posted in a frame's callbacks run after the frame has been painted.
  const channel = new MessageChannel();
  const after = [];
  channel.port1.onmessage = () => after.shift()();
  const atEndOfFrame = (callback) => {
    after.push(callback);
    channel.port2.postMessage(null);
  };

  const listeners = new Set();
  const observe = (status) => {
    new MutationObserver(() => {
      const seq = Number(status.dataset.seq);
      const record = records.get(seq);
      if (record === undefined) return;
      for (const earlier of records.keys()) if (earlier <= seq) records.delete(earlier);
      record.drawn = now();
      const painted = () => {
        record.painted = now();
        for (const listener of [...listeners]) listener(record);
      };
      if (!isInFrame) {
        // Drawn between two frames: the next paints it, with whatever an element draws in a frame that it asked for.
        frame(() => {
          record.began = now();
          atEndOfFrame(painted);
        });
        return;
      }
      Object.assign(record, { asked, began });
      // An element that draws in a frame of its own has asked for it by now.
      if (latest > began) frame(() => atEndOfFrame(painted));
      else atEndOfFrame(painted);
    }).observe(status, { attributeFilter: ["data-seq"] });
  };
  addEventListener("DOMContentLoaded", () => observe(document.querySelector("run-status")));

  let wanted = NaN;
  addEventListener("spec-change", ({ detail }) => (wanted = detail.change.scale));

  window.bench = {
    listeners,
    frame: () => new Promise((resolve) => frame(resolve)),
    pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),

    /** Moves the slider as a hand would; the scale that the page makes of it. */
    set(position) {
      const slider = document.querySelector("spec-controls input[type=range]");
      slider.value = String(position);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      return wanted;
    },

    /** The record of the picture of a scale, once that is painted; call it in the task that has set the scale. */
    shown(scale) {
      return new Promise((resolve, reject) => {
        const deadline = setTimeout(() => reject(new Error(`no picture of scale ${scale} within 10 s`)), 10_000);
        const listener = (record) => {
          if (record.scale !== scale) return;
          clearTimeout(deadline);
          listeners.delete(listener);
          resolve(record);
        };
        listeners.add(listener);
      });
    },
  };
})();
"""

ONE_BY_ONE = """
async (settings) => {
  const records = [];
  for (const [position, pause] of settings) {
    await bench.pause(pause);
    const event = performance.now();
    const scale = bench.set(position);
    records.push({ event, ...(await bench.shown(scale)) });
  }
  return records;
}
"""

SUSTAINED = """
async ([seconds, every, span]) => {
  const records = [];
  const count = (record) => records.push(record);
  const end = performance.now() + seconds * 1000;
  bench.listeners.add(count);
  let step = 0;
  while (performance.now() < end) {
    bench.set(span * Math.sin((step += 1) / 40));
    await bench.pause(every);
  }
  bench.listeners.delete(count);
  const last = performance.now();
  const { painted } = await bench.shown(bench.set(span * 1.01));  // which no step has set before
  return { records, settle: painted - last, events: step };
}
"""

EVENTS = """
async ([events, span]) => {
  for (let step = 1; step < events; step += 1) {
    bench.set(span * Math.sin(step / 40));
    await bench.frame();
  }
  await bench.shown(bench.set(span * 1.01));
}
"""

OUTSIDE = "server: queue, encode, socket"

PHASES = {
    # name: [(from, to)], both times of a record
    "page: event to request": [("event", "sent")],
    OUTSIDE: [("sent", "received")],
    "page: decode, update elements, draw": [("received", "asked"), ("began", "drawn")],
    "page: wait for a frame": [("asked", "began")],
    "page: style, layout, paint": [("drawn", "painted")],
}

BETWEEN_FRAMES = PHASES | {
    "page: decode, update elements, draw": [("received", "drawn")],
    "page: wait for a frame": [("drawn", "began")],
    "page: style, layout, paint": [("began", "painted")],
}
"""`PHASES` of a picture that was drawn before its frame began."""

# -------------------------------------------------------------------------------------------------------- measurements


@contextmanager
def explorer(browser: Browser, url: str, fragment: str) -> Iterator[tuple[Page, CDPSession]]:
    """The page, at rest, with the bench's watch on it."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(INSTRUMENT)
    page.goto(f"{url}/?{QUERY}#{fragment}")
    page.wait_for_selector("run-status[data-seq]", state="attached")
    page.wait_for_timeout(AT_REST_MS)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    try:
        yield page, session
    finally:
        context.close()


def metrics(session: CDPSession) -> dict[str, float]:
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def bench_arrangement(
    browser: Browser, url: str, suffix: str, arguments: argparse.Namespace
) -> tuple[dict[str, float], list[str]]:
    """The figures of one arrangement of the page, and the lines of its profile."""
    draw = random.Random(0)
    settings = [(draw.uniform(-SPAN, SPAN), draw.uniform(*PAUSE_MS)) for _ in range(arguments.settings)]
    with explorer(browser, url, ARRANGEMENTS[suffix]) as (page, session):
        page.evaluate(ONE_BY_ONE, settings[:5])
        before = metrics(session)
        records = page.evaluate(ONE_BY_ONE, settings)
        after = metrics(session)
        sustained = page.evaluate(SUSTAINED, [arguments.seconds, EVERY_MS, SPAN])
        dragged = metrics(session)
    waits = [record["painted"] - record["event"] for record in records]
    figures = {
        "event_to_picture_ms_median": statistics.median(waits),
        "event_to_picture_ms_p95": p95(waits),
        "frames_per_second": len(sustained["records"]) / arguments.seconds,
        "settle_ms": sustained["settle"],
    }
    return {name + suffix: round(value, 2) for name, value in figures.items()}, [
        "",
        suffix.removeprefix("_") or "default",
        f"  one by one: {len(records)} pictures",
        *profile_lines(records),
        f"    {main_thread('picture', len(records), before, after)}",
        f"  sustained: {sustained['events']} events, {len(sustained['records'])} pictures in {arguments.seconds:g} s",
        *profile_lines(sustained["records"]),
        f"    {main_thread('event', sustained['events'], after, dragged)}",
    ]


def profile_lines(records: list[dict[str, float]]) -> Iterator[str]:
    """The time of a picture by phases; without an event, it begins with the request."""
    spent = {"server: pass, recording, statistics": [record["compute"] for record in records]}
    for name in PHASES:
        spent[name] = [
            sum(record[to] - record[since] for since, to in parts)
            for record in records
            for parts in ((PHASES if "asked" in record else BETWEEN_FRAMES)[name],)
            if parts[0][0] in record
        ]
    spent[OUTSIDE] = [record["received"] - record["sent"] - record["compute"] for record in records]
    yield f"    {'ms':36}{'median':>8}{'p95':>8}"
    for name, values in spent.items():
        if len(values) > 1:
            yield f"    {name:36}{statistics.median(values):>8.2f}{p95(values):>8.2f}"


def main_thread(what: str, count: int, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Chromium's own account of the page's main thread, per picture or event."""
    durations = {
        "script": "ScriptDuration",
        "style": "RecalcStyleDuration",
        "layout": "LayoutDuration",
        "all tasks": "TaskDuration",
    }
    spent = {label: (after[name] - before[name]) / count * 1e3 for label, name in durations.items()}
    return f"main thread, ms per {what}: " + ", ".join(f"{label} {ms:.2f}" for label, ms in spent.items())


def bench_server(url: str, rounds: int, style: str = "") -> dict[str, float]:
    """The server's time for a frame against the bare pass of the same spec: a fresh model each, in turns."""
    spec = ModelSpec.from_query(f"{QUERY}&style={style}" if style else QUERY)
    draw = random.Random(1)
    times: dict[str, list[float]] = {"server": [], "bare": []}
    address = f"ws{url.removeprefix('http')}/api/v1/live"
    with connect(address, compression=None, max_size=None) as socket:
        for seq in range(1, rounds + 4):
            changed = spec.replace(scale=round(10 ** draw.uniform(-0.3, 0.3), 4))
            socket.send(json.dumps({"seq": seq, "spec": changed.as_dict()}))
            compute_ms = 0.0
            try:
                # Wait until no more messages come, so that they do not disturb the bare pass.
                while True:
                    message = socket.recv(timeout=0.15 if compute_ms else 10)
                    if isinstance(message, bytes) and message[:4] == FRAME_MAGIC:
                        compute_ms = FRAME_HEADER.unpack_from(message)[7]
            except TimeoutError:
                if not compute_ms:
                    raise
            model = build_model(changed)
            started = time.perf_counter()
            model.backward(model.forward())
            bare_ms = (time.perf_counter() - started) * 1e3
            if seq > 3:  # the first ones are slower: everything is touched for the first time
                times["server"].append(compute_ms)
                times["bare"].append(bare_ms)
    median, low, high = ratio(times, "server", "bare")
    figures = {
        "server_ratio": median,
        "server_ratio_low": low,
        "server_ratio_high": high,
        "server_ms": statistics.median(times["server"]),
        "bare_ms": statistics.median(times["bare"]),
    }
    return {f"{name}_{style}" if style else name: round(value, 2) for name, value in figures.items()}


def bench_refusals(url: str) -> dict[str, float]:
    """The slowest refusal: of each request the best of five, on an open connection."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    slowest = 0.0
    for address, status in REFUSED.items():
        times = []
        for _ in range(5):
            started = time.perf_counter()
            connection.request("GET", address)
            answer = connection.getresponse()
            answer.read()
            times.append((time.perf_counter() - started) * 1e3)
            if answer.status != status:
                raise SystemExit(f"{address} was answered {answer.status}, not {status}")
        slowest = max(slowest, min(times))
    connection.close()
    return {"refusal_ms_max": round(slowest, 2)}


def bench_memory(browser: Browser, url: str, pid: int, events: int) -> dict[str, float]:
    """The memory that slider events, one per frame of the screen, leave behind in the server and in the page."""

    def sizes(page: Page, session: CDPSession) -> tuple[float, float]:
        page.wait_for_timeout(AT_REST_MS)
        session.send("HeapProfiler.collectGarbage")
        return resident_mb(pid), metrics(session)["JSHeapUsedSize"] / 1e6

    with explorer(browser, url, ARRANGEMENTS[""]) as (page, session):
        session.send("HeapProfiler.enable")
        page.evaluate(EVENTS, [min(events, 200), SPAN])
        before = sizes(page, session)
        page.evaluate(EVENTS, [events, SPAN])
        after = sizes(page, session)
    return {
        "events": events,
        "server_rss_mb": round(after[0], 1),
        "server_rss_growth_mb": round(after[0] - before[0], 2),
        "js_heap_mb": round(after[1], 1),
        "js_heap_growth_mb": round(after[1] - before[1], 2),
    }


def resident_mb(pid: int) -> float:
    """Memory of a process that is in RAM."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except FileNotFoundError:
        return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)])) * 1024 / 1e6


def print_table(figures: Mapping[str, Any]) -> None:
    names = [name for name in figures if not name.endswith(tuple(filter(None, ARRANGEMENTS)))]
    print(f"{'50 × 100, batch 200':30}{'goal':>6}{'default':>10}{'heatmap':>10}{'ridgeline':>11}")
    for name in names:
        cells = [figures.get(name + suffix) for suffix in ARRANGEMENTS]
        goal = f"≤ {GOALS[name]}" if name in GOALS else ""
        print(f"{name:30}{goal:>6}" + "".join(f"{cell:>10g}" if cell is not None else "" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=120, help="slider settings per arrangement")
    parser.add_argument("--seconds", type=float, default=5, help="of sustained dragging per arrangement")
    parser.add_argument("--events", type=int, default=5000, help="slider events between the two looks at memory")
    parser.add_argument("--rounds", type=int, default=60, help="frames for the server's ratio")
    parser.add_argument("--profile", action="store_true", help="print where the time of a picture goes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Four processes want the processors: with neighbours that do too, the figures are about them.
    figures: dict[str, Any] = {"load_average_before": round(os.getloadavg()[0], 2), "processors": os.cpu_count()}
    profile: list[str] = []
    with server("serve") as (url, pid), sync_playwright() as playwright:
        browser = launch(playwright)
        for suffix in ARRANGEMENTS:
            measured, lines = bench_arrangement(browser, url, suffix, arguments)
            figures |= measured
            profile += lines
        figures |= bench_server(url, arguments.rounds)
        figures |= bench_server(url, arguments.rounds, "module")
        figures |= bench_refusals(url)
        figures |= bench_memory(browser, url, pid, arguments.events)
        browser.close()
    print_table(figures)
    if arguments.profile:
        print(*profile, sep="\n")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench-live.json").write_text(
        json.dumps({**figures, "environment": dict(environment())}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
