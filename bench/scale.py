"""Large recordings: what they take per op to record, to save and to read back, and how soon the page shows them.

    python bench/scale.py [--ops 1000,10000,100000]

A chain of small residual layers of so many ops, and a net of the size of GPT-2 small (124 million parameters). Each is
recorded in a process of its own; its memory is what the process has at its peak more than before the recording. The
page opens the compressed file in a Chromium that runs already: seconds from the request to the frame that shows the
graph, and the memory of the page at rest (JavaScript after a collection, with its buffers; and the whole process of the
page, as Linux counts it). Prints one table and writes bench/results/bench-scale.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, sync_playwright
from torch import Tensor, nn

import chainrule
from chainrule.run import environment
from explore import end_of_frame, served
from models import gpt
from page_graph import SIZE
from table import Section, number, render

# Shared with the browser tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from chromium import launch

RESULTS = Path(__file__).parent / "results"
GPT2 = "GPT-2 small"
OPS_PER_LAYER = 10
"""Forward and backward."""

OPEN_SECONDS, PAGE_MB = 3, 600
"""Goals for 100,000 ops."""


class Chain(nn.Module):
    """Residual layers, x ← x + relu(W x + b) / 10."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:  # x: (batch, 8)
        for layer in self.layers:
            x = x + layer(x).relu() * 0.1
        return x


def net(name: str) -> tuple[nn.Module, Tensor]:
    """The net of a row, and its input."""
    if name == GPT2:
        blocks = gpt(blocks=12, width=768, heads=12)
        embedding = nn.Embedding(50_257, 768)
        return nn.Sequential(embedding, *blocks, nn.Linear(768, 50_257, bias=False)), torch.arange(64)[None]
    return Chain(int(name) // OPS_PER_LAYER), torch.ones(4, 8)


def peak_mb() -> float:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def make(name: str, folder: Path) -> dict[str, Any]:
    """Record a net and save it into a folder, compressed and not; the figures."""
    model, x = net(name)
    model(x).square().mean().backward()  # type: ignore[no-untyped-call]
    before, began = peak_mb(), time.perf_counter()
    with chainrule.record(model) as recording:
        model(x).square().mean().backward()  # type: ignore[no-untyped-call]
    trace = recording.trace
    recorded = time.perf_counter() - began
    took = {}
    for suffix in (".json", ".json.gz"):
        began = time.perf_counter()
        chainrule.save(trace, folder / f"dump{suffix}", strict=True)
        took[suffix] = time.perf_counter() - began
    memory = peak_mb() - before
    began = time.perf_counter()
    chainrule.load(folder / "dump.json.gz")
    ops = len(trace.ops)
    sizes = {suffix: (folder / f"dump{suffix}").stat().st_size for suffix in took}
    return {
        "ops": ops,
        "record_us_per_op": round(recorded / ops * 1e6, 1),
        "memory_kb_per_op": round(memory / ops * 1e3, 1),
        "json_mb": round(sizes[".json"] / 1e6, 1),
        "gz_mb": round(sizes[".json.gz"] / 1e6, 1),
        "save_s": round(took[".json"], 2),
        "save_gz_s": round(took[".json.gz"], 2),
        "load_s": round(time.perf_counter() - began, 2),
    }


def opened(browser: Browser, path: Path) -> dict[str, float]:
    """Seconds until the page shows a dump, and the memory that it has then."""
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(300_000)
    with served("open", str(path), "--no-browser", "--insecure", "--port", "0") as link:
        # The server answers before it has imported PyTorch.
        while not page.request.get(f"{link.rstrip('/')}/foundations").ok:
            time.sleep(0.1)
        began = time.perf_counter()
        page.goto(link, wait_until="commit")
        page.wait_for_selector("graph-view .box")
        end_of_frame(page)
        shown = time.perf_counter() - began
        devtools = page.context.new_cdp_session(page)
        devtools.send("HeapProfiler.collectGarbage")
        heap = devtools.send("Runtime.getHeapUsage")
        page.close()
    return {"open_s": round(shown, 2), "page_mb": round((heap["usedSize"] + heap["backingStorageSize"]) / 1e6)}


def main() -> None:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="1000,10000,100000")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        name, folder = arguments.make
        print(json.dumps(make(name, Path(folder))))
        return
    figures: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for name in (*arguments.ops.split(","), GPT2):
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--make", name, folder]
                made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                figures[name] = {**json.loads(made), **opened(browser, Path(folder) / "dump.json.gz")}
        browser.close()
    labels = {
        "ops": "ops",
        "record_us_per_op": "recording, µs per op",
        "memory_kb_per_op": "memory, kB per op",
        "json_mb": "dump, MB",
        "gz_mb": "  compressed",
        "save_s": "to save it, s",
        "save_gz_s": "  compressed",
        "load_s": "chainrule.load, s",
        "open_s": f"page shows it, s (goal {OPEN_SECONDS})",
        "page_mb": f"memory of the page, MB (goal {PAGE_MB})",
    }
    rows = [
        (label, [number(each[key], 0 if key in ("ops", "page_mb") else 1) for each in figures.values()])
        for key, label in labels.items()
    ]
    print(render([Section("chain of so many ops, and a GPT", list(figures), rows)]))
    figures["environment"] = environment("cpu")
    (RESULTS / "bench-scale.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
