"""The cost of recording one of several ranks, and of joining the dumps of many.

    python bench/ranks.py [--rounds 15]

Trains DDP models on one and on two gloo ranks, one thread each: CPU seconds of a recorded step ÷ those of a bare step,
in turn. Then joins 64 dumps of M4, as `chainrule open` does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import chainrule
from chainrule.dump.opened import DumpFile
from chainrule.dump.ranks import join
from models import case

JOINED = 64
MODELS = "M1", "M4"


def as_rank(rounds: int, folder: Path) -> None:
    """Measure on this rank; rank 0 prints the ratios."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for name in MODELS:
        which = case(name)
        model = DistributedDataParallel(which.model)
        times: dict[str, list[float]] = {"bare": [], "recorded": []}
        for _ in range(rounds if name == "M1" else max(3, rounds // 5)):
            for kind, each in times.items():
                model.zero_grad()
                began = time.process_time()
                if kind == "bare":
                    which.loss(model(which.x)).backward()  # type: ignore[no-untyped-call]
                else:
                    with chainrule.record(model) as recording:
                        which.loss(model(which.x)).backward()  # type: ignore[no-untyped-call]
                each.append(time.process_time() - began)
        found[name] = statistics.median(a / b for a, b in zip(times["recorded"][1:], times["bare"][1:], strict=True))
        recording.save(folder / f"{name}.json")
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def joined(folder: Path) -> float:
    """Seconds to join JOINED dumps of M4, each a copy of rank 0's."""
    dump = json.loads((folder / "M4.rank0.json").read_bytes())
    files = []
    for rank in range(JOINED):
        dump["environment"] |= {"rank": rank, "world_size": JOINED}
        path = folder / f"many.rank{rank}.json"
        path.write_text(json.dumps(dump))
        files.append(DumpFile(path.name, path))
    began = time.perf_counter()
    found, _ = join(files)
    found[0].load()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if "RANK" in os.environ:
        as_rank(options.rounds, options.folder)
        return
    with tempfile.TemporaryDirectory() as made:
        ratios = {}
        for ranks in (1, 2):
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
            command = [*launch, __file__, "--rounds", str(options.rounds), "--folder", made]
            ratios[ranks] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print("| recorded ÷ bare, per rank | 1 rank | 2 ranks | 2 ÷ 1 |\n|---|---|---|---|")
        for name in MODELS:
            one, two = ratios[1][name], ratios[2][name]
            print(f"| {name} | {one:.2f} | {two:.2f} | {two / one:.2f} |")
        print(f"\n{JOINED} dumps of M4 joined, the first served: {joined(Path(made)):.2f} s")


if __name__ == "__main__":
    main()
