"""A sweep survives its workers."""

import os
import re
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
import torch

from chainrule.errors import SweepError
from chainrule.spec import ModelSpec
from chainrule.sweeps.conduct import RETRIES, Inline, conduct
from chainrule.sweeps.pool import OwnPool, WorkerPool
from chainrule.sweeps.run import run_sweep
from chainrule.sweeps.sweep import read_sweep
from chainrule.sweeps.work import run_task, task_of

TRAINED = ModelSpec.from_query(
    "widths=16,16,1&activation=tanh&init=lecun_normal&bias=false&batch=16&step=100&dtype=float64"
)
PLAN = read_sweep(TRAINED, ["scale=0.1:10:24", "lr=log:0.01:100:24"], 1, "loss_ratio")


class Deadly(Inline):
    """Its workers die in one task; every other task is computed."""

    def __init__(self, deadly, times):
        self.deadly, self.times, self.is_broken = deadly, times, False

    def submit(self, fn, /, *args, **kwargs):
        if self.is_broken or (args[0].number == self.deadly and self.times):
            self.times -= not self.is_broken
            self.is_broken = True
            future = Future()
            future.set_exception(BrokenProcessPool("died"))
            return future
        return super().submit(fn, *args, **kwargs)

    def again(self):
        self.is_broken = False
        return self


def tasks():
    return [task_of(number, [stack]) for number, stack in enumerate(PLAN.stacks)]


@pytest.mark.parametrize("times", [1, RETRIES, RETRIES + 5])
def test_a_task_whose_worker_dies_is_run_again_twice(times):
    # The first task runs beside others, which is no proof against it.
    pool = Deadly(1, times + 1)
    outcomes = {outcome.number: outcome for outcome in conduct(tasks(), pool.again, 3)}
    assert set(outcomes) == set(range(len(PLAN.stacks)))
    failed = [number for number, outcome in outcomes.items() if outcome.values is None]
    assert failed == ([1] if times > RETRIES else [])
    if failed:
        assert outcomes[1].failure == (
            "its worker died 3 times, perhaps because the system stopped it for lack of memory"
        )
        assert outcomes[1].cells.tolist() == PLAN.stacks[1].cells.tolist()


def test_a_task_that_fails_is_run_again_and_then_says_why():
    class Full(Inline):
        tries = 0

        def submit(self, fn, /, *args, **kwargs):
            if args[0].number:
                return super().submit(fn, *args, **kwargs)
            Full.tries += 1
            future = Future()
            future.set_exception(MemoryError("no memory for 4 GiB"))
            return future

    outcomes = {outcome.number: outcome for outcome in conduct(tasks(), Full, 2)}
    assert Full.tries == 1 + RETRIES
    assert outcomes[0].failure == "failed 3 times: MemoryError: no memory for 4 GiB"
    assert all(outcomes[number].values is not None for number in range(1, len(PLAN.stacks)))


def test_a_worker_of_another_version_is_refused_by_name():
    task = replace(tasks()[0], versions=(("chainrule", "0.1.0"), ("torch", "2.0.1"), ("numpy", "2.0")))
    with pytest.raises(
        SweepError, match=rf"torch {re.escape(torch.__version__)} of a worker is not torch 2\.0\.1 of this command"
    ):
        list(conduct([task], Inline, 1))


@pytest.mark.long
def test_a_killed_worker_changes_no_bit():
    plan = read_sweep(TRAINED.replace(step=1000), ["scale=0.1:10:4", "depth=2:9:8"], 1, "loss_ratio")
    expected = run_sweep(plan)
    pools = []

    def start():
        pools.append(OwnPool(2))
        return pools[-1]

    def kill_once(_):
        if len(pools) == 1:
            os.kill(next(iter(pools[0]._pool._pool._processes)), signal.SIGKILL)

    found = run_sweep(plan, start=start, workers=2, progress=kill_once)
    assert len(pools) > 1
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.reasons == {}


@pytest.mark.long
def test_a_sweep_that_ends_stops_its_tasks_and_no_other():
    """Two sweeps share one worker. The first would take hours."""
    endless = read_sweep(TRAINED.replace(step=100_000), ["scale=0.1:10:4", "depth=2:9:8"], 1, "loss_ratio")
    pool = WorkerPool(1)
    tasks = [task_of(number, [stack]) for number, stack in enumerate(endless.stacks)]
    first = pool.lease()
    futures = [first.submit(run_task, task) for task in tasks[:2]]
    first.shutdown()
    found = run_sweep(PLAN, start=pool.lease, workers=1)
    assert all("stopped" in str(future.exception()) for future in futures)
    assert found.values.tobytes() == run_sweep(PLAN).values.tobytes()
    pool.close()


def test_ctrl_c_counts_although_the_pool_is_found_broken_at_the_same_time(monkeypatch):
    class Broken(ProcessPoolExecutor):
        def submit(self, *_):
            signal.raise_signal(signal.SIGINT)
            raise BrokenProcessPool("died")

    monkeypatch.setattr("chainrule.sweeps.pool.ProcessPoolExecutor", Broken)
    with pytest.raises(KeyboardInterrupt):
        WorkerPool(1).submit(int)
