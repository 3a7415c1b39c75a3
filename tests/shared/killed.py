"""Kills a process that writes a file, at random moments, and reads the file each time.

python killed.py save|sweep PATH KILLS
"""

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import chainrule
from chainrule.spec import ModelSpec
from chainrule.sweeps.conduct import Outcome
from chainrule.sweeps.store import SweepStore
from chainrule.sweeps.sweep import read_sweep

Work = Callable[[], Iterator[None]]
"""Writes for longer than the process lives, and yields after each write."""


def of_save(path: Path) -> tuple[Work, Callable[[], None]]:
    trace = chainrule.trace_spec(ModelSpec.from_query("widths=100x11"))

    def work() -> Iterator[None]:
        while True:
            chainrule.save(trace, path)
            yield

    def check() -> None:
        assert len(chainrule.load(path).ops) == len(trace.ops)

    return work, check


def of_sweep(path: Path) -> tuple[Work, Callable[[], None]]:
    plan = read_sweep(ModelSpec.from_query("widths=6x4"), ["scale=0.5:2:500", "lr=0.1:1:500"], 1, "loss")
    expected = 1 / (1 + np.arange(plan.cells))
    before = np.zeros(plan.cells, bool)

    def work() -> Iterator[None]:
        with SweepStore(path, plan) as store:
            for cells in np.flatnonzero(~store.read()[0])[: plan.cells // 2 * 2].reshape(-1, 2):
                store.add(Outcome(0, cells, expected[cells], 1.0, 1.0))
                yield

    def check() -> None:
        with SweepStore(path, plan) as store:
            known, values, _ = store.read()
        assert known[before].all()
        assert known.sum() > before.sum()
        assert (known.reshape(-1, 2)[:, 0] == known.reshape(-1, 2)[:, 1]).all(), "an outcome is there, or it is not"
        assert (values[known] == expected[known]).all()
        before[:] = known

    return work, check


def main() -> None:
    """Print how many kills left the file whole."""
    kind, path, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    work, check = {"save": of_save, "sweep": of_sweep}[kind](path)
    chance = random.Random(kills)
    for _ in range(kills):
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            for _ in work():
                os.write(tell, b".")
            os._exit(1)  # all was written
        os.close(tell)
        for _ in range(chance.randrange(1, 4)):
            os.read(told, 1)
        for _ in range(chance.randrange(100_000)):
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        check()
    print("whole", kills)


if __name__ == "__main__":
    main()
