"""Pictures per second while a map of 1,000,000 cells is moved: the real page in a real Chromium, with made values.

    python bench/map_page.py

A pointer drags the map in mode *Pan*, one move per frame.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Route, sync_playwright

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch
from serving import server

SIDE = 1000
ADDRESS = f"/map?widths=8x6&x=scale=0.5:2:{SIDE}&y=lr=log:0.001:1:{SIDE}&seeds=1&measure=gradient_ratio"

PAN = """
async (seconds) => {
  const canvas = document.querySelector("sweep-map canvas");
  const area = canvas.getBoundingClientRect();
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const middle = { x: area.x + area.width / 2, y: area.y + area.height / 2 };
  const send = (type, step) => canvas.dispatchEvent(new PointerEvent(type, {
    clientX: middle.x + 100 * Math.sin(step / 20), clientY: middle.y + 60 * Math.cos(step / 20), pointerId: 1,
    isPrimary: true, button: 0, buttons: 1, bubbles: true, cancelable: true }));
  canvas.setPointerCapture = () => {};
  send("pointerdown", 0);
  const frames = [], began = performance.now();
  for (let step = 1; performance.now() - began < 1000 * seconds; step += 1) {
    send("pointermove", step);
    frames.push(await frame());
  }
  send("pointerup", frames.length);
  const gaps = frames.slice(1).map((time, at) => time - frames[at]).sort((a, b) => a - b);
  return { "pictures per second": 1000 * gaps.length / gaps.reduce((a, b) => a + b, 0),
    "ms between pictures, 95th percentile": gaps[Math.floor(0.95 * gaps.length)] };
}
"""


def answer(route: Route) -> None:
    """The plan and all values, in tasks of 10,000 cells."""
    axes = [
        {"key": "scale", "over": "", "log": False, "values": np.linspace(0.5, 2, SIDE).tolist()},
        {"key": "lr", "over": "", "log": True, "values": np.geomspace(0.001, 1, SIDE).tolist()},
    ]
    measure = {"name": "gradient_ratio", "title": "Gradient ratio", "doc": "", "log": True, "trains": False}
    tasks = SIDE * SIDE // 10_000
    plan: dict[str, Any] = {"type": "plan", "query": "", "spec": {"widths": "8x6"}, "axes": axes, "seeds": [42]}
    plan |= {"measure": measure, "cells": SIDE * SIDE, "tasks": tasks, "curves": []}
    values = np.exp(np.random.default_rng(0).normal(size=SIDE * SIDE)).round(4).tolist()
    lines = [plan]
    for task in range(tasks):
        cells = list(range(10_000 * task, 10_000 * (task + 1)))
        lines.append({"type": "cells", "task": task, "cells": cells, "values": values[cells[0] : cells[-1] + 1]})
    lines.append({"type": "done", "seconds": 0})
    body = "\n".join(json.dumps(line) for line in lines) + "\n"
    route.fulfill(status=200, content_type="application/x-ndjson", body=body)


def main() -> None:
    with server("serve") as (url, _), sync_playwright() as playwright:
        page = launch(playwright).new_page(viewport={"width": 1440, "height": 900})
        page.route("**/api/v1/sweeps", answer)
        page.goto(url + ADDRESS)
        button = page.get_by_role("button", name="Draw the map")
        if page.locator("sweep-form [role=alert]").is_visible():
            # The server itself would refuse so many nets.
            button.click()
        page.wait_for_function("document.querySelector('#progress').textContent === '1,000,000 nets'", timeout=120_000)
        page.locator("sweep-map canvas").hover()
        page.mouse.wheel(0, -900)
        page.get_by_role("button", name="Pan", exact=True).click()
        page.wait_for_timeout(1000)
        before = page.locator("sweep-map").screenshot()
        figures = page.evaluate(PAN, 5)
        assert page.locator("sweep-map").screenshot() != before, "the map has moved"
        for name, figure in figures.items():
            print(f"a map of 1,000,000 cells: {name} {figure:.1f}")


if __name__ == "__main__":
    main()
