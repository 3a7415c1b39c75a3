"""How far the verdicts can be trusted: false alarms on models that train, and causes found in models that do not.

    python bench/verdicts.py [--only NAME] [--steps 30]

Healthy models: those of `healthy_models`, recorded at initialization and after some steps of AdamW on one batch; an
alarm is a fault, frozen parameters left out, or an unhealthy layer. Faulty models: those of `faulty_models`, one step
each; a cause is found if a fault of the right kind points at the marked line, and found first if no other fault stands
before it. Prints two tables and writes bench/results/bench-verdicts.json, and the tables of docs/performance.md
as bench-verdicts.md beside it; with --only, bench-partial.json alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import chainrule
import faulty_models
import healthy_models
from chainrule.diagnose.profile import theory
from chainrule.trace.report import WORDS
from table import Section, number, render

# Shared with the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "shared"))
from vision import import_torchvision

RESULTS = Path(__file__).parent / "results"
STEPS = 30
SEED = 1


def alarms(trace: chainrule.Trace) -> dict[str, int]:
    """Faults by kind, and layers by verdict."""
    faults = Counter(each.kind for each in trace.faults if each.level == "fault")
    return dict(faults + Counter(each.health for each in theory(trace).layers if each.health is not None))


def recorded(
    model: torch.nn.Module, step: Callable[[], Any], optimizer: torch.optim.Optimizer | None
) -> chainrule.Trace:
    """The trace of a step, also of one that raises."""
    try:
        with chainrule.record(model, optimizer=optimizer) as recording:
            step()
    except RuntimeError:
        pass  # the trace tells it
    return recording.trace


def healthy(make: Callable[[], healthy_models.Case], steps: int) -> dict[str, Any]:
    """Loss and alarms of a model before and after its steps."""
    torch.manual_seed(SEED)
    case = make()
    optimizer = case.optimizer()
    before = recorded(case.model, case.step, optimizer)
    optimizer.zero_grad()
    losses = []
    for _ in range(steps):
        losses.append(case.step().item())
        optimizer.step()
        optimizer.zero_grad()
    after = recorded(case.model, case.step, optimizer)
    told = {"layers": len(before.layers), "loss": [losses[0], losses[-1]]}
    return told | {"alarms": alarms(before), "alarms_after": alarms(after)}


def faulty(name: str) -> dict[str, Any]:
    """The faults that a step shows, and the place of the right one among them."""
    torch.manual_seed(SEED)
    case = faulty_models.FAULTY[name]()
    trace = recorded(case.model, case.step, case.optimizer)
    lines = faulty_models.marked_lines(name)
    right = [
        each.kind in case.kinds and each.op is not None and each.source is not None and each.source.line in lines
        for each in trace.faults
    ]
    kinds = [each.kind for each in trace.faults]
    return {"faults": kinds, "alarms": alarms(trace), "place": right.index(True) + 1 if True in right else None}


def main() -> None:
    """Run both, print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only models whose name contains this")
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of the models' libraries
    library = import_torchvision()
    good, bad = {}, {}
    for name, make in healthy_models.HEALTHY.items():
        if asked.only in name:
            good[name] = healthy(make, asked.steps)
            print(f"{name:36}{good[name]}", flush=True)
    for name in faulty_models.FAULTY:
        if asked.only in name:
            bad[name] = faulty(name)
            print(f"{name:36}{bad[name]}", flush=True)
    del library
    print(render(sections(good, bad)))
    RESULTS.mkdir(exist_ok=True)
    name = "bench-partial.json" if asked.only else "bench-verdicts.json"
    (RESULTS / name).write_text(json.dumps({"healthy": good, "faulty": bad}, indent=1))
    if not asked.only:
        (RESULTS / "bench-verdicts.md").write_text(markdown(good, bad))


def markdown(good: dict[str, Any], bad: dict[str, Any]) -> str:
    """The two tables as docs/performance.md has them: healthy models by library, and each fault with its finding."""
    families: dict[str, list[str]] = {}
    for name in good:
        library, _, rest = name.partition(" ")
        known = library in ("torchvision", "timm", "transformers")
        families.setdefault(library if known else "nets of papers and tutorials", []).append(rest if known else name)
    rows = ["| models that train | layers | alarms at initialization | after 30 steps |", "|---|---|---|---|"]
    for family, names in families.items():
        found = [good.get(f"{family} {name}") or good[name] for name in names]
        layers = [each["layers"] for each in found]
        alarms = [sum(sum(each[when].values()) for each in found) for when in ("alarms", "alarms_after")]
        rows.append(f"| {family}: {' · '.join(names)} | {min(layers)}–{max(layers)} | {alarms[0]} | {alarms[1]} |")
    rows += ["", "| one fault in a net | finding at its line | place in the list |", "|---|---|---|"]
    for name, each in bad.items():
        kind = "–" if each["place"] is None else WORDS[each["faults"][each["place"] - 1]]
        rows.append(f"| {name.replace('_', ' ')} | {kind} | {each['place'] or '–'} |")
    return "\n".join(rows) + "\n"


def sections(good: dict[str, Any], bad: dict[str, Any]) -> list[Section]:
    """The two tables."""
    quiet = sum(not each["alarms"] and not each["alarms_after"] for each in good.values())
    found = [each["place"] for each in bad.values() if each["place"] is not None]
    return [
        Section(
            f"{len(good)} healthy models",
            ("layers", "loss", "after", "at first", "after"),
            [
                (
                    name,
                    (
                        str(each["layers"]),
                        *(number(loss) for loss in each["loss"]),
                        str(sum(each["alarms"].values())),
                        str(sum(each["alarms_after"].values())),
                    ),
                )
                for name, each in good.items()
            ],
            [f"{quiet} of {len(good)} without an alarm."],
        ),
        Section(
            f"{len(bad)} faulty models",
            ("faults", "place"),
            [(name, (str(len(each["faults"])), str(each["place"] or "–"))) for name, each in bad.items()],
            [f"{len(found)} of {len(bad)} found with op and line, {found.count(1)} as the first fault."],
        ),
    ]


if __name__ == "__main__":
    main()
